/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Foreign containers, at the coordinator, where no save of Hearth's own is a candidate. Nobody wrote
 * down what a step consists of, so its manifest is made of what the nodes have:
 *
 *   a name with several contents   the one that most nodes have; among equals the lowest digest
 *   whole                          `.metadata` is somewhere, and all files that it names are;
 *                                  where it names none: every rank up to the highest has one
 *   unfinished anywhere            not a candidate
 *
 * `.metadata` is brought here for that, if another node has it: this node needs it anyway.
 */
#include "recover_state.h"

#include <hearth/internal/core/foreign.h>
#include <hearth/metadata.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct hth_seen_save *seen_by(
        const struct hth_recover *r, uint32_t node, struct hth_save_id id)
{
    return hth_inventory_find(&r->co.from[node].inventory, id);
}

/* ---- A manifest of what is there --------------------------------------------------------------- */

static int by_content(const void *a, const void *b)
{
    const struct hth_object *x = a;
    const struct hth_object *y = b;

    if (x->id != y->id)
        return x->id < y->id ? -1 : 1;
    if (x->data_len != y->data_len)
        return x->data_len < y->data_len ? -1 : 1;
    return memcmp(x->digest, y->digest, HTH_DIGEST);
}

/* All files of a step on all nodes, equal ones next to each other; NULL: no memory. */
static struct hth_object *collect(
        const struct hth_recover *r, struct hth_save_id id, uint32_t *out_count)
{
    struct hth_object *all;
    size_t total = 0;
    uint32_t n = 0;

    for (uint32_t k = 0; k < r->co.nodes; k++) {
        const struct hth_seen_save *s = seen_by(r, k, id);

        total += s ? s->objects : 0;
    }
    all = calloc(total ? total : 1, sizeof(*all));
    for (uint32_t k = 0; all && k < r->co.nodes; k++) {
        const struct hth_seen_save *s = seen_by(r, k, id);

        for (uint32_t i = 0; s && i < s->objects; i++)
            all[n++] = s->file[i];
    }
    if (n)
        qsort(all, n, sizeof(*all), by_content);
    *out_count = n;
    return all;
}

struct vote { /* on the files of one name, [first, next) */
    uint32_t next;
    uint32_t best, most; /* one with the commonest content, and how many have it */
    uint32_t contents;
};

static struct vote vote_on(const struct hth_object *all, uint32_t count, uint32_t first)
{
    struct vote v = { .best = first };
    uint32_t run = 0, i;

    for (i = first; i < count && all[i].id == all[first].id; i++) {
        run = i > first && !by_content(&all[i], &all[i - 1]) ? run + 1 : 1;
        v.contents += run == 1;
        if (run > v.most) {
            v.most = run;
            v.best = i;
        }
    }
    v.next = i;
    return v;
}

/* Of each name one content, moved to the front; returns how many. */
static uint32_t elect(
        const struct hth_recover *r, struct hth_save_id id, struct hth_object *all, uint32_t count)
{
    uint32_t kept = 0;
    struct vote v;

    for (uint32_t at = 0; at < count; at = v.next) {
        v = vote_on(all, count, at);
        if (v.contents > 1)
            hth_say(&r->ctx->log, HEARTH_LOG_WARN, "foreign-differs",
                    "step %" PRIu64 ": nodes have %" PRIu32
                    " different files %s; the one that %" PRIu32 " of them have is taken",
                    id.step, v.contents, all[at].name, v.most);
        all[kept++] = all[v.best];
    }
    return kept;
}

static int make_manifest(struct hth_recover *r, struct candidate *c)
{
    struct hth_manifest m = { .save = c->id, .world = 1 };
    uint32_t count;

    m.object = collect(r, c->id, &count);
    if (!m.object)
        return HEARTH_ENOMEM;
    m.objects = elect(r, c->id, m.object, count);
    memcpy(m.job, r->ctx->opts.job, sizeof(m.job));
    for (uint32_t i = 0; i < m.objects; i++)
        if (m.object[i].owner != HTH_OWNER_NONE && m.object[i].owner >= m.world)
            m.world = m.object[i].owner + 1;
    m.nodes = r->co.nodes < m.world ? r->co.nodes : m.world;
    c->len = hth_manifest_bytes(&m);
    c->bytes = malloc(c->len);
    if (!c->bytes || hth_manifest_encode(&m, c->bytes, NULL)) {
        hth_manifest_fini(&m);
        return HEARTH_ENOMEM;
    }
    c->manifest = m;
    memcpy(c->digest, m.digest, HTH_DIGEST);
    c->has_manifest = 1;
    return HEARTH_OK;
}

