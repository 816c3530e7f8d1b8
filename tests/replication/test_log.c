/* SPDX-License-Identifier: Apache-2.0 */
/* The coordinator and its log: made-up facts of two nodes, and what is on record when a head is told. */
#include "check.h"
#include "pair.h"

#include "core/base/bytes.h"
#include "core/format/head.h"
#include "core/format/holders.h"
#include "replication/commit/commit.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SAVE 32u

static const struct hth_save_id save = { 7, 77, 5, 1 };
static struct pair *p;
static struct hth_commit *commit; /* of node 0 */
static const struct hth_store_ops *real;
static struct hth_store_ops ops; /* the store's, but for these */
static int refuses;              /* heads cannot be written */

static int head_put(struct hth_store *s, const char *name, const void *bytes, size_t len,
        struct hearth_error *err)
{
    if (refuses && !strcmp(name, "head"))
        return hth_fail(err, HEARTH_ENOSPC, 0, "no room for a head");
    return real->record_put(s, name, bytes, len, err);
}

static void on_level(void *none, struct hth_save_id id, uint32_t rank, enum hearth_level level,
        int degraded, int code, const char *text)
{
    (void)none, (void)id, (void)rank, (void)level, (void)degraded, (void)code, (void)text;
}

static void engine_start(void)
{
    struct hth_commit_events events = { .on_level = on_level };

    must(hth_commit_open(&p->node[0].ctx, &events, &commit, NULL));
    must(hth_commit_adopt(commit, NULL));
    must(hth_commit_join(commit, NULL));
    hth_commit_go(commit, (struct hth_save_id){ 0 });
}

static void engine_again(void)
{
    hth_commit_close(commit);
    engine_start();
    hth_commit_resume(commit);
}

static void begin(void)
{
    static uint32_t rank_node[2] = { 0, 1 };

    alarm(60);
    p = pair_open(2);
    p->node[0].epoch.rank_node = rank_node;
    real = p->node[0].store->ops;
    ops = *real;
    ops.record_put = head_put;
    p->node[0].store->ops = &ops;
    refuses = 0;
    engine_start();
}

static void end(void)
{
    hth_commit_close(commit);
    p->node[0].epoch.rank_node = NULL;
    p->node[0].store->ops = real;
    pair_close(p);
}

TestSuite(log, .init = begin, .fini = end);

static void fact(uint32_t origin, uint16_t kind, const void *more, size_t len)
{
    unsigned char body[400] = { 0 };

    hth_put64(body, save.epoch);
    hth_put64(body + 8, save.nonce);
    hth_put64(body + 16, save.step);
    hth_put32(body + 24, save.attempt);
    if (len)
        memcpy(body + SAVE, more, len);
    hth_commit_deliver(commit, origin, kind, body, SAVE + len);
}

static struct hth_head on_record(struct hth_holders *out_map)
{
    struct hth_store *s = p->node[0].store;
    const unsigned char *map;
    struct hth_head h;
    void *bytes;
    size_t len, map_len;

    must(s->ops->record_get(s, "head", &bytes, &len, NULL));
    must(hth_head_decode(&h, &map, &map_len, bytes, len, NULL));
    if (out_map)
        must(hth_holders_decode(out_map, map, map_len, NULL));
    free(bytes);
    return h;
}

static int is_noted_lost(void)
{
    struct hth_holders map;
    const struct hth_note *n;
    int lost;

    (void)on_record(&map);
    n = hth_holders_note(&map, 1);
    lost = n && n->lost;
    hth_holders_fini(&map);
    return lost;
}

/* Heads that were told so far: the coordinator's own node hears them too. */
static uint32_t told(void)
{
    return p->node[0].kind == HTH_KIND_HEAD ? p->node[0].delivered : 0;
}

static void fail_it(void)
{
    unsigned char why[4 + 4] = { 0 };

    hth_put32(why, (uint32_t)HEARTH_EIO);
    memcpy(why + 4, "disk", 4);
    fact(1, HTH_KIND_FAILED, why, sizeof(why));
    hth_commit_tick(commit);
}

