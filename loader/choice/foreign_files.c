/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Foreign containers, at the coordinator: each step that some node has, and that no node has a
 * marker `unfinished` of, is a candidate. No list of its files
 * exists, so its manifest is made of what all nodes have; of the copies of each file one is taken,
 * in this order:
 *
 *   `.metadata`    one that is understood; one that is whole
 *   a rank's file  its writer's own: a link into the writer's buffers, or where that rank is now;
 *                  a replica
 *   no rank's      the one beside that `.metadata`
 *
 * and among equals that of the lowest node, which is the one with the lowest rank. Torn copies are
 * in no inventory.
 */
#include "choice_state.h"

#include "core/foreign/foreign.h"

#include <stdlib.h>
#include <string.h>

/* ---- One copy of each file
 * ---------------------------------------------------------------------- */

struct copy {
    const struct hth_object *object;
    const struct hth_foreign_look *look;
    uint32_t node, grade;
};

struct copies {
    struct copy *at; /* [count] */
    uint32_t count;
};

static int copy_is_metadata(const struct copy *c)
{
    return !strcmp(c->object->name, HTH_METADATA);
}

static int copies_gather(const struct hth_choice *co, struct hth_save_id id, struct copies *out)
{
    size_t total = 0;

    for (uint32_t k = 0; k < co->nodes; k++) {
        const struct hth_seen_save *s = hth_inventory_find(&co->from[k].inventory, id);

        total += s ? s->objects : 0;
    }
    *out = (struct copies){ calloc(total ? total : 1, sizeof(*out->at)), 0 };
    for (uint32_t k = 0; out->at && k < co->nodes; k++) {
        const struct hth_seen_save *s = hth_inventory_find(&co->from[k].inventory, id);

        for (uint32_t i = 0; s && i < s->objects; i++)
            out->at[out->count++] = (struct copy){ &s->file[i], &s->look[i], k, 0 };
    }
    return out->at ? HEARTH_OK : HEARTH_ENOMEM;
}

/* The node whose `.metadata` counts, or UINT32_MAX. */
static uint32_t copies_metadata_node(const struct copies *all)
{
    const struct copy *best = NULL;

    for (uint32_t i = 0; i < all->count; i++) { /* from the lowest node on */
        const struct copy *c = &all->at[i];

        if (copy_is_metadata(c) && (!best || (c->look->flags & HTH_FOREIGN_READABLE &&
                                                     !(best->look->flags & HTH_FOREIGN_READABLE))))
            best = c;
    }
    return best ? best->node : UINT32_MAX;
}

/* The copy with the lowest grade is taken; 0 is the best. */
static uint32_t copy_grade(const struct hth_epoch *e, const struct copy *c, uint32_t metadata)
{
    uint32_t owner = c->object->owner;
    int home = owner < e->world && e->rank_node[owner] == c->node;

    if (owner == HTH_OWNER_NONE)
        return c->node != metadata;
    if (c->look->flags & HTH_FOREIGN_LINK)
        return home ? 0 : 1;
    return home ? 2 : 3;
}

static int copy_best_first(const void *a, const void *b)
{
    const struct copy *x = a;
    const struct copy *y = b;

    if (x->object->id != y->object->id)
        return x->object->id < y->object->id ? -1 : 1;
    if (x->grade != y->grade)
        return x->grade < y->grade ? -1 : 1;
    return x->node < y->node ? -1 : x->node > y->node;
}

static void copies_say_differs(const struct hth_choice *co, struct hth_save_id id,
        const struct copy *first, uint32_t count)
{
    for (uint32_t i = 1; i < count; i++)
        if (memcmp(first[i].object->digest, first->object->digest, HTH_DIGEST) != 0) {
            hth_say(&co->ctx->log, HEARTH_LOG_WARN, "foreign-differs",
                    "step %" PRIu64 ": node %s has another file %s than node %s, whose is taken",
                    id.step, co->ctx->epoch->member[first[i].node].node, first->object->name,
                    co->ctx->epoch->member[first->node].node);
            return;
        }
}

