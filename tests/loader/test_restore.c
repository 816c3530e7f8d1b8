/* SPDX-License-Identifier: Apache-2.0 */
/* How a member carries out a plan. */
#include "plans.h"

TestSuite(restore, .init = begin, .fini = rig_close);

static size_t wanted;

static int no_room(struct hth_store *s, const uint64_t *bytes, size_t count, enum hth_want how,
        struct hearth_error *err)
{
    (void)s, (void)bytes;
    wanted = how == HTH_WANT_FIRST ? count : 0;
    return hth_fail(err, HEARTH_ENOSPC, 0, "1000 bytes do not fit; enlarge the mount");
}

Test(restore, a_node_without_room_votes_no_with_the_reason_before_it_pulls)
{
    struct hth_store *store = p->node[MEMBER].store;
    struct hth_store_ops ops = *store->ops;
    const struct hth_store_ops *whole = store->ops;
    struct pair_node *coordinator = &p->node[0];
    uint64_t pulled = 1;

    ops.want = no_room;
    store->ops = &ops;
    must(hth_restore_start(restore, 10000, NULL));
    give_plan();
    cr_assert(eq(sz, wanted, 1));
    while (coordinator->kind != HTH_KIND_VOTE && pair_step(p))
        continue;
    cr_assert(eq(int, (int)hth_get32(coordinator->fact + 4), HEARTH_ENOSPC));
    cr_assert(memmem(coordinator->fact, coordinator->len, "1000 bytes do not fit; enlarge", 30) !=
              NULL);
    hth_transfer_pulled(&p->node[MEMBER].ctx, &pulled, NULL);
    cr_assert(zero(u64, pulled));
    store->ops = whole;
}

Test(restore, says_what_it_holds_and_its_vote_until_it_hears_of_more)
{
    struct hth_object object = there(id_of[0]);
    uint32_t serial;

    must(hth_restore_start(restore, 60000, NULL));
    run(1000);
    cr_assert(ge(u32, p->node[0].heard[HTH_KIND_INVENTORY], 4));
    give_plan_of(1, &object, 1, 1);
    run(1000);
    cr_assert(ge(u32, votes(), 4));
    cr_assert(zero(int, voted(&serial)));
    cr_assert(eq(u32, serial, 1));
    cr_assert(pair_equal(p, 0, MEMBER, chosen, object.id));
}

Test(restore, the_first_reason_is_the_one_that_is_said)
{
    struct hth_object object[OBJECTS] = { there(id_of[0]), there(id_of[1]) };
    uint32_t serial;

    must(hth_restore_start(restore, 60000, NULL));
    give_plan_of(1, object, OBJECTS, 0); /* no node has them */
    run(1000);
    cr_assert(eq(int, voted(&serial), HEARTH_ELOST));
    cr_assert(memmem(p->node[0].fact, p->node[0].len, object[0].name, strlen(object[0].name)) !=
              NULL);
}

Test(restore, what_is_being_written_is_not_told_as_here)
{
    struct hth_inventory inv;
    uint64_t items_len;

    (void)pair_seal(p, MEMBER, chosen, id_of[0], 4096, 1);
    (void)pair_write(p, MEMBER, chosen, id_of[1], 4096, 1, &items_len);
    must(hth_restore_start(restore, 60000, NULL));
    cr_assert(pair_until(p, &p->node[0].heard[HTH_KIND_INVENTORY], 1, 1000));
    must(hth_inventory_decode(
            &inv, p->node[0].fact + HTH_INVENTORY_HEAD, p->node[0].len - HTH_INVENTORY_HEAD, NULL));
    cr_assert(eq(u32, inv.saves, 1));
    cr_assert(eq(u32, inv.save[0].objects, 1));
    cr_assert(eq(u64, inv.save[0].object[0].id, id_of[0]));
    hth_inventory_fini(&inv);
}

/* The inventory that node 0 has received last. */
static struct hth_inventory told(void)
{
    struct hth_inventory inv;

