/* SPDX-License-Identifier: Apache-2.0 */
/* The catalogue, and what an engine makes of a store that another one left. */
#include "check.h"
#include "pair.h"
#include "raws.h"
#include "store_mem.h"

#include "core/base/auth.h"
#include "core/format/table.h"
#include <stdlib.h>
#include <unistd.h>

#define MIB UINT64_C(1048576)

static const struct hth_save_id save = { 7, 77, 40, 1 };
static struct pair *p;
static struct hth_ctx *c;
static struct hth_store *store;

static void begin(void)
{
    alarm(60);
    p = pair_open(1);
    c = &p->node[0].ctx;
    store = p->node[0].store;
}

static void end(void)
{
    pair_close(p);
}

TestSuite(holdings, .init = begin, .fini = end);

static void restart(void)
{
    pair_node_close(p, 0);
    pair_node_open(p, 0);
}

static unsigned char *manifest_of(const struct hth_object *object, uint32_t n, size_t *out_len)
{
    struct hth_object copy[4];
    struct hth_manifest m = {
        .save = save, .world = 1, .nodes = 1, .job = "pair", .objects = n, .object = copy
    };
    unsigned char *bytes = malloc(hth_manifest_bytes(&m));

    memcpy(copy, object, n * sizeof(*object));
    *out_len = hth_manifest_bytes(&m);
    must(hth_manifest_encode(&m, bytes, NULL));
    return bytes;
}

static int set_manifest(struct hth_save_id of, const struct hth_object *object, uint32_t n)
{
    size_t len;
    unsigned char *bytes = manifest_of(object, n, &len);

    return hth_held_set_manifest(c, hth_holdings_find(c, of), bytes, len, NULL);
}

Test(holdings, lists_saves_newest_first_and_objects_by_id)
{
    static const uint64_t steps[] = { 5, 9, 7 };
    struct hth_object o = { .kind = HTH_OBJECT_SHARD, .name = "x" };
    struct hth_held_save *s = NULL;

    for (int i = 0; i < 3; i++)
        s = hth_holdings_get(c, (struct hth_save_id){ 7, 77, steps[i], 1 });
    cr_assert(eq(u64, hth_holdings_first(c)->id.step, 9));
    cr_assert(eq(u64, hth_holdings_first(c)->next->id.step, 7));
    cr_assert(eq(u64, hth_holdings_first(c)->next->next->id.step, 5));
    cr_assert(eq(ptr, hth_holdings_get(c, s->id), s));
    for (int i = 0; i < 3; i++) {
        o.id = steps[i];
        hth_held_add(s, &o, HTH_HELD_LENT, NULL);
    }
    cr_assert(eq(u64, s->held->object.id, 5));
    cr_assert(eq(u64, s->held->next->object.id, 7));
    cr_assert(zero(ptr, (void *)hth_held_find(s, 8)));
}

Test(holdings, adopts_sealed_objects_unverified_and_gives_received_halves_back)
{
    struct hth_object object = pair_seal(p, 0, save, 5, 5 * MIB, 1)->object;
    struct hth_slot *half;
    struct hth_held *held;

    must(store->ops->take(store, MIB, &half, NULL));
    must(store->ops->receive(store, half, save, "half", NULL));
    must(store->ops->publish(store, save, NULL));
    restart();
    held = pair_held(p, 0, save, 5);
    cr_assert(ne(ptr, held, NULL));
    cr_assert(eq(int, held->state, HTH_HELD_SEALED));
    cr_assert(eq(int, held->verified, 0));
    cr_assert(eq(u64, held->object.table_len, object.table_len));
    cr_assert(eq(u64, held->object.data_len, 5 * MIB));
    must_say(held->object.name, "object-5");
    cr_assert(zero(int, memcmp(held->object.digest, object.digest, HTH_DIGEST)));
    cr_assert(eq(int, hth_holdings_first(c)->published, 1));
    cr_assert(zero(ptr, held->next));
    must(store->ops->take(store, MIB, &half, NULL));
    store->ops->give(store, half);
}

