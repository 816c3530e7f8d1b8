/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The coordinator gathers facts. A fact only sets marks; coord_tick() decides, so that nothing is
 * freed while a caller still uses it. The coordinator answers a late fact about a decided save with
 * the newest head.
 */
#include "commit_state.h"

#include "core/base/bytes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct tally *coord_fact(
        struct hth_commit *c, const unsigned char *bytes, size_t len, size_t want, uint32_t origin)
{
    struct hth_save_id save;
    enum fate fate;

    if (len < want || origin >= c->ctx->epoch->nodes)
        return NULL;
    save = save_get(bytes);
    fate = head_fate(c, save);
    if (fate == FATE_OPEN || (fate == FATE_KEPT && !c->head.settled))
        return tally_get(c, save);
    head_send(c, origin, 1);
    return NULL;
}

/* Appends the objects of a DONE undecoded: the worker that makes the manifest checks them. The
 * first allocation has room for one object of each of the job's ranks. */
static int coord_take_objects(
        struct tally *t, uint32_t world, const unsigned char *bytes, uint32_t count)
{
    if (t->objects + count > t->object_cap) {
        uint32_t cap = (t->object_cap ? 2 * t->object_cap : world) + count;
        unsigned char *more = realloc(t->object, (size_t)cap * HTH_MANIFEST_OBJECT);

        if (!more)
            return HEARTH_ENOMEM;
        t->object = more;
        t->object_cap = cap;
    }
    if (count)
        memcpy(t->object + (size_t)t->objects * HTH_MANIFEST_OBJECT, bytes,
                (size_t)count * HTH_MANIFEST_OBJECT);
    t->objects += count;
    return HEARTH_OK;
}

static void coord_fail(struct hth_commit *c, struct tally *t, int code, const char *why)
{
    if (!t->fail_code) {
        t->fail_code = code;
        snprintf(t->why, sizeof(t->why), "%.199s", why);
    }
    c->coord.look = 1;
}

/* 0: the fact names the save's set of ranks, and its sender has one of them. If two members name
 * two sets, the save fails: they have not saved together. */
static int coord_take_ranks(struct hth_commit *c, struct tally *t, uint32_t origin,
        const unsigned char *runs, size_t len)
{
    struct hth_ranks ranks;
    struct hearth_error err;
    int rc = hth_ranks_decode(&ranks, runs, len, &err);

    rc = rc ? rc : tally_name(c, t, ranks.runs ? &ranks : NULL, &err);
    if (!rc && !t->node[origin].due)
        rc = hth_fail(&err, HEARTH_EPROTO, 0, "node %.64s has no rank that takes part in the save",
                c->ctx->epoch->member[origin].node);
    if (rc)
        coord_fail(c, t, rc, err.text);
    return rc;
}

static void coord_note(const struct hth_commit *c, const struct tally *t, enum hth_moment what,
        uint32_t node, uint32_t count)
{
    uint32_t due = what == HTH_MOMENT_NODE_DONE ? t->nodes_due : c->ctx->epoch->nodes;

    track_note(c, t->id,
            &(struct hth_happened){ .what = what, .node = node, .count = count, .due = due });
}

void coord_done(struct hth_commit *c, uint32_t origin, const unsigned char *bytes, size_t len)
{
    struct tally *t = coord_fact(c, bytes, len, DONE_HEAD, origin);
    struct report *n;
    uint32_t part, parts, count, runs;
    size_t head;

    if (!t)
        return;
    n = &t->node[origin];
    part = hth_get32(bytes + SAVE_BYTES);
    parts = hth_get32(bytes + SAVE_BYTES + 4);
    count = hth_get32(bytes + SAVE_BYTES + 8);
    runs = hth_get32(bytes + SAVE_BYTES + 12);
    head = DONE_HEAD + (size_t)runs * HTH_RANK_RUN_BYTES;
    if (part >= parts || parts > 64 || n->done || n->parts & UINT64_C(1) << part ||
            len != head + (size_t)count * HTH_MANIFEST_OBJECT)
        return;
    if (coord_take_ranks(c, t, origin, bytes + DONE_HEAD, head - DONE_HEAD))
        return;
    if (coord_take_objects(t, c->ctx->epoch->world, bytes + head, count)) {
        coord_fail(c, t, HEARTH_ENOMEM, "no memory for a report of objects");
        return;
    }
    n->parts |= UINT64_C(1) << part;
    if (n->parts != (parts == 64 ? UINT64_MAX : (UINT64_C(1) << parts) - 1))
        return;
    n->done = 1;
    t->nodes_done++;
    coord_note(c, t, HTH_MOMENT_NODE_DONE, origin, t->nodes_done);
    c->coord.look = 1;
}

