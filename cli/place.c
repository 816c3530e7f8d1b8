/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How commands open files. A root, a job's directory, a container or a file that the user names is
 * opened by the path that the user gives. Files in there are opened only relative to that, and
 * through no link but one into the job's `buffer_pool/`, as foreign writers make them.
 */
#include "cli.h"

#include "core/base/file.h"
#include "core/base/open.h"
#include "core/base/root.h"
#include "core/foreign/foreign.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#define SMALL_MAX    (UINT64_C(64) << 20) /* bytes of a record: Hearth makes no larger one */
#define METADATA_MAX (UINT64_C(4) << 30)  /* of another writer's `.metadata` */

int place_failed(const char *path, struct hearth_error *err)
{
    int why = errno, none = why == ENOENT || why == ENOTDIR;

    if (!why) /* place_below() has said it */
        return err->code;
    if (why == ELOOP || why == EXDEV)
        return hth_fail(
                err, HEARTH_EIO, why, "%.300s: a link, or '..', which is not followed", path);
    return hth_fail(
            err, none ? HEARTH_ENOENT : HEARTH_EIO, why, "%.300s: %s", path, strerrordesc_np(why));
}

int place_below(const char *root, const char *name, int flags, struct hearth_error *err)
{
    int dir, fd, why;

    if (!root)
        return hth_open_named(name, flags);
    if (hth_root_open(root, O_PATH, &dir, err)) {
        errno = 0;
        return -1;
    }
    fd = hth_open_below(dir, name, flags, 0);
    why = errno;
    close(dir);
    errno = why;
    return fd;
}

/* A name that is a link or a file, or leads out of the root, is no job's: HEARTH_ENOENT. */
int job_open(const char *root, const char *job, int *out_fd, struct hearth_error *err)
{
    char path[4096];
    int fd = place_below(root, job, O_PATH | O_DIRECTORY, err);

    if (fd < 0 && (errno == ELOOP || errno == EXDEV))
        errno = ENOENT;
    snprintf(path, sizeof(path), "%.3800s/%.255s", root, job);
    if (fd < 0)
        return place_failed(path, err);
    *out_fd = fd;
    return HEARTH_OK;
}

int job_unknown(const char *root, const char *job, struct hearth_error *err)
{
    struct nearest near = { .word = job };
    char **names = NULL;
    int dir, rc;

    if (!hth_root_open(root, O_PATH, &dir, NULL)) {
        names = names_in(dir, root, NULL);
        close(dir);
    }
    for (size_t i = 0; names && names[i]; i++)
        if (!hth_job_check(names[i], NULL))
            nearest_try(&near, names[i]);
    rc = hth_fail(err, HEARTH_ENOENT, 0, "there is no job '%.64s' in %.300s%s%.64s%s", job, root,
            near.found ? "; did you mean '" : "", near.found ? near.found : "",
            near.found ? "'?" : "");
    names_free(names);
    return rc;
}

/* The file that a link in a container leads to, if it lies in the job's buffers. ESTALE: that file
 * is gone; ENOENT would mean the link. */
static int entry_open_link(const struct place *p, const char *name)
{
    char link[PATH_MAX], real[PATH_MAX], at[sizeof(HTH_BUFFERS) + 256];
    const char *bases[] = { "..", p->job_path, realpath(p->job_path, real) }, *buffer = NULL;
    ssize_t len = readlinkat(p->container, name, link, sizeof(link) - 1);
    int fd;

    if (len < 0)
        return -1;
    link[len] = '\0';
    for (size_t i = 0; !buffer && i < sizeof(bases) / sizeof(bases[0]); i++)
        buffer = bases[i] ? hth_foreign_buffer(link, bases[i]) : NULL;
    if (!buffer) {
        errno = ELOOP;
        return -1;
    }
    snprintf(at, sizeof(at), HTH_BUFFERS "/%s", buffer);
    fd = hth_open_file(p->job, at, O_RDONLY);
    if (fd < 0 && errno == ENOENT)
        errno = ESTALE;
    return fd;
}

int entry_open(const struct place *p, const char *name)
{
    int fd = hth_open_file(p->container, name, O_RDONLY);

    return fd < 0 && errno == ELOOP ? entry_open_link(p, name) : fd;
}

int entry_went(int dir, const char *name, uint64_t inode)
{
    struct stat st;

    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW))
        return errno == ENOENT;
    return !S_ISLNK(st.st_mode) && st.st_ino != inode;
}

int entry_goes(int dir, const char *name, uint64_t inode, uint32_t *patience_ms)
{
    static const struct timespec nap = { .tv_nsec = 1000000 };

    while (!entry_went(dir, name, inode)) {
        if (!*patience_ms)
            return 0;
        nanosleep(&nap, NULL);
        --*patience_ms;
    }
    return 1;
}

