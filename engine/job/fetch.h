/* SPDX-License-Identifier: Apache-2.0 */
/* The ranks' table from the engine of another node; and to others from here. */
#ifndef HEARTH_ENGINE_FETCH_H
#define HEARTH_ENGINE_FETCH_H

#include "core/format/ticket.h"

struct hth_node;

void fetch_ticket(struct hth_node *n, uint32_t round, uint32_t wait_ms, const struct hth_ticket *t);
/* From an engine in no epoch (HTH_OUTSIDE). */
void fetch_message(
        struct hth_node *n, uint32_t from, uint16_t type, const unsigned char *body, size_t len);
void fetch_peer_down(struct hth_node *n, uint32_t node, const char *text);
void fetch_tick(struct hth_node *n, uint64_t now_ms);
uint64_t fetch_due_ms(const struct hth_node *n);
void fetch_close(struct hth_node *n);

#endif
