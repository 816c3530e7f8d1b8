/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Is a foreign step whole? `.metadata` is somewhere, all files that it names are, and have the
 * items that it says; where it names none: every rank up to the highest has a file.
 *
 * `.metadata` is fetched for that, if another node has it (each node needs it before its vote
 * anyway), and read by a worker: foreign_names.c.
 */
#include "choice_state.h"

#include "core/foreign/foreign.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Returns 1 always. If no candidate is whole, the user sees the text of the newest lost
 * candidate. */
static int whole_lost(
        struct hth_choice *co, struct candidate *c, const char *what, const char *name)
{
    char text[sizeof(co->lost_text)];

    snprintf(text, sizeof(text), "step %" PRIu64 ": %.120s%.65s", c->id.step, what, name);
    rule_out(co, "foreign-lost", "%s", text);
    if (!co->lost_text[0])
        memcpy(co->lost_text, text, sizeof(text));
    c->lost = 1;
    return 1;
}

struct bringing {
    struct hth_choice *co;
    uint32_t epochs;
    struct hth_save_id save;
    foreign_done_fn *done;
};

static void whole_on_metadata(
        void *self, struct hth_fetch *fetch, int code, const struct hearth_error *err)
{
    struct bringing *b = self;
    struct hth_choice *co = b->co;

    (void)fetch;
    for (uint32_t i = 0; i < co->candidates && b->epochs == co->epochs; i++) {
        struct candidate *c = &co->candidate[i];

        if (!hth_save_cmp(c->id, b->save) && code) {
            c->metadata = code;
            hth_say(&co->ctx->log, HEARTH_LOG_WARN, "metadata-lost", "%s", err->text);
        }
    }
    if (b->epochs == co->epochs)
        b->done(co);
    free(b);
}

static void whole_bring_metadata(struct hth_choice *co, struct candidate *c,
        const struct hth_object *o, foreign_done_fn *done)
{
    struct bringing *b = malloc(sizeof(*b));
    uint32_t node[HTH_PLAN_SOURCES], count = 0;
    struct hth_fetch *fetch;

    c->metadata = HEARTH_ENOMEM;
    if (!b)
        return;
    *b = (struct bringing){ co, co->epochs, c->id, done };
    for (uint32_t k = 0; k < co->nodes && count < HTH_PLAN_SOURCES; k++)
        if (k != co->ctx->epoch->self && hth_inventory_has(&co->from[k].inventory, c->id, o))
            node[count++] = k;
    c->metadata = hth_fetch_start(co->ctx,
            &(struct hth_fetch_want){
                    .save = c->id,
                    .object = *o,
                    .sources = node,
                    .count = count,
                    .class = HTH_FETCH_RECOVERY,
                    .deadline_ms = hth_restore_left_ms(co->restore),
                    .done = whole_on_metadata,
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

/* ---- Names
 * -------------------------------------------------------------------------------------- */

/* If `.metadata` names no file, there must be a file of every rank. */
static void whole_look_for_ranks(struct hth_choice *co, struct candidate *c)
{
    const struct hth_manifest *m = &c->manifest;
    char name[16];

    for (uint32_t rank = 0, i = 0; rank < m->world; rank++) {
        while (i < m->objects && m->object[i].owner < rank)
            i++; /* ids begin with the owner */
        snprintf(name, sizeof(name), "%" PRIu32, rank);
        if (i == m->objects || (m->object[i].owner != rank && m->object[i].owner != HTH_OWNER_NONE))
            whole_lost(co, c, "no node has a whole file of rank ", name);
        if (c->lost || m->object[i].owner == HTH_OWNER_NONE)
            break;
    }
}

/* Makes the manifest again, with marks on the files that `.metadata` names. */
static void whole_take_listed(
        struct hth_choice *co, struct candidate *c, const struct names_found *found)
{
    for (uint32_t i = 0; i < c->manifest.objects; i++)
        c->manifest.object[i].listed = found->files.object[i].listed;
    if (foreign_encode(c))
        whole_lost(co, c, "no memory for its ", "manifest");
}

/* The `.metadata` of c was read. Called once: afterwards c is lost, or is looked at like any other
 * save. */
static int whole_look_for_all(
        struct hth_choice *co, struct candidate *c, const struct names_found *n)
{
    if (n->unknown.code)
        hth_say(&co->ctx->log, HEARTH_LOG_WARN, "metadata-unknown",
                "step %" PRIu64
                ": its .metadata is not understood, and searched for names of files "
                "instead: %s",
                c->id.step, n->unknown.text);
    if (n->wrong)
        whole_lost(co, c, n->wrong, n->name);
    else if (n->any)
        whole_take_listed(co, c, n);
    else
        whole_look_for_ranks(co, c);
    names_leave(c->names);
    c->names = NULL;
    return 1;
}

int foreign_look(struct hth_choice *co, struct candidate *c, foreign_done_fn *done)
{
    const struct hth_object *o = foreign_file_find(&c->manifest, HTH_METADATA);
    struct hth_held_save *s = hth_holdings_find(co->ctx, c->id);
    struct hth_held *h = o && s ? hth_held_find(s, o->id) : NULL;
    const struct names_found *found = names_found(c->names);

    if (c->names)
        return found ? whole_look_for_all(co, c, found) : 0;
    if (!o)
        return whole_lost(co, c, "no node has a whole ", HTH_METADATA);
    if (h && h->state == HTH_HELD_SEALED && h->slot && h->verified &&
            !memcmp(h->object.digest, o->digest, HTH_DIGEST) && !hth_held_same(co->ctx, h, NULL))
        return names_start(co, c, h, done)
                       ? whole_lost(co, c, "no memory to read its ", HTH_METADATA)
                       : 0;
    if (c->metadata < 0)
        return whole_lost(co, c, "no node gives its ", HTH_METADATA);
    if (c->metadata)
        return 0;
    /* the chosen copy is another node's, or the file here has changed */
    if (h)
        hth_held_drop(co->ctx, s, h);
    whole_bring_metadata(co, c, o, done);
    return c->metadata < 0 ? whole_lost(co, c, "no node gives its ", HTH_METADATA) : 0;
}

int foreign_waits(const struct hth_choice *co, char *out, size_t len)
{
    for (uint32_t i = 0; i < co->candidates; i++) {
        const struct candidate *c = &co->candidate[i];
        int read = c->names && !names_found(c->names);

        if (c->lost || c->whole || (!read && c->metadata != 1))
            continue;
        snprintf(out, len, "the .metadata of step %" PRIu64 " is still being %s by node %s",
                c->id.step, read ? "read" : "fetched",
                co->ctx->epoch->member[co->ctx->epoch->self].node);
        return 1;
    }
    return 0;
}
