/* SPDX-License-Identifier: Apache-2.0 */
/* A member and the heads of its epoch's log: which it takes, and what is on record by then. */
#include "check.h"
#include "pair.h"
#include "store_mem.h"

#include "core/format/head.h"
#include "core/format/places.h"
#include "replication/commit/commit.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct hth_save_id save = { 7, 77, 5, 1 };
static struct pair *p;
static struct hth_commit *commit;         /* of node 1 */
static unsigned char name[2][HTH_DIGEST]; /* of the first map, and of the next */
static int level, code;

static void on_level(void *none, struct hth_save_id id, uint32_t rank, enum hearth_level to,
        int degraded, int why, const char *text)
{
    (void)none, (void)id, (void)rank, (void)degraded, (void)text;
    level = (int)to;
    code = why;
}

static void engine_start(void)
{
    struct hth_commit_events events = { .on_level = on_level };

    must(hth_commit_open(&p->node[1].ctx, &events, &commit, NULL));
    must(hth_commit_adopt(commit, NULL));
    must(hth_commit_join(commit, NULL));
}

static struct hth_places first_map(void)
{
    struct hth_places m;

    hth_places_first(&m, 7, 77);
    return m;
}

static void begin(void)
{
    static uint32_t rank_node[2] = { 0, 1 };
    struct hth_places m = first_map();
    unsigned char bytes[400];

    alarm(60);
    p = pair_open(2);
    p->node[1].epoch.rank_node = rank_node;
    hth_places_encode(&m, bytes);
    hth_digest(name[0], bytes, hth_places_bytes(&m));
    engine_start();
    hth_commit_go(commit, (struct hth_save_id){ 0 });
}

static void end(void)
{
    hth_commit_close(commit);
    p->node[1].epoch.rank_node = NULL;
    pair_close(p);
}

TestSuite(head, .init = begin, .fini = end);

/* With the first map's forerunner gone on to a second map that says the same as the first. */
static size_t map_make(unsigned char *out)
{
    struct hth_places m = first_map();

    memcpy(m.forerunner, name[0], HTH_DIGEST);
    hth_places_encode(&m, out);
    hth_digest(name[1], out, hth_places_bytes(&m));
    return hth_places_bytes(&m);
}

static struct hth_head head_of(uint64_t position)
{
    struct hth_head h = { .epoch = 7, .nonce = 77, .position = position };

    memcpy(h.map, name[0], HTH_DIGEST);
    return h;
}

static void say(const struct hth_head *h, const void *map, size_t map_len)
{
    unsigned char bytes[HTH_HEAD_BYTES + 400];

    hth_head_encode(h, map, map_len, bytes);
    hth_commit_deliver(commit, 0, HTH_KIND_HEAD, bytes, hth_head_bytes(map_len));
}

static void say_cancelled(uint64_t position)
{
    struct hth_head h = head_of(position);

    h.cancels = 1;
    h.cancelled[0] = (struct hth_cancelled){ save, HEARTH_EIO, 1 };
    say(&h, NULL, 0);
}

static uint64_t on_record(void)
{
    return pair_head(p, 1, NULL).position;
}

static void begin_save(void)
{
    struct hth_save_id id;

    must(hth_commit_begin(commit, 1, 5, NULL, &id, NULL));
    cr_assert(zero(int, hth_save_cmp(id, save)));
}

Test(head, a_newer_one_is_on_record_and_carried_out)
{
    begin_save();
    say_cancelled(4);
    cr_assert(eq(u64, on_record(), 4));
    cr_assert(eq(int, code, HEARTH_EFAILED));
}

Test(head, an_older_one_says_nothing)
{
    struct hth_head h = head_of(9);

    say(&h, NULL, 0);
    begin_save();
    say_cancelled(8);
    cr_assert(eq(int, code, 0));
    cr_assert(eq(u64, on_record(), 9));
}

Test(head, an_older_one_says_nothing_after_a_restart_either)
{
    struct hth_head h = head_of(9);

    say(&h, NULL, 0);
    hth_commit_close(commit);
    engine_start();
    hth_commit_go(commit, (struct hth_save_id){ 0 });
    begin_save();
    say_cancelled(8);
    cr_assert(eq(int, code, 0));
    say_cancelled(10);
    cr_assert(eq(int, code, HEARTH_EFAILED));
}

Test(head, what_cannot_be_written_is_not_obeyed)
{
    begin_save();
    hth_store_mem_fail_at(p->node[1].store, 1);
    say_cancelled(4);
    cr_assert(eq(u64, on_record(), 0));
    cr_assert(eq(int, code, 0));
    say_cancelled(4);
    cr_assert(eq(u64, on_record(), 4));
    cr_assert(eq(int, code, HEARTH_EFAILED));
}

