/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Slots are made ahead of the saves that will use them: at joining, for each object that a rank
 * has declared; without a declaration, as large as the object that the rank has just written.
 * Slots for places that other nodes have again, or of another epoch, are given back when all is
 * well for a while.
 */
#include "reserve.h"

#include "core/store/need.h"
#include "engine/state/node_state.h"
#include "loan.h"
#include "replication/held/slots.h"

#include <stdlib.h>
#include <string.h>

void reserve_no_sizes(struct hth_node *n)
{
    n->not_foreseen = 0;
    n->looked = 0;
    n->places = 0;
    n->places_map = UINT64_MAX;
    n->give_back_ms = HTH_NEVER;
    free(n->objects);
    n->objects = NULL;
}

int reserve_sizes(
        struct hth_node *n, const unsigned char *table, uint32_t world, struct hearth_error *err)
{
    reserve_no_sizes(n);
    for (uint32_t r = 0; r < world; r++) {
        struct hth_sizes said;

        hth_gather_objects(table + (size_t)r * HTH_GATHER, &said);
        if (!said.count[0])
            continue;
        if (!n->objects && !(n->objects = calloc(world, sizeof(*n->objects))))
            return hth_fail(err, HEARTH_ENOMEM, 0, "%" PRIu32 " ranks", world);
        n->objects[r] = said;
    }
    return HEARTH_OK;
}

uint64_t reserve_said(const struct hth_node *n, uint32_t rank)
{
    return n->objects && rank < n->epoch.world ? n->objects[rank].bytes[0] : 0;
}

/* 1: the rank's objects belong here: it is a rank of this node, or this node holds its copies. */
static int reserve_is_here(const struct hth_node *n, uint32_t rank)
{
    const struct hth_epoch *e = &n->epoch;
    uint32_t holder[HTH_COPIES_MAX];
    uint32_t copies = hth_commit_holders(n->commit, rank, holder);
    int here = e->rank_node[rank] == e->self;

    for (uint32_t i = 0; i < copies; i++)
        here |= holder[i] == e->self;
    return here;
}

/* Most entries of reserve_owed() and reserve_more() together. */
static size_t reserve_owed_max(const struct hth_node *n, uint64_t unsaid)
{
    size_t objects = 1;

    for (uint32_t r = 0; r < n->epoch.world; r++)
        if (reserve_is_here(n, r))
            objects += reserve_said(n, r) ? hth_sizes_objects(&n->objects[r]) : unsaid != 0;
    return objects * (n->ctx.opts.keep + 1) + HTH_NEED_READERS;
}

static size_t reserve_more(const struct hth_node *n, uint64_t largest, uint64_t *bytes)
{
    return hth_need_readers(n->opts.lease_bytes + n->opts.spare_bytes, largest, bytes);
}

/* Adds slots of the largest size: on each node of several for copies that a map moves here; on a
 * single node for readers, one for each save. */
static size_t reserve_for_maps(const struct hth_node *n, uint64_t largest, uint64_t *bytes)
{
    size_t count = hth_need_moving(n->epoch.nodes, largest, bytes);

    while (n->epoch.nodes == 1 && largest && count <= n->ctx.opts.keep)
        bytes[count++] = largest;
    return count;
}

/* Slots for keep + 1 saves of one rank's part, object by object, by the sizes that the rank has
 * sent; else one object of `unsaid` bytes. */
static size_t reserve_of(const struct hth_node *n, uint32_t rank, uint64_t unsaid, uint64_t *bytes)
{
    const struct hth_sizes one = { .bytes = { unsaid }, .count = { unsaid != 0 } };

    return hth_need_part(reserve_said(n, rank) ? &n->objects[rank] : &one, n->ctx.opts.keep, bytes);
}

/* Slots for the objects of this node's ranks, and for the copies that this node holds. A rank that
 * has sent no sizes has one object of `unsaid` bytes; 0: none. */
