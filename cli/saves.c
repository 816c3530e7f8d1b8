/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The saves in a job's directory, read without an engine. Which save a container belongs to
 * is known from the blocks of its objects; else from the `<save>.dir` record with its inode number;
 * else, inside .hearth, from its name. All other containers are foreign.
 *
 * An engine may publish and free saves meanwhile. It writes a save's record before the container
 * has any content, and removes it after the container. So the containers are read first, then the
 * records; a container that is not in its place after that is left out.
 */
#include "cli.h"

#include "core/base/open.h"
#include "core/format/keep.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

int manifest_of(int job, struct hth_save_id id, struct hth_manifest *out, struct hearth_error *err)
{
    char name[sizeof(HTH_RECORDS_DIR) + HTH_SAVE_TEXT + 16], text[HTH_SAVE_TEXT];
    void *bytes;
    size_t len;
    int rc;

    hth_save_text(id, text);
    snprintf(name, sizeof(name), HTH_RECORDS_DIR "/%s.manifest", text);
    rc = read_small(job, name, &bytes, &len, err);
    if (rc)
        return rc;
    rc = hth_manifest_decode(out, bytes, len, err);
    free(bytes);
    if (!rc && hth_save_cmp(out->save, id) != 0) {
        hth_manifest_fini(out);
        rc = hth_fail(err, HEARTH_ECORRUPT, 0, "it is of another save");
    }
    return rc ? hth_while(err, rc, "%.300s", name) : HEARTH_OK;
}

int job_check(int job, const char *path, struct hearth_error *err)
{
    int records = hth_open_below(job, HTH_RECORDS_DIR, O_PATH | O_DIRECTORY, 0);
    char **names;
    uint64_t step;
    int found = 0;

    if (records >= 0) {
        close(records);
        return HEARTH_OK;
    }
    names = names_in(job, path, err);
    if (!names)
        return err->code;
    for (size_t i = 0; names[i] && !found; i++)
        found = !hth_step_dir_theirs(names[i], &step);
    names_free(names);
    return found ? HEARTH_OK : hth_fail(err, HEARTH_ENOENT, 0, "there is no job in %.300s", path);
}

/* A `<save>.dir` record: it begins with "inode <hex>", the number of the save's directory. */
struct known {
    uint64_t inode;
    struct hth_save_id id;
};

/* A job whose saves are listed. */
struct looking {
    struct place place; /* of the container in hand */
    int dir, records;   /* where containers lie now: the job's directory, then .hearth, if any */
    const char *only;   /* unreadable files are reported of this container only; NULL: of all */
    struct hth_keep keep;
    struct known *known; /* [count], by the records */
    size_t count;
    uint32_t patience_ms;
};

static int saves_has_end(const char *name, const char *end)
{
    size_t n = strlen(name), m = strlen(end);

    return n > m && !strcmp(name + n - m, end);
}

/* Counts a file; its block may name the save that it is of. */
static void saves_add_file(struct save_row *row, const struct place *p, const char *name)
{
    unsigned char head[HTH_BLOCK];
    struct hth_block block;
    struct stat st;
    ssize_t n;
    int fd;

    if (saves_has_end(name, ".tmp") || saves_has_end(name, ".lock"))
        return;
    fd = entry_open(p, name);
    if (fd < 0 && errno != ENOENT && errno != ESTALE && errno != EINVAL /* gone, or no file */
            && !row->unsaid)
        remark("%.3800s/%.255s cannot be read: %s", row->dir, name,
                errno == ELOOP ? "a link, which is not followed" : strerrordesc_np(errno));
    if (fd < 0 || fstat(fd, &st)) {
        if (fd >= 0)
            close(fd);
        return;
    }
    row->objects++;
    n = pread(fd, head, sizeof(head), 0);
    close(fd);
    if (n == (ssize_t)sizeof(head) &&
            !hth_block_decode(&block, head, sizeof(head), (uint64_t)st.st_size, NULL) &&
            block.signature != HTH_SIG_UNKNOWN) {
        row->bytes += block.own ? block.table_off + block.table_len : HTH_BLOCK + block.data_len;
        if (block.own && !row->own) {
            row->own = 1;
            row->id = block.save;
        }
    } else {
        row->bytes += (uint64_t)st.st_size;
    }
}

static void saves_know(struct looking *l, const char *name)
{
    struct known *more;
    char text[HTH_SAVE_TEXT];
    struct known one;
    void *bytes;
    size_t len;

    if (strlen(name) != HTH_SAVE_TEXT + 3 || !saves_has_end(name, ".dir"))
        return;
    memcpy(text, name, HTH_SAVE_TEXT - 1);
    text[HTH_SAVE_TEXT - 1] = '\0';
    if (hth_save_parse(text, &one.id) || read_small(l->records, name, &bytes, &len, NULL))
        return;
    one.inode = strncmp(bytes, "inode ", len < 6 ? len : 6)
                        ? 0
                        : strtoull((const char *)bytes + (len < 6 ? len : 6), NULL, 16);
    free(bytes);
    more = one.inode ? realloc(l->known, (l->count + 1) * sizeof(*more)) : NULL;
    if (!more)
        return;
    l->known = more;
    l->known[l->count++] = one;
}

