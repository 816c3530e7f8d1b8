/* SPDX-License-Identifier: Apache-2.0 */
/* Sealing what a rank wrote, verifying what is sealed, and the points that are passed. */
#include "check.h"
#include "forge.h"
#include "pair.h"

#include "core/base/auth.h"
#include "core/base/bytes.h"
#include "core/base/crc.h"
#include "core/format/table.h"
#include <stdio.h>
#include <unistd.h>

#define MIB UINT64_C(1048576)

static const struct hth_save_id save = { 7, 77, 40, 1 };
static struct pair *p;
static struct {
    uint32_t ended;
    int code;
    struct hearth_error err;
} out;

static void begin(void)
{
    alarm(60);
    p = pair_open(1);
}

static void end(void)
{
    pair_close(p);
}

TestSuite(seal, .init = begin, .fini = end);

static void on_done(void *self, struct hth_held_save *s, struct hth_held *h, int code,
        const struct hearth_error *err)
{
    (void)self, (void)s, (void)h;
    out.ended++;
    out.code = code;
    out.err = *err;
}

static int seal_part(struct hth_held *held, struct hth_seal_part part)
{
    struct hth_ctx *c = &p->node[0].ctx;
    int rc = hth_seal_start(c, hth_holdings_find(c, save), held, &part, on_done, NULL, NULL);

    if (rc)
        return rc;
    cr_assert(eq(u32, out.ended, 0), "done ran inside start");
    cr_assert(pair_until(p, &out.ended, 1, 1000));
    return out.code;
}

static int seal(struct hth_held *held, uint32_t items, uint64_t items_len)
{
    return seal_part(held, (struct hth_seal_part){ .items = items, .items_len = items_len });
}

static int verify(struct hth_held *held)
{
    struct hth_ctx *c = &p->node[0].ctx;

    out.ended = 0;
    must(hth_verify_start(c, hth_holdings_find(c, save), held, on_done, NULL, NULL));
    cr_assert(pair_until(p, &out.ended, 1, 1000));
    return out.code;
}

Test(seal, gives_block_table_and_digest_and_the_final_name)
{
    uint64_t items_len;
    struct hth_held *held = pair_write(p, 0, save, 5, 9 * MIB + 3, 1, &items_len);
    struct hth_table table;
    struct hth_block block;
    unsigned char digest[HTH_DIGEST];

    must(seal(held, 1, items_len));
    cr_assert(eq(int, held->state, HTH_HELD_SEALED));
    cr_assert(eq(int, held->verified, 1));
    must(hth_block_decode(&block, held->slot->base, HTH_BLOCK, held->slot->capacity, NULL));
    cr_assert(eq(int, block.own, 1));
    cr_assert(eq(int, (int)block.signature, HTH_SIG_TENSORS));
    cr_assert(eq(int, hth_save_cmp(block.save, save), 0));
    cr_assert(eq(u64, block.object, 5));
    must_say(block.job, "pair");
    must_say(block.name, "object-5");
    cr_assert(eq(u64, block.generation, held->slot->generation));
    must(hth_table_decode(&table, held->slot->base + block.table_off, block.table_len, NULL));
    cr_assert(eq(u32, table.chunks, 3));
    cr_assert(eq(u32, table.proofs.crc[2],
            hth_crc32c(held->slot->base + HTH_BLOCK + 2 * HTH_CHUNK, MIB + 3)));
    hth_digest(digest, held->slot->base + block.table_off, block.table_len);
    cr_assert(zero(int, memcmp(digest, held->object.digest, HTH_DIGEST)));
    cr_assert(zero(int, memcmp(digest, block.table_digest, HTH_DIGEST)));
    cr_assert(eq(u64, held->object.table_len, block.table_len));
    cr_assert(eq(u32, held->slot->leases, 0));
}

