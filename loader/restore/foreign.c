/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Foreign containers, on a member, where no save was PROTECTED whose step is as high. Their files
 * have no checksums, so each is digested before the inventory goes up:
 *
 *   start ──► fstat, digest (workers) ──► inventory with names ──► plan: manifest of all ──► fetch
 *              tell.c                      foreign_see                                       foreign_needs
 *
 * What this node needs is what its ranks own by the files' names, `.metadata`, and the common
 * names.
 */
#include "restore_state.h"

#include "core/foreign/foreign.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* 1: a save that was PROTECTED here comes before the container, because the container's step is not
 * higher or the option foreign_last is set. If no save was PROTECTED, a foreign container may be
 * all there is: an unprotected save is lost with the first node. */
static int foreign_unwanted(const struct hth_ctx *ctx, struct hth_save_id id)
{
    const struct hth_keep *k = &ctx->keep;

    return k->saves && (ctx->opts.foreign_last || id.step <= k->save[0].step);
}

int foreign_listed(const struct hth_restore *r, const struct hth_held_save *s)
{
    return s->id.epoch != 0 && (!hth_save_foreign(s->id) || !foreign_unwanted(r->ctx, s->id));
}

/* ---- The inventory
 * ----------------------------------------------------------------------------- */

int foreign_see(const struct hth_held_save *s, struct hth_seen_save *out)
{
    uint32_t n = 0;

    for (const struct hth_held *h = s->held; h; h = h->next)
        n += h->state == HTH_HELD_SEALED && h->verified && !s->unfinished;
    *out = (struct hth_seen_save){ .id = s->id, .unfinished = s->unfinished };
    if (hth_seen_make(out, n))
        return HEARTH_ENOMEM;
    for (const struct hth_held *h = s->held; h && out->objects < n; h = h->next) {
        if (h->state != HTH_HELD_SEALED || !h->verified)
            continue;
        out->object[out->objects].id = h->object.id;
        memcpy(out->object[out->objects].digest, h->object.digest, HTH_DIGEST);
        out->look[out->objects] = h->look;
        out->file[out->objects] = h->object;
        out->file[out->objects++].listed = 0; /* the next manifest sets it */
    }
    return HEARTH_OK;
}

/* ---- The plan
 * --------------------------------------------------------------------------------- */

static int foreign_needed(const struct hth_restore *r, const struct hth_object *o)
{
    const struct hth_epoch *e = r->ctx->epoch;

    if (o->owner != HTH_OWNER_NONE)
        return e->rank_node[o->owner % e->world] == e->self;
    if (!strcmp(o->name, HTH_METADATA))
        return 1;
    for (uint32_t i = 0; i < r->commons; i++)
        if (!strcmp(o->name, r->common[i]))
            return 1;
    return 0;
}

void foreign_needs(struct hth_restore *r, struct hth_held_save *s)
{
    const struct hth_manifest *m = &s->manifest;

    for (uint32_t i = 0; i < m->objects; i++) {
        const struct hth_object *o = &m->object[i];
        struct hth_held *h = hth_held_find(s, o->id);
        struct hearth_error changed = { 0 };

        if (h && (!h->verified || memcmp(h->object.digest, o->digest, HTH_DIGEST) != 0 ||
                         hth_held_same(r->ctx, h, &changed))) {
            hth_say(&r->ctx->log, HEARTH_LOG_WARN, "foreign-other",
                    "step-%" PRIu64 "_ckpt/%s of this node is not the one chosen%s%s", s->id.step,
                    o->name, changed.code ? ": " : "", changed.text);
            hth_held_drop(r->ctx, s, h);
            h = NULL;
        }
        if (!h && foreign_needed(r, o))
            pull_object(r, i);
    }
}
