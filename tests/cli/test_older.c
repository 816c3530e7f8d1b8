/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A tmpfs that an older Hearth wrote and left (tests/data/older): its containers are read, its
 * records and its unfinished save are refused by name, and not one byte of it is touched.
 */
#include "command.h"

#include "core/base/auth.h"
#include <dirent.h>
#include <limits.h>
#include <sys/stat.h>

static void unpack(void)
{
    char command[700];

    make_root();
    must(hth_auth_init(NULL));
    snprintf(command, sizeof(command), "tar -C %s -xzf '%.400s/older/store-1.tar.gz'", root,
            getenv("HEARTH_TEST_DATA"));
    cr_assert(zero(int, system(command)), "%s", command);
}

TestSuite(older, .init = unpack, .fini = remove_root);

static void digest_file(struct hth_digesting *d, const char *path)
{
    char bytes[65536];
    FILE *f = fopen(path, "rb");
    size_t n;

    cr_assert(ne(ptr, f, NULL), "%s", path);
    while ((n = fread(bytes, 1, sizeof(bytes), f)) > 0)
        hth_digest_add(d, bytes, n);
    fclose(f);
}

/* Names and bytes of all that is there, but for what each engine writes of itself: its pid and its
 * log. */
static int is_record(const char *name)
{
    return strcmp(name, "log") != 0 && strcmp(name, "lock") != 0;
}

static void digest_folder(struct hth_digesting *d, const char *dir)
{
    struct dirent **names;
    int n = scandir(dir, &names, NULL, alphasort);

    cr_assert(ge(int, n, 0), "%s", dir);
    for (int i = 0; i < n; i++) {
        char path[PATH_MAX];
        struct stat st;

        snprintf(path, sizeof(path), "%s/%s", dir, names[i]->d_name);
        if (names[i]->d_name[0] != '.' || strlen(names[i]->d_name) > 2) {
            cr_assert(zero(int, lstat(path, &st)));
            hth_digest_add(d, path, strlen(path));
            if (S_ISDIR(st.st_mode))
                digest_folder(d, path);
            else if (S_ISREG(st.st_mode) && is_record(names[i]->d_name))
                digest_file(d, path);
        }
        free(names[i]);
    }
    free(names);
}

static void digest_node(unsigned char digest[HTH_DIGEST])
{
    struct hth_digesting d;
    char dir[128];

    snprintf(dir, sizeof(dir), "%s/n0", root);
    hth_digest_begin(&d);
    digest_folder(&d, dir);
    hth_digest_end(&d, digest);
}

static const char *in_node(const char *rest)
{
    static char path[300];

    snprintf(path, sizeof(path), "%s/n0/job/%s", root, rest);
    return path;
}

Test(older, an_engine_refuses_it_by_name_and_touches_nothing)
{
    const char *const args[] = { "--root", NULL, "--job", "job", "--node", "n0", NULL };
    const char *filled[7];
    unsigned char before[HTH_DIGEST], after[HTH_DIGEST];
    char node[100];
    int status = 0;

    memcpy(filled, args, sizeof(args));
    snprintf(node, sizeof(node), "%s/n0", root);
    filled[1] = node;
    digest_node(before);
    cr_assert(gt(int, waitpid(start("hearthd", filled), &status, 0), 0));
    cr_assert(eq(int, WIFEXITED(status) && WEXITSTATUS(status) != 0, 1), "%x", (unsigned)status);
    slurp(err_path, err_text, sizeof(err_text));
    cr_assert(has(err_text, "the store is of version 1, and this Hearth reads version"), "%s",
            err_text);
    cr_assert(has(err_text, "nothing of it was touched"), "%s", err_text);
    digest_node(after);
    cr_assert(zero(int, memcmp(before, after, HTH_DIGEST)));
}

Test(older, its_containers_are_read_and_its_records_refused_by_name)
{
    unsigned char before[HTH_DIGEST], after[HTH_DIGEST];

    digest_node(before);
    hearth("verify", in_node("step-2_ckpt"));
    cr_assert(has(out, "2 verified, 0 without checksums, 0 wrong, 1 unread"), "%s", out);
    cr_assert(has(out, "the manifest is of version 1, and this Hearth reads version"), "%s", out);
    hearth("verify", in_node(""));
    cr_assert(has(out, "the keep record is of version 1, and this Hearth reads"), "%s", out);
    cr_assert(has(out, "0 wrong"), "%s", out);
    cr_assert(zero(int, hearth("inspect", in_node("step-2_ckpt/__0__0_src0.distcp"))), "%s",
            err_text);
    cr_assert(has(out, "verified  yes, every byte"), "%s", out);
    cr_assert(has(out, "int64 16,64"), "%s", out);
    digest_node(after);
    cr_assert(zero(int, memcmp(before, after, HTH_DIGEST)));
}
