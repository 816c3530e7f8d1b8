/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory behind slots. A new slot is an empty file of its full length; in the background, by the
 * workers where there are any, it is taken through two stages, a bounded piece at a time:
 *
 *     made        the pages are ours, no write can end in SIGBUS: huge ones where the kernel has
 *                 them, and fallocate
 *     touched     zeroed and in our page table: the first copy costs what the hundredth does
 *
 * A slot that is not made is never handed out; the second stage is speed only.
 */
#include "tmpfs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

#define ALLOCATE_PIECE (UINT64_C(64) << 20) /* bytes, where a caller waits for the whole slot */
#define WORK_PIECE     (UINT64_C(8) << 20)  /* bytes: 1 to 30 ms of a thread */

static uint64_t back_least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

uint64_t hth_back_missing(const struct hth_tmpfs *t)
{
    uint64_t sum = 0;

    for (const struct tmpfs_slot *s = t->slots; s; s = s->next)
        if (!s->foreign && (s->state == TMPFS_FREE || s->state == TMPFS_GIVEN))
            sum += s->pub.capacity - s->made;
    return sum;
}

/* Where the mount has small pages. The kernel makes a huge page of a range with one page in it,
 * without the 511 others: in a tenth of the time that those take. It makes none of an empty range,
 * so each gets its one page; by pwrite, since a store into a full mount is SIGBUS. What fails here
 * stays as small pages. 0: it cannot. */
static int back_collapse(const struct tmpfs_slot *slot, uint64_t len)
{
    for (uint64_t off = 0; off < len; off += HTH_SLOT_ROUND)
        if (pwrite(slot->pub.fd, "", 1, (off_t)(slot->made + off)) != 1)
            return 1;
    return !madvise(slot->pub.base + slot->made, len, MADV_COLLAPSE) || errno != EINVAL;
}

static int may_collapse(const struct hth_tmpfs *t, const struct tmpfs_slot *slot)
{
    return slot->state == TMPFS_FREE && !slot->pub.user &&
           !t->no_collapse; /* neither bytes nor pins */
}

/* A mount with huge pages gives them to fallocate, which clears nothing: a gigabyte in
 * milliseconds. */
static int to_collapse(const struct hth_tmpfs *t, const struct tmpfs_slot *slot)
{
    return !t->gives_huge && may_collapse(t, slot);
}

/* Bytes that a worker takes at a time. */
static uint64_t work_piece(const struct hth_tmpfs *t, int touching)
{
    return t->gives_huge && !touching ? ALLOCATE_PIECE : WORK_PIECE;
}

/* With huge=advise a fault may make huge pages where fallocate would make small ones. So pages are
 * touched first; fallocate then makes those that are still missing. */
static void back_advise(const struct tmpfs_slot *slot, uint64_t len)
{
    if (!madvise(slot->pub.base + slot->made, len, MADV_HUGEPAGE))
        (void)madvise(slot->pub.base + slot->made, len, MADV_POPULATE_WRITE);
}

static int back_make(
        struct hth_tmpfs *t, struct tmpfs_slot *slot, uint64_t piece, struct hearth_error *err)
{
    uint64_t len = back_least(piece, slot->pub.capacity - slot->made);

    if (to_collapse(t, slot) && !back_collapse(slot, len))
        t->no_collapse = 1;
    if (t->advised)
        back_advise(slot, len);
    if (hth_sys_allocate(t, slot->pub.fd, slot->made, len))
        return hth_sys_fail(t, err, "allocate memory for", "a slot");
    slot->made += len;
    return 0;
}

int hth_back_all(struct hth_tmpfs *t, struct tmpfs_slot *slot, struct hearth_error *err)
{
    int rc = 0;

    while (!rc && slot->made < slot->pub.capacity)
        rc = back_make(t, slot, ALLOCATE_PIECE, err);
    return rc;
}

/* The kernel has no MADV_POPULATE_WRITE: the first copy into each slot is slower. */
static void no_prefault(struct hth_tmpfs *t, int why)
{
    if (!t->no_populate)
        hth_say(&t->opts.log, HEARTH_LOG_WARN, "no-prefault",
                "%s: pages cannot be touched ahead (%s), so first copies will be slow; Linux 5.14 "
                "or newer can",
                t->path, strerrordesc_np(why));
    t->no_populate = 1;
}

