/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The model: what must be recoverable, seen from outside of the engines, in the machines' memory.
 *
 *   P1  the newest save ever reported PROTECTED, or a newer one, can be had from the members that
 *       live, at every loss and at every recovery, and nothing older is ever chosen
 *   P2  all ranks of a launch resume from one save, with the bytes of one lineage
 *   P3  PROTECTED is said only when 1 + copies machines hold each object
 *   P4  after the last fault a save becomes PROTECTED
 */
#include "raws.h"
#include "world_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct look {
    struct hth_save_id id;
    uint8_t *holds; /* [ranks] of one machine */
    struct world *world;
    int manifest;
    uint64_t lineage;
};

static void on_found(void *arg, const struct hth_store_found *f)
{
    struct look *l = arg;
    struct hth_block b;
    uint64_t lineage;
    size_t n = strlen(f->name);

    if (hth_save_cmp(f->save, l->id) != 0 || f->tmp)
        return;
    if (!f->slot) {
        l->manifest |= n > 9 && strcmp(f->name + n - 9, ".manifest") == 0;
        return;
    }
    if (hth_block_decode(&b, f->slot->base, HTH_BLOCK, f->slot->capacity, NULL) || !b.own ||
            hth_save_cmp(b.save, l->id) != 0 || b.owner >= l->world->ranks)
        return;
    memcpy(&lineage, f->slot->base + HTH_BLOCK, sizeof(lineage));
    l->lineage = lineage;
    l->holds[b.owner] = 1;
}

/* 1 when at least `copies` members other than machine `without` hold each rank's object of the save,
 * and as many its manifest. */
int check_whole(struct world *w, struct hth_save_id id, uint32_t copies, uint32_t without)
{
    uint8_t *holds = malloc(w->ranks);
    uint32_t *have = calloc(w->ranks, sizeof(*have));
    uint32_t manifests = 0;
    int whole = 1;

    for (uint32_t i = 0; i < w->opts.nodes && holds && have; i++) {
        uint32_t m = w->member[i];
        struct look l = { .id = id, .holds = holds, .world = w };

        if (m == without || !w->machine[m].store)
            continue;
        memset(holds, 0, w->ranks);
        hth_store_mem_each(w->machine[m].store, on_found, &l);
        manifests += (uint32_t)l.manifest;
        for (uint32_t r = 0; r < w->ranks; r++)
            have[r] += holds[r];
    }
    for (uint32_t r = 0; r < w->ranks; r++)
        whole &= have[r] >= copies;
    free(holds);
    free(have);
    return whole && manifests >= (copies ? 1 : 0);
}

/* A decision counts from the moment it is in somebody's keep record, heard or not. */
void check_decisions(struct world *w)
{
    for (uint32_t m = 0; m < w->machines; m++) {
        struct hth_store *s = w->machine[m].store;
        void *bytes = NULL;
        size_t len = 0;
        struct hth_keep keep;

        if (!s || m == w->stale_machine || s->ops->record_get(s, "keep", &bytes, &len, NULL))
            continue;
        if (!hth_keep_decode(&keep, bytes, len, NULL) && keep.saves &&
                hth_save_cmp(keep.save[0], w->newest.id) > 0)
            w->newest = (struct known_save){ keep.save[0], 0 };
        free(bytes);
    }
}

struct newest_arg {
    struct hth_save_id *list;
    uint32_t count;
    struct hth_save_id from;
};

static void on_save(void *arg, const struct hth_store_found *f)
{
    struct newest_arg *a = arg;

    if (hth_save_none(f->save) || hth_save_cmp(f->save, a->from) < 0 || a->count == 64)
        return;
    for (uint32_t i = 0; i < a->count; i++)
        if (hth_save_cmp(a->list[i], f->save) == 0)
            return;
    a->list[a->count++] = f->save;
}

/* P1: the newest PROTECTED save, or a newer one, is whole on the members without this machine. */
int check_recoverable(struct world *w, uint32_t without)
{
    struct hth_save_id list[64];
    struct newest_arg a = { list, 0, w->newest.id };

    if (hth_save_none(w->newest.id))
        return 1;
    for (uint32_t i = 0; i < w->opts.nodes; i++)
        if (w->machine[w->member[i]].store && w->member[i] != without)
            hth_store_mem_each(w->machine[w->member[i]].store, on_save, &a);
    for (uint32_t i = 0; i < a.count; i++)
        if (check_whole(w, list[i], 1, without))
            return 1;
    return 0;
}

