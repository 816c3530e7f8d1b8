/* SPDX-License-Identifier: Apache-2.0 */
/* The keep record: what goes in comes out, nothing else is taken, and what of its saves a change
 * leaves as it was. */
#include "damaged.h"

#include "core/base/auth.h"
#include "core/base/bytes.h"
#include "core/format/keep.h"

static int decode_keep(const unsigned char *bytes, size_t len)
{
    struct hth_keep k;

    return hth_keep_decode(&k, bytes, len, NULL);
}

static struct hth_keep keep_of(void)
{
    return (struct hth_keep){
        .epoch = 3,
        .serial = 9,
        .saves = 2,
        .bads = 1,
        .degraded = 2,
        .since_ms = { 1763000060000, 1763000000000 },
        .save = { { .epoch = 3, .nonce = 1, .step = 20, .attempt = 1 },
                { .epoch = 3, .nonce = 1, .step = 10, .attempt = 2 } },
        .bad = { { .epoch = 3, .nonce = 1, .step = 30, .attempt = 1 } },
        .tried = { .epoch = 3, .nonce = 1, .step = 20, .attempt = 1 },
        .tries = 4,
    };
}

Test(keep, a_keep_record_comes_back)
{
    struct hth_keep k = keep_of(), back;
    unsigned char bytes[HTH_KEEP_BYTES];

    must(hth_auth_init(NULL));
    hth_keep_encode(&k, bytes);
    must(hth_keep_decode(&back, bytes, sizeof(bytes), NULL));
    cr_assert(eq(u64, back.serial, 9));
    cr_assert(eq(u32, back.bads, 1));
    cr_assert(eq(int, hth_keep_has(&back, k.save[1]), 1));
    cr_assert(eq(int, hth_keep_has(&back, k.bad[0]), 0));
    cr_assert(eq(int, hth_keep_degraded(&back, 0), 0));
    cr_assert(eq(int, hth_keep_degraded(&back, hth_keep_at(&back, k.save[1])), 1));
    cr_assert(eq(u64, back.since_ms[1], k.since_ms[1]));
    cr_assert(eq(int, hth_save_cmp(back.tried, k.tried), 0));
    cr_assert(eq(u32, back.tries, 4));
    k.saves = HTH_KEEP_MAX;
    hth_keep_encode(&k, bytes);
    must(hth_keep_decode(&back, bytes, sizeof(bytes), NULL));
}

/* Engines of this version wrote a 1 behind the tries, for a job that had not ended. */
Test(keep, the_job_that_had_not_ended_when_an_earlier_engine_wrote_counts_too)
{
    struct hth_keep k = keep_of(), back;
    unsigned char bytes[HTH_KEEP_BYTES];

    must(hth_auth_init(NULL));
    hth_keep_encode(&k, bytes);
    hth_put32(bytes + 60, 1);
    hth_digest(bytes + sizeof(bytes) - HTH_DIGEST, bytes, sizeof(bytes) - HTH_DIGEST);
    must(hth_keep_decode(&back, bytes, sizeof(bytes), NULL));
    cr_assert(eq(u32, back.tries, 5));
}

Test(keep, a_save_is_tried_once_by_each_job_and_another_one_anew)
{
    struct hth_keep k = keep_of();

    hth_keep_try(&k, k.save[0], 1);
    cr_assert(eq(u32, hth_keep_tries(&k, k.save[0]), 4));
    hth_keep_try(&k, k.save[0], 0);
    cr_assert(eq(u32, hth_keep_tries(&k, k.save[0]), 5));
    hth_keep_try(&k, k.save[1], 1);
    cr_assert(eq(u32, hth_keep_tries(&k, k.save[1]), 1));
    cr_assert(zero(u32, hth_keep_tries(&k, k.save[0])));
    hth_keep_end_tries(&k);
    cr_assert(zero(u32, hth_keep_tries(&k, k.save[1])));
}

