/* SPDX-License-Identifier: Apache-2.0 */
/* Real engines that have a save, in virtual time, and a stranger who asks whether they still
 * answer. */
#ifndef HEARTH_TESTS_FUZZ_ENGINES_H
#define HEARTH_TESTS_FUZZ_ENGINES_H

#include "world_parts.h"

#include <stdlib.h>
#include <string.h>

#define STRANGER 99999u               /* a client that is no rank of the world */
#define ROOM     (UINT64_C(64) << 20) /* of each memory: a client may ask for more than there is */

static unsigned answers;

static void stranger_hears(struct world *w, const struct letter *l)
{
    struct hth_local_head head;

    (void)w;
    memcpy(&head, l->bytes, sizeof(head));
    answers += l->client == STRANGER && head.type == HTH_LOCAL_BYTES;
}

/* degree: of their tree; 0: as many as may be. */
static void engines_open(struct world *w, uint32_t nodes, uint32_t degree)
{
    struct world_opts o = { .seed = 1,
        .nodes = nodes,
        .ranks_per_node = 1,
        .copies = 1,
        .keep = 1,
        .run_ms = 60000,
        .data_max = 100,
        .degree = degree };

    world_open(w, &o);
    w->stranger = stranger_hears;
    while (!w->why[0] && hth_save_none(w->newest.id))
        world_advance(w, w->now_ms + 1);
    if (w->why[0])
        abort();
    for (uint32_t n = 0; n < nodes; n++)
        hth_store_mem_room(w->machine[n].store, ROOM);
}

/* Whom an engine that lies or is silent keeps waiting is not judged here. */
static void engines_advance(struct world *w, uint64_t ms)
{
    uint64_t until_ms = w->now_ms + ms;

    do {
        if (!strncmp(w->why, "P4", 2))
            w->why[0] = '\0';
        world_advance(w, until_ms);
    } while (!strncmp(w->why, "P4", 2));
}

/* That it answers at all, unless it has ended. */
static void must_answer(struct world *w, uint32_t node)
{
    struct hth_local_head status = { sizeof(status), HTH_LOCAL_STATUS, 1, 0 };
    struct hth_node *n = world_node(w, node);

    answers = 0;
    if (n)
        hth_node_request(n, STRANGER, &status, sizeof(status), NULL);
    engines_advance(w, 2);
    if (n && n == world_node(w, node) && !answers)
        abort();
}

#endif
