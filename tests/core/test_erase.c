/* SPDX-License-Identifier: Apache-2.0 */
/* A job's memory at its end: what goes, what stays, and who comes in the same moment. */
#include "check.h"
#include "tmp_root.h"

#include "core/store/store_tmpfs.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MIB (UINT64_C(1) << 20)

static const struct hth_save_id save = { 7, 11, 40, 1 };
static const char *root;
static struct hth_store *store;

static struct hth_store *open_store(struct hth_points points)
{
    struct hth_store_tmpfs_opts opts = { .root = root, .job = "job", .points = points };
    struct hth_store *s = NULL;
    struct hearth_error err = { 0 };

    cr_assert(eq(int, hth_store_tmpfs_open(&opts, &s, &err), 0), "%s", err.text);
    return s;
}

static void found(void *arg, const struct hth_store_found *f)
{
    (void)arg, (void)f;
}

static void begin(void)
{
    const uint64_t bytes[] = { 3 * MIB, 3 * MIB };

    alarm(60);
    root = tmp_root(64 * MIB);
    cr_assert(ne(ptr, (void *)(uintptr_t)root, NULL));
    store = open_store((struct hth_points){ 0 });
    must(store->ops->scan(store, found, NULL, NULL));
    must(store->ops->reserve(store, bytes, 2, NULL));
    must(store->ops->record_put(store, "epoch", "x", 1, NULL));
}

static void end(void)
{
    tmp_root_remove(root);
}

TestSuite(erase, .init = begin, .fini = end);

static int is_there(const char *name)
{
    char path[256];

    snprintf(path, sizeof(path), "%s/job%s%s", root, name[0] ? "/" : "", name);
    return access(path, F_OK) == 0;
}

/* A file of another program, or a link, also where one of ours would lie. */
static void put(const char *name, const char *link)
{
    char path[256];
    int fd;

    snprintf(path, sizeof(path), "%s/%s", root, name);
    if (link) {
        cr_assert(zero(int, symlink(link, path)));
        return;
    }
    fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    cr_assert(ge(int, fd, 0));
    close(fd);
}

Test(erase, nothing_is_left)
{
    struct hth_slot *slot;

    must(store->ops->take(store, MIB, &slot, NULL));
    must(store->ops->receive(store, slot, save, "half", NULL)); /* on its way when the end came */
    hth_store_tmpfs_erase(store, 0);
    store->ops->close(store);
    cr_assert(eq(int, is_there(""), 0));
}

Test(erase, records_stay_where_they_are_wanted)
{
    hth_store_tmpfs_erase(store, 1);
    store->ops->close(store);
    cr_assert(eq(int, is_there(".hearth/epoch"), 1));
    store = open_store((struct hth_points){ 0 });
    must(store->ops->scan(store, found, NULL, NULL));
    cr_assert(eq(u64, hth_store_tmpfs_missing(store), 0)); /* no slot is left */
    store->ops->close(store);
}

Test(erase, what_is_not_ours_stays_and_no_link_is_followed)
{
    char path[256];

    snprintf(path, sizeof(path), "%s/job/step-1_ckpt", root);
    cr_assert(zero(int, mkdir(path, 0700)));
    put("job/step-1_ckpt/theirs", NULL);
    put("outside", NULL);
    put("job/.hearth/pool/away", root);
    put("job/.hearth/out", "../../outside");
    hth_store_tmpfs_erase(store, 0);
    store->ops->close(store);
    cr_assert(eq(int, is_there(".hearth"), 0));
    cr_assert(eq(int, is_there("step-1_ckpt/theirs"), 1));
    cr_assert(eq(int, is_there("../outside"), 1));
}

#ifdef HEARTH_POINTS
static void end_the_other(void *self, const char *point)
{
    int *ended = self;

    if (strcmp(point, "lock") != 0 || (*ended)++)
        return;
    hth_store_tmpfs_erase(store, 0);
    store->ops->close(store);
}

/* It has opened the lock that goes away before it is taken: another one could take the next. */
Test(erase, who_comes_in_that_moment_begins_anew)
{
    struct hth_store_tmpfs_opts opts = { .root = root, .job = "job" };
    int ended = 0;
    struct hth_store *next = open_store((struct hth_points){ end_the_other, &ended }), *third;

    cr_assert(eq(int, ended, 2));
    cr_assert(eq(int, is_there(".hearth/lock"), 1));
    must_fail(hth_store_tmpfs_open(&opts, &third, NULL), HEARTH_ELOCKED);
    must(next->ops->record_put(next, "epoch", "y", 1, NULL));
    cr_assert(eq(int, is_there(".hearth/epoch"), 1));
    next->ops->close(next);
}
#endif
