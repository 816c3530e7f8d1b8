/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The files that a start finds in the job's directory. A sealed object is mapped, and neither
 * renamed nor removed; a file that cannot be understood is left where it is, and logged.
 *
 *     pool/ ─► free slots          .hearth/<save>/ ┐  blocks, else <save>.dir,   ┌─► a save
 *     new*  ─► removed             step-<N>_ckpt/  ┘  else the name in .hearth/  └─► foreign
 *
 * A second scan finds what it knows by inode number and leaves it alone. Foreign containers are
 * looked at anew at each recovery: theirs.c.
 */
#include "tmpfs.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define UNDONE "unfinished"

/* A pass over one directory. */
struct pass {
    struct hth_tmpfs *t;
    struct hearth_error *err;
    int rc; /* first failure that is ours and not the file's: memory, descriptors */
    struct tmpfs_dir *dir;
    int fd; /* of the directory */
    /* identify() */
    ino_t ino;
    struct hth_save_id by_block, by_record;
    int blocks, mixed, recorded;
    int protected; /* blocks of files without u+w are looked at, else of all others */
    int theirs;    /* foreign containers alone */
    /* report() */
    void (*found)(void *arg, const struct hth_store_found *f);
    void *arg;
};

static int ends_in(const char *name, const char *end)
{
    size_t len = strlen(name), end_len = strlen(end);

    return len > end_len && !strcmp(name + len - end_len, end);
}

static void adopt_skip(
        const struct hth_tmpfs *t, const char *dir, const char *name, const char *why)
{
    hth_say(&t->opts.log, HEARTH_LOG_WARN, "skipped", "%s: %s/%s is left alone: %s", t->path, dir,
            name, why);
}

/* Slots are written to and directories of saves emptied, so both must be of our user, with one
 * name. */
static int not_alone(
        const struct hth_tmpfs *t, const char *dir, const char *name, const struct stat *st)
{
    char why[80] = "";

    if (st->st_uid != geteuid())
        snprintf(why, sizeof(why), "it belongs to user %ld", (long)st->st_uid);
    else if (S_ISREG(st->st_mode) && st->st_nlink > 1)
        snprintf(why, sizeof(why), "it has another name elsewhere");
    if (why[0])
        adopt_skip(t, dir, name, why);
    return why[0] != '\0';
}

static int known_slot(const struct hth_tmpfs *t, ino_t ino)
{
    for (const struct tmpfs_slot *s = t->slots; s; s = s->next)
        if (s->pub.id == ino && !(s->foreign && s->state == TMPFS_CONDEMNED))
            return 1;
    return 0;
}

/* `<save>.<end>` */
static int save_of_name(const char *name, const char *end, struct hth_save_id *out)
{
    char text[HTH_SAVE_TEXT];

    if (strlen(name) != HTH_SAVE_TEXT - 1 + strlen(end) ||
            strcmp(name + HTH_SAVE_TEXT - 1, end) != 0)
        return 0;
    snprintf(text, sizeof(text), "%s", name);
    return !hth_save_parse(text, out) && !hth_save_none(*out);
}

/* A file's slot. Takes fd, whatever happens. */
static struct tmpfs_slot *adopt_file(struct pass *p, int fd, const struct stat *st, int foreign)
{
    struct tmpfs_slot *slot = NULL;
    struct hth_block block;
    int rc = hth_slot_adopt(p->t, fd, st, foreign, &slot, p->err);

    if (rc) {
        p->rc = rc;
        close(fd);
        return NULL;
    }
    if (!foreign && hth_kind_block(p->t, fd, slot->pub.capacity, &block))
        slot->pub.generation = block.generation;
    return slot;
}

/* Adopts a file of the pool as a slot. Removes it if it has no slot's size, because its maker died
 * early, or if its name is not its inode's number, because it was copied here with its directory:
 * bytes in the pool belong to no save. */