/* 1: `dir` is the `.hearth` of `above`. */
static int place_is_records(int above, int dir)
{
    struct stat a, b;

    return !fstat(dir, &a) && !fstatat(above, HTH_RECORDS_DIR, &b, AT_SYMLINK_NOFOLLOW) &&
           a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

int place_around(struct place *p, int container, const char *path)
{
    int above = hth_open_parent(container), further = above < 0 ? -1 : hth_open_parent(above);
    int why = errno, in_records = further >= 0 && place_is_records(further, above);
    char job[4096 + 8];

    *p = (struct place){ .container = container, .job = in_records ? further : above };
    if (further >= 0 && !in_records)
        close(further);
    if (above >= 0 && in_records)
        close(above);
    snprintf(job, sizeof(job), "%.4000s/%s", path, in_records ? "../.." : "..");
    if (!realpath(job, p->job_path))
        p->job_path[0] = '\0';
    errno = why;
    return p->job < 0 ? -1 : 0;
}

void place_close(struct place *p)
{
    if (p->container >= 0)
        close(p->container);
    if (p->job >= 0)
        close(p->job);
    p->container = p->job = -1;
}

int object_file(const char *root, const char *path, struct place *out, struct hearth_error *err)
{
    const char *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;
    char dir[4096] = ".", whole[4096];
    int fd;

    snprintf(whole, sizeof(whole), "%.3000s%s%.1000s", root ? root : "", root ? "/" : "", path);
    if (slash)
        snprintf(dir, sizeof(dir), "%.*s", slash == path ? 1 : (int)(slash - path), path);
    fd = place_below(root, dir, O_PATH | O_DIRECTORY, err);
    *out = (struct place){ .container = fd, .job = -1 };
    if (fd < 0)
        return place_failed(whole, err);
    if (slash)
        *strrchr(whole, '/') = '\0';
    if (place_around(out, fd, slash ? whole : ".") || (fd = entry_open(out, name)) < 0) {
        int rc = errno == EINVAL ? hth_fail(err, HEARTH_EINVAL, 0, "%.300s is not a file", path)
                                 : place_failed(path, err);

        place_close(out);
        return rc;
    }
    return fd;
}

/* ---- what a directory takes -------------------------------------------------------------- */

#define DEPTH 8 /* of a job's own directories: three */

static uint64_t place_taken_below(int dir, int depth)
{
    DIR *list = hth_open_list(dir);
    const struct dirent *e;
    uint64_t bytes = 0;
    struct stat st;

    while (list && (e = readdir(list))) {
        int fd = -1;

        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..") ||
                fstatat(dir, e->d_name, &st, AT_SYMLINK_NOFOLLOW))
            continue;
        if (S_ISREG(st.st_mode))
            bytes += (uint64_t)st.st_blocks * 512 / st.st_nlink;
        else if (S_ISDIR(st.st_mode) && depth < DEPTH)
            fd = hth_open_below(dir, e->d_name, O_PATH | O_DIRECTORY, 0);
        if (fd >= 0) {
            bytes += place_taken_below(fd, depth + 1);
            close(fd);
        }
    }
    if (list)
        closedir(list);
    return bytes;
}

uint64_t place_taken(int dir)
{
    return place_taken_below(dir, 0);
}

int place_room(int dir, struct mount_room *out)
{
    struct statvfs v;

    if (fstatvfs(dir, &v) || !v.f_blocks)
        return -1;
    out->size = (uint64_t)v.f_blocks * v.f_frsize;
    out->used = (uint64_t)(v.f_blocks - v.f_bfree) * v.f_frsize;
    out->free = (uint64_t)v.f_bavail * v.f_frsize;
    out->full = out->free < out->size / 100;
    return 0;
}

/* ---- small files, and lists
 * ------------------------------------------------------------------- */

int read_small(int dir, const char *name, void **out, size_t *out_len, struct hearth_error *err)
{
    int fd = hth_open_below(dir, name, O_RDONLY, 0), rc = HEARTH_OK;

    if (fd < 0)
        return hth_fail(err, errno == ENOENT ? HEARTH_ENOENT : HEARTH_EIO, errno,
                "%.300s cannot be read: %s", name,
                errno == ELOOP ? "a link, which is not followed" : strerrordesc_np(errno));
    if (hth_file_read(fd, strcmp(name, HTH_METADATA) ? SMALL_MAX : METADATA_MAX, out, out_len)) {
        if (errno == EINVAL)
            rc = hth_fail(err, HEARTH_EIO, 0, "%.300s cannot be read: it is not a file", name);
        else if (errno == EFBIG || errno == ENOMEM)
            rc = hth_fail(err, HEARTH_ENOMEM, 0, "%.300s is too large to be read", name);
        else
            rc = hth_fail(err, HEARTH_EIO, errno, "%.300s cannot be read: %s", name,
                    strerrordesc_np(errno));
    }
    close(fd);
    return rc;
}

#define NAMES_MAX 1000000

static int place_by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

struct names {
    char **name; /* [n], NULL behind the last */
    size_t n, room;
};

/* 1: it is in; 0: there is no memory, or there are too many. */
static int names_add(struct names *l, const char *name)
{
    if (l->n == l->room) {
        char **more = l->n < NAMES_MAX ? realloc(l->name, (2 * l->room + 1) * sizeof(*more)) : NULL;

        if (!more)
            return 0;
        l->name = more;
        l->room *= 2;
    }
    l->name[l->n] = strdup(name);
    if (!l->name[l->n])
        return 0;
    l->name[++l->n] = NULL;
    return 1;
}

char **names_in(int dir, const char *path, struct hearth_error *err)
{
    DIR *d = hth_open_list(dir);
    struct names l = { d ? calloc(65, sizeof(*l.name)) : NULL, 0, 64 };
    const struct dirent *e;
    int why;

    if (!l.name) {
        place_failed(path, err);
        if (d)
            closedir(d);
        return NULL;
    }
    while ((errno = 0, e = readdir(d)))
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0 &&
                !names_add(&l, e->d_name))
            break;
    why = errno;
    closedir(d);
    if (e || why) { /* half a list is none */
        names_free(l.name);
        hth_fail(err, e ? HEARTH_ENOMEM : HEARTH_EIO, why, "%.300s cannot be listed: %s", path,
                e ? "it has too many files" : strerrordesc_np(why));
        return NULL;
    }
    qsort(l.name, l.n, sizeof(*l.name), place_by_name);
    return l.name;
}

void names_free(char **names)
{
    for (size_t i = 0; names && names[i]; i++)
        free(names[i]);
    free(names);
}
