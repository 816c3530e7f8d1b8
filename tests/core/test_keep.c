/* SPDX-License-Identifier: Apache-2.0 */
/* The keep record: what goes in comes out, and nothing else is taken. */
#include "damaged.h"

#include "core/base/auth.h"
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
        .trying = 1,
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
    cr_assert(eq(u32, back.trying, 1));
    k.saves = HTH_KEEP_MAX;
    hth_keep_encode(&k, bytes);
    must(hth_keep_decode(&back, bytes, sizeof(bytes), NULL));
}

Test(keep, all_places_for_marks_and_the_save_that_is_tried_fit_in_one_keep_record)
{
    struct hth_keep k = keep_of(), back;
    unsigned char bytes[HTH_KEEP_BYTES];

    must(hth_auth_init(NULL));
    hth_keep_begun(&k);
    for (uint64_t step = 100; step < 140; step++)
        hth_keep_mark(&k, (struct hth_save_id){ 3, 1, step, 1 }, 1);
    cr_assert(eq(u32, k.bads, HTH_KEEP_BADS));
    hth_keep_try(&k, k.save[0]);
    hth_keep_encode(&k, bytes);
    must(hth_keep_decode(&back, bytes, sizeof(bytes), NULL));
    cr_assert(eq(int, hth_keep_is_bad(&back, (struct hth_save_id){ 3, 1, 139, 1 }), 1));
    cr_assert(eq(int, hth_keep_is_bad(&back, k.save[0]), 0));
    cr_assert(eq(int, hth_save_cmp(back.tried, k.save[0]), 0));
    k.bads = HTH_KEEP_MAX; /* as version 3 could have */
    k.bad[HTH_KEEP_BADS] = k.save[1];
    hth_keep_begun(&k);
    hth_keep_encode(&k, bytes);
    must(hth_keep_decode(&back, bytes, sizeof(bytes), NULL));
    cr_assert(eq(int, hth_keep_is_bad(&back, k.save[1]), 1));
    hth_keep_try(&back, k.save[0]);
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
    hth_keep_encode(&k, bytes);
    bytes[40] = 4; /* the third of two is degraded */
    hth_digest(bytes + HTH_KEEP_BYTES - HTH_DIGEST, bytes, HTH_KEEP_BYTES - HTH_DIGEST);
    must_fail(decode_keep(bytes, sizeof(bytes)), HEARTH_ECORRUPT);
}