    cr_assert(eq(u16, p->node[0].kind, HTH_KIND_INVENTORY));
    must(hth_inventory_decode(
            &inv, p->node[0].fact + HTH_INVENTORY_HEAD, p->node[0].len - HTH_INVENTORY_HEAD, NULL));
    return inv;
}

Test(restore, what_is_here_as_the_manifest_has_it_is_told_as_runs_until_lists_are_asked_for)
{
    struct hth_object object[3];
    struct hth_manifest m = { .save = chosen,
        .world = NODES,
        .nodes = NODES,
        .objects = 3,
        .job = "pair",
        .object = object };
    struct hth_inventory inv;
    unsigned char ask[8], *bytes = malloc(hth_manifest_bytes(&m));

    for (uint32_t i = 0; i < 3; i++) /* the third is another one than the manifest's */
        object[i] = pair_seal(p, MEMBER, chosen, id_of[0] + i, 4096, i)->object;
    object[2].digest[0] ^= 1;
    must(hth_manifest_encode(&m, bytes, NULL));
    must(hth_held_set_manifest(&p->node[MEMBER].ctx,
            hth_holdings_find(&p->node[MEMBER].ctx, chosen), bytes, hth_manifest_bytes(&m), NULL));
    must(hth_restore_start(restore, 60000, NULL));
    run(100);
    inv = told();
    cr_assert(eq(u32, inv.save[0].runs, 1));
    cr_assert(eq(u32, inv.save[0].run[0].first, 0));
    cr_assert(eq(u32, inv.save[0].run[0].count, 2));
    cr_assert(eq(u32, inv.save[0].objects, 1));
    cr_assert(eq(u64, inv.save[0].object[0].id, id_of[0] + 2));
    hth_inventory_fini(&inv);
    hth_put32(ask, 0);
    hth_put32(ask + 4, 1);
    hth_restore_deliver(restore, HTH_KIND_ASK_INVENTORY, ask, sizeof(ask));
    run(100);
    inv = told();
    cr_assert(zero(u32, inv.save[0].runs));
    cr_assert(eq(u32, inv.save[0].objects, 3));
    hth_inventory_fini(&inv);
}

static struct {
    unsigned char bytes[64 * HTH_TREE_MAX];
    size_t len;
    uint64_t seen; /* a bit for each part */
    uint32_t got, parts;
} whole;

static void part_comes(struct pair_node *n)
{
    const size_t most = HTH_TREE_MAX - HTH_INVENTORY_HEAD;
    uint32_t part = hth_get32(n->fact);

    if (n->kind != HTH_KIND_INVENTORY || part >= 64 || whole.seen >> part & 1)
        return;
    whole.seen |= UINT64_C(1) << part;
    whole.parts = hth_get32(n->fact + 4);
    whole.got++;
    whole.len += n->len - HTH_INVENTORY_HEAD;
    memcpy(whole.bytes + part * most, n->fact + HTH_INVENTORY_HEAD, n->len - HTH_INVENTORY_HEAD);
}

/* More than the coordinator reads: it would refuse the list of all of them, at every start. */
Test(restore, the_newest_steps_are_told_and_a_sentence_says_that_the_rest_is_left_out)
{
    struct hth_inventory inv;

    for (uint64_t step = 1; step <= HTH_INVENTORY_SAVES + 6; step++)
        cr_assert(hth_holdings_get(&p->node[MEMBER].ctx, hth_save_of_foreign(step)) != NULL);
    p->node[0].on_fact = part_comes;
    must(hth_restore_start(restore, 60000, NULL));
    while (!whole.parts || whole.got < whole.parts)
        cr_assert(eq(int, pair_step(p), 1));
    must(hth_inventory_decode(&inv, whole.bytes, whole.len, NULL));
    cr_assert(eq(u32, inv.saves, HTH_INVENTORY_SAVES));
    cr_assert(eq(u64, inv.save[0].id.step, HTH_INVENTORY_SAVES + 6));
    cr_assert(eq(u64, inv.save[inv.saves - 1].id.step, 7));
    cr_assert(eq(int, pair_logged(p, MEMBER, "steps-left-out"), 1));
    hth_inventory_fini(&inv);
}