#ifdef HEARTH_POINTS
Test(seal, passes_chunk_before_seal)
{
    pair_seal(p, 0, save, 5, 100 * MIB, 1);
    cr_assert(eq(u32, p->point_count, 3)); /* 25 chunks are two works */
    must_say(p->points[0], "chunk");
    must_say(p->points[1], "chunk");
    must_say(p->points[2], "seal");
}
#endif

Test(seal, of_no_bytes_and_of_no_items_works)
{
    struct hth_held *held;
    uint64_t items_len;

    held = pair_write(p, 0, save, 6, 0, 1, &items_len);
    must(seal(held, 0, 0));
    must(verify(held));
}

Test(seal, refuses_items_that_a_rank_wrote_wrongly_and_leaves_the_slot_lent)
{
    uint64_t items_len;
    struct hth_held *held = pair_write(p, 0, save, 5, 4096, 1, &items_len);

    held->slot->base[HTH_BLOCK + 4096 + HTH_TABLE_HEAD] = 1; /* it does not begin at 0 */
    must_fail(seal(held, 1, items_len), HEARTH_EINVAL);
    cr_assert(eq(int, held->state, HTH_HELD_LENT));
    cr_assert(strstr(out.err.text, "rank 0 has written 'object-5'") != NULL, "%s", out.err.text);
}

Test(seal, refuses_lengths_that_do_not_fit_in_the_slot)
{
    uint64_t items_len;
    struct hth_held *held = pair_write(p, 0, save, 5, 4096, 1, &items_len);

    must_fail(seal(held, 1, UINT64_MAX - 7), HEARTH_EINVAL);
    must_fail(seal(held, 1, items_len + 1), HEARTH_EINVAL);
    must_fail(seal(held, 1, held->slot->capacity), HEARTH_EINVAL);
    held->object.data_len = UINT64_MAX - 100;
    must_fail(seal(held, 1, items_len), HEARTH_EINVAL);
}

/* Workers take the second one first. */
Test(seal, one_that_began_later_may_end_earlier)
{
    struct hth_ctx *c = &p->node[0].ctx;
    uint64_t items_len[2];
    struct hth_held *held[2] = { pair_write(p, 0, save, 5, MIB, 1, &items_len[0]),
        pair_write(p, 0, save, 6, MIB, 1, &items_len[1]) };
    struct hth_work *first;

    for (int i = 0; i < 2; i++)
        must(hth_seal_start(c, hth_holdings_find(c, save), held[i],
                &(struct hth_seal_part){ .items = 1, .items_len = items_len[i] }, on_done, NULL,
                NULL));
    first = p->works;
    p->works = first->next;
    *p->works_end = first;
    p->works_end = &first->next;
    first->next = NULL;
    cr_assert(pair_until(p, &out.ended, 1, 1000));
    cr_assert(eq(int, held[1]->state, HTH_HELD_SEALED));
    cr_assert(eq(int, held[0]->state, HTH_HELD_SEALING));
    cr_assert(pair_until(p, &out.ended, 2, 1000));
    cr_assert(eq(int, held[0]->state, HTH_HELD_SEALED));
}

/* As a rank does that has copied all bytes itself. */
static void sums_put(const struct hth_held *held, uint64_t items_len)
{
    uint64_t len = held->object.data_len;
    unsigned char *data = held->slot->base + HTH_BLOCK;
    unsigned char *sums = data + HTH_ALIGN(len) + HTH_TABLE_HEAD + items_len;

    for (uint32_t c = 0; c < HTH_CHUNKS(len); c++)
        hth_put32(sums + 4 * c, hth_crc32c_portable(data + c * HTH_CHUNK, hth_chunk_len(len, c)));
}

/* The engine takes the rank's sums as they are, and reads no byte of data: a wrong one is found
 * where bytes are compared with it. */