/* text: why the node has no room for its copy; len 0: it has room. */
static void coord_refusal(struct tally *t, uint32_t origin, const unsigned char *text, size_t len)
{
    if (!len && t->refusal_node != origin)
        return;
    len = len < sizeof(t->refusal) ? len : sizeof(t->refusal) - 1;
    memcpy(t->refusal, text, len);
    t->refusal[len] = '\0';
    t->refusal_node = origin;
}

static void coord_mark_held(struct hth_commit *c, struct tally *t, uint32_t origin)
{
    if (t->node[origin].held)
        return;
    t->node[origin].held = 1;
    t->nodes_held++;
    coord_note(c, t, HTH_MOMENT_NODE_HELD, origin, t->nodes_held);
    c->coord.look = 1;
}

void coord_held(struct hth_commit *c, uint32_t origin, const unsigned char *bytes, size_t len)
{
    struct tally *t = coord_fact(c, bytes, len, SAVE_BYTES, origin);

    if (!t)
        return;
    if (t->node[origin].held && t->complete)
        hth_tree_to(c->ctx, origin, HTH_KIND_COMPLETE, bytes, SAVE_BYTES);
    coord_refusal(t, origin, bytes + SAVE_BYTES, len - SAVE_BYTES);
    coord_mark_held(c, t, origin);
}

/* A promise names the map under which it was given, and counts under that map only. It does not
 * count either if a newer fact of its node has come before it, which may have been COPY_LOST. The
 * node repeats it. */
void coord_promise(struct hth_commit *c, uint32_t origin, const unsigned char *bytes, size_t len)
{
    struct tally *t = coord_fact(c, bytes, len, SAVE_BYTES + 8 + HTH_DIGEST, origin);
    unsigned char map[HTH_DIGEST];

    if (!t)
        return;
    head_map_name(c, map);
    if (hth_get64(bytes + SAVE_BYTES) != c->ctx->epoch->member[origin].store)
        return; /* promised by an engine on another store */
    if (c->coord.live[origin].overtaken)
        return;
    coord_mark_held(c, t, origin);
    coord_refusal(t, origin, bytes, 0);
    if (memcmp(bytes + SAVE_BYTES + 8, map, HTH_DIGEST) != 0 || node_is_lost(c, origin)) {
        head_send(c, origin, 1);
        return;
    }
    if (!t->node[origin].promised) {
        t->node[origin].promised = 1;
        t->nodes_promised++;
        coord_note(c, t, HTH_MOMENT_NODE_PROMISED, origin, t->nodes_promised);
    }
    c->coord.look = 1;
}

/* If the save is kept, the loss goes on record, and the map is settled again when the copy is
 * back. */
void coord_copy_lost(struct hth_commit *c, uint32_t origin, const unsigned char *bytes, size_t len)
{
    struct hth_save_id save;
    struct tally *t;

    if (len != COPY_LOST_BYTES || origin >= c->ctx->epoch->nodes ||
            hth_get64(bytes + SAVE_BYTES) != c->ctx->epoch->member[origin].store)
        return;
    save = save_get(bytes);
    t = tally_find(c, save);
    if (t && t->node[origin].promised) {
        t->node[origin].promised = 0;
        t->nodes_promised--;
    }
    for (uint32_t i = 0; i < c->coord.losses; i++)
        if (hth_save_cmp(c->coord.loss[i], save) == 0)
            return;
    if (head_fate(c, save) != FATE_KEPT || c->coord.losses == HTH_KEEP_MAX)
        return; /* the member repeats COPY_LOST */
    c->coord.loss[c->coord.losses++] = save;
    c->coord.look = 1;
}

void coord_failed(struct hth_commit *c, uint32_t origin, const unsigned char *bytes, size_t len)
{
    struct tally *t = coord_fact(c, bytes, len, SAVE_BYTES + 4, origin);
    char why[200];

    if (!t || len - SAVE_BYTES - 4 >= sizeof(why) || (int)hth_get32(bytes + SAVE_BYTES) >= 0)
        return;
    memcpy(why, bytes + SAVE_BYTES + 4, len - SAVE_BYTES - 4);
    why[len - SAVE_BYTES - 4] = '\0';
    coord_fail(c, t, (int)hth_get32(bytes + SAVE_BYTES), why);
}

void coord_alive(struct hth_commit *c, uint32_t origin)
{
    if (origin && origin < c->ctx->epoch->nodes)
        head_send(c, origin, 1);
}
