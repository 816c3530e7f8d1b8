/* SPDX-License-Identifier: Apache-2.0 */
/* Which saves count as lost and which do not, and which member's vote counts for which plan. */
#include "rig.h"

#include "core/format/plans.h"

enum { NODES = 3 };

static void begin(void)
{
    rig_open(NODES, 0);
}

TestSuite(votes, .init = begin, .fini = rig_close);

static void say_keep(uint32_t node, const struct hth_keep *keep)
{
    rig_tell(node, keep, NULL, 0);
    pair_works(p);
}

/* ---- Loss
 * ------------------------------------------------------------------------------------------ */

/* 1: the last fact that node 0 has sent to all is that the epoch has failed. */
static int has_failed(void)
{
    return p->node[0].kind == HTH_KIND_EPOCH_FAILED;
}

Test(votes, the_newest_save_that_any_keep_record_names_is_the_one_that_is_lost)
{
    struct hth_keep said[NODES] = { rig_keep(5, 3), rig_keep(5, 9), rig_keep(4, 20) };
    const char *why = (char *)p->node[0].fact + 4;

    for (uint32_t first = 0; first < NODES; first++) {
        hth_choice_join(choice);
        p->node[0].kind = 0;
        for (uint32_t n = 0; n < NODES; n++)
            say_keep(n, &said[(first + n) % NODES]);
        cr_assert(has_failed());
        cr_assert(eq(int, (int)hth_get32(p->node[0].fact), HEARTH_ELOST));
        cr_assert(ne(ptr, strstr(why, "step 90 was protected"), NULL), "%s", why);
    }
}

Test(votes, what_one_node_knows_to_be_dropped_is_nobodys_loss)
{
    struct hth_keep kept = rig_keep(5, 9), dropped = { .epoch = 5, .serial = 1, .dropped = 5 };

    for (uint32_t who = 0; who < NODES; who++) {
        hth_choice_join(choice);
        for (uint32_t n = 0; n < NODES; n++)
            say_keep(n, n == who ? &dropped : &kept);
        cr_assert(zero(int, has_failed()), "%s", (char *)p->node[0].fact + 4);
    }
}

Test(votes, the_first_reason_why_an_epoch_has_failed_stays)
{
    hth_choice_fail(choice, HEARTH_EIO, "the first");
    hth_choice_fail(choice, HEARTH_EPEER, "the second");
    cr_assert(has_failed());
    cr_assert(eq(int, (int)hth_get32(p->node[0].fact), HEARTH_EIO));
}

/* A node repeats its parts until it receives a plan, and its next engine sends others. */
Test(votes, a_part_of_an_inventory_that_comes_twice_is_one)
{
    struct hth_keep keep = rig_keep(5, 9);
    struct hth_inventory inv = { .store = 3, .keep = keep };
    size_t len = hth_inventory_bytes(&inv);
    unsigned char *all = malloc(len), *part = malloc(HTH_INVENTORY_HEAD + len);
    static const uint32_t order[] = { 1, 1, 1,
        0 }; /* the first is of another inventory of that node */

    cr_assert(all && part);
    hth_inventory_encode(&inv, all);
    say_keep(0, &keep);
    say_keep(1, &keep);
    for (int i = 0; i < 4; i++) {
        size_t at = order[i] ? len / 2 : 0, bytes = order[i] ? len - len / 2 : len / 2;

        cr_assert(zero(int, has_failed()), "before its last part");
        hth_put32(part, order[i]);
        hth_put32(part + 4, 2);
        hth_put32(part + 8, 0);
        hth_put32(part + 12, i > 0 ? hth_crc32c(all, len) : 0);
        memcpy(part + HTH_INVENTORY_HEAD, all + at, bytes);
        hth_choice_deliver(choice, 2, HTH_KIND_INVENTORY, part, HTH_INVENTORY_HEAD + bytes);
    }
    cr_assert(has_failed(),
            "all inventories are there, and no node has the save that the list names");
    free(part);
    free(all);
}

