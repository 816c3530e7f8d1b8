/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Slots. First touch of a tmpfs page costs 15 to 60 times the copy into it, so slots are made
 * once and go round: out of the pool to a save's directory and back, by rename alone.
 *
 *     FREE ─take─► HELD ─receive─► RECEIVED ─seal─► SEALED        (HELD may be sealed at once)
 *      ▲             └──────────────┴──give──────────┴─► GIVEN while leased, else FREE
 *      └─────────────────────last unlease───────────────┘
 *
 * No slot is ever truncated, punched or shrunk: a registered view would go on showing the old
 * pages, without any error.
 */
#include "tmpfs.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define FINISH_NOW \
    (UINT64_C(256) << 20) /* bytes that take() itself allocates where there are no workers */
#define WHY_BYTES 100

static int is_free(const struct tmpfs_slot *s, uint64_t bytes, int ready)
{
    return s->state == TMPFS_FREE && !s->foreign && !s->broken && s->pub.capacity >= bytes &&
           (!ready || s->made == s->pub.capacity);
}

/* What it costs to give this slot to `taker`: a rank has mapped the slots that it had before and
 * must map any other one; and the rank that had this slot last must map another one later. */
static int taker_strangeness(const struct tmpfs_slot *s, uint32_t taker)
{
    if (s->taker == taker)
        return 0;
    return s->taker == TAKER_NONE ? 1 : s->taker == TAKER_ENGINE ? 2 : 3;
}

static int is_better(
        const struct tmpfs_slot *s, const struct tmpfs_slot *best, uint64_t class, uint32_t taker)
{
    int fits = s->pub.capacity <= class, best_fits = best->pub.capacity <= class;

    if (fits != best_fits)
        return fits;
    if (fits && taker_strangeness(s, taker) != taker_strangeness(best, taker))
        return taker_strangeness(s, taker) < taker_strangeness(best, taker);
    if (fits && hth_save_none(s->half) != hth_save_none(best->half))
        return hth_save_none(s->half); /* hth_pool_resume() may still use such bytes */
    if (fits && s->pub.capacity == best->pub.capacity && s->touched != best->touched)
        return s->touched > best->touched;
    return s->pub.capacity < best->pub.capacity;
}

/* The best fit; but all slots that are no larger than one made for these bytes fit equally well,
 * since each size that was reserved has a slot of that much. Among those, the taker's own. */
static struct tmpfs_slot *best_free(struct hth_tmpfs *t, uint64_t bytes, uint32_t taker, int ready)
{
    uint64_t class = hth_need_slot(bytes);
    struct tmpfs_slot *best = NULL;

    for (struct tmpfs_slot *s = t->slots; s; s = s->next)
        if (is_free(s, bytes, ready) && (!best || is_better(s, best, class, taker)))
            best = s;
    return best;
}

/* One that is made already. A larger one does not take the place of one of this size that is
 * still being made: each size that was reserved has as many slots as it needs, and no more. */
static struct tmpfs_slot *best_ready(struct hth_tmpfs *t, uint64_t bytes, uint32_t taker)
{
    struct tmpfs_slot *ready = best_free(t, bytes, taker, 1), *best = best_free(t, bytes, taker, 0);
    uint64_t class = hth_need_slot(bytes);

    return ready && (ready->pub.capacity <= class || best->pub.capacity > class) ? ready : NULL;
}

static int any_fits(const struct hth_tmpfs *t, uint64_t bytes)
{
    for (const struct tmpfs_slot *s = t->slots; s; s = s->next)
        if (hth_slot_counts(s) && s->pub.capacity >= bytes)
            return 1;
    return 0;
}

/* A rank of the engine before this one has such a slot mapped, and is about to let go of it. */
static int pool_awaits(const struct hth_tmpfs *t, uint64_t bytes)
{
    for (const struct tmpfs_slot *s = t->expecting ? t->slots : NULL; s; s = s->next)
        if (hth_slot_counts(s) && s->state == TMPFS_GIVEN && !s->pub.leases &&
                s->pub.capacity >= bytes)
            return 1;
    return 0;
}

void hth_pool_expect(struct hth_store *s, int on)
{
    hth_tmpfs_of(s)->expecting = on;
}

/* Its memory is being made: those that were refused it come first. */
static int pool_later(struct tmpfs_slot *slot, struct hearth_error *err)
{
    slot->asked = 1;
    return hth_fail(err, HEARTH_EBUSY, 0,
            "a slot of %" PRIu64 " bytes is being prepared, %" PRIu64
            " of them are ready; try again",
            slot->pub.capacity, slot->made);
}

