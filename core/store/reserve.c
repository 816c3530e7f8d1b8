/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Room for a job's slots, asked for once and as a whole: sizes are matched with the slots there
 * are, and what is missing is made only when all of it fits. The files are made here; the memory
 * behind them comes piece by piece (slot_back.c) and counts as taken from now on.
 */
#include "neighbour.h"
#include "tmpfs.h"

#include <stdlib.h>
#include <string.h>

static uint64_t reserve_margin(const struct hth_tmpfs *t, const struct hth_room *room)
{
    return t->opts.margin_bytes ? t->opts.margin_bytes : hth_need_reserve(room->size);
}

/* The reserve is for small files. So bytes that small files use of it count as part of it, up to
 * its half. */
static uint64_t reserve_taken(
        const struct hth_tmpfs *t, const struct hth_room *room, uint64_t margin)
{
    uint64_t used = room->size == HTH_ROOM_NONE ? 0 : room->size - room->mount;

    for (const struct tmpfs_slot *s = t->slots; s; s = s->next)
        used -= !s->foreign && s->made < used ? s->made : 0;
    return used < margin / 2 ? used : margin / 2;
}

uint64_t hth_pool_made(const struct hth_tmpfs *t)
{
    uint64_t made = 0;

    for (const struct tmpfs_slot *s = t->slots; s; s = s->next)
        made += s->foreign ? 0 : s->made;
    return made;
}

static void reserve_charge(const struct hth_tmpfs *t, struct hth_room *room)
{
    uint64_t made = hth_pool_made(t), above = made < t->uncharged ? made : t->uncharged;

    if (room->cgroup != HTH_ROOM_NONE)
        room->cgroup -= above < room->cgroup ? above : room->cgroup;
}

/* Do slots of `bytes` more fit, once `freed` bytes of slots are gone? promises: the caller makes
 * them next, or hth_pool_work() takes it back. */
static int reserve_fits(
        struct hth_tmpfs *t, uint64_t bytes, uint64_t freed, int promises, struct hearth_error *err)
{
    uint64_t slots = bytes, promised = hth_back_missing(t) + hth_raw_missing(t);
    struct hth_room room;
    int rc = hth_room_look(t->job_fd, t->opts.proc, &room, err);

    if (rc)
        return rc;
    for (const struct tmpfs_slot *s = t->slots; s; s = s->next)
        slots += s->foreign ? 0 : s->pub.capacity;
    if (t->opts.limit_bytes && slots - freed > t->opts.limit_bytes)
        return hth_fail(err, HEARTH_ENOSPC, 0,
                "slots of %" PRIu64 " bytes in all exceed the limit of %" PRIu64
                "; raise it, or lower keep or copies if above 1 (in %.200s)",
                slots - freed, t->opts.limit_bytes, t->path);
    room.taken = reserve_taken(t, &room, reserve_margin(t, &room));
    reserve_charge(t, &room);
    hth_account_lock(t);
    hth_account_others(t, &room);
    if (room.mount != HTH_ROOM_NONE)
        room.mount += freed;
    if (room.cgroup != HTH_ROOM_NONE)
        room.cgroup += freed;
    if (room.memory != HTH_ROOM_NONE)
        room.memory += freed;
    rc = hth_room_fits(&room, bytes + promised, reserve_margin(t, &room), t->path, err);
    if (!rc && promises)
        hth_account_say(t, bytes + promised);
    hth_account_unlock(t);
    if (rc && err) {
        room.whose = hth_neighbour(t);
        rc = hth_room_fits(&room, bytes + promised, reserve_margin(t, &room), t->path, err);
    }
    return rc;
}

int hth_pool_promise(struct hth_tmpfs *t, uint64_t bytes, uint64_t freed, struct hearth_error *err)
{
    return reserve_fits(t, bytes, freed, 1, err);
}

static uint64_t reserve_less(uint64_t bytes, uint64_t less)
{
    return bytes > less ? bytes - less : 0;
}

