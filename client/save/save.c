/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One save, from its first slot to its last. The rank fills slots that the engine lent it:
 *
 *     begin --slot--> add, add, ... --> [next_object --slot--> add ...] --> commit, or abort
 *                      |  copies now                                          | table records go
 *                      |  records are kept aside                              | behind the data
 *
 *     file  | block (engine) | items, no padding | 0.. | table head (engine) | records | CRCs (engine)
 *           0              4096          4096 + data_len   next 4096          +64
 */
#include "save.h"

#include "client/base/args.h"
#include "client/join/join.h"
#include "commons.h"
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

void hth_save_dispose(struct hearth_save *s)
{
    for (uint32_t i = 0; i < s->objects; i++) {
        struct hth_written *o = &s->object[i];

        if (o->slot)
            hth_slot_put(s->h, o->slot);
        else if (s->h->opts.off)
            munmap(o->base, HTH_BLOCK + o->room);
    }
    hth_commons_drop(s);
    hth_seen_close(s->seen);
    hearth_handle_close(s->handle);
    free(s->items);
    free(s);
}

void hearth_save_abort(struct hearth_save *save)
{
    struct hth_local_head m;
    struct hth_ask tell = {
        .msg = &m, .len = sizeof(m), .type = HTH_LOCAL_ABORT, .fd = -1, .what = "abort"
    };

    if (!save || hth_enter(save->h, NULL))
        return;
    tell.token = save->token;
    tell.incarnation = save->incarnation;
    if (!save->h->opts.off)
        hth_tell(save->h, &tell, NULL);
    hth_save_dispose(save);
}

struct hearth_save *hth_save_open(struct hearth *h, uint64_t step)
{
    struct hearth_save *s = calloc(1, sizeof(*s));

    if (!s || !(s->handle = hth_handle_open(h))) {
        free(s);
        return NULL;
    }
    s->h = h;
    s->step = step;
    return s;
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

void hth_save_lent(
        struct hearth_save *s, uint64_t token, uint64_t incarnation, struct hth_local_save save)
{
    s->token = token;
    s->incarnation = incarnation;
    hth_handle_lent(s->handle, token, incarnation, save, s->step);
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

static int save_lend(struct hearth_save *s, struct hth_written *w, uint64_t bytes,
        const struct hearth_begin_opts *o, struct hearth_error *err)
{
    struct hth_local_begin m = { .step = 0 };
    struct hth_local_lent a;
    int fd = -1, rc;
    struct hth_ask ask = { .msg = &m,
        .len = sizeof(m),
        .type = HTH_LOCAL_BEGIN,
        .want = HTH_LOCAL_LENT,
        .token = s->token,
        .fd = -1,
        .again = s->objects == 0,
        .incarnation = s->incarnation,
        .answer = &a,
        .answer_len = sizeof(a),
        .out_fd = &fd,
        .wait_ms = o->wait_ms + HTH_REQUEST_MS + (bytes >> 20) * 10,
        .what = "begin" };

    if ((rc = save_begin_fill(s, &m, bytes, o, err)) || (rc = hth_ask(s->h, &ask, err)))
        return rc;
    if (fd < 0)
        rc = hth_fail(err, HEARTH_EPROTO, 0, HTH_NO_DESCRIPTOR);
    else if (a.capacity < m.bytes)
        rc = hth_fail(err, HEARTH_EPROTO, 0, "the engine lent a slot that is too small");
    else
        rc = hth_slot_get(s->h, fd, m.bytes, 1, &w->slot, err);
    if (fd >= 0)
        close(fd);
    hth_save_lent(s, a.head.token, ask.answered, a.save);
    if (!w->slot)
        return rc;
    w->base = w->slot->base;
    w->slot_id = a.slot;
    w->generation = a.generation;
    return HEARTH_OK;
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

int hearth_save_begin(struct hearth *h, uint64_t step, uint64_t bytes,
        const struct hearth_begin_opts *opts, struct hearth_save **out_save,
        struct hearth_error *err)
{
    struct hearth_begin_opts o;
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
    if (!(s = hth_save_open(h, step)))
        return hth_fail(err, HEARTH_ENOMEM, 0, "no memory to begin a save");
    s->wait_ms = o.wait_ms;
    if ((rc = hth_save_add_object(s, bytes, &o, err))) {
        if (s->token)
            hearth_save_abort(s); /* lent, and of no use to us */
        else
            hth_save_dispose(s);
        if (step == HEARTH_STEP_LATER)
            return hth_while(err, rc, "begin a save");
        return hth_while(err, rc, "begin step %" PRIu64, step);
    }
    *out_save = s;
    return HEARTH_OK;
}

/* ---- further objects ------------------------------------------------------------------------- */

/* The records go where the table will be. */
void hth_save_finish_object(struct hearth_save *s, uint32_t index)
{
    struct hth_written *o = &s->object[index];
    uint64_t table = HTH_ALIGN(HTH_BLOCK + o->data_len);

    if (s->h->opts.off)
        return;
    memset(hth_written_end(o), 0, table - HTH_BLOCK - o->data_len);
    if (o->items_len)
        memcpy(o->base + table + HTH_TABLE_HEAD, s->items, o->items_len);
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
