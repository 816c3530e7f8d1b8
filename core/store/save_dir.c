/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Directories of saves, by two names:
 *
 *     .hearth/<save>  ──publish──►  step-<N>_ckpt      (an older save of the step, if there is
 *           ▲                            │              one, comes to .hearth/<its save>)
 *           └───────────remove───────────┘              and goes back)
 *
 * Each is held open and its files are named relative to it, so a rename in between does no harm.
 * `<save>.dir` is written before a directory has anything in it, and again before it is
 * published: by it a start knows a directory of raw objects alone.
 */
#include "tmpfs.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define RECORD_BYTES 64

static void record_name(struct hth_save_id save, const char *end, char out[FILE_NAME_BYTES])
{
    char text[HTH_SAVE_TEXT];

    hth_save_text(save, text);
    snprintf(out, FILE_NAME_BYTES, "%s.%s", text, end);
}

int hth_dir_record(struct hth_tmpfs *t, const struct tmpfs_dir *dir, struct hearth_error *err)
{
    char name[FILE_NAME_BYTES], text[RECORD_BYTES];
    int len = snprintf(text, sizeof(text), "inode %016" PRIx64 " %s\n", (uint64_t)dir->ino,
            dir->was_published ? "published" : "private");

    record_name(dir->save, "dir", name);
    return hth_small_put(t, t->own_fd, name, text, (size_t)len, err);
}

int hth_dir_record_get(
        struct hth_tmpfs *t, struct hth_save_id save, ino_t *out_ino, int *out_was_published)
{
    static const char front[] = "inode ";
    char name[FILE_NAME_BYTES], text[RECORD_BYTES] = "", *end;
    uint64_t ino;
    void *bytes;
    size_t len;
    int rc;

    record_name(save, "dir", name);
    rc = hth_small_get(t, t->own_fd, name, &bytes, &len, NULL);
    if (rc)
        return rc;
    if (len < sizeof(text))
        memcpy(text, bytes, len);
    free(bytes);
    if (strncmp(text, front, sizeof(front) - 1) != 0)
        return HEARTH_ECORRUPT;
    ino = strtoull(text + sizeof(front) - 1, &end, 16);
    if (end != text + sizeof(front) - 1 + 16)
        return HEARTH_ECORRUPT;
    *out_ino = (ino_t)ino;
    *out_was_published = !strcmp(end, " published\n");
    return 0;
}

struct tmpfs_dir *hth_dir_find(struct hth_tmpfs *t, struct hth_save_id save)
{
    for (struct tmpfs_dir *d = t->dirs; d && !hth_save_none(save); d = d->next)
        if (!hth_save_cmp(d->save, save))
            return d;
    return NULL;
}

int hth_dir_add(struct hth_tmpfs *t, int fd, ino_t ino, const char *name, struct tmpfs_dir **out,
        struct hearth_error *err)
{
    struct tmpfs_dir *dir = hth_sys_zalloc(t, sizeof(*dir)), **end = &t->dirs;

    if (!dir)
        return hth_sys_fail(t, err, "list", name);
    dir->fd = fd;
    dir->ino = ino;
    snprintf(dir->name, sizeof(dir->name), "%s", name);
    while (*end)
        end = &(*end)->next;
    *end = dir;
    *out = dir;
    return 0;
}

void hth_dir_forget(struct hth_tmpfs *t, struct tmpfs_dir *dir)
{
    struct tmpfs_dir **at = &t->dirs;

    while (*at != dir)
        at = &(*at)->next;
    *at = dir->next;
    close(dir->fd);
    free(dir);
}

static int dir_make(struct hth_tmpfs *t, struct hth_save_id save, struct tmpfs_dir **out,
        struct hearth_error *err)
{
    struct tmpfs_dir *dir = NULL;
    char text[HTH_SAVE_TEXT];
    struct stat st;
    int fd, rc;