int hth_pool_room(struct hth_store *s, struct hth_store_room *out)
{
    struct hth_tmpfs *t = hth_tmpfs_of(s);
    uint64_t promised = hth_back_missing(t) + hth_raw_missing(t), least;
    struct hth_room room;

    if (hth_room_look(t->job_fd, t->opts.proc, &room, NULL))
        return HEARTH_EIO;
    *out = (struct hth_store_room){ .max = t->opts.limit_bytes ? t->opts.limit_bytes : UINT64_MAX,
        .size = room.size,
        .left = room.mount,
        .cgroup_max = room.cgroup_max,
        .cgroup_used = room.cgroup_used };
    for (const struct tmpfs_slot *slot = t->slots; slot; slot = slot->next) {
        out->slots += slot->foreign ? 0 : slot->pub.capacity;
        out->free += !slot->foreign && slot->state == TMPFS_FREE ? slot->pub.capacity : 0;
    }
    room.taken = reserve_taken(t, &room, reserve_margin(t, &room));
    reserve_charge(t, &room);
    hth_account_others(t, &room);
    least = hth_room_least(&room, reserve_margin(t, &room));
    out->spare = least == HTH_ROOM_NONE ? least : reserve_less(least, promised);
    if (out->spare > reserve_less(out->max, out->slots))
        out->spare = reserve_less(out->max, out->slots);
    return HEARTH_OK;
}

static int bytes_descending(const void *a, const void *b)
{
    uint64_t x, y;

    memcpy(&x, a, sizeof(x));
    memcpy(&y, b, sizeof(y));
    return x < y ? 1 : x > y ? -1 : 0;
}

/* Which slots count: all of the pool, whatever their state; free ones; those that returning
 * ranks have mapped, too; those that readers have, too. */
enum which { ALL_SLOTS, FREE_SLOTS, AWAITED_TOO, GIVEN_TOO };

static int reserve_counts(const struct tmpfs_slot *s, enum which which)
{
    return hth_slot_counts(s) && (which == ALL_SLOTS || s->state == TMPFS_FREE ||
                                         (which >= AWAITED_TOO && s->state == TMPFS_GIVEN &&
                                                 (which == GIVEN_TOO || !s->pub.leases)));
}

/* Matches sizes, largest first, with the slots there are. Sizes without a slot are left in
 * bytes[*count]; the capacities of their slots add up to the result. */
static uint64_t reserve_match(struct hth_tmpfs *t, uint64_t *bytes, size_t *count, enum which which)
{
    uint64_t missing = 0;
    size_t left = 0;

    for (struct tmpfs_slot *s = t->slots; s; s = s->next)
        s->matched = 0;
    for (size_t i = 0; i < *count; i++) {
        struct tmpfs_slot *best = NULL;

        for (struct tmpfs_slot *s = t->slots; s; s = s->next)
            if (!s->matched && reserve_counts(s, which) && s->pub.capacity >= bytes[i] &&
                    (!best || s->pub.capacity < best->pub.capacity))
                best = s;
        if (best) {
            best->matched = 1;
        } else {
            missing += hth_need_slot(bytes[i]);
            bytes[left++] = bytes[i];
        }
    }
    *count = left;
    return missing;
}

/* 1: it can be dropped; only a registration may still hold it. */
static int in_the_way(const struct tmpfs_slot *s)
{
    return !s->matched && !s->foreign && s->state == TMPFS_FREE && !s->pub.leases && !s->busy;
}

/* Finds out whether a rank still has the slot mapped, in which case its memory would not be freed.
 * The store must open its file anew to see that. */
static void way_look(struct hth_tmpfs *t, struct tmpfs_slot *s)
{
    if (s->matched || s->foreign || s->pub.user)
        return;
    if (s->busy && (s->state == TMPFS_FREE || s->state == TMPFS_GIVEN))
        hth_back_claim(t, s); /* one whose rank ended meanwhile may be free with that */
    if (s->state != TMPFS_FREE || !s->lent || s->pub.leases)
        return;
    s->orphan = ORPHAN_SHARES;
    hth_slot_settle(t, s);
    if (s->state == TMPFS_FREE)
        s->taker = TAKER_NONE;
    s->unmap = s->state == TMPFS_GIVEN;
    t->unmaps += (unsigned)s->unmap;
}