static void pool_entry(void *arg, const char *name)
{
    struct pass *p = arg;
    struct tmpfs_slot *slot;
    char own[FILE_NAME_BYTES];
    struct stat st;
    int fd;

    if (p->rc)
        return;
    if (fstatat(p->t->pool_fd, name, &st, AT_SYMLINK_NOFOLLOW) || !S_ISREG(st.st_mode)) {
        adopt_skip(p->t, "pool", name, "not a file");
        return;
    }
    if (known_slot(p->t, st.st_ino) || not_alone(p->t, "pool", name, &st))
        return;
    hth_slot_name(st.st_ino, own);
    if (!hth_kind_sized(&st) || strcmp(own, name) != 0) {
        unlinkat(p->t->pool_fd, name, 0);
        return;
    }
    fd = hth_kind_open(p->t, p->t->pool_fd, name, &st);
    if (fd < 0 || fstat(fd, &st) || !hth_kind_sized(&st)) {
        adopt_skip(p->t, "pool", name, "not a file that can be opened");
        if (fd >= 0)
            close(fd);
        return;
    }
    slot = adopt_file(p, fd, &st, 0);
    if (slot)
        hth_slot_settle(p->t, slot);
}

static void block_entry(void *arg, const char *name)
{
    struct pass *p = arg;
    struct hth_block block;
    struct stat st;
    int fd = hth_sys_open_file(p->fd, name, O_RDONLY);

    if (fd < 0)
        return;
    if (!fstat(fd, &st) && hth_kind_sized(&st) && (st.st_mode & S_IWUSR ? 0 : 1) == p->protected &&
            hth_kind_block(p->t, fd, (uint64_t)st.st_size, &block)) {
        p->mixed |= p->blocks && hth_save_cmp(p->by_block, block.save) != 0;
        p->blocks = 1;
        p->by_block = block.save;
    }
    close(fd);
}

static void record_entry(void *arg, const char *name)
{
    struct pass *p = arg;
    struct hth_save_id save;
    int was_published;
    ino_t ino;

    if (p->recorded || !save_of_name(name, ".dir", &save) ||
            hth_dir_record_get(p->t, save, &ino, &was_published) || ino != p->ino)
        return;
    p->recorded = 1;
    p->by_record = save;
}

/* Whose directory is it; none: a foreign container. */
static struct hth_save_id adopt_identify(struct pass *p, const char *name, int in_own)
{
    struct hth_save_id none = { 0 }, by_name;

    hth_sys_each(p->fd, block_entry, p);
    hth_sys_each(p->t->own_fd, record_entry, p);
    if (p->blocks && !p->mixed)
        return p->by_block;
    if (p->recorded)
        return p->by_record;
    if (in_own && !hth_save_parse(name, &by_name))
        return by_name;
    if (!p->blocks) { /* a chmod took away u+w; or they are raw objects, maybe copies of slots */
        p->protected = 1;
        hth_sys_each(p->fd, block_entry, p);
    }
    return p->blocks ? p->by_block : none;
}

/* 1: no slot, or one that is not to be written to. */
static int not_alone_slot(struct pass *p, const char *name, int tmp, const struct stat *st)
{
    int is_slot = tmp ? hth_kind_sized(st) : hth_kind_is_slot(p->t, p->dir->save, p->fd, name, st);

    return !is_slot || not_alone(p->t, p->dir->name, name, st);
}

/* A slot or a raw object in a directory of ours. */
static void own_entry(void *arg, const char *name)
{
    struct pass *p = arg;
    char base[FILE_NAME_BYTES];
    int tmp = ends_in(name, TMP_SUFFIX), fd;
    struct tmpfs_slot *slot;
    struct stat st;

    if (p->rc || fstatat(p->fd, name, &st, AT_SYMLINK_NOFOLLOW))
        return;
    snprintf(
            base, sizeof(base), "%.*s", (int)(strlen(name) - (tmp ? strlen(TMP_SUFFIX) : 0)), name);
    if (!S_ISREG(st.st_mode) || hth_object_name_check(base, NULL)) {
        adopt_skip(p->t, p->dir->name, name, "not an object of Hearth's");
        return;
    }
    if (known_slot(p->t, st.st_ino) || not_alone_slot(p, name, tmp, &st))
        return;
    fd = hth_kind_open(p->t, p->fd, name, &st);
    if (fd < 0 || fstat(fd, &st)) {
        adopt_skip(p->t, p->dir->name, name, strerrordesc_np(errno));
        if (fd >= 0)
            close(fd);
        return;
    }
    if (!hth_kind_sized(&st)) {
        close(fd);
        return;
    }
    slot = adopt_file(p, fd, &st, 0);
    if (!slot)
        return;
    slot->dir = p->dir;
    slot->state = tmp ? TMPFS_RECEIVED : TMPFS_SEALED;
    memcpy(slot->name, base, sizeof(base));
    if (tmp && slot->made < slot->pub.capacity) /* it would be written to where it has no memory */
        hth_pool_give(&p->t->base, &slot->pub);
}

