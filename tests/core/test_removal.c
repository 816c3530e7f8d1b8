/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A removal on trees that are drawn by seed: a job with and without Hearth's mark, saves of its own
 * and of others, links to outside, foreign files in every place, and another process that exchanges
 * names meanwhile.
 *
 * The judge keeps each file open. Whatever was done to names: a file outside, or a foreign one, has
 * the links that it had; and a file of Hearth's is gone where the whole job went undisturbed.
 *
 *     REMOVAL_TREES=100000 build/debug/bin/test_core_removal
 */
#include "check.h"

#include "core/base/auth.h"
#include "core/format/block.h"
#include "core/format/manifest.h"
#include "core/format/table.h"
#include "core/store/removal.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define JOB   "train"
#define OTHER "other"
#define SEEN  256
#define SWAPS 16

enum whose { OUTSIDE, FOREIGN, OURS };

static struct tree {
    uint64_t random;
    int dir; /* holds root/ and outside/ */
    char path[64];
    int marked, racing;
    struct {
        int fd;
        enum whose whose;
        nlink_t links;
        char name[160];
    } seen[SEEN];
    unsigned count;
    char swap[SWAPS][2][160]; /* names that the other process exchanges */
    unsigned swaps;
    unsigned stays;
} t;

static uint64_t draw(uint64_t below)
{
    t.random = t.random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (t.random >> 33) % below;
}

static void keep_watch(enum whose whose, const char *name)
{
    int fd = openat(t.dir, name, O_PATH | O_NOFOLLOW);
    struct stat st;

    cr_assert(ge(int, fd, 0), "%s: %s", name, strerror(errno));
    cr_assert(lt(u32, t.count, SEEN));
    cr_assert(zero(int, fstat(fd, &st)));
    t.seen[t.count].fd = fd;
    t.seen[t.count].whose = whose;
    t.seen[t.count].links = S_ISDIR(st.st_mode) ? 1 : st.st_nlink;
    snprintf(t.seen[t.count++].name, sizeof(t.seen[0].name), "%s", name);
}

static int put_file(enum whose whose, const char *name, const void *bytes, size_t len)
{
    int fd = openat(t.dir, name, O_CREAT | O_EXCL | O_WRONLY, 0600);

    if (fd < 0) /* another draw has made it */
        return -1;
    cr_assert(eq(sz, (size_t)write(fd, bytes, len), len));
    close(fd);
    keep_watch(whose, name);
    return 0;
}

static int put_dir(const char *name)
{
    return mkdirat(t.dir, name, 0700);
}

static void put_link(enum whose whose, const char *name, const char *to)
{
    if (!symlinkat(to, t.dir, name))
        keep_watch(whose, name);
}

static const char *in(const char *folder, const char *name)
{
    static char path[4][160];
    static unsigned turn;

    turn = (turn + 1) % 4;
    snprintf(path[turn], sizeof(path[0]), "%s/%s", folder, name);
    return path[turn];
}

/* ---- what Hearth makes ----------------------------------------------------------------------- */

static struct hth_save_id id_of(uint64_t step)
{
    return (struct hth_save_id){ .epoch = 3, .nonce = 9, .step = step, .attempt = 1 };
}

static void put_object(const char *name, const char *job, uint64_t step)
{
    static unsigned char bytes[3 * HTH_BLOCK];
    struct hth_block b = { .signature = HTH_SIG_TENSORS,
        .own = 1,
        .save = id_of(step),
        .object = hth_object_id(0, 0),
        .generation = 1,
        .data_len = 64,
        .table_off = 2 * HTH_BLOCK,
        .table_len = hth_table_bytes(64, 64, 0) };

    snprintf(b.job, sizeof(b.job), "%s", job);
    snprintf(b.name, sizeof(b.name), "shard");
    hth_block_encode(&b, bytes);
    put_file(strcmp(job, JOB) != 0 ? FOREIGN : OURS, name, bytes, sizeof(bytes));
}

