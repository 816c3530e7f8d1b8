/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Removal by descriptors. Hearth's directories are never deeper than three, so each level has its
 * own function, and what is deeper is foreign:
 *
 *     job/ ─► step-<N>_ckpt/ ─► objects
 *        └──► .hearth/ ─► pool/, evidence/, <save>/ ─► files
 *                   └───► files; the lock last
 */
#include "removal.h"

#include "core/base/id.h"
#include "core/base/open.h"
#include "made.h"
#include "store_tmpfs.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PART_MAX 256 /* bytes of one part of a path, with its end */
#define TAKEN \
    "new-7a6b656e" /* where an entry lies before it is removed; the next engine removes it, too */

static int removal_failed(const struct hth_removal *r, const char *name, struct hearth_error *err)
{
    int why = errno;

    return hth_fail(err, why == ENOENT ? HEARTH_ENOENT : HEARTH_EIO, why, "%.200s/%.64s: %.64s: %s",
            r->root, r->job, name, strerrordesc_np(why));
}

/* Of an entry of `fd`, or, for "", of what is open there. */
static int removal_look(int fd, const char *name, struct statx *out)
{
    int flags = AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT | (name[0] ? 0 : AT_EMPTY_PATH);

    memset(out, 0, sizeof(*out));
    return statx(fd, name, flags, STATX_BASIC_STATS | STATX_MNT_ID, out);
}

/* Which mount it is on; where the kernel does not tell, which file system. */
static uint64_t removal_mount(const struct statx *st)
{
    uint64_t device = (uint64_t)st->stx_dev_major << 32 | st->stx_dev_minor;

    return st->stx_mask & STATX_MNT_ID ? st->stx_mnt_id : device;
}

/* ---- one entry ------------------------------------------------------------------------------- */

/* Why it is foreign whatever its name and content; NULL: it is not. */
static const char *removal_foreign(const struct hth_removal *r, const struct statx *st)
{
    if (S_ISLNK(st->stx_mode))
        return "is a link";
    if (removal_mount(st) != r->mount)
        return "is on another mount";
    return st->stx_uid != r->owner ? "belongs to another user" : NULL;
}

static void removal_leave(
        const struct hth_removal *r, const char *where, const char *name, const char *why)
{
    r->stays(r->arg, where, name, why);
}

/* The file that was judged goes, and no other that has come to its name. */
static int removal_take(const struct hth_removal *r, int dir, const char *where, const char *name,
        const struct statx *judged, struct hearth_error *err)
{
    struct statx st;

    if (renameat2(dir, name, r->records_fd, TAKEN, RENAME_NOREPLACE)) {
        if (errno == EEXIST &&
                !unlinkat(r->records_fd, TAKEN, 0)) /* of a removal that was killed */
            return removal_take(r, dir, where, name, judged, err);
        return errno == ENOENT ? HEARTH_OK : removal_failed(r, name, err);
    }
    if (!removal_look(r->records_fd, TAKEN, &st) && st.stx_ino == judged->stx_ino)
        return unlinkat(r->records_fd, TAKEN, 0) ? removal_failed(r, name, err) : HEARTH_OK;
    if (renameat2(r->records_fd, TAKEN, dir, name, RENAME_NOREPLACE))
        return removal_failed(r, name, err);
    removal_leave(r, where, name, "was exchanged meanwhile");
    return HEARTH_OK;
}

/* Is a file with this name made by Hearth? fd: open, or -1. */
typedef int made_fn(const void *of, int fd, const char *name);

static int removal_entry(const struct hth_removal *r, int dir, const char *where, const char *name,
        made_fn *made, const void *of, struct hearth_error *err)
{
    int fd = hth_open_file(dir, name, O_RDONLY), is_file;
    const char *why;
    struct statx st;

    if (fd < 0 ? removal_look(dir, name, &st) : removal_look(fd, "", &st)) {
        int gone = errno == ENOENT;

        if (fd >= 0)
            close(fd);
        return gone ? HEARTH_OK : removal_failed(r, name, err);
    }
    why = removal_foreign(r, &st);
    is_file = S_ISREG(st.stx_mode) || (S_ISSOCK(st.stx_mode) && dir == r->records_fd);
    if (!why && (!is_file || !made(of, fd, name)))
        why = "is not Hearth's";
    if (fd >= 0)
        close(fd);
    if (!why)
        return removal_take(r, dir, where, name, &st, err);
    removal_leave(r, where, name, why);
    return HEARTH_OK;
}

