/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rm and clean: the only commands that change anything. Both hold the job's lock meanwhile, so no
 * engine runs or starts on what goes away; neither follows a link.
 */
#include "cli.h"

#include <hearth/internal/core/store_tmpfs.h>

#include <errno.h>
#include <ftw.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define OPEN_DIRS 16

static const char *spared; /* a file that stays, with all above it; nftw() takes no argument */

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    size_t len = strlen(path);

    (void)st, (void)type, (void)ftw;
    if (spared && !strncmp(path, spared, len) && (spared[len] == '/' || !spared[len]))
        return 0;
    return remove(path);
}

static int remove_tree(const char *path, struct hearth_error *err)
{
    if (nftw(path, remove_entry, OPEN_DIRS, FTW_DEPTH | FTW_PHYS))
        return hth_fail(
                err, HEARTH_EIO, errno, "cannot remove %.300s: %s", path, strerrordesc_np(errno));
    return HEARTH_OK;
}

/* "<root>/<job>" of an absolute path, cut at its last slash. Returns the last part. */
static char *cut(char *path)
{
    char *slash = strrchr(path, '/');

    if (!slash || slash == path)
        return NULL;
    *slash = '\0';
    return slash + 1;
}

struct target {
    char dir[PATH_MAX]; /* of the save */
    char root[PATH_MAX];
    char job[HTH_NAME_MAX + 1];
};

/* Where a save is: a path, or, beside --root, JOB/SAVE. */
static int find_target(
        const struct args *a, const char *text, struct target *t, struct hearth_error *err)
{
    char path[PATH_MAX], *name, *job;
    struct hth_save_id id;
    uint64_t step;
    int in_records;

    if (text[0] != '/' && a->root)
        snprintf(path, sizeof(path), "%.3000s/%.1000s", a->root, text);
    else
        snprintf(path, sizeof(path), "%.4000s", text);
    if (!realpath(path, t->dir))
        return hth_fail(err, errno == ENOENT || errno == ENOTDIR ? HEARTH_ENOENT : HEARTH_EIO,
                errno, "%.300s: %s: see hearth ls", path, strerrordesc_np(errno));
    memcpy(t->root, t->dir, sizeof(t->root));
    name = cut(t->root);
    job = name ? cut(t->root) : NULL;
    in_records = job && !strcmp(job, HTH_RECORDS_DIR);
    if (in_records)
        job = cut(t->root);
    if (!job || hth_job_check(job, NULL) ||
            (in_records ? hth_save_parse(name, &id) : hth_step_dir_parse(name, &step)))
        return hth_fail(err, HEARTH_EINVAL, 0,
                "'%.200s' is no save: give the directory that hearth ls shows, as "
                "ROOT/JOB/step-40_ckpt",
                text);
    snprintf(t->job, sizeof(t->job), "%.64s", job);
    return HEARTH_OK;
}

/* The records of a save: without its manifest nobody looks for it any more. */
static void remove_records(const struct target *t, struct hth_save_id id, const char *end)
{
    char text[HTH_SAVE_TEXT], path[PATH_MAX + HTH_SAVE_TEXT + 96];

    hth_save_text(id, text);
    snprintf(path, sizeof(path), "%s/%s/" HTH_RECORDS_DIR "/%s.%s", t->root, t->job, text, end);
    unlink(path);
}

static int remove_save(const struct target *t, struct hearth_error *err)
{
    char job_dir[PATH_MAX + HTH_NAME_MAX + 2];
    struct save_row *rows = NULL, *row;
    int rc;

    snprintf(job_dir, sizeof(job_dir), "%s/%s", t->root, t->job);
    rc = saves_list(job_dir, &rows, err);
    for (row = rows; row && strcmp(row->dir, t->dir) != 0;)
        row = row->next;
    if (!rc && row && row->own)
        remove_records(t, row->id, "manifest");
    if (!rc)
        rc = remove_tree(t->dir, err);
    if (!rc && row && row->own)
        remove_records(t, row->id, "dir");
    saves_free(rows);
    return rc;
}

/* A job that Hearth never ran on has no lock to take. */
static int lock(const char *root, const char *job, int *out_fd, struct hearth_error *err)
{
    char path[PATH_MAX + HTH_NAME_MAX + 32];

    *out_fd = -1;
    snprintf(path, sizeof(path), "%.4000s/%s/" HTH_RECORDS_DIR "/lock", root, job);
    if (access(path, F_OK) && errno == ENOENT)
        return HEARTH_OK;
    return hth_store_lock(root, job, out_fd, err);
}

enum status run_rm(const struct args *a)
{
    for (int i = 0; i < a->count; i++) {
        struct hearth_error err = { 0 };
        struct target t;
        int fd = -1, rc = find_target(a, a->value[i], &t, &err);

        rc = rc ? rc : lock(t.root, t.job, &fd, &err);
        rc = rc ? rc : remove_save(&t, &err);
        if (fd >= 0)
            close(fd);
        if (rc)
            return complain(&err);
        printf("removed %s\n", t.dir);
    }
    return STATUS_OK;
}

/* All but the lock, then the lock and what it lies in. */
static int clean_job(const char *dir, int locked, struct hearth_error *err)
{
    char path[PATH_MAX + 32];
    int rc;

    snprintf(path, sizeof(path), "%s/" HTH_RECORDS_DIR "/lock", dir);
    spared = locked ? path : NULL;
    rc = remove_tree(dir, err);
    spared = NULL;
    return rc || !locked ? rc : remove_tree(dir, err);
}

enum status run_clean(const struct args *a)
{
    struct hearth_error err = { 0 };
    char dir[PATH_MAX], root[PATH_MAX];
    int fd = -1, rc;

    if (!a->root)
        return complain_usage("clean needs --root, or HEARTH_ROOT set: the tmpfs that is Hearth's");
    if (hth_job_check(a->value[0], &err))
        return complain(&err);
    if (!realpath(a->root, root)) {
        hth_fail(&err, HEARTH_ENOENT, errno, "%.300s: %s", a->root, strerrordesc_np(errno));
        return complain(&err);
    }
    snprintf(dir, sizeof(dir), "%.4000s/%.64s", root, a->value[0]);
    if (!is_job_dir(dir)) {
        hth_fail(&err, HEARTH_ENOENT, 0, "there is no job '%.64s' in %.300s", a->value[0], root);
        return complain(&err);
    }
    rc = lock(root, a->value[0], &fd, &err);
    rc = rc ? rc : clean_job(dir, fd >= 0, &err);
    if (fd >= 0)
        close(fd);
    if (rc)
        return complain(&err);
    printf("removed %s\n", dir);
    return STATUS_OK;
}