Test(head, one_with_a_map_that_is_not_known_waits_for_it)
{
    unsigned char map[400];
    size_t len = map_make(map);
    struct hth_head h = head_of(4);

    memcpy(h.map, name[1], HTH_DIGEST);
    h.mapped = 4;
    begin_save();
    h.cancels = 1;
    h.cancelled[0] = (struct hth_cancelled){ save, HEARTH_EIO, 1 };
    say(&h, NULL, 0);
    cr_assert(eq(int, code, 0));
    cr_assert(eq(u64, on_record(), 0));
    p->now_ms += 1;
    hth_commit_tick(commit); /* and says so */
    cr_assert(pair_until(p, &p->node[0].delivered, 1, 1000));
    cr_assert(eq(u16, p->node[0].kind, HTH_KIND_ALIVE));
    map[0] ^= 1; /* another forerunner: it is a map, and not that one */
    say(&h, map, len);
    cr_assert(eq(u64, on_record(), 0));
    map[0] ^= 1;
    say(&h, map, len);
    cr_assert(eq(u64, on_record(), 4));
    cr_assert(eq(int, code, HEARTH_EFAILED));
}

/* The next map: these notes and moves. */
static size_t map_next(
        unsigned char *out, struct hth_note *note, struct hth_move *move, uint32_t moves)
{
    struct hth_places m = first_map();

    memcpy(m.forerunner, name[0], HTH_DIGEST);
    m.notes = note != NULL;
    m.note = note;
    m.moves = moves;
    m.move = move;
    hth_places_encode(&m, out);
    hth_digest(name[1], out, hth_places_bytes(&m));
    return hth_places_bytes(&m);
}

/* Head 4 with the next map. */
static void say_next(struct hth_note *note, struct hth_move *move, uint32_t moves)
{
    unsigned char map[400];
    size_t len = map_next(map, note, move, moves);
    struct hth_head h = head_of(4);

    memcpy(h.map, name[1], HTH_DIGEST);
    h.mapped = 4;
    say(&h, map, len);
    cr_assert(eq(u64, on_record(), 4));
}

/* Rank 0's copy has moved away from us. */
static struct hth_move away[] = { { 0, 0, 0, 1 } };

static int is_here(uint64_t id)
{
    return pair_held(p, 1, save, id) != NULL;
}

static void copy_of_rank_0(struct hth_save_id id)
{
    pair_seal(p, 1, id, 1, 100, 1)->object.owner = 0;
}

/* And what rank 1 wrote, which is ours; its copy is moved too. */
Test(head, a_copy_of_an_undecided_save_goes_with_its_place_and_what_our_own_ranks_wrote_stays)
{
    struct hth_move both[] = { { 0, 0, 0, 1 }, { 1, 1, 0, 1 } };

    copy_of_rank_0(save);
    pair_seal(p, 1, save, 2, 100, 1)->object.owner = 1;
    say_next(NULL, both, 2);
    cr_assert(eq(int, is_here(1), 0));
    cr_assert(eq(int, is_here(2), 1));
}

Test(head, a_copy_that_comes_after_its_place_has_moved_goes)
{
    say_next(NULL, away, 1);
    copy_of_rank_0(save);
    hth_commit_replica(commit, save, 1);
    cr_assert(eq(int, is_here(1), 0));
}

Test(head, who_is_called_lost_frees_nothing)
{
    struct hth_note lost = { .node = 1, .lost = 1 };

    copy_of_rank_0(save);
    say_next(&lost, away, 1);
    cr_assert(eq(int, is_here(1), 1));
}

Test(head, what_recovery_chose_stays_where_its_place_has_moved)
{
    const struct hth_save_id older = { 6, 66, 9, 1 };

    copy_of_rank_0(older);
    hth_commit_go(commit, older);
    say_next(NULL, away, 1);
    cr_assert(ne(ptr, pair_held(p, 1, older, 1), NULL));
}

Test(head, a_copy_of_a_kept_save_stays_until_the_map_is_settled)
{
    struct hth_head h = head_of(4);
    unsigned char map[400];
    size_t len = map_next(map, NULL, away, 1);

    copy_of_rank_0(save);
    memcpy(h.map, name[1], HTH_DIGEST);
    h.mapped = 4;
    h.decided = save;
    h.keep = (struct hth_keep){ .epoch = 7, .serial = 1, .saves = 1, .save = { save } };
    say(&h, map, len);
    cr_assert(eq(int, is_here(1), 1));
    h.position = 5;
    h.settled = 1;
    say(&h, NULL, 0);
    cr_assert(eq(int, is_here(1), 0));
}

Test(head, what_is_older_than_what_is_protected_goes)
{
    const struct hth_save_id older = { 6, 66, 9, 1 };
    struct hth_head h = head_of(4);

    copy_of_rank_0(older);
    copy_of_rank_0(save);
    h.decided = save;
    h.keep = (struct hth_keep){ .epoch = 7, .serial = 1, .saves = 1, .save = { save } };
    say(&h, NULL, 0);
    cr_assert(eq(int, is_here(1), 1));
    cr_assert(eq(ptr, pair_held(p, 1, older, 1), NULL));
}

