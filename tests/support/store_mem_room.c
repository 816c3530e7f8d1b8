/* SPDX-License-Identifier: Apache-2.0 */
/* Room for slots in a store in memory: those that there are, and which make way for which. */
#include "store_mem_parts.h"

#include <stdlib.h>
#include <string.h>

/* A stranger may have taken what was ours to use. */
static uint64_t room_left(const struct mem *m)
{
    return m->limit > m->used ? m->limit - m->used : 0;
}

int mem_room(struct hth_store *s, struct hth_store_room *out)
{
    const struct mem *m = mem_of(s);
    uint64_t none = UINT64_MAX;

    *out = (struct hth_store_room){ .spare = m->limit ? room_left(m) : none,
        .max = none,
        .size = m->limit ? m->limit : none,
        .left = m->limit ? room_left(m) : none,
        .cgroup_max = none,
        .cgroup_used = none };
    for (const struct slot *slot = m->slots; slot; slot = slot->next) {
        out->slots += slot->pub.capacity;
        out->free += slot->state == FREE ? slot->pub.capacity : 0;
    }
    return 0;
}

static int descending(const void *a, const void *b)
{
    uint64_t x, y;

    memcpy(&x, a, sizeof(x));
    memcpy(&y, b, sizeof(y));
    return x < y ? 1 : x > y ? -1 : 0;
}

enum which { ALL, FREE_ONES, READERS_TOO };

/* Slots that returning ranks have mapped count as free. */
static int is_counted(const struct mem *m, const struct slot *s, enum which which)
{
    return which == ALL || s->state == FREE ||
           (s->state == GIVEN && (which == READERS_TOO || (m->expecting && !s->pub.leases)));
}

/* Match sorted sizes with slots there are, in any state or free ones; returns how many bytes
 * are missing and leaves the sizes to make in bytes[*count]. taken[] marks the matched, in list
 * order. */
static uint64_t match(
        struct mem *m, uint64_t *bytes, size_t *count, enum which which, unsigned char *taken)
{
    uint64_t missing = 0;
    size_t left = 0;

    for (size_t i = 0; i < *count; i++) {
        struct slot *best = NULL;
        size_t best_at = 0, at = 0;

        for (struct slot *s = m->slots; s; s = s->next, at++)
            if (!taken[at] && !s->condemned && s->pub.capacity >= bytes[i] &&
                    is_counted(m, s, which) && (!best || s->pub.capacity < best->pub.capacity))
                best = s, best_at = at;
        if (best) {
            taken[best_at] = 1;
        } else {
            missing += mem_capacity_for(bytes[i]);
            bytes[left++] = bytes[i];
        }
    }
    *count = left;
    return missing;
}

/* Frees free slots that match no requested size, as far as needed. */
static void make_way(struct mem *m, uint64_t missing, const unsigned char *taken)
{
    struct slot *next;
    size_t at = 0;

    for (struct slot *s = m->slots; s; s = next, at++) {
        next = s->next;
        if (room_left(m) >= missing)
            return;
        if (!taken[at] && s->state == FREE && !s->pub.user)
            mem_slot_drop(m, s);
    }
}

static uint64_t way_to_make(struct mem *m, const unsigned char *taken)
{
    uint64_t sum = 0;
    size_t at = 0;

    for (struct slot *s = m->slots; s; s = s->next, at++)
        if (!taken[at] && s->state == FREE && !s->pub.user)
            sum += s->pub.capacity;
    return sum;
}

static int make_all(struct mem *m, const uint64_t *bytes, size_t count, struct hearth_error *err)
{
    struct slot *made;
    size_t done = 0;
    int rc = 0;

    while (!rc && done < count) {
        rc = mem_slot_make(m, mem_capacity_for(bytes[done]), &made, err);
        done += !rc;
    }
    if (!rc)
        return 0;
    while (done--) { /* nothing was made: the last ones in the list */
        struct slot *last = m->slots;
        while (last->next)
            last = last->next;
        mem_slot_drop(m, last);
    }
    return rc;
}

