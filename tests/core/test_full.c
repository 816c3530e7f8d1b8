/* SPDX-License-Identifier: Apache-2.0 */
/* Records on a mount that another program has filled to its last page. */
#include "check.h"
#include "raws.h"
#include "tmp_root.h"

#include "core/store/store_tmpfs.h"
#include <criterion/logging.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define MIB (UINT64_C(1) << 20)

static const char *root;
static struct hth_store *s;

static void open_store(void)
{
    struct hth_store_tmpfs_opts opts = { .root = root, .job = "job" };

    must(hth_store_tmpfs_open(&opts, &s, NULL));
}

static void ignore(void *arg, const struct hth_store_found *f)
{
    (void)arg, (void)f;
}

static void open_again(void)
{
    s->ops->close(s);
    open_store();
    must(s->ops->scan(s, ignore, NULL, NULL));
}

static void setup(void)
{
    alarm(60);
    root = tmp_root_mount(16 * MIB, NULL);
    if (!root)
        cr_skip_test("no right to mount a tmpfs of a given size");
    open_store();
}

TestSuite(full, .init = setup);

static void fill(void)
{
    static const unsigned char page[4096];
    char path[100];
    int fd;

    snprintf(path, sizeof(path), "%s/filler", root);
    fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    cr_assert(ge(int, fd, 0));
    while (write(fd, page, sizeof(page)) == (ssize_t)sizeof(page))
        continue;
    cr_assert(eq(int, errno, ENOSPC));
    close(fd);
}

static void put(const char *name, size_t len, int value)
{
    unsigned char *bytes = malloc(len);
    struct hearth_error err = { 0 };
    int rc;

    memset(bytes, value, len);
    rc = s->ops->record_put(s, name, bytes, len, &err);
    free(bytes);
    cr_assert(zero(int, rc), "%s of %zu bytes: %s", name, len, err.text);
}

static void has(const char *name, size_t len, int value)
{
    unsigned char *bytes;
    size_t got;

    must(s->ops->record_get(s, name, (void **)&bytes, &got, NULL));
    cr_assert(eq(sz, got, len), "%s", name);
    for (size_t i = 0; i < len; i++)
        cr_assert(eq(int, bytes[i], value), "%s, byte %zu", name, i);
    free(bytes);
}

static void name_of(uint64_t step, char out[HTH_SAVE_TEXT + 16])
{
    hth_save_text((struct hth_save_id){ 7, 11, step, 1 }, out);
    strcat(out, ".manifest");
}

Test(full, records_that_are_there_are_written_over)
{
    put("epoch", 20000, 1);
    put("keep", 300, 1);
    fill();
    for (int i = 2; i < 12; i++) {
        put("epoch", 20000, i);
        put("keep", 300, i);
        has("epoch", 20000, i);
        has("keep", 300, i);
    }
    s->ops->close(s);
}

Test(full, an_engine_that_starts_there_writes_what_its_restart_needs)
{
    char name[HTH_SAVE_TEXT + 16];

    put("epoch", 20000, 1);
    name_of(40, name);
    put(name, 18000, 1);
    fill();
    for (int i = 2; i < 6; i++) {
        open_again();
        put("epoch", 20000, i);
        put("plans", 6000, i);
        put("running", 200, i);
        put("keep", 300, i);
        has("epoch", 20000, i);
        has("plans", 6000, i);
        has(name, 18000, 1);
    }
    s->ops->close(s);
}

/* Of a save that is new there, its directory's record and its manifest; what is freed serves the
 * next. */
Test(full, saves_come_and_go)
{
    char name[HTH_SAVE_TEXT + 16];
    struct hth_slot *slot;
    uint64_t bytes = MIB;

    must(s->ops->reserve(s, &bytes, 1, NULL));
    while (s->ops->work(s, HTH_WORK_ALL) != HTH_NEVER)
        continue;
    name_of(1, name);
    put(name, 9000, 1);
    fill();
    for (uint64_t step = 2; step < 40; step++) {
        struct hth_save_id save = { 7, 11, step, 1 };

        must(s->ops->take(s, MIB, &slot, NULL));
        must(s->ops->seal(s, slot, save, "obj", NULL));
        name_of(step, name);
        put(name, 9000, (int)step);
        must(s->ops->publish(s, save, NULL));
        has(name, 9000, (int)step);
        s->ops->give(s, slot);
        s->ops->remove(s, save);
    }
    s->ops->close(s);
}

/* Small common objects, each of another size; and one that is still read keeps its bytes. */
Test(full, a_save_has_its_small_common_objects)
{
    char bytes[3000];
    struct hth_raw *raw = NULL;

    fill();
    for (uint64_t step = 2; step < 40; step++) {
        struct hth_save_id save = { 7, 11, step, 1 };

        memset(bytes, (int)step, sizeof(bytes));
        must(raw_put(s, save, "a", bytes, 1000 + step, NULL));
        must(raw_put(s, save, "b", bytes, sizeof(bytes), NULL));
        must(s->ops->publish(s, save, NULL));
        if (step == 10)
            must(s->ops->raw_open(s, save, "b", &raw, NULL));
        s->ops->remove(s, save);
    }
    for (size_t i = 0; i < sizeof(bytes); i++)
        cr_assert(eq(int, raw->base[i], 10));
    s->ops->raw_close(s, raw);
    s->ops->close(s);
}