/* All files in `dir` that Hearth made. */
static int removal_files(const struct hth_removal *r, int dir, const char *where, made_fn *made,
        const void *of, struct hearth_error *err)
{
    DIR *list = hth_open_list(dir);
    const struct dirent *e;
    int rc = HEARTH_OK;

    if (!list)
        return removal_failed(r, where, err);
    while (!rc && (errno = 0, e = readdir(list)))
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
            rc = removal_entry(r, dir, where, e->d_name, made, of, err);
    if (!rc && errno)
        rc = removal_failed(r, where, err);
    closedir(list);
    return rc;
}

/* ---- directories ----------------------------------------------------------------------------- */

/* Opens it if it is a directory of the job's. Else -1, and *why it is foreign; *why NULL: errno has
 * the reason. */
static int removal_enter(const struct hth_removal *r, int dir, const char *name, const char **why)
{
    int fd = hth_open_below(dir, name, O_RDONLY | O_DIRECTORY, 0), e = errno;
    struct statx st;

    *why = NULL;
    if (fd >= 0 && !removal_look(fd, "", &st) && !(*why = removal_foreign(r, &st)))
        return fd;
    if (fd < 0 && (e == ELOOP || e == ENOTDIR))
        *why = !removal_look(dir, name, &st) && S_ISLNK(st.stx_mode) ? "is a link"
                                                                     : "is not Hearth's";
    if (fd >= 0)
        close(fd);
    errno = e;
    return -1;
}

/* An empty one goes; one that has foreign files stays with them. */
static int removal_dir_end(const struct hth_removal *r, int dir, const char *where,
        const char *name, struct hearth_error *err)
{
    if (!unlinkat(dir, name, AT_REMOVEDIR) || errno == ENOENT)
        return HEARTH_OK;
    if (errno != ENOTEMPTY && errno != EEXIST && errno != ENOTDIR)
        return removal_failed(r, name, err);
    removal_leave(r, where, name, "is not empty");
    return HEARTH_OK;
}

static int made_object(const void *of, int fd, const char *name)
{
    return hth_made_object(of, fd, name);
}

static int made_slot(const void *of, int fd, const char *name)
{
    (void)of;
    (void)fd;
    return hth_made_slot(name);
}

static int made_evidence(const void *of, int fd, const char *name)
{
    (void)of;
    (void)fd;
    return hth_made_evidence(name);
}

/* All of .hearth/ but the lock, which keeps engines out until the end. */
static int made_record(const void *of, int fd, const char *name)
{
    (void)of;
    (void)fd;
    return hth_made_record(name) == HTH_MADE_FILE;
}

/* A directory below the job's or .hearth/ with files of one kind. */
static int removal_folder(const struct hth_removal *r, int dir, const char *where, const char *name,
        made_fn *made, struct hearth_error *err)
{
    char path[2 * PART_MAX];
    struct hth_made_save save = { .job = NULL };
    const char *why;
    int fd = removal_enter(r, dir, name, &why), rc, is_save = made == made_object;

    if (fd < 0 && !why)
        return errno == ENOENT ? HEARTH_OK : removal_failed(r, name, err);
    errno = 0;
    if (fd < 0 || (is_save && !hth_made_of(r->records_fd, fd, dir == r->records_fd ? name : NULL,
                                      r->job, &save))) {
        rc = HEARTH_OK;
        if (errno == EMFILE || errno == ENFILE || errno == ENOMEM) /* its proof was not read */
            rc = removal_failed(r, name, err);
        else
            removal_leave(r, where, name, why ? why : "is not Hearth's");
        if (fd >= 0)
            close(fd);
        return rc;
    }
    snprintf(path, sizeof(path), "%s%s%s", where, *where ? "/" : "", name);
    rc = removal_files(r, fd, path, made, &save, err);
    hth_made_fini(&save);
    close(fd);
    return rc ? rc : removal_dir_end(r, dir, where, name, err);
}

int hth_removal_save(const struct hth_removal *r, const char *name, int in_records,
        int (*before)(void *arg, struct hearth_error *err), void *arg, struct hearth_error *err)
{
    int dir = in_records ? r->records_fd : r->job_fd, fd, rc;
    struct hth_made_save save;
    const char *why;

    fd = removal_enter(r, dir, name, &why);
    if (fd < 0 && !why)
        return removal_failed(r, name, err);
    if (fd < 0 || !hth_made_of(r->records_fd, fd, in_records ? name : NULL, r->job, &save)) {
        if (fd >= 0)
            close(fd);
        return hth_fail(err, HEARTH_EINVAL, 0,
                "%.200s/%.64s/%.64s %s: only a save that Hearth made is removed; look at it, and "
                "remove it by hand",
                r->root, r->job, name, why ? why : "is not Hearth's");
    }
    rc = before(arg, err);
    rc = rc ? rc : removal_files(r, fd, name, made_object, &save, err);
    hth_made_fini(&save);
    close(fd);
    return rc ? rc : removal_dir_end(r, dir, in_records ? HTH_RECORDS_DIR : "", name, err);
}