/* The inventory's bytes have changed on their way. The node sends it again. */
Test(votes, an_inventory_that_cannot_be_read_does_not_count)
{
    const unsigned char wrong[HTH_INVENTORY_HEAD + 4] = { [4] = 1 }; /* one part */
    const struct hth_keep none = { 0 };

    must(hth_restore_start(restore, 60000, NULL));
    say_keep(0, &none);
    say_keep(1, &none);
    hth_choice_deliver(choice, 2, HTH_KIND_INVENTORY, wrong, sizeof(wrong));
    pair_works(p);
    cr_assert(eq(int, pair_logged(p, 0, "inventory-bad"), 1));
    cr_assert(zero(int, hth_restore_has_plan(restore, 1)));
    say_keep(2, &none);
    cr_assert(eq(int, hth_restore_has_plan(restore, 1), 1));
}

/* As the node wrote it, so it would be the same each time. */
Test(votes, an_inventory_that_nobody_can_read_ends_the_recovery_with_its_reason)
{
    unsigned char wrong[HTH_INVENTORY_HEAD + 4] = { [4] = 1 };
    const char *why = (char *)p->node[0].fact + 4;

    hth_put32(wrong + 12, hth_crc32c(wrong + HTH_INVENTORY_HEAD, 4));
    must(hth_restore_start(restore, 60000, NULL));
    hth_choice_deliver(choice, 2, HTH_KIND_INVENTORY, wrong, sizeof(wrong));
    pair_works(p);
    cr_assert(has_failed());
    cr_assert(eq(int, (int)hth_get32(p->node[0].fact), HEARTH_EPROTO));
    cr_assert(ne(ptr, strstr(why, "cannot read the inventory of node"), NULL), "%s", why);
}

/* A manifest of `save` that names one object comes; what the choice should look for: its digest. */
static void give_manifest(
        struct hth_save_id save, uint64_t object, unsigned char digest[HTH_DIGEST], int come)
{
    struct hth_object o = {
        .id = object, .kind = HTH_OBJECT_SHARD, .table_len = 4096, .name = "object"
    };
    struct hth_manifest m = {
        .save = save, .world = NODES, .nodes = NODES, .job = "pair", .objects = 1, .object = &o
    };
    struct hth_blob_id id = { HTH_BLOB_MANIFEST, save, 0 };
    unsigned char *bytes = malloc(hth_manifest_bytes(&m));

    cr_assert(bytes != NULL);
    must(hth_manifest_encode(&m, bytes, NULL));
    if (come)
        hth_choice_manifest(choice, &id, bytes, hth_manifest_bytes(&m));
    else
        memcpy(digest, m.digest, HTH_DIGEST);
    pair_works(p);
    free(bytes);
}

Test(votes, a_save_with_an_object_on_no_node_is_lost_and_its_manifest_is_the_listed_one)
{
    struct hth_keep keep = rig_keep(5, 9);
    struct hth_seen_save seen = { .id = keep.save[0], .has_manifest = 1 };
    const char *why = (char *)p->node[0].fact + 4;

    must(hth_restore_start(restore, 60000, NULL));
    give_manifest(seen.id, 1, seen.manifest, 0);
    for (uint32_t n = 0; n < NODES; n++)
        rig_tell(n, &keep, &seen, 1);
    pair_works(p);
    give_manifest(seen.id, 2, NULL, 1);
    cr_assert(zero(int, has_failed()), "by another manifest: %s", why);
    give_manifest(seen.id, 1, NULL, 1);
    cr_assert(zero(int, hth_restore_has_plan(restore, 1)));
    cr_assert(has_failed());
    cr_assert(ne(ptr, strstr(why, "1 of 1 objects are on no node"), NULL), "%s", why);
}

/* ---- Votes
 * ----------------------------------------------------------------------------------------- */

/* No node holds anything: the plan is to begin with nothing. */
static void gather_nothing(void)
{
    struct hth_keep none = { 0 };

    must(hth_restore_start(restore, 60000, NULL));
    for (uint32_t n = 0; n < NODES; n++)
        say_keep(n, &none);
}

/* 1: the coordinator has sent GO. */
static int vote(uint32_t node, uint32_t serial, uint32_t no)
{
    unsigned char body[8];

    hth_put32(body, serial);
    hth_put32(body + 4, no);
    p->node[0].kind = 0;
    hth_choice_deliver(choice, node, HTH_KIND_VOTE, body, sizeof(body));
    pair_works(p);
    return p->node[0].kind == HTH_KIND_GO;
}