    hth_save_text(save, text);
    if (hth_sys_mkdir(t, t->own_fd, text) && errno != EEXIST)
        return hth_sys_fail(t, err, "make directory", text);
    fd = hth_sys_open_dir(t->own_fd, text);
    if (fd < 0 || fstat(fd, &st)) {
        rc = hth_sys_fail(t, err, "open", text);
        if (fd >= 0)
            close(fd);
        return rc;
    }
    rc = hth_dir_add(t, fd, st.st_ino, text, &dir, err);
    if (!dir) {
        close(fd);
        unlinkat(t->own_fd, text, AT_REMOVEDIR);
        return rc;
    }
    dir->save = save;
    rc = hth_dir_record(t, dir, err);
    if (rc) {
        hth_dir_forget(t, dir);
        unlinkat(t->own_fd, text, AT_REMOVEDIR);
        return rc;
    }
    *out = dir;
    return 0;
}

int hth_dir_get(struct hth_tmpfs *t, struct hth_save_id save, struct tmpfs_dir **out,
        struct hearth_error *err)
{
    struct tmpfs_dir *dir = hth_dir_find(t, save);

    if (hth_save_none(save))
        return hth_fail(err, HEARTH_EINVAL, 0, "a save without an epoch cannot be written to");
    if (!dir)
        return dir_make(t, save, out, err);
    *out = dir;
    return 0;
}

int hth_dir_names_slot(const struct hth_tmpfs *t, const struct tmpfs_dir *dir, const char *name)
{
    for (const struct tmpfs_slot *s = t->slots; s; s = s->next) {
        size_t len = strlen(s->name);

        if (s->dir == dir && s->state == TMPFS_SEALED && !strcmp(s->name, name))
            return 1;
        if (s->dir == dir && s->state == TMPFS_RECEIVED && !strncmp(s->name, name, len) &&
                !strcmp(name + len, TMP_SUFFIX))
            return 1;
    }
    return 0;
}

/* An engine that is confined (daemon/confine.c) makes no link, and so moves none to another
 * directory. */
static int link_remove(struct hth_tmpfs *t, const struct tmpfs_dir *dir, const char *name)
{
    char where[200] = "";
    struct stat st;

    if (fstatat(dir->fd, name, &st, AT_SYMLINK_NOFOLLOW) || !S_ISLNK(st.st_mode) ||
            readlinkat(dir->fd, name, where, sizeof(where) - 1) < 0 || unlinkat(dir->fd, name, 0))
        return 0;
    hth_say(&t->opts.log, HEARTH_LOG_WARN, "evidence",
            "%s: %s/%s was a link to %s in the place of an object, and is removed", t->path,
            dir->name, name, where);
    return 1;
}

/* If a start found a file under this name that it could not use (torn, a link), keeps it as
 * evidence under another name, so that the object can have this one; a link that a confined engine
 * may not move is removed. 1: the name has become free. */
static int put_aside(struct hth_tmpfs *t, const struct tmpfs_dir *dir, const char *name)
{
    char to[FILE_NAME_BYTES];

    if (!dir->adopted || hth_dir_names_slot(t, dir, name))
        return 0;
    snprintf(to, sizeof(to), "torn-%016" PRIx64 "-%.200s", dir->save.step, name);
    if (renameat2(dir->fd, name, t->evidence_fd, to, 0))
        return errno == EACCES && link_remove(t, dir, name);
    hth_say(&t->opts.log, HEARTH_LOG_WARN, "evidence", "%s: %s/%s was put aside as %s", t->path,
            dir->name, name, to);
    return 1;
}

