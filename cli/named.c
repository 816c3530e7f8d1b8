/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The items of each file of a container, with their names, by its own `.metadata`. A container that
 * Hearth did not write has no other list. Files that are not here may be on other nodes.
 */
#include "named.h"

#include "core/foreign/foreign.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int named_open(struct named *n, int container, const char *path, struct hearth_error *err)
{
    size_t len;
    int rc;

    *n = (struct named){ 0 };
    if ((rc = read_small(container, HTH_METADATA, &n->bytes, &len, err)))
        return rc;
    rc = hearth_metadata_open(n->bytes, len, &n->md, err);
    if (!rc)
        return HEARTH_OK;
    free(n->bytes);
    n->bytes = NULL;
    return hth_while(err, rc, "%.300s/" HTH_METADATA, path);
}

void named_close(struct named *n)
{
    if (n->md)
        hearth_metadata_close(n->md);
    free(n->bytes);
    *n = (struct named){ 0 };
}

/* ---- The items of a file --------------------------------------------------------------------- */

static int named_by_place(const void *a, const void *b)
{
    const struct named_item *x = a;
    const struct named_item *y = b;

    if (x->at != y->at)
        return x->at < y->at ? -1 : 1;
    return x->len < y->len ? -1 : x->len > y->len;
}

int named_items(const struct named *n, const char *file, struct named_item **out, size_t *out_count,
        struct hearth_error *err)
{
    struct hearth_metadata_stored s = { .struct_size = sizeof(s) };
    struct hearth_metadata_head head = { .struct_size = sizeof(head) };
    struct named_item *item;
    size_t count = 0, len = strlen(file);

    hearth_metadata_info(n->md, &head, NULL);
    item = calloc(head.stored + 1, sizeof(*item));
    if (!item)
        return hth_fail(err, HEARTH_ENOMEM, 0, "no memory for %zu items", head.stored);
    for (size_t i = 0; !hearth_metadata_stored_at(n->md, i, &s, NULL); i++)
        if (s.path.len == len && !memcmp(s.path.data, file, len))
            item[count++] = (struct named_item){ s.at, s.len, s.name, s.has_offset != 0 };
    qsort(item, count, sizeof(*item), named_by_place);
    *out = item;
    *out_count = count;
    return HEARTH_OK;
}

/* ---- Are its files whole? -------------------------------------------------------------------- */

/* Where the items of an open file may lie. Errors: HEARTH_EIO; HEARTH_ECORRUPT: it is torn. */
static int named_data(
        int fd, const char *path, struct hth_foreign_data *out, struct hearth_error *err)
{
    unsigned char head[HTH_BLOCK] = { 0 };
    struct stat st;
    int rc;

    if (fstat(fd, &st) || pread(fd, head, sizeof(head), 0) < 0)
        return hth_fail(err, HEARTH_EIO, errno, "%.300s cannot be read", path);
    if (!st.st_size)
        return hth_fail(err, HEARTH_ECORRUPT, 0, "%.300s is empty", path);
    rc = hth_foreign_data(out, head, (uint64_t)st.st_size, err);
    return rc ? hth_while(err, rc, "%.300s", path) : HEARTH_OK;
}

int named_is_plain(int fd, const char *path)
{
    const char *end = strrchr(path, '.');
    struct hth_foreign_data d = { 0 };

    return end && !strcmp(end, ".distcp") && !named_data(fd, path, &d, NULL) && !d.at;
}

struct seen_file {
    struct hearth_text name;
    uint64_t len; /* 0: it is not here */
};

struct seen_files {
    struct seen_file *file; /* [count] */
    size_t count, room;
};

/* From the last file on, since neighbours mostly name the same file. */
static struct seen_file *seen_find(const struct seen_files *l, struct hearth_text name)
{
    for (size_t i = l->count; i-- > 0;)
        if (l->file[i].name.len == name.len && !memcmp(l->file[i].name.data, name.data, name.len))
            return &l->file[i];
    return NULL;
}

/* Looks the file up: its length is 0 if it is not here. HEARTH_ECORRUPT if no file of a container
 * can have its name: then no other node has it either. */
