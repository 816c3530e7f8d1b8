/* SPDX-License-Identifier: Apache-2.0 */
/* Clients that are no ranks of the world ask an engine in virtual time, packet by packet, what it
 * answers at once. */
#ifndef HEARTH_TESTS_ENGINE_PACKETS_H
#define HEARTH_TESTS_ENGINE_PACKETS_H

#include "check.h"
#include "saving.h"

#include "core/base/bytes.h" /* has parameters of the name of the world */

#include <string.h>

static struct world w;
static struct hth_node *node; /* of at_machine */
static uint32_t at_machine;
static uint64_t request;

static union {
    struct hth_local_head head;
    struct hth_local_error error;
    struct hth_local_lent lent;
    struct hth_local_given given;
    struct hth_local_save_id save_id;
    struct hth_local_mapped mapped;
    struct hth_local_recovered recovered;
    unsigned char bytes[HTH_LOCAL_MAX];
} heard; /* the last answer */

/* Sends the request unchanged. 1: the engine has answered, and the answer was copied. */
static inline int ask_as_is(uint32_t client, const void *m, uint32_t len)
{
    int answered = 0;

    hth_node_request(node, client, m, len, NULL);
    for (const struct letter *l = w.letters; l; l = l->next)
        if (l->client == client && l->machine == at_machine &&
                ((const struct hth_local_head *)(const void *)l->bytes)->request == request) {
            memcpy(&heard, l->bytes, l->len);
            answered = 1;
        }
    machine_due(&w.machine[at_machine], 0);
    return answered;
}

/* 0: answered like this; else the code of the error that came, 1: something else, or nothing. */
static inline int ask(
        uint32_t client, void *m, uint32_t len, uint32_t type, uint64_t token, uint32_t want)
{
    struct hth_local_head head = { len, type, ++request, token };

    memcpy(m, &head, sizeof(head));
    if (!ask_as_is(client, m, len))
        return 1;
    if (heard.head.type == want)
        return 0;
    return heard.head.type == HTH_LOCAL_ERROR ? heard.error.code : 1;
}

static inline int say(uint32_t client, uint32_t type, uint64_t token, uint32_t want)
{
    struct hth_local_head m;

    return ask(client, &m, sizeof(m), type, token, want);
}

static inline void end(void)
{
    world_close(&w);
}

#endif
