/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Raw objects: ordinary files of a save, mapped while they are written or read.
 *
 *     make ─► .hearth/new-<n>, of its full length, mapped     (room is looked for, none is taken; a small
 *                                                             one has a spare's where there is none)
 *     back ─► memory behind it, piece by piece, on any thread (so no write can end in SIGBUS)
 *     seal ─► renamed to its name in the save's directory; never written to again
 *
 * A process that dies before seal leaves `new-<n>`, which the next start removes. A file that is
 * unlinked while it is mapped keeps its memory until its last user closes it.
 */
#include "neighbour.h"
#include "tmpfs.h"

#include "core/base/full.h"
#include "core/format/manifest.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define SMALL_RAW 65536u /* bytes */

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

struct tmpfs_raw {
    struct hth_raw pub; /* first */
    struct tmpfs_raw *next;
    struct hth_save_id save;
    char name[HTH_NAME_MAX + 1];
    char tmp[FILE_NAME_BYTES]; /* in .hearth/; empty: sealed */
    uint64_t made;             /* atomic: bytes that are backed by memory */
};

static struct tmpfs_raw *raw_of(struct hth_raw *raw)
{
    return (struct tmpfs_raw *)raw;
}

uint64_t hth_raw_missing(const struct hth_tmpfs *t)
{
    uint64_t sum = 0;

    for (const struct tmpfs_raw *r = t->raws; r; r = r->next)
        sum += r->pub.len - __atomic_load_n(&r->made, __ATOMIC_RELAXED);
    return sum;
}

/* whose: a clause that names the job which takes the room, or "". */
static int raw_no_room(const struct hth_tmpfs *t, const struct tmpfs_raw *r, const char *whose,
        struct hearth_error *err)
{
    return hth_fail(err, HEARTH_ENOSPC, ENOSPC,
            "no room for common object '%s' of %" PRIu64
            " bytes: enlarge the mount or lower keep if above 1%s (%.200s)",
            r->name, r->pub.len, whose, t->path);
}

/* Small ones may use the margin that slots leave free. */
static int raw_fits(struct hth_tmpfs *t, const struct tmpfs_raw *r, struct hearth_error *err)
{
    uint64_t promised = hth_back_missing(t) + hth_raw_missing(t);
    struct hth_room room;
    int rc = hth_room_look(t->job_fd, t->opts.proc, &room, err);

    if (rc)
        return rc;
    hth_account_others(t, &room);
    if (r->pub.len + promised <= hth_room_least(&room, 0))
        return 0;
    return raw_no_room(t, r, err ? hth_neighbour(t) : "", err);
}

static int raw_fail(const struct hth_tmpfs *t, const struct tmpfs_raw *r, const char *doing,
        struct hearth_error *err)
{
    int why = errno, is_bytes = !hth_full_of_files(t->root_fd);

    errno = why;
    if ((why == ENOSPC && is_bytes) || why == EDQUOT)
        return raw_no_room(t, r, "", err); /* perhaps a worker, which may not look for more */
    return hth_sys_fail(t, err, doing, r->name);
}

static void file_name(struct hth_tmpfs *t, struct tmpfs_raw *r)
{
    snprintf(r->tmp, sizeof(r->tmp), NEW_RAW "%" PRIx64, ++t->raws_made);
    unlinkat(t->own_fd, r->tmp, 0);
}

/* A small one, where the mount is full: in memory that is kept for records. 0: it has it. */
static int file_of_spare(struct hth_tmpfs *t, struct tmpfs_raw *r)
{
    if (!r->pub.len || r->pub.len > SMALL_RAW)
        return -1;
    file_name(t, r);
    r->pub.fd = hth_spare_lend(t, r->pub.len, r->tmp);
    if (r->pub.fd >= 0)
        r->pub.base = hth_sys_map(t, r->pub.fd, r->pub.len, 1);
    return r->pub.base ? 0 : -1;
}

/* The file under its temporary name. */
static int file_make(struct hth_tmpfs *t, struct tmpfs_raw *r)
{
    uint64_t len = r->pub.len;

    file_name(t, r);
    r->pub.fd = hth_sys_create(t, t->own_fd, r->tmp);
    if (r->pub.fd < 0 || (len && hth_sys_truncate(t, r->pub.fd, len)) ||
            (len && len % HTH_SLOT_ROUND == 0 && fchmod(r->pub.fd, 0400))) /* no slot */
        return -1;
    if (len)
        r->pub.base = hth_sys_map(t, r->pub.fd, len, 1);
    return len && !r->pub.base ? -1 : 0;
}

static int raw_new(struct hth_tmpfs *t, struct hth_save_id save, const char *name, uint64_t len,
        struct tmpfs_raw **out, struct hearth_error *err)
{
    struct tmpfs_raw *r = hth_sys_zalloc(t, sizeof(*r));

    if (!r)
        return hth_sys_fail(t, err, "open", name);
    r->pub = (struct hth_raw){ .len = len, .fd = -1 };
    r->save = save;
    snprintf(r->name, sizeof(r->name), "%s", name);
    r->made = len;
    r->next = t->raws;
    t->raws = r;
    *out = r;
    return 0;
}

int hth_raw_make(struct hth_store *s, struct hth_save_id save, const char *name, uint64_t len,
        struct hth_raw **out, struct hearth_error *err)
{
    struct hth_tmpfs *t = hth_tmpfs_of(s);
    struct tmpfs_dir *dir = NULL;
    struct tmpfs_raw *r = NULL;
    int rc = hth_object_name_check(name, err);

    if (!rc && len > HTH_RAW_MAX)
        rc = hth_fail(err, HEARTH_EINVAL, 0, "'%s' of %" PRIu64 " bytes is too large", name, len);
    if (!rc)
        rc = hth_dir_get(t, save, &dir, err);
    if (!rc && hth_dir_names_slot(t, dir, name))
        rc = hth_fail(err, HEARTH_EEXIST, 0, "%s is an object of " HTH_SAVE " already", name,
                HTH_SAVE_ARGS(save));
    if (!rc)
        rc = raw_new(t, save, name, len, &r, err);
    if (rc || !r)
        return rc;
    rc = raw_fits(t, r, err); /* with none of its own missing yet */
    if (rc == HEARTH_ENOSPC && !file_of_spare(t, r))
        rc = 0;
    else if (!rc && file_make(t, r))
        rc = raw_fail(t, r, "make", err);
    if (rc) {
        hth_raw_close(s, &r->pub);
        return rc;
    }
    __atomic_store_n(&r->made, 0, __ATOMIC_RELAXED);
    *out = &r->pub;
    return 0;
}

/* Pages that are not touched ahead cost more later, and nothing else. */
int hth_raw_back(struct hth_store *s, struct hth_raw *raw, uint64_t off, uint64_t len,
        struct hearth_error *err)
{
    struct hth_tmpfs *t = hth_tmpfs_of(s);
    struct tmpfs_raw *r = raw_of(raw);

    if (!len)
        return 0;
    if (hth_sys_allocate(t, raw->fd, off, len))
        return raw_fail(t, r, "make memory for", err);
    __atomic_add_fetch(&r->made, len, __ATOMIC_RELAXED);
    (void)madvise(raw->base + off, len, MADV_POPULATE_WRITE);
    return 0;
}

int hth_raw_seal(struct hth_store *s, struct hth_raw *raw, struct hearth_error *err)
{
    struct hth_tmpfs *t = hth_tmpfs_of(s);
    struct tmpfs_raw *r = raw_of(raw);
    struct tmpfs_dir *dir = hth_dir_find(t, r->save);

    if (!dir)
        return hth_fail(err, HEARTH_ENOENT, 0, HTH_SAVE " is not here any more: '%s' has no place",
                HTH_SAVE_ARGS(r->save), r->name);
    if (hth_dir_names_slot(t, dir, r->name))
        return hth_fail(err, HEARTH_EEXIST, 0, "%s is an object of " HTH_SAVE " already", r->name,
                HTH_SAVE_ARGS(r->save));
    if (hth_sys_rename(t, t->own_fd, r->tmp, dir->fd, r->name))
        return raw_fail(t, r, "name", err);
    r->tmp[0] = '\0';
    return 0;
}

int hth_raw_open(struct hth_store *s, struct hth_save_id save, const char *name,
        struct hth_raw **out, struct hearth_error *err)
{
    struct hth_tmpfs *t = hth_tmpfs_of(s);
    struct tmpfs_dir *dir = hth_dir_find(t, save);
    struct tmpfs_raw *r = NULL;
    struct stat st;
    int rc = hth_object_name_check(name, err);

    if (!rc && !dir)
        rc = hth_fail(err, HEARTH_ENOENT, 0, "there is nothing of " HTH_SAVE " here",
                HTH_SAVE_ARGS(save));
    if (!rc)
        rc = raw_new(t, save, name, 0, &r, err);
    if (rc || !dir || !r)
        return rc;
    r->pub.fd = hth_sys_open_file(dir->fd, name, O_RDONLY);
    if (r->pub.fd < 0 || fstat(r->pub.fd, &st)) {
        rc = hth_sys_fail(t, err, "open", name);
    } else if (!S_ISREG(st.st_mode) || (uint64_t)st.st_size > HTH_RAW_MAX) {
        rc = hth_fail(err, HEARTH_ECORRUPT, 0, "%.200s: %s is no raw object", t->path, name);
    } else if (st.st_size) {
        r->pub.base = hth_sys_map(t, r->pub.fd, (uint64_t)st.st_size, 0);
        rc = r->pub.base ? 0 : hth_sys_fail(t, err, "map", name);
        r->pub.len = r->made = r->pub.base ? (uint64_t)st.st_size : 0;
    }
    if (rc) {
        hth_raw_close(s, &r->pub);
        return rc;
    }
    *out = &r->pub;
    return 0;
}

/* ---- Ends ------------------------------------------------------------------------------------ */

static void raw_unlist(struct tmpfs_raw **list, const struct tmpfs_raw *r)
{
    while (*list && *list != r)
        list = &(*list)->next;
    if (*list)
        *list = r->next;
}

void hth_raw_close(struct hth_store *s, struct hth_raw *raw)
{
    struct hth_tmpfs *t = hth_tmpfs_of(s);
    struct tmpfs_raw *r = raw_of(raw);

    if (!r)
        return;
    raw_unlist(&t->raws, r);
    if (r->tmp[0])
        unlinkat(t->own_fd, r->tmp, 0);
    hth_release(t, r->pub.base, r->pub.len, r->pub.fd);
    free(r);
}

void hth_raws_end(struct hth_tmpfs *t)
{
    while (t->raws)
        hth_raw_close(&t->base, &t->raws->pub);
}