/* ---- Candidates --------------------------------------------------------------------------------- */

static int usable(const struct hth_recover *r, struct hth_save_id id)
{
    uint32_t objects = 0;

    for (uint32_t i = 0; i < r->co.candidates; i++)
        if (hth_save_cmp(r->co.candidate[i].id, id) == 0)
            return 0;
    for (uint32_t k = 0; k < r->co.nodes; k++) {
        const struct hth_seen_save *s = seen_by(r, k, id);

        if (s && s->unfinished) {
            hth_say(&r->ctx->log, HEARTH_LOG_WARN, "foreign-unfinished",
                    "step %" PRIu64 " is not considered: node %s has an unfinished marker of it",
                    id.step, r->ctx->epoch->member[k].node);
            return 0;
        }
        objects += s ? s->objects : 0;
    }
    return objects != 0;
}

static int add(struct hth_recover *r, struct hth_save_id id)
{
    struct candidate *more =
            realloc(r->co.candidate, (r->co.candidates + 1) * sizeof(*r->co.candidate));

    if (!more)
        return HEARTH_ENOMEM;
    r->co.candidate = more;
    more[r->co.candidates] = (struct candidate){ .id = id };
    return make_manifest(r, &more[r->co.candidates++]);
}

int foreign_candidates(struct hth_recover *r)
{
    for (uint32_t k = 0; k < r->co.nodes; k++) {
        const struct hth_inventory *inv = &r->co.from[k].inventory;

        for (uint32_t i = 0; i < inv->saves; i++)
            if (hth_save_foreign(inv->save[i].id) && usable(r, inv->save[i].id) &&
                    add(r, inv->save[i].id))
                return HEARTH_ENOMEM;
    }
    return HEARTH_OK;
}

/* ---- Is it whole? ------------------------------------------------------------------------------- */

static const struct hth_object *named(const struct hth_manifest *m, const char *name)
{
    const struct hth_object *o = hth_manifest_find(m, hth_foreign_object(name, 0).id);

    return o && !strcmp(o->name, name) ? o : NULL;
}

/* The newest that fails says why nothing is recovered, if nothing is. */
static int lost(struct hth_recover *r, struct candidate *c, const char *what, const char *name)
{
    char text[sizeof(r->co.lost_text)];

    snprintf(text, sizeof(text), "step %" PRIu64 ": %.120s%.65s", c->id.step, what, name);
    hth_say(&r->ctx->log, HEARTH_LOG_WARN, "foreign-lost", "%s", text);
    if (!r->co.lost_text[0])
        memcpy(r->co.lost_text, text, sizeof(text));
    c->lost = 1;
    return 1;
}

struct bringing {
    struct hth_recover *r;
    uint32_t generation;
    struct hth_save_id save;
};

static void on_metadata(
        void *self, struct hth_fetch *fetch, int code, const struct hearth_error *err)
{
    struct bringing *b = self;
    struct hth_recover *r = b->r;

    (void)fetch;
    for (uint32_t i = 0; i < r->co.candidates && b->generation == r->generation; i++) {
        struct candidate *c = &r->co.candidate[i];

        if (!hth_save_cmp(c->id, b->save) && code) {
            c->metadata = code;
            hth_say(&r->ctx->log, HEARTH_LOG_WARN, "metadata-lost", "%s", err->text);
        }
    }
    if (b->generation == r->generation)
        choose_tick(r, hth_now_ms(&r->ctx->clock));
    free(b);
}

static void bring_metadata(struct hth_recover *r, struct candidate *c, const struct hth_object *o)
{
    struct bringing *b = malloc(sizeof(*b));
    uint64_t now_ms = hth_now_ms(&r->ctx->clock);
    uint32_t node[HTH_PLAN_SOURCES], count = 0;
    struct hth_fetch *fetch;

    c->metadata = HEARTH_ENOMEM;
    if (!b)
        return;
    *b = (struct bringing){ r, r->generation, c->id };
    for (uint32_t k = 0; k < r->co.nodes && count < HTH_PLAN_SOURCES; k++)
        if (k != r->ctx->epoch->self && hth_inventory_has(&r->co.from[k].inventory, c->id, o))
            node[count++] = k;
    c->metadata = hth_fetch_start(r->ctx,
            &(struct hth_fetch_want){
                    .save = c->id,
                    .object = *o,
                    .sources = node,
                    .count = count,
                    .class = HTH_FETCH_RECOVERY,
                    .deadline_ms =
                            r->deadline_ms > now_ms ? (uint32_t)(r->deadline_ms - now_ms) : 1,
                    .done = on_metadata,
                    .self = b,
            },
            &fetch, NULL);
    if (c->metadata)
        free(b);
    if (c->metadata == HEARTH_EBUSY) /* slots are still being made: the next tick tries again */
        c->metadata = 0;
    else if (!c->metadata)
        c->metadata = 1;
}

