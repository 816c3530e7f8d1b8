/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Filling a caller's tensors by key, whatever ranks wrote them and however they were cut. For
 * each wanted box the stored pieces of its key are laid over it, nearest first, and cut out:
 *
 *     this rank's objects -> other objects of this node -> objects of other nodes
 *
 * until nothing is left; each element is copied once. If something is left, the key counts as
 * missing. All pieces are laid out twice: first to see that they are there, and then, if they are,
 * to write them. Local copies are only noted, and run together at the end by several threads; those
 * to GPUs are enqueued before.
 */
#include "foreign.h"
#include "index.h"

#include "client/slots/layout.h"
#include "core/base/grow.h"
#include "part.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct hearth_report {
    size_t count, room;
    struct missing {
        char *key;
        size_t len;
    } * missing;
};

enum pass { PASS_OWN, PASS_NEAR, PASS_FAR, PASSES };

struct wanted {
    const struct hearth_piece *piece;
    uint32_t elem;
    struct hth_box box;         /* in the global tensor */
    int64_t step[HTH_DIMS_MAX]; /* of the caller's memory, elements */
    struct hth_rest rest;
    int found; /* a piece of this key there is */
};

static int wanted_is_empty(const struct wanted *w)
{
    for (uint32_t i = 0; i < w->piece->ndim; i++)
        if (!w->box.shape[i])
            return 1;
    return 0;
}

static int wanted_init(struct wanted *w, const struct hth_laid *laid)
{
    const struct hearth_piece *p = laid->piece;

    w->piece = p;
    w->found = 0;
    w->elem = hearth_dtype_bytes((enum hearth_dtype)p->dtype);
    hth_c_order(p->ndim, p->shape, w->step);
    for (uint32_t i = 0; i < p->ndim; i++) {
        w->box.offset[i] = p->global_offset ? p->global_offset[i] : 0;
        w->box.shape[i] = p->shape[i];
        if (p->strides)
            w->step[i] = p->strides[i];
    }
    return hth_rest_init(&w->rest, p->ndim, &w->box);
}

/* The item as a tensor: a byte string is a vector of uint8. */
struct stored {
    uint32_t dtype, ndim;
    const int64_t *global_shape;
    int64_t bytes;
    struct hth_box box;
};

static void stored_init(struct stored *s, const struct hth_item *item)
{
    int tensor = item->kind == HTH_ITEM_TENSOR;

    s->bytes = (int64_t)item->length;
    s->dtype = tensor ? item->dtype : HEARTH_UINT8;
    s->ndim = tensor ? item->ndim : 1;
    s->global_shape = tensor ? item->global_shape : &s->bytes;
    for (uint32_t i = 0; i < s->ndim; i++) {
        s->box.offset[i] = tensor ? item->global_offset[i] : 0;
        s->box.shape[i] = tensor ? item->shape[i] : s->bytes;
    }
}

static void stored_text(char *out, size_t len, uint32_t dtype, uint32_t ndim, const int64_t *shape)
{
    const char *name = hearth_dtype_name((enum hearth_dtype)dtype);
    int n = snprintf(out, len, "%s [", name ? name : "?");

    for (uint32_t i = 0; i < ndim && n > 0 && (size_t)n < len; i++)
        n += snprintf(out + n, len - (size_t)n, "%s%" PRId64, i ? ", " : "", shape[i]);
    if (n > 0 && (size_t)n < len)
        snprintf(out + n, len - (size_t)n, "]");
}

static int wanted_check(const struct wanted *w, const struct stored *s, struct hearth_error *err)
{
    const struct hearth_piece *p = w->piece;
    const int64_t *global = p->global_shape ? p->global_shape : p->shape;
    char key[HTH_KEY_TEXT], here[120], there[120];

    if (p->dtype == s->dtype && p->ndim == s->ndim &&
            (!p->ndim || !memcmp(global, s->global_shape, p->ndim * sizeof(*global))))
        return HEARTH_OK;
    stored_text(here, sizeof(here), p->dtype, p->ndim, global);
    stored_text(there, sizeof(there), s->dtype, s->ndim, s->global_shape);
    hth_fail(err, HEARTH_EINVAL, 0,
            "key %s is %s in the checkpoint and %s here: dtype and global shape must match",
            hth_key_text(p->key, p->key_len, key), there, here);
    return HEARTH_EINVAL;
}

