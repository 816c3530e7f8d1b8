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
    cr_assert(zero(int, memcmp(slot->base, "BUFFER", 6))); /* for a rank that still reads it */
    s->ops->unlease(s, slot);
}

Test(adopt_foreign, a_foreign_container_with_a_marker_beside_it_is_left_out)
{
    struct seen seen;

    foreign_container();
    put("step-5_ckpt__3__unfinished", "", 0);
    must(open_store(NULL));
    seen = scan(); /* its marker is reported, its files are not */
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
    must_fail(s->ops->vacant(s, (struct hth_save_id){ 7, 11, 5, 1 }, &err), HEARTH_EEXIST);
    cr_assert(strstr(err.text, "step 5 (epoch 7") != NULL, "%s", err.text);
    cr_assert(
            strstr(err.text, "/job/step-5_ckpt is there and not Hearth's") != NULL, "%s", err.text);
    must(s->ops->vacant(s, (struct hth_save_id){ 7, 11, 6, 1 }, NULL));
    must_fail(s->ops->publish(s, (struct hth_save_id){ 7, 11, 5, 1 }, &err), HEARTH_EEXIST);
    cr_assert(strstr(err.text, "is not Hearth's") != NULL, "%s", err.text);
}

/* ---- Their writer goes on -------------------------------------------------------------------- */

static struct seen anew(void)
{
    struct seen seen = { .count = 0 };

    must(s->ops->theirs(s, see, &seen, NULL));
    return seen;
}

/* A step whose one object is a link to a buffer. */
static void link_step(const char *dir, const char *buffer)
{
    char link[512], name[64];

    must(mkdir(at(dir), 0755));
    snprintf(link, sizeof(link), "%s/job/buffer_pool/%s", root, buffer);
    snprintf(name, sizeof(name), "%s/__0__0_src0.distcp", dir);
    must(symlink(link, at(name)));
}

/* Through a mapping that is kept: neither its length nor its times change. */
static void write_mapped(unsigned char *map, const char *text)
{
    memcpy(map, text, strlen(text));
}

static unsigned char *pool_of_step_5(void)
{
    unsigned char *map;
    int fd;

    must(open_store(NULL));
    close_store();
    must(mkdir(at("buffer_pool"), 0755));
    put("buffer_pool/b", "0123456789abcdefBUFFER", 22);
    fd = open(at("buffer_pool/b"), O_RDWR);
    map = mmap(NULL, 22, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    cr_assert(ne(ptr, map, MAP_FAILED));
    write_mapped(map, "0123456789abcdefBUFFER"); /* the page can be written from here on */
    link_step("step-5_ckpt", "b");
    must(open_store(NULL));
    return map;
}

Test(adopt_foreign, containers_are_looked_at_anew)
{
    unsigned char *map = pool_of_step_5();
    struct seen seen = scan();
    struct hth_slot *old = found(&seen, "__0__0_src0.distcp")->slot;
    struct hth_slot *own = sealed(save_a, "a", 77);

    s->ops->lease(s, old);
    must(unlink(at("step-5_ckpt/__0__0_src0.distcp")));
    must(rmdir(at("step-5_ckpt")));
    write_mapped(map, "0123456789abcdefSECOND");
    link_step("step-6_ckpt", "b");
    for (int i = 0; i < 2; i++) {
        seen = anew();
        cr_assert(eq(int, seen.count, 1)); /* and nothing of Hearth's own */
        cr_assert(in_dir(&seen, "__0__0_src0.distcp", "step-6_ckpt"));
        cr_assert(zero(int, memcmp(seen.f[0].slot->base + 16, "SECOND", 6)));
    }
    cr_assert(ne(int, old->base[16], 0)); /* it is read still */
    s->ops->unlease(s, old);
    cr_assert(eq(int, own->base[HTH_BLOCK], 77));
    cr_assert(eq(int, scan().count, 2));
    munmap(map, 22);
}

static void must_have_changed(const struct hth_slot *slot, const char *how)
{
    struct hearth_error err;

    must_fail(s->ops->same(s, slot, &err), HEARTH_ELOST);
    cr_assert(strstr(err.text, "__0__0_src0.distcp") != NULL, "%s", err.text);
    cr_assert(strstr(err.text, how) != NULL, "%s", err.text);
}

Test(adopt_foreign, a_file_that_has_changed_is_told_by_name)
{
    unsigned char *map = pool_of_step_5();
    struct seen seen = scan();
    const struct hth_slot *slot = found(&seen, "__0__0_src0.distcp")->slot;

    must(s->ops->same(s, slot, NULL));
    write_mapped(map, "________"); /* the length that its block says */
    must_have_changed(slot, "it was written to");
    write_mapped(map, "01234567");
    must(s->ops->same(s, slot, NULL));

    must(rename(at("step-5_ckpt/__0__0_src0.distcp"), at("kept"))); /* the link alone is gone */
    must_have_changed(slot, "it was removed");
    must(symlink("../buffer_pool/b", at("step-5_ckpt/__0__0_src0.distcp")));
    must_have_changed(slot, "another file has its name");

    slot = anew().f[0].slot;
    put("buffer_pool/b", "x", 1);
    must_have_changed(slot, "it has another length");
    slot = anew().f[0].slot;
    put("buffer_pool/b", "y", 1);
    must_have_changed(slot, "it was written to");
    munmap(map, 22);
}

Test(adopt_foreign, an_object_of_our_own_is_never_asked_about)
{
    must(open_store(NULL));
    must(s->ops->same(s, sealed(save_a, "a", 77), NULL));
}
