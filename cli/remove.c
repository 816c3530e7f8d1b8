/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rm and clean: the only commands that change anything. Both hold the job's lock meanwhile, so no
 * engine runs or starts on what is removed. They work on open directories, never by path: removal.h.
 */
#include "cli.h"
#include "forget.h"
#include "removal.h"

#include "core/store/store_tmpfs.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The absolute path as it was given, links not resolved: whoever can change a link would decide where root
 * removes. */
static int remove_plain_path(const char *text, char out[PATH_MAX], struct hearth_error *err)
{
    char from[2 * PATH_MAX] = "", *part, *save = NULL;
    size_t len = 0;

    if (text[0] != '/' && !getcwd(from, PATH_MAX))
        return hth_fail(err, HEARTH_EIO, errno, "the current directory has no path");
    snprintf(from + strlen(from), PATH_MAX, "/%.4000s", text);
    out[0] = '\0';
    for (part = strtok_r(from, "/", &save); part; part = strtok_r(NULL, "/", &save)) {
        if (!strcmp(part, "."))
            continue;
        if (!strcmp(part, ".."))
            return hth_fail(err, HEARTH_EINVAL, 0, "%.300s: give the path without '..'", text);
        if (len + strlen(part) + 2 > PATH_MAX)
            return hth_fail(err, HEARTH_EINVAL, 0, "%.300s: the path is too long", text);
        len += (size_t)snprintf(out + len, PATH_MAX - len, "/%s", part);
    }
    return HEARTH_OK;
}

/* The absolute path of an existing file. For root, links in it are not followed. */
static int remove_resolve(const char *text, char out[PATH_MAX], struct hearth_error *err)
{
    struct stat st;

    if (geteuid() == 0 ? lstat(text, &st) : !realpath(text, out))
        return hth_fail(err, errno == ENOENT || errno == ENOTDIR ? HEARTH_ENOENT : HEARTH_EIO,
                errno, "%.300s: %s: see hearth ls", text, strerrordesc_np(errno));
    return geteuid() == 0 ? remove_plain_path(text, out, err) : HEARTH_OK;
}

/* The absolute path of what need not be there, in a directory that is. */
static int remove_resolve_gone(char *text, char out[PATH_MAX], struct hearth_error *err)
{
    char *name = strrchr(text, '/');
    size_t len;
    int rc;

    if (!name || name == text || !name[1])
        return HEARTH_ENOENT;
    *name++ = '\0';
    rc = remove_resolve(text, out, err);
    len = rc ? 0 : strlen(out);
    if (rc || len + strlen(name) + 2 > PATH_MAX)
        return HEARTH_ENOENT;
    snprintf(out + len, PATH_MAX - len, "/%s", name);
    return HEARTH_OK;
}

/* The last part of an absolute path, which is cut there; NULL: it has no other. */
static char *target_cut_last(char *path)
{
    char *slash = strrchr(path, '/');

    if (!slash || slash == path)
        return NULL;
    *slash = '\0';
    return slash + 1;
}

struct target {
    char path[PATH_MAX]; /* of the save */
    char parts[PATH_MAX];
    const char *root, *job, *name; /* in `parts` */
    int in_records;                /* it is not published */
    int gone;                      /* nothing is there; the keep list may name it */
    struct hth_save_id id;         /* in_records */
    uint64_t step;                 /* published */
};

