/* SPDX-License-Identifier: Apache-2.0 */
/* Opening what is there: containers that another program made. */
#include "adopt_rig.h"

TestSuite(adopt_foreign, .init = setup, .fini = teardown);

static void foreign_container(void)
{
    char link[512];

    must(open_store(NULL));
    close_store();
    must(mkdir(at("step-5_ckpt"), 0755));
    must(mkdir(at("buffer_pool"), 0755));
    put("step-5_ckpt/.metadata", "pickle", 6);
    put("step-5_ckpt/half.tmp", "half", 4);
    put("step-5_ckpt/obj.lock", "", 0);
    put("buffer_pool/buffer_0_0.dist", "BUFFER", 6);
    put("outside", "secret", 6);
    snprintf(link, sizeof(link), "%s/job/buffer_pool/buffer_0_0.dist", root);
    must(symlink(link, at("step-5_ckpt/__0__0_src0.distcp")));
    snprintf(link, sizeof(link), "%s/job/buffer_pool/../outside", root);
    must(symlink(link, at("step-5_ckpt/up")));
    snprintf(link, sizeof(link), "%s/job/outside", root);
    must(symlink(link, at("step-5_ckpt/beside")));
    must(symlink("/etc/passwd", at("step-5_ckpt/passwd")));
    must(symlink("/etc/passwd", at("buffer_pool/evil")));
    must(symlink("../buffer_pool/evil", at("step-5_ckpt/twice")));
}

Test(adopt_foreign, a_foreign_container_is_found_with_what_it_may_show)
{
    struct seen seen;
    struct hth_slot *slot;
    char name[64];

    foreign_container();
    must(open_store(NULL));
    seen = scan();
    cr_assert(eq(int, seen.count, 2));
    cr_assert(eq(u64, found(&seen, ".metadata")->save.epoch, 0));
    slot = found(&seen, "__0__0_src0.distcp")->slot;
    cr_assert(eq(u64, slot->capacity, 6));
    cr_assert(zero(int, memcmp(slot->base, "BUFFER", 6)));
    cr_assert(in_dir(&seen, ".metadata", "step-5_ckpt"));
    cr_assert(eq(int, scan().count, 2)); /* a second scan says the same */

    snprintf(name, sizeof(name), ".hearth/pool/%016" PRIx64, slot->id);
    s->ops->lease(s, slot);
    s->ops->give(s, slot); /* the link goes, never the buffer, and it does not join the pool */
    cr_assert(zero(int, access(at("buffer_pool/buffer_0_0.dist"), F_OK)));
    cr_assert(ne(int, access(at("step-5_ckpt/__0__0_src0.distcp"), F_OK), 0));
    cr_assert(ne(int, access(at(name), F_OK), 0));
    cr_assert(eq(int, scan().count, 1));
    cr_assert(zero(int, memcmp(slot->base, "BUFFER", 6))); /* for who reads it still */
    s->ops->unlease(s, slot);
}

Test(adopt_foreign, a_foreign_container_with_a_marker_beside_it_is_left_out)
{
    struct seen seen;

    foreign_container();
    put("step-5_ckpt__3__unfinished", "", 0);
    must(open_store(NULL));
    seen = scan(); /* of its marker is told, of its files not */
    cr_assert(eq(int, seen.count, 1));
    cr_assert(eq(int, seen.f[0].unfinished, 1));
    cr_assert(eq(ptr, seen.f[0].slot, NULL));
    must_say(seen.dir[0], "step-5_ckpt");
    cr_assert(strstr(said, "its writer has not finished it") != NULL);
}

static void foreign_file(const char *dir, const char *name)
{
    char path[128];

    (void)mkdir(at(dir), 0700);
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    put(path, "x", 1);
}

/* ml-flashpoint takes all of them for step 5; of two, files of both would be one container's. */
Test(adopt_foreign, a_foreign_container_may_have_leading_zeros_if_it_is_alone)
{
    struct seen seen;

    cr_assert(zero(int, mkdir(at(""), 0700)));
    foreign_file("step-005_ckpt", "a");
    foreign_file("step-06_ckpt", "b");
    foreign_file("step-6_ckpt", "c");
    foreign_file("step-07_ckpt", "d");
    foreign_file("step-007_ckpt", "d");
    put("step-09_ckpt__0__unfinished", "", 0);
    must(open_store(NULL));
    for (int i = 0; i < 2; i++) { /* a second scan says the same */
        seen = scan();
        cr_assert(eq(int, seen.count, 4));
        cr_assert(in_dir(&seen, "a", "step-005_ckpt"));
        cr_assert(in_dir(&seen, "c", "step-6_ckpt"));
        cr_assert(ne(int, in_dir(&seen, "d", "step-07_ckpt"), in_dir(&seen, "d", "step-007_ckpt")));
        cr_assert(eq(int, seen.f[3].unfinished, 1));
    }
    cr_assert(strstr(said, "step-06_ckpt is left alone: another container") != NULL, "%s", said);
}

Test(adopt_foreign, a_save_of_our_own_under_a_name_with_zeros_is_left_alone)
{
    must(open_store(NULL));
    sealed(save_a, "a", 77);
    must(s->ops->publish(s, save_a, NULL));
    close_store();
    cr_assert(zero(int, rename(at("step-40_ckpt"), at("step-040_ckpt"))));
    must(open_store(NULL));
    cr_assert(zero(int, scan().count));
    cr_assert(strstr(said, "under another name") != NULL, "%s", said);
}

Test(adopt_foreign, a_foreign_container_is_never_replaced)
{
    struct hearth_error err;

    foreign_container();
    must(open_store(NULL));
    scan();
    must(raw_put(s, (struct hth_save_id){ 7, 11, 5, 1 }, "raw", "x", 1, NULL));
    must_fail(s->ops->publish(s, (struct hth_save_id){ 7, 11, 5, 1 }, &err), HEARTH_EEXIST);
    cr_assert(strstr(err.text, "is not Hearth's") != NULL, "%s", err.text);
}
