/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Wishes of users for kept saves: pin, unpin, release, mark bad. The coordinator
 * decides; a head of its log has what came of it, and so frees what was released, on every node:
 *
 *   a node ──WISH──► coordinator: may it be? ──► a head on record ──HEAD──► all
 *     ▲ again until its result                       └──WISH_RESULT──► the node that asked
 */
#include "commit_state.h"

#include "core/base/bytes.h"

#include <stdio.h>
#include <string.h>

#define WISH_BYTES        (16u + SAVE_BYTES)
#define WISH_RESULT_BYTES 12u /* and a text */

void hth_commit_wish(
        struct hth_commit *c, uint64_t number, enum hth_wish wish, struct hth_save_id save)
{
    unsigned char body[WISH_BYTES];

    hth_put64(body, number);
    hth_put32(body + 8, (uint32_t)wish);
    hth_put32(body + 12, 0);
    save_put(body + 16, save);
    hth_tree_up(c->ctx, HTH_KIND_WISH, body, sizeof(body));
}

void wish_result(struct hth_commit *c, const unsigned char *bytes, size_t len)
{
    char text[HEARTH_ERROR_TEXT];

    if (len < WISH_RESULT_BYTES || len - WISH_RESULT_BYTES >= sizeof(text) ||
            !c->events.on_wish_result)
        return;
    memcpy(text, bytes + WISH_RESULT_BYTES, len - WISH_RESULT_BYTES);
    text[len - WISH_RESULT_BYTES] = '\0';
    c->events.on_wish_result(c->events.self, hth_get64(bytes), (int)hth_get32(bytes + 8), text);
}

/* ---- The coordinator ------------------------------------------------------------------------- */

void wishes_receive(struct hth_commit *c, uint32_t origin, const unsigned char *bytes, size_t len)
{
    struct wish a = { .origin = origin };

    if (len != WISH_BYTES || origin >= c->ctx->epoch->nodes || c->coord.wishes == HTH_KEEP_MAX)
        return; /* the member repeats the wish */
    a.number = hth_get64(bytes);
    a.wish = hth_get32(bytes + 8);
    a.save = save_get(bytes + 16);
    for (uint32_t i = 0; i < c->coord.wishes; i++)
        if (c->coord.wish[i].origin == origin && c->coord.wish[i].number == a.number)
            return;
    c->coord.wish[c->coord.wishes++] = a;
    c->coord.look = 1;
}

static void wish_answer(struct hth_commit *c, const struct wish *a, int code, const char *text)
{
    unsigned char body[WISH_RESULT_BYTES + HEARTH_ERROR_TEXT];
    size_t len = strnlen(text, HEARTH_ERROR_TEXT - 1);

    hth_put64(body, a->number);
    hth_put32(body + 8, (uint32_t)code);
    memcpy(body + WISH_RESULT_BYTES, text, len);
    hth_tree_to(c->ctx, a->origin, HTH_KIND_WISH_RESULT, body, WISH_RESULT_BYTES + len);
}

/* Finds a save of the keep list by its id, or, if its epoch is 0, the newest of its step. */
static int wish_find(const struct hth_keep *k, struct hth_save_id save)
{
    if (save.epoch)
        return hth_keep_at(k, save);
    for (uint32_t i = 0; i < k->saves; i++)
        if (k->save[i].step == save.step)
            return (int)i;
    return -1;
}

static int wish_refuse_unknown(const struct hth_keep *k, uint64_t step, struct hearth_error *err)
{
    char there[300] = "none";
    int n = 0;

    for (uint32_t i = 0; i < k->saves && n >= 0 && (size_t)n < sizeof(there); i++)
        n += snprintf(
                there + n, sizeof(there) - (size_t)n, "%s%" PRIu64, i ? ", " : "", k->save[i].step);
    return hth_fail(
            err, HEARTH_ENOENT, 0, "step %" PRIu64 " is not kept; there is: %s", step, there);
}

