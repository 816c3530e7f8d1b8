/* SPDX-License-Identifier: Apache-2.0 */
/* Containers in ml-flashpoint's layout, recovered by two hearthd over loopback: two roots, two
 * nodes. The expected items stand beside the containers, in expected.json. */
#include "foreign_rig.h"

/* ---- Tests
 * ------------------------------------------------------------------------------------ */

Test(foreign, both_ranks_read_what_one_node_has)
{
    struct hearth_item item = { .struct_size = sizeof(item) };
    struct hearth_view view = { .struct_size = sizeof(view) };
    void *bytes;
    size_t len;

    start();
    put(0, 12);
    put(0, 7);
    recover_step(12);
    check_all(12);
    cr_assert(eq(u64, one[0].info.epoch, 0));
    cr_assert(eq(u64, one[0].info.pulled_bytes, 0));
    cr_assert(gt(u64, one[1].info.pulled_bytes, 80000));
    cr_assert(ne(ptr, strstr(one[1].info.text, "unprotected"), NULL), "%s", one[1].info.text);
    must_fail(hearth_read_common(one[1].c, "metadata.json", &bytes, &len, NULL), HEARTH_ENOENT);
    cr_assert(eq(sz, check(&one[1], 12, 1), 13)); /* the others' are brought */
    must(hearth_item_at(one[1].c, 0, 0, &item, NULL));
    must(hearth_view_open(one[1].c, &item, &view, NULL));
    cr_assert(eq(u64, view.bytes, item.bytes));
    hearth_view_close(one[1].h, &view);
    end();
}

/* Every node reads of this file what node 0's has at this offset. */
static void all_read(const char *name, long at)
{
    unsigned char want[600], got[600];
    struct hearth_range range = { sizeof(range), name, 0, sizeof(got), got };
    char path[256];
    FILE *f;

    snprintf(path, sizeof(path), "%s/job/step-12_ckpt/%s", one[0].root, name);
    f = fopen(path, "re");
    cr_assert(ne(ptr, f, NULL));
    fseek(f, at, SEEK_SET);
    cr_assert(eq(sz, fread(want, 1, sizeof(want), f), sizeof(want)));
    fclose(f);
    recover_step(12);
    for (int i = 0; i < NODES; i++) {
        memset(got, 0, sizeof(got));
        cr_assert(eq(int, hearth_read_ranges(one[i].c, &range, 1, &one[i].err), 0), "%s",
                one[i].err.text);
        cr_assert(zero(int, memcmp(got, want, sizeof(got))));
    }
    end();
}

Test(foreign, a_file_without_a_block_is_read_from_its_first_byte)
{
    static const char name[] = "__1__1_src1.distcp";
    char path[256];

    start();
    put(0, 12);
    snprintf(path, sizeof(path), "%s/job/step-12_ckpt/%s", one[0].root, name);
    sh("tail -c +4097 %s > %s.new && mv %s.new %s", path, path, path, path);
    all_read(name, 0);
}

/* One tensor in a zip of torch.save, and a `.metadata` that says so. */
static void put_zips(uint32_t node, const char *from)
{
    static const char *const name[NODES] = { "__0__0_src0.distcp", "__1__0_src1.distcp" };
    static const int64_t shape[2] = { 4, 3 };
    struct hearth_metadata_writer *w;
    struct hearth_piece piece = { .struct_size = sizeof(piece),
        .key_len = 2,
        .dtype = HEARTH_FLOAT32,
        .ndim = 2,
        .shape = shape };
    char path[128];
    void *bytes;
    size_t len;
    FILE *f;

    sh("mkdir -m 700 %s/job/step-3_ckpt", one[node].root);
    must(hearth_metadata_write(NULL, NULL, &w, NULL));
    for (int i = 0; i < NODES; i++) {
        sh("cp %s %s/job/step-3_ckpt/%s", from, one[node].root, name[i]);
        piece.key = i ? "k1" : "k0";
        must(hearth_metadata_add_piece(w, &piece, name[i], 0, 1577, NULL));
    }
    must(hearth_metadata_finish(w, &bytes, &len, NULL));
    snprintf(path, sizeof(path), "%s/job/step-3_ckpt/.metadata", one[node].root);
    f = fopen(path, "we");
    cr_assert(eq(sz, f ? fwrite(bytes, 1, len, f) : 0, len));
    fclose(f);
    hearth_free(bytes);
}

