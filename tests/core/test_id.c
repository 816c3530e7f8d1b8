/* SPDX-License-Identifier: Apache-2.0 */
/* Saves as text and in order; names that become paths. */
#include "check.h"

#include "core/base/id.h"

Test(id, saves_are_ordered_by_epoch_nonce_step_attempt)
{
    static const struct hth_save_id in_order[] = {
        { .epoch = 1, .nonce = 9, .step = 9, .attempt = 9 },
        { .epoch = 2, .nonce = 1, .step = 9, .attempt = 9 },
        { .epoch = 2, .nonce = 2, .step = 0, .attempt = 9 },
        { .epoch = 2, .nonce = 2, .step = UINT64_MAX, .attempt = 0 },
        { .epoch = 2, .nonce = 2, .step = UINT64_MAX, .attempt = 1 },
    };

    for (size_t i = 0; i < 5; i++)
        for (size_t j = 0; j < 5; j++) {
            int c = hth_save_cmp(in_order[i], in_order[j]);

            cr_assert(eq(int, (c > 0) - (c < 0), (i > j) - (i < j)));
        }
}

Test(id, a_save_of_an_epoch_that_no_job_reaches_is_older_than_all_others)
{
    static const struct hth_save_id none = { 0 }, low = { .epoch = 5 },
                                    high = { .epoch = HTH_EPOCH_MOST },
                                    bad = { .epoch = HTH_EPOCH_MOST + 1 },
                                    worse = { .epoch = UINT64_MAX };

    cr_assert(lt(int, hth_save_cmp(low, high), 0));
    cr_assert(lt(int, hth_save_cmp(bad, low), 0));
    cr_assert(gt(int, hth_save_cmp(low, worse), 0));
    cr_assert(lt(int, hth_save_cmp(bad, worse), 0));
    cr_assert(lt(int, hth_save_cmp(none, bad), 0));
}

Test(id, a_save_reads_back_from_its_text)
{
    struct hth_save_id in = {
        .epoch = 0x123456789abcdef0, .nonce = UINT64_MAX, .step = 7, .attempt = 0xfffffffe
    };
    struct hth_save_id out;
    char text[HTH_SAVE_TEXT];

    hth_save_text(in, text);
    must_say(text, "123456789abcdef0-ffffffffffffffff-0000000000000007-fffffffe");
    cr_assert(eq(sz, strlen(text) + 1, (size_t)HTH_SAVE_TEXT));
    must(hth_save_parse(text, &out));
    cr_assert(eq(int, hth_save_cmp(in, out), 0));
}

Test(id, a_save_text_with_any_other_character_is_refused)
{
    struct hth_save_id save = { .epoch = 1, .nonce = 2, .step = 3, .attempt = 4 }, out;
    char text[HTH_SAVE_TEXT], bent[HTH_SAVE_TEXT + 1];

    hth_save_text(save, text);
    for (size_t i = 0; i < sizeof(text) - 1; i++) {
        strcpy(bent, text);
        bent[i] = 'G';
        must_fail(hth_save_parse(bent, &out), HEARTH_EINVAL);
        bent[i] = '\0';
        must_fail(hth_save_parse(bent, &out), HEARTH_EINVAL);
    }
    strcpy(bent, text);
    strcat(bent, "0");
    must_fail(hth_save_parse(bent, &out), HEARTH_EINVAL);
}

Test(id, step_directories_have_one_spelling)
{
    static const char *const bad[] = { "", "step-", "step-_ckpt", "step-01_ckpt", "step-1_ckpt2",
        "step-+1_ckpt", "step--1_ckpt", "step-1", "Step-1_ckpt", "step-1_ckpt__0__unfinished",
        "step-18446744073709551616_ckpt", "step-99999999999999999999_ckpt", "step- 1_ckpt",
        "step-1x_ckpt" };
    uint64_t step = 5;

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        must_fail(hth_step_dir_parse(bad[i], &step), HEARTH_EINVAL);
    cr_assert(eq(u64, step, 5));
    must(hth_step_dir_parse("step-0_ckpt", &step));
    cr_assert(eq(u64, step, 0));
    must(hth_step_dir_parse("step-1200_ckpt", &step));
    cr_assert(eq(u64, step, 1200));
    must(hth_step_dir_parse("step-18446744073709551615_ckpt", &step));
    cr_assert(eq(u64, step, UINT64_MAX));
}