static int all_vote(uint32_t serial)
{
    int go = 0;

    for (uint32_t n = 0; n < NODES; n++)
        go |= vote(n, serial, 0);
    return go;
}

static void rule_out(uint32_t serial, const char *text, size_t len)
{
    unsigned char body[4 + 2 * HTH_RULED_OUT];

    hth_put32(body, serial);
    memcpy(body + 4, text, len);
    hth_restore_deliver(restore, HTH_KIND_RULED_OUT, body, 4 + len);
}

Test(votes, what_was_ruled_out_is_heard_for_the_plan_that_is_carried_out_and_no_other)
{
    static const char why[] = "step 12: no node has a whole .metadata\n";
    char much[HTH_RULED_OUT];

    memset(much, 'x', sizeof(much));
    rule_out(1, why, strlen(why));
    must_say(hth_restore_ruled_out(restore), "");
    gather_nothing();
    rule_out(2, why, strlen(why));
    rule_out(1, much, sizeof(much));
    hth_restore_deliver(restore, HTH_KIND_RULED_OUT, (const unsigned char *)why, 3);
    must_say(hth_restore_ruled_out(restore), "");
    rule_out(1, "\033[2J\377%s\n", 8);
    must_say(hth_restore_ruled_out(restore), "?[2J?%s\n");
    rule_out(1, why, strlen(why));
    must_say(hth_restore_ruled_out(restore), why);
    cr_assert(all_vote(1));
    rule_out(1, "late\n", 5);
    must_say(hth_restore_ruled_out(restore), why);
    hth_restore_join(restore);
    must_say(hth_restore_ruled_out(restore), "");
}

/* The coordinator's engine is killed, and the next one gathers again. */
static void come_back(void)
{
    rig_stop();
    rig_start(0);
    gather_nothing();
}

Test(votes, go_is_said_when_each_node_has_voted)
{
    gather_nothing();
    cr_assert(zero(int, vote(1, 1, 0)));
    cr_assert(zero(int, vote(1, 1, 0)), "twice is once");
    cr_assert(zero(int, vote(2, 1, 0)));
    cr_assert(vote(0, 1, 0));
}

/* A node that still lists the save has not learnt that all ranks dropped it, or has not freed it
 * yet. */
Test(votes, a_save_that_was_dropped_is_not_recovered)
{
    struct hth_keep none = { 0 }, dropped = { .epoch = 5, .serial = 1, .dropped = 5 };
    struct hth_seen_save seen = { .id = { 5, 77, 90, 1 }, .has_manifest = 1 };

    must(hth_restore_start(restore, 60000, NULL));
    for (uint32_t n = 0; n < NODES; n++)
        rig_tell(n, n == 1 ? &dropped : &none, &seen, 1);
    pair_works(p);
    cr_assert(hth_restore_has_plan(restore, 1), "there is nothing to recover");
}

/* Every node lists it, and each of them is a reason to look at it. */
Test(votes, what_was_ruled_out_is_told_to_all_before_go_and_once)
{
    static const char why[] =
            "step 12 is not considered: node node0 has an unfinished marker of it\n";
    const uint32_t *told = p->node[2].heard;
    struct hth_keep none = { 0 };
    struct hth_seen_save seen = { .id = hth_save_of_foreign(12), .unfinished = 1 };
    char text[sizeof(why)] = "";

    must(hth_restore_start(restore, 60000, NULL));
    for (uint32_t n = 0; n < NODES; n++)
        rig_tell(n, &none, &seen, 1);
    pair_works(p);
    cr_assert(all_vote(1));
    cr_assert(pair_until(p, &told[HTH_KIND_GO], 1, 1000));
    cr_assert(eq(u32, told[HTH_KIND_RULED_OUT], 1));
    memcpy(text, p->node[2].fact + 4,
            sizeof(why) - 1); /* of GO behind it are the first four bytes */
    must_say(text, why);
    cr_assert(zero(int, p->node[2].fact[4 + sizeof(why)]), "said once");
    (void)vote(2, 1, 0); /* GO did not arrive */
    cr_assert(pair_until(p, &told[HTH_KIND_RULED_OUT], 2, 1000));
}