/* A file of a foreign container, or the buffer that its link stands for. */
static void foreign_entry(void *arg, const char *name)
{
    struct pass *p = arg;
    struct tmpfs_slot *slot;
    struct stat st;
    int fd, link = 0;

    if (p->rc || ends_in(name, TMP_SUFFIX) || ends_in(name, ".lock"))
        return;
    fd = hth_theirs_open(p->t, p->dir, name, &link);
    if (fd < 0 || fstat(fd, &st) || !S_ISREG(st.st_mode) || st.st_size == 0 ||
            known_slot(p->t, st.st_ino)) {
        adopt_skip(p->t, p->dir->name, name,
                fd < 0 && errno == ESTALE
                        ? "its buffer has been written again since, for another step"
                        : "not a file with content, or not of this container alone");
        if (fd >= 0)
            close(fd);
        return;
    }
    slot = adopt_file(p, fd, &st, 1);
    if (!slot)
        return;
    slot->dir = p->dir;
    slot->link = link;
    slot->state = TMPFS_SEALED;
    snprintf(slot->name, sizeof(slot->name), "%s", name);
    if (hth_theirs_bind(slot, &st)) {
        adopt_skip(p->t, p->dir->name, name, "it is being changed");
        hth_slot_forget(p->t, slot);
    }
}

struct marker {
    const char *dir;
    int there;
};

static void marker_entry(void *arg, const char *name)
{
    struct marker *m = arg;

    m->there |= !strncmp(name, m->dir, strlen(m->dir)) && ends_in(name, UNDONE);
}

static int is_undone(const struct hth_tmpfs *t, const char *dir)
{
    struct marker m = { dir, 0 };

    if (!hth_sys_each(t->job_fd, marker_entry, &m) && !m.there)
        return 0;
    adopt_skip(t, ".", dir, "its writer has not finished it");
    return 1;
}

/* Put right the names and records that the last engine was stopped before it could write. */
static void put_right(struct hth_tmpfs *t, struct tmpfs_dir *dir)
{
    char own[HTH_SAVE_TEXT];
    int was_published = 0, rc;
    ino_t ino = 0;

    rc = hth_dir_record_get(t, dir->save, &ino, &was_published);
    dir->was_published = dir->published || (!rc && was_published);
    hth_save_text(dir->save, own);
    if (!dir->published && strcmp(dir->name, own) != 0 &&
            !renameat2(t->own_fd, dir->name, t->own_fd, own, RENAME_NOREPLACE))
        memcpy(dir->name, own, sizeof(own));
    if ((rc || ino != dir->ino || was_published != dir->was_published) &&
            hth_dir_record(t, dir, NULL))
        adopt_skip(t, HTH_RECORDS_DIR, own, "its .dir record cannot be written");
}

/* Opens a directory only if it is on the store's own mount, and is ours or, to be read, root's. */
static int open_adopted(struct pass *p, int parent, const char *name, struct stat *st)
{
    const char *dir = parent == p->t->own_fd ? HTH_RECORDS_DIR : ".";
    struct stat above = { 0 };
    int fd = hth_sys_open_dir(parent, name);

    if (fd < 0 || fstat(fd, st) || fstat(parent, &above)) {
        adopt_skip(p->t, dir, name, "not a directory that can be opened");
    } else if (st->st_dev != above.st_dev) {
        adopt_skip(p->t, dir, name, "something is mounted there");
    } else if (st->st_uid == 0 || !not_alone(p->t, dir, name, st)) {
        return fd;
    }
    if (fd >= 0)
        close(fd);
    return -1;
}

static int known_dir(const struct hth_tmpfs *t, ino_t ino)
{
    for (const struct tmpfs_dir *d = t->dirs; d; d = d->next)
        if (d->ino == ino)
            return 1;
    return 0;
}