/* Up to v0.0.4 ml-flashpoint wrote a block with a length and no signature. */
Test(foreign, an_object_without_a_signature_is_read_behind_its_block)
{
    char from[64] = "/dev/shm/hearth-foreign-zip-XXXXXX";
    struct hearth_item item = { .struct_size = sizeof(item) };
    unsigned char want[1577], got[1577];
    struct hearth_range range = { sizeof(range), "__1__0_src1.distcp", 0, sizeof(got), got };
    FILE *f;

    start();
    close(mkstemp(from));
    sh("cp %s/legacy/one_float32.distcp %s && chmod u+w %s && "
       "dd if=/dev/zero of=%s bs=1 seek=8 count=8 conv=notrunc 2>/dev/null",
            data(), from, from, from);
    f = fopen(from, "re");
    cr_assert(ne(ptr, f, NULL));
    fseek(f, 4096, SEEK_SET);
    cr_assert(eq(sz, fread(want, 1, sizeof(want), f), sizeof(want)));
    fclose(f);
    put_zips(0, from);
    unlink(from);
    recover_step(3);
    for (int i = 0; i < NODES; i++) {
        memset(got, 0, sizeof(got));
        cr_assert(eq(int, hearth_read_ranges(one[i].c, &range, 1, &one[i].err), 0), "%s",
                one[i].err.text);
        cr_assert(zero(int, memcmp(got, want, sizeof(got))));
        must(hearth_item_in(one[i].c, "__1__0_src1.distcp", 0, &item, NULL));
        cr_assert(eq(u64, item.bytes, sizeof(want)));
    }
    end();
}

Test(foreign, saves_go_on_and_hearths_own_come_first)
{
    char own[HTH_SAVE_TEXT], dir[128];

    start();
    put(0, 12);
    recover_step(12);
    hth_save_text(hth_save_of_foreign(12), own);
    snprintf(dir, sizeof(dir), ".hearth/%s", own);
    cr_assert(is_there(one[1].root, dir));
    if (getenv("HEARTH_TEST_BIN"))
        sh("%s/hearth verify --root %s job > /dev/null", getenv("HEARTH_TEST_BIN"), one[1].root);
    for (uint64_t step = 13; step < 16; step++) {
        one[0].step = one[1].step = step;
        all(save);
    }
    cr_assert(not(is_there(one[1].root, dir)));
    cr_assert(is_there(one[0].root, "step-12_ckpt/__1__1_src1.distcp"));
    cr_assert(is_there(one[0].root, "step-12_ckpt/.metadata"));
    leave();
    recover_step(15);
    cr_assert(gt(u64, one[0].info.epoch, 1));
    end();
}

Test(foreign, a_file_that_is_on_no_node_is_named)
{
    start();
    put(0, 12);
    put(1, 12);
    sh("rm %s/job/step-12_ckpt/__1__1_src1.distcp %s/job/step-12_ckpt/__1__1_src1.distcp",
            one[0].root, one[1].root);
    all(run);
    for (int i = 0; i < NODES; i++) {
        cr_assert(eq(int, one[i].rc, HEARTH_ELOST), "%s", one[i].err.text);
        cr_assert(ne(ptr, strstr(one[i].err.text, "__1__1_src1.distcp"), NULL), "%s",
                one[i].err.text);
        cr_assert(ne(ptr, strstr(one[i].err.text, "step 12"), NULL), "%s", one[i].err.text);
    }
    end();
}