/* mends: a mount that gives huge pages had none free, it may be; where all are huge that costs
 * nothing. */
static int back_populate(const struct tmpfs_slot *slot, uint64_t len, int mends)
{
    if (madvise(slot->pub.base + slot->touched, len, MADV_POPULATE_WRITE) && errno != EINTR)
        return errno;
    if (mends)
        (void)madvise(slot->pub.base + slot->touched, len, MADV_COLLAPSE);
    return 0;
}

static int to_mend(const struct hth_tmpfs *t, const struct tmpfs_slot *slot)
{
    return t->gives_huge && may_collapse(t, slot);
}

int hth_back_is_cold(const struct hth_tmpfs *t, const struct tmpfs_slot *slot)
{
    return slot->made == slot->pub.capacity && slot->touched < slot->pub.capacity &&
           !t->opts.no_prefault && !t->no_populate;
}

int hth_back_piece(struct hth_tmpfs *t, struct tmpfs_slot *slot, struct hearth_error *err)
{
    uint64_t len;
    int rc;

    if (slot->foreign || slot->state != TMPFS_FREE)
        return 0;
    if (slot->made < slot->pub.capacity) {
        rc = back_make(t, slot, work_piece(t, 0), err);
        return rc ? rc : 1;
    }
    if (!hth_back_is_cold(t, slot))
        return 0;
    len = back_least(WORK_PIECE, slot->pub.capacity - slot->touched);
    if ((rc = back_populate(slot, len, to_mend(t, slot))))
        no_prefault(t, rc);
    else
        slot->touched += len;
    return 1;
}

/* ---- With workers
 * ------------------------------------------------------------------------------- */

#define TMPFS_PIECES 2u /* side by side; other workers have checksums to do */

/* A part of a slot that a worker backs with memory; the slot is leased meanwhile. hth_back_claim()
 * takes it back from the worker for a caller that needs the slot at once. */
enum tmpfs_piece_state { PIECE_QUEUED, PIECE_RUNNING, PIECE_ENDED, PIECE_CLAIMED };

struct tmpfs_piece {
    struct hth_work work;
    int given; /* until `done`; else all below means nothing */
    int state; /* enum tmpfs_piece_state, atomic */
    struct hth_tmpfs *t;
    struct tmpfs_slot *slot; /* NULL: what became of it is seen */
    uint64_t len;
    int touching;       /* the second stage, else the first */
    int huge;           /* huge pages are tried, or mended ... */
    int no_huge, error; /* ... and there are none; errno */
};

#define piece_of(work_at) ((struct tmpfs_piece *)(void *)(work_at))