Test(head, no_copy_is_taken_of_a_save_that_is_decided)
{
    struct hth_object object = { .id = 1, .kind = HTH_OBJECT_SHARD };

    must(hth_commit_offer_wanted(commit, 0, save, &object));
    say_cancelled(4);
    must_fail(hth_commit_offer_wanted(commit, 0, save, &object), HEARTH_EDENIED);
}

Test(head, one_of_another_epoch_is_not_heard)
{
    struct hth_head h = head_of(4);

    h.nonce = 78;
    say(&h, NULL, 0);
    cr_assert(eq(u64, on_record(), 0));
}

/* Both heads have come, and their maps have not. */
Test(head, of_two_that_are_awaited_the_newer_one_is)
{
    unsigned char map[400], older[400];
    struct hth_note lost = { .node = 0 };
    struct hth_head h = head_of(6), before = head_of(5);
    size_t len;

    (void)map_next(older, &lost, NULL, 0);
    memcpy(before.map, name[1], HTH_DIGEST);
    before.mapped = 5;
    len = map_make(map);
    memcpy(h.map, name[1], HTH_DIGEST);
    h.mapped = 6;
    say(&h, NULL, 0);
    say(&before, NULL, 0);
    hth_commit_map(commit, map, len);
    cr_assert(eq(u64, on_record(), 6));
}

Test(head, a_save_that_is_cancelled_is_not_begun_by_the_next_engine_either)
{
    struct hth_save_id id;

    say_cancelled(4);
    hth_commit_close(commit);
    engine_start();
    hth_commit_go(commit, (struct hth_save_id){ 0 });
    must_fail(hth_commit_begin(commit, 1, 5, NULL, &id, NULL), HEARTH_EFAILED);
    cr_assert(zero(int, hth_save_cmp(id, save)));
}

/* The kept save is of other ranks, so this rank has not passed the step of the older one. */
Test(head, a_save_that_is_older_than_what_is_protected_is_not_begun)
{
    struct hth_head h = head_of(4);
    struct hth_save_id id;

    h.keep = (struct hth_keep){ .epoch = 7, .serial = 1, .saves = 1, .save = { save } };
    say(&h, NULL, 0);
    must_fail(hth_commit_begin(commit, 1, save.step - 1, NULL, &id, NULL), HEARTH_EFAILED);
    cr_assert(eq(u64, id.step, save.step - 1));
}

/* Its record has the head of one map and the bytes of another. */
Test(head, one_beside_a_map_that_it_does_not_name_is_damaged)
{
    struct hth_store *s = p->node[1].store;
    unsigned char map[400], bytes[HTH_HEAD_BYTES + sizeof(map)];
    size_t len = map_make(map);
    struct hth_head h = head_of(4);

    hth_head_encode(&h, map, len, bytes);
    must(s->ops->record_put(s, "head", bytes, hth_head_bytes(len), NULL));
    hth_commit_close(commit);
    engine_start();
    cr_assert(eq(int, hth_commit_knows(commit, &p->node[1].epoch), 0));
    cr_assert(eq(u64, on_record(), 0));
    cr_assert(eq(int, pair_logged(p, 1, "head-bad"), 2),
            "when it was adopted and when it was joined");
}

/* Its map is the first one's of ours. */
Test(head, that_of_another_launch_is_not_gone_on_with)
{
    struct hth_store *s = p->node[1].store;
    struct hth_places m = first_map();
    unsigned char map[400], bytes[HTH_HEAD_BYTES + sizeof(map)];
    struct hth_head h = head_of(9);

    hth_places_encode(&m, map);
    h.nonce++;
    hth_head_encode(&h, map, hth_places_bytes(&m), bytes);
    must(s->ops->record_put(s, "head", bytes, hth_head_bytes(hth_places_bytes(&m)), NULL));
    hth_commit_close(commit);
    engine_start();
    cr_assert(eq(u64, on_record(), 0));
    cr_assert(eq(u64, pair_head(p, 1, NULL).nonce, 77));
}

Test(head, that_of_another_launch_is_none_of_this_one)
{
    struct hth_epoch other = p->node[1].epoch;

    hth_commit_close(commit);
    engine_start();
    other.nonce++;
    cr_assert(eq(int, hth_commit_knows(commit, &other), 0));
}

Test(head, an_epoch_without_its_record_is_not_gone_on_with)
{
    struct hth_store *s = p->node[1].store;

    cr_assert(
            eq(int, hth_commit_knows(commit, &p->node[1].epoch), 0), "there was none at the start");
    hth_commit_close(commit);
    engine_start();
    cr_assert(eq(int, hth_commit_knows(commit, &p->node[1].epoch), 1));
    hth_commit_close(commit);
    must(s->ops->record_put(s, "head", "torn", 4, NULL));
    engine_start();
    cr_assert(eq(int, hth_commit_knows(commit, &p->node[1].epoch), 0));
}
