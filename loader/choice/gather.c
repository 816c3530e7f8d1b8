/* SPDX-License-Identifier: Apache-2.0 */
/* Inventories of all members: each comes up in parts, which are put together here and decoded. */
#include "choice_state.h"

#include "core/base/crc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* If the record of plans is of another build, no plan is given in this epoch. */
static void gather_begin(struct hth_choice *co)
{
    struct hearth_error err;
    struct given given;

    if (serial_read(co->ctx, &given, &err))
        hth_choice_fail(co, err.code, err.text);
    co->before = given.serial;
    free(given.plan);
}

int gather_ready(struct hth_choice *co)
{
    if (co->from)
        return 1;
    co->nodes = co->ctx->epoch->nodes;
    co->from = calloc(co->nodes, sizeof(*co->from));
    if (co->from)
        gather_begin(co);
    return co->from != NULL;
}

struct parts {
    uint32_t crc; /* of all of it: parts of another inventory of that node are not mixed in */
    uint32_t count, got;
    struct part {
        unsigned char *bytes; /* NULL: the part has not come */
        size_t len;
    } part[];
};

static struct parts *parts_new(uint32_t count, uint32_t crc)
{
    struct parts *p = calloc(1, sizeof(*p) + count * sizeof(p->part[0]));

    if (p) {
        p->count = count;
        p->crc = crc;
    }
    return p;
}

static void parts_free(struct parts *p)
{
    for (uint32_t i = 0; p && i < p->count; i++)
        free(p->part[i].bytes);
    free(p);
}

/* Joins the parts; NULL: no memory. */
static unsigned char *parts_join(const struct parts *p, size_t *out_len)
{
    unsigned char *all;
    size_t len = 0;

    for (uint32_t i = 0; i < p->count; i++)
        len += p->part[i].len;
    all = malloc(len ? len : 1);
    *out_len = len;
    len = 0;
    for (uint32_t i = 0; all && i < p->count; i++) {
        memcpy(all + len, p->part[i].bytes, p->part[i].len);
        len += p->part[i].len;
    }
    return all;
}

/* If an inventory's bytes have changed on their way, the node repeats it. An inventory that cannot
 * be read as the node wrote it would come again and again, so the recovery ends with the reason. */
static void gather_refuse(
        struct hth_choice *co, uint32_t origin, int as_written, const struct hearth_error *why)
{
    char text[HEARTH_ERROR_TEXT];

    hth_say(&co->ctx->log, HEARTH_LOG_ERROR, "inventory-bad", "node %s: %s",
            co->ctx->epoch->member[origin].node, why->text);
    if (!as_written)
        return;
    snprintf(text, sizeof(text), "the coordinator cannot read the inventory of node %.64s: %.380s",
            co->ctx->epoch->member[origin].node, why->text);
    hth_choice_fail(co, why->code, text);
}

static void gather_inventory(struct hth_choice *co, struct gathered *g, uint32_t origin)
{
    struct hearth_error err;
    size_t len;
    unsigned char *all = parts_join(g->parts, &len);
    int as_written;

    if (!all)
        return;
    as_written = hth_crc32c(all, len) == g->parts->crc;
    if (!as_written)
        hth_fail(&err, HEARTH_EPROTO, 0, "its inventory does not match its checksum");
    if (!as_written || hth_inventory_decode(&g->inventory, all, len, &err)) {
        gather_refuse(co, origin, as_written, &err);
    } else {
        g->complete = 1;
        co->complete++;
        if (co->on_report)
            co->on_report(co->on_report_self, 0, origin, co->complete, co->nodes);
    }
    free(all);
    parts_free(g->parts);
    g->parts = NULL;
}

int gather_part(struct hth_choice *co, uint32_t origin, uint32_t part, uint32_t parts, uint32_t crc,
        const unsigned char *bytes, size_t len)
{
    struct gathered *g = &co->from[origin];
    unsigned char *copy;

    if (!g->parts || g->parts->count != parts || g->parts->crc != crc) {
        parts_free(g->parts);
        g->parts = parts_new(parts, crc);
    }
    if (!g->parts || g->parts->part[part].bytes)
        return 0;
    copy = malloc(len ? len : 1);
    if (!copy)
        return 0;
    memcpy(copy, bytes, len);
    g->parts->part[part] = (struct part){ copy, len };
    if (++g->parts->got == parts)
        gather_inventory(co, g, origin);
    return 1;
}

void gather_free(struct gathered *from, uint32_t nodes)
{
    for (uint32_t i = 0; from && i < nodes; i++) {
        parts_free(from[i].parts);
        hth_inventory_fini(&from[i].inventory);
    }
    free(from);
}