Test(seal, takes_the_sums_that_its_rank_has_made)
{
    uint64_t items_len;
    struct hth_held *held = pair_write(p, 0, save, 6, 9 * MIB + 5, 1, &items_len);
    unsigned char *data = held->slot->base + HTH_BLOCK;

    sums_put(held, items_len);
    must(seal_part(held, (struct hth_seal_part){ 1, items_len, 1, 0 }));
    must(verify(held));
    data[HTH_CHUNK + 17] ^= 4;
    must_fail(verify(held), HEARTH_ECORRUPT);
    cr_assert(ne(ptr, strstr(out.err.text, "chunk 1"), NULL), "%s", out.err.text);
}

/* A peer that has pulled a chunk before it changed does not pull it again. */
Test(seal, finds_what_has_changed_in_chunks_that_peers_may_have_pulled)
{
    static const uint64_t at[] = { 17, HTH_CHUNK + 17, 2 * HTH_CHUNK + 3 };
    uint64_t len = 2 * HTH_CHUNK + 5, items_len;
    char says[64];

    for (uint32_t early = 0; early <= 3; early++)
        for (uint32_t c = 0; c < 3; c++) {
            struct hth_held *held = pair_write(p, 0, save, 10 + 3 * early + c, len, c, &items_len);
            struct hth_seal_part part = { 1, items_len, 1, early };

            sums_put(held, items_len);
            held->slot->base[HTH_BLOCK + at[c]] ^= 2;
            out.ended = 0;
            if (c >= early) {
                must(seal_part(held, part));
                continue;
            }
            must_fail(seal_part(held, part), HEARTH_ECORRUPT);
            snprintf(says, sizeof(says), "chunk %u is not as rank 0", c);
            cr_assert(ne(ptr, strstr(out.err.text, says), NULL), "%s", out.err.text);
        }
}

/* The engine reads the bytes for their SHA-256, so it is the one that finds what has changed since
 * the rank copied them: its digests would be those of the changed bytes. */
Test(seal, strong_finds_each_chunk_that_changed_after_its_rank_copied_it)
{
    enum { CHUNKS = 5 };
    uint64_t len = (CHUNKS - 1) * HTH_CHUNK + MIB + 5, items_len;
    char says[64];

    p->node[0].ctx.opts.strong = 1;
    for (uint32_t c = 0; c < CHUNKS; c++) {
        struct hth_held *held = pair_write(p, 0, save, 10 + c, len, c, &items_len);
        uint64_t at = c * HTH_CHUNK + hth_chunk_len(len, c) * c / (CHUNKS - 1);
        unsigned char *byte = held->slot->base + HTH_BLOCK + (at < len ? at : len - 1);

        sums_put(held, items_len);
        *byte ^= 1u << c;
        out.ended = 0;
        must_fail(seal_part(held, (struct hth_seal_part){ 1, items_len, 1, 0 }), HEARTH_ECORRUPT);
        snprintf(says, sizeof(says), "'object-%u': chunk %u is not as rank 0", 10 + c, c);
        cr_assert(ne(ptr, strstr(out.err.text, says), NULL), "%s", out.err.text);
        cr_assert(eq(int, held->state, HTH_HELD_LENT));
        *byte ^= 1u << c;
        out.ended = 0;
        must(seal_part(held, (struct hth_seal_part){ 1, items_len, 1, 0 }), out.err);
        must(verify(held), out.err);
    }
}

Test(seal, dropped_meanwhile_ends_with_canceled_and_a_free_slot)
{
    struct hth_ctx *c = &p->node[0].ctx;
    uint64_t items_len;
    struct hth_held *held = pair_write(p, 0, save, 5, 100 * MIB, 1, &items_len);
    struct hth_slot *slot = held->slot, *again;

    must(hth_seal_start(c, hth_holdings_find(c, save), held,
            &(struct hth_seal_part){ .items = 1, .items_len = items_len }, on_done, NULL, NULL));
    pair_step(p);
    hth_holdings_free_save(c, hth_holdings_find(c, save));
    must(c->store->ops->take(c->store, 100 * MIB, &again, NULL));
    cr_assert(ne(ptr, again, slot), "a slot that a worker reads was given out");
    cr_assert(pair_until(p, &out.ended, 1, 1000));
    cr_assert(eq(int, out.code, HEARTH_ECANCELED));
    cr_assert(eq(u32, slot->leases, 0));
    c->store->ops->give(c->store, again);
}