void check_always(struct world *w, const char *when)
{
    if (!check_recoverable(w, UINT32_MAX))
        world_broken(w,
                "P1 %s: step %llu of epoch %llu was PROTECTED and neither it nor a newer save can be had",
                when, (unsigned long long)w->newest.id.step,
                (unsigned long long)w->newest.id.epoch);
}

void check_protected(struct world *w, struct rank_state *r, struct hth_save_id id)
{
    w->count[WORLD_PROTECTED]++;
    if (r->lineage != w->lineage && hth_save_cmp(id, w->newest.id) <= 0)
        return; /* late news for a rank that was replaced */
    if (hth_save_cmp(id, w->newest.id) <= 0)
        return;
    w->newest = (struct known_save){ id, r->lineage };
    if (r->lineage == w->lineage && w->restart_ms == HTH_NEVER &&
            !check_whole(w, id, w->opts.min_copies + 1, UINT32_MAX))
        world_broken(w, "P3: step %llu is called PROTECTED without its copies",
                (unsigned long long)id.step);
    if (w->quiet && r->lineage == w->lineage)
        w->final = w->newest;
}

struct bytes_look {
    struct hth_save_id id;
    struct rank_state *rank;
    int seen;
};

/* The object a rank resumes from, byte for byte as some launch wrote it. */
static void on_object(void *arg, const struct hth_store_found *f)
{
    struct bytes_look *l = arg;
    struct world *w = l->rank->world;
    unsigned char *want;
    struct hth_block b;
    uint64_t lineage;

    if (f->tmp || !f->slot || hth_save_cmp(f->save, l->id) != 0 ||
            hth_block_decode(&b, f->slot->base, HTH_BLOCK, f->slot->capacity, NULL) || !b.own ||
            b.owner != l->rank->rank)
        return;
    l->seen = 1;
    memcpy(&lineage, f->slot->base + HTH_BLOCK, sizeof(lineage));
    want = malloc(b.data_len + 8);
    if (!want)
        abort();
    rank_fill(want, b.data_len, lineage, b.save.step, b.owner);
    if (memcmp(want, f->slot->base + HTH_BLOCK, b.data_len) != 0)
        world_broken(w, "P2: rank %u resumed from wrong bytes", l->rank->rank);
    l->rank->from_lineage = lineage;
    free(want);
}

static void check_bytes(struct world *w, struct rank_state *r)
{
    struct bytes_look l = { r->from, r, 0 };
    unsigned char common[WORLD_COMMON_MAX];
    uint64_t len;

    hth_store_mem_each(w->machine[r->machine].store, on_object, &l);
    if (!l.seen)
        world_broken(w, "P2: rank %u resumed and its object is not on its node", r->rank);
    len = world_common(common, r->from_lineage, r->from.step);
    if (!raw_is(w->machine[r->machine].store, r->from, WORLD_COMMON, common, len))
        world_broken(w,
                "P2: rank %u resumed and the common object of its step is not there or wrong",
                r->rank);
    for (uint32_t i = 0; i < w->ranks; i++)
        if (w->rank[i].recovered && w->rank[i].from_lineage != r->from_lineage)
            world_broken(w, "P2: ranks %u and %u resume from bytes of two launches", r->rank, i);
}

void check_recovered(struct world *w, struct rank_state *r)
{
    if (hth_save_none(r->from)) {
        w->count[WORLD_SCRATCH]++;
        if (!hth_save_none(w->newest.id) && r->lineage == w->lineage)
            world_broken(w, "P1: rank %u starts from scratch although step %llu was PROTECTED",
                    r->rank, (unsigned long long)w->newest.id.step);
        return;
    }
    w->count[WORLD_RECOVERED]++;
    world_say(w, "rank %u resumes from step %llu of epoch %llu", r->rank,
            (unsigned long long)r->from.step, (unsigned long long)r->from.epoch);
    if (r->lineage != w->lineage)
        return;
    if (hth_save_cmp(r->from, w->newest.id) < 0)
        world_broken(w, "P1: rank %u resumes from step %llu although step %llu was PROTECTED",
                r->rank, (unsigned long long)r->from.step, (unsigned long long)w->newest.id.step);
    for (uint32_t i = 0; i < w->ranks; i++)
        if (w->rank[i].recovered && hth_save_cmp(w->rank[i].from, r->from) != 0)
            world_broken(w, "P2: ranks %u and %u resume from different saves", r->rank, i);
    if (hth_save_foreign(r->from))
        return; /* nobody here has written it */
    check_bytes(w, r);
    if (r->rank == 0) /* once per launch: it looks at everything */
        check_always(w, "after a recovery");
}
