/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The path is opened part by part, so that the owner of each link is checked: a user who may write
 * to a directory on the way, such as /tmp, can make a link there that leads anywhere, and point it
 * elsewhere while a job runs.
 *
 *     part ─► a directory ─► the next part                  rest = "mem/../h"
 *        └──► a link of root's or ours ─► its text before the rest
 *
 * A directory above the root that others may write to is not refused: in a container that has no
 * other user, such a mount is usual, and a directory of one's own in it is what the refusal of the
 * root itself advises.
 */
#include "root.h"

#include "fail.h"
#include "full.h"
#include "open.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#define LINKS_MAX 40 /* as many as the kernel follows */

struct root_way {
    const char *path; /* as it was named */
    char rest[PATH_MAX];
    char part[NAME_MAX + 1];
    unsigned links;
    int fd; /* as far as it was opened */
};

static int root_failed(const struct root_way *w, struct hearth_error *err)
{
    int why = errno, code;

    code = why == ENOENT || why == ENOTDIR ? HEARTH_ENOENT : HEARTH_EIO;
    if (why == ENOTDIR)
        hth_fail(err, code, why, "root '%.200s' is not a directory", w->path);
    else if (why == EMFILE || why == ENFILE)
        hth_fail(err, code, why, "cannot open root '%.200s': %s%s", w->path, strerrordesc_np(why),
                hth_limit_text(why));
    else
        hth_fail(err, code, why,
                "cannot open root '%.200s': %s; mount a tmpfs there, for example `mount -t tmpfs "
                "-o size=512g,huge=within_size,mode=0700 hearth DIR`, or name another root",
                w->path, strerrordesc_np(why));
    errno = why;
    return code;
}

static int root_step(struct root_way *w, int next)
{
    int why = errno;

    if (next < 0)
        return -1;
    close(w->fd);
    w->fd = next;
    errno = why;
    return 0;
}

/* Before the rest. 0; -1 and errno. */
static int root_splice(struct root_way *w, const char *text)
{
    char all[PATH_MAX];

    if (snprintf(all, sizeof(all), "%s/%s", text, w->rest) >= (int)sizeof(all)) {
        errno = ENAMETOOLONG;
        return -1;
    }
    memcpy(w->rest, all, sizeof(all));
    return *text == '/' ? root_step(w, hth_open_named("/", O_PATH | O_DIRECTORY)) : 0;
}

/* Follows a link. A link in /proc leads to an open file, not to the path in its text. */
static int root_follow(struct root_way *w, int link)
{
    char text[PATH_MAX];
    struct statfs fs;
    ssize_t len;

    if (++w->links > LINKS_MAX) {
        errno = ELOOP;
        return -1;
    }
    if (!fstatfs(link, &fs) && fs.f_type == PROC_SUPER_MAGIC)
        return root_step(w, hth_open_part(w->fd, w->part, O_PATH | O_DIRECTORY));
    len = readlinkat(link, "", text, sizeof(text) - 1);
    if (len < 0)
        return -1;
    text[len] = '\0';
    return root_splice(w, text);
}

static int root_link(struct root_way *w, struct hearth_error *err)
{
    int link = hth_open_part(w->fd, w->part, O_PATH | O_NOFOLLOW), rc, why;
    struct stat st;

    if (link < 0 || fstat(link, &st))
        rc = root_failed(w, err);
    else if (!S_ISLNK(st.st_mode))
        errno = ENOTDIR, rc = root_failed(w, err);
    else if (st.st_uid != 0 && st.st_uid != geteuid())
        rc = hth_fail(err, HEARTH_EINVAL, EPERM,
                "root '%.200s' leads over the link '%.64s' of user %u, which that user may change "
                "at any "
                "time: give a path without that link",
                w->path, w->part, (unsigned)st.st_uid),
        errno = EPERM;
    else
        rc = root_follow(w, link) ? root_failed(w, err) : HEARTH_OK;
    why = errno;
    if (link >= 0)
        close(link);
    errno = why;
    return rc;
}

/* The next part of the rest; 0: there is none, -1: it is too long. */
static int root_part(struct root_way *w)
{
    const char *at = w->rest + strspn(w->rest, "/");
    size_t len = strcspn(at, "/");

    if (len > NAME_MAX) {
        errno = ENAMETOOLONG;
        return -1;
    }
    memcpy(w->part, at, len);
    w->part[len] = '\0';
    memmove(w->rest, at + len, strlen(at + len) + 1);
    return len > 0;
}

static int root_walk(struct root_way *w, struct hearth_error *err)
{
    int more, rc = HEARTH_OK;

    while (!rc && (more = root_part(w))) {
        int next = more < 0 ? -1
                   : strcmp(w->part, "..") == 0
                           ? hth_open_parent(w->fd)
                           : hth_open_below(w->fd, w->part, O_PATH | O_DIRECTORY, 0);

        if (more > 0 && next < 0 && (errno == ELOOP || errno == ENOTDIR))
            rc = root_link(w, err);
        else if (root_step(w, next))
            rc = root_failed(w, err);
    }
    return rc;
}

static int root_check(const struct root_way *w, int fd, struct hearth_error *err)
{
    struct stat st;

    if (fstat(fd, &st))
        return root_failed(w, err);
    if (!(st.st_mode & S_IWOTH) || st.st_mode & S_ISVTX)
        return HEARTH_OK;
    hth_fail(err, HEARTH_EINVAL, EPERM,
            "root '%.200s' has mode %04o: every user may exchange the jobs in it; set the sticky bit (chmod +t "
            "DIR), or name a directory in it that only user %u may write to",
            w->path, (unsigned)st.st_mode & 07777, (unsigned)geteuid());
    errno = EPERM;
    return HEARTH_EINVAL;
}

int hth_root_open(const char *path, int flags, int *out_fd, struct hearth_error *err)
{
    struct root_way w = { .path = path,
        .fd = hth_open_named(path[0] == '/' ? "/" : ".", O_PATH | O_DIRECTORY) };
    int fd = -1, rc, why;

    if (snprintf(w.rest, sizeof(w.rest), "%s", path) >= (int)sizeof(w.rest) || !path[0])
        errno = path[0] ? ENAMETOOLONG : ENOENT, rc = root_failed(&w, err);
    else
        rc = w.fd < 0 ? root_failed(&w, err) : root_walk(&w, err);
    if (!rc) {
        fd = hth_open_below(w.fd, ".", flags | O_DIRECTORY, 0);
        rc = fd < 0 ? root_failed(&w, err) : root_check(&w, fd, err);
    }
    why = errno;
    if (w.fd >= 0)
        close(w.fd);
    if (rc && fd >= 0)
        close(fd);
    if (!rc)
        *out_fd = fd;
    errno = why;
    return rc;
}