/* 1: it would be dropped, but a rank that has it mapped is to unmap it first. */
static int way_awaits(const struct tmpfs_slot *s)
{
    return !s->matched && !s->foreign && s->state == TMPFS_GIVEN && s->orphan == ORPHAN_ALONE &&
           !s->pub.leases;
}

/* Where room is short, drops free slots that match no size, and with them the bytes that they have
 * and those that are promised to them. some: no more of them than it must. */
static void way_drop(struct hth_tmpfs *t, uint64_t missing, int some)
{
    struct tmpfs_slot *next;

    for (struct tmpfs_slot *s = t->slots; s; s = next) {
        next = s->next;
        if (!in_the_way(s) || s->pub.user)
            continue;
        hth_slot_drop(t, s);
        if (some && !hth_pool_promise(t, missing, 0, NULL))
            return;
    }
}

/* Room for `missing` bytes. */
static int make_way(struct hth_tmpfs *t, uint64_t missing, int some, struct hearth_error *err)
{
    uint64_t freed = 0, awaited = 0;
    int rc = hth_pool_promise(t, missing, 0, NULL);

    if (!rc || !missing)
        return 0;
    hth_slots_settle(t);
    for (struct tmpfs_slot *s = t->slots; s; s = s->next) {
        way_look(t, s);
        freed += in_the_way(s) && !s->pub.user ? s->pub.capacity : 0;
        awaited += way_awaits(s) ? s->pub.capacity : 0;
    }
    rc = hth_pool_promise(t, missing, freed, err);
    if (!rc)
        way_drop(t, missing, some);
    else if (some && awaited && !reserve_fits(t, missing, freed + awaited, 0, NULL))
        rc = hth_fail(err, HEARTH_EBUSY, 0,
                "room for slots of %" PRIu64
                " bytes is there when ranks have unmapped slots of other sizes; try again",
                missing);
    return rc;
}

static int make_all(
        struct hth_tmpfs *t, const uint64_t *bytes, size_t count, struct hearth_error *err)
{
    struct tmpfs_slot *slot;
    size_t done = 0;
    int rc = 0;

    while (!rc && done < count) {
        rc = hth_slot_new(t, hth_need_slot(bytes[done]), &slot, err);
        done += !rc;
    }
    if (!rc)
        return 0;
    while (done--) { /* drop those that were made: they are last in the list */
        for (slot = t->slots; slot->next; slot = slot->next)
            ;
        hth_slot_drop(t, slot);
    }
    return rc;
}

/* LOOK: would they fit? MAKE: missing slots are made. MAKE_WAY: and others are dropped for them;
 * MAKE_SOME_WAY: as few as must be, and slots that ranks have mapped are waited for. */
enum make { LOOK, MAKE, MAKE_SOME_WAY, MAKE_WAY };

/* Slots of these sizes. */
static int have_slots(struct hth_tmpfs *t, const uint64_t *bytes, size_t count, enum which which,
        enum make make, struct hearth_error *err)
{
    uint64_t *sizes, missing;
    int rc;

    for (size_t i = 0; i < count; i++)
        if (bytes[i] > HTH_SLOT_MAX / (count + 1))
            return hth_fail(err, HEARTH_ENOSPC, 0,
                    "a slot of %" PRIu64 " bytes is more than any machine has", bytes[i]);
    sizes = hth_sys_zalloc(t, (count + 1) * sizeof(*sizes));
    if (!sizes)
        return hth_sys_fail(t, err, "list", "slots");
    if (count)
        memcpy(sizes, bytes, count * sizeof(*sizes));
    qsort(sizes, count, sizeof(*sizes), bytes_descending);
    missing = reserve_match(t, sizes, &count, which);
    t->makes_way = make >= MAKE_SOME_WAY;
    rc = !missing       ? 0
         : t->makes_way ? make_way(t, missing, make == MAKE_SOME_WAY, err)
                        : reserve_fits(t, missing, 0, make != LOOK, err);
    if (!rc && make != LOOK)
        rc = make_all(t, sizes, count, err);
    free(sizes);
    return rc;
}