/* Nor read: a member digests the files of a container before it reports the container. */
Test(restore, containers_that_a_protected_save_comes_before_are_not_told)
{
    struct hth_ctx *c = &p->node[MEMBER].ctx;

    for (int last = 0; last < 2; last++) {
        struct hth_inventory inv;

        for (uint64_t step = 4; step <= 6; step++)
            cr_assert(hth_holdings_get(c, hth_save_of_foreign(step)) != NULL);
        c->keep = (struct hth_keep){ .saves = 1, .save = { { .epoch = 3, .step = 5 } } };
        c->opts.foreign_last = (uint32_t)last;
        must(hth_restore_start(restore, 60000, NULL));
        run(100);
        inv = told();
        cr_assert(eq(u32, inv.saves, last ? 0 : 1));
        cr_assert(last || inv.save[0].id.step == 6);
        hth_inventory_fini(&inv);
        rig_close();
        begin();
        c = &p->node[MEMBER].ctx;
    }
}

Test(restore, a_plan_frees_what_it_does_not_keep_and_nothing_of_this_epoch)
{
    const struct hth_save_id older = { 4, 77, 7, 1 }, newer = { 7, 77, 1, 1 };
    struct hth_object object = there(id_of[0]);

    (void)pair_seal(p, MEMBER, older, 1, 100, 1);
    (void)pair_seal(p, MEMBER, kept, 1, 100, 1);
    (void)pair_seal(p, MEMBER, newer, 1, 100, 1);
    must(hth_restore_start(restore, 60000, NULL));
    give_plan_of(1, &object, 1, 1);
    cr_assert(eq(ptr, pair_held(p, MEMBER, older, 1), NULL));
    cr_assert(ne(ptr, pair_held(p, MEMBER, kept, 1), NULL));
    cr_assert(ne(ptr, pair_held(p, MEMBER, newer, 1), NULL));
    run(1000); /* what it pulls comes */
}

/* A plan of this object, which node 0 has. */
static void votes_with_the_bytes_of(struct hth_object *object)
{
    must(hth_restore_start(restore, 60000, NULL));
    give_plan_of(1, object, 1, 1);
    run(1000);
    cr_assert(ge(u32, votes(), 1));
    cr_assert(pair_equal(p, 0, MEMBER, chosen, object->id));
}

Test(restore, other_bytes_under_a_name_of_the_plan_are_fetched_anew)
{
    struct hth_object object = there(id_of[0]);

    pair_seal(p, MEMBER, chosen, id_of[0], 4096, 77)->verified = 1;
    votes_with_the_bytes_of(&object);
}

Test(restore, what_is_here_is_read_before_the_vote)
{
    struct hth_object object = there(id_of[0]);
    struct hth_held *held = pair_seal(p, MEMBER, chosen, id_of[0], 4096, id_of[0]);

    held->verified = 0; /* an engine before this one sealed it */
    held->slot->base[HTH_BLOCK + 8] ^= 1;
    votes_with_the_bytes_of(&object);
}

Test(restore, a_plan_waits_for_what_is_still_being_written_of_its_save)
{
    struct hth_object object = there(id_of[0]);
    struct hth_held *held;
    uint64_t items_len;

    held = pair_write(p, MEMBER, chosen, id_of[0], 4096, id_of[0], &items_len);
    must(hth_restore_start(restore, 60000, NULL));
    give_plan_of(1, &object, 1, 1);
    run(1000);
    cr_assert(zero(u32, votes()));
    hth_held_drop(&p->node[MEMBER].ctx, hth_holdings_find(&p->node[MEMBER].ctx, chosen), held);
    run(1000);
    cr_assert(ge(u32, votes(), 1));
    cr_assert(pair_equal(p, 0, MEMBER, chosen, object.id));
}

