/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A save from one process of a rank to another. The bytes stay in the slot, the table's records are
 * put behind them, and the engine remembers how far the object is written. The ticket only names
 * the save, and proves that its holder may take it:
 *
 *     ticket | "HTHTICKT" | u64 token | u64 secret[2] | u64 store | u64 room | u32 wait_ms | zeros
 *            0            8           16              32          40         48            52
 *
 * room has a meaning under the kill switch alone; wait_ms is the one that begin was given.
 */
#include "save.h"

#include "core/base/bytes.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAGIC "HTHTICKT"
#define OFF   UINT64_MAX /* as token: nothing is kept */

_Static_assert(sizeof(struct hearth_ticket) == 512, "struct hearth_ticket is ABI");

static void ticket_put(struct hearth_ticket *t, uint64_t token, const uint64_t secret[2],
        uint64_t store, uint64_t room, uint32_t wait_ms)
{
    memset(t, 0, sizeof(*t));
    memcpy(t->bytes, MAGIC, 8);
    hth_put64(t->bytes + 8, token);
    hth_put64(t->bytes + 16, secret[0]);
    hth_put64(t->bytes + 24, secret[1]);
    hth_put64(t->bytes + 32, store);
    hth_put64(t->bytes + 40, room);
    hth_put32(t->bytes + 48, wait_ms);
}

static uint64_t pass_store(struct hearth *h)
{
    uint64_t store;

    pthread_mutex_lock(&h->lock);
    store = h->attached.store;
    pthread_mutex_unlock(&h->lock);
    return store;
}

static int pass_ask_give(
        struct hearth_save *s, struct hth_local_given *out, struct hearth_error *err)
{
    const struct hth_written *o = hth_save_open_object(s);
    struct hth_local_give m = { .written = { .room = o->room,
                                        .data_len = o->data_len,
                                        .items_len = o->items_len,
                                        .items = o->items,
                                        .has_bytes = (uint32_t)s->has_bytes } };
    struct hth_ask ask = { .msg = &m,
        .len = sizeof(m),
        .type = HTH_LOCAL_GIVE,
        .want = HTH_LOCAL_GIVEN,
        .handle = s->handle,
        .fd = -1,
        .answer = out,
        .answer_len = sizeof(*out),
        .wait_ms = HTH_PROMPT_MS + s->wait_ms,
        .what = "give a save" };

    return hth_ask(s->h, &ask, err);
}

static int pass_give(struct hearth_save *s, struct hearth_ticket *out, struct hearth_error *err)
{
    struct hth_local_given a = { .secret = { 0 } };
    int rc = hth_save_not_sealed(s, err);

    if (rc)
        return rc;
    if (!out)
        return hth_fail(err, HEARTH_EINVAL, 0, "the ticket is NULL");
    if (s->objects > 1)
        return hth_fail(err, HEARTH_ESTATE, 0,
                "the save has %u objects: give it before hearth_save_next_object()", s->objects);
    if (s->early)
        return hth_fail(err, HEARTH_ESTATE, 0,
                "the save has common objects and no step yet: the process that takes it puts them");
    if (s->h->opts.off) {
        ticket_put(out, OFF, a.secret, 0, s->object[0].room, s->wait_ms);
        return HEARTH_OK;
    }
    if ((rc = hth_from_wait(s, HTH_PROMPT_MS + s->wait_ms, err)))
        return rc;
    hth_save_finish_object(s, 0);
    if ((rc = pass_ask_give(s, &a, err)))
        return rc;
    ticket_put(out, a.head.token, a.secret, pass_store(s->h), 0, s->wait_ms);
    return HEARTH_OK;
}

int hearth_save_give(struct hearth_save *save, struct hearth_ticket *out, struct hearth_error *err)
{
    int rc;

    if ((rc = hth_save_enter(save, err)))
        return rc;
    if ((rc = pass_give(save, out, err))) {
        hearth_save_abort(save);
        return hth_while(err, rc, "give a save");
    }
    if (!save->h->opts.off)
        hth_handle_given(save->handle);
    hth_from_end(save, 0);
    hth_save_dispose(save);
    return HEARTH_OK;
}

/* ---- take ----------------------------------------------------------------------------------- */

/* The records, where the giving process put them. Its numbers are not trusted. */
static int pass_take_records(
        struct hearth_save *s, const struct hth_local_taken *a, struct hearth_error *err)
{
    const struct hth_local_written *w = &a->written;
    struct hth_written *o = hth_save_open_object(s);

    if (w->room > (uint64_t)INT64_MAX / 2 || hth_file_bytes(w->room) > o->slot->bytes ||
            w->data_len > w->room || w->items_len > w->room - w->data_len)
        return hth_fail(err, HEARTH_EPROTO, 0, "the slot is smaller than what was written into it");
    o->room = w->room;
    o->data_len = w->data_len;
    o->items_len = w->items_len;
    o->items = w->items;
    s->has_bytes = w->has_bytes != 0;
    if (hth_save_records(s, w->items_len))
        return hth_fail(err, HEARTH_ENOMEM, 0, "no memory for %u items", w->items);
    memcpy(s->scratch.items, o->base + HTH_ALIGN(HTH_BLOCK + w->data_len) + HTH_TABLE_HEAD,
            w->items_len);
    return HEARTH_OK;
}

