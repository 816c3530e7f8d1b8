/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rm and clean: the commands that remove. Both hold the job's lock meanwhile, so no
 * engine runs or starts on what is removed. core/store/removal.h decides what may go.
 */
#include "cli.h"
#include "forget.h"

#include "core/store/removal.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The absolute path as it was given, links not resolved: a user who can change a link would decide
 * where root removes. */
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

/* The absolute path of a root. Links on the way to it are the caller's own; for root, who may be
 * in another user's directory, they are not followed. */
static int remove_root_path(const char *text, char out[PATH_MAX], struct hearth_error *err)
{
    if (geteuid() == 0)
        return remove_plain_path(text, out, err);
    if (realpath(text, out))
        return HEARTH_OK;
    return hth_fail(err, errno == ENOENT || errno == ENOTDIR ? HEARTH_ENOENT : HEARTH_EIO, errno,
            "%.300s: %s: see hearth ls", text, strerrordesc_np(errno));
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
    char path[PATH_MAX]; /* of the save, as it was given */
    char root[PATH_MAX];
    char parts[PATH_MAX];
    const char *job, *name; /* in `parts` */
    int in_records;         /* it is not published */
    int gone;               /* nothing is there; the keep list may name it */
    struct hth_save_id id;  /* in_records */
    uint64_t step;          /* published */
};

static int target_is_none(const char *text, struct hearth_error *err)
{
    return hth_fail(err, HEARTH_EINVAL, 0,
            "'%.200s' is not a save: give the directory that hearth ls shows, as "
            "ROOT/JOB/step-40_ckpt",
            text);
}

/* Where a save is: a path, or, beside --root, JOB/SAVE. Its last parts are taken as they are
 * written: no link is followed at a job or below it. */
static int target_find(
        const struct args *a, const char *text, struct target *t, struct hearth_error *err)
{
    char path[PATH_MAX];
    struct stat st;
    int rc;

    if (text[0] != '/' && a->root)
        snprintf(path, sizeof(path), "%.3000s/%.1000s", a->root, text);
    else
        snprintf(path, sizeof(path), "%.4000s", text);
    rc = remove_plain_path(path, t->path, err);
    if (rc)
        return rc;
    memcpy(t->parts, t->path, sizeof(t->parts));
    t->name = target_cut_last(t->parts);
    t->job = t->name ? target_cut_last(t->parts) : NULL;
    t->in_records = t->job && !strcmp(t->job, HTH_RECORDS_DIR);
    if (t->in_records)
        t->job = target_cut_last(t->parts);
    t->gone = lstat(path, &st) != 0;
    if (!t->job || hth_job_check(t->job, NULL) ||
            (t->in_records ? hth_save_parse(t->name, &t->id)
                           : hth_step_dir_theirs(t->name, &t->step)))
        return t->gone ? hth_fail(err, HEARTH_ENOENT, errno, "%.300s: %s: see hearth ls", path,
                                 strerrordesc_np(errno))
                       : target_is_none(text, err);
    return remove_root_path(t->parts, t->root, err);
}

static unsigned left; /* entries that are not Hearth's */

/* Reports an entry that stays, and counts it: the command's exit status then shows that entries are
 * left. */
static void remove_stays(void *arg, const char *where, const char *name, const char *why)
{
    const struct hth_removal *r = arg;
    char text[4 * 256], folder[4 * 256];

    left++;
    plain(text, sizeof(text), name, strlen(name));
    plain(folder, sizeof(folder), where, strlen(where));
    remark("%.300s/%.64s%s%.600s/%.600s %s, and stays", r->root, r->job, *where ? "/" : "", folder,
            text, why);
}

/* ---- rm
 * --------------------------------------------------------------------------------------- */

/* Removes a record of a save. Without its manifest no recovery looks for the save. */
static void remove_record(const struct hth_removal *r, const struct save_row *row, const char *end)
{
    char text[HTH_SAVE_TEXT], name[HTH_SAVE_TEXT + 16];

    if (!row || !row->own)
        return;
    hth_save_text(row->id, text);
    snprintf(name, sizeof(name), "%s.%s", text, end);
    unlinkat(r->records_fd, name, 0);
}

/* 1: another directory has the same save. If an operator has copied a save's directory, the copy
 * has the save's blocks, but the records belong to the original. */