Test(foreign, where_metadata_names_no_files_every_rank_must_have_one)
{
    start();
    put(0, 12);
    sh("cd %s/job/step-12_ckpt && rm __0__*_src0.distcp && printf '\\200\\004N.' > .metadata",
            one[0].root);
    all(run);
    for (int i = 0; i < NODES; i++) {
        cr_assert(eq(int, one[i].rc, HEARTH_ELOST), "%s", one[i].err.text);
        cr_assert(ne(ptr, strstr(one[i].err.text, "a whole file of rank 0"), NULL), "%s",
                one[i].err.text);
    }
    end();
}

/* As `.metadata` says it, whatever its names look like. The name is as long as the old one. */
static void rename_file(const char *root, const char *to)
{
    sh("cd %s/job/step-12_ckpt && sed -i 's/" RENAMED "/%s/g' .metadata && mv " RENAMED " '%s'",
            root, to, to);
}

/* Another class in it than we know. */
static void spoil_metadata(const char *root)
{
    sh("cd %s/job/step-12_ckpt && sed -i 's/TensorStorageMetadata/TensorStorageMetalata/' .metadata",
            root);
}

Test(foreign, a_file_may_be_called_otherwise)
{
    start();
    put(0, 12);
    rename_file(one[0].root, "part-src1.safetens");
    all_read("part-src1.safetens", 4096);
}

Test(foreign, a_file_with_any_name_is_missed)
{
    static const char *const name[] = { "shard-b_and.more-x", "shard-b and more-x" };

    for (int k = 0; k < 2; k++) {
        start();
        put(0, 12);
        rename_file(one[0].root, name[k]);
        if (k == 0)
            sh("rm %s/job/step-12_ckpt/shard*", one[0].root);
        all(run);
        cr_assert(eq(int, one[1].rc, HEARTH_ELOST), "%s", one[1].err.text);
        cr_assert(ne(ptr, strstr(one[1].err.text, name[k]), NULL), "%s", one[1].err.text);
        cr_assert(ne(ptr, strstr(one[1].err.text, k ? "cannot hold" : "no node has, whole"), NULL),
                "%s", one[1].err.text);
        end();
    }
}

/* All items there are; *out_nobodys: those of the object `name` that no rank owns. */
static size_t list(struct one *o, const char *name, size_t *out_nobodys)
{
    struct hearth_item item = { .struct_size = sizeof(item) };
    size_t count = 0;

    *out_nobodys = 0;
    while (!hearth_item_at(o->c, 1, count, &item, &o->err)) {
        *out_nobodys += item.owner == UINT32_MAX && !strcmp(item.object, name);
        count++;
    }
    cr_assert(eq(int, o->err.code, HEARTH_ENOENT), "%s", o->err.text);
    return count;
}

/* Names that say no rank; the second is found in a `.metadata` that is not understood. */
Test(foreign, what_metadata_names_is_listed_and_read_even_if_it_is_nobodys)
{
    static const char *const name[] = { RENAMED, "shard-b_and.more-x", "__b__1_srcb.distcp" };
    size_t all = 0, nobodys;

    for (int k = 0; k < 3; k++) {
        start();
        put(0, 12);
        if (k) {
            rename_file(one[0].root, name[k]);
            renamed = name[k];
        }
        if (k == 2)
            spoil_metadata(one[0].root);
        for (int again = 0; again < 2; again++) { /* with engines that know what was brought */
            recover_step(12);
            for (int i = NODES - 1; i >= 0; i--) {
                size_t listed = list(&one[i], name[k], &nobodys);

                all = k ? all : listed; /* as many as under a rank's name, nothing more */
                cr_assert(eq(sz, listed, all));
                cr_assert(k ? nobodys > 0 : nobodys == 0);
                cr_assert(eq(sz, check(&one[i], 12, 1), 13));
                check_common(&one[i], 12, "common.pt");
            }
            leave();
        }
        end();
    }
    renamed = NULL;
}

