/* SPDX-License-Identifier: Apache-2.0 */
/* Inventories of all members: each comes up in parts, which are put together here and decoded. */
#include "choice_state.h"

#include <stdlib.h>
#include <string.h>

int gather_ready(struct hth_choice *co)
{
    unsigned char *plan;
    size_t len;

    if (!co->from) {
        co->nodes = co->ctx->epoch->nodes;
        co->from = calloc(co->nodes, sizeof(*co->from));
        co->before = serial_read(co->ctx, &plan, &len);
        free(plan);
    }
    return co->from != NULL;
}

static void gathered_forget_parts(struct gathered *g)
{
    for (uint32_t i = 0; i < g->parts; i++)
        free(g->part[i]);
    free(g->part);
    free(g->part_len);
    g->part = NULL;
    g->part_len = NULL;
    g->parts = g->got = 0;
}

static void gathered_join_parts(struct hth_choice *co, struct gathered *g, uint32_t origin)
{
    size_t len = 0;
    size_t at = 0;
    unsigned char *all;
    struct hearth_error err;

    for (uint32_t i = 0; i < g->parts; i++)
        len += g->part_len[i];
    all = malloc(len ? len : 1);
    if (!all)
        return;
    for (uint32_t i = 0; i < g->parts; i++) {
        memcpy(all + at, g->part[i], g->part_len[i]);
        at += g->part_len[i];
    }
    if (hth_inventory_decode(&g->inventory, all, len, &err)) {
        hth_say(&co->ctx->log, HEARTH_LOG_ERROR, "inventory-bad", "node %s: %s",
                co->ctx->epoch->member[origin].node, err.text);
    } else {
        g->complete = 1;
        co->complete++;
    }
    free(all);
    gathered_forget_parts(g);
}

int gather_part(struct hth_choice *co, uint32_t origin, uint32_t part, uint32_t parts,
        const unsigned char *bytes, size_t len)
{
    struct gathered *g = &co->from[origin];

    if (g->parts != parts) {
        gathered_forget_parts(g);
        g->part = calloc(parts, sizeof(*g->part));
        g->part_len = calloc(parts, sizeof(*g->part_len));
        if (!g->part || !g->part_len) {
            gathered_forget_parts(g);
            return 0;
        }
        g->parts = parts;
    }
    if (g->part[part])
        return 0;
    g->part[part] = malloc(len ? len : 1);
    if (!g->part[part])
        return 0;
    memcpy(g->part[part], bytes, len);
    g->part_len[part] = len;
    if (++g->got == parts)
        gathered_join_parts(co, g, origin);
    return 1;
}

void gather_fini(struct hth_choice *co)
{
    for (uint32_t i = 0; co->from && i < co->nodes; i++) {
        gathered_forget_parts(&co->from[i]);
        hth_inventory_fini(&co->from[i].inventory);
    }
    free(co->from);
    co->from = NULL;
}
