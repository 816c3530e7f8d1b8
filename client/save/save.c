/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One save, from its first slot to its last. The rank fills slots that the engine lent it:
 *
 *     begin --slot--> add, add, ... --> [next_object --slot--> add ...] --> commit, or abort
 *                      |  copies now                                          | table records go
 *                      |  records are kept aside                              | behind the data
 *
 *     file  | block (engine) | items, no padding | 0.. | table head (engine) | records | CRCs
 *           0              4096          4096 + data_len   next 4096          +64
 *
 * The CRCs are those that add() made as it copied. Where a caller may write into the object itself,
 * after reserve, stage, data or take, the engine makes them.
 */
#include "save.h"

#include "client/base/args.h"
#include "client/join/join.h"
#include "core/base/bytes.h"
#include "core/base/grow.h"
#include "core/base/options.h"
#include "core/base/opts.h"
#include "seen.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int hth_save_enter(const struct hearth_save *s, struct hearth_error *err)
{
    if (!s)
        return hth_fail(err, HEARTH_EINVAL, 0, "the save is NULL: hearth_save_begin() gives one");
    return hth_enter(s->h, err);
}

int hth_save_not_sealed(const struct hearth_save *s, struct hearth_error *err)
{
    if (!s->closed)
        return HEARTH_OK;
    return hth_fail(err, HEARTH_ESTATE, 0,
            "the save is sealed: hearth_save_put_common() and commit (or abort) alone may follow");
}

static void save_free(void *spare)
{
    struct hearth_save *s = spare;

    hth_seen_close(s->scratch.seen);
    hth_copies_fini(&s->scratch.copies);
    hth_from_list_fini(&s->scratch.from);
    free(s->scratch.items);
    free(s);
}

#define SPARE_RECORDS ((size_t)16 << 20) /* bytes that are kept also if a save needs few of them */

/* Keeps the memory for the next save, unless that is much more than this save has needed. */
static void save_keep(struct hearth_save *s)
{
    struct hearth *h = s->h;
    uint64_t used = HTH_BLOCK;

    for (uint32_t i = 0; i < s->objects; i++)
        used += s->object[i].items_len;
    if (s->scratch.items_room > SPARE_RECORDS && s->scratch.items_room / 4 > used) {
        save_free(s);
        return;
    }
    pthread_mutex_lock(&h->lock);
    if (!h->spare) {
        h->spare_free = save_free;
        h->spare = s;
        s = NULL;
    }
    pthread_mutex_unlock(&h->lock);
    if (s)
        save_free(s);
}

static struct hearth_save *save_make(struct hearth *h)
{
    struct hearth_save *s;
    struct hth_scratch scratch;

    pthread_mutex_lock(&h->lock);
    s = h->spare;
    h->spare = NULL;
    pthread_mutex_unlock(&h->lock);
    if (!s)
        return calloc(1, sizeof(*s));
    scratch = s->scratch;
    *s = (struct hearth_save){ .scratch = scratch };
    hth_seen_clear(s->scratch.seen);
    return s;
}

void hth_save_dispose(struct hearth_save *s)
{
    for (uint32_t i = 0; i < s->objects; i++) {
        struct hth_written *o = &s->object[i];

        free(o->crc);
        if (o->slot)
            hth_slot_put(s->h, o->slot);
        else if (s->h->opts.off)
            munmap(o->base, HTH_BLOCK + o->room);
    }
    hearth_handle_close(s->handle);
    save_keep(s);
}

void hearth_save_abort(struct hearth_save *save)
{
    if (!save || hth_enter(save->h, NULL))
        return;
    if (!save->h->opts.off)
        hth_handle_abort(save->handle);
    hth_from_end(save, 1);
    hth_save_dispose(save);
}

struct hearth_save *hth_save_open(struct hearth *h, uint64_t step)
{
    struct hearth_save *s = save_make(h);

    if (!s || !(s->handle = hth_handle_open(h))) {
        if (s)
            save_free(s);
        return NULL;
    }
    s->h = h;
    s->step = step;
    return s;
}

int hth_save_records(struct hearth_save *s, uint64_t bytes)
{
    unsigned char *more =
            hth_grow(s->scratch.items, &s->scratch.items_room, bytes, HTH_BLOCK, sizeof(*more));

    if (!more)
        return HEARTH_ENOMEM;
    s->scratch.items = more;
    return HEARTH_OK;
}

/* ---- begin ---------------------------------------------------------------------------------- */