static int slot_show(struct hth_store *s, struct hth_slot *pub, struct hth_save_id save,
        const char *name, enum tmpfs_state state, struct hearth_error *err)
{
    char from[FILE_NAME_BYTES + sizeof(TMP_SUFFIX)], to[FILE_NAME_BYTES + sizeof(TMP_SUFFIX)];
    struct hth_tmpfs *t = hth_tmpfs_of(s);
    struct tmpfs_slot *slot = hth_tmpfs_slot(pub);
    struct tmpfs_dir *dir = NULL;
    int from_fd = t->pool_fd, rc = hth_object_name_check(name, err);

    if (rc)
        return rc;
    if (slot->state != TMPFS_HELD && (slot->state != TMPFS_RECEIVED || state != TMPFS_SEALED))
        return hth_fail(err, HEARTH_ESTATE, 0, "slot %" PRIx64 " is not held", pub->id);
    if ((rc = hth_broken_look(t, slot, err)))
        return rc;
    rc = hth_dir_get(t, save, &dir, err);
    if (rc || !dir)
        return rc;
    hth_slot_name(pub->id, from);
    if (slot->state == TMPFS_RECEIVED) {
        from_fd = slot->dir->fd;
        snprintf(from, sizeof(from), "%s%s", slot->name, TMP_SUFFIX);
    }
    snprintf(to, sizeof(to), "%s%s", name, state == TMPFS_RECEIVED ? TMP_SUFFIX : "");
    if (renameat2(from_fd, from, dir->fd, to, RENAME_NOREPLACE) &&
            (errno != EEXIST || !put_aside(t, dir, to) ||
                    renameat2(from_fd, from, dir->fd, to, RENAME_NOREPLACE)))
        return hth_sys_fail(t, err, "name an object", to);
    slot->dir = dir;
    slot->state = state;
    snprintf(slot->name, sizeof(slot->name), "%s", name);
    return 0;
}

int hth_dir_receive(struct hth_store *s, struct hth_slot *slot, struct hth_save_id save,
        const char *name, struct hearth_error *err)
{
    return slot_show(s, slot, save, name, TMPFS_RECEIVED, err);
}

int hth_dir_seal(struct hth_store *s, struct hth_slot *slot, struct hth_save_id save,
        const char *name, struct hearth_error *err)
{
    return slot_show(s, slot, save, name, TMPFS_SEALED, err);
}

/* Two directories change places; the one that comes to .hearth/ then gets its own save's name.
 * A process that dies in between is put right by the next scan(). */
static int dir_swap(struct hth_tmpfs *t, struct tmpfs_dir *in, struct tmpfs_dir *out)
{
    char step[FILE_NAME_BYTES], own[HTH_SAVE_TEXT];

    memcpy(step, out->name, sizeof(step));
    hth_save_text(out->save, own);
    if (hth_sys_exchange(t->own_fd, in->name, t->job_fd, step))
        return -1;
    hth_point(&t->opts.points, "exchange");
    memcpy(out->name, in->name, sizeof(step));
    memcpy(in->name, step, sizeof(step));
    in->published = 1;
    out->published = 0;
    if (!renameat2(t->own_fd, out->name, t->own_fd, own, RENAME_NOREPLACE))
        memcpy(out->name, own, sizeof(own));
    return 0;
}

/* The published directory of ours that has this name; NULL: none has. */
static struct tmpfs_dir *dir_published(struct hth_tmpfs *t, const char *step)
{
    struct tmpfs_dir *d = t->dirs;

    while (d && (!d->published || hth_save_none(d->save) || strcmp(d->name, step) != 0))
        d = d->next;
    return d;
}

int hth_dir_vacant(struct hth_store *s, struct hth_save_id save, struct hearth_error *err)
{
    struct hth_tmpfs *t = hth_tmpfs_of(s);
    char step[FILE_NAME_BYTES];

    snprintf(step, sizeof(step), "step-%" PRIu64 "_ckpt", save.step);
    if (faccessat(t->job_fd, step, F_OK, AT_SYMLINK_NOFOLLOW) || dir_published(t, step))
        return HEARTH_OK;
    return hth_fail(err, HEARTH_EEXIST, 0,
            HTH_SAVE " cannot have its place: %.200s/%s is there and not Hearth's: save another "
                     "step, or move it away",
            HTH_SAVE_ARGS(save), t->path, step);
}

