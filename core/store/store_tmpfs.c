/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Open and close of a node's memory. `.hearth/store` says that it is the same memory as before:
 *
 *      0  8  "HTHSTORE"     8 u32 version        12 u32 CRC32C of bytes 16..95
 *     16  u64 store id     24 u64 starts         32 64 job, NUL-padded
 *
 * It is rewritten in place at each start, in a page that is there: a full mount does not keep an
 * engine from starting.
 */
#include "tmpfs.h"

#include "core/base/bytes.h"
#include "core/base/crc.h"
#include "core/base/full.h"
#include "core/base/root.h"
#include "core/format/versions.h"
#include "neighbour.h"
#include "pages.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#define STORE_BYTES 96u
#define RECORD_MAX  127 /* bytes of a record's name */
#define OPEN_TRIES  16  /* where another engine removes what we have just opened */

static const unsigned char magic[8] = { 'H', 'T', 'H', 'S', 'T', 'O', 'R', 'E' };

static int record_check(const char *name, struct hearth_error *err)
{
    static const char *const taken[] = { "lock", "store", "pool", "evidence", NEW_FILE };
    size_t len = strlen(name);
    struct hth_save_id save;
    int bad = len == 0 || len > RECORD_MAX || name[0] == '.' || strchr(name, '/') ||
              !hth_save_parse(name, &save) || !strncmp(name, NEW_RAW, strlen(NEW_RAW)) ||
              hth_spare_names(name);

    for (size_t i = 0; i < sizeof(taken) / sizeof(taken[0]); i++)
        bad |= !strcmp(name, taken[i]);
    return bad ? hth_fail(err, HEARTH_EINVAL, 0, "\"%.80s\" cannot name a record", name) : 0;
}

static int record_put(struct hth_store *s, const char *name, const void *bytes, size_t len,
        struct hearth_error *err)
{
    struct hth_tmpfs *t = hth_tmpfs_of(s);
    int rc = record_check(name, err);

    return rc ? rc : hth_small_put(t, t->own_fd, name, bytes, len, err);
}

static int record_get(struct hth_store *s, const char *name, void **out, size_t *out_len,
        struct hearth_error *err)
{
    struct hth_tmpfs *t = hth_tmpfs_of(s);
    int rc = record_check(name, err);

    return rc ? rc : hth_small_get(t, t->own_fd, name, out, out_len, err);
}

static void record_remove(struct hth_store *s, const char *name)
{
    if (!record_check(name, NULL))
        hth_spare_remove(hth_tmpfs_of(s), name);
}

static uint64_t store_id(struct hth_store *s)
{
    return hth_tmpfs_of(s)->id;
}

uint64_t hth_store_tmpfs_missing(struct hth_store *s)
{
    return hth_back_missing(hth_tmpfs_of(s));
}