Test(restore, an_older_plan_says_nothing)
{
    struct hth_object object = there(id_of[0]);
    uint32_t serial;

    must(hth_restore_start(restore, 60000, NULL));
    give_plan_of(2, &object, 1, 1);
    give_plan_of(1, &object, 1, 0);
    run(1000);
    cr_assert(zero(int, voted(&serial)));
    cr_assert(eq(u32, serial, 2));
}

Test(restore, go_of_the_plan_that_was_voted_for_ends_it_and_no_other)
{
    struct hth_object object = there(id_of[0]);

    ended.times = 0;
    must(hth_restore_start(restore, 60000, NULL));
    give_plan_of(2, &object, 1, 1);
    hth_restore_go(restore, 2); /* it has not voted yet */
    run(1000);
    hth_restore_go(restore, 1);
    cr_assert(zero(int, ended.times));
    hth_restore_go(restore, 2);
    cr_assert(eq(int, ended.times, 1));
    cr_assert(zero(int, ended.code));
    cr_assert(eq(u32, ended.info.sources, 1));
    cr_assert(eq(u64, ended.info.step, chosen.step));
    cr_assert(ge(u64, ended.info.pulled_bytes, object.data_len));
    cr_assert(ne(ptr, strstr(ended.info.text, "from node node0"), NULL), "%s", ended.info.text);
}

static int says_that_it_is_weak(uint32_t agreed)
{
    struct hth_object object = there(id_of[0]);

    p->node[MEMBER].ctx.opts.strong = agreed;
    ended.times = 0;
    must(hth_restore_start(restore, 60000, NULL));
    give_plan_of(2, &object, 1, 1);
    run(1000);
    hth_restore_go(restore, 2);
    cr_assert(eq(int, ended.times, 1));
    cr_assert(zero(int, ended.code));
    return pair_logged(p, MEMBER, "integrity");
}

Test(restore, a_save_from_before_integrity_was_strong_is_recovered_and_said_to_be)
{
    cr_assert(eq(int, says_that_it_is_weak(1), 1));
}

Test(restore, a_save_as_strong_as_agreed_is_recovered_without_a_word)
{
    cr_assert(zero(int, says_that_it_is_weak(0)));
}

/* It comes of the vote of the engine before this one. */
Test(restore, go_is_no_success_where_the_plan_could_not_be_carried_out)
{
    struct hth_object object = there(id_of[0]);

    ended.times = 0;
    must(hth_restore_start(restore, 60000, NULL));
    give_plan_of(1, &object, 1, 0);
    run(1000);
    hth_restore_go(restore, 1);
    cr_assert(eq(int, ended.times, 1));
    cr_assert(eq(int, ended.code, HEARTH_ELOST));
}

/* ---- Raw objects
 * ------------------------------------------------------------------------------------- */

#define RAW_TEXT "what all ranks share"

static struct hth_object raw_object(void)
{
    struct hth_object o = {
        .id = 6, .kind = HTH_OBJECT_RAW, .data_len = strlen(RAW_TEXT), .name = ".metadata"
    };

    hth_digest(o.digest, RAW_TEXT, o.data_len);
    return o;
}

/* Node 0's. */
static struct hth_object raw_there(void)
{
    struct hth_ctx *ctx = &p->node[0].ctx;
    struct hth_object o = raw_object();

    must(raw_put(ctx->store, chosen, o.name, RAW_TEXT, o.data_len, NULL));
    hth_held_add(hth_holdings_get(ctx, chosen), &o, HTH_HELD_SEALED, NULL)->verified = 1;
    return o;
}

static int raw_is_here(void)
{
    return raw_is(p->node[MEMBER].store, chosen, ".metadata", RAW_TEXT, strlen(RAW_TEXT));
}

Test(restore, a_raw_object_is_on_every_node_before_it_votes)
{
    struct hth_object object = raw_there();
    uint32_t serial;

    must(hth_restore_start(restore, 60000, NULL));
    give_plan_of(1, &object, 1, 1);
    cr_assert(zero(u32, votes()));
    run(2000);
    cr_assert(zero(int, voted(&serial)));
    cr_assert(raw_is_here());
}