/* A new slot: where there are workers they make its memory, else the caller does. */
static int make_now(
        struct hth_tmpfs *t, uint64_t bytes, struct tmpfs_slot **out, struct hearth_error *err)
{
    struct tmpfs_slot *slot = NULL;
    int rc;

    if (bytes > HTH_SLOT_MAX)
        return hth_fail(err, HEARTH_ENOSPC, 0,
                "a slot of %" PRIu64 " bytes is more than any machine has", bytes);
    rc = hth_pool_promise(t, hth_need_slot(bytes), 0, err);
    if (!rc)
        rc = hth_slot_new(t, hth_need_slot(bytes), &slot, err);
    if (rc || !slot)
        return rc;
    if (t->opts.workers.submit)
        return pool_later(slot, err);
    rc = hth_back_all(t, slot, err);
    if (rc)
        hth_slot_drop(t, slot);
    else
        *out = slot;
    return rc;
}

/* The engine's thread, which has workers, makes no pages: peers would take the node for lost. */
static int can_finish(const struct hth_tmpfs *t, const struct tmpfs_slot *slot)
{
    return !t->opts.workers.submit && slot->pub.capacity - slot->made <= FINISH_NOW;
}

static int find_or_make(struct hth_tmpfs *t, uint64_t bytes, uint32_t taker,
        struct tmpfs_slot **out, struct hearth_error *err)
{
    *out = best_ready(t, bytes, taker);
    if (*out)
        return 0;
    *out = best_free(t, bytes, taker, 0);
    if (*out && can_finish(t, *out))
        return hth_back_all(t, *out, err);
    if (*out && (t->reserved || taker != TAKER_ENGINE || t->opts.workers.submit))
        return pool_later(*out, err);
    if (pool_awaits(t, bytes))
        return hth_fail(err, HEARTH_EBUSY, 0,
                "no free slot of %" PRIu64 " bytes until all ranks of this node have come back to "
                "its engine",
                bytes);
    if (t->reserved && any_fits(t, bytes))
        return hth_fail(err, HEARTH_EBUSY, 0,
                "no free slot of %" PRIu64 " bytes: older saves and their readers hold them all",
                bytes);
    return make_now(t, bytes, out, err);
}

static void pool_hand_out(struct hth_tmpfs *t, struct tmpfs_slot *slot, uint32_t taker)
{
    uint64_t first = t->starts << 32;

    slot->state = TMPFS_HELD;
    slot->asked = 0;
    slot->taker = taker;
    slot->lent |= taker < TAKER_ENGINE;
    slot->half = (struct hth_save_id){ 0 };
    if (slot->pub.generation < first)
        slot->pub.generation = first;
    slot->pub.generation++;
}

int hth_pool_lend(struct hth_store *s, uint64_t bytes, uint32_t rank, struct hth_slot **out,
        struct hearth_error *err)
{
    struct hth_tmpfs *t = hth_tmpfs_of(s);
    struct tmpfs_slot *slot = NULL;
    int rc;

    hth_slots_settle(t);
    do
        rc = find_or_make(t, bytes, rank, &slot, err);
    while (!rc && hth_broken_look(t, slot, NULL)); /* and not found again */
    if (rc)
        return rc;
    pool_hand_out(t, slot, rank);
    *out = &slot->pub;
    return 0;
}

int hth_pool_take(
        struct hth_store *s, uint64_t bytes, struct hth_slot **out, struct hearth_error *err)
{
    return hth_pool_lend(s, bytes, TAKER_ENGINE, out, err);
}

int hth_pool_resume(struct hth_store *s, uint64_t bytes, struct hth_save_id save, const char *name,
        struct hth_slot **out)
{
    struct hth_tmpfs *t = hth_tmpfs_of(s);
    struct tmpfs_slot *slot;

    hth_slots_settle(t);
    for (slot = t->slots; slot; slot = slot->next)
        if (is_free(slot, bytes, 1) && hth_save_cmp(slot->half, save) == 0 &&
                strcmp(slot->name, name) == 0 && !hth_broken_look(t, slot, NULL))
            break;
    if (!slot)
        return HEARTH_ENOENT;
    pool_hand_out(t, slot, TAKER_ENGINE);
    *out = &slot->pub;
    return 0;
}

/* A slot in which an object was sealed since, or that we have lent since, has a higher
 * generation. */
int hth_pool_claim(struct hth_store *s, uint64_t id, uint64_t generation, uint32_t rank,
        struct hth_slot **out, struct hearth_error *err)
{
    struct hth_tmpfs *t = hth_tmpfs_of(s);
    struct tmpfs_slot *slot = t->slots;