static void done_and_held(void)
{
    unsigned char none[16] = { 0 };

    hth_put32(none + 4, 1); /* parts */
    for (uint32_t n = 0; n < 2; n++)
        fact(n, HTH_KIND_DONE, none, sizeof(none));
    hth_commit_tick(commit);
    for (uint32_t n = 0; n < 2; n++)
        fact(n, HTH_KIND_HELD, NULL, 0);
    hth_commit_tick(commit);
}

static void promise(uint32_t origin, const unsigned char map[HTH_DIGEST])
{
    unsigned char body[8 + HTH_DIGEST];

    hth_put64(body, p->node[0].epoch.member[origin].store);
    memcpy(body + 8, map, HTH_DIGEST);
    fact(origin, HTH_KIND_PROMISE, body, sizeof(body));
    hth_commit_tick(commit);
}

Test(log, cancelled_is_on_record_when_it_is_told)
{
    struct hth_head h;

    fail_it();
    h = on_record(NULL);
    cr_assert(eq(u64, h.position, 1));
    cr_assert(eq(u32, h.cancels, 1));
    cr_assert(zero(int, hth_save_cmp(h.cancelled[0].save, save)));
    cr_assert(eq(u32, told(), 1));
}

Test(log, what_cannot_be_written_is_not_told_and_is_tried_again)
{
    refuses = 1;
    fail_it();
    cr_assert(eq(u64, on_record(NULL).position, 0));
    cr_assert(eq(u32, told(), 0));
    cr_assert(ne(ptr, strstr(p->node[0].logged, "head-failed"), NULL));
    refuses = 0;
    p->now_ms += 1000;
    hth_commit_tick(commit);
    cr_assert(eq(u64, on_record(NULL).position, 1));
    cr_assert(ne(u32, told(), 0));
}

Test(log, a_cancelled_save_is_not_protected_by_the_next_engine)
{
    const unsigned char *map;
    struct hth_head h;

    fail_it();
    engine_again();
    h = on_record(NULL);
    map = h.map;
    done_and_held();
    promise(0, map);
    promise(1, map);
    cr_assert(eq(u64, on_record(NULL).position, 1));
    cr_assert(eq(u32, on_record(NULL).keep.saves, 0));
}

Test(log, enough_promises_protect_and_settle)
{
    struct hth_head h = on_record(NULL);

    done_and_held();
    promise(0, h.map);
    cr_assert(eq(u64, on_record(NULL).position, 0));
    promise(1, h.map);
    h = on_record(NULL);
    cr_assert(eq(u64, h.position, 1));
    cr_assert(eq(u32, h.keep.saves, 1));
    cr_assert(zero(int, hth_save_cmp(h.keep.save[0], save)));
    cr_assert(zero(int, hth_save_cmp(h.decided, save)));
    cr_assert(eq(int, h.settled, 1));
}

/* The same who are lost and the same places, and yet another map. */
Test(log, a_promise_under_an_older_map_does_not_count)
{
    struct hth_head first = on_record(NULL), now;

    done_and_held();
    hth_commit_peer_down(commit, 1);
    hth_commit_tick(commit);
    hth_commit_peer_up(commit, 1);
    hth_commit_tick(commit);
    now = on_record(NULL);
    cr_assert(eq(u64, now.position, 2));
    promise(0, now.map);
    promise(1, first.map);
    cr_assert(eq(u32, on_record(NULL).keep.saves, 0));
    promise(1, now.map);
    cr_assert(eq(u32, on_record(NULL).keep.saves, 1));
}

Test(log, a_promise_of_who_is_lost_does_not_count)
{
    struct hth_head h;

    done_and_held();
    hth_commit_peer_down(commit, 1);
    hth_commit_tick(commit);
    h = on_record(NULL);
    promise(0, h.map);
    promise(1, h.map);
    cr_assert(eq(u32, on_record(NULL).keep.saves, 0));
}