static int remove_is_copied(const struct save_row *rows, const struct save_row *row)
{
    for (; row->own && rows; rows = rows->next)
        if (rows != row && rows->own && !hth_save_cmp(rows->id, row->id))
            return 1;
    return 0;
}

struct leaving {
    const struct hth_removal *r;
    const struct save_row *row; /* NULL: its records are another directory's */
};

/* First the keep list, then the manifest: a command that is killed between the two leaves a whole
 * save that no list promises. */
static int remove_promise_of(void *arg, struct hearth_error *err)
{
    const struct leaving *l = arg;
    int listed, rc = HEARTH_OK;

    if (l->row && l->row->own)
        rc = forget_saves(l->r->records_fd, l->r->owner, &l->row->id, 0, NULL, &listed, err);
    if (!rc)
        remove_record(l->r, l->row, "manifest");
    return rc;
}

/* row NULL: removes the directory without the save's records. */
static int remove_row(const struct hth_removal *r, const struct target *t,
        const struct save_row *row, struct hearth_error *err)
{
    struct leaving l = { r, row };
    int rc = hth_removal_save(r, t->name, t->in_records, remove_promise_of, &l, err);

    if (!rc)
        remove_record(r, row, "dir");
    return rc;
}

/* Nothing lies there. If all nodes with the save's bytes are lost, this node has only the promise;
 * otherwise the save lies elsewhere, or this node has nothing of it. */
static int remove_promise(const struct hth_removal *r, const struct target *t,
        const struct save_row *rows, struct hearth_error *err)
{
    int listed = 0, rc;

    rc = forget_saves(
            r->records_fd, r->owner, t->in_records ? &t->id : NULL, t->step, rows, &listed, err);
    if (rc || listed)
        return rc;
    for (; rows; rows = rows->next)
        if (rows->own && (t->in_records ? !hth_save_cmp(rows->id, t->id) : rows->step == t->step))
            return hth_fail(err, HEARTH_ENOENT, 0,
                    "%.150s is not there; that save lies in %.100s/%.64s/%s%.100s: give this path",
                    t->path, t->root, t->job, rows->published ? "" : HTH_RECORDS_DIR "/",
                    rows->name);
    return hth_fail(err, HEARTH_ENOENT, 0,
            "%.300s is not there, and this node's keep list does not name it: there is nothing to "
            "remove on this node",
            t->path);
}

static int remove_save(
        const struct hth_removal *r, const struct target *t, struct hearth_error *err)
{
    struct save_row *rows = NULL, *row;
    int rc = saves_list(r->job_fd, t->job, t->name, &rows, err);

    for (row = rows; row && (row->published == t->in_records || strcmp(row->name, t->name) != 0);)
        row = row->next;
    if (!rc && row)
        rc = remove_row(r, t, remove_is_copied(rows, row) ? NULL : row, err);
    else if (!rc)
        rc = remove_promise(r, t, rows, err);
    saves_free(rows);
    return rc;
}

enum status run_rm(const struct args *a)
{
    for (int i = 0; i < a->count; i++) {
        struct hearth_error err = { 0 };
        struct target t = { 0 };
        struct hth_removal r;
        int rc = target_find(a, a->value[i], &t, &err);

        rc = rc ? rc : hth_removal_open(&r, t.root, t.job, remove_stays, &r, &err);
        if (!rc) {
            rc = remove_save(&r, &t, &err);
            hth_removal_close(&r);
        }
        if (rc)
            return complain(&err);
        say("removed %s%s\n", t.path, t.gone ? ", of which only the keep list knew" : "");
    }
    return left ? STATUS_WRONG : STATUS_OK;
}

/* ---- clean
 * ------------------------------------------------------------------------------------ */

enum status run_clean(const struct args *a)
{
    struct hearth_error err = { 0 };
    struct hth_removal r;
    char root[PATH_MAX];
    int rc;

    if (!a->root)
        return complain_usage("clean needs --root, or HEARTH_ROOT set: the tmpfs that is Hearth's");
    if (hth_job_check(a->value[0], &err))
        return complain(&err);
    rc = remove_root_path(a->root, root, &err);
    rc = rc ? rc : hth_removal_open(&r, root, a->value[0], remove_stays, &r, &err);
    if (!rc) {
        rc = hth_removal_job(&r, &err);
        hth_removal_close(&r);
    }
    if (rc)
        return complain(&err);
    say("removed %s/%s%s\n", root, a->value[0], left ? ", but for what is named" : "");
    return left ? STATUS_WRONG : STATUS_OK;
}
