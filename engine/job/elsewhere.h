/* SPDX-License-Identifier: Apache-2.0 */
/* ELSEWHERE: a question of a client here to the engine of another member, and its answer. */
#ifndef HEARTH_ENGINE_ELSEWHERE_H
#define HEARTH_ENGINE_ELSEWHERE_H

#include "core/local/local.h"

#define ELSEWHERE_MS   2000u /* an answer is awaited for so long */
#define ELSEWHERE_MOST 32u   /* questions of this engine's clients that wait for an answer */

struct hth_node;

/* NULL: no memory. */
struct elsewhere *elsewhere_open(void);
void elsewhere_close(struct elsewhere *e);

void elsewhere_ask(struct hth_node *n, uint32_t client, const struct hth_local_elsewhere *m);

/* 1: the message was one of these. */
int elsewhere_message(
        struct hth_node *n, uint32_t from, uint16_t type, const unsigned char *body, size_t len);
void elsewhere_peer_down(struct hth_node *n, uint32_t node, const char *text);
void elsewhere_over(struct hth_node *n); /* a new epoch begins: its members have other numbers */
void elsewhere_gone(struct hth_node *n, uint32_t client);
void elsewhere_tick(struct hth_node *n, uint64_t now_ms);
uint64_t elsewhere_due_ms(const struct hth_node *n);

#endif