static int wish_pin(
        const struct hth_commit *c, struct hth_keep *k, int at, struct hearth_error *err)
{
    uint32_t pins = 0;

    for (uint32_t i = 0; i < k->saves; i++)
        pins += (uint32_t)(hth_keep_pinned(k, (int)i) && (int)i != at);
    if (pins + 1 >= c->ctx->opts.keep)
        return hth_fail(err, HEARTH_ESTATE, 0,
                "keep is %" PRIu32 ", and the last of these saves cannot be pinned: new ones need "
                "its place; %s",
                c->ctx->opts.keep,
                pins ? "unpin another one first" : "start the job again with keep = 2 or more");
    k->pinned |= UINT32_C(1) << at;
    return HEARTH_OK;
}

/* The save is good: jobs that recovered it no longer count against it, the job that runs
 * included. */
static void wish_good(struct hth_keep *k, struct hth_save_id save)
{
    hth_keep_mark(k, save, 0);
    if (hth_save_cmp(k->tried, save) == 0)
        hth_keep_end_tries(k);
}

static int wish_do(const struct hth_commit *c, const struct wish *a, struct hth_keep *k,
        struct hearth_error *err)
{
    int at = wish_find(k, a->save);

    if (k->epoch != c->ctx->epoch->epoch)
        return hth_fail(err, HEARTH_ESTATE, 0,
                "no save is PROTECTED in this epoch yet: ask again when one is");
    if (at < 0 && !(a->wish == HTH_WISH_GOOD && a->save.epoch))
        return wish_refuse_unknown(k, a->save.step, err);
    switch ((enum hth_wish)a->wish) {
    case HTH_WISH_PIN:
        return wish_pin(c, k, at, err);
    case HTH_WISH_UNPIN:
        k->pinned &= ~(UINT32_C(1) << at);
        return HEARTH_OK;
    case HTH_WISH_RELEASE:
        if (at == 0)
            return hth_fail(err, HEARTH_ESTATE, 0,
                    "step %" PRIu64
                    " is the newest that is PROTECTED: it stays until a newer one is",
                    k->save[0].step);
        hth_keep_leave(k, at);
        return HEARTH_OK;
    case HTH_WISH_BAD:
        hth_keep_mark(k, k->save[at], 1);
        return HEARTH_OK;
    case HTH_WISH_GOOD:
        wish_good(k, at < 0 ? a->save : k->save[at]);
        return HEARTH_OK;
    }
    return hth_fail(err, HEARTH_EUNSUPPORTED, 0, "wish %" PRIu32 " is of a newer Hearth", a->wish);
}

/* Appends a head if the list has changed. The map stays settled, because no node has to hold more
 * after a wish than before. */
static int wishes_append(struct hth_commit *c, const struct hth_keep *keep)
{
    unsigned char old[HTH_KEEP_BYTES], new[HTH_KEEP_BYTES];
    struct hth_head next = c->head;

    hth_keep_encode(&c->ctx->keep, old);
    hth_keep_encode(keep, new);
    if (memcmp(old, new, sizeof(old)) == 0)
        return HEARTH_OK;
    next.keep = *keep;
    next.keep.serial++;
    return head_append(c, &next, NULL);
}

void wishes_tick(struct hth_commit *c)
{
    struct wish wish[HTH_KEEP_MAX];
    struct hearth_error err[HTH_KEEP_MAX];
    struct hth_keep keep = c->ctx->keep;
    uint32_t count = c->coord.wishes;
    int code[HTH_KEEP_MAX], failed;

    memcpy(wish, c->coord.wish, sizeof(wish));
    c->coord.wishes = 0;
    for (uint32_t i = 0; i < count; i++) {
        err[i].text[0] = '\0';
        code[i] = wish_do(c, &wish[i], &keep, &err[i]);
    }
    failed = count ? wishes_append(c, &keep) : HEARTH_OK;
    for (uint32_t i = 0; i < count; i++)
        wish_answer(c, &wish[i], failed ? failed : code[i],
                failed ? "the coordinator cannot write its record" : err[i].text);
}