/* Where a save is: a path, or, beside --root, JOB/SAVE. */
static int target_find(
        const struct args *a, const char *text, struct target *t, struct hearth_error *err)
{
    char path[PATH_MAX];
    int rc;

    if (text[0] != '/' && a->root)
        snprintf(path, sizeof(path), "%.3000s/%.1000s", a->root, text);
    else
        snprintf(path, sizeof(path), "%.4000s", text);
    rc = remove_resolve(path, t->path, err);
    t->gone = rc == HEARTH_ENOENT;
    if (t->gone)
        rc = remove_resolve_gone(path, t->path, NULL);
    if (rc)
        return rc;
    memcpy(t->parts, t->path, sizeof(t->parts));
    t->root = t->parts;
    t->name = target_cut_last(t->parts);
    t->job = t->name ? target_cut_last(t->parts) : NULL;
    t->in_records = t->job && !strcmp(t->job, HTH_RECORDS_DIR);
    if (t->in_records)
        t->job = target_cut_last(t->parts);
    if (!t->job || hth_job_check(t->job, NULL) ||
            (t->in_records ? hth_save_parse(t->name, &t->id)
                           : hth_step_dir_theirs(t->name, &t->step)))
        return t->gone ? HEARTH_ENOENT
                       : hth_fail(err, HEARTH_EINVAL, 0,
                                 "'%.200s' is no save: give the directory that hearth ls shows, as "
                                 "ROOT/JOB/step-40_ckpt",
                                 text);
    return HEARTH_OK;
}

/* A job whose engine is kept out, with its records; where Hearth never ran there are none. */
struct kept {
    struct removal removal;
    int records, lock; /* -1: none */
};

static void kept_close(struct kept *k)
{
    if (k->records >= 0)
        close(k->records);
    removal_close(&k->removal);
    if (k->lock >= 0)
        close(k->lock);
}

static int kept_lock(struct kept *k, struct hearth_error *err)
{
    int fd = removal_enter(&k->removal, k->removal.job_fd, HTH_RECORDS_DIR, err), rc;

    if (fd == HEARTH_ENOENT)
        return HEARTH_OK;
    if (fd < 0)
        return fd;
    k->records = fd;
    rc = hth_store_lock(fd, k->removal.job, &k->lock, err);
    return rc == HEARTH_ENOENT ? HEARTH_OK : rc;
}

static int kept_open(struct kept *k, const char *root, const char *job, struct hearth_error *err)
{
    int rc = removal_open(&k->removal, root, job, err);

    k->records = k->lock = -1;
    if (rc)
        return rc;
    rc = kept_lock(k, err);
    if (rc)
        kept_close(k);
    return rc;
}

/* ---- rm --------------------------------------------------------------------------------------- */

/* A record of a save: without its manifest nobody looks for it any more. */
static void remove_record(const struct kept *k, const struct save_row *row, const char *end)
{
    char text[HTH_SAVE_TEXT], name[HTH_SAVE_TEXT + 16];

    if (!row || !row->own || k->records < 0)
        return;
    hth_save_text(row->id, text);
    snprintf(name, sizeof(name), "%s.%s", text, end);
    unlinkat(k->records, name, 0);
}

/* A copy that somebody made of a save's directory has its blocks, and its records are the save's. */
static int remove_is_copied(const struct save_row *rows, const struct save_row *row)
{
    for (; row->own && rows; rows = rows->next)
        if (rows != row && rows->own && !hth_save_cmp(rows->id, row->id))
            return 1;
    return 0;
}

/* First the keep list, then the manifest: killed between, it leaves a whole save that nobody has promised.
 * NULL as the row: without its records. */
static int remove_row(const struct kept *k, const struct target *t, const struct save_row *row,
        struct hearth_error *err)
{
    int in = t->in_records ? k->records : k->removal.job_fd, listed;
    int rc = removal_check(&k->removal, in, t->name, err);

    if (!rc && row && row->own && k->records >= 0)
        rc = forget_saves(k->records, k->removal.owner, &row->id, 0, NULL, &listed, err);
    if (!rc)
        remove_record(k, row, "manifest");
    rc = rc ? rc : removal_tree(&k->removal, in, t->name, err);
    if (!rc)
        remove_record(k, row, "dir");
    return rc;
}

/* Both nodes that held it are lost, and this one has the promise alone. */
static int remove_promise(const struct kept *k, const struct target *t, const struct save_row *rows,
        struct hearth_error *err)
{
    int listed = 0, rc = HEARTH_OK;