/* Its bytes are those of an object whose block holds. */
Test(holdings, what_was_still_being_received_is_not_adopted)
{
    const struct hth_save_id next = { 7, 77, 41, 1 };
    struct hth_held *held = pair_seal(p, 0, save, 5, MIB, 1);
    struct hth_slot *half;
    struct hth_block block;

    must(store->ops->take(store, held->slot->capacity, &half, NULL));
    memcpy(half->base, held->slot->base, held->slot->capacity);
    must(hth_block_decode(&block, half->base, HTH_BLOCK, half->capacity, NULL));
    block.save = next;
    hth_block_encode(&block, half->base);
    must(store->ops->receive(store, half, next, held->object.name, NULL));
    restart();
    cr_assert(ne(ptr, pair_held(p, 0, save, 5), NULL));
    cr_assert(eq(ptr, pair_held(p, 0, next, 5), NULL));
}

static struct hth_slot *cut; /* until the store has said so */
static uint64_t lost;        /* object */

static struct hth_slot *one_broken(struct hth_store *s, struct hearth_error *why)
{
    struct hth_slot *slot = cut;

    (void)s;
    cut = NULL;
    hth_fail(why, HEARTH_ECORRUPT, 0, "cut by somebody else");
    return slot;
}

static void on_lost(
        void *self, struct hth_save_id of, uint64_t object, const struct hearth_error *why)
{
    (void)self;
    cr_assert(zero(int, hth_save_cmp(of, save)));
    must_say(why->text, "cut by somebody else");
    lost = object;
}

Test(holdings, a_copy_whose_file_was_cut_is_dropped_and_told)
{
    const struct hth_store_ops *real = store->ops;
    struct hth_store_ops ops = *real;

    cut = pair_seal(p, 0, save, 5, MIB, 1)->slot;
    ops.broken = one_broken;
    store->ops = &ops;
    hth_held_mend(c, on_lost, NULL);
    store->ops = real;
    cr_assert(eq(u64, lost, 5));
    cr_assert(eq(ptr, pair_held(p, 0, save, 5), NULL));
    cr_assert(eq(int, pair_logged(p, 0, "slot-broken"), 1));
}

Test(holdings, condemns_objects_whose_block_table_or_name_do_not_hold)
{
    static const struct {
        uint64_t at;
        const char *says;
    } wrong[] = {
        { 30, "its checksum does not hold" },
        { HTH_BLOCK + MIB + 20, "does not have the block's digest" },
    };

    for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
        struct hth_held *held = pair_seal(p, 0, save, 5 + i, MIB, 1);

        held->slot->base[wrong[i].at] ^= 1;
        restart();
        cr_assert(zero(ptr, (void *)pair_held(p, 0, save, 5 + i)));
        cr_assert(strstr(p->node[0].last, wrong[i].says) != NULL, "%s", p->node[0].last);
    }
    pair_seal(p, 0, save, 8, MIB, 1);
    pair_node_close(p, 0);
    p->node[0].logged[0] = '\0';
    pair_node_open(p, 0);
    cr_assert(ne(ptr, pair_held(p, 0, save, 8), NULL));
    cr_assert(eq(int, pair_logged(p, 0, "adopt-bad"), 0), "a condemned object is found again");
}

Test(holdings, an_object_of_another_job_is_not_ours)
{
    struct hth_held *held = pair_seal(p, 0, save, 5, MIB, 1);
    struct hth_block block;

    must(hth_block_decode(&block, held->slot->base, HTH_BLOCK, held->slot->capacity, NULL));
    strcpy(block.job, "other");
    hth_block_encode(&block, held->slot->base);
    restart();
    cr_assert(zero(ptr, (void *)pair_held(p, 0, save, 5)));
}

Test(holdings, keeps_the_manifest_over_a_restart_and_raw_objects_with_it)
{
    struct hth_object o[2] = { pair_seal(p, 0, save, 5, MIB, 1)->object,
        { .id = 6, .kind = HTH_OBJECT_RAW, .data_len = 4, .name = ".metadata" } };
    struct hth_held_save *s = hth_holdings_find(c, save);

    hth_digest(o[1].digest, "meta", 4);
    must(raw_put(store, save, ".metadata", "meta", 4, NULL));
    must(set_manifest(save, o, 2));
    must(set_manifest(save, o, 1));
    cr_assert(eq(u32, s->manifest.objects, 2), "a second one changes nothing");
    restart();
    s = hth_holdings_find(c, save);
    cr_assert(eq(int, s->has_manifest, 1));
    cr_assert(eq(u32, s->manifest.objects, 2));
    cr_assert(eq(int, hth_held_find(s, 6)->verified, 0), "the object has not been verified");
    cr_assert(zero(ptr, hth_held_find(s, 6)->slot));
    must(hth_verify_start(c, s, hth_held_find(s, 6), NULL, NULL, NULL));
    pair_run(p, 10);
    cr_assert(eq(int, hth_held_find(s, 6)->verified, 1));
    must(raw_put(store, save, ".metadata", "longer", 6, NULL));
    restart();
    cr_assert(zero(ptr, (void *)pair_held(p, 0, save, 6)), "others under its name");
}