static void close_if(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

static void close_all(struct hth_tmpfs *t)
{
    close_if(&t->evidence_fd);
    close_if(&t->pool_fd);
    close_if(&t->own_fd);
    close_if(&t->job_fd);
    close_if(&t->root_fd);
    close_if(&t->lock_fd); /* last: until here no other engine may open it */
}

static void store_close(struct hth_store *s)
{
    struct hth_tmpfs *t = hth_tmpfs_of(s);

    if (!t)
        return;
    t->opts.workers = (struct hth_workers){ 0 }; /* they have stopped */
    hth_raws_end(t);
    hth_releases_end(t);
    hth_back_close(t);
    while (t->slots)
        hth_slot_forget(t, t->slots);
    while (t->dirs)
        hth_dir_forget(t, t->dirs);
    hth_account_close(t);
    close_all(t);
    free(t->path);
    free(t);
}

static const struct hth_store_ops tmpfs_ops = {
    .reserve = hth_pool_reserve,
    .foresee = hth_pool_foresee,
    .enough = hth_pool_enough,
    .room = hth_pool_room,
    .want = hth_pool_want,
    .keep_only = hth_pool_keep_only,
    .rest = hth_pool_rest,
    .surplus = hth_pool_surplus,
    .mapped = hth_pool_mapped,
    .take = hth_pool_take,
    .resume = hth_pool_resume,
    .lend = hth_pool_lend,
    .claim = hth_pool_claim,
    .receive = hth_dir_receive,
    .seal = hth_dir_seal,
    .give = hth_pool_give,
    .abandon = hth_pool_abandon,
    .expect = hth_pool_expect,
    .condemn = hth_pool_condemn,
    .broken = hth_broken_next,
    .lease = hth_slot_lease,
    .unlease = hth_slot_unlease,
    .reader = hth_slot_reader,
    .raw_make = hth_raw_make,
    .raw_back = hth_raw_back,
    .raw_seal = hth_raw_seal,
    .raw_open = hth_raw_open,
    .raw_close = hth_raw_close,
    .vacant = hth_dir_vacant,
    .publish = hth_dir_publish,
    .remove = hth_dir_remove,
    .record_put = record_put,
    .record_get = record_get,
    .record_remove = record_remove,
    .scan = hth_adopt_scan,
    .theirs = hth_adopt_theirs,
    .same = hth_theirs_same,
    .work = hth_pool_work,
    .soon = hth_pool_soon,
    .ready = hth_pool_ready,
    .cold = hth_pool_cold,
    .id = store_id,
    .close = store_close,
};

static void store_encode(const struct hth_tmpfs *t, unsigned char out[STORE_BYTES])
{
    memset(out, 0, STORE_BYTES);
    memcpy(out, magic, sizeof(magic));
    hth_put32(out + 8, hth_version_written(HTH_FORMAT_STORE));
    hth_put64(out + 16, t->id);
    hth_put64(out + 24, t->starts);
    for (size_t i = 0; t->job[i]; i++)
        out[32 + i] = (unsigned char)t->job[i];
    hth_put32(out + 12, hth_crc32c(out + 16, STORE_BYTES - 16));
}

static int store_decode(
        struct hth_tmpfs *t, const unsigned char *in, size_t len, struct hearth_error *err)
{
    const struct hth_versions *versions = hth_versions_of(HTH_FORMAT_STORE);
    uint32_t version = len < 12 ? 0 : hth_get32(in + 8);
    int rc = 0;

    if (len >= 12 && !memcmp(in, magic, sizeof(magic)))
        rc = hth_version_check(versions, version, err);
    if (rc)
        return hth_while(err, rc, "%.200s", t->path);
    if (len != STORE_BYTES || memcmp(in, magic, sizeof(magic)) != 0 ||
            hth_get32(in + 12) != hth_crc32c(in + 16, STORE_BYTES - 16))
        return hth_fail(err, HEARTH_ECORRUPT, 0,
                "%.200s/.hearth/store is damaged; look at the job with `hearth ls`, then remove it "
                "with `hearth clean --root %.*s %.64s`",
                t->path, (int)(strlen(t->path) - strlen(t->job) - 1), t->path, t->job);
    if (in[95] || strcmp((const char *)in + 32, t->job) != 0)
        return hth_fail(err, HEARTH_ECORRUPT, 0,
                "%.200s belongs to job %.64s; a job's directory must keep its name", t->path,
                (const char *)in + 32);
    t->id = hth_get64(in + 16);
    t->starts = hth_get64(in + 24);
    return 0;
}

static int store_first(struct hth_tmpfs *t, struct hearth_error *err)
{
    unsigned char bytes[STORE_BYTES];

    t->starts = 1;
    do
        if (getrandom(&t->id, sizeof(t->id), 0) != sizeof(t->id))
            return hth_fail(err, HEARTH_EIO, errno,
                    "no random number for the store's id: getrandom: %s%s", strerrordesc_np(errno),
                    hth_limit_text(errno));
    while (!t->id);
    store_encode(t, bytes);
    return hth_small_put(t, t->own_fd, "store", bytes, sizeof(bytes), err);
}

/* Whose memory this is; a new id where it has none. */
static int store_read(struct hth_tmpfs *t, struct hearth_error *err)
{
    unsigned char next[STORE_BYTES];
    struct hearth_error why = { 0 };
    void *bytes;
    size_t len;
    int fd, rc = hth_small_get(t, t->own_fd, "store", &bytes, &len, &why);

    if (rc == HEARTH_ENOENT)
        return store_first(t, err);
    if (rc)
        return hth_fail(err, rc, why.native, "%s", why.text);
    rc = store_decode(t, bytes, len, err);
    free(bytes);
    if (rc)
        return rc;
    t->starts++;
    store_encode(t, next);
    fd = hth_sys_open_file(t->own_fd, "store", O_RDWR);
    if (fd < 0 || hth_sys_write(t, fd, next, sizeof(next), 0))
        rc = hth_sys_fail(t, err, "write", "store");
    if (fd >= 0)
        close(fd);
    return rc;
}

/* Ours alone: 0700 and of this user. */
static int open_dir(
        struct hth_tmpfs *t, int parent, const char *name, int *out_fd, struct hearth_error *err)
{
    struct stat st;

    if (hth_sys_mkdir(t, parent, name) && errno != EEXIST)
        return hth_sys_fail(t, err, "make directory", name);
    *out_fd = hth_sys_open_dir(parent, name);
    if (*out_fd < 0 || fstat(*out_fd, &st))
        return hth_sys_fail(t, err, "open directory", name);
    if (st.st_uid != geteuid())
        return hth_fail(err, HEARTH_EINVAL, 0,
                "%.200s: directory %s belongs to user %ld, and this engine runs as user %ld: run "
                "all ranks and the engine of a job as one user, or give this job another name or "
                "root",
                t->path, name, (long)st.st_uid, (long)geteuid());
    if (st.st_mode & (S_IWGRP | S_IWOTH))
        return hth_fail(err, HEARTH_EINVAL, 0,
                "%.200s: directory %s has mode %03o, so that other users may exchange what is in "
                "it (fsGroup of a pod sets such modes): chmod -R go-w %.200s",
                t->path, name, (unsigned)st.st_mode & 0777, t->path);
    return 0;
}

/* Said once, before anything is saved. */
static void open_pages(struct hth_tmpfs *t, const char *root)
{
    struct hth_pages pages;

    hth_pages_look("", root, !t->opts.no_collapse, &pages);
    if (strcmp(pages.kind, "tmpfs") != 0) /* not found: it is tried */
        return;
    t->advised = pages.advised && pages.collapses <= 0;
    t->gives_huge = pages.are_huge && !pages.collapses && !pages.advised;
    t->no_collapse = t->opts.no_collapse || (!pages.collapses && (t->advised || !pages.are_huge));
    if (!pages.are_huge)
        hth_say(&t->opts.log, HEARTH_LOG_WARN, "no-huge-pages", "%s", pages.text);
}

static int open_root(struct hth_tmpfs *t, const char *root, struct hearth_error *err)
{
    struct hth_room room;
    int rc;

    rc = hth_root_open(root, O_RDONLY, &t->root_fd, err);
    if (rc == HEARTH_ENOENT) { /* other ENOENT is of what another engine removes meanwhile */
        if (err)
            err->code = HEARTH_EINVAL;
        return HEARTH_EINVAL;
    }
    if (rc)
        return rc;
    rc = hth_room_look(t->root_fd, t->opts.proc, &room, err);
    t->on_tmpfs = !rc && room.tmpfs;
    if (!rc && room.tmpfs)
        open_pages(t, root);
    if (!rc && room.unseen)
        hth_say(&t->opts.log, HEARTH_LOG_WARN, "limit-unseen",
                "a limit on this engine's memory cannot be read: %s. Where one holds and is "
                "reached, the kernel ends processes of the job: give the tmpfs a size (size=) that "
                "fits into the limit, too",
                room.unseen);
    if (rc || room.tmpfs)
        return rc;
    if (!t->opts.allow_non_tmpfs)
        return hth_fail(err, HEARTH_EINVAL, 0,
                "the store's root %.200s is not on a tmpfs; mount one there (mount -t tmpfs -o "
                "size=...,huge=within_size tmpfs DIR), or allow other file systems by option",
                root);
    t->no_collapse = 1;
    hth_say(&t->opts.log, HEARTH_LOG_WARN, "not-tmpfs",
            "%s is not on a tmpfs: checkpoints there cost what its disk costs", root);
    return 0;
}

/* An open-file lock belongs to the open file: an engine that hands it over has locked this one. */
static void open_lock_of_other(struct hth_tmpfs *t)
{
    struct stat named, given;
    int own;

    if (t->opts.lock <= 0 || fstat(t->lock_fd, &named) || fstat(t->opts.lock, &given) ||
            named.st_dev != given.st_dev || named.st_ino != given.st_ino)
        return;
    own = fcntl(t->opts.lock, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    if (own < 0)
        return;
    close(t->lock_fd);
    t->lock_fd = own;
}

static int open_lock(struct hth_tmpfs *t, struct hearth_error *err)
{
    t->lock_fd = hth_sys_open_file(t->own_fd, "lock", O_RDWR);
    if (t->lock_fd < 0 && errno == ENOENT) {
        t->lock_fd = hth_sys_create(t, t->own_fd, "lock");
        if (t->lock_fd < 0 && errno == EEXIST) /* another engine, a moment ago */
            t->lock_fd = hth_sys_open_file(t->own_fd, "lock", O_RDWR);
    }
    if (t->lock_fd < 0)
        return hth_sys_fail(t, err, "open", "lock");
    open_lock_of_other(t);
    hth_point(&t->opts.points, "lock");
    return hth_lock_take(t->lock_fd, t->path, err);
}

static int was_removed(int fd)
{
    struct stat st;

    return fd >= 0 && !fstat(fd, &st) && st.st_nlink == 0;
}

/* An engine that ended for good, or `hearth clean`, removed it after we had opened it: a lock
 * on it keeps no other engine out. */
static int is_gone(const struct hth_tmpfs *t)
{
    return was_removed(t->job_fd) || was_removed(t->own_fd) || was_removed(t->lock_fd);
}

int hth_store_tmpfs_removed(struct hth_store *s)
{
    const struct hth_tmpfs *t = hth_tmpfs_of(s);

    return was_removed(t->job_fd) || was_removed(t->own_fd);
}

int hth_store_tmpfs_unlocked(struct hth_store *s)
{
    return was_removed(hth_tmpfs_of(s)->lock_fd);
}

int hth_store_tmpfs_keep_lock(const struct hth_store *s)
{
    const struct hth_tmpfs *t = (const struct hth_tmpfs *)s;

    return fcntl(t->lock_fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
}

int hth_store_tmpfs_relock(struct hth_store *s, struct hearth_error *err)
{
    struct hth_tmpfs *t = hth_tmpfs_of(s);
    int old = t->lock_fd, rc = open_lock(t, err);

    if (!rc) {
        close(old);
        return 0;
    }
    if (t->lock_fd >= 0)
        close(t->lock_fd);
    t->lock_fd = old;
    return rc;
}

static int open_locked(struct hth_tmpfs *t, const char *root, struct hearth_error *err)
{
    int rc = open_root(t, root, err);

    if (!rc)
        rc = open_dir(t, t->root_fd, t->job, &t->job_fd, err);
    if (!rc)
        rc = open_dir(t, t->job_fd, HTH_RECORDS_DIR, &t->own_fd, err);
    if (!rc)
        rc = open_lock(t, err);
    return rc;
}

static int open_all(struct hth_tmpfs *t, const char *root, struct hearth_error *err)
{
    int rc = open_locked(t, root, err);

    for (int i = 1; i < OPEN_TRIES && is_gone(t); i++) {
        close_all(t);
        rc = open_locked(t, root, err);
    }
    if (!rc)
        rc = store_read(t, err);
    if (!rc)
        rc = open_dir(t, t->own_fd, "pool", &t->pool_fd, err);
    if (!rc)
        rc = open_dir(t, t->own_fd, "evidence", &t->evidence_fd, err);
    if (!rc) {
        hth_spares_open(t);
        hth_account_open(t);
    }
    return rc;
}

/* Another job may have taken all of the mount. */
static void open_is_full(struct hth_tmpfs *t, struct hearth_error *err)
{
    struct hearth_error why = *err;

    if (!hth_full_of_files(t->root_fd))
        hth_fail(err, why.code, why.native, "%s%s", why.text, hth_neighbour(t));
}

int hth_store_tmpfs_open(
        const struct hth_store_tmpfs_opts *opts, struct hth_store **out, struct hearth_error *err)
{
    struct hth_tmpfs *t;
    int rc = hth_job_check(opts->job, err);

    if (rc)
        return rc;
    t = calloc(1, sizeof(*t));
    if (!t)
        return hth_fail(err, HEARTH_ENOMEM, 0, "no memory for a store");
    t->base.ops = &tmpfs_ops;
    t->opts = *opts;
    t->opts.root = t->opts.job = NULL;
    t->root_fd = t->job_fd = t->own_fd = t->pool_fd = t->evidence_fd = t->lock_fd = -1;
    t->account_fd = -1;
    snprintf(t->job, sizeof(t->job), "%s", opts->job);
    if (asprintf(&t->path, "%s/%s", opts->root, opts->job) < 0) {
        free(t);
        return hth_fail(err, HEARTH_ENOMEM, 0, "no memory for a store");
    }
    rc = hth_back_open(t, err);
    if (!rc)
        rc = open_all(t, opts->root, err);
    t->opts.lock = 0;
    if (rc == HEARTH_ENOSPC && err)
        open_is_full(t, err);
    if (rc) {
        store_close(&t->base);
        return rc;
    }
    *out = &t->base;
    return 0;
}
