/* SPDX-License-Identifier: Apache-2.0 */
/* The table of a node's ends. An end is one side of a connection; its id is generation | slot. */
#include "loop_parts.h"

#include <stdlib.h>
#include <string.h>

struct end *hth_loop_end_find(const struct loop *loop, hth_conn conn)
{
    uint32_t slot = (uint32_t)conn;

    if (!loop || slot >= loop->end_cap || !loop->ends[slot] || loop->ends[slot]->conn != conn)
        return NULL;
    return loop->ends[slot];
}

static void end_free(struct end *end)
{
    free(end->down_own);
    free(end->down_peer);
    free(end->up);
    free(end->writable);
    free(end);
}

/* The first free slot. */
static int end_slot_find(struct loop *loop, uint32_t *out)
{
    struct end **ends;
    uint32_t cap = loop->end_cap ? 2 * loop->end_cap : 8, i = 0;

    while (i < loop->end_cap && loop->ends[i])
        i++;
    if (i == loop->end_cap) {
        ends = realloc(loop->ends, cap * sizeof(struct end *));
        if (!ends)
            return HEARTH_ENOMEM;
        memset(ends + loop->end_cap, 0, (cap - loop->end_cap) * sizeof(struct end *));
        loop->ends = ends;
        loop->end_cap = cap;
    }
    *out = i;
    return HEARTH_OK;
}

struct end *hth_loop_end_new(struct loop *loop, struct place *peer)
{
    struct end *end = calloc(1, sizeof(*end));
    uint32_t slot;

    if (!end)
        return NULL;
    end->down_own = hth_loop_event_new(EVENT_DOWN, 0);
    end->down_peer = hth_loop_event_new(EVENT_DOWN, 0);
    end->up = hth_loop_event_new(EVENT_UP, 0);
    end->writable = hth_loop_event_new(EVENT_WRITABLE, 0);
    if (!end->down_own || !end->down_peer || !end->up || !end->writable ||
            end_slot_find(loop, &slot)) {
        end_free(end);
        return NULL;
    }
    end->conn = (uint64_t)++loop->net->generation << 32 | slot;
    end->peer = peer;
    loop->ends[slot] = end;
    return end;
}

void hth_loop_end_free(struct loop *loop, struct end *end)
{
    loop->ends[(uint32_t)end->conn] = NULL;
    end_free(end);
}