static void put_manifest(const char *records, uint64_t step)
{
    static const char *const names[] = { "shard", "common" };
    struct hth_object objects[2] = { { .id = hth_object_id(0, 0), .kind = HTH_OBJECT_SHARD },
        { .id = hth_object_id(0, 1), .kind = HTH_OBJECT_RAW, .data_len = 6 } };
    struct hth_manifest m = {
        .save = id_of(step), .world = 1, .nodes = 1, .job = JOB, .objects = 2, .object = objects
    };
    unsigned char bytes[1024];
    char text[HTH_SAVE_TEXT], name[160];

    objects[0].data_len = 64;
    objects[0].table_len = hth_table_bytes(64, 64, 0);
    for (int i = 0; i < 2; i++)
        snprintf(objects[i].name, sizeof(objects[i].name), "%s", names[i]);
    must(hth_manifest_encode(&m, bytes, NULL));
    hth_save_text(id_of(step), text);
    snprintf(name, sizeof(name), "%s/%s.manifest", records, text);
    put_file(OURS, name, bytes, hth_manifest_bytes(&m));
}

static void put_dir_record(const char *records, const char *folder, uint64_t step)
{
    char text[HTH_SAVE_TEXT], name[160], line[64];
    struct stat st;

    cr_assert(zero(int, fstatat(t.dir, folder, &st, AT_SYMLINK_NOFOLLOW)));
    hth_save_text(id_of(step), text);
    snprintf(name, sizeof(name), "%s/%s.dir", records, text);
    snprintf(line, sizeof(line), "inode %016llx published\n", (unsigned long long)st.st_ino);
    put_file(OURS, name, line, strlen(line));
}

/* ---- what others put beside it --------------------------------------------------------------- */

static void put_foreign(const char *folder)
{
    static const char *const names[] = { "notes.txt", "weights.bin", "-rf", "a b", "run.log~" };
    char name[160];

    snprintf(name, sizeof(name), "%s/%s", folder, names[draw(5)]);
    switch (draw(5)) {
    case 0:
        put_link(FOREIGN, name, draw(2) ? "../../../outside" : "/nowhere");
        break;
    case 1:
        put_link(FOREIGN, name, "../../../outside/precious");
        break;
    case 2:
        if (!put_dir(name)) {
            put_file(FOREIGN, in(name, "deep"), "mine", 4);
            keep_watch(FOREIGN, name);
        }
        break;
    case 3:
        if (!mkfifoat(t.dir, name, 0600))
            keep_watch(FOREIGN, name);
        break;
    default:
        put_file(FOREIGN, name, "mine", 4);
    }
}

static void may_swap(const char *a, const char *b)
{
    if (t.swaps == SWAPS)
        return;
    snprintf(t.swap[t.swaps][0], sizeof(t.swap[0][0]), "%s", a);
    snprintf(t.swap[t.swaps++][1], sizeof(t.swap[0][0]), "%s", b);
}

/* A save of the job: its records may be there or not, and strangers' files beside its objects. */
static void put_save(const char *job, const char *records, uint64_t step, int hidden)
{
    char folder[160], text[HTH_SAVE_TEXT], link[160];
    int listed = draw(4) != 0, named = draw(4) != 0;

    hth_save_text(id_of(step), text);
    snprintf(folder, sizeof(folder), "%s/%s", hidden ? records : job, text);
    if (!hidden)
        snprintf(folder, sizeof(folder), "%s/step-%llu_ckpt", job, (unsigned long long)step);
    if (put_dir(folder))
        return;
    put_object(in(folder, "shard"), JOB, step);
    if (listed)
        put_manifest(records, step);
    if (named)
        put_dir_record(records, folder, step);
    if (draw(4) == 0) /* in the place of an object */
        put_link(FOREIGN, in(folder, "common"), "../../../outside/precious");
    else if (listed || named || hidden)
        put_file(OURS, in(folder, "common"), "common", 6);
    if (hidden)
        put_file(OURS, in(folder, "late.tmp"), "half", 4);
    for (uint64_t n = draw(3); listed && !hidden && n-- > 0;)
        put_foreign(folder);
    snprintf(link, sizeof(link), "%s/to-%llu", job, (unsigned long long)step);
    put_link(FOREIGN, link, "../../outside/dir");
    may_swap(folder, link);
    if (!listed && !named && !hidden && !put_file(FOREIGN, in(folder, "beside.txt"), "mine", 4))
        may_swap(in(folder, "shard"), in(folder, "beside.txt"));
}

