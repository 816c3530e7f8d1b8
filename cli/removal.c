/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Removal by descriptors. A tree is walked twice with the same checks: once to see that all of it
 * may go, so that a refusal leaves it whole, and once to remove it, since meanwhile it may have
 * become another.
 *
 *     entry ─look─► not a directory ──────────────────────────► unlinkat(dir, name)
 *              └──► a directory ─open─► look again ─► inside ─► unlinkat(dir, name, REMOVEDIR)
 *
 * A name that is exchanged in between meets a call that refuses what it has become.
 */
#include "removal.h"

#include "core/base/id.h"
#include "core/base/open.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PART_MAX 256 /* bytes of one part of a path, with its end */

struct walk {
    const struct removal *of;
    int removes; /* else it only looks */
    int depth;
    struct hearth_error *err;
};

static int removal_failed(const struct removal *r, const char *name, struct hearth_error *err)
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

/* ---- what may go ------------------------------------------------------------------------------ */

static int removal_may_go(const struct walk *w, const char *name, const struct statx *st)
{
    const struct removal *r = w->of;

    if (st->stx_uid != r->owner)
        return hth_fail(w->err, HEARTH_EIO, 0,
                "%.200s/%.64s: '%.64s' belongs to user %ld and the job to user %ld: what is not "
                "the job's is not removed; look at it, then remove it by hand",
                r->root, r->job, name, (long)st->stx_uid, (long)r->owner);
    if (removal_mount(st) != r->mount)
        return hth_fail(w->err, HEARTH_EIO, 0,
                "%.200s/%.64s: something is mounted at '%.64s', and other mounts are not entered: "
                "unmount it first",
                r->root, r->job, name);
    return HEARTH_OK;
}

static int removal_all(struct walk *w, int dir, const char *except);

static int removal_dir(struct walk *w, int dir, const char *name)
{
    int fd = hth_open_below(dir, name, O_RDONLY | O_DIRECTORY, 0), rc;
    struct statx st;

    if (fd < 0)
        return errno == ENOENT ? HEARTH_OK : removal_failed(w->of, name, w->err);
    if (w->depth == REMOVAL_DEPTH)
        rc = hth_fail(w->err, HEARTH_EIO, 0,
                "%.200s/%.64s has directories more than %d deep, which Hearth never makes: remove "
                "'%.64s' by hand",
                w->of->root, w->of->job, REMOVAL_DEPTH, name);
    else if (removal_look(fd, "", &st))
        rc = removal_failed(w->of, name, w->err);
    else
        rc = removal_may_go(w, name, &st);
    w->depth++;
    rc = rc ? rc : removal_all(w, fd, NULL);
    w->depth--;
    close(fd);
    if (!rc && w->removes && unlinkat(dir, name, AT_REMOVEDIR) && errno != ENOENT)
        rc = removal_failed(w->of, name, w->err);
    return rc;
}

static int removal_entry(struct walk *w, int dir, const char *name)
{
    struct statx st;
    int rc;

    if (removal_look(dir, name, &st))
        return errno == ENOENT ? HEARTH_OK : removal_failed(w->of, name, w->err);
    rc = removal_may_go(w, name, &st);
    if (rc)
        return rc;
    if (S_ISDIR(st.stx_mode))
        return removal_dir(w, dir, name);
    if (w->removes && unlinkat(dir, name, 0) && errno != ENOENT)
        return removal_failed(w->of, name, w->err);
    return HEARTH_OK;
}

/* `except` stays, and need not be the job's. */
static int removal_all(struct walk *w, int dir, const char *except)
{
    DIR *list = hth_open_list(dir);
    const struct dirent *e;
    int rc = HEARTH_OK;

    if (!list)
        return removal_failed(w->of, ".", w->err);
    while (!rc && (errno = 0, e = readdir(list)))
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0 &&
                (!except || strcmp(e->d_name, except) != 0))
            rc = removal_entry(w, dir, e->d_name);
    if (!rc && errno)
        rc = removal_failed(w->of, ".", w->err);
    closedir(list);
    return rc;
}

int removal_check(const struct removal *r, int dir, const char *name, struct hearth_error *err)
{
    struct walk w = { .of = r, .err = err };

    return name ? removal_entry(&w, dir, name) : removal_all(&w, dir, NULL);
}

int removal_tree(const struct removal *r, int dir, const char *name, struct hearth_error *err)
{
    struct walk w = { .of = r, .err = err, .removes = 1 };

    return removal_entry(&w, dir, name);
}

int removal_inside(const struct removal *r, int dir, const char *except, struct hearth_error *err)
{
    struct walk w = { .of = r, .err = err, .removes = 1 };

    return removal_all(&w, dir, except);
}

/* ---- where it begins -------------------------------------------------------------------------- */

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

/* Part by part from the top, and through no link, which somebody else could point elsewhere. */
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

/* Whoever may exchange entries of this directory may put another job's in this one's place. */
static int removal_check_above(const struct removal *r, struct hearth_error *err)
{
    struct statx st;

    if (removal_look(r->root_fd, "", &st))
        return removal_failed(r, "..", err);
    if (geteuid() != 0)
        return HEARTH_OK; /* only the caller's own goes, wherever it lies */
    if (st.stx_uid != 0 && st.stx_uid != r->owner)
        return hth_fail(err, HEARTH_EIO, 0,
                "%.300s belongs to user %ld, who is neither root nor user %ld, whose job '%.64s' "
                "is: clean it as that user",
                r->root, (long)st.stx_uid, (long)r->owner, r->job);
    if (st.stx_mode & (S_IWGRP | S_IWOTH) && !(st.stx_mode & S_ISVTX))
        return hth_fail(err, HEARTH_EIO, 0,
                "others may write to %.300s (mode %04o) and exchange jobs in it meanwhile: chmod "
                "+t it, or clean as user %ld",
                r->root, (unsigned)st.stx_mode & 07777, (long)r->owner);
    return HEARTH_OK;
}

static int removal_job(struct removal *r, struct hearth_error *err)
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
                "%.300s/%.64s belongs to user %ld, and we are user %ld: who has it removes it",
                r->root, r->job, (long)st.stx_uid, (long)geteuid());
    r->owner = st.stx_uid;
    r->mount = removal_mount(&st);
    return removal_check_above(r, err);
}

int removal_open(struct removal *out, const char *root, const char *job, struct hearth_error *err)
{
    struct removal r = { .root_fd = -1, .job_fd = -1, .root = root, .job = job };
    struct hearth_error cause = { 0 };
    int rc = hth_job_check(job, &cause);

    rc = rc ? rc : removal_root(root, &r.root_fd, &cause);
    rc = rc ? rc : removal_job(&r, &cause);
    if (rc) {
        removal_close(&r);
        return hth_fail(err, rc, cause.native, "%s", cause.text);
    }
    *out = r;
    return HEARTH_OK;
}

void removal_close(struct removal *r)
{
    if (r->job_fd >= 0)
        close(r->job_fd);
    if (r->root_fd >= 0)
        close(r->root_fd);
    r->root_fd = r->job_fd = -1;
}

int removal_enter(const struct removal *r, int dir, const char *name, struct hearth_error *err)
{
    struct walk w = { .of = r, .err = err };
    int fd = hth_open_below(dir, name, O_RDONLY | O_DIRECTORY, 0), rc = HEARTH_OK;
    struct statx st;

    if (fd < 0 || removal_look(fd, "", &st))
        rc = removal_failed(r, name, err);
    else
        rc = removal_may_go(&w, name, &st);
    if (rc && fd >= 0)
        close(fd);
    return rc ? rc : fd;
}