Test(restore, a_raw_object_that_nobody_has_or_that_cannot_be_written_is_a_no)
{
    struct hth_object object = raw_object();
    struct hth_blob_id raw = { HTH_BLOB_RAW, chosen, object.id }, other = raw;
    struct hearth_error full = { .code = HEARTH_ENOSPC, .text = "the disk is full" };
    uint32_t serial, before;

    must(hth_restore_start(restore, 60000, NULL));
    give_plan_of(1, &object, 1, 0);
    run(100);
    cr_assert(eq(int, voted(&serial), HEARTH_ELOST));
    give_plan_of(2, &object, 1, 1); /* which does not give it */
    run(500);
    before = votes();
    other.save = kept;
    hth_restore_raw(restore, &other, &full);
    other = raw;
    other.object++;
    hth_restore_raw(restore, &other, &full);
    run(1000);
    cr_assert(eq(u32, votes(), before), "neither is what the plan waits for");
    hth_restore_raw(restore, &raw, &full);
    run(100);
    cr_assert(eq(int, voted(&serial), HEARTH_ENOSPC));
    cr_assert(eq(u32, serial, 2));
    cr_assert(memmem(p->node[0].fact, p->node[0].len, full.text, strlen(full.text)) != NULL);
}

/* The plan that it came for was replaced meanwhile; the next plan has another vote. */
Test(restore, what_comes_for_an_older_plan_is_no_vote_for_the_next_one)
{
    struct hth_object object = raw_there();
    struct hth_blob_id raw = { HTH_BLOB_RAW, chosen, object.id };
    uint32_t serial;

    must(hth_restore_start(restore, 60000, NULL));
    give_plan_of(1, &object, 1, 1);
    give_plan_of(2, &object, 1, 1);
    hth_restore_raw(restore, &raw, NULL); /* once, though it was asked for twice */
    run(100);
    cr_assert(zero(int, voted(&serial)));
    cr_assert(eq(u32, serial, 2));
}

Test(restore, a_raw_copy_that_is_bad_is_put_aside_before_it_is_told_and_brought_anew)
{
    struct hth_ctx *ctx = &p->node[MEMBER].ctx;
    struct hth_object object = raw_there();
    struct hth_inventory inv;
    uint32_t serial;

    must(raw_put(ctx->store, chosen, object.name, "what no ranks shared", object.data_len, NULL));
    hth_held_add(hth_holdings_get(ctx, chosen), &object, HTH_HELD_SEALED, NULL);
    must(hth_restore_start(restore, 60000, NULL));
    run(100);
    inv = told();
    cr_assert(zero(u32, inv.save[0].objects));
    hth_inventory_fini(&inv);
    cr_assert(eq(int, pair_logged(p, MEMBER, "copy-bad"), 1));
    give_plan_of(1, &object, 1, 1);
    run(2000);
    cr_assert(zero(int, voted(&serial)));
    cr_assert(raw_is_here());
}

/* ---- Slots that are being made
 * ------------------------------------------------------------------------ */

static const struct hth_store_ops *real;
static int busy; /* so many slots more are not there yet */

static int take_later(
        struct hth_store *s, uint64_t bytes, struct hth_slot **out, struct hearth_error *err)
{
    if (busy-- > 0)
        return hth_fail(err, HEARTH_EBUSY, 0, "slots are being made");
    return real->take(s, bytes, out, err);
}

static void slots_are_late(struct hth_store_ops *ops, int times)
{
    struct hth_store *store = p->node[MEMBER].store;

    real = store->ops;
    *ops = *real;
    ops->take = take_later;
    store->ops = ops;
    busy = times;
}