static int save_lend_nothing(struct hth_written *o, uint64_t bytes, struct hearth_error *err)
{
    void *p = mmap(NULL, HTH_BLOCK + bytes, PROT_READ | PROT_WRITE,
            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (p == MAP_FAILED)
        return hth_fail(err, HEARTH_ENOMEM, 0, "no address space for %" PRIu64 " bytes", bytes);
    o->base = p;
    return HEARTH_OK;
}

static int save_begin_fill(struct hearth_save *s, struct hth_local_begin *m, uint64_t bytes,
        const struct hearth_begin_opts *o, struct hearth_error *err)
{
    int n, rc;

    if (o->name) {
        if ((rc = hth_object_name_check(o->name, err)))
            return rc;
        n = snprintf(m->name, sizeof(m->name), "%s", o->name);
    } else {
        n = snprintf(m->name, sizeof(m->name), "__%u__%u_src%u.distcp", s->h->opts.rank, s->objects,
                s->h->opts.rank);
    }
    if (n < 0 || n > HTH_NAME_MAX)
        return hth_fail(
                err, HEARTH_EINVAL, 0, "the object's name has more than %d bytes", HTH_NAME_MAX);
    m->step = s->step;
    m->bytes = hth_file_bytes(bytes);
    m->wait_ms = o->wait_ms;
    m->cancel_old = o->cancel_old;
    m->index = s->objects;
    return HEARTH_OK;
}

/* The slot that was lent, mapped; `save`: which it is, as far as it is known. */
static int save_lent(struct hearth_save *s, struct hth_written *w, const struct hth_local_begin *m,
        const struct hth_local_lent *a, uint64_t incarnation, int fd, int ahead,
        struct hearth_error *err)
{
    struct hth_kept_object object = {
        .slot = a->slot, .generation = a->generation, .bytes = m->bytes, .said = !ahead
    };
    const struct hth_slot_lent lent = { a->slot, incarnation, fd };
    int rc = HEARTH_OK;

    memcpy(object.name, m->name, strlen(m->name) + 1);
    if (fd < 0)
        rc = hth_fail(err, HEARTH_EPROTO, 0, HTH_NO_DESCRIPTOR);
    else if (a->capacity < m->bytes)
        rc = hth_fail(err, HEARTH_EPROTO, 0, "the engine lent a slot that is too small");
    else
        rc = hth_slot_get(s->h, &lent, m->bytes, 1, &w->slot, err);
    /* The first object's slot goes back with its save. A further one's does when the next is
     * asked for, by the same number, so nothing is kept of it. */
    if (s->objects ? !rc && hth_handle_more(s->handle, &object)
                   : hth_handle_lent(s->handle, a->head.token, incarnation, a->save, s->step,
                             &object, ahead) &&
                             !rc)
        rc = hth_fail(err, HEARTH_ENOMEM, 0, "no memory to begin a save");
    if (rc) {
        hth_slot_put(s->h, w->slot);
        w->slot = NULL;
        return rc;
    }
    w->base = w->slot->base;
    w->slot_id = a->slot;
    w->generation = a->generation;
    return rc;
}

#define ANSWER_MS 1000u /* for the engine's refusal, which says more than that no answer came */

/* What an engine that is there has done before it answers: a slot made, at worst. One that has been
 * silent is not waited for, but as long as the caller asked for. */
static uint64_t save_patience_ms(struct hearth *h, uint64_t bytes, uint32_t wait_ms)
{
    uint64_t making_ms = hth_local_making_ms(bytes) + ANSWER_MS, ms;

    making_ms = making_ms < HTH_REQUEST_MS ? making_ms : HTH_REQUEST_MS;
    pthread_mutex_lock(&h->lock);
    ms = !hth_is_connected(h) ? HTH_REQUEST_MS : hth_is_silent_locked(h) ? 1 : making_ms;
    pthread_mutex_unlock(&h->lock);
    return ms + wait_ms;
}

int hth_save_late(uint32_t wait_ms, int rc, struct hearth_error *err)
{
    if (rc != HEARTH_ETIMEOUT || wait_ms)
        return rc;
    if (err)
        err->code = HEARTH_EBUSY;
    return HEARTH_EBUSY;
}

static int save_ask(struct hearth_save *s, struct hth_written *w, struct hth_local_begin *m,
        struct hearth_error *err)
{
    struct hth_local_lent a;
    struct {
        struct hth_local_begin m;
        unsigned char runs[HTH_RANK_RUNS * HTH_RANK_RUN_BYTES];
    } packet = { .m = *m };
    const struct hth_ranks *ranks = s->objects ? NULL : s->handle->ranks;
    char warning[HTH_LOCAL_WARNING] = "";
    int fd = -1, rc;
    struct hth_ask ask = { .msg = &packet,
        .len = sizeof(*m) + (ranks ? hth_ranks_bytes(ranks) : 0),
        .type = HTH_LOCAL_BEGIN,
        .want = HTH_LOCAL_LENT,
        .handle = s->objects ? s->handle : NULL,
        .fd = -1,
        .again = s->objects == 0,
        .answer = &a,
        .answer_len = sizeof(a),
        .out_fd = &fd,
        .text = warning,
        .text_size = sizeof(warning),
        .wait_ms = save_patience_ms(s->h, m->bytes, m->wait_ms),
        .what = "begin" };

    if (ranks)
        hth_ranks_encode(ranks, packet.runs);
    if ((rc = hth_ask(s->h, &ask, err)))
        return hth_save_late(m->wait_ms, rc, err);
    if (warning[0])
        hth_line_add(&s->h->lines, HEARTH_LOG_WARN, "room", "%s", warning);
    pthread_mutex_lock(&s->h->lock);
    hth_counted_locked(s->h, hth_local_save_to(a.save));
    pthread_mutex_unlock(&s->h->lock);
    rc = save_lent(s, w, m, &a, ask.answered, fd, 0, err);
    if (fd >= 0)
        close(fd);
    return rc;
}

/* Takes the slot that was lent ahead, if there is one of that size; 0: there is none. A caller that
 * may wait for room asks the engine instead: there may be less room than when the slot was lent. */
static int save_take_ahead(struct hearth_save *s, const struct hth_local_begin *m,
        struct hth_local_lent *out, uint64_t *out_incarnation, int *out_fd)
{
    struct hearth *h = s->h;
    int took;

    pthread_mutex_lock(&h->lock);
    took = !m->wait_ms && !m->cancel_old && hth_ahead_take_locked(h, m->bytes, out, out_fd);
    *out_incarnation = hth_incarnation_locked(h);
    out->save = (struct hth_local_save){ 0 };
    if (took && m->attempt)
        out->save = (struct hth_local_save){ h->epoch, h->nonce, m->step, m->attempt, 0 };
    pthread_mutex_unlock(&h->lock);
    return took;
}

/* How many times this rank has begun the step by now; 0: the engine knows. */
static uint32_t save_count(struct hearth_save *s)
{
    uint32_t begun;

    if (s->objects || s->step == HEARTH_STEP_LATER)
        return 0;
    pthread_mutex_lock(&s->h->lock);
    begun = hth_count_locked(s->h, s->step, s->handle->ranks);
    pthread_mutex_unlock(&s->h->lock);
    return begun;
}

/* The rank unmaps slots that the engine has sent LET_GO of before it asks for another one. */
static void save_let_go(struct hearth *h)
{
    pthread_mutex_lock(&h->lock);
    hth_hear_locked(h);
    pthread_mutex_unlock(&h->lock);
    hth_slots_let_go(h);
}

static int save_lend(struct hearth_save *s, struct hth_written *w, uint64_t bytes,
        const struct hearth_begin_opts *o, struct hearth_error *err)
{
    struct hth_local_begin m = { .step = 0 };
    struct hth_local_lent a;
    uint64_t incarnation;
    int fd, rc;

    if ((rc = save_begin_fill(s, &m, bytes, o, err)))
        return rc;
    m.attempt = save_count(s);
    save_let_go(s->h);
    if (s->objects || (!m.attempt && s->step != HEARTH_STEP_LATER) ||
            !save_take_ahead(s, &m, &a, &incarnation, &fd))
        return save_ask(s, w, &m, err);
    rc = save_lent(s, w, &m, &a, incarnation, fd, 1, err);
    close(fd);
    return rc;
}

int hth_save_add_object(struct hearth_save *s, uint64_t bytes, const struct hearth_begin_opts *o,
        struct hearth_error *err)
{
    struct hth_written w = { .room = bytes };
    int rc;

    if (bytes > (uint64_t)INT64_MAX / 2)
        return hth_fail(
                err, HEARTH_ENOSPC, 0, "%" PRIu64 " bytes are more than any store has", bytes);
    rc = s->h->opts.off ? save_lend_nothing(&w, bytes, err) : save_lend(s, &w, bytes, o, err);
    if (rc)
        return rc;
    if (!s->h->opts.off) /* strong, too: the engine compares them when it makes its SHA-256 sums */
        w.crc = calloc(HTH_CHUNKS(bytes) + 1, sizeof(*w.crc));
    w.summed = w.crc != NULL;
    s->object[s->objects++] = w;
    s->has_bytes = 0;
    return HEARTH_OK;
}

static int save_may_begin(struct hearth *h, struct hearth_error *err)
{
    if (h->opts.off || hth_has_recovered(h))
        return HEARTH_OK;
    return hth_fail(err, HEARTH_ESTATE, 0,
            "hearth_recover() was not called since the ranks joined: all ranks call it first, to "
            "agree on where the job goes on");
}

/* The ranks that take part in the save: the caller, and others, which give the same list. */
static int save_ranks(const struct hearth *h, const struct hearth_begin_opts *o,
        struct hth_ranks *out, struct hearth_error *err)
{
    int rc;

    out->runs = 0;
    if (!o->rank_count && !o->ranks)
        return HEARTH_OK;
    if (!o->ranks)
        return hth_fail(
                err, HEARTH_EINVAL, 0, "rank_count is %zu and ranks is NULL", o->rank_count);
    if ((rc = hth_ranks_of(out, o->ranks, o->rank_count, h->opts.world, err)))
        return rc;
    if (!hth_ranks_have(out, h->opts.rank))
        return hth_fail(err, HEARTH_EINVAL, 0,
                "rank %u does not take part in this save, so it must make no call for it",
                h->opts.rank);
    return HEARTH_OK;
}

int hearth_save_begin(struct hearth *h, uint64_t step, uint64_t bytes,
        const struct hearth_begin_opts *opts, struct hearth_save **out_save,
        struct hearth_error *err)
{
    struct hearth_begin_opts o;
    struct hth_ranks ranks;
    struct hearth_save *s;
    int rc;

    if ((rc = hth_enter(h, err)) || (rc = hth_opts_copy(&o, sizeof(o), opts, err)))
        return rc;
    if ((rc = hth_step_check(step, HEARTH_STEP_LATER, err)))
        return hth_while(err, rc, "begin a save");
    if (!out_save)
        return hth_fail(err, HEARTH_EINVAL, 0, "out_save is NULL: there is no place for the save");
    if (o.wait_ms > HTH_DEADLINE_MAX)
        return hth_fail(
                err, HEARTH_EINVAL, 0, "wait_ms is %u: at most %u", o.wait_ms, HTH_DEADLINE_MAX);
    if ((rc = save_may_begin(h, err)))
        return rc;
    if ((rc = save_ranks(h, &o, &ranks, err)))
        return hth_while(err, rc, "begin a save");
    if (!(s = hth_save_open(h, step)) || hth_handle_ranks(s->handle, &ranks)) {
        hearth_save_abort(s);
        return hth_fail(err, HEARTH_ENOMEM, 0, "no memory to begin a save");
    }
    s->wait_ms = o.wait_ms;
    s->stream = o.stream;
    if ((rc = hth_save_add_object(s, bytes, &o, err))) {
        hearth_save_abort(s); /* where it was lent, and is of no use to us */
        if (step == HEARTH_STEP_LATER)
            return hth_while(err, rc, "begin a save");
        return hth_while(err, rc, "begin step %" PRIu64, step);
    }
    *out_save = s;
    return HEARTH_OK;
}

/* ---- further objects ------------------------------------------------------------------------- */

/* The records go where the table will be, and the sums behind them. */
void hth_save_finish_object(struct hearth_save *s, uint32_t index)
{
    struct hth_written *o = &s->object[index];
    uint64_t table = HTH_ALIGN(HTH_BLOCK + o->data_len);
    unsigned char *items = o->base + table + HTH_TABLE_HEAD;

    if (s->h->opts.off)
        return;
    memset(hth_written_end(o), 0, table - HTH_BLOCK - o->data_len);
    if (o->items_len)
        memcpy(items, s->scratch.items, o->items_len);
    for (uint64_t i = 0; o->summed && i < HTH_CHUNKS(o->data_len); i++)
        hth_put32(items + o->items_len + 4 * i, o->crc[i]);
}

int hearth_save_next_object(
        struct hearth_save *save, const char *name, uint64_t bytes, struct hearth_error *err)
{
    struct hearth_begin_opts o = { .name = name };
    int rc;

    if ((rc = hth_save_enter(save, err)) || (rc = hth_save_not_sealed(save, err)))
        return rc;
    if (save->objects == HTH_OBJECTS_MAX)
        return hth_fail(
                err, HEARTH_ENOSPC, 0, "a rank has at most %u objects in a save", HTH_OBJECTS_MAX);
    if ((rc = hth_save_add_object(save, bytes, &o, err)))
        return hth_while(err, rc, "begin a further object");
    hth_save_finish_object(save, save->objects - 2); /* its records are still the ones at hand */
    return HEARTH_OK;
}
