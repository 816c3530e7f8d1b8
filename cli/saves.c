/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a job's directory holds, without a question to an engine. Which save a container belongs to is known
 * from the blocks of its objects; else from the `<save>.dir` record with its inode number; else, inside
 * .hearth, from its name. All other containers are foreign.
 */
#include "cli.h"

#include "core/base/file.h"
#include "core/format/keep.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define SMALL_MAX (UINT64_C(4) << 30) /* bytes of a record */
#define NAMES_MAX 1000000

static int saves_by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

struct names {
    char **name; /* [n], NULL behind the last */
    size_t n, room;
};

/* 1: it is in; 0: there is no memory, or there are too many. */
static int saves_names_add(struct names *l, const char *name)
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

char **names_in(const char *dir, struct hearth_error *err)
{
    DIR *d = opendir(dir);
    struct names l = { d ? calloc(65, sizeof(*l.name)) : NULL, 0, 64 };
    const struct dirent *e;
    int why;

    if (!l.name) {
        hth_fail(err, errno == ENOENT || errno == ENOTDIR ? HEARTH_ENOENT : HEARTH_EIO, errno,
                "%.300s: %s", dir, strerrordesc_np(errno));
        if (d)
            closedir(d);
        return NULL;
    }
    while ((errno = 0, e = readdir(d)))
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0 &&
                !saves_names_add(&l, e->d_name))
            break;
    why = errno;
    closedir(d);
    if (e || why) { /* half a list is none */
        names_free(l.name);
        hth_fail(err, e ? HEARTH_ENOMEM : HEARTH_EIO, why, "%.300s cannot be listed: %s", dir,
                e ? "it has too many files" : strerrordesc_np(why));
        return NULL;
    }
    qsort(l.name, l.n, sizeof(*l.name), saves_by_name);
    return l.name;
}

void names_free(char **names)
{
    for (size_t i = 0; names && names[i]; i++)
        free(names[i]);
    free(names);
}

int read_small(const char *path, void **out, size_t *out_len, struct hearth_error *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK), rc = HEARTH_OK;

    if (fd < 0)
        return hth_fail(err, errno == ENOENT ? HEARTH_ENOENT : HEARTH_EIO, errno,
                "%.300s cannot be read: %s", path, strerrordesc_np(errno));
    if (hth_file_read(fd, SMALL_MAX, out, out_len)) {
        if (errno == EINVAL)
            rc = hth_fail(err, HEARTH_EIO, 0, "%.300s cannot be read: it is not a file", path);
        else if (errno == EFBIG || errno == ENOMEM)
            rc = hth_fail(err, HEARTH_ENOMEM, 0, "%.300s is too large to be read", path);
        else
            rc = hth_fail(err, HEARTH_EIO, errno, "%.300s cannot be read: %s", path,
                    strerrordesc_np(errno));
    }
    close(fd);
    return rc;
}

/* The folder that holds the records of this container's job; out[4096]. */
static int saves_records(const char *container, char out[4096])
{
    char parent[4096];
    const char *slash = strrchr(container, '/');
    struct stat st;
    int n;

    if (!slash || slash == container)
        n = snprintf(parent, sizeof(parent), "%s", slash ? "/" : ".");
    else
        n = snprintf(parent, sizeof(parent), "%.*s", (int)(slash - container), container);
    if (n >= (int)sizeof(parent) - 16)
        return HEARTH_EINVAL;
    snprintf(out, 4096, "%.4000s/" HTH_RECORDS_DIR, parent);
    if (stat(out, &st) || !S_ISDIR(st.st_mode)) /* it lies in there itself */
        snprintf(out, 4096, "%.4000s", parent);
    return HEARTH_OK;
}

int manifest_of(const char *container, struct hth_save_id id, struct hth_manifest *out,
        struct hearth_error *err)
{
    char records[4096], path[4096 + HTH_SAVE_TEXT + 16], text[HTH_SAVE_TEXT];
    void *bytes;
    size_t len;
    int rc;

    if (saves_records(container, records))
        return hth_fail(err, HEARTH_EINVAL, 0, "%.300s: the path is too long", container);
    hth_save_text(id, text);
    snprintf(path, sizeof(path), "%s/%s.manifest", records, text);
    rc = read_small(path, &bytes, &len, err);
    if (rc)
        return rc;
    rc = hth_manifest_decode(out, bytes, len, err);
    free(bytes);
    if (!rc && hth_save_cmp(out->save, id) != 0) {
        hth_manifest_fini(out);
        rc = hth_fail(err, HEARTH_ECORRUPT, 0, "it is of another save");
    }
    return rc ? hth_while(err, rc, "%.300s", path) : HEARTH_OK;
}

int job_dir_check(const char *path, struct hearth_error *err)
{
    char records[4096];
    struct stat st;
    char **names;
    uint64_t step;
    int found = 0;

    snprintf(records, sizeof(records), "%.4000s/" HTH_RECORDS_DIR, path);
    if (!stat(records, &st) && S_ISDIR(st.st_mode))
        return HEARTH_OK;
    names = names_in(path, err);
    if (!names)
        return err->code;
    for (size_t i = 0; names[i] && !found; i++)
        found = !hth_step_dir_theirs(names[i], &step);
    names_free(names);
    return found ? HEARTH_OK : hth_fail(err, HEARTH_ENOENT, 0, "there is no job in %.300s", path);
}

