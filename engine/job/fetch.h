/* SPDX-License-Identifier: Apache-2.0 */
/* FETCH: the ranks' table from the engine of another node; and to others from here. */
#ifndef HEARTH_ENGINE_FETCH_H
#define HEARTH_ENGINE_FETCH_H

#include "core/local/local.h"

struct client;
struct hth_node;

void fetch_ask(struct hth_node *n, struct client *c, const struct hth_local_fetch *m);
/* From an engine in no epoch (HTH_OUTSIDE). */
void fetch_message(
        struct hth_node *n, uint32_t from, uint16_t type, const unsigned char *body, size_t len);
void fetch_peer_down(struct hth_node *n, uint32_t node, const char *text);
void fetch_tick(struct hth_node *n, uint64_t now_ms); /* before meet_tick() */
uint64_t fetch_due_ms(const struct hth_node *n);
void fetch_close(struct hth_node *n);

#endif