/* Copy where `meet` (global) lies in both; without a target nothing is written. */
static int wanted_copy(struct hearth_checkpoint *c, const struct wanted *w, const struct stored *s,
        const struct hth_entry *e, const struct hth_box *meet, const struct hth_target *target,
        struct hearth_error *err)
{
    struct hth_target part;
    struct hth_box local;
    int64_t at = 0;

    if (!target)
        return HEARTH_OK;
    for (uint32_t i = 0; i < w->piece->ndim; i++) {
        local.offset[i] = meet->offset[i] - s->box.offset[i];
        local.shape[i] = meet->shape[i];
        at += (meet->offset[i] - w->box.offset[i]) * w->step[i];
    }
    part = *target;
    part.dst = (char *)w->piece->data + at * (int64_t)w->elem;
    part.strides = w->step;
    return hth_read_part(c, e, &local, &part, err);
}

static int wanted_lay_over(struct hearth_checkpoint *c, struct wanted *w, const struct hth_entry *e,
        const struct hth_target *target, struct hearth_error *err)
{
    struct stored s = { .dtype = 0 };
    struct hth_box meet;
    int rc;

    stored_init(&s, &e->item);
    if ((rc = wanted_check(w, &s, err)))
        return rc;
    w->found = 1;
    /* The cut appends the boxes that are left; they do not meet this piece again. */
    for (size_t i = 0; i < w->rest.count;) {
        if (!hth_box_meet(w->piece->ndim, &w->rest.box[i], &s.box, &meet)) {
            i++;
            continue;
        }
        if ((rc = wanted_copy(c, w, &s, e, &meet, target, err)))
            return rc;
        if (hth_rest_cut(&w->rest, i, &meet))
            return hth_fail(err, HEARTH_ENOMEM, 0,
                    "one tensor falls into too many stored pieces, or there is no memory");
    }
    return HEARTH_OK;
}

static enum pass load_pass_of(const struct hearth_checkpoint *c, const struct hth_entry *e)
{
    if (e->source < c->own)
        return PASS_OWN;
    return c->source[e->source].local ? PASS_NEAR : PASS_FAR;
}

static int wanted_is_done(const struct wanted *w)
{
    return w->found && (!w->rest.count || wanted_is_empty(w));
}

static int load_one(struct hearth_checkpoint *c, struct wanted *w, const struct hth_target *target,
        struct hearth_error *err)
{
    int rc = HEARTH_OK;

    for (int pass = PASS_OWN; pass < PASSES && !wanted_is_done(w) && !rc; pass++) {
        const struct hth_entry *e = NULL;

        if ((rc = hth_index(c, pass > PASS_OWN, err)))
            return rc;
        while (!rc && !wanted_is_done(w) &&
                (e = hth_entry_find(c, w->piece->key, w->piece->key_len, e)))
            if ((int)load_pass_of(c, e) == pass)
                rc = wanted_lay_over(c, w, e, target, err);
    }
    return rc;
}

static int report_note(struct hearth_report *r, const struct hearth_piece *p)
{
    struct missing *missing;
    char *key;

    missing = hth_grow(r->missing, &r->room, r->count + 1, 16, sizeof(*missing));
    if (!missing)
        return HEARTH_ENOMEM;
    r->missing = missing;
    key = malloc(p->key_len + 1);
    if (!key)
        return HEARTH_ENOMEM;
    memcpy(key, p->key, p->key_len);
    key[p->key_len] = '\0';
    r->missing[r->count++] = (struct missing){ key, p->key_len };
    return HEARTH_OK;
}

static int report_fail(const struct hearth_report *r, size_t count, struct hearth_error *err)
{
    char names[11 * HTH_KEY_TEXT] = "", key[HTH_KEY_TEXT];
    size_t n = 0;

    for (size_t i = 0; i < r->count && i < 10; i++)
        n += (size_t)snprintf(names + n, sizeof(names) - n, "%s%s", i ? ", " : "",
                hth_key_text(r->missing[i].key, r->missing[i].len, key));
    return hth_fail(err, HEARTH_ENOENT, 0,
            "%zu of %zu keys are not in the checkpoint, or not all of their boxes: %.360s%s",
            r->count, count, names, r->count > 10 ? ", ..." : "");
}

/* A call: its pieces, and where their copies are noted. */
struct load {
    struct hearth_checkpoint *c;
    const struct hearth_piece *pieces;
    size_t count;
    struct hth_copies list;
    struct hth_to to;
    struct hth_gpu **gpu; /* [count] of each target; NULL: host memory */
};