Test(restore, a_slot_that_is_not_there_yet_is_waited_for_and_no_reason_for_a_no)
{
    struct hth_object object = there(id_of[0]);
    struct hth_store_ops ops;
    uint32_t serial;

    slots_are_late(&ops, 4);
    must(hth_restore_start(restore, 60000, NULL));
    give_plan_of(1, &object, 1, 1);
    cr_assert(eq(u32, hth_restore_put_off(restore), 1));
    cr_assert(lt(u64, hth_restore_due_ms(restore), p->now_ms + 100), "it is looked at soon");
    run(5000);
    cr_assert(le(int, busy, 0));
    cr_assert(zero(int, voted(&serial)));
    cr_assert(pair_equal(p, 0, MEMBER, chosen, object.id));
    p->node[MEMBER].store->ops = real;
}

Test(restore, a_save_that_is_removed_while_its_slots_are_made_is_a_no)
{
    struct hth_ctx *ctx = &p->node[MEMBER].ctx;
    struct hth_object object = there(id_of[0]);
    struct hth_store_ops ops;
    uint32_t serial;

    slots_are_late(&ops, 1000000);
    must(hth_restore_start(restore, 60000, NULL));
    give_plan_of(1, &object, 1, 1);
    run(500);
    cr_assert(zero(u32, votes()));
    hth_held_forget_manifest(hth_holdings_find(ctx, chosen));
    run(500);
    cr_assert(eq(int, voted(&serial), HEARTH_ENOENT));
    p->node[MEMBER].store->ops = real;
}

/* ---- Ends
 * --------------------------------------------------------------------------------------------- */

static void begin_to_recover(void)
{
    ended.times = 0;
    must(hth_restore_start(restore, 60000, NULL));
}

Test(restore, an_epoch_is_recovered_once_and_its_recovery_ends_where_the_next_one_begins)
{
    struct hth_object object = there(id_of[0]);
    struct hearth_error err;
    uint32_t serial;

    begin_to_recover();
    must_fail(hth_restore_start(restore, 60000, &err), HEARTH_ESTATE);
    give_plan_of(3, &object, 1, 1);
    hth_restore_join(restore);
    cr_assert(eq(int, ended.times, 1));
    cr_assert(eq(int, ended.code, HEARTH_ECANCELED));
    run(1000); /* the bytes that it pulled come, and are dropped */
    cr_assert(zero(u32, votes()));
    must(hth_restore_start(restore, 60000, NULL));
    give_plan_of(1, &object, 1, 1);
    run(1000);
    cr_assert(zero(int, voted(&serial)));
    cr_assert(eq(u32, serial, 1));
}

Test(restore, it_ends_with_its_coordinator)
{
    begin_to_recover();
    hth_restore_peer_down(restore, 0, HEARTH_EPEER, "node0 has not been heard for 2 s");
    cr_assert(eq(int, ended.times, 1));
    cr_assert(eq(int, ended.code, HEARTH_EPEER));
    cr_assert(strstr(ended.text, "not been heard for 2 s") && strstr(ended.text, "restart the job"),
            "%s", ended.text);
}

/* It answers, and has not joined the epoch. */
Test(restore, it_waits_for_its_coordinator_to_join)
{
    begin_to_recover();
    hth_restore_peer_down(restore, 0, HEARTH_ESTATE, "node0 is not in epoch 7");
    cr_assert(zero(int, ended.times));
    hth_restore_give_up(restore);
    cr_assert(eq(int, ended.code, HEARTH_ETIMEOUT));
    cr_assert(ne(ptr, strstr(ended.text, "node0 is not in epoch 7"), NULL), "%s", ended.text);
}

Test(restore, why_its_parent_refuses_it_is_what_the_user_hears)
{
    begin_to_recover();
    hth_restore_peer_down(restore, 0, HEARTH_EAUTH, "node0 has another key");
    cr_assert(eq(int, ended.times, 1));
    cr_assert(eq(int, ended.code, HEARTH_EAUTH));
    must_say(ended.text, "node0 has another key");
}