Test(foreign, an_error_about_a_file_of_nobodys_names_no_rank)
{
    static const char name[] = "shard-b_and.more-x";
    struct hearth_item item = { .struct_size = sizeof(item) };
    unsigned char byte;
    struct hearth_range range = { sizeof(range), name, UINT64_C(1) << 40, 1, &byte };

    start();
    put(0, 12);
    rename_file(one[0].root, name);
    recover_step(12);
    must_fail(hearth_read_ranges(one[1].c, &range, 1, &one[1].err), HEARTH_EINVAL);
    cr_assert(eq(ptr, strstr(one[1].err.text, "rank"), NULL), "%s", one[1].err.text);
    must_fail(hearth_item_in(one[1].c, name, 1, &item, &one[1].err), HEARTH_ENOENT);
    cr_assert(eq(ptr, strstr(one[1].err.text, "rank"), NULL), "%s", one[1].err.text);
    cr_assert(ne(ptr, strstr(one[1].err.text, name), NULL), "%s", one[1].err.text);
    end();
}

/* The names of its files are still found. */
Test(foreign, a_metadata_that_is_not_understood_still_names_its_files)
{
    start();
    put(0, 12);
    spoil_metadata(one[0].root);
    recover_step(12);
    leave();
    sh("rm -f %s/job/step-12_ckpt/__1__1_src1.distcp", one[0].root);
    sh("rm -rf %s/job/.hearth/*", one[1].root);
    all(run);
    cr_assert(eq(int, one[1].rc, HEARTH_ELOST), "%s", one[1].err.text);
    cr_assert(ne(ptr, strstr(one[1].err.text, "__1__1_src1.distcp"), NULL), "%s", one[1].err.text);
    end();
}

Test(foreign, a_torn_file_counts_as_missing)
{
    start();
    put(0, 12);
    sh("truncate -s 5000 %s/job/step-12_ckpt/__0__1_src0.distcp", one[0].root);
    all(run);
    cr_assert(eq(int, one[1].rc, HEARTH_ELOST), "%s", one[1].err.text);
    cr_assert(ne(ptr, strstr(one[1].err.text, "__0__1_src0.distcp"), NULL), "%s", one[1].err.text);
    end();
}

Test(foreign, without_metadata_the_older_step_is_taken)
{
    start();
    put(0, 12);
    put(1, 7);
    sh("rm %s/job/step-12_ckpt/.metadata", one[0].root);
    recover_step(7);
    check_all(7);
    end();
}

/* A line that waits for this rank, as a warning. */
static void must_hear(const struct one *o, const char *line)
{
    uint32_t level = 0;
    char text[1024] = "";

    while (strcmp(text, line) != 0)
        cr_assert(eq(int, hearth_log_poll(o->h, &level, text, sizeof(text)), 1), "%s", line);
    cr_assert(eq(u32, level, HEARTH_LOG_WARN));
}

Test(foreign, an_unfinished_marker_on_any_node_rules_a_step_out)
{
    start();
    put(0, 12);
    put(0, 7);
    put(1, 12);
    sh("mkdir %s/job/step-12_ckpt__0__unfinished", one[1].root);
    recover_step(7);
    for (int i = 0; i < NODES; i++)
        must_hear(&one[i], "ruled-out: step 12 is not considered: node node-b has an unfinished "
                           "marker of it");
    check_all(7);
    end();
}

Test(foreign, links_into_the_buffer_pool_are_followed)
{
    start();
    put(0, 12);
    sh("cd %s/job && mkdir buffer_pool && cd step-12_ckpt && n=0 && for f in *.distcp; do "
       "mv $f ../buffer_pool/buffer_0_$n.dist && ln -s %s/job/buffer_pool/buffer_0_$n.dist $f; "
       "n=$((n+1)); done",
            one[0].root, one[0].root);
    recover_step(12);
    check_all(12);
    end();
}