static int pass_take_ranks(struct hearth_save *s, const struct hth_local_taken *a,
        const unsigned char *runs, struct hearth_error *err)
{
    struct hth_ranks ranks;

    if (a->runs > HTH_RANK_RUNS ||
            hth_ranks_decode(&ranks, runs, (size_t)a->runs * HTH_RANK_RUN_BYTES, err))
        return hth_fail(
                err, HEARTH_EPROTO, 0, "the engine gave a save of a set of ranks that is none");
    if (hth_handle_ranks(s->handle, &ranks))
        return hth_fail(err, HEARTH_ENOMEM, 0, "no memory to take a save");
    return HEARTH_OK;
}

/* Once the engine has answered TAKEN, the save is ours, also if a later step fails here. The handle
 * then has its token, so that the caller can give it back. */
static int pass_take(struct hearth_save *s, const struct hearth_ticket *t, struct hearth_error *err)
{
    struct hth_local_take m = { .secret = { hth_get64(t->bytes + 16), hth_get64(t->bytes + 24) } };
    struct hth_kept_object object = { .said = 1 };
    unsigned char runs[HTH_RANK_RUNS * HTH_RANK_RUN_BYTES + 1] = { 0 };
    struct hth_local_taken a;
    int fd = -1, rc;
    struct hth_ask ask = { .msg = &m,
        .len = sizeof(m),
        .type = HTH_LOCAL_TAKE,
        .want = HTH_LOCAL_TAKEN,
        .token = hth_get64(t->bytes + 8),
        .fd = -1,
        .answer = &a,
        .answer_len = sizeof(a),
        .text = (char *)runs,
        .text_size = sizeof(runs),
        .out_fd = &fd,
        .wait_ms = HTH_PROMPT_MS + s->wait_ms,
        .what = "take a save" };

    if ((rc = hth_ask(s->h, &ask, err)))
        return rc;
    if (a.save.epoch)
        s->step = a.save.step;
    object.slot = a.slot;
    object.generation = a.generation;
    object.bytes = hth_file_bytes(a.written.room);
    rc = pass_take_ranks(s, &a, runs, err);
    if (hth_handle_lent(s->handle, a.head.token, ask.answered, a.save, s->step, &object, 0) && !rc)
        rc = hth_fail(err, HEARTH_ENOMEM, 0, "no memory to take a save");
    if (!rc)
        rc = fd >= 0 ? hth_slot_get(s->h, &(struct hth_slot_lent){ a.slot, ask.answered, fd },
                               HTH_BLOCK, 0, &s->object[0].slot, err)
                     : hth_fail(err, HEARTH_EPROTO, 0, HTH_NO_DESCRIPTOR);
    if (fd >= 0)
        close(fd);
    if (rc)
        return rc;
    s->object[0].base = s->object[0].slot->base;
    s->object[0].slot_id = a.slot;
    s->object[0].generation = a.generation;
    s->objects = 1;
    return pass_take_records(s, &a, err);
}

/* 0: the ticket was made on this node, with the kill switch as it is here. */
static int ticket_check(struct hearth *h, const struct hearth_ticket *t, struct hearth_error *err)
{
    int off = h->opts.off != 0;

    if (!memcmp(t->bytes, MAGIC, 8) && (hth_get64(t->bytes + 8) == OFF) == off &&
            (off || hth_get64(t->bytes + 32) == pass_store(h)))
        return HEARTH_OK;
    return hth_fail(err, HEARTH_ENOENT, 0,
            "this is no ticket of a save on this node: hearth_save_give() makes one");
}

/* Under the kill switch: an empty save of the same size. It has none of the staged bytes. */
static int pass_take_nothing(
        struct hearth_save *s, const struct hearth_ticket *t, struct hearth_error *err)
{
    struct hearth_begin_opts none = { .struct_size = sizeof(none) };

    return hth_save_add_object(s, hth_get64(t->bytes + 40), &none, err);
}

int hearth_save_take(struct hearth *h, const struct hearth_ticket *ticket,
        struct hearth_save **out_save, struct hearth_error *err)
{
    struct hearth_save *s;
    int rc;

    if ((rc = hth_enter(h, err)))
        return rc;
    if (!ticket || !out_save)
        return hth_fail(err, HEARTH_EINVAL, 0, "the ticket or the place for the save is NULL");
    if ((rc = ticket_check(h, ticket, err)))
        return hth_while(err, rc, "take a save");
    if (!(s = hth_save_open(h, HEARTH_STEP_LATER)))
        return hth_fail(err, HEARTH_ENOMEM, 0, "no memory to take a save");
    s->wait_ms = hth_get32(ticket->bytes + 48);
    rc = h->opts.off ? pass_take_nothing(s, ticket, err) : pass_take(s, ticket, err);
    if (rc) {
        hearth_save_abort(s); /* if the engine gave it to us: we cannot use it */
        return hth_while(err, rc, "take a save");
    }
    *out_save = s;
    return HEARTH_OK;
}
