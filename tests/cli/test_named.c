/* SPDX-License-Identifier: Apache-2.0 */
/* Containers that Hearth did not write, as `hearth` shows them: by the marker beside them and by
 * the `.metadata` in them. */
#include "command.h"

#include <hearth/metadata.h>
#include <hearth/read.h>

#include <dirent.h>
#include <jansson.h>
#include <sys/stat.h>

#define STEP12 "train/step-12_ckpt"

TestSuite(named, .init = make_root, .fini = remove_root);

static const char *at(const char *name)
{
    static char path[2][512];
    static int turn;

    turn = !turn;
    snprintf(path[turn], sizeof(path[turn]), "%s/%s", root, name);
    return path[turn];
}

static void copy(const char *from, const char *to)
{
    static char bytes[1 << 20];
    size_t n = slurp(from, bytes, sizeof(bytes));
    int fd = open(to, O_WRONLY | O_CREAT | O_TRUNC, 0600);

    cr_assert(ge(int, fd, 0), "%s", to);
    cr_assert(eq(long, write(fd, bytes, n), (long)n));
    close(fd);
}

/* A container of the data, as a job has it. */
static void place(const char *data, const char *name)
{
    char from[1024], to[1024];
    const struct dirent *e;
    DIR *d;

    snprintf(from, sizeof(from), "%s/%s", getenv("HEARTH_TEST_DATA"), data);
    (void)mkdir(at("train"), 0700);
    must(mkdir(at(name), 0700));
    d = opendir(from);
    cr_assert(ne(ptr, d, NULL), "%s", from);
    while ((e = readdir(d))) {
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."))
            continue;
        snprintf(from, sizeof(from), "%s/%s/%s", getenv("HEARTH_TEST_DATA"), data, e->d_name);
        snprintf(to, sizeof(to), "%s/%s", at(name), e->d_name);
        copy(from, to);
    }
    closedir(d);
}

static json_t *saves(void)
{
    json_t *all, *list;

    cr_assert(zero(int, hearth("ls", "--root", root, "train", "--json")), "%s", err_text);
    all = json_loads(out, 0, NULL);
    list = json_incref(json_object_get(all, "saves"));
    json_decref(all);
    cr_assert(ne(ptr, list, NULL), "%s", out);
    return list;
}

static void must_show(const char *state, const char *why)
{
    json_t *list = saves();
    const json_t *row = json_array_get(list, 0);
    const char *said = json_string_value(json_object_get(row, "why"));

    must_say(json_string_value(json_object_get(row, "state")), state);
    cr_assert(eq(int, has(said ? said : "", why), 1), "%s", said);
    cr_assert(eq(int, !said, !why[0]), "%s", said);
    cr_assert(zero(int, hearth("ls", "--root", root, "train")), "%s", err_text);
    cr_assert(eq(int, has(out, why), 1), "%s", out);
    json_decref(list);
}

Test(named, a_whole_container_is_said_to_be_what_its_metadata_says)
{
    place("container/step-12_ckpt", STEP12);
    must_show("foreign", "");
    cr_assert(zero(int, hearth("verify", at(STEP12))), "%s%s", out, err_text);
    cr_assert(eq(int, has(out, "in 4 files, of which 4 are here"), 1), "%s", out);
    cr_assert(zero(int, unlink(at(STEP12 "/__1__0_src1.distcp"))));
    cr_assert(zero(int, hearth("verify", at(STEP12))), "another node may have it: %s", out);
    cr_assert(eq(int, has(out, "in 4 files, of which 3 are here"), 1), "%s", out);
    must_show("foreign", "");
}

Test(named, a_marker_of_its_writer_is_shown)
{
    place("container/step-12_ckpt", STEP12);
    must(mkdir(at(STEP12 "__0__unfinished"), 0700));
    must_show("unfinished", "step-12_ckpt__0__unfinished is beside it");
    cr_assert(eq(int, hearth("verify", at(STEP12)), 1));
    cr_assert(eq(int, has(out, "its writer has not finished it"), 1), "%s", out);
    must(rmdir(at(STEP12 "__0__unfinished")));
    must(mkdir(at("train/step-1_ckpt__0__unfinished"), 0700)); /* another step's */
    must_show("foreign", "");
}

Test(named, what_is_torn_or_missing_is_shown)
{
    place("container/step-12_ckpt", STEP12);
    must(truncate(at(STEP12 "/__0__1_src0.distcp"), 5000));
    must_show("foreign", "__0__1_src0.distcp");
    cr_assert(eq(int, hearth("verify", at(STEP12)), 1));
    copy(at(STEP12 "/__0__0_src0.distcp"), at(STEP12 "/__0__1_src0.distcp"));
    must_show("foreign", "is torn, or of another save");
    cr_assert(eq(int, hearth("verify", at(STEP12)), 1));
    cr_assert(eq(int, has(out, "is torn, or of another save"), 1), "%s", out);
    must(truncate(at(STEP12 "/.metadata"), 700));
    must_show("foreign", ".metadata");
    cr_assert(eq(int, hearth("verify", at(STEP12)), 1));
    must(unlink(at(STEP12 "/.metadata")));
    must_show("foreign", "no .metadata is here");
    cr_assert(zero(int, hearth("verify", at(STEP12))), "another node may have it: %s", out);
    cr_assert(eq(int, has(out, "no .metadata is here"), 1), "%s", out);
}