/* ---- a job ----------------------------------------------------------------------------------- */

/* Removes an entry of .hearth/, or of the job's directory, by its kind. */
static int removal_record(const struct hth_removal *r, const char *name, struct hearth_error *err)
{
    int dir = r->records_fd;

    switch (hth_made_record(name)) {
    case HTH_MADE_POOL:
        return removal_folder(r, dir, HTH_RECORDS_DIR, name, made_slot, err);
    case HTH_MADE_EVIDENCE:
        return removal_folder(r, dir, HTH_RECORDS_DIR, name, made_evidence, err);
    case HTH_MADE_SAVE:
        return removal_folder(r, dir, HTH_RECORDS_DIR, name, made_object, err);
    default:
        if (!strcmp(name, "lock"))
            return HEARTH_OK;
        return removal_entry(r, dir, HTH_RECORDS_DIR, name, made_record, NULL, err);
    }
}

static int removal_top(const struct hth_removal *r, const char *name, struct hearth_error *err)
{
    uint64_t step;

    if (!strcmp(name, HTH_RECORDS_DIR))
        return HEARTH_OK;
    if (!hth_step_dir_theirs(name, &step))
        return removal_folder(r, r->job_fd, "", name, made_object, err);
    removal_leave(r, "", name, "is not Hearth's");
    return HEARTH_OK;
}

/* Directories first: what is in them is known by the records. */
static int removal_each(const struct hth_removal *r, int dir, int folders,
        int (*each)(const struct hth_removal *, const char *, struct hearth_error *),
        struct hearth_error *err)
{
    DIR *list = hth_open_list(dir);
    const struct dirent *e;
    int rc = HEARTH_OK;

    if (!list)
        return removal_failed(r, ".", err);
    while (!rc && (errno = 0, e = readdir(list)))
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0 &&
                (folders < 0 || folders == (hth_made_record(e->d_name) > HTH_MADE_FILE)))
            rc = each(r, e->d_name, err);
    if (!rc && errno)
        rc = removal_failed(r, ".", err);
    closedir(list);
    return rc;
}

int hth_removal_job(const struct hth_removal *r, struct hearth_error *err)
{
    int rc = removal_each(r, r->job_fd, -1, removal_top, err);

    rc = rc ? rc : removal_each(r, r->records_fd, 1, removal_record, err);
    rc = rc ? rc : removal_each(r, r->records_fd, 0, removal_record, err);
    if (!rc && r->lock_fd >= 0 && unlinkat(r->records_fd, "lock", 0) && errno != ENOENT)
        rc = removal_failed(r, "lock", err);
    rc = rc ? rc : removal_dir_end(r, r->job_fd, "", HTH_RECORDS_DIR, err);
    if (!rc && unlinkat(r->root_fd, r->job, AT_REMOVEDIR) && errno != ENOENT && errno != ENOTEMPTY)
        rc = removal_failed(r, ".", err);
    return rc;
}

/* ---- where it begins ------------------------------------------------------------------------- */

/* The next part of *path, which is moved behind it; 0: there is none, negative: it is too long. */
static int removal_path_part(const char **path, char out[PART_MAX])
{
    size_t len;

    *path += strspn(*path, "/");
    len = strcspn(*path, "/");
    if (len >= PART_MAX)
        return -1;
    memcpy(out, *path, len);
    out[len] = '\0';
    *path += len;
    return len > 0;
}

/* Opens the path part by part from the top, through no link, since another user could let a link
 * point elsewhere. */
static int removal_root(const char *root, int *out_fd, struct hearth_error *err)
{
    char name[PART_MAX];
    const char *rest = root;
    int fd = hth_open_named("/", O_PATH | O_DIRECTORY), next, more = 0;

    while (fd >= 0 && (more = removal_path_part(&rest, name)) > 0) {
        next = hth_open_below(fd, name, (*rest ? O_PATH : O_RDONLY) | O_DIRECTORY, 0);
        if (next < 0 && (errno == ELOOP || errno == ENOTDIR))
            hth_fail(err, HEARTH_EINVAL, errno,
                    "%.300s: '%.64s' in it is a link or no directory: give the path without links",
                    root, name);
        else if (next < 0)
            hth_fail(err, errno == ENOENT ? HEARTH_ENOENT : HEARTH_EIO, errno, "%.300s: %s", root,
                    strerrordesc_np(errno));
        close(fd);
        fd = next;
        if (fd < 0)
            return err ? err->code : HEARTH_EIO;
    }
    if (fd < 0 || more < 0)
        return hth_fail(err, HEARTH_EINVAL, errno, "%.300s is no path", root);
    *out_fd = fd;
    return HEARTH_OK;
}