int hth_pool_reserve(
        struct hth_store *s, const uint64_t *bytes, size_t count, struct hearth_error *err)
{
    struct hth_tmpfs *t = hth_tmpfs_of(s);
    int rc = have_slots(t, bytes, count, ALL_SLOTS, MAKE_WAY, err);

    if (!rc)
        t->reserved = 1;
    return rc;
}

int hth_pool_foresee(
        struct hth_store *s, const uint64_t *bytes, size_t count, struct hearth_error *err)
{
    return have_slots(hth_tmpfs_of(s), bytes, count, ALL_SLOTS, MAKE, err);
}

int hth_pool_enough(
        struct hth_store *s, const uint64_t *bytes, size_t count, struct hearth_error *err)
{
    return have_slots(hth_tmpfs_of(s), bytes, count, ALL_SLOTS, LOOK, err);
}

/* A slot that a rank has mapped stays: its memory would, too. */
void hth_pool_keep_only(struct hth_store *s, const uint64_t *bytes, size_t count)
{
    struct hth_tmpfs *t = hth_tmpfs_of(s);
    uint64_t *sizes = hth_sys_zalloc(t, (count + 1) * sizeof(*sizes));
    struct tmpfs_slot *next;

    if (!sizes)
        return;
    if (count)
        memcpy(sizes, bytes, count * sizeof(*sizes));
    qsort(sizes, count, sizeof(*sizes), bytes_descending);
    (void)reserve_match(t, sizes, &count, ALL_SLOTS);
    t->makes_way = 1;
    free(sizes);
    for (struct tmpfs_slot *slot = t->slots; slot; slot = next) {
        next = slot->next;
        slot->matched |= slot->taker < TAKER_ENGINE;
        way_look(t, slot);
        if (in_the_way(slot) && !slot->pub.user)
            hth_slot_give_back(t, slot);
    }
}

struct hth_slot *hth_pool_surplus(struct hth_store *s)
{
    struct hth_tmpfs *t = hth_tmpfs_of(s);
    struct tmpfs_slot *slot = t->makes_way ? t->slots : NULL;

    while (slot && (!in_the_way(slot) || !slot->pub.user))
        slot = slot->next;
    return slot ? &slot->pub : NULL;
}

struct hth_slot *hth_pool_mapped(struct hth_store *s)
{
    struct hth_tmpfs *t = hth_tmpfs_of(s);
    struct tmpfs_slot *slot = t->unmaps ? t->slots : NULL;

    while (slot && !slot->unmap)
        slot = slot->next;
    if (!slot) {
        t->unmaps = 0;
        return NULL;
    }
    slot->unmap = 0;
    return &slot->pub;
}

/* Is all of it there once readers have ended? */
static int readers_have_it(struct hth_tmpfs *t, const uint64_t *bytes, size_t count)
{
    uint64_t *sizes = calloc(count + 1, sizeof(*sizes)), missing;

    if (!sizes)
        return 0;
    memcpy(sizes, bytes, count * sizeof(*sizes));
    qsort(sizes, count, sizeof(*sizes), bytes_descending);
    missing = reserve_match(t, sizes, &count, GIVEN_TOO);
    free(sizes);
    return !missing;
}

int hth_pool_want(struct hth_store *s, const uint64_t *bytes, size_t count, enum hth_want how,
        struct hearth_error *err)
{
    struct hth_tmpfs *t = hth_tmpfs_of(s);
    int rc;

    if (!count)
        return 0;
    hth_slots_settle(t);
    rc = have_slots(t, bytes, count,
            how == HTH_WANT_OR_READERS && t->reserved ? GIVEN_TOO
            : t->expecting                            ? AWAITED_TOO
                                                      : FREE_SLOTS,
            how == HTH_WANT_FIRST ? MAKE_WAY
            : t->reserved         ? MAKE
                                  : MAKE_SOME_WAY,
            err);
    if (rc == HEARTH_ENOSPC && how != HTH_WANT_OR_READERS && readers_have_it(t, bytes, count))
        return hth_fail(err, HEARTH_EBUSY, 0, "readers of older saves have the slots");
    return rc;
}