/* A trainer that starts again writes into the buffers of the step that it has just recovered. */
Test(foreign, a_buffer_that_was_written_again_is_not_of_the_older_step)
{
    start();
    put(0, 12);
    put(1, 12);
    sh("cd %s/job && mkdir buffer_pool step-13_ckpt step-13_ckpt__0__unfinished && cd step-12_ckpt && "
       "mv __0__0_src0.distcp ../buffer_pool/b && ln -s %s/job/buffer_pool/b __0__0_src0.distcp && "
       "sleep 0.01 && ln -s %s/job/buffer_pool/b ../step-13_ckpt/__0__0_src0.distcp && "
       "printf XXXXXXXX | dd of=../buffer_pool/b bs=1 seek=4640 conv=notrunc 2>/dev/null",
            one[0].root, one[0].root, one[0].root);
    recover_step(12);
    check_all(12);
    end();
}

/* The `.metadata` as text. Two of them differ in a name that no reader looks up. */
static const char *metadata_of(struct one *o)
{
    static char text[8192];
    void *bytes;
    size_t len;

    cr_assert(eq(int, hearth_read_common(o->c, ".metadata", &bytes, &len, &o->err), 0), "%s",
            o->err.text);
    cr_assert(lt(sz, len, sizeof(text)));
    for (size_t i = 0; i < len; i++)
        text[i] = ((char *)bytes)[i] ? ((char *)bytes)[i] : ' ';
    text[len] = '\0';
    hearth_free(bytes);
    return text;
}

Test(foreign, what_was_brought_comes_before_what_was_not_chosen)
{
    start();
    put(0, 12);
    put(1, 12);
    sh("cd %s/job/step-12_ckpt && sed -i 's/memwritersave_/memwritersavx_/' .metadata",
            one[1].root);
    recover_step(12);
    for (int i = 0; i < NODES; i++)
        cr_assert(ne(ptr, strstr(metadata_of(&one[i]), "memwritersave_"), NULL));
    leave();
    sh("rm %s/job/step-12_ckpt/.metadata", one[0].root);
    recover_step(12);
    for (int i = 0; i < NODES; i++)
        cr_assert(ne(ptr, strstr(metadata_of(&one[i]), "memwritersave_"), NULL));
    end();
}

Test(foreign, what_was_brought_is_known_to_the_next_engine)
{
    start();
    put(0, 12);
    recover_step(12);
    leave();
    recover_step(12);
    check_all(12);
    cr_assert(eq(u64, one[1].info.pulled_bytes, 0));
    end();
}

/* The engines live on: what they said in the old epoch is not what they say in the new one. */
Test(foreign, ranks_that_come_back_to_their_engines_recover_it_again)
{
    start();
    put(0, 12);
    recover_step(12);
    part();
    recover_step(12);
    check_all(12);
    cr_assert(eq(u64, one[1].info.pulled_bytes, 0));
    for (int i = 0; i < NODES; i++)
        sh("test `grep -c engine-ready %s/job/.hearth/log` = 1", one[i].root); /* none has died */
    end();
}

Test(foreign, nodes_that_differ_get_one_and_the_same)
{
    char hex[NODES][crypto_hash_sha256_BYTES * 2 + 1];
    struct hearth_item item;

    start();
    put(0, 12);
    put(1, 12);
    sh("printf X | dd of=%s/job/step-12_ckpt/__0__0_src0.distcp bs=1 seek=4640 conv=notrunc "
       "2>/dev/null",
            one[1].root);
    recover_step(12);
    for (int i = 0; i < NODES; i++)
        hash_of(&one[i], 1, "__0__0_src0.distcp", 547, 32, &item, hex[i]);
    must_say(hex[0], hex[1]);
    cr_assert(is_there(one[0].root, "step-12_ckpt/__0__0_src0.distcp"));
    cr_assert(is_there(one[1].root, "step-12_ckpt/__0__0_src0.distcp"));
    end();
}