static int piece_turns(struct tmpfs_piece *p, int from, int to)
{
    return __atomic_compare_exchange_n(&p->state, &from, to, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
}

static void back_run(struct hth_work *work)
{
    struct tmpfs_piece *p = piece_of(work);

    if (!piece_turns(p, PIECE_QUEUED, PIECE_RUNNING))
        return;
    if (p->touching) {
        p->error = back_populate(p->slot, p->len, p->huge);
    } else {
        p->no_huge = p->huge && !back_collapse(p->slot, p->len);
        if (p->t->advised)
            back_advise(p->slot, p->len);
        p->error = hth_sys_allocate(p->t, p->slot->pub.fd, p->slot->made, p->len) ? errno : 0;
    }
    __atomic_store_n(&p->state, PIECE_ENDED, __ATOMIC_RELEASE);
}

/* Enters what the worker has done. Returns the slot if its memory could not be allocated and it is
 * still free; else NULL. */
static struct tmpfs_slot *piece_see(struct tmpfs_piece *p)
{
    struct tmpfs_slot *slot = p->slot;
    int failed = !p->touching && p->error && slot->state == TMPFS_FREE,
        done = p->state == PIECE_ENDED && !p->error;

    p->slot = NULL;
    slot->busy = 0;
    if (p->no_huge)
        p->t->no_collapse = 1;
    if (p->touching && p->error)
        no_prefault(p->t, p->error);
    slot->touched += done && p->touching ? p->len : 0;
    slot->made += done && !p->touching ? p->len : 0;
    hth_slot_unlease(&p->t->base, &slot->pub); /* with that it may be gone, unless it is free */
    return failed ? slot : NULL;
}

static void back_done(struct hth_work *work)
{
    struct tmpfs_piece *p = piece_of(work);
    struct tmpfs_slot *slot = p->slot ? piece_see(p) : NULL;
    struct hearth_error err;

    p->given = 0;
    if (!slot)
        return;
    errno = p->error;
    (void)hth_sys_fail(p->t, &err, "allocate memory for", "a slot");
    hth_slot_lost(p->t, slot, &err);
}

int hth_back_open(struct hth_tmpfs *t, struct hearth_error *err)
{
    t->piece = calloc(TMPFS_PIECES, sizeof(*t->piece));
    return t->piece ? HEARTH_OK : hth_fail(err, HEARTH_ENOMEM, 0, "no memory for a store");
}

void hth_back_close(struct hth_tmpfs *t)
{
    free(t->piece);
}

void hth_back_claim(struct hth_tmpfs *t, struct tmpfs_slot *slot)
{
    const struct timespec little = { .tv_nsec = 50000 };

    for (unsigned i = 0; i < TMPFS_PIECES; i++) {
        struct tmpfs_piece *p = &t->piece[i];

        if (!p->given || p->slot != slot)
            continue;
        if (!piece_turns(p, PIECE_QUEUED, PIECE_CLAIMED))
            while (__atomic_load_n(&p->state, __ATOMIC_ACQUIRE) != PIECE_ENDED)
                nanosleep(&little, NULL);
        (void)piece_see(p); /* an error comes again, to the caller, who makes the rest */
    }
}

static int to_make(const struct tmpfs_slot *slot)
{
    return !slot->foreign && !slot->broken && !slot->busy && slot->state == TMPFS_FREE &&
           slot->made < slot->pub.capacity;
}

/* A slot that a request waits for is made first, then one of the same size, then any. */
static struct tmpfs_slot *next_to_make(const struct hth_tmpfs *t)
{
    const struct tmpfs_slot *asked = NULL;
    struct tmpfs_slot *any = NULL;

    for (struct tmpfs_slot *s = t->slots; s; s = s->next) {
        if (s->asked && to_make(s))
            return s;
        if (s->asked && s->made < s->pub.capacity)
            asked = s;
    }
    for (struct tmpfs_slot *s = t->slots; s && !any; s = s->next)
        if (to_make(s) && (!asked || s->pub.capacity == asked->pub.capacity))
            any = s;
    return any;
}

static struct tmpfs_slot *next_to_touch(const struct hth_tmpfs *t)
{
    for (struct tmpfs_slot *s = t->slots; s; s = s->next)
        if (!s->foreign && !s->broken && !s->busy && s->state == TMPFS_FREE &&
                hth_back_is_cold(t, s))
            return s;
    return NULL;
}

static void back_give(
        struct hth_tmpfs *t, struct tmpfs_piece *p, struct tmpfs_slot *slot, int touching)
{
    uint64_t from = touching ? slot->touched : slot->made;

    *p = (struct tmpfs_piece){ .work = { .run = back_run, .done = back_done },
        .given = 1,
        .state = PIECE_QUEUED,
        .t = t,
        .slot = slot,
        .len = back_least(work_piece(t, touching), slot->pub.capacity - from),
        .touching = touching,
        .huge = touching ? to_mend(t, slot) : to_collapse(t, slot) };
    slot->busy = 1;
    hth_slot_lease(&t->base, &slot->pub);
    t->opts.workers.submit(t->opts.workers.self, &p->work);
}

static unsigned slots_given(const struct hth_tmpfs *t)
{
    unsigned n = 0;

    for (unsigned i = 0; i < TMPFS_PIECES; i++)
        n += t->piece[i].given && !t->piece[i].touching;
    return n;
}

/* Memory for all comes before speed for one. */
void hth_back_submit(struct hth_tmpfs *t, unsigned slots)
{
    for (unsigned i = 0; i < TMPFS_PIECES; i++) {
        struct tmpfs_slot *slot;

        if (t->piece[i].given)
            continue;
        if (slots_given(t) < slots && (slot = next_to_make(t)))
            back_give(t, &t->piece[i], slot, 0);
        else if (slots == HTH_WORK_ALL && (slot = next_to_touch(t)))
            back_give(t, &t->piece[i], slot, 1);
    }
}