/* A `.metadata` of one item, in a file that is called so. */
static void put_metadata(const char *file)
{
    struct hearth_metadata_writer *w;
    void *bytes;
    size_t len;
    int fd = open(at(STEP12 "/.metadata"), O_WRONLY | O_TRUNC);

    must(hearth_metadata_write(NULL, NULL, &w, NULL));
    must(hearth_metadata_add_bytes(w, "key", 3, file, 0, 10, NULL));
    must(hearth_metadata_finish(w, &bytes, &len, NULL));
    cr_assert(eq(long, write(fd, bytes, len), (long)len));
    close(fd);
    hearth_free(bytes);
}

Test(named, a_metadata_that_names_what_is_no_files_name_is_wrong)
{
    char longer[257];
    const char *files[] = { "__0__0_src0.distcp/x", longer };

    memset(longer, 'n', 256);
    longer[256] = '\0';
    place("container/step-12_ckpt", STEP12);
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        put_metadata(files[i]);
        cr_assert(eq(int, hearth("verify", at(STEP12)), 1), "%s: %s", files[i], out);
        cr_assert(eq(int, has(out, "names a file that Hearth cannot hold"), 1), "%s: %s", files[i],
                out);
        must_show("foreign", "names a file that Hearth cannot hold");
    }
    put_metadata("__0__9_src0.distcp");
    cr_assert(zero(int, hearth("verify", at(STEP12))), "another node may have it: %s", out);
}

Test(named, plain_files_of_torch_are_no_damage)
{
    place("dcp/single", "train/step-3_ckpt");
    must_show("foreign", "");
    cr_assert(zero(int, hearth("verify", at("train/step-3_ckpt"))), "%s%s", out, err_text);
    cr_assert(eq(int, has(out, "a file without a block"), 1), "%s", out);
}

Test(named, a_number_may_have_leading_zeros)
{
    json_t *list;

    place("container/step-12_ckpt", "train/step-0012_ckpt");
    list = saves();
    cr_assert(eq(
            long, (long)json_integer_value(json_object_get(json_array_get(list, 0), "step")), 12));
    json_decref(list);
    cr_assert(eq(int, hearth("rm", at("train/step-0012_ckpt")), 3), "Hearth did not make it");
    cr_assert(zero(int, access(at("train/step-0012_ckpt"), F_OK)));
}

/* ---- Items
 * ------------------------------------------------------------------------------------------ */

static void check_items(const json_t *want, const char *object)
{
    json_t *got;
    const json_t *list;

    cr_assert(zero(int, hearth("inspect", object, "--json")), "%s", err_text);
    got = json_loads(out, 0, NULL);
    list = json_object_get(got, "items");
    cr_assert(eq(sz, json_array_size(list), json_array_size(want)), "%s", object);
    for (size_t i = 0; i < json_array_size(want); i++) {
        static const char *const fields[] = { "key", "offset", "length" };
        const json_t *a = json_array_get(list, i), *b = json_array_get(want, i);
        long long len = json_integer_value(json_object_get(b, "length"));
        char offset[32];

        for (size_t k = 0; k < 3; k++)
            cr_assert(eq(int,
                              json_equal(
                                      json_object_get(a, fields[k]), json_object_get(b, fields[k])),
                              1),
                    "%s: item %zu: %s", object, i, fields[k]);
        if (!len || strcmp(json_string_value(json_object_get(a, "kind")), "bytes") != 0)
            continue;
        snprintf(offset, sizeof(offset), "%lld", json_integer_value(json_object_get(b, "offset")));
        cr_assert(zero(int, hearth("cat", object, "--offset", offset)), "%s", err_text);
        cr_assert(eq(sz, out_len, (size_t)len));
    }
    json_decref(got);
}

Test(named, items_have_the_names_of_the_metadata_beside_them)
{
    static const char *const steps[] = { "step-7_ckpt", "step-12_ckpt" };

    for (size_t c = 0; c < 2; c++) {
        char path[1024];
        json_t *want, *objects;

        snprintf(path, sizeof(path), "%s/container/%s.expected.json", getenv("HEARTH_TEST_DATA"),
                steps[c]);
        want = json_load_file(path, 0, NULL);
        cr_assert(ne(ptr, want, NULL));
        objects = json_object_get(want, "objects");
        for (size_t i = 0; i < json_array_size(objects); i++) {
            const json_t *o = json_array_get(objects, i);

            snprintf(path, sizeof(path), "%s/container/%s/%s", getenv("HEARTH_TEST_DATA"), steps[c],
                    json_string_value(json_object_get(o, "name")));
            check_items(json_object_get(o, "items"), path);
        }
        json_decref(want);
    }
}

/* One of another save, or none: the object is shown as it is. */
Test(named, a_metadata_that_does_not_fit_names_nothing)
{
    place("container/step-12_ckpt", STEP12);
    copy(at(STEP12 "/__0__0_src0.distcp"), at(STEP12 "/__0__1_src0.distcp"));
    cr_assert(zero(int, hearth("inspect", at(STEP12 "/__0__1_src0.distcp"), "--json")), "%s",
            err_text);
    cr_assert(zero(int, has(out, "\"key\"")), "%s", out);
    copy(at(STEP12 "/__1__1_src1.distcp"),
            at(STEP12 "/copy.distcp")); /* a file that it does not name */
    cr_assert(zero(int, hearth("inspect", at(STEP12 "/copy.distcp"), "--json")), "%s", err_text);
    cr_assert(eq(int, has(out, "float8_e5m2"), 1), "%s", out);
    cr_assert(zero(int, has(out, "\"key\"")), "%s", out);
}
