/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files of foreign containers. Their writer renames, removes and writes them while we have them
 * mapped:
 *
 *     step-5_ckpt/__0__0_src0.distcp ─link─► buffer_pool/buffer_0_0.dist   free once the link is
 *     step-7_ckpt/__0__0_src0.distcp ─link─►       "                       gone, and written again
 *
 * So each is bound to what it was when it was found: its name's own inode and times (the link's,
 * too), the file's, its length, and the block's first fields. Bytes that were read of it count if
 * it is the same afterwards: a writer that keeps a buffer mapped changes neither size nor times,
 * but it takes the link away before it writes.
 */
#include "tmpfs.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- Opening --------------------------------------------------------------------------------- */

/* `<base>/buffer_pool/<name>`: the name, or NULL. */
static const char *buffer_of(const struct hth_tmpfs *t, const char *link)
{
    char real[PATH_MAX];
    const char *bases[] = { t->path, "..", realpath(t->path, real) }, *name = NULL;

    for (size_t i = 0; !name && i < sizeof(bases) / sizeof(bases[0]); i++)
        name = bases[i] ? hth_foreign_buffer(link, bases[i]) : NULL;
    return name;
}

/* A link into the buffers that is newer than one of ours. */
struct newer {
    const struct hth_tmpfs *t;
    const char *buffer, *dir; /* [dir] ours */
    uint64_t step;
    struct timespec made;
    int fd; /* of the other directory */
    uint64_t other_step;
    int there;
};

static void newer_link(void *arg, const char *name)
{
    struct newer *n = arg;
    char link[PATH_MAX];
    ssize_t len = readlinkat(n->fd, name, link, sizeof(link) - 1);
    const char *buffer;
    struct stat st;
    int64_t later;

    if (len < 0 || fstatat(n->fd, name, &st, AT_SYMLINK_NOFOLLOW))
        return;
    link[len] = '\0';
    buffer = buffer_of(n->t, link);
    later = st.st_mtim.tv_sec != n->made.tv_sec ? st.st_mtim.tv_sec - n->made.tv_sec
                                                : st.st_mtim.tv_nsec - n->made.tv_nsec;
    n->there |= buffer && !strcmp(buffer, n->buffer) &&
                (later > 0 || (!later && n->other_step > n->step));
}

static void newer_dir(void *arg, const char *name)
{
    struct newer *n = arg;

    if (n->there || !strcmp(name, n->dir) || hth_step_dir_theirs(name, &n->other_step) ||
            (n->fd = hth_sys_open_dir(n->t->job_fd, name)) < 0)
        return;
    hth_sys_each(n->fd, newer_link, n);
    close(n->fd);
}

/* A writer that was restarted reuses buffers which an older step still links to. A buffer belongs
 * to the newest link. */
static int written_again(const struct hth_tmpfs *t, const struct tmpfs_dir *dir, const char *name,
        const char *buffer)
{
    struct newer n = { .t = t, .buffer = buffer, .dir = dir->name };
    struct stat st;

    if (fstatat(dir->fd, name, &st, AT_SYMLINK_NOFOLLOW) || hth_step_dir_theirs(n.dir, &n.step))
        return 0;
    n.made = st.st_mtim;
    hth_sys_each(t->job_fd, newer_dir, &n);
    return n.there;
}

int hth_theirs_open(
        const struct hth_tmpfs *t, const struct tmpfs_dir *dir, const char *name, int *out_link)
{
    char link[PATH_MAX];
    ssize_t len = readlinkat(dir->fd, name, link, sizeof(link) - 1);
    const char *buffer;
    int buffers, fd;

    if (len < 0)
        return hth_sys_open_file(dir->fd, name, O_RDONLY);
    link[len] = '\0';
    *out_link = 1;
    buffer = buffer_of(t, link);
    if (!buffer) {
        errno = ELOOP;
        return -1;
    }
    if (written_again(t, dir, name, buffer)) {
        errno = ESTALE;
        return -1;
    }
    buffers = hth_sys_open_dir(t->job_fd, HTH_BUFFERS);
    fd = hth_sys_open_file(buffers, buffer, O_RDONLY);
    if (buffers >= 0)
        close(buffers);
    return fd;
}

/* ---- The same still? ------------------------------------------------------------------------- */

static struct tmpfs_stamp stamp_of(const struct stat *st)
{
    return (struct tmpfs_stamp){ st->st_dev, st->st_ino, st->st_size, st->st_mtim, st->st_ctim };
}

static int stamp_same_time(struct timespec a, struct timespec b)
{
    return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
}

static int stamp_same(const struct tmpfs_stamp *was, const struct stat *st)
{
    return was->dev == st->st_dev && was->ino == st->st_ino && was->size == st->st_size &&
           stamp_same_time(was->mtime, st->st_mtim) && stamp_same_time(was->ctime, st->st_ctim);
}

/* Length and signature, where there are any. */
static size_t head_bytes(const struct tmpfs_slot *slot)
{
    return slot->pub.capacity < sizeof(slot->was.head) ? slot->pub.capacity
                                                       : sizeof(slot->was.head);
}

/* Read, not copied from the mapping: the file may be cut at any time. */
static int head_read(const struct tmpfs_slot *slot, unsigned char *out)
{
    size_t len = head_bytes(slot);

    return pread(slot->pub.fd, out, len, 0) == (ssize_t)len ? 0 : -1;
}

int hth_theirs_bind(struct tmpfs_slot *slot, const struct stat *file)
{
    struct stat name;

    if (fstatat(slot->dir->fd, slot->name, &name, AT_SYMLINK_NOFOLLOW) ||
            head_read(slot, slot->was.head))
        return -1;
    slot->was.name = stamp_of(&name);
    slot->was.file = stamp_of(file);
    return 0;
}

/* NULL: nothing. */
static const char *theirs_changed(const struct tmpfs_slot *slot)
{
    unsigned char head[sizeof(slot->was.head)];
    struct stat st;

    if (!slot->dir || fstatat(slot->dir->fd, slot->name, &st, AT_SYMLINK_NOFOLLOW))
        return "it was removed";
    if (!stamp_same(&slot->was.name, &st))
        return "another file has its name";
    if (fstat(slot->pub.fd, &st) || st.st_size != slot->was.file.size)
        return "it has another length";
    if (!stamp_same(&slot->was.file, &st) || head_read(slot, head) ||
            memcmp(head, slot->was.head, head_bytes(slot)) != 0)
        return "it was written to";
    return NULL;
}

int hth_theirs_same(struct hth_store *s, const struct hth_slot *pub, struct hearth_error *err)
{
    const struct tmpfs_slot *slot = (const struct tmpfs_slot *)pub;
    const char *why = slot->foreign ? theirs_changed(slot) : NULL;

    (void)s;
    return why ? hth_fail(err, HEARTH_ELOST, 0,
                         "file '%.200s' of a container that Hearth did not write has changed since "
                         "it was looked at (%s): recover again",
                         slot->name, why)
               : HEARTH_OK;
}

/* ---- Forgotten ------------------------------------------------------------------------------- */

void hth_theirs_forget(struct hth_tmpfs *t)
{
    for (struct tmpfs_slot *s = t->slots, *next; s; s = next) {
        next = s->next;
        if (!s->foreign || s->state != TMPFS_SEALED)
            continue;
        s->state = TMPFS_CONDEMNED;
        s->dir = NULL;
        if (!s->pub.leases)
            hth_slot_forget(t, s);
    }
    for (struct tmpfs_dir *d = t->dirs, *next; d; d = next) {
        next = d->next;
        if (hth_save_none(d->save))
            hth_dir_forget(t, d);
    }
}