/* 1: a save of Hearth's in the job's directory has a name that Hearth does not give: it is left
 * out. */
static int is_renamed(const struct hth_tmpfs *t, int parent, const char *name)
{
    uint64_t step;

    if (parent == t->own_fd || !hth_step_dir_parse(name, &step))
        return 0;
    adopt_skip(t, ".", name, "it is a save of Hearth's under another name");
    return 1;
}

static void adopt_dir(struct pass *all, int parent, const char *name)
{
    struct pass p = { .t = all->t, .err = all->err };
    int in_own = parent == all->t->own_fd;
    struct hth_save_id save;
    struct stat st;

    p.fd = open_adopted(&p, parent, name, &st);
    if (p.fd < 0)
        return;
    p.ino = st.st_ino;
    if (known_dir(p.t, p.ino)) {
        close(p.fd);
        return;
    }
    save = adopt_identify(&p, name, in_own);
    if (hth_save_none(save) ? is_undone(p.t, name)
                            : all->theirs || is_renamed(p.t, parent, name) ||
                                      not_alone(p.t, ".", name, &st)) {
        close(p.fd);
        return;
    }
    all->rc = hth_dir_add(p.t, p.fd, st.st_ino, name, &p.dir, p.err);
    if (all->rc) {
        close(p.fd);
        return;
    }
    p.dir->save = save;
    p.dir->adopted = 1;
    p.dir->published = !in_own;
    if (!hth_save_none(save) && !unlinkat(parent, name, AT_REMOVEDIR)) { /* it was empty */
        hth_dir_forget(p.t, p.dir);
        return;
    }
    if (!hth_save_none(save)) {
        if (!(st.st_mode & S_IWUSR))
            (void)fchmod(p.fd, 0700); /* undoes a chmod: its objects are moved and removed */
        put_right(p.t, p.dir);
    }
    hth_sys_each(p.fd, hth_save_none(save) ? foreign_entry : own_entry, &p);
    all->rc = p.rc;
}

static void own_dir_entry(void *arg, const char *name)
{
    struct pass *p = arg;
    struct hth_save_id save;

    if (!p->rc && !hth_save_parse(name, &save) && !hth_save_none(save))
        adopt_dir(p, p->t->own_fd, name);
}

/* A name with leading zeros, beside another of that step: their files would be mixed. */
static int is_twin(const struct hth_tmpfs *t, const char *name, uint64_t step)
{
    char plain[FILE_NAME_BYTES];
    uint64_t other;
    int twin;

    if (!hth_step_dir_parse(name, &other))
        return 0;
    snprintf(plain, sizeof(plain), "step-%" PRIu64 "_ckpt", step);
    twin = !faccessat(t->job_fd, plain, F_OK, AT_SYMLINK_NOFOLLOW);
    for (const struct tmpfs_dir *d = t->dirs; d && !twin; d = d->next)
        twin = d->published && strcmp(d->name, name) != 0 &&
               !hth_step_dir_theirs(d->name, &other) && other == step;
    if (twin)
        adopt_skip(t, ".", name, "another container of that step is beside it");
    return twin;
}

static void step_dir_entry(void *arg, const char *name)
{
    struct pass *p = arg;
    uint64_t step;

    if (!p->rc && !hth_step_dir_theirs(name, &step) && !is_twin(p->t, name, step))
        adopt_dir(p, p->t->job_fd, name);
}

/* A record of a directory that is no more, a raw object whose maker died. */
static void stale_entry(void *arg, const char *name)
{
    struct pass *p = arg;
    struct hth_save_id save;

    if (!p->t->raws && !strncmp(name, NEW_RAW, strlen(NEW_RAW)))
        unlinkat(p->t->own_fd, name, 0);
    if (save_of_name(name, ".dir", &save) && !hth_dir_find(p->t, save))
        hth_spare_remove(p->t, name);
}

static void raw_entry(void *arg, const char *name)
{
    struct pass *p = arg;
    struct hth_store_found f = { .save = p->dir->save, .dir = p->dir->name, .name = name };
    struct stat st;

    if (!fstatat(p->fd, name, &st, AT_SYMLINK_NOFOLLOW) && S_ISREG(st.st_mode) &&
            !known_slot(p->t, st.st_ino) && !hth_object_name_check(name, NULL) &&
            !hth_kind_is_slot(p->t, p->dir->save, p->fd, name, &st))
        p->found(p->arg, &f);
}