static int seen_look(
        const struct place *p, const char *path, struct seen_file *f, struct hearth_error *err)
{
    struct hth_foreign_data d = { 0 };
    char name[257], whole[4096 + 260], say[HTH_KEY_TEXT];
    int fd, rc;

    snprintf(name, sizeof(name), "%.*s",
            (int)(f->name.len < sizeof(name) ? f->name.len : sizeof(name)), f->name.data);
    if (strlen(name) != f->name.len || hth_foreign_name_check(name, NULL))
        return hth_fail(err, HEARTH_ECORRUPT, 0,
                "%.200s: its .metadata names a file that Hearth cannot hold, %s", path,
                hth_key_text(f->name.data, f->name.len, say));
    snprintf(whole, sizeof(whole), "%.3800s/%s", path, name);
    fd = entry_open(p, name);
    if (fd < 0 && errno == ENOENT)
        return HEARTH_OK;
    if (fd < 0)
        return place_failed(whole, err);
    rc = named_data(fd, whole, &d, err);
    close(fd);
    if (!rc)
        f->len = d.len;
    return rc;
}

static int seen_add(struct seen_files *l, struct hearth_text name, struct seen_file **out,
        struct hearth_error *err)
{
    if (l->count == l->room) {
        size_t room = l->room ? 2 * l->room : 64;
        struct seen_file *more = realloc(l->file, room * sizeof(*more));

        if (!more)
            return hth_fail(err, HEARTH_ENOMEM, 0, "no memory for the names of files");
        l->file = more;
        l->room = room;
    }
    *out = &l->file[l->count++];
    **out = (struct seen_file){ .name = name };
    return HEARTH_OK;
}

static int named_check_item(struct seen_files *l, const struct place *p, const char *path,
        const struct hearth_metadata_stored *s, struct hearth_error *err)
{
    struct seen_file *f = seen_find(l, s->path);
    char key[HTH_KEY_TEXT];
    int rc = HEARTH_OK;

    if (!f && !(rc = seen_add(l, s->path, &f, err)))
        rc = seen_look(p, path, f, err);
    if (rc || !f->len || (s->at <= f->len && s->len <= f->len - s->at))
        return rc;
    return hth_fail(err, HEARTH_ECORRUPT, 0,
            "%.200s/%.*s is torn, or of another save: it has %" PRIu64
            " bytes of data, and its .metadata puts %s at %" PRIu64 " to %" PRIu64,
            path, (int)(s->path.len < 100 ? s->path.len : 100), s->path.data, f->len,
            hth_key_text(s->name.data, s->name.len, key), s->at, s->at + s->len);
}

int named_check(
        const struct place *p, const char *path, struct named_sum *out, struct hearth_error *err)
{
    struct hearth_metadata_stored s = { .struct_size = sizeof(s) };
    struct seen_files seen = { 0 };
    struct named n;
    int rc = named_open(&n, p->container, path, err);

    *out = (struct named_sum){ 0 };
    if (rc)
        return rc;
    while (!rc && !hearth_metadata_stored_at(n.md, out->items, &s, NULL)) {
        out->items++;
        rc = named_check_item(&seen, p, path, &s, err);
    }
    out->files = seen.count;
    for (size_t i = 0; i < seen.count; i++)
        out->here += seen.file[i].len != 0;
    free(seen.file);
    named_close(&n);
    return rc;
}

/* ---- Markers --------------------------------------------------------------------------------- */

#define UNFINISHED "unfinished"
#define QUICK      (64L << 20)

/* The first that is not before `name`. */
static size_t marker_first(char *const *names, size_t count, const char *name)
{
    size_t low = 0;

    while (low < count) {
        size_t mid = low + (count - low) / 2;

        if (strcmp(names[mid], name) < 0)
            low = mid + 1;
        else
            count = mid;
    }
    return low;
}

struct job_names job_names_list(int job, const char *dir)
{
    struct job_names n = { .names = names_in(job, dir, NULL) };

    while (n.names && n.names[n.count])
        n.count++;
    return n;
}

void job_names_free(struct job_names *n)
{
    names_free(n->names);
    *n = (struct job_names){ 0 };
}

int named_marker(const struct job_names *n, int job, const char *name, char why[400])
{
    size_t len = strlen(name), end = sizeof(UNFINISHED) - 1;
    struct stat st;

    for (size_t i = marker_first(n->names, n->count, name);
            i < n->count && !strncmp(n->names[i], name, len); i++) {
        size_t all = strlen(n->names[i]);

        if (all > len + end && !strcmp(n->names[i] + all - end, UNFINISHED) &&
                !fstatat(job, n->names[i], &st, AT_SYMLINK_NOFOLLOW)) {
            snprintf(why, 400, "its writer has not finished it: %.255s is beside it", n->names[i]);
            return 1;
        }
    }
    return 0;
}

int named_is_quick(int container)
{
    struct stat st;

    return fstatat(container, HTH_METADATA, &st, AT_SYMLINK_NOFOLLOW) || st.st_size <= QUICK;
}