static struct {
    int calls, code;
} seen;

static void on_looked(void *self, struct hth_held_save *s, struct hth_held *held, int code,
        const struct hearth_error *err)
{
    (void)self, (void)s, (void)held, (void)err;
    seen.calls++;
    seen.code = code;
}

static void look(struct hth_held_save *s, uint64_t id)
{
    seen.calls = 0;
    must(hth_verify_start(c, s, hth_held_find(s, id), on_looked, NULL, NULL));
    cr_assert(eq(int, seen.calls, 0), "inside the call");
    pair_run(p, 10);
    cr_assert(eq(int, seen.calls, 1));
}

Test(holdings, looks_at_small_files_again)
{
    struct hth_object o[2] = { pair_seal(p, 0, save, 5, MIB, 1)->object,
        { .id = 6, .kind = HTH_OBJECT_RAW, .data_len = 4, .name = ".metadata" } };
    struct hth_held_save *s = hth_holdings_find(c, save);
    char name[HTH_SAVE_TEXT + 16];
    void *bytes;
    size_t len;

    hth_digest(o[1].digest, "meta", 4);
    must(set_manifest(save, o, 2));
    must(raw_put(store, save, ".metadata", "meta", 4, NULL));
    hth_held_add(s, &o[1], HTH_HELD_SEALED, NULL);
    hth_held_look(c, s);
    look(s, 6);
    cr_assert(eq(int, seen.code, HEARTH_OK));
    cr_assert(eq(int, hth_held_find(s, 6)->verified, 1));
    cr_assert(eq(int, pair_logged(p, 0, "manifest-bad"), 0));
    hth_save_text(save, name);
    strcat(name, ".manifest");
    must(store->ops->record_put(store, name, "damaged", 7, NULL));
    must(raw_put(store, save, ".metadata", "beta", 4, NULL));
    hth_held_look(c, s);
    look(s, 6);
    cr_assert(eq(int, seen.code, HEARTH_ECORRUPT));
    cr_assert(eq(int, hth_held_find(s, 6)->verified, 0));
    cr_assert(ne(ptr, hth_held_find(s, 5), NULL));
    must(store->ops->record_get(store, name, &bytes, &len, NULL));
    cr_assert(eq(sz, len, s->manifest_len));
    cr_assert(zero(int, memcmp(bytes, s->manifest_bytes, len)));
    free(bytes);
}

Test(holdings, a_manifest_that_is_damaged_or_of_another_save_is_not_used)
{
    struct hth_object o = pair_seal(p, 0, save, 5, MIB, 1)->object;
    static const struct hth_save_id other = { 7, 77, 41, 1 };
    char name[HTH_SAVE_TEXT + 16];
    unsigned char *bytes;
    void *got;
    size_t len;

    hth_holdings_get(c, other);
    must_fail(set_manifest(other, &o, 1), HEARTH_EINVAL);
    bytes = manifest_of(&o, 1, &len);
    bytes[200] ^= 1;
    hth_save_text(save, name);
    strcat(name, ".manifest");
    must(store->ops->record_put(store, name, bytes, len, NULL));
    free(bytes);
    restart();
    cr_assert(eq(int, hth_holdings_find(c, save)->has_manifest, 0));
    must_fail(store->ops->record_get(store, name, &got, &len, NULL), HEARTH_ENOENT);
}

Test(holdings, an_object_that_the_manifest_knows_otherwise_is_damage)
{
    struct hth_object o = pair_seal(p, 0, save, 5, MIB, 1)->object;

    o.digest[3] ^= 1;
    must(set_manifest(save, &o, 1));
    restart();
    cr_assert(zero(ptr, (void *)pair_held(p, 0, save, 5)));
    cr_assert(eq(int, pair_logged(p, 0, "adopt-bad"), 1));
}

Test(holdings, a_manifest_that_cannot_be_written_is_not_held)
{
    struct hth_object o = pair_seal(p, 0, save, 5, MIB, 1)->object;

    hth_store_mem_fail_at(store, 1);
    cr_assert(ne(int, set_manifest(save, &o, 1), HEARTH_OK));
    cr_assert(zero(int, hth_holdings_find(c, save)->has_manifest));
    must(set_manifest(save, &o, 1));
    cr_assert(eq(int, hth_holdings_find(c, save)->has_manifest, 1));
}