Test(restore, a_coordinator_that_says_nothing_is_named)
{
    begin_to_recover();
    hth_restore_give_up(restore);
    cr_assert(eq(int, ended.code, HEARTH_ETIMEOUT));
    cr_assert(ne(ptr, strstr(ended.text, "node node0"), NULL), "%s", ended.text);
}

static void fail_epoch(int code, const char *text, size_t len)
{
    unsigned char body[4 + HEARTH_ERROR_TEXT + 1] = { 0 };

    hth_put32(body, (uint32_t)code);
    strcpy((char *)body + 4, text);
    hth_restore_deliver(restore, HTH_KIND_EPOCH_FAILED, body, len);
}

Test(restore, an_epoch_that_has_failed_ends_it_with_the_coordinators_reason)
{
    const char *why = "node2: no inventory";

    begin_to_recover();
    fail_epoch(HEARTH_EPEER, why, 3);
    fail_epoch(HEARTH_EPEER, why, 4 + HEARTH_ERROR_TEXT + 1);
    fail_epoch(0, why, 4 + strlen(why));
    cr_assert(zero(int, ended.times), "none of these is a reason");
    fail_epoch(HEARTH_EPEER, why, 4 + strlen(why));
    cr_assert(eq(int, ended.times, 1));
    cr_assert(eq(int, ended.code, HEARTH_EPEER));
    must_say(ended.text, why);
    fail_epoch(HEARTH_EIO, "again", 9);
    cr_assert(eq(int, ended.times, 1));
}

Test(restore, a_node_that_cannot_take_part_says_so_until_the_epoch_has_failed)
{
    const struct hearth_error why = { .code = HEARTH_EUNSUPPORTED,
        .text = "another manifest's version" };
    const uint32_t *refused = &p->node[0].heard[HTH_KIND_REFUSED];
    uint32_t times;

    ended.times = 0;
    hth_restore_refuse(restore, &why);
    run(1000);
    cr_assert(ge(u32, *refused, 4));
    cr_assert(eq(int, (int)hth_get32(p->node[0].fact), HEARTH_EUNSUPPORTED));
    cr_assert(eq(sz, p->node[0].len, 4 + strlen(why.text)));
    cr_assert(zero(int, memcmp(p->node[0].fact + 4, why.text, strlen(why.text))));
    fail_epoch(HEARTH_EUNSUPPORTED, why.text, 4 + strlen(why.text));
    cr_assert(eq(int, ended.times, 1));
    run(100);
    times = *refused;
    run(1000);
    cr_assert(eq(u32, *refused, times));
}

Test(restore, a_node_that_cannot_take_part_tells_its_own_reason_where_nobody_hears_it)
{
    const struct hearth_error why = { .code = HEARTH_EIO, .text = "no memory can be registered" };

    ended.times = 0;
    hth_restore_refuse(restore, &why);
    cr_assert(zero(int, hth_restore_late(restore, p->now_ms)));
    run(1000);
    hth_restore_refuse(restore, &why); /* once more: it has no longer for that */
    cr_assert(eq(int,
            hth_restore_late(restore, p->now_ms + p->node[MEMBER].ctx.opts.recover_ms - 500), 1));
    hth_restore_give_up(restore);
    cr_assert(eq(int, ended.code, HEARTH_EIO));
    must_say(ended.text, why.text);
}

Test(restore, what_is_no_plan_is_not_carried_out)
{
    struct hth_blob_id id = hth_restore_plan_id(&p->node[MEMBER].ctx, 1);
    struct hth_object object = there(id_of[0]);

    (void)pair_seal(p, MEMBER, kept, 1, 100, 1);
    must(hth_restore_start(restore, 60000, NULL));
    hth_restore_plan(restore, &id, (const unsigned char *)"no plan", 7);
    cr_assert(eq(int, pair_logged(p, MEMBER, "plan-bad"), 1));
    cr_assert(ne(ptr, pair_held(p, MEMBER, kept, 1), NULL));
    give_plan_of(1, &object, 1, 1);
    run(1000);
    cr_assert(ge(u32, votes(), 1));
}