enum make { LOOK, MAKE, MAKE_WAY };

static int have_slots(struct mem *m, const uint64_t *bytes, size_t count, enum which which,
        enum make make, struct hearth_error *err)
{
    size_t slots = 0;
    uint64_t *sizes, missing;
    unsigned char *taken;
    int rc = 0;

    for (struct slot *slot = m->slots; slot; slot = slot->next, slots++)
        slot->surplus = 0;
    sizes = malloc((count + 1) * sizeof(*sizes));
    taken = calloc(slots + 1, 1);
    if (!sizes || !taken) {
        rc = hth_fail(err, HEARTH_ENOMEM, 0, "no memory for a list of %zu slots", count);
    } else {
        if (count)
            memcpy(sizes, bytes, count * sizeof(*sizes));
        qsort(sizes, count, sizeof(*sizes), descending);
        missing = match(m, sizes, &count, which, taken);
        if (m->limit && missing > room_left(m) + (make == MAKE_WAY ? way_to_make(m, taken) : 0))
            rc = hth_fail(err, HEARTH_ENOSPC, 0,
                    "slots of %" PRIu64 " bytes more do not fit: %" PRIu64 " of %" PRIu64
                    " are used; give the store more memory or keep fewer saves",
                    missing, m->used, m->limit);
        else if (m->limit && make == MAKE_WAY)
            make_way(m, missing, taken);
        if (!rc && make != LOOK)
            rc = make_all(m, sizes, count, err);
    }
    free(taken);
    free(sizes);
    return rc;
}

/* Sizes as in have_slots(): a free slot that matches none of them is freed. */
void mem_keep_only(struct hth_store *s, const uint64_t *bytes, size_t count)
{
    struct mem *m = mem_of(s);
    size_t slots = 0, at = 0;
    uint64_t *sizes = malloc((count + 1) * sizeof(*sizes));
    unsigned char *taken;
    struct slot *next;

    for (struct slot *slot = m->slots; slot; slot = slot->next)
        slots++;
    taken = calloc(slots + 1, 1);
    if (!sizes || !taken)
        abort();
    memcpy(sizes, bytes, count * sizeof(*sizes));
    qsort(sizes, count, sizeof(*sizes), descending);
    (void)match(m, sizes, &count, ALL, taken);
    for (struct slot *slot = m->slots; slot; slot = next, at++) {
        next = slot->next;
        slot->surplus = !taken[at] && slot->state == FREE && !slot->pub.leases;
        if (slot->surplus && !slot->pub.user)
            mem_slot_drop(m, slot);
    }
    free(taken);
    free(sizes);
}

/* A free slot that matched no size of the last mem_keep_only(), and has a `user`; NULL: none. */
struct hth_slot *mem_surplus(struct hth_store *s)
{
    for (struct slot *slot = mem_of(s)->slots; slot; slot = slot->next)
        if (slot->surplus && slot->state == FREE && !slot->pub.leases && slot->pub.user)
            return &slot->pub;
    return NULL;
}

int mem_reserve(struct hth_store *s, const uint64_t *bytes, size_t count, struct hearth_error *err)
{
    int rc = have_slots(mem_of(s), bytes, count, ALL, MAKE_WAY, err);

    if (!rc)
        mem_of(s)->reserved = 1;
    return rc;
}

int mem_enough(struct hth_store *s, const uint64_t *bytes, size_t count, struct hearth_error *err)
{
    return have_slots(mem_of(s), bytes, count, ALL, LOOK, err);
}

/* Only a memory with a bound is checked for room; all others have enough. */
int mem_want(struct hth_store *s, const uint64_t *bytes, size_t count, enum hth_want how,
        struct hearth_error *err)
{
    struct mem *m = mem_of(s);

    mem_settle(m);
    return m->limit && count ? have_slots(m, bytes, count,
                                       how == HTH_WANT_OR_READERS ? READERS_TOO : FREE_ONES,
                                       how == HTH_WANT_FIRST || !m->reserved ? MAKE_WAY : MAKE, err)
                             : HEARTH_OK;
}