static int load_where(
        struct load *l, const struct hth_laid *laid, size_t i, struct hearth_error *err)
{
    struct hth_memory m = hth_memory_of(laid->piece);

    return laid->payload ? hth_to_where(&l->to, &m, &l->gpu[i], err) : HEARTH_OK;
}

/* With a report: what is missing is noted there. Without: what is there is written. */
static int load_lay_all(struct load *l, struct hearth_report *report, struct hearth_error *err)
{
    struct hth_target target = { .list = &l->list, .to = &l->to };
    struct wanted w = { 0 };
    struct hth_laid laid;
    int rc;

    laid.header_len = 0;
    for (size_t i = 0; i < l->count; i++) {
        if ((rc = hth_piece_at(&laid, l->pieces, i, 1, err)) ||
                (report && (rc = load_where(l, &laid, i, err))))
            return rc;
        if (wanted_init(&w, &laid))
            return hth_fail(err, HEARTH_ENOMEM, 0, "no memory to load");
        target.gpu = l->gpu[i];
        rc = load_one(l->c, &w, report ? NULL : &target, err);
        if (!rc && report && !wanted_is_done(&w) && report_note(report, laid.piece))
            rc = hth_fail(err, HEARTH_ENOMEM, 0, "no memory for the list of missing keys");
        hth_rest_fini(&w.rest);
        if (rc)
            return rc;
    }
    return HEARTH_OK;
}

static int load_write(struct load *l, struct hearth_error *err)
{
    int rc = load_lay_all(l, NULL, err);

    if (!rc)
        rc = hth_to_run(&l->to, err);
    if (!rc)
        hth_crew_run(l->c->h->crew, &l->list);
    hth_copies_fini(&l->list);
    rc = hth_to_end(&l->to, rc, err);
    return rc ? rc : hth_sources_same(l->c, err);
}

static int load_all(struct hearth_checkpoint *c, const struct hearth_piece *pieces, size_t count,
        uint32_t flags, struct hearth_report *report, struct hearth_error *err)
{
    struct load l = { .c = c, .pieces = pieces, .count = count };
    int rc;

    if (!(l.gpu = calloc(count + 1, sizeof(struct hth_gpu *))))
        return hth_fail(err, HEARTH_ENOMEM, 0, "no memory to load");
    hth_to_begin(&l.to, c);
    rc = load_lay_all(&l, report, err);
    if (!rc && report->count && !(flags & HEARTH_LOAD_PARTIAL))
        rc = report_fail(report, count, err);
    if (!rc)
        rc = load_write(&l, err);
    free(l.gpu);
    return rc;
}

int hearth_load(struct hearth_checkpoint *ckpt, const struct hearth_piece *pieces, size_t count,
        uint32_t flags, struct hearth_report **out_report, struct hearth_error *err)
{
    struct hearth_report *report;
    int rc;

    if (!ckpt || (count && !pieces))
        return hth_fail(err, HEARTH_EINVAL, 0, "the checkpoint or the pieces are NULL");
    if ((rc = hth_enter(ckpt->h, err)))
        return rc;
    if (flags & ~HEARTH_LOAD_PARTIAL)
        return hth_fail(
                err, HEARTH_EUNSUPPORTED, 0, "flags 0x%x are newer than this library", flags);
    report = calloc(1, sizeof(*report));
    if (!report)
        return hth_fail(err, HEARTH_ENOMEM, 0, "no memory for a report");
    rc = load_all(ckpt, pieces, count, flags, report, err);
    if (out_report && !rc) {
        *out_report = report;
        report = NULL;
    }
    hearth_report_close(report);
    return rc ? hth_while(err, rc, "load from step %" PRIu64, ckpt->save.step) : HEARTH_OK;
}

size_t hearth_report_missing(const struct hearth_report *report)
{
    return report ? report->count : 0;
}

const void *hearth_report_key(const struct hearth_report *report, size_t index, size_t *out_len)
{
    if (!report || index >= report->count)
        return NULL;
    if (out_len)
        *out_len = report->missing[index].len;
    return report->missing[index].key;
}

void hearth_report_close(struct hearth_report *report)
{
    if (!report)
        return;
    for (size_t i = 0; i < report->count; i++)
        free(report->missing[i].key);
    free(report->missing);
    free(report);
}