static int saves_has_end(const char *name, const char *end)
{
    size_t n = strlen(name), m = strlen(end);

    return n > m && !strcmp(name + n - m, end);
}

/* Count a file in; its block may say which save it is of. */
static void saves_add_file(struct save_row *row, const char *name)
{
    unsigned char head[HTH_BLOCK];
    struct hth_block block;
    char path[4096 + 260];
    struct stat st;
    ssize_t n;
    int fd;

    if (saves_has_end(name, ".tmp") || saves_has_end(name, ".lock"))
        return;
    snprintf(path, sizeof(path), "%s/%s", row->dir, name);
    fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 && errno != ENOENT && errno != ENXIO) /* gone, or a socket */
        remark("%.300s cannot be read: %s", path, strerrordesc_np(errno));
    if (fd < 0 || fstat(fd, &st) || !S_ISREG(st.st_mode)) {
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

/* `<save>.dir` begins with "inode <hex>", the number of the save's directory. */
static void saves_learn_from_record(struct save_row *row, const char *records, ino_t ino)
{
    char **names = names_in(records, NULL), path[4096 + 260], text[HTH_SAVE_TEXT];
    struct hth_save_id id;

    for (size_t i = 0; names && names[i] && !row->own; i++) {
        void *bytes;
        size_t len;

        if (strlen(names[i]) != HTH_SAVE_TEXT + 3 || !saves_has_end(names[i], ".dir"))
            continue;
        memcpy(text, names[i], HTH_SAVE_TEXT - 1);
        text[HTH_SAVE_TEXT - 1] = '\0';
        snprintf(path, sizeof(path), "%s/%s", records, names[i]);
        if (hth_save_parse(text, &id) || read_small(path, &bytes, &len, NULL))
            continue;
        if (!strncmp(bytes, "inode ", len < 6 ? len : 6) &&
                strtoull((const char *)bytes + (len < 6 ? len : 6), NULL, 16) == ino) {
            row->own = 1;
            row->id = id;
        }
        free(bytes);
    }
    names_free(names);
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

/* From the coordinator's clock at that time and this node's now. */
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

static void saves_look_into(struct save_row *row, const char *records, const struct hth_keep *keep)
{
    struct hearth_error err = { 0 };
    char **names = names_in(row->dir, &err), path[4096 + HTH_SAVE_TEXT + 16], text[HTH_SAVE_TEXT];
    struct stat st;

    if (!names && err.code != HEARTH_ENOENT) /* else an engine has just freed it */
        remark("%s", err.text);
    for (size_t i = 0; names && names[i]; i++)
        saves_add_file(row, names[i]);
    names_free(names);
    if (!row->own && !stat(row->dir, &st))
        saves_learn_from_record(row, records, st.st_ino);
    if (!row->own && !row->published && !hth_save_parse(row->name, &row->id))
        row->own = 1;
    if (row->own)
        row->step = row->id.step;
    row->state = saves_state(row, keep);
    row->age_s = saves_age(row, keep);
    if (row->own) {
        hth_save_text(row->id, text);
        snprintf(path, sizeof(path), "%s/%s.manifest", records, text);
        row->manifest = !access(path, F_OK);
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

static void saves_insert(struct save_row **rows, struct save_row *row)
{
    while (*rows && saves_compare(*rows, row) <= 0)
        rows = &(*rows)->next;
    row->next = *rows;
    *rows = row;
}

static int saves_add_dirs(const char *dir, const char *records, int published,
        const struct hth_keep *keep, struct save_row **rows, struct hearth_error *err)
{
    struct hearth_error cause = { 0 };
    char **names = names_in(dir, &cause);

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
        snprintf(row->dir, sizeof(row->dir), "%.3800s/%.255s", dir, names[i]);
        snprintf(row->name, sizeof(row->name), "%.255s", names[i]);
        row->published = published;
        row->step = step;
        saves_look_into(row, records, keep);
        saves_insert(rows, row);
    }
    names_free(names);
    return HEARTH_OK;
}

/* Where there is no keep record, no save is known to be kept. */
static void saves_read_keep(const char *path, struct hth_keep *out)
{
    struct hearth_error err = { 0 };
    void *bytes = NULL;
    size_t len;
    int rc = read_small(path, &bytes, &len, &err);

    if (rc == HEARTH_ENOENT)
        return;
    rc = rc ? rc : hth_keep_decode(out, bytes, len, &err);
    if (rc) {
        remark("%.300s: %.300s: which saves are kept is not known", path, err.text);
        *out = (struct hth_keep){ 0 };
    }
    free(bytes);
}

int saves_list(const char *job_dir, struct save_row **out, struct hearth_error *err)
{
    struct hth_keep keep = { 0 };
    struct save_row *rows = NULL;
    char records[4096], path[4096 + 8];
    int rc;

    snprintf(records, sizeof(records), "%.4000s/" HTH_RECORDS_DIR, job_dir);
    snprintf(path, sizeof(path), "%s/keep", records);
    saves_read_keep(path, &keep);
    rc = saves_add_dirs(job_dir, records, 1, &keep, &rows, err);
    if (!rc && !access(records, F_OK))
        rc = saves_add_dirs(records, records, 0, &keep, &rows, err);
    if (rc) {
        saves_free(rows);
        return rc;
    }
    *out = rows;
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