static size_t reserve_owed(
        const struct hth_node *n, uint64_t unsaid, uint64_t *bytes, uint64_t *out_largest)
{
    size_t count = 0;

    *out_largest = 0;
    for (uint32_t r = 0; r < n->epoch.world; r++)
        if (reserve_is_here(n, r))
            count += reserve_of(n, r, unsaid, bytes + count);
    for (size_t i = 0; i < count; i++)
        *out_largest = bytes[i] > *out_largest ? bytes[i] : *out_largest;
    return count;
}

int reserve_slots(struct hth_node *n, struct hearth_error *err)
{
    uint64_t *bytes, largest;
    size_t count;
    int rc;

    if (!n->objects) { /* no rank has sent sizes */
        hth_point(&n->ctx.points, "reserve");
        return HEARTH_OK;
    }
    bytes = calloc(reserve_owed_max(n, 0), sizeof(*bytes));
    if (!bytes)
        return hth_fail(err, HEARTH_ENOMEM, 0, "reservation");
    count = reserve_owed(n, 0, bytes, &largest);
    count += reserve_more(n, largest, bytes + count);
    if (n->epoch.nodes > 1)
        count += reserve_for_maps(n, largest, bytes + count);
    hth_point(&n->ctx.points, "reserve");
    rc = count ? hth_slots_reserve(&n->ctx, bytes, count, err) : HEARTH_OK;
    free(bytes);
    return rc;
}

void reserve_for_readers(struct hth_node *n, uint64_t object)
{
    uint64_t *bytes, largest;
    size_t count;

    if (n->epoch.nodes > 1 || !(bytes = calloc(reserve_owed_max(n, object), sizeof(*bytes))))
        return;
    count = reserve_owed(n, object, bytes, &largest);
    count += reserve_more(n, largest, bytes + count);
    count += reserve_for_maps(n, largest, bytes + count);
    (void)n->env.store->ops->foresee(n->env.store, bytes, count, NULL);
    free(bytes);
}

int reserve_look(struct hth_node *n, uint64_t object, struct hearth_error *err)
{
    uint64_t *bytes, largest;
    size_t count;
    int rc;

    if (n->looked || !n->env.store->ops->enough)
        return HEARTH_OK;
    n->looked = 1;
    bytes = calloc(reserve_owed_max(n, object), sizeof(*bytes));
    if (!bytes)
        return HEARTH_OK;
    count = reserve_owed(n, object, bytes, &largest);
    rc = n->env.store->ops->enough(n->env.store, bytes, count, err);
    free(bytes);
    return rc;
}

/* The size that BEGIN will ask for again; of a copy, the size that its offer will ask for. */
static uint64_t reserve_asked_for(
        const struct hth_node *n, struct hth_save_id save, const struct hth_held *h)
{
    uint32_t index = (uint32_t)h->object.id;

    for (const struct loan *l = n->loans; l; l = l->next)
        if (l->has_id && !hth_save_cmp(l->save, save) && l->rank == h->object.owner &&
                index < l->objects)
            return l->object[index].asked;
    return h->state == HTH_HELD_SEALED ? hth_object_file_bytes(&h->object) : 0;
}

/* The newest kept save of all ranks, or else the newest kept save. NULL if it is not of this epoch:
 * ranks of another epoch may have other sizes. */
static const struct hth_held_save *reserve_like(struct hth_node *n)
{
    const struct hth_keep *keep = &n->ctx.keep;
    uint32_t at = 0;

    while (at < keep->saves && hth_attempt_set(keep->save[at].attempt))
        at++;
    if (at == keep->saves)
        at = 0;
    return keep->saves && keep->save[at].epoch == n->epoch.epoch
                   ? hth_holdings_find(&n->ctx, keep->save[at])
                   : NULL;
}

/* Sizes of the objects of `owner` in one save: those that it declared, else those in the save
 * `like`, else one object of `unsaid` bytes. Returns their number; bytes NULL: only counts. */