Test(votes, no_plan_is_made_before_each_node_has_said_what_it_holds)
{
    struct hth_keep none = { 0 };

    must(hth_restore_start(restore, 60000, NULL));
    say_keep(0, &none);
    say_keep(2, &none);
    hth_choice_tick(choice, p->now_ms);
    cr_assert(zero(int, all_vote(1)));
    say_keep(1, &none);
    cr_assert(all_vote(1));
}

Test(votes, a_vote_for_the_plan_before_is_none)
{
    gather_nothing();
    cr_assert(zero(int, vote(1, 1, 1)));
    cr_assert(zero(int, all_vote(1)));
    cr_assert(all_vote(2));
}

Test(votes, the_vote_of_an_engine_that_died_is_void)
{
    struct hth_keep none = { 0 };

    gather_nothing();
    cr_assert(zero(int, vote(1, 1, 0)));
    say_keep(1, &none); /* its next engine */
    cr_assert(zero(int, vote(0, 1, 0)));
    cr_assert(zero(int, vote(2, 1, 0)));
    cr_assert(vote(1, 1, 0));
}

Test(votes, the_next_engine_counts_its_plans_on)
{
    gather_nothing();
    cr_assert(zero(int, vote(1, 1, 0)));
    come_back();
    cr_assert(zero(int, all_vote(1)));
    cr_assert(all_vote(2));
}

/* The inventory was on its way when the engine that it was sent to was killed. Objects that the
 * member has freed since, by the plan that had come meanwhile, are not there any more. */
Test(votes, what_was_said_to_the_engine_before_is_not_counted)
{
    struct hth_keep none = { 0 };

    gather_nothing();
    rig_void = 0;
    come_back();
    rig_void = 1;
    say_keep(0, &none);
    say_keep(2, &none);
    cr_assert(zero(int, all_vote(2)), "it waits for node 1");
    say_keep(1, &none);
    cr_assert(all_vote(2));
}

Test(votes, plans_of_an_older_epoch_are_not_counted_on)
{
    gather_nothing();
    p->node[0].epoch.epoch++;
    come_back();
    cr_assert(all_vote(1));
}

/* ---- The record of plans
 * --------------------------------------------------------------------------- */

/* It may have had any serial of this epoch: the next one is greater than all that were ever
 * given. */
Test(votes, after_a_record_of_plans_that_is_damaged_no_serial_comes_twice)
{
    uint32_t serial = (uint32_t)(p->node[0].ctx.clock.wall_ms(p) / 1000) + 1;

    gather_nothing();
    must(p->node[0].store->ops->record_put(p->node[0].store, "plans", "damaged", 7, NULL));
    rig_void = 0;
    come_back();
    rig_void = UINT32_MAX;
    for (uint32_t n = 0; n < NODES; n++)
        say_keep(n, &(struct hth_keep){ 0 });
    cr_assert(zero(int, hth_restore_has_plan(restore, 1)));
    cr_assert(eq(int, pair_logged(p, 0, "plans-bad"), 1));
    cr_assert(eq(int, hth_restore_has_plan(restore, serial), 1));
    cr_assert(all_vote(serial));
}

/* For a member whose engine was killed together with the coordinator's. */
Test(votes, the_plan_that_go_was_said_for_is_given_again_by_the_next_engine)
{
    struct hth_ctx *ctx = &p->node[0].ctx;
    struct hth_blob_id id = hth_restore_plan_id(ctx, 1);
    uint32_t *rank_node = p->node[0].epoch.rank_node, before;
    const uint32_t *told = &p->node[1].heard[HTH_KIND_GO];
    size_t len;

    gather_nothing();
    cr_assert(all_vote(1));
    rig_stop();
    pair_node_close(p, 0);
    pair_node_open(p, 0);
    p->node[0].epoch.rank_node = rank_node;
    rig_start(0);
    cr_assert(eq(ptr, (void *)(uintptr_t)hth_blob_find(ctx, &id, &len), NULL));
    must(hth_choice_resume(choice, NULL));
    cr_assert(ne(ptr, (void *)(uintptr_t)hth_blob_find(ctx, &id, &len), NULL));
    cr_assert(eq(int, hth_restore_has_plan(restore, 1), 1));
    before = *told;
    (void)vote(1, 1, 0);
    cr_assert(pair_until(p, told, before + 1, 1000),
            "a node that still votes has missed GO, and is sent it again");
}