/* A user who may exchange entries of this directory may put another job's in this one's place. */
static int removal_check_above(const struct hth_removal *r, struct hearth_error *err)
{
    struct statx st;

    if (removal_look(r->root_fd, "", &st))
        return removal_failed(r, "..", err);
    if (geteuid() != 0)
        return HEARTH_OK; /* only the caller's own goes, wherever it lies */
    if (st.stx_uid != 0 && st.stx_uid != r->owner)
        return hth_fail(err, HEARTH_EIO, 0,
                "%.300s belongs to user %ld, and not to root or to user %ld, the owner of job "
                "'%.64s': "
                "clean it as that owner",
                r->root, (long)st.stx_uid, (long)r->owner, r->job);
    if (st.stx_mode & (S_IWGRP | S_IWOTH) && !(st.stx_mode & S_ISVTX))
        return hth_fail(err, HEARTH_EIO, 0,
                "others may write to %.300s (mode %04o) and exchange jobs in it meanwhile: chmod "
                "+t it, or clean as user %ld",
                r->root, (unsigned)st.stx_mode & 07777, (long)r->owner);
    return HEARTH_OK;
}

static int removal_job(struct hth_removal *r, struct hearth_error *err)
{
    struct statx st;

    r->job_fd = hth_open_below(r->root_fd, r->job, O_RDONLY | O_DIRECTORY, 0);
    if (r->job_fd < 0 && (errno == ELOOP || errno == ENOTDIR))
        return hth_fail(err, HEARTH_ENOENT, errno,
                "%.300s/%.64s is a link or no directory, and so no job", r->root, r->job);
    if (r->job_fd < 0 || removal_look(r->job_fd, "", &st))
        return hth_fail(err, errno == ENOENT ? HEARTH_ENOENT : HEARTH_EIO, errno,
                "%.300s/%.64s: %s", r->root, r->job, strerrordesc_np(errno));
    if (geteuid() != 0 && st.stx_uid != geteuid())
        return hth_fail(err, HEARTH_EIO, 0,
                "%.300s/%.64s belongs to user %ld, and this is user %ld: remove it as its owner",
                r->root, r->job, (long)st.stx_uid, (long)geteuid());
    r->owner = st.stx_uid;
    r->mount = removal_mount(&st);
    return removal_check_above(r, err);
}

/* A file of the owner's that every engine makes. */
static int removal_has(const struct hth_removal *r, const char *name)
{
    struct statx st;

    return !removal_look(r->records_fd, name, &st) && S_ISREG(st.stx_mode) &&
           !removal_foreign(r, &st);
}

static int removal_mark(struct hth_removal *r, struct hearth_error *err)
{
    const char *why;
    int rc;

    r->records_fd = removal_enter(r, r->job_fd, HTH_RECORDS_DIR, &why);
    if (r->records_fd < 0 && !why && errno != ENOENT)
        return removal_failed(r, HTH_RECORDS_DIR, err);
    if (r->records_fd < 0 || (!removal_has(r, "lock") && !removal_has(r, "store")))
        return hth_fail(err, HEARTH_ENOENT, 0,
                "%.200s/%.64s has no " HTH_RECORDS_DIR
                " of an engine, and so is no job of Hearth's: nothing in it is removed",
                r->root, r->job);
    rc = hth_store_lock(r->records_fd, r->job, &r->lock_fd, err);
    return rc == HEARTH_ENOENT ? HEARTH_OK : rc;
}

int hth_removal_open(struct hth_removal *out, const char *root, const char *job,
        hth_removal_stays_fn *stays, void *arg, struct hearth_error *err)
{
    struct hth_removal r = { .root_fd = -1,
        .job_fd = -1,
        .records_fd = -1,
        .lock_fd = -1,
        .root = root,
        .job = job,
        .stays = stays,
        .arg = arg };
    struct hearth_error cause = { 0 };
    int rc = hth_job_check(job, &cause);

    rc = rc ? rc : removal_root(root, &r.root_fd, &cause);
    rc = rc ? rc : removal_job(&r, &cause);
    rc = rc ? rc : removal_mark(&r, &cause);
    if (rc) {
        hth_removal_close(&r);
        return hth_fail(err, rc, cause.native, "%s", cause.text);
    }
    *out = r;
    return HEARTH_OK;
}

void hth_removal_close(struct hth_removal *r)
{
    int *const fds[] = { &r->lock_fd, &r->records_fd, &r->job_fd, &r->root_fd };

    for (size_t i = 0; i < sizeof(fds) / sizeof(fds[0]); i++) {
        if (*fds[i] >= 0)
            close(*fds[i]);
        *fds[i] = -1;
    }
}