/* A record that was opened under its name, and written over meanwhile, is read as it was. */
Test(full, who_reads_a_record_reads_one_record)
{
    char path[200], bytes[300];
    int fd;

    put("keep", sizeof(bytes), 1);
    snprintf(path, sizeof(path), "%s/job/.hearth/keep", root);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    for (int i = 2; i < 40; i++)
        put("keep", sizeof(bytes), i);
    cr_assert(eq(sz, (size_t)pread(fd, bytes, sizeof(bytes), 0), sizeof(bytes)));
    for (size_t i = 0; i < sizeof(bytes); i++)
        cr_assert(eq(int, bytes[i], 1));
    close(fd);
    s->ops->close(s);
}

static unsigned spares(uint64_t *out_bytes)
{
    char path[100];
    struct dirent *e;
    unsigned n = 0;
    DIR *dir;

    snprintf(path, sizeof(path), "%s/job/.hearth", root);
    dir = opendir(path);
    *out_bytes = 0;
    while ((e = readdir(dir))) {
        struct stat st;

        if (strncmp(e->d_name, "spare-", 6) != 0)
            continue;
        n++;
        cr_assert(zero(int, fstatat(dirfd(dir), e->d_name, &st, 0)));
        *out_bytes += (uint64_t)st.st_blocks * 512;
    }
    closedir(dir);
    return n;
}

/* Records grow with the job, shrink and go: what is kept for them is bounded by the largest. */
Test(full, what_is_kept_for_records_does_not_grow)
{
    uint64_t random = 3, bytes, most;
    char name[HTH_SAVE_TEXT + 16];
    unsigned n;

    for (int i = 0; i < 2000; i++) {
        name_of(hth_splitmix64(&random) % 6, name);
        if (hth_splitmix64(&random) % 3)
            put(name, 1 + hth_splitmix64(&random) % 40000, 5);
        else
            s->ops->record_remove(s, name);
        if (i % 500 == 0)
            open_again();
        n = spares(&bytes);
        most = 11 * 40960;
        cr_assert(le(uint, n, 11), "after %d", i);
        cr_assert(le(u64, bytes, most), "after %d", i);
    }
    s->ops->close(s);
}

Test(full, what_cannot_be_written_is_said_and_nothing_is_lost)
{
    unsigned char *bytes = calloc(1, MIB);
    struct hearth_error err;

    put("epoch", 20000, 1);
    fill();
    must_fail(s->ops->record_put(s, "epoch", bytes, MIB, &err), HEARTH_ENOSPC);
    cr_assert(strstr(err.text, "epoch") && strstr(err.text, "no room left"), "%s", err.text);
    has("epoch", 20000, 1);
    put("epoch", 20000, 2);
    has("epoch", 20000, 2);
    free(bytes);
    s->ops->close(s);
}

/* The same without inodes, with room for all bytes. */

static void open_with_inodes(const char *most)
{
    alarm(60);
    root = tmp_root_mount(64 * MIB, most);
    if (!root)
        cr_skip_test("no right to mount a tmpfs of given inodes");
    open_store();
}

static void fill_with_files(void)
{
    char path[100];
    int fd;

    for (int i = 0;; i++) {
        snprintf(path, sizeof(path), "%s/file%d", root, i);
        fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
        if (fd < 0)
            break;
        close(fd);
    }
    cr_assert(eq(int, errno, ENOSPC));
}

static void must_say_inodes(const struct hearth_error *err)
{
    cr_assert(ne(ptr, strstr(err->text, "no inodes left; mount it with a larger nr_inodes="), NULL),
            "%s", err->text);
    cr_assert(zero(ptr, strstr(err->text, "no room")), "%s", err->text);
}

Test(full_of_files, whatever_makes_a_file_says_that_inodes_are_short)
{
    static unsigned char bytes[MIB];
    const struct hth_save_id first = { 7, 11, 1, 1 }, second = { 7, 11, 2, 1 };
    struct hth_store_tmpfs_opts other = { .job = "other" };
    struct hearth_error err;
    struct hth_store *none;
    struct hth_slot *slot;

    open_with_inodes("nr_inodes=100");
    must(raw_put(s, first, "a", "bytes", 5, NULL));
    fill_with_files();
    must_fail(s->ops->take(s, 4 * MIB, &slot, &err), HEARTH_ENOSPC);
    must_say_inodes(&err);
    must_fail(raw_put(s, first, "b", bytes, MIB, &err), HEARTH_ENOSPC);
    must_say_inodes(&err);
    must_fail(raw_put(s, second, "a", "bytes", 5, &err), HEARTH_ENOSPC);
    must_say_inodes(&err);
    must_fail(s->ops->record_put(s, "keep", bytes, MIB, &err), HEARTH_ENOSPC);
    must_say_inodes(&err);
    other.root = root;
    must_fail(hth_store_tmpfs_open(&other, &none, &err), HEARTH_ENOSPC);
    must_say_inodes(&err);
    s->ops->close(s);
}