/* Reads all `<save>.dir` records, once for all containers. */
static void saves_know_all(struct looking *l)
{
    char **names = l->records < 0 ? NULL : names_in(l->records, HTH_RECORDS_DIR, NULL);

    for (size_t i = 0; names && names[i]; i++)
        saves_know(l, names[i]);
    names_free(names);
}

static void saves_learn_from_record(struct save_row *row, const struct looking *l)
{
    for (size_t i = 0; i < l->count && !row->own; i++)
        if (l->known[i].inode == row->inode) {
            row->own = 1;
            row->id = l->known[i].id;
        }
}

static const char *saves_state(const struct save_row *row, const struct hth_keep *keep)
{
    for (uint32_t i = 0; i < keep->bads; i++)
        if (!hth_save_cmp(keep->bad[i], row->id))
            return "bad";
    if (!row->own || hth_save_foreign(row->id)) /* or brought from another node's */
        return "foreign";
    if (hth_keep_has(keep, row->id))
        return hth_keep_degraded(keep, hth_keep_at(keep, row->id)) ? "degraded" : "kept";
    return row->published ? "complete" : "unfinished";
}

/* The time from the coordinator's clock, when the save became PROTECTED, to this node's clock
 * now. */
static int64_t saves_age(const struct save_row *row, const struct hth_keep *keep)
{
    int at = row->own ? hth_keep_at(keep, row->id) : -1;
    struct timespec now;

    if (at < 0 || clock_gettime(CLOCK_REALTIME, &now))
        return -1;
    return now.tv_sec > (time_t)(keep->since_ms[at] / 1000)
                   ? now.tv_sec - (int64_t)(keep->since_ms[at] / 1000)
                   : 0;
}

static void saves_mark(struct save_row *row, const struct hth_keep *keep)
{
    int at = row->own ? hth_keep_at(keep, row->id) : -1;

    row->pinned = at >= 0 && hth_keep_pinned(keep, at);
    row->tries = row->own ? hth_keep_tries(keep, row->id) : 0;
}

static int saves_has_manifest(int records, struct hth_save_id id)
{
    char name[HTH_SAVE_TEXT + 16], text[HTH_SAVE_TEXT];
    struct stat st;

    hth_save_text(id, text);
    snprintf(name, sizeof(name), "%s.manifest", text);
    return records >= 0 && !fstatat(records, name, &st, AT_SYMLINK_NOFOLLOW);
}

static void saves_look_at_files(struct save_row *row, const struct place *p)
{
    struct hearth_error err = { 0 };
    char **names = names_in(p->container, row->dir, &err);

    if (!names && err.code != HEARTH_ENOENT && !row->unsaid) /* ENOENT: just freed */
        remark("%s", err.text);
    for (size_t i = 0; names && names[i]; i++)
        saves_add_file(row, p, names[i]);
    names_free(names);
}

/* Reads what lies in the container; l->place lacks only its descriptor. */
static void saves_look_into(struct save_row *row, struct looking *l)
{
    struct stat st;

    l->place.container = hth_open_below(l->dir, row->name, O_PATH | O_DIRECTORY, 0);
    if (l->place.container < 0 && errno != ENOENT && errno != ENOTDIR && !row->unsaid)
        remark("%.3800s cannot be read: %s", row->dir,
                errno == ELOOP ? "a link, which is not followed" : strerrordesc_np(errno));
    if (l->place.container >= 0) {
        saves_look_at_files(row, &l->place);
        row->inode = fstat(l->place.container, &st) ? 0 : st.st_ino;
        close(l->place.container);
    }
}

/* Which save it is. 1: it is in its place. */
static int saves_name(struct save_row *row, struct looking *l)
{
    int dir = row->published ? l->place.job : l->records;

    if (!row->own && row->inode)
        saves_learn_from_record(row, l);
    if (!row->own && !row->published && !hth_save_parse(row->name, &row->id))
        row->own = 1;
    if (row->own)
        row->step = row->id.step;
    row->state = saves_state(row, &l->keep);
    row->age_s = saves_age(row, &l->keep);
    saves_mark(row, &l->keep);
    row->manifest = row->own && saves_has_manifest(l->records, row->id);
    if (row->own && !row->manifest && strcmp(row->state, "unfinished") != 0)
        return !entry_goes(dir, row->name, row->inode, &l->patience_ms);
    return !entry_went(dir, row->name, row->inode);
}