static uint32_t copies_alike(const struct copies *all, uint32_t first)
{
    uint32_t n = 1;

    while (first + n < all->count && all->at[first + n].object->id == all->at[first].object->id)
        n++;
    return n;
}

static int files_take(const struct hth_choice *co, struct candidate *c)
{
    struct copies all;
    uint32_t metadata, n, kept = 0;

    if (copies_gather(co, c->id, &all))
        return HEARTH_ENOMEM;
    metadata = copies_metadata_node(&all);
    for (uint32_t i = 0; i < all.count; i++)
        all.at[i].grade = copy_grade(co->ctx->epoch, &all.at[i], metadata);
    if (all.count)
        qsort(all.at, all.count, sizeof(*all.at), copy_best_first);
    c->manifest.object = calloc(all.count + 1, sizeof(*c->manifest.object));
    c->look = calloc(all.count + 1, sizeof(*c->look));
    for (uint32_t i = 0; c->manifest.object && c->look && i < all.count; i += n) {
        n = copies_alike(&all, i);
        copies_say_differs(co, c->id, &all.at[i], n);
        c->look[kept] = *all.at[i].look;
        c->manifest.object[kept++] = *all.at[i].object;
    }
    c->manifest.objects = kept;
    free(all.at);
    return c->manifest.object && c->look ? HEARTH_OK : HEARTH_ENOMEM;
}

/* ---- A manifest of them
 * --------------------------------------------------------------------------- */

int foreign_encode(struct candidate *c)
{
    int rc = hth_manifest_encode(&c->manifest, c->bytes, NULL);

    if (!rc)
        memcpy(c->digest, c->manifest.digest, HTH_DIGEST);
    return rc;
}

static int files_make_manifest(struct hth_choice *co, struct candidate *c)
{
    struct hth_manifest *m = &c->manifest;
    int rc;

    *m = (struct hth_manifest){ .save = c->id, .world = 1 };
    if (files_take(co, c))
        return HEARTH_ENOMEM;
    memcpy(m->job, co->ctx->opts.job, sizeof(m->job));
    for (uint32_t i = 0; i < m->objects; i++)
        if (m->object[i].owner != HTH_OWNER_NONE && m->object[i].owner >= m->world)
            m->world = m->object[i].owner + 1;
    m->nodes = co->nodes < m->world ? co->nodes : m->world;
    c->len = hth_manifest_bytes(m);
    c->bytes = malloc(c->len);
    rc = c->bytes ? foreign_encode(c) : HEARTH_ENOMEM;
    c->has_manifest = !rc;
    return rc;
}

const struct hth_object *foreign_file_find(const struct hth_manifest *files, const char *name)
{
    const struct hth_object *o = hth_manifest_find(files, hth_foreign_object(name, 0).id);

    return o && !strcmp(o->name, name) ? o : NULL;
}

/* ---- Candidates
 * --------------------------------------------------------------------------------- */

static int files_are_usable(struct hth_choice *co, struct hth_save_id id)
{
    uint32_t objects = 0;

    if (candidate_find(co, id))
        return 0;
    for (uint32_t k = 0; k < co->nodes; k++) {
        const struct hth_seen_save *s = hth_inventory_find(&co->from[k].inventory, id);

        if (s && s->unfinished) {
            rule_out(co, "foreign-unfinished",
                    "step %" PRIu64 " is not considered: node %s has an unfinished marker of it",
                    id.step, co->ctx->epoch->member[k].node);
            return 0;
        }
        objects += s ? s->objects : 0;
    }
    return objects != 0;
}

static int files_add(struct hth_choice *co, struct hth_save_id id)
{
    struct candidate *c = candidate_add(co, id);

    return c ? files_make_manifest(co, c) : HEARTH_ENOMEM;
}

int foreign_candidates(struct hth_choice *co)
{
    for (uint32_t k = 0; k < co->nodes; k++) {
        const struct hth_inventory *inv = &co->from[k].inventory;

        for (uint32_t i = 0; i < inv->saves; i++)
            if (hth_save_foreign(inv->save[i].id) && files_are_usable(co, inv->save[i].id) &&
                    files_add(co, inv->save[i].id))
                return HEARTH_ENOMEM;
    }
    return HEARTH_OK;
}
