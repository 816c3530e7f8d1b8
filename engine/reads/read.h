/* SPDX-License-Identifier: Apache-2.0 */
/* Reads of ranks: MANIFEST, MAP, UNMAP, RANGE, COMMON_GET. */
#ifndef HEARTH_ENGINE_READ_H
#define HEARTH_ENGINE_READ_H

#include "core/local/local.h"

struct client;
struct hth_node;

void read_manifest(struct hth_node *n, struct client *c, const struct hth_local_map *m);
void read_map(struct hth_node *n, struct client *c, const struct hth_local_map *m);
void read_unmap(struct hth_node *n, struct client *c, const struct hth_local_unmap *m);
void read_range(struct hth_node *n, struct client *c, const struct hth_local_map *m);
void read_common(struct hth_node *n, struct client *c, const struct hth_local_common *m);
/* The client's leases end; an object that it waits for is dropped when it comes. */
void read_gone(struct hth_node *n, uint32_t client);
/* Tries again the fetches that had to wait for a slot. */
void read_tick(struct hth_node *n, uint64_t now_ms);
uint64_t read_due_ms(const struct hth_node *n);
uint64_t read_leases(const struct hth_node *n); /* objects that readers have now */
void read_close(struct hth_node *n);

#endif