Test(id, step_directories_of_others_may_have_leading_zeros)
{
    static const char *const bad[] = { "", "step-", "step-_ckpt", "step-01_ckpt2", "step-+1_ckpt",
        "step-00_ckpt__0__unfinished", "step-0x_ckpt", "step-018446744073709551616_ckpt" };
    static const char *const twelve[] = { "step-12_ckpt", "step-012_ckpt", "step-0000000012_ckpt" };
    uint64_t step = 5;

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        must_fail(hth_step_dir_theirs(bad[i], &step), HEARTH_EINVAL);
    cr_assert(eq(u64, step, 5));
    for (size_t i = 0; i < sizeof(twelve) / sizeof(twelve[0]); i++, step = 5) {
        must(hth_step_dir_theirs(twelve[i], &step));
        cr_assert(eq(u64, step, 12));
    }
    must(hth_step_dir_theirs("step-00_ckpt", &step));
    cr_assert(eq(u64, step, 0));
}

Test(id, names_that_could_leave_a_directory_are_refused)
{
    static const char *const bad[] = { "", ".", "..", "a/b", "a b", "a\n", "\xc3\xa4", "a*", "/etc",
        "a\\b", "0123456789012345678901234567890123456789012345678901234567890123x" };
    struct hearth_error err;

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        must_fail(hth_job_check(bad[i], &err), HEARTH_EINVAL);
        must_fail(hth_node_check(bad[i], &err), HEARTH_EINVAL);
        must_fail(hth_object_name_check(bad[i], &err), HEARTH_EINVAL);
    }
    must_fail(hth_job_check(".hidden", &err), HEARTH_EINVAL);
    cr_assert(ne(ptr, strstr(err.text, "job"), NULL));
    must_fail(hth_node_check(".n", NULL), HEARTH_EINVAL);
    must_fail(hth_object_name_check("x.tmp", &err), HEARTH_EINVAL);
    must_fail(hth_object_name_check(".tmp", &err), HEARTH_EINVAL);
}

Test(id, names_of_64_plain_bytes_are_allowed)
{
    static const char long_name[] =
            "012345678901234567890123456789012345678901234567890123456789.-_x";

    must(hth_job_check(long_name, NULL));
    must(hth_node_check("node-17.rack3", NULL));
    must(hth_object_name_check(long_name, NULL));
    must(hth_object_name_check("__0__0_src0.distcp", NULL));
    must(hth_object_name_check(".metadata", NULL));
    must(hth_object_name_check("tmp", NULL));
}

Test(id, foreign_names_are_any_one_component)
{
    char name[300];

    memset(name, 'a', sizeof(name));
    name[255] = '\0';
    must(hth_foreign_name_check(name, NULL));
    name[255] = 'a';
    name[256] = '\0';
    must_fail(hth_foreign_name_check(name, NULL), HEARTH_EINVAL);
    must(hth_foreign_name_check("a b\xff", NULL));
    must_fail(hth_foreign_name_check("a/b", NULL), HEARTH_EINVAL);
    must_fail(hth_foreign_name_check("..", NULL), HEARTH_EINVAL);
    must_fail(hth_foreign_name_check("", NULL), HEARTH_EINVAL);
}

Test(id, a_link_into_the_buffers_has_the_job_before_and_one_name_behind)
{
    static const char *const others[] = { "/root/job/buffer_pool/", "/root/job/buffer_pool/..",
        "/root/job/buffer_pool/a/b", "/root/job/buffer_pool", "/root/job/../buffer_pool/a",
        "/root/jobs/buffer_pool/a", "buffer_pool/a", "/buffer_pool/a", "/root/job/buffer_pools/a",
        "" };

    must_say(hth_foreign_buffer("/root/job/buffer_pool/a b", "/root/job"), "a b");
    must_say(hth_foreign_buffer("../buffer_pool/a", ".."), "a");
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        cr_assert(eq(int, hth_foreign_buffer(others[i], "/root/job") != NULL, 0), "%s", others[i]);
    cr_assert(eq(int, hth_foreign_buffer("/buffer_pool/a", "") != NULL, 0));
}