/* Those that have been freed or published meanwhile are left out. */
static void saves_name_all(struct save_row **rows, struct looking *l)
{
    struct save_row **at = rows, *row;

    saves_know_all(l);
    while ((row = *at)) {
        if (saves_name(row, l)) {
            at = &row->next;
            continue;
        }
        note("%.300s was published or freed while it was read, and is left out", row->dir);
        *at = row->next;
        free(row);
    }
}

static int saves_compare(const struct save_row *a, const struct save_row *b)
{
    if (a->own && b->own)
        return hth_save_cmp(a->id, b->id);
    if (a->own != b->own)
        return a->own ? 1 : -1;
    return a->step < b->step ? -1 : a->step > b->step;
}

/* Two lists in order as one; of equal rows `first`'s come first. */
static struct save_row *saves_merge(struct save_row *first, struct save_row *second)
{
    struct save_row *all, **end = &all;

    while (first && second) {
        struct save_row **from = saves_compare(first, second) <= 0 ? &first : &second;

        *end = *from;
        end = &(*end)->next;
        *from = (*from)->next;
    }
    *end = first ? first : second;
    return all;
}

static struct save_row *saves_sort(struct save_row *rows)
{
    struct save_row *half = rows, *end = rows, *second;

    if (!rows || !rows->next)
        return rows;
    while (end->next && end->next->next) {
        half = half->next;
        end = end->next->next;
    }
    second = half->next;
    half->next = NULL;
    return saves_merge(saves_sort(rows), saves_sort(second));
}

/* `path`: of l->dir. */
static int saves_add_dirs(struct looking *l, const char *path, int published,
        struct save_row ***end, struct hearth_error *err)
{
    struct hearth_error cause = { 0 };
    char **names = names_in(l->dir, path, &cause);

    if (!names)
        return hth_fail(err, cause.code, cause.native, "%s", cause.text);
    for (size_t i = 0; names[i]; i++) {
        struct hth_save_id id;
        struct save_row *row;
        uint64_t step = 0;

        if (published ? hth_step_dir_theirs(names[i], &step) : hth_save_parse(names[i], &id))
            continue;
        row = calloc(1, sizeof(*row));
        if (!row) {
            names_free(names);
            return hth_fail(err, HEARTH_ENOMEM, 0, "no memory for the list of saves");
        }
        snprintf(row->dir, sizeof(row->dir), "%.3800s/%.255s", path, names[i]);
        snprintf(row->name, sizeof(row->name), "%.255s", names[i]);
        row->published = published;
        row->unsaid = l->only && strcmp(l->only, names[i]) != 0;
        row->step = step;
        saves_look_into(row, l);
        **end = row;
        *end = &row->next;
    }
    names_free(names);
    return HEARTH_OK;
}

/* Where there is no keep record, no save is known to be kept. */
static void saves_read_keep(int records, const char *path, struct hth_keep *out)
{
    struct hearth_error err = { 0 };
    void *bytes = NULL;
    size_t len;
    int rc = records < 0 ? HEARTH_ENOENT : read_small(records, "keep", &bytes, &len, &err);

    if (rc == HEARTH_ENOENT)
        return;
    rc = rc ? rc : hth_keep_decode(out, bytes, len, &err);
    if (rc) {
        remark("%.300s/keep: %.300s: which saves are kept is not known", path, err.text);
        *out = (struct hth_keep){ 0 };
    }
    free(bytes);
}

int saves_list(int job, const char *path, const char *only, struct save_row **out,
        struct hearth_error *err)
{
    struct looking l = {
        .place = { .job = job }, .dir = job, .only = only, .patience_ms = PATIENCE_MS
    };
    struct save_row *rows = NULL, **end = &rows;
    char records[4096];
    int rc;

    snprintf(records, sizeof(records), "%.4000s/" HTH_RECORDS_DIR, path);
    snprintf(l.place.job_path, sizeof(l.place.job_path), "%.4000s", path);
    l.records = hth_open_below(job, HTH_RECORDS_DIR, O_PATH | O_DIRECTORY, 0);
    if (l.records < 0 && errno != ENOENT)
        return place_failed(records, err);
    saves_read_keep(l.records, records, &l.keep);
    rc = saves_add_dirs(&l, path, 1, &end, err);
    if (!rc && l.records >= 0) {
        l.dir = l.records;
        rc = saves_add_dirs(&l, records, 0, &end, err);
    }
    if (!rc)
        saves_name_all(&rows, &l);
    free(l.known);
    if (l.records >= 0)
        close(l.records);
    if (rc) {
        saves_free(rows);
        return rc;
    }
    *out = saves_sort(rows);
    return HEARTH_OK;
}

void saves_free(struct save_row *rows)
{
    while (rows) {
        struct save_row *next = rows->next;

        free(rows);
        rows = next;
    }
}