static const struct hth_store_ops *real;
static struct hth_store_ops ops;
static size_t room; /* for a record of plans */

static int put_small(struct hth_store *s, const char *name, const void *bytes, size_t len,
        struct hearth_error *err)
{
    if (!strcmp(name, "plans") && len > room)
        return hth_fail(err, HEARTH_ENOSPC, 0, "no room for a record of plans");
    return real->record_put(s, name, bytes, len, err);
}

static void have_room(size_t bytes)
{
    struct hth_store *store = p->node[0].store;

    real = store->ops;
    ops = *real;
    ops.record_put = put_small;
    store->ops = &ops;
    room = bytes;
}

/* A member must not see a serial twice; the plan itself can be made anew. */
Test(votes, where_a_plan_does_not_fit_its_serial_is_on_record_and_counted_on)
{
    struct hth_plans none = { .serial = 1 }, all;
    void *bytes;
    size_t len;

    have_room(hth_plans_bytes(&none));
    gather_nothing();
    cr_assert(eq(int, hth_restore_has_plan(restore, 1), 1));
    must(real->record_get(p->node[0].store, "plans", &bytes, &len, NULL));
    must(hth_plans_decode(&all, bytes, len, NULL));
    cr_assert(eq(u32, all.serial, 1));
    cr_assert(zero(sz, all.plan_len));
    free(bytes);
    come_back();
    cr_assert(all_vote(2));
    p->node[0].store->ops = real;
}

Test(votes, a_plan_of_which_nothing_can_be_put_on_record_is_given_to_nobody)
{
    have_room(0);
    gather_nothing();
    cr_assert(zero(int, hth_restore_has_plan(restore, 1)));
    cr_assert(has_failed());
    cr_assert(eq(int, (int)hth_get32(p->node[0].fact), HEARTH_ENOSPC));
    p->node[0].store->ops = real;
}

/* ---- Who cannot take part, and who says nothing
 * ------------------------------------------------------ */

static void refuse(uint32_t node, int code, const char *text, size_t len)
{
    unsigned char body[4 + HEARTH_ERROR_TEXT + 1] = { 0 };

    hth_put32(body, (uint32_t)code);
    strcpy((char *)body + 4, text);
    hth_choice_deliver(choice, node, HTH_KIND_REFUSED, body, len);
}

Test(votes, a_node_that_cannot_take_part_fails_the_epoch_and_is_told_again)
{
    const char *why = "node node1: its memory cannot be registered",
               *heard = (char *)p->node[0].fact + 4;
    const uint32_t *told = &p->node[1].heard[HTH_KIND_EPOCH_FAILED];

    must(hth_restore_start(restore, 60000, NULL));
    refuse(1, HEARTH_EIO, why, 3);
    refuse(1, HEARTH_EIO, why, 4 + HEARTH_ERROR_TEXT + 1);
    refuse(1, 5, why, 4 + strlen(why));
    cr_assert(zero(int, has_failed()), "none of these is a reason");
    refuse(1, HEARTH_EIO, why, 4 + strlen(why));
    cr_assert(has_failed());
    cr_assert(eq(int, (int)hth_get32(p->node[0].fact), HEARTH_EIO));
    cr_assert(zero(int, strncmp(heard, why, strlen(why))), "%s", heard);
    cr_assert(pair_until(p, told, 1, 1000));
    refuse(1, HEARTH_EIO, why, 4 + strlen(why)); /* it has not received the failure */
    cr_assert(pair_until(p, told, 2, 1000));
}