static size_t reserve_part(const struct hth_node *n, const struct hth_held_save *like,
        uint32_t owner, uint64_t unsaid, uint64_t *bytes)
{
    const struct hth_sizes *said = reserve_said(n, owner) ? &n->objects[owner] : NULL;
    uint64_t one;
    size_t count = 0;

    for (size_t i = 0; said && i < HTH_SIZES; i++)
        for (uint32_t k = 0; k < said->count[i]; k++, count++)
            if (bytes)
                bytes[count] = said->bytes[i];
    for (const struct hth_held *h = like && !said ? like->held : NULL; h; h = h->next) {
        if (h->object.kind != HTH_OBJECT_SHARD || h->object.owner != owner ||
                !(one = reserve_asked_for(n, like->id, h)))
            continue;
        if (bytes)
            bytes[count] = one;
        count++;
    }
    if (!count && bytes)
        bytes[0] = unsaid;
    return count ? count : 1;
}

/* If an object is larger than all objects of the part, it takes the first one's place: the object
 * has grown. */
static void reserve_grow(uint64_t *bytes, size_t count, uint64_t object)
{
    for (size_t i = 0; i < count; i++)
        if (bytes[i] >= object)
            return;
    bytes[0] = object;
}

/* The sizes of the objects here of one save of these ranks; NULL: of all ranks. bytes NULL: only
 * counts. */
static size_t reserve_save(const struct hth_node *n, const struct hth_held_save *like,
        const struct hth_ranks *ranks, uint32_t rank, uint64_t object, uint64_t *bytes)
{
    size_t count = 0, one;

    for (uint32_t r = 0; r < n->epoch.world; r++) {
        if (!reserve_is_here(n, r) || (ranks && !hth_ranks_have(ranks, r)))
            continue;
        one = reserve_part(n, like, r, object, bytes ? bytes + count : NULL);
        if (bytes && r == rank)
            reserve_grow(bytes + count, one, object);
        count += one;
    }
    return count;
}

int reserve_room(struct hth_node *n, uint32_t rank, uint64_t object,
        const struct hth_ranks *const *sets, uint32_t saves, struct hearth_error *err)
{
    const struct hth_held_save *like = reserve_like(n);
    uint64_t *bytes, largest = object;
    size_t max, count = 0;
    int rc;

    if (!n->env.store->ops->enough)
        return HEARTH_OK;
    max = reserve_save(n, like, NULL, rank, object, NULL) * saves + HTH_NEED_MOVING;
    if (!(bytes = calloc(max, sizeof(*bytes))))
        return hth_fail(err, HEARTH_ENOMEM, 0, "%zu sizes", max);
    for (uint32_t k = 0; k < saves; k++)
        count += reserve_save(n, like, sets[k], rank, object, bytes + count);
    for (size_t i = 0; i < count; i++)
        largest = bytes[i] > largest ? bytes[i] : largest;
    if (n->epoch.nodes > 1) /* the next map may assign a copy of a kept save to this node */
        count += reserve_for_maps(n, largest, bytes + count);
    rc = n->env.store->ops->enough(n->env.store, bytes, count, err);
    free(bytes);
    return rc;
}

static size_t reserve_sizes_of(
        const struct hth_node *n, const struct hth_held_save *s, uint64_t *out, size_t max)
{
    size_t count = 0;

    for (const struct hth_held *h = s->held; h; h = h->next) {
        uint64_t bytes = h->object.kind == HTH_OBJECT_SHARD ? reserve_asked_for(n, s->id, h) : 0;

        if (!bytes || h->object.owner >= n->epoch.world || reserve_said(n, h->object.owner))
            continue; /* no slot, not whole yet, or reserved when its rank joined */
        for (uint32_t g = 0; g <= n->ctx.opts.keep && count < max; g++)
            out[count++] = bytes;
    }
    return count;
}