Test(log, the_next_engine_knows_who_is_lost_and_goes_on_from_there)
{
    hth_commit_peer_down(commit, 1);
    hth_commit_tick(commit);
    cr_assert(is_noted_lost());
    engine_again();
    cr_assert(eq(u32, p->node[0].ctx.down[1], 1));
    hth_commit_peer_up(commit, 1);
    hth_commit_tick(commit);
    cr_assert(eq(u64, on_record(NULL).position, 2));
    cr_assert(zero(int, is_noted_lost()));
}

Test(log, a_sign_of_life_is_newer_than_what_the_note_quotes)
{
    hth_commit_sign(commit, 1, 4, 10);
    hth_commit_peer_down(commit, 1);
    hth_commit_tick(commit);
    hth_commit_sign(commit, 1, 4, 10);
    hth_commit_sign(commit, 1, 3, 99);
    hth_commit_tick(commit);
    cr_assert(is_noted_lost());
    hth_commit_sign(commit, 1, 4, 11);
    hth_commit_tick(commit);
    cr_assert(zero(int, is_noted_lost()));
    hth_commit_peer_down(commit, 1);
    hth_commit_tick(commit);
    hth_commit_sign(commit, 1, 5, 1); /* its engine's next life */
    hth_commit_tick(commit);
    cr_assert(zero(int, is_noted_lost()));
}

Test(log, a_note_quotes_for_the_next_engine_too)
{
    hth_commit_sign(commit, 1, 4, 10);
    hth_commit_peer_down(commit, 1);
    hth_commit_tick(commit);
    engine_again();
    hth_commit_sign(commit, 1, 4, 9); /* from before, and late */
    hth_commit_tick(commit);
    cr_assert(is_noted_lost());
    hth_commit_sign(commit, 1, 4, 11);
    hth_commit_tick(commit);
    cr_assert(zero(int, is_noted_lost()));
}

Test(log, a_map_begins_with_the_name_of_its_forerunner)
{
    struct hth_head before = on_record(NULL);
    struct hth_holders map;

    for (int i = 0; i < 3; i++) {
        hth_commit_peer_down(commit, 1);
        hth_commit_tick(commit);
        (void)on_record(&map);
        cr_assert(zero(int, memcmp(map.forerunner, before.map, HTH_DIGEST)));
        hth_holders_fini(&map);
        hth_commit_peer_up(commit, 1);
        hth_commit_tick(commit);
        before = on_record(NULL);
    }
}

Test(log, a_decision_forgets_no_name_of_a_newer_save)
{
    struct hth_head h = on_record(NULL);
    struct hth_save_id newer;

    must(hth_commit_begin(commit, 0, 6, &newer, NULL));
    hth_commit_fail(commit, newer, HEARTH_EIO, "no");
    hth_commit_deliver(commit, 0, p->node[0].kind, p->node[0].fact, p->node[0].len);
    done_and_held();
    promise(0, h.map);
    promise(1, h.map);
    h = on_record(NULL);
    cr_assert(eq(u32, h.keep.saves, 1));
    cr_assert(eq(u32, h.cancels, 1));
    cr_assert(zero(int, hth_save_cmp(h.cancelled[0].save, newer)));
}

/* Sixteen names at most, and none that somebody may have promised makes way for one that nobody has. */
Test(log, names_of_cancelled_saves_are_bounded)
{
    struct hth_head h;
    struct hth_save_id id;

    done_and_held();
    fail_it();
    for (uint64_t step = 6; step < 40; step++) {
        must(hth_commit_begin(commit, 0, step, &id, NULL));
        hth_commit_fail(commit, id, HEARTH_EIO, "no");
        hth_commit_deliver(commit, 0, p->node[0].kind, p->node[0].fact, p->node[0].len);
        hth_commit_tick(commit);
    }
    h = on_record(NULL);
    cr_assert(eq(u32, h.cancels, HTH_HEAD_CANCELLED));
    cr_assert(zero(int, hth_save_cmp(h.cancelled[0].save, save)));
    cr_assert(eq(u64, h.cancelled[HTH_HEAD_CANCELLED - 1].save.step, 39));
}