/* The coordinator has told its members of the failure, and some begin anew already. */
Test(votes, go_is_not_said_in_an_epoch_that_has_failed)
{
    const uint32_t *told = &p->node[1].heard[HTH_KIND_EPOCH_FAILED];

    gather_nothing();
    hth_choice_fail(choice, HEARTH_EPEER, "node2 is gone");
    cr_assert(zero(int, all_vote(1)));
    cr_assert(pair_until(p, told, 2, 1000),
            "a node that still votes is told again that the epoch has failed");
}

static void late_says(const char *who)
{
    const char *heard = (char *)p->node[0].fact + 4;

    hth_choice_late(choice);
    cr_assert(has_failed());
    cr_assert(eq(int, (int)hth_get32(p->node[0].fact), HEARTH_ETIMEOUT));
    cr_assert(eq(sz, p->node[0].len, 4 + strlen(who)));
    cr_assert(zero(int, strncmp(heard, who, strlen(who))), "%s", heard);
}

Test(votes, who_has_not_said_what_it_holds_is_named_at_the_deadline)
{
    must(hth_restore_start(restore, 60000, NULL));
    say_keep(1, &(struct hth_keep){ 0 });
    late_says("no inventory from node node0, node node2");
}

Test(votes, who_has_not_voted_is_named_at_the_deadline)
{
    gather_nothing();
    (void)vote(1, 1, 0);
    late_says("no vote from node node0, node node2");
}

Test(votes, a_coordinator_that_is_not_done_itself_says_so_at_the_deadline)
{
    must(hth_restore_start(restore, 60000, NULL));
    p->work_ms = 5000;
    for (uint32_t n = 0; n < NODES; n++)
        rig_tell(n, &(struct hth_keep){ 0 }, NULL, 0);
    late_says("the plan is still being made by node node0");
}

Test(votes, a_step_that_is_asked_for_and_cannot_be_had_is_an_error_though_nothing_is_lost)
{
    const char *heard = (char *)p->node[0].fact + 4;

    hth_choice_want(choice, (struct hth_save_id){ .step = 7 });
    gather_nothing();
    cr_assert(has_failed());
    cr_assert(eq(int, (int)hth_get32(p->node[0].fact), HEARTH_ENOENT));
    cr_assert(ne(ptr, strstr(heard, "step 7 is asked for and cannot be had; there is: none"), NULL),
            "%s", heard);
}

/* It has the digest of the right one, and came from a node whose memory is not to be trusted. */
Test(votes, a_manifest_that_cannot_be_read_is_asked_for_again)
{
    struct hth_keep keep = rig_keep(5, 9);
    struct hth_object o = {
        .id = 1, .kind = HTH_OBJECT_SHARD, .table_len = 4096, .name = "object"
    };
    struct hth_manifest m = { .save = keep.save[0],
        .world = NODES,
        .nodes = NODES,
        .job = "pair",
        .objects = 1,
        .object = &o };
    struct hth_blob_id id = { HTH_BLOB_MANIFEST, keep.save[0], 0 };
    struct hth_seen_object held = { .id = 1 };
    struct hth_seen_save seen = {
        .id = keep.save[0], .has_manifest = 1, .objects = 1, .object = &held
    };
    unsigned char bytes[HTH_MANIFEST_HEAD + HTH_MANIFEST_OBJECT + HTH_DIGEST];

    must(hth_restore_start(restore, 60000, NULL));
    must(hth_manifest_encode(&m, bytes, NULL));
    memcpy(seen.manifest, m.digest, HTH_DIGEST);
    for (uint32_t n = 0; n < NODES; n++)
        rig_tell(n, &keep, &seen, 1);
    bytes[HTH_MANIFEST_HEAD + 8] ^= 1;
    hth_choice_manifest(choice, &id, bytes, sizeof(bytes));
    pair_works(p);
    cr_assert(eq(int, pair_logged(p, 0, "manifest-bad"), 1));
    cr_assert(zero(int, has_failed()));
    cr_assert(zero(int, hth_restore_has_plan(restore, 1)));
    bytes[HTH_MANIFEST_HEAD + 8] ^= 1;
    hth_choice_manifest(choice, &id, bytes, sizeof(bytes));
    pair_works(p);
    cr_assert(eq(int, hth_restore_has_plan(restore, 1), 1));
}