    while (slot && slot->pub.id != id)
        slot = slot->next;
    if (slot && (slot->state == TMPFS_FREE || slot->state == TMPFS_GIVEN))
        hth_back_claim(t, slot);
    if (!slot || slot->foreign || slot->pub.leases || slot->pub.generation > generation ||
            (slot->state != TMPFS_FREE && slot->state != TMPFS_GIVEN))
        return hth_fail(err, HEARTH_ENOENT, 0,
                "the slot that a rank wrote into is not there any more, or has been used since");
    slot->state = TMPFS_HELD;
    slot->taker = rank;
    slot->lent = 1;
    slot->half = (struct hth_save_id){ 0 };
    slot->pub.generation = generation;
    *out = &slot->pub;
    return 0;
}

/* The directory and name of its file; NULL where the file may not be moved. */
static const char *slot_place(struct hth_tmpfs *t, const struct tmpfs_slot *slot, int *out_dir,
        char name[FILE_NAME_BYTES + sizeof(TMP_SUFFIX)])
{
    if (slot->state == TMPFS_HELD) {
        *out_dir = t->pool_fd;
        hth_slot_name(slot->pub.id, name);
        return name;
    }
    if (slot->state != TMPFS_RECEIVED && slot->state != TMPFS_SEALED)
        return NULL;
    *out_dir = slot->dir->fd;
    snprintf(name, FILE_NAME_BYTES + sizeof(TMP_SUFFIX), "%s%s", slot->name,
            slot->state == TMPFS_RECEIVED ? TMP_SUFFIX : "");
    return name;
}

static void give_foreign(struct hth_tmpfs *t, struct tmpfs_slot *slot)
{
    unlinkat(slot->dir->fd, slot->name, 0);
    slot->state = TMPFS_CONDEMNED;
    hth_dir_drop_foreign(t, slot->dir);
    slot->dir = NULL;
    if (!slot->pub.leases)
        hth_slot_forget(t, slot);
}

/* A slot is never truncated: this is the mistake, for the test that must notice it. */
static void truncate_for_test(struct tmpfs_slot *slot)
{
    if (!ftruncate(slot->pub.fd, 0))
        slot->made = ftruncate(slot->pub.fd, (off_t)slot->pub.capacity) ? slot->made : 0;
}

void hth_pool_give(struct hth_store *s, struct hth_slot *pub)
{
    char from[FILE_NAME_BYTES + sizeof(TMP_SUFFIX)], to[FILE_NAME_BYTES];
    struct hth_tmpfs *t = hth_tmpfs_of(s);
    struct tmpfs_slot *slot = hth_tmpfs_slot(pub);
    int dir;

    if (!slot_place(t, slot, &dir, from))
        return;
    if (slot->foreign) {
        give_foreign(t, slot);
        return;
    }
    hth_slot_name(pub->id, to);
    if (dir != t->pool_fd && renameat2(dir, from, t->pool_fd, to, RENAME_NOREPLACE) &&
            !hth_broken_look(t, slot, NULL)) {
        hth_say(&t->opts.log, HEARTH_LOG_ERROR, "slot-lost",
                "%s: %s does not go back to the pool and is not used again: %s", t->path, from,
                strerrordesc_np(errno));
        slot->state = TMPFS_LOST;
        return;
    }
    slot->half = slot->state == TMPFS_RECEIVED ? slot->dir->save : (struct hth_save_id){ 0 };
    slot->dir = NULL;
    hth_slot_settle(t, slot);
    if (t->opts.test_truncate)
        truncate_for_test(slot);
}

void hth_pool_abandon(struct hth_store *s, struct hth_slot *pub)
{
    hth_tmpfs_slot(pub)->orphan = ORPHAN_SHARES;
    hth_pool_give(s, pub);
}

static void count_entry(void *arg, const char *name)
{
    (void)name;
    ++*(unsigned *)arg;
}

static void evidence_name(const struct tmpfs_slot *slot, const char *why, char out[FILE_NAME_BYTES])
{
    size_t len;

    hth_slot_name(slot->pub.id, out);
    len = strlen(out);
    out[len++] = '-';
    for (size_t i = 0; why && why[i] && i < WHY_BYTES; i++) {
        char c = why[i];
        int plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                    c == '.' || c == '_';
        out[len++] = plain ? c : '-';
    }
    out[len] = '\0';
}

/* Its file is no slot any more. The file of a sealed object is put aside as evidence, if there is
 * room for it; any other is removed. */