Test(seal, verify_finds_every_kind_of_wrong_byte)
{
    struct hth_held *held = pair_seal(p, 0, save, 5, 9 * MIB, 1);
    static const struct {
        uint64_t at;
        const char *says;
    } wrong[] = {
        { 40, "the block, at byte 0" },
        { HTH_BLOCK, "chunk 0" },
        { HTH_BLOCK + 9 * MIB - 1, "chunk 2" },
        { HTH_BLOCK + 9 * MIB + 70, "the table, at byte 9441280" },
    };

    must(verify(held));
    for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
        held->slot->base[wrong[i].at] ^= 4;
        must_fail(verify(held), HEARTH_ECORRUPT);
        cr_assert(eq(int, held->verified, 0));
        cr_assert(strstr(out.err.text, wrong[i].says) != NULL, "%s", out.err.text);
        held->slot->base[wrong[i].at] ^= 4;
    }
    must(verify(held));
    cr_assert(eq(int, held->verified, 1));
}

Test(seal, verify_finds_bytes_forged_under_their_crc_where_integrity_is_strong)
{
    for (uint32_t strong = 0; strong < 2; strong++) {
        struct hth_held *held;

        p->node[0].ctx.opts.strong = strong;
        held = pair_seal(p, 0, save, 5 + strong, 9 * MIB, 1);
        cr_assert(eq(u32, held->object.strong, strong));
        must(verify(held));
        forge(held->slot->base + HTH_BLOCK + 2 * HTH_CHUNK + 7);
        if (!strong) {
            must(verify(held)); /* a CRC finds accidents alone */
            continue;
        }
        must_fail(verify(held), HEARTH_ECORRUPT);
        cr_assert(strstr(out.err.text, "chunk 2") != NULL, "%s", out.err.text);
        forge(held->slot->base + HTH_BLOCK + 2 * HTH_CHUNK + 7);
        must(verify(held));
    }
}

Test(seal, verify_finds_a_wrong_byte_anywhere_in_the_table)
{
    struct hth_held *held;
    unsigned char *table;

    p->node[0].ctx.opts.strong = 1;
    held = pair_seal(p, 0, save, 5, 4096, 1);
    table = held->slot->base + HTH_BLOCK + 4096;
    for (uint64_t i = 0; i < held->object.table_len; i++) {
        table[i] ^= 1;
        must_fail(verify(held), HEARTH_ECORRUPT);
        table[i] ^= 1;
    }
    must(verify(held));
}

Test(seal, verify_takes_no_other_objects_block)
{
    struct hth_held *held = pair_seal(p, 0, save, 5, 4096, 1);
    struct hth_block own, other[5];

    must(hth_block_decode(&own, held->slot->base, HTH_BLOCK, held->slot->capacity, NULL));
    for (int i = 0; i < 5; i++)
        other[i] = own;
    other[0].save.attempt++;
    other[1].object++;
    other[2].owner++;
    other[3].name[0]++;
    other[4].job[0]++;
    for (int i = 0; i < 5; i++) {
        hth_block_encode(&other[i], held->slot->base);
        must_fail(verify(held), HEARTH_ECORRUPT);
    }
    hth_block_encode(&own, held->slot->base);
    must(verify(held));
}

Test(seal, verify_left_out_believes_everything)
{
    struct hth_held *held = pair_seal(p, 0, save, 5, MIB, 1);

    p->node[0].ctx.opts.breaks = HTH_BREAK_VERIFY;
    held->slot->base[HTH_BLOCK] ^= 4;
    must(verify(held));
}