/* Called as a save, and not Hearth's. */
static void put_lookalike(const char *job, uint64_t step)
{
    char name[160];

    snprintf(name, sizeof(name), "%s/step-%llu_ckpt", job, (unsigned long long)step);
    switch (draw(4)) {
    case 0:
        put_link(FOREIGN, name, "../../outside/step-1_ckpt");
        break;
    case 1:
        put_file(FOREIGN, name, "", 0);
        break;
    default:
        if (put_dir(name))
            break;
        put_file(FOREIGN, in(name, "weights.bin"), "theirs", 6);
        put_object(in(name, "shard"), OTHER, step);
        put_foreign(name);
    }
}

/* ---- a tree ---------------------------------------------------------------------------------- */

static void put_outside(void)
{
    put_dir("outside");
    put_dir("outside/dir");
    put_file(OUTSIDE, "outside/precious", "root's", 6);
    put_file(OUTSIDE, "outside/dir/shard", "root's", 6);
    put_dir("outside/step-1_ckpt");
    put_object("outside/step-1_ckpt/shard", JOB, 1);
    t.seen[t.count - 1].whose = OUTSIDE;
}

static void put_records(const char *records)
{
    static const char *const names[] = { "epoch", "head", "keep", "log", "log.1", "new-1f", "life",
        "spare-3", "running", "plans", "port" };
    char to[64];

    t.marked = draw(8) != 0;
    if (!t.marked && draw(2)) {
        if (draw(2))
            put_link(FOREIGN, records, "../../outside");
        return;
    }
    put_dir(records);
    if (t.marked && draw(4))
        put_file(OURS, in(records, "store"), "HEARTH", 6);
    if (t.marked)
        put_file(OURS, in(records, "lock"), "1", 1);
    for (size_t i = 0; t.marked && i < sizeof(names) / sizeof(names[0]); i++)
        if (draw(2))
            put_file(OURS, in(records, names[i]), "x", 1);
    snprintf(to, sizeof(to), "%s", in(records, "pool"));
    if (!t.marked || draw(6) == 0) {
        put_link(FOREIGN, to, "../../../outside/dir");
    } else {
        put_dir(to);
        put_file(OURS, in(to, "00000000000000ab"), "slot", 4);
        if (draw(3) == 0)
            put_foreign(to);
    }
    if (draw(3) == 0)
        put_foreign(records);
    if (t.marked && draw(3) == 0 && !put_dir(in(records, "evidence"))) {
        put_file(OURS, in(records, "evidence/torn-0000000000000001-shard"), "x", 1);
        put_file(FOREIGN, in(records, "evidence/mine"), "x", 1);
    }
}

static void put_tree(uint64_t seed)
{
    static const char job[] = "root/" JOB, records[] = "root/" JOB "/.hearth";

    t.random = seed * 2654435761u + 1;
    t.count = t.swaps = t.stays = 0;
    snprintf(t.path, sizeof(t.path), "/dev/shm/hearth-removal-XXXXXX");
    cr_assert(ne(ptr, mkdtemp(t.path), NULL));
    t.dir = open(t.path, O_RDONLY | O_DIRECTORY);
    put_outside();
    put_dir("root");
    put_dir(job);
    put_records(records);
    for (uint64_t step = 1; step <= 3; step++)
        if (t.marked && draw(2))
            put_save(job, records, step, 0);
    if (t.marked && draw(2))
        put_save(job, records, 7, 1);
    for (uint64_t n = draw(3), step = 11; n-- > 0; step++)
        put_lookalike(job, step);
    for (uint64_t n = draw(3); n-- > 0;)
        put_foreign(job);
    put_link(FOREIGN, "root/away", "../outside");
    may_swap(job, "root/away");
    t.racing = draw(3) == 0;
}

/* ---- the other process, and the judge -------------------------------------------------------- */

static atomic_int over;

static void *exchange(void *arg)
{
    (void)arg;
    while (!atomic_load(&over))
        for (unsigned i = 0; i < t.swaps; i++)
            renameat2(t.dir, t.swap[i][0], t.dir, t.swap[i][1], RENAME_EXCHANGE);
    return NULL;
}

static void count_stays(void *arg, const char *where, const char *name, const char *why)
{
    (void)where;
    (void)name;
    (void)why;
    ++*(unsigned *)arg;
}

static int nothing_before(void *arg, struct hearth_error *err)
{
    (void)arg;
    (void)err;
    return HEARTH_OK;
}