static void manifest_entry(void *arg, const char *name)
{
    struct pass *p = arg;
    struct hth_store_found f = { .dir = HTH_RECORDS_DIR, .name = name };

    if (save_of_name(name, ".manifest", &f.save))
        p->found(p->arg, &f);
}

/* `step-<N>_ckpt..._unfinished`: whether its container is here or not, on other nodes it may be. */
static void undone_entry(void *arg, const char *name)
{
    struct pass *p = arg;
    const char *end = strstr(name, "_ckpt");
    char dir[FILE_NAME_BYTES];
    struct hth_store_found f = { .dir = dir, .name = "", .unfinished = 1 };
    uint64_t step;

    if (!end || !ends_in(name, "_" UNDONE))
        return;
    snprintf(dir, sizeof(dir), "%.*s", (int)(end - name + 5), name);
    if (!hth_step_dir_theirs(dir, &step))
        p->found(p->arg, &f);
}

static void adopt_report(struct pass *p)
{
    struct hth_block block;

    for (struct tmpfs_slot *s = p->t->slots, *next; s; s = next) {
        struct hth_store_found f = { .name = s->name, .slot = &s->pub };

        next = s->next; /* found() may give it */
        if (!s->dir || (p->theirs && !s->foreign))
            continue;
        f.dir = s->dir->name;
        f.save = s->dir->save;
        f.tmp = s->state == TMPFS_RECEIVED;
        f.link = s->link;
        if (!s->foreign && hth_kind_block(p->t, s->pub.fd, s->pub.capacity, &block))
            f.save = block.save;
        p->found(p->arg, &f);
    }
    hth_sys_each(p->t->job_fd, undone_entry, p);
    if (p->theirs)
        return;
    for (p->dir = p->t->dirs; p->dir; p->dir = p->dir->next) {
        p->fd = p->dir->fd;
        if (!hth_save_none(p->dir->save))
            hth_sys_each(p->fd, raw_entry, p);
    }
    hth_sys_each(p->t->own_fd, manifest_entry, p);
}

/* A restarted container has a new cgroup. Memory that the container before it made stays charged to
 * the pod's cgroup, which has a limit too and cannot be seen from here. */
static void adopt_count(struct hth_tmpfs *t)
{
    uint64_t made = hth_pool_made(t);
    struct hth_room room;

    t->uncharged = 0;
    if (hth_room_look(t->job_fd, t->opts.proc, &room, NULL) || room.charged >= made)
        return;
    t->uncharged = made - room.charged;
    hth_say(&t->opts.log, HEARTH_LOG_INFO, "charged-above",
            "%" PRIu64 " bytes of this job are charged to a cgroup above this container's; they "
            "count as if they were charged here",
            t->uncharged);
}

int hth_adopt_scan(struct hth_store *s, void (*found)(void *arg, const struct hth_store_found *f),
        void *arg, struct hearth_error *err)
{
    struct pass p = { .t = hth_tmpfs_of(s), .err = err, .found = found, .arg = arg };

    unlinkat(p.t->own_fd, NEW_FILE, 0);
    if (hth_sys_each(p.t->pool_fd, pool_entry, &p) ||
            hth_sys_each(p.t->own_fd, own_dir_entry, &p) ||
            hth_sys_each(p.t->job_fd, step_dir_entry, &p))
        return hth_sys_fail(p.t, err, "list", "directories");
    if (p.rc)
        return p.rc;
    hth_sys_each(p.t->own_fd, stale_entry, &p);
    adopt_count(p.t);
    adopt_report(&p);
    return 0;
}

int hth_adopt_theirs(struct hth_store *s, void (*found)(void *arg, const struct hth_store_found *f),
        void *arg, struct hearth_error *err)
{
    struct pass p = { .t = hth_tmpfs_of(s), .err = err, .found = found, .arg = arg, .theirs = 1 };

    hth_theirs_forget(p.t);
    if (hth_sys_each(p.t->job_fd, step_dir_entry, &p))
        return hth_sys_fail(p.t, err, "list", "directories");
    if (!p.rc)
        adopt_report(&p);
    return p.rc;
}
