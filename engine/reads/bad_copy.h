/* SPDX-License-Identifier: Apache-2.0 */
/* Copies of this node that a reader has found to be wrong: BAD. */
#ifndef HEARTH_ENGINE_BAD_COPY_H
#define HEARTH_ENGINE_BAD_COPY_H

#include "core/local/local.h"
#include "replication/held/holdings.h"

struct client;
struct hth_node;

/* A rank has found a chunk wrong that it was given. */
void bad_copy_ask(struct hth_node *n, struct client *c, const struct hth_local_bad *m);
/* Another node reports a bad chunk of an object that it pulled from here. */
void bad_copy_peer(struct hth_node *n, uint32_t from, struct hth_save_id save, uint64_t object,
        uint64_t chunk);
/* This copy is wrong: it is put aside. If its save is kept, the object is fetched again. */
void bad_copy_set_aside(struct hth_node *n, struct hth_held_save *save, struct hth_held *held,
        const struct hearth_error *why);
void bad_copy_tick(struct hth_node *n, uint64_t now_ms);
uint64_t bad_copy_due_ms(const struct hth_node *n);
void bad_copy_gone(struct hth_node *n, uint32_t client);
void bad_copy_close(struct hth_node *n);

#endif