/* 1: the whole job was to go, and no error came. */
static int remove_some(uint64_t seed)
{
    char root[80], save[32];
    struct hth_removal r;
    struct hearth_error err = { 0 };
    int rc, all = seed % 4 != 0;

    snprintf(root, sizeof(root), "%s/root", t.path);
    rc = hth_removal_open(&r, root, JOB, count_stays, &t.stays, &err);
    if (!t.racing)
        cr_assert(eq(int, rc, t.marked ? HEARTH_OK : HEARTH_ENOENT), "seed %llu: %s",
                (unsigned long long)seed, err.text);
    if (rc)
        return 0;
    snprintf(save, sizeof(save), "step-%llu_ckpt", (unsigned long long)(1 + draw(13)));
    rc = all ? hth_removal_job(&r, &err)
             : hth_removal_save(&r, save, 0, nothing_before, NULL, &err);
    hth_removal_close(&r);
    if (all && !t.racing)
        must(rc);
    return all && !rc;
}

static void judge(uint64_t seed, int all_went)
{
    for (unsigned i = 0; i < t.count; i++) {
        int fd = t.seen[i].fd, ours = t.seen[i].whose == OURS;
        struct stat st;
        nlink_t want = t.seen[i].links;

        cr_assert(zero(int, fstat(fd, &st)));
        if (S_ISDIR(st.st_mode) && st.st_nlink > 0)
            st.st_nlink = 1;
        if (!ours || (all_went && !t.racing))
            cr_assert(eq(ulong, (unsigned long)st.st_nlink, ours ? 0 : (unsigned long)want),
                    "seed %llu: %s is %s", (unsigned long long)seed, t.seen[i].name,
                    ours ? "Hearth's, and is left" : "not Hearth's, and is gone");
        close(fd);
    }
}

static int remove_left(const char *path, const struct stat *st, int type, struct FTW *at)
{
    (void)st;
    (void)type;
    (void)at;
    return remove(path);
}

static void tree_end(void)
{
    close(t.dir);
    cr_assert(zero(int, nftw(t.path, remove_left, 8, FTW_DEPTH | FTW_PHYS)));
}

static void one_tree(uint64_t seed)
{
    pthread_t other;
    int all_went;

    put_tree(seed);
    atomic_store(&over, 0);
    if (t.racing)
        cr_assert(zero(int, pthread_create(&other, NULL, exchange, NULL)));
    all_went = remove_some(seed);
    atomic_store(&over, 1);
    if (t.racing)
        pthread_join(other, NULL);
    judge(seed, all_went);
    tree_end();
}

Test(removal, takes_nothing_outside_and_nothing_foreign)
{
    const char *trees = getenv("REMOVAL_TREES"), *first = getenv("REMOVAL_FIRST");
    uint64_t from = first ? strtoull(first, NULL, 10) : 1;
    uint64_t count = trees ? strtoull(trees, NULL, 10) : 150;

    must(hth_auth_init(NULL));
    alarm(trees ? 0 : 100);
    for (uint64_t seed = from; seed < from + count; seed++)
        one_tree(seed);
}

/* The whole job, with so many descriptors beside those that are open. */
static int remove_with(unsigned descriptors)
{
    char root[80];
    struct hth_removal r;
    struct rlimit all, few;
    int next = dup(t.dir), rc;

    snprintf(root, sizeof(root), "%s/root", t.path);
    close(next);
    cr_assert(zero(int, getrlimit(RLIMIT_NOFILE, &all)));
    few = (struct rlimit){ (rlim_t)next + descriptors, all.rlim_max };
    cr_assert(zero(int, setrlimit(RLIMIT_NOFILE, &few)));
    rc = hth_removal_open(&r, root, JOB, count_stays, &t.stays, NULL);
    if (!rc) {
        rc = hth_removal_job(&r, NULL);
        hth_removal_close(&r);
    }
    cr_assert(zero(int, setrlimit(RLIMIT_NOFILE, &all)));
    return rc;
}

Test(removal, that_runs_out_of_descriptors_says_so)
{
    must(hth_auth_init(NULL));
    alarm(100);
    for (uint64_t seed = 1; seed <= 8; seed++) {
        unsigned descriptors = 0;
        int rc;

        do {
            put_tree(seed);
            t.racing = 0;
            rc = t.marked ? remove_with(descriptors) : HEARTH_OK;
            judge(seed, t.marked && !rc);
            tree_end();
            cr_assert(lt(u32, descriptors++, 32), "seed %llu", (unsigned long long)seed);
        } while (rc);
    }
}