Test(holdings, freeing_a_save_leaves_nothing_of_it)
{
    struct hth_object o = pair_seal(p, 0, save, 5, MIB, 1)->object;

    must(set_manifest(save, &o, 1));
    hth_holdings_free_save(c, hth_holdings_find(c, save));
    cr_assert(zero(ptr, (void *)hth_holdings_find(c, save)));
    restart();
    cr_assert(zero(ptr, (void *)hth_holdings_first(c)));
}

Test(holdings, what_is_pinned_stays_readable_and_its_slot_is_not_given_out)
{
    struct hth_held *held = pair_seal(p, 0, save, 5, MIB, 1);
    struct hth_held_save *s = hth_holdings_find(c, save);
    struct hth_slot *slot = held->slot, *again;

    hth_held_pin(s, held);
    store->ops->lease(store, slot);
    hth_holdings_free_save(c, s);
    cr_assert(eq(int, held->dropped, 1));
    cr_assert(eq(int, s->removed, 1));
    must(store->ops->take(store, MIB, &again, NULL));
    cr_assert(ne(ptr, again, slot));
    store->ops->give(store, again);
    store->ops->unlease(store, slot);
    hth_held_unpin(s, held);
}

static uint64_t highest(void)
{
    uint64_t random = 0;

    return hth_holdings_highest_epoch(c, &random);
}

static void put_epoch_record(uint64_t epoch, uint64_t nonce)
{
    uint32_t rank_node[1] = { 0 };
    struct hth_epoch e = p->node[0].epoch;
    unsigned char *bytes;

    e.epoch = epoch;
    e.nonce = nonce;
    e.rank_node = rank_node;
    bytes = malloc(hth_epoch_bytes(&e));
    hth_epoch_encode(&e, bytes);
    must(store->ops->record_put(store, "epoch", bytes, hth_epoch_bytes(&e), NULL));
    free(bytes);
}

Test(holdings, the_highest_epoch_is_that_of_saves_record_and_keep)
{
    cr_assert(eq(u64, highest(), 7)); /* joined */
    hth_holdings_get(c, (struct hth_save_id){ 12, 77, 41, 1 });
    cr_assert(eq(u64, highest(), 12));
    c->keep.dropped = 16;
    cr_assert(eq(u64, highest(), 16));
    c->keep.epoch = 20;
    cr_assert(eq(u64, highest(), 20));
    put_epoch_record(30, 1);
    cr_assert(eq(
            u64, highest(), 20)); /* it has written the record of its own epoch, and knows that */
    c->epoch = NULL;              /* one that has just started */
    cr_assert(eq(u64, highest(), 30));
}

Test(holdings, a_number_that_no_job_reaches_is_left_out_of_the_highest_epoch)
{
    uint64_t random = UINT64_C(5) << 32;

    c->epoch = NULL; /* one that has just started: it reads the record */
    hth_holdings_get(c, (struct hth_save_id){ 12, 77, 41, 1 });
    put_epoch_record(UINT64_MAX, 1);
    cr_assert(eq(u64, highest(), 12));
    put_epoch_record(HTH_EPOCH_MOST, 1); /* a session that a lie brought about, and no save in it */
    cr_assert(eq(u64, highest(), 12));
    hth_holdings_get(c, (struct hth_save_id){ UINT64_MAX, 77, 41, 1 });
    cr_assert(eq(u64, highest(), 12));
    hth_holdings_get(c, (struct hth_save_id){ HTH_EPOCH_MOST, 900, 42, 1 }); /* now there is one */
    cr_assert(eq(u64, hth_holdings_highest_epoch(c, &random), HTH_EPOCH_BELIEVED));
    cr_assert(eq(u64, random, 906)); /* a nonce above what was seen, since no number is */
}

Test(holdings, a_session_that_a_lie_brought_about_counts_once_it_has_a_save)
{
    hth_holdings_get(c, (struct hth_save_id){ 12, 77, 41, 1 });
    p->node[0].epoch.epoch = HTH_EPOCH_MOST; /* joined, and running */
    cr_assert(eq(u64, highest(), 12));
    hth_holdings_get(c, (struct hth_save_id){ HTH_EPOCH_MOST, 77, 42, 1 });
    cr_assert(eq(u64, highest(), HTH_EPOCH_BELIEVED));
}