static void condemn_broken(struct hth_tmpfs *t, struct tmpfs_slot *slot, const char *why)
{
    char from[FILE_NAME_BYTES + sizeof(TMP_SUFFIX)], to[FILE_NAME_BYTES];
    uint64_t capacity = slot->pub.capacity;
    struct tmpfs_slot *fresh;
    struct hearth_error err;
    unsigned there = 0;
    struct stat st;
    int dir = t->pool_fd, ours;

    evidence_name(slot, why, to);
    if (!slot_place(t, slot, &dir, from))
        hth_slot_name(slot->pub.id, from);
    ours = !fstatat(dir, from, &st, AT_SYMLINK_NOFOLLOW) && st.st_ino == slot->pub.id;
    if (ours && (slot->state != TMPFS_SEALED || hth_sys_each(t->evidence_fd, count_entry, &there) ||
                        there >= HTH_EVIDENCE_MAX ||
                        renameat2(dir, from, t->evidence_fd, to, RENAME_NOREPLACE)))
        unlinkat(dir, from, 0);
    slot->dir = NULL;
    slot->state = TMPFS_CONDEMNED;
    if (!slot->pub.leases)
        hth_slot_forget(t, slot);
    if (hth_pool_promise(t, capacity, 0, &err) || hth_slot_new(t, capacity, &fresh, &err))
        hth_say(&t->opts.log, HEARTH_LOG_WARN, "slot-lost", "no slot takes its place: %s",
                err.text);
}

/* The new slot comes first: putting one aside must not make the pool smaller. */
void hth_pool_condemn(struct hth_store *s, struct hth_slot *pub, const char *why)
{
    char from[FILE_NAME_BYTES + sizeof(TMP_SUFFIX)], to[FILE_NAME_BYTES];
    struct hth_tmpfs *t = hth_tmpfs_of(s);
    struct tmpfs_slot *slot = hth_tmpfs_slot(pub), *fresh = NULL;
    unsigned there = 0;
    int dir;

    if (slot->broken) {
        condemn_broken(t, slot, why);
        return;
    }
    if (!slot_place(t, slot, &dir, from))
        return;
    evidence_name(slot, why, to);
    if (slot->foreign || hth_sys_each(t->evidence_fd, count_entry, &there) ||
            there >= HTH_EVIDENCE_MAX || hth_pool_promise(t, pub->capacity, 0, NULL) ||
            hth_slot_new(t, pub->capacity, &fresh, NULL) ||
            renameat2(dir, from, t->evidence_fd, to, RENAME_NOREPLACE)) {
        if (fresh)
            hth_slot_drop(t, fresh);
        hth_pool_give(s, pub);
        return;
    }
    hth_say(&t->opts.log, HEARTH_LOG_WARN, "evidence", "%s: %s was put aside as %s", t->path, from,
            to);
    slot->dir = NULL;
    slot->state = TMPFS_CONDEMNED;
    if (!pub->leases)
        hth_slot_forget(t, slot);
}

int hth_pool_soon(struct hth_store *s, uint64_t bytes)
{
    struct hth_tmpfs *t = hth_tmpfs_of(s);

    hth_slots_settle(t);
    if (best_ready(t, bytes, TAKER_ENGINE))
        return 0;
    return pool_awaits(t, bytes) ||
           (t->opts.workers.submit && best_free(t, bytes, TAKER_ENGINE, 0));
}

int hth_pool_ready(struct hth_store *s, uint64_t bytes)
{
    struct hth_tmpfs *t = hth_tmpfs_of(s);

    hth_slots_settle(t);
    return best_ready(t, bytes, TAKER_ENGINE) != NULL;
}

/* Where an object was written, its pages are there, whether our mapping has them or not. */
int hth_pool_cold(struct hth_store *s, uint64_t bytes, uint32_t rank)
{
    struct hth_tmpfs *t = hth_tmpfs_of(s);
    const struct tmpfs_slot *slot;

    hth_slots_settle(t);
    slot = best_ready(t, bytes, rank);
    return slot && slot->taker == TAKER_NONE && hth_back_is_cold(t, slot);
}

uint64_t hth_pool_work(struct hth_store *s, unsigned slots)
{
    struct hth_tmpfs *t = hth_tmpfs_of(s);
    struct hearth_error err = { 0 };
    int rc;

    hth_account_say(t, hth_back_missing(t) + hth_raw_missing(t));
    if (t->opts.workers.submit) {
        hth_back_submit(t, slots);
        return HTH_NEVER;
    }
    for (int making = 1; making >= 0; making--) /* memory for all comes before speed for one */
        for (struct tmpfs_slot *slot = t->slots; slot; slot = slot->next) {
            if (making && slot->made == slot->pub.capacity)
                continue;
            rc = hth_back_piece(t, slot, &err);
            if (rc < 0)
                hth_slot_lost(t, slot, &err);
            if (rc)
                return 0;
        }
    return HTH_NEVER;
}