/* ---- Names -------------------------------------------------------------------------------------- */

/* Each place names a file, and neighbours mostly the same one, whose name then is the same text. 1: all
 * are somewhere, or there is no name at all. */
static int look_for_places(
        struct hth_recover *r, struct candidate *c, struct hearth_metadata *md, int *out_names)
{
    struct hearth_metadata_head info = { .struct_size = sizeof(info) };
    struct hearth_metadata_stored s = { .struct_size = sizeof(s) };
    const char *last = NULL;
    char name[HTH_NAME_MAX + 1], say[HTH_KEY_TEXT];

    hearth_metadata_info(md, &info, NULL);
    for (size_t i = 0; i < info.stored && !hearth_metadata_stored_at(md, i, &s, NULL); i++) {
        if (s.path.data == last)
            continue;
        last = s.path.data;
        snprintf(name, sizeof(name), "%.*s", (int)s.path.len, s.path.data);
        if (s.path.len > HTH_NAME_MAX || hth_object_name_check(name, NULL))
            return !lost(r, c, "its .metadata names a file that Hearth cannot hold, ",
                    hth_key_text(s.path.data, s.path.len, say));
        if (!named(&c->manifest, name))
            return !lost(r, c, "on no node is a file that its .metadata names, ", name);
    }
    *out_names = info.stored != 0;
    return 1;
}

/* The same for a `.metadata` that is not understood: whoever wrote it may know more classes. */
static int look_for_texts(
        struct hth_recover *r, struct candidate *c, const void *bytes, size_t len, int *out_names)
{
    char name[HTH_NAME_MAX + 1];
    size_t pos = 0;

    for (; hth_foreign_name_next(bytes, len, &pos, name); *out_names = 1)
        if (!named(&c->manifest, name))
            return !lost(r, c, "on no node is a file that its .metadata names, ", name);
    return 1;
}

static int look_for_named(
        struct hth_recover *r, struct candidate *c, const void *bytes, size_t len, int *out_names)
{
    struct hearth_metadata *md;
    struct hearth_error err;
    int whole;

    if (hearth_metadata_open(bytes, len, &md, &err)) {
        hth_say(&r->ctx->log, HEARTH_LOG_WARN, "metadata-unknown",
                "step %" PRIu64
                ": its .metadata is not understood, and searched for names of files "
                "instead: %s",
                c->id.step, err.text);
        return look_for_texts(r, c, bytes, len, out_names);
    }
    whole = look_for_places(r, c, md, out_names);
    hearth_metadata_close(md);
    return whole;
}

/* The files that `.metadata` names; where it names none, a file of every rank. */
static int look_for_all(struct hth_recover *r, struct candidate *c, const void *bytes, size_t len)
{
    const struct hth_manifest *m = &c->manifest;
    char name[16];
    int names = 0;

    if (!look_for_named(r, c, bytes, len, &names))
        return 1;
    for (uint32_t rank = 0, i = 0; !names && rank < m->world; rank++) {
        while (i < m->objects && m->object[i].owner < rank)
            i++; /* ids begin with the owner */
        snprintf(name, sizeof(name), "%" PRIu32, rank);
        if (i == m->objects || (m->object[i].owner != rank && m->object[i].owner != HTH_OWNER_NONE))
            return lost(r, c, "on no node is a file of rank ", name);
        if (m->object[i].owner == HTH_OWNER_NONE)
            break;
    }
    return 1;
}

int foreign_look(struct hth_recover *r, struct candidate *c)
{
    const struct hth_object *o = named(&c->manifest, HTH_METADATA);
    struct hth_held_save *s = hth_holdings_find(r->ctx, c->id);
    struct hth_held *h = o && s ? hth_held_find(s, o->id) : NULL;

    if (!o)
        return lost(r, c, "no node has its ", HTH_METADATA);
    if (h && h->state == HTH_HELD_SEALED && h->slot && h->verified &&
            !memcmp(h->object.digest, o->digest, HTH_DIGEST))
        return look_for_all(r, c, h->slot->base, o->data_len);
    if (c->metadata < 0)
        return lost(r, c, "no node gives its ", HTH_METADATA);
    if (c->metadata)
        return 0;
    if (h)
        hth_held_drop(r->ctx, s, h); /* another's is the one that most have */
    bring_metadata(r, c, o);
    return c->metadata < 0 ? lost(r, c, "no node gives its ", HTH_METADATA) : 0;
}