int hth_dir_publish(struct hth_store *s, struct hth_save_id save, struct hearth_error *err)
{
    struct hth_tmpfs *t = hth_tmpfs_of(s);
    struct tmpfs_dir *dir = hth_dir_find(t, save), *old;
    char step[FILE_NAME_BYTES];
    int was, rc;

    if (!dir || dir->published)
        return 0;
    was = dir->was_published;
    dir->was_published = 1;
    rc = hth_dir_record(t, dir, err);
    if (rc) {
        dir->was_published = was;
        return rc;
    }
    snprintf(step, sizeof(step), "step-%" PRIu64 "_ckpt", save.step);
    if (!hth_sys_rename_new(t, t->own_fd, dir->name, t->job_fd, step)) {
        memcpy(dir->name, step, sizeof(step));
        dir->published = 1;
        return 0;
    }
    if (errno != EEXIST)
        return hth_sys_fail(t, err, "publish", step);
    old = dir_published(t, step);
    if (!old)
        return hth_fail(err, HEARTH_EEXIST, 0,
                "%.200s/%s is not Hearth's: move it away, or " HTH_SAVE " stays in .hearth",
                t->path, step, HTH_SAVE_ARGS(save));
    return dir_swap(t, dir, old) ? hth_sys_fail(t, err, "publish", step) : 0;
}

struct emptying {
    struct hth_tmpfs *t;
    struct tmpfs_dir *dir;
};

static void empty_entry(void *arg, const char *name)
{
    struct emptying *e = arg;

    if (!hth_dir_names_slot(e->t, e->dir, name))
        hth_release_name(e->t, e->dir->fd, name);
}

/* The save that this one was published over, if it is still there. */
static struct tmpfs_dir *replaced_by(struct hth_tmpfs *t, const struct tmpfs_dir *dir)
{
    struct tmpfs_dir *back = NULL;

    for (struct tmpfs_dir *d = t->dirs; d; d = d->next)
        if (d != dir && !hth_save_none(d->save) && d->save.step == dir->save.step &&
                d->was_published && !d->published &&
                (!back || hth_save_cmp(d->save, back->save) > 0))
            back = d;
    return back;
}

/* Take the directory out of sight before its first file is removed. */
static void dir_withdraw(struct hth_tmpfs *t, struct tmpfs_dir *dir)
{
    struct tmpfs_dir *back = replaced_by(t, dir);
    char own[HTH_SAVE_TEXT];

    if (back && !dir_swap(t, back, dir))
        return;
    hth_save_text(dir->save, own);
    if (renameat2(t->job_fd, dir->name, t->own_fd, own, RENAME_NOREPLACE))
        return;
    memcpy(dir->name, own, sizeof(own));
    dir->published = 0;
}

static void remove_dir(struct hth_tmpfs *t, struct tmpfs_dir *dir)
{
    struct emptying e = { t, dir };

    if (dir->published)
        dir_withdraw(t, dir);
    hth_sys_each(dir->fd, empty_entry, &e);
    if (unlinkat(dir->published ? t->job_fd : t->own_fd, dir->name, AT_REMOVEDIR)) {
        hth_say(&t->opts.log, HEARTH_LOG_ERROR, "not-removed", "%s: %s is not empty and stays: %s",
                t->path, dir->name, strerrordesc_np(errno));
        return;
    }
    for (struct tmpfs_slot *s = t->slots; s; s = s->next) /* LOST ones: they stay mapped */
        if (s->dir == dir)
            s->dir = NULL;
    hth_dir_forget(t, dir);
}

void hth_dir_remove(struct hth_store *s, struct hth_save_id save)
{
    struct hth_tmpfs *t = hth_tmpfs_of(s);
    struct tmpfs_dir *dir, *next;
    char name[FILE_NAME_BYTES];

    record_name(save, "manifest", name); /* first: a save half gone must not look whole */
    hth_spare_remove(t, name);
    for (dir = t->dirs; dir; dir = next) {
        next = dir->next;
        if (!hth_save_none(dir->save) && !hth_save_cmp(dir->save, save))
            remove_dir(t, dir);
    }
    if (!hth_dir_find(t, save)) {
        record_name(save, "dir", name);
        hth_spare_remove(t, name);
    }
}

/* A foreign container goes with its last object, where nothing else is in it. */
void hth_dir_drop_foreign(struct hth_tmpfs *t, struct tmpfs_dir *dir)
{
    for (const struct tmpfs_slot *s = t->slots; s; s = s->next)
        if (s->dir == dir && s->state == TMPFS_SEALED)
            return;
    unlinkat(t->job_fd, dir->name, AT_REMOVEDIR);
}