    if (k->records >= 0)
        rc = forget_saves(k->records, k->removal.owner, t->in_records ? &t->id : NULL, t->step,
                rows, &listed, err);
    if (rc || listed)
        return rc;
    return hth_fail(err, HEARTH_ENOENT, 0,
            "%.300s is not there, and no keep list names it: see hearth ls", t->path);
}

static int remove_save(const struct kept *k, const struct target *t, struct hearth_error *err)
{
    struct save_row *rows = NULL, *row;
    int rc = saves_list(k->removal.job_fd, t->job, &rows, err);

    for (row = rows; row && (row->published == t->in_records || strcmp(row->name, t->name) != 0);)
        row = row->next;
    if (!rc && row)
        rc = remove_row(k, t, remove_is_copied(rows, row) ? NULL : row, err);
    else if (!rc)
        rc = remove_promise(k, t, rows, err);
    saves_free(rows);
    return rc;
}

enum status run_rm(const struct args *a)
{
    for (int i = 0; i < a->count; i++) {
        struct hearth_error err = { 0 };
        struct target t = { 0 };
        struct kept k;
        int rc = target_find(a, a->value[i], &t, &err);

        rc = rc ? rc : kept_open(&k, t.root, t.job, &err);
        if (!rc) {
            rc = remove_save(&k, &t, &err);
            kept_close(&k);
        }
        if (rc)
            return complain(&err);
        printf("removed %s%s\n", t.path, t.gone ? ", of which only the keep list knew" : "");
    }
    return STATUS_OK;
}

/* ---- clean ------------------------------------------------------------------------------------ */

static int remove_last(int dir, const char *name, int flags, struct hearth_error *err)
{
    if (!unlinkat(dir, name, flags) || errno == ENOENT)
        return HEARTH_OK;
    return hth_fail(
            err, HEARTH_EIO, errno, "%.64s cannot be removed: %s", name, strerrordesc_np(errno));
}

/* All but the lock, then the lock and its directory. Where no lock is held, an engine may start meanwhile:
 * what it makes then stays, and the command fails. */
static int clean_job(const struct kept *k, struct hearth_error *err)
{
    const struct removal *r = &k->removal;
    int rc = removal_check(r, r->job_fd, NULL, err);

    rc = rc ? rc : removal_inside(r, r->job_fd, HTH_RECORDS_DIR, err);
    if (k->records >= 0) {
        rc = rc ? rc : removal_inside(r, k->records, "lock", err);
        if (k->lock >= 0)
            rc = rc ? rc : remove_last(k->records, "lock", 0, err);
        rc = rc ? rc : remove_last(r->job_fd, HTH_RECORDS_DIR, AT_REMOVEDIR, err);
    }
    return rc ? rc : remove_last(r->root_fd, r->job, AT_REMOVEDIR, err);
}

static int clean_one(const char *root, const char *job, struct hearth_error *err) /* not NULL */
{
    struct kept k;
    int rc = kept_open(&k, root, job, err);

    if (rc == HEARTH_ENOENT)
        return hth_fail(err, rc, 0, "there is no job '%.64s' in %.300s", job, root);
    if (rc)
        return rc;
    rc = job_check(k.removal.job_fd, job, err);
    if (rc == HEARTH_ENOENT)
        rc = hth_fail(err, rc, 0, "there is no job '%.64s' in %.300s", job, root);
    rc = rc ? rc : clean_job(&k, err);
    kept_close(&k);
    return rc;
}

enum status run_clean(const struct args *a)
{
    struct hearth_error err = { 0 };
    char root[PATH_MAX];
    int rc;

    if (!a->root)
        return complain_usage("clean needs --root, or HEARTH_ROOT set: the tmpfs that is Hearth's");
    if (hth_job_check(a->value[0], &err))
        return complain(&err);
    rc = remove_resolve(a->root, root, &err);
    rc = rc ? rc : clean_one(root, a->value[0], &err);
    if (rc)
        return complain(&err);
    printf("removed %s/%s\n", root, a->value[0]);
    return STATUS_OK;
}