Test(keep, all_places_for_marks_and_the_save_that_is_tried_fit_in_one_keep_record)
{
    struct hth_keep k = keep_of(), back;
    unsigned char bytes[HTH_KEEP_BYTES];

    must(hth_auth_init(NULL));
    hth_keep_end_tries(&k);
    for (uint64_t step = 100; step < 140; step++)
        hth_keep_mark(&k, (struct hth_save_id){ 3, 1, step, 1 }, 1);
    cr_assert(eq(u32, k.bads, HTH_KEEP_BADS));
    hth_keep_try(&k, k.save[0], 0);
    hth_keep_encode(&k, bytes);
    must(hth_keep_decode(&back, bytes, sizeof(bytes), NULL));
    cr_assert(eq(int, hth_keep_is_bad(&back, (struct hth_save_id){ 3, 1, 139, 1 }), 1));
    cr_assert(eq(int, hth_keep_is_bad(&back, k.save[0]), 0));
    cr_assert(eq(int, hth_save_cmp(back.tried, k.save[0]), 0));
    k.bads = HTH_KEEP_MAX; /* as version 3 could have */
    k.bad[HTH_KEEP_BADS] = k.save[1];
    hth_keep_end_tries(&k);
    hth_keep_encode(&k, bytes);
    must(hth_keep_decode(&back, bytes, sizeof(bytes), NULL));
    cr_assert(eq(int, hth_keep_is_bad(&back, k.save[1]), 1));
    hth_keep_try(&back, k.save[0], 0);
    cr_assert(eq(u32, back.bads, HTH_KEEP_BADS));
    cr_assert(eq(int, hth_keep_is_bad(&back, k.save[1]), 1));
}

Test(keep, a_keep_record_of_an_epoch_that_no_job_reaches_is_refused)
{
    struct hth_keep k = keep_of();
    unsigned char bytes[HTH_KEEP_BYTES];

    must(hth_auth_init(NULL));
    k.epoch = HTH_EPOCH_MOST;
    hth_keep_encode(&k, bytes);
    must(decode_keep(bytes, sizeof(bytes)));
    k.epoch = HTH_EPOCH_MOST + 1;
    hth_keep_encode(&k, bytes);
    must_fail(decode_keep(bytes, sizeof(bytes)), HEARTH_ECORRUPT);
}

Test(keep, a_damaged_keep_record_is_refused, .timeout = 60)
{
    struct hth_keep k = keep_of();
    unsigned char bytes[HTH_KEEP_BYTES];

    must(hth_auth_init(NULL));
    hth_keep_encode(&k, bytes);
    refuses_all_damage(decode_keep, bytes, sizeof(bytes));
}

Test(keep, a_keep_record_with_more_saves_than_fit_is_refused)
{
    struct hth_keep k = keep_of();
    unsigned char bytes[HTH_KEEP_BYTES];

    must(hth_auth_init(NULL));
    hth_keep_encode(&k, bytes);
    bytes[32] = HTH_KEEP_MAX + 1;
    hth_digest(bytes + HTH_KEEP_BYTES - HTH_DIGEST, bytes, HTH_KEEP_BYTES - HTH_DIGEST);
    must_fail(decode_keep(bytes, sizeof(bytes)), HEARTH_ECORRUPT);
    hth_keep_encode(&k, bytes);
    k.tried = (struct hth_save_id){ 0 }; /* and yet it is tried */
    hth_keep_encode(&k, bytes);
    must_fail(decode_keep(bytes, sizeof(bytes)), HEARTH_ECORRUPT);
    for (int at = 40; at <= 44; at += 4) { /* the third of two is degraded, or pinned */
        k = keep_of();
        hth_keep_encode(&k, bytes);
        bytes[at] |= 4;
        hth_digest(bytes + HTH_KEEP_BYTES - HTH_DIGEST, bytes, HTH_KEEP_BYTES - HTH_DIGEST);
        must_fail(decode_keep(bytes, sizeof(bytes)), HEARTH_ECORRUPT);
    }
}

/* --- its changes --- */