void reserve_ahead(struct hth_node *n, struct hth_save_id save)
{
    const struct hth_held_save *s = hth_holdings_find(&n->ctx, save);
    size_t max = 0, count;
    struct hearth_error err;
    uint64_t *bytes;

    for (const struct hth_held *h = s ? s->held : NULL; h; h = h->next)
        max += n->ctx.opts.keep + 1;
    bytes = max ? calloc(max, sizeof(*bytes)) : NULL;
    count = bytes ? reserve_sizes_of(n, s, bytes, max) : 0;
    if (count && n->env.store->ops->foresee(n->env.store, bytes, count, &err) && !n->not_foreseen) {
        n->not_foreseen = 1;
        hth_say(&n->ctx.log, HEARTH_LOG_WARN, "not-foreseen",
                "slots of the next save are not made ahead, so that it will be slow: %s", err.text);
    }
    free(bytes);
}

/* ---- Given back
 * ---------------------------------------------------------------------------------- */

static size_t reserve_shown_max(const struct hth_node *n, const struct hth_held_save *s)
{
    size_t max = 0;

    for (const struct hth_held *h = s->held; h; h = h->next)
        max += n->ctx.opts.keep + 1;
    return max;
}

/* Gives back slots that saves like the newest do not need under this map. 1: some go later. */
static int reserve_give_back(struct hth_node *n, const struct hth_held_save *s)
{
    size_t max = reserve_shown_max(n, s), count;
    uint64_t *bytes = calloc(reserve_owed_max(n, 0) + max, sizeof(*bytes)), largest;
    int later = 0;

    if (!bytes)
        return 0;
    count = reserve_owed(n, 0, bytes, &largest);
    count += reserve_sizes_of(n, s, bytes + count, max);
    for (size_t i = 0; i < count; i++)
        largest = bytes[i] > largest ? bytes[i] : largest;
    if (count) {
        count += reserve_more(n, largest, bytes + count);
        count += reserve_for_maps(n, largest, bytes + count);
    }
    if (count)
        later = hth_slots_keep_only(&n->ctx, bytes, count);
    free(bytes);
    return later;
}

static uint32_t reserve_places(const struct hth_node *n)
{
    uint32_t places = 0;

    for (uint32_t r = 0; r < n->epoch.world; r++)
        places += (uint32_t)reserve_is_here(n, r);
    return places;
}

static void reserve_mapped(struct hth_node *n, uint64_t now_ms)
{
    uint32_t places = reserve_places(n);
    /* it is not known which slots the last epoch has left */
    int first = n->places_map == UINT64_MAX;

    if (first || places < n->places)
        n->give_back_ms = now_ms + 2 * (uint64_t)n->ctx.opts.dead_ms;
    if (places > n->places)
        n->places = places;
}

/* Slots of other sizes that ranks have mapped would make way. */
static void reserve_let_go(struct hth_node *n)
{
    struct hth_store *store = n->env.store;
    const struct hth_slot *slot;

    while (store->ops->mapped && (slot = store->ops->mapped(store)))
        loan_let_go(n, NULL, slot->id);
}

void reserve_tick(struct hth_node *n, uint64_t now_ms)
{
    const struct hth_held_save *s;
    uint64_t mapped;
    int settled;

    reserve_let_go(n);
    if (!n->ctx.epoch || !n->recovered)
        return;
    settled = hth_commit_settled(n->commit, &mapped);
    if (mapped != n->places_map)
        reserve_mapped(n, now_ms);
    n->places_map = mapped;
    if (now_ms < n->give_back_ms)
        return;
    s = settled ? reserve_like(n) : NULL;
    n->places = reserve_places(n);
    if (!s || reserve_give_back(n, s))
        n->give_back_ms = now_ms + n->ctx.opts.dead_ms;
    else
        n->give_back_ms = HTH_NEVER;
}

void reserve_look_again(struct hth_node *n)
{
    if (n->ctx.epoch && n->give_back_ms == HTH_NEVER)
        n->give_back_ms = hth_now_ms(&n->ctx.clock) + 2 * (uint64_t)n->ctx.opts.dead_ms;
}

uint64_t reserve_due_ms(const struct hth_node *n)
{
    return n->ctx.epoch && n->recovered ? n->give_back_ms : HTH_NEVER;
}

void reserve_close(struct hth_node *n)
{
    free(n->objects);
    n->objects = NULL;
}
