/* SPDX-License-Identifier: Apache-2.0 */
/* The saves that are kept: listed, and what users ask of them. */
#include "client/base/args.h"
#include "client/link/link.h"
#include "core/base/opts.h"
#include "core/local/wish.h"

#include <hearth/keep.h>
#include <string.h>

/* As the engine has it, in the shape that callers know. */
static struct hearth_kept kept_row(const struct hth_local_kept_list *a, uint32_t i)
{
    const struct hth_local_kept *k = &a->kept[i];
    struct hearth_kept row = HEARTH_KEPT_INIT;

    row.id = (struct hearth_save_id){ k->save.epoch, k->save.nonce, k->save.step, k->save.attempt,
        0 };
    row.since_ms = k->since_ms;
    row.level = HEARTH_PROTECTED;
    row.degraded = (k->flags & HTH_KEPT_IS_DEGRADED) != 0;
    row.confirmed = (k->flags & HTH_KEPT_IS_CONFIRMED) != 0;
    row.copies = a->copies;
    row.pinned = (k->flags & HTH_KEPT_IS_PINNED) != 0;
    row.bad = (k->flags & HTH_KEPT_IS_BAD) != 0;
    return row;
}

static int kept_ask(struct hearth *h, struct hth_local_kept_list *out, struct hearth_error *err)
{
    struct hth_local_head m = { 0 };
    struct hth_ask ask = { .msg = &m,
        .len = sizeof(m),
        .type = HTH_LOCAL_KEPT,
        .want = HTH_LOCAL_KEPT_LIST,
        .fd = -1,
        .again = 1,
        .answer = out,
        .answer_len = sizeof(*out),
        .what = "list what is kept" };
    int rc = hth_ask(h, &ask, err);

    if (!rc && out->count > sizeof(out->kept) / sizeof(out->kept[0]))
        return hth_fail(err, HEARTH_EPROTO, 0, "the engine speaks of %u saves", out->count);
    return rc;
}

int hearth_keep_list(struct hearth *h, struct hearth_kept *out, size_t cap, size_t *out_count,
        struct hearth_error *err)
{
    struct hth_local_kept_list a = { .count = 0 };
    struct hearth_kept row;
    int rc;

    if ((rc = hth_enter(h, err)))
        return rc;
    if (!out_count || (cap && !out))
        return hth_fail(err, HEARTH_EINVAL, 0, "out or out_count is NULL");
    if (!h->opts.off && (rc = kept_ask(h, &a, err)))
        return rc;
    for (uint32_t i = 0; i < a.count && i < cap; i++) {
        char *at = (char *)out + i * out->struct_size;

        if (i) /* the size of the first is the size of all */
            memcpy(at, &out->struct_size, sizeof(out->struct_size));
        row = kept_row(&a, i);
        if ((rc = hth_give(at, &row, sizeof(row), err)))
            return rc;
    }
    *out_count = a.count;
    return HEARTH_OK;
}

static int keep_wish(struct hearth *h, enum hth_wish wish, const char *what,
        const struct hearth_save_id *id, struct hearth_error *err)
{
    struct hth_local_wish m = { .wish = (uint32_t)wish };
    struct hth_ask tell = {
        .msg = &m, .len = sizeof(m), .type = HTH_LOCAL_WISH, .fd = -1, .again = 1, .what = what
    };
    int rc;

    if ((rc = hth_enter(h, err)))
        return rc;
    if (!id || id->reserved)
        return hth_fail(err, HEARTH_EINVAL, 0,
                "this is no id of a save: hearth_keep_list() and hearth_checkpoint_id() give one");
    if (h->opts.off)
        return HEARTH_OK;
    m.save = (struct hth_local_save){ id->epoch, id->nonce, id->step, id->attempt, 0 };
    if ((rc = hth_tell(h, &tell, err)))
        return hth_while(err, rc, "%s step %" PRIu64, what, id->step);
    return HEARTH_OK;
}

int hearth_keep_pin(struct hearth *h, const struct hearth_save_id *id, struct hearth_error *err)
{
    return keep_wish(h, HTH_WISH_PIN, "pin", id, err);
}

int hearth_keep_unpin(struct hearth *h, const struct hearth_save_id *id, struct hearth_error *err)
{
    return keep_wish(h, HTH_WISH_UNPIN, "unpin", id, err);
}

int hearth_keep_release(struct hearth *h, const struct hearth_save_id *id, struct hearth_error *err)
{
    return keep_wish(h, HTH_WISH_RELEASE, "release", id, err);
}

int hearth_keep_mark_bad(
        struct hearth *h, const struct hearth_save_id *id, struct hearth_error *err)
{
    return keep_wish(h, HTH_WISH_BAD, "mark as bad", id, err);
}

int hearth_keep_unmark_bad(
        struct hearth *h, const struct hearth_save_id *id, struct hearth_error *err)
{
    return keep_wish(h, HTH_WISH_GOOD, "mark as good", id, err);
}