/* Of epochs 5, 4, 3 and 3: the second and the third degraded, the second and the fourth pinned. */
static struct hth_keep keep_of_four(void)
{
    return (struct hth_keep){
        .epoch = 5,
        .saves = 4,
        .degraded = 6,
        .pinned = 10,
        .since_ms = { 50, 40, 30, 20 },
        .save = { { 5, 1, 50, 1 }, { 4, 1, 40, 1 }, { 3, 1, 30, 1 }, { 3, 1, 20, 1 } },
    };
}

Test(keep, what_a_drop_leaves_is_as_it_was)
{
    struct hth_keep k = keep_of_four();

    hth_keep_drop(&k, 3);
    cr_assert(eq(u64, k.dropped, 3));
    cr_assert(eq(u32, k.saves, 2));
    cr_assert(eq(u64, k.save[1].step, 40));
    cr_assert(eq(u64, k.since_ms[1], 40));
    cr_assert(eq(u32, k.degraded, 2));
    cr_assert(eq(u32, k.pinned, 2));
    hth_keep_drop(&k, 2); /* what was dropped stays dropped */
    cr_assert(eq(u64, k.dropped, 3));
    hth_keep_drop(&k, 5);
    cr_assert(eq(u32, k.saves, 0));
    cr_assert(eq(u32, k.degraded | k.pinned, 0));
}

Test(keep, when_a_save_leaves_the_others_stay_as_they_were)
{
    struct hth_keep k = keep_of_four();

    hth_keep_leave(&k, 1);
    cr_assert(eq(u32, k.saves, 3));
    cr_assert(eq(u64, k.save[1].step, 30));
    cr_assert(eq(u64, k.since_ms[1], 30));
    cr_assert(eq(u32, k.degraded, 2));
    cr_assert(eq(u32, k.pinned, 4));
    cr_assert(hth_save_none(k.save[3]));
}

Test(keep, a_save_is_marked_once_and_its_mark_can_go)
{
    struct hth_keep k = keep_of_four();

    hth_keep_mark(&k, k.save[0], 1);
    hth_keep_mark(&k, k.save[0], 1);
    hth_keep_mark(&k, k.save[2], 1);
    cr_assert(eq(u32, k.bads, 2));
    hth_keep_mark(&k, k.save[1], 0); /* it has none */
    cr_assert(eq(u32, k.bads, 2));
    hth_keep_mark(&k, k.save[0], 0);
    cr_assert(eq(u32, k.bads, 1));
    cr_assert(eq(int, hth_keep_is_bad(&k, k.save[0]), 0));
    cr_assert(eq(int, hth_keep_is_bad(&k, k.save[2]), 1));
}

/* ---- Lists of one decision ------------------------------------------------------------------- */

Test(keep, lists_of_one_decision_are_united_in_their_order_with_pins_and_ages)
{
    const struct hth_keep all = { .epoch = 4,
        .serial = 1,
        .saves = 3,
        .degraded = 4,
        .pinned = 2,
        .save = { { 4, 1, 9, 1 }, { 4, 1, 8, 1 }, { 3, 1, 7, 1 } },
        .since_ms = { 900, 800, 700 } };

    for (int a = 0; a < 3; a++)
        for (int b = 0; b < 3; b++) { /* two lists, each without one save */
            struct hth_keep k = all, other = all;
            uint32_t left = a == b ? 2 : 3;

            hth_keep_leave(&k, a);
            hth_keep_leave(&other, b);
            hth_keep_unite(&k, &other);
            cr_assert(eq(u32, k.saves, left));
            for (int i = 0; i < 3; i++) {
                int at = hth_keep_at(&k, all.save[i]);

                cr_assert(eq(int, at < 0, a == b && a == i));
                if (at < 0)
                    continue;
                cr_assert(eq(int, at, i - (a == b && a < i)));
                cr_assert(eq(u64, k.since_ms[at], all.since_ms[i]));
                cr_assert(eq(int, hth_keep_pinned(&k, at), hth_keep_pinned(&all, i)));
                cr_assert(eq(int, hth_keep_degraded(&k, at), hth_keep_degraded(&all, i)));
            }
        }
}
