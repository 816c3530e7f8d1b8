/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verify: an object, a container, all of a job or of a root, each byte against its checksum. A
 * container is also compared with its manifest; an object that the manifest names and this node
 * does not have is no fault, because other nodes have it.
 */
#include "named.h"

#include "core/base/auth.h"
#include "core/base/file.h"
#include "core/base/map.h"
#include "core/base/open.h"
#include "core/foreign/foreign.h"
#include "core/format/keep.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

struct run {
    const struct args *args;
    json_t *rows;
    struct grid grid;
    struct meter meter;
    uint64_t good, foreign, bad, unread;
    struct job_names names;              /* of the job in hand, once a container asks for them */
    struct place place;                  /* of the container in hand */
    const struct hth_manifest *manifest; /* its own; NULL: none */
    uint32_t here;                       /* of its objects */
    int theirs;                          /* the container in hand is not Hearth's */
    const char *entry;                   /* of it in hand; NULL: the container itself */
    uint64_t inode;                      /* of the entry */
    const char *container;               /* its name below its job's directory; NULL: not known */
    uint64_t container_inode;
    uint32_t patience_ms;
};

/* 1: the open file was freed since: the bytes that were read of it may be another save's. */
static int verify_went(const struct run *r)
{
    if (r->entry)
        return entry_went(r->place.container, r->entry, r->inode);
    return r->container && entry_went(r->place.job, r->container, r->container_inode);
}

static void verify_report(
        struct run *r, const char *path, const char *state, uint64_t bytes, const char *text)
{
    char size[32], name[300];

    if ((!strcmp(state, "wrong") || !strcmp(state, "unread")) && verify_went(r)) {
        state = "gone";
        text = "the engine freed it meanwhile";
    }
    if (!strcmp(state, "verified"))
        r->good++;
    else if (!strcmp(state, "wrong"))
        r->bad++;
    else if (!strcmp(state, "unread"))
        r->unread++;
    else if (!strcmp(state, "foreign"))
        r->foreign++; /* others are no objects: neither good nor bad */
    if (r->args->json) {
        json_array_append_new(r->rows,
                json_pack("{s:o, s:s, s:I, s:o}", "path", json_text(path, strlen(path)), "state",
                        state, "bytes", (json_int_t)bytes, "text", json_text(text, strlen(text))));
        return;
    }
    human(size, bytes);
    plain(name, sizeof(name), path, strlen(path));
    grid_add(&r->grid, "%s", state);
    grid_add(&r->grid, "%s", size);
    grid_add(&r->grid, "%s", name);
    plain(name, sizeof(name), text, strlen(text));
    grid_add(&r->grid, "%s", name);
}

/* Reports damage; or the reason why the file was not checked: another version of Hearth, or the
 * system. */
static void verify_report_failed(struct run *r, const char *path, const struct hearth_error *err)
{
    int looked = err->code == HEARTH_ECORRUPT;

    if (err->code == HEARTH_ENOENT)
        verify_report(r, path, "gone", 0, "the engine freed it meanwhile");
    else
        verify_report(r, path, looked ? "wrong" : "unread", 0, err->text);
}

static const struct hth_object *verify_listed(const struct run *r, const char *name)
{
    for (uint32_t i = 0; r->manifest && i < r->manifest->objects; i++)
        if (!strcmp(r->manifest->object[i].name, name))
            return &r->manifest->object[i];
    return NULL;
}

static const char *verify_last_part(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}

/* Block against manifest. NULL: they agree. */
static const char *verify_disagrees(const struct hth_block *b, const struct hth_table *table,
        const struct hth_object *o, const struct hth_manifest *m)
{
    if (hth_save_cmp(b->save, m->save) != 0)
        return "it is of another save than its container";
    if (!o)
        return "its container's manifest does not name it";
    if (b->object != o->id || b->owner != o->owner)
        return "the manifest has another object of this name";
    if (b->data_len != o->data_len || b->table_len != o->table_len ||
            memcmp(b->table_digest, o->digest, HTH_DIGEST) != 0)
        return "its length or digest does not match the manifest";
    if (table->strong != o->strong)
        return "its integrity does not match the manifest";
    return NULL;
}

static void verify_own(struct run *r, struct object *o)
{
    struct hearth_error err = { 0 };
    const struct hth_object *in = verify_listed(r, verify_last_part(o->path));
    const char *why = r->manifest ? verify_disagrees(&o->block, &o->table, in, r->manifest) : NULL;

    r->here += in != NULL;
    if (!why && object_verify(o, &r->meter, &err))
        why = err.text;
    if (why)
        verify_report(r, o->path, "wrong", o->block.data_len, why);
    else
        verify_report(
                r, o->path, "verified", o->block.data_len, r->manifest ? "as in the manifest" : "");
}

/* Verifies an ordinary file, whose length and digest the manifest has. */
static void verify_raw(struct run *r, int fd, const char *path, const struct hth_object *in)
{
    unsigned char digest[HTH_DIGEST];
    struct hearth_error err = { 0 };
    void *bytes;
    size_t len;

    r->here++;
    if (hth_file_read(fd, in->data_len, &bytes, &len)) {
        if (errno == EFBIG)
            hth_fail(&err, HEARTH_ECORRUPT, 0, "it is longer than in the manifest");
        else
            hth_fail(&err, HEARTH_EIO, errno, "it cannot be read: %s", strerrordesc_np(errno));
        verify_report_failed(r, path, &err);
        return;
    }
    hth_digest(digest, bytes, len);
    free(bytes);
    if (len != in->data_len || memcmp(digest, in->digest, HTH_DIGEST) != 0)
        verify_report(r, path, "wrong", len, "its length or digest does not match the manifest");
    else
        verify_report(r, path, "verified", len, "as in the manifest");
}

/* Verifies a file that came from another node's foreign container: the first bytes of a slot. */
static void verify_brought(struct run *r, int fd, const char *path, const struct hth_object *in)
{
    unsigned char digest[HTH_DIGEST];
    struct stat st;
    const void *bytes = NULL;

    r->here++;
    if (!fstat(fd, &st) && (uint64_t)st.st_size >= in->data_len)
        bytes = hth_map_sparse(fd, in->data_len);
    if (!bytes) {
        verify_report(r, path, "wrong", 0, "it cannot be read, or is shorter than in the manifest");
        return;
    }
    hth_digest(digest, bytes, in->data_len);
    munmap((void *)(uintptr_t)bytes, in->data_len);
    if (memcmp(digest, in->digest, HTH_DIGEST) != 0)
        verify_report(r, path, "wrong", in->data_len, "its digest does not match the manifest");
    else
        verify_report(r, path, "verified", in->data_len, "as it came from another node");
}

static void verify_foreign(struct run *r, struct object *o)
{
    struct hearth_error err = { 0 };

    if (r->manifest)
        verify_report(r, o->path, "wrong", o->block.data_len,
                "it has no block of Hearth's, in a container of Hearth's");
    else if (object_verify(o, &r->meter, &err))
        verify_report(r, o->path, "wrong", o->block.data_len, err.text);
    else
        verify_report(
                r, o->path, "foreign", o->block.data_len, "it can be read; it has no checksums");
}

/* 1: there is no manifest to name the files of this container, and this name is no object's. */
static int verify_is_anything(const struct run *r, const char *path)
{
    size_t len = strlen(path);

    return !r->manifest && (len < 7 || strcmp(path + len - 7, ".distcp") != 0);
}

/* 1: it was an object of Hearth's, even if the rest of its block is damaged. */
static int verify_has_magic(int fd)
{
    char magic[8];

    return pread(fd, magic, sizeof(magic), 16) == sizeof(magic) &&
           !memcmp(magic, "HEARTH\r\n", sizeof(magic));
}

/* alone: named by the user; else found in a container, where other files lie, too. */
static void verify_file(struct run *r, int fd, const char *path, int alone)
{
    const struct hth_object *in = verify_listed(r, verify_last_part(path));
    struct hearth_error err = { 0 };
    struct object o;
    size_t len = strlen(path);

    if (!alone && !in && len > 4 &&
            (!strcmp(path + len - 4, ".tmp") || !strcmp(path + len - 5, ".lock")))
        return;
    if (in && in->kind == HTH_OBJECT_RAW) {
        verify_raw(r, fd, path, in);
        return;
    }
    if (in && in->kind == HTH_OBJECT_FOREIGN) {
        verify_brought(r, fd, path, in);
        return;
    }
    if (!alone && r->theirs && !strcmp(verify_last_part(path), HTH_METADATA))
        return; /* verify_by_metadata() */
    if (!alone && r->theirs && !verify_has_magic(fd) && named_is_plain(fd, path)) {
        verify_report(r, path, "foreign", 0, "a file without a block; it has no checksums");
        return;
    }
    if (object_open(&o, fd, path, &err)) {
        if (!alone && err.code == HEARTH_ECORRUPT && !verify_has_magic(fd) &&
                verify_is_anything(r, path))
            verify_report(r, path, "other", 0, "not an object");
        else
            verify_report_failed(r, path, &err);
        return;
    }
    if (o.block.own)
        verify_own(r, &o);
    else
        verify_foreign(r, &o);
    object_close(&o);
}

/* The same of an entry of r->place, which it closes. */
static void verify_opened(struct run *r, int fd, const char *path, int alone)
{
    struct stat st;

    r->inode = fstat(fd, &st) ? 0 : st.st_ino;
    r->entry = verify_last_part(path);
    verify_file(r, fd, path, alone);
    r->entry = NULL;
    close(fd);
}

/* An entry of a container: a file, or anything else. */
static void verify_entry(struct run *r, const char *path)
{
    struct hearth_error err = { 0 };
    int fd = entry_open(&r->place, verify_last_part(path));

    if (fd >= 0) {
        verify_opened(r, fd, path, 0);
    } else if (errno == EINVAL) {
        verify_report(r, path, "other", 0, "not a file");
    } else if (errno == ELOOP && verify_is_anything(r, path)) {
        verify_report(r, path, "other", 0, "a link, which is not followed");
    } else if (errno != ENOENT) { /* else it has just gone */
        hth_fail(&err, HEARTH_EIO, errno, "it cannot be read: %s",
                errno == ELOOP    ? "a link, which is not followed"
                : errno == ESTALE ? "a link to what has gone"
                                  : strerrordesc_np(errno));
        verify_report_failed(r, path, &err);
    }
}

static void verify_entries(struct run *r, const char *dir)
{
    struct hearth_error err = { 0 };
    char **names = names_in(r->place.container, dir, &err), path[4096 + 260];

    if (!names)
        verify_report_failed(r, dir, &err);
    for (size_t i = 0; names && names[i]; i++) {
        snprintf(path, sizeof(path), "%.4000s/%.255s", dir, names[i]);
        verify_entry(r, path);
    }
    names_free(names);
}

/* r->place is a foreign container, checked by its own `.metadata`. Another node's container may
 * have more files. save: NULL, or as it is listed. */
static void verify_by_metadata(struct run *r, const char *dir, const struct save_row *save)
{
    struct hearth_error err = { 0 };
    struct named_sum sum;
    char path[4096 + 16], text[400];
    int rc = named_check(&r->place, dir, &sum, &err);

    snprintf(path, sizeof(path), "%.4000s/" HTH_METADATA, dir);
    snprintf(text, sizeof(text), "it names %zu items in %zu files, of which %zu are here",
            sum.items, sum.files, sum.here);
    if (rc == HEARTH_ENOENT)
        verify_report(r, dir, "other", 0, "no .metadata is here: another node may have it");
    else
        verify_report(r, path,
                !rc                     ? "foreign"
                : rc == HEARTH_ECORRUPT ? "wrong"
                                        : "unread",
                0, rc ? err.text : text);
    if (save && !r->names.names)
        r->names = job_names_list(r->place.job, dir);
    if (save && named_marker(&r->names, r->place.job, save->name, text))
        verify_report(r, dir, "wrong", 0, text);
}

/* The manifest of the container r->container. A save that is freed loses its manifest first. */
static int verify_manifest(
        struct run *r, const char *dir, const struct save_row *save, struct hth_manifest *out)
{
    struct hearth_error err = { 0 };
    int rc = manifest_of(r->place.job, save->id, out, &err);

    if (rc == HEARTH_ENOENT && save->published) {
        (void)entry_goes(r->place.job, r->container, r->container_inode, &r->patience_ms);
        verify_report(r, dir, "wrong", 0, err.text);
    } else if (rc && rc != HEARTH_ENOENT) {
        verify_report_failed(r, dir, &err);
    }
    return rc;
}

/* Verifies the container r->place. */
static void verify_container(struct run *r, const char *dir, const struct save_row *save)
{
    char text[80], name[sizeof(HTH_RECORDS_DIR) + sizeof(save->name)];
    struct hth_manifest m = { 0 };
    int rc = HEARTH_ENOENT;

    if (save) {
        snprintf(
                name, sizeof(name), "%s%s", save->published ? "" : HTH_RECORDS_DIR "/", save->name);
        r->container = name;
        r->container_inode = save->inode;
    }
    if (save && save->own)
        rc = verify_manifest(r, dir, save, &m);
    r->manifest = rc ? NULL : &m;
    r->here = 0;
    r->theirs = !save || !save->own;
    verify_entries(r, dir);
    if (r->theirs)
        verify_by_metadata(r, dir, save);
    r->theirs = 0;
    if (r->manifest) {
        snprintf(text, sizeof(text), "manifest; %" PRIu32 " of its %" PRIu32 " objects are here",
                r->here, m.objects);
        verify_report(r, dir, "verified", hth_manifest_bytes(&m), text);
        hth_manifest_fini(&m);
    }
    r->manifest = NULL;
    r->container = NULL;
}

static uint64_t verify_sum(const struct save_row *rows)
{
    uint64_t bytes = 0;

    for (; rows; rows = rows->next)
        bytes += rows->bytes;
    return bytes;
}

static void verify_keep(struct run *r, int job, const char *job_dir)
{
    char path[4096 + 32];
    struct hearth_error err = { 0 };
    struct hth_keep keep;
    void *bytes;
    size_t len;

    snprintf(path, sizeof(path), "%.4000s/" HTH_RECORDS_DIR "/keep", job_dir);
    if (read_small(job, HTH_RECORDS_DIR "/keep", &bytes, &len, &err)) {
        if (err.code != HEARTH_ENOENT)
            verify_report_failed(r, path, &err);
        return;
    }
    if (hth_keep_decode(&keep, bytes, len, &err))
        verify_report_failed(r, path, &err);
    else
        verify_report(r, path, "verified", len, "keep record");
    free(bytes);
}

static void verify_save(struct run *r, int job, const struct save_row *s)
{
    char name[sizeof(HTH_RECORDS_DIR) + sizeof(s->name)];
    struct hearth_error err = { 0 };

    snprintf(name, sizeof(name), "%s%s", s->published ? "" : HTH_RECORDS_DIR "/", s->name);
    r->place.job = job;
    r->place.container = hth_open_below(job, name, O_PATH | O_DIRECTORY, 0);
    if (r->place.container < 0) {
        if (place_failed(s->dir, &err) == HEARTH_ENOENT && err.native != ENOENT)
            err.code = HEARTH_EIO; /* it is there, and no directory */
        verify_report_failed(r, s->dir, &err);
        return;
    }
    verify_container(r, s->dir, s);
    close(r->place.container);
}

static int verify_job(struct run *r, int job, const char *dir, struct hearth_error *err)
{
    struct save_row *rows = NULL;
    int rc = saves_list(job, dir, NULL, &rows, err);

    if (rc)
        return rc;
    r->meter.total += verify_sum(rows);
    verify_keep(r, job, dir);
    snprintf(r->place.job_path, sizeof(r->place.job_path), "%.4000s", dir);
    for (const struct save_row *s = rows; s; s = s->next)
        verify_save(r, job, s);
    job_names_free(&r->names);
    saves_free(rows);
    return HEARTH_OK;
}

/* All jobs of a root. Files beside them are not Hearth's. 1: there is a job. */
static int verify_root(struct run *r, int root, const char *path)
{
    char **names = names_in(root, path, NULL), dir[4096 + 260];
    int found = 0;

    for (size_t i = 0; names && names[i]; i++) {
        struct hearth_error err = { 0 };
        int job = hth_job_check(names[i], NULL)
                          ? -1
                          : hth_open_below(root, names[i], O_PATH | O_DIRECTORY, 0);

        snprintf(dir, sizeof(dir), "%.4000s/%.255s", path, names[i]);
        if (job >= 0 && !job_check(job, dir, &err)) {
            found = 1;
            if (verify_job(r, job, dir, &err))
                verify_report_failed(r, dir, &err);
        }
        if (job >= 0)
            close(job);
    }
    names_free(names);
    return found;
}

static int verify_nothing(const char *path, struct hearth_error *err)
{
    return hth_fail(err, HEARTH_ENOENT, 0,
            "there is nothing to verify in %.300s: give an object, a container, a job's directory "
            "or a root, as hearth ls shows them",
            path);
}

/* Verifies a container by itself, and takes its descriptor. The job's folder is the one in which
 * the container lies, or one further up. */
static int verify_one_container(struct run *r, int fd, const char *dir, struct hearth_error *err)
{
    struct save_row *rows = NULL, *s;
    struct stat st;
    int rc = place_around(&r->place, fd, dir) || fstat(fd, &st)
                     ? place_failed(dir, err)
                     : saves_list(r->place.job, r->place.job_path, NULL, &rows, err);

    if (!rc) {
        for (s = rows; s && s->inode != st.st_ino;)
            s = s->next;
        uint64_t before = r->good + r->bad + r->unread;

        r->meter.total += s ? s->bytes : 0;
        verify_container(r, dir, s);
        if (!s && r->good + r->bad + r->unread == before &&
                faccessat(fd, HTH_METADATA, F_OK, AT_SYMLINK_NOFOLLOW))
            rc = verify_nothing(dir, err);
        job_names_free(&r->names);
        saves_free(rows);
    }
    place_close(&r->place);
    return rc;
}

/* root: NULL, or below which the file is. */
static int verify_one_file(
        struct run *r, const char *root, const char *name, struct hearth_error *err)
{
    int fd = object_file(root, name, &r->place, err);
    char path[4096];
    struct stat st;

    if (fd < 0)
        return fd;
    if (!fstat(fd, &st))
        r->meter.total += (uint64_t)st.st_size;
    snprintf(path, sizeof(path), "%.3000s%s%.1000s", root ? root : "", root ? "/" : "", name);
    verify_opened(r, fd, path, 1);
    place_close(&r->place);
    return HEARTH_OK;
}

/* One object, container, job or root. */
static int verify_one(struct run *r, const char *root, const char *name, struct hearth_error *err)
{
    int fd = place_below(root, name, O_PATH | O_DIRECTORY, err), rc;
    char path[4096];

    if (fd < 0 && (errno == ENOTDIR || errno == ELOOP))
        return verify_one_file(r, root, name, err);
    snprintf(path, sizeof(path), "%.3000s%s%.1000s", root ? root : "", root ? "/" : "", name);
    if (fd < 0)
        return place_failed(path, err);
    rc = job_check(fd, path, err);
    if (rc == HEARTH_ENOENT && verify_root(r, fd, path))
        rc = HEARTH_OK;
    else if (rc == HEARTH_ENOENT)
        return verify_one_container(r, fd, path, err);
    else if (!rc)
        rc = verify_job(r, fd, path, err);
    close(fd);
    return rc;
}

/* A path under which there is nothing to verify is an error. */
static int verify_path(struct run *r, const char *path, struct hearth_error *err)
{
    uint64_t before = r->good + r->foreign + r->bad + r->unread;
    int here = path[0] == '/' || !r->args->root ? -1 : hth_open_named(path, O_PATH), rc;

    rc = verify_one(r, path[0] == '/' || here >= 0 ? NULL : r->args->root, path, err);
    if (here >= 0)
        close(here);
    if (!rc && r->good + r->foreign + r->bad + r->unread == before)
        rc = verify_nothing(path, err);
    return rc;
}

static enum status verify_print(const struct run *r)
{
    if (r->args->json)
        return print_json(json_pack("{s:b, s:I, s:I, s:I, s:I, s:O}", "verified",
                r->good && !r->bad && !r->foreign && !r->unread, "good", (json_int_t)r->good,
                "unverified", (json_int_t)r->foreign, "wrong", (json_int_t)r->bad, "unread",
                (json_int_t)r->unread, "rows", r->rows));
    grid_print(&r->grid, "lrll");
    say("\n%" PRIu64 " verified, %" PRIu64 " without checksums%s, %" PRIu64 " wrong, %" PRIu64
        " unread\n",
            r->good, r->foreign, r->foreign ? " (read, not verified)" : "", r->bad, r->unread);
    return STATUS_OK;
}

enum status run_verify(const struct args *a)
{
    struct run r = {
        .args = a, .rows = json_array(), .grid = { .columns = 4 }, .patience_ms = PATIENCE_MS
    };
    static const char *const titles[] = { "STATE", "SIZE", "PATH", "" };
    enum status status = STATUS_OK, printed = STATUS_OK;

    grid_titles(&r.grid, titles);
    for (int i = 0; i < a->count; i++) { /* a path that cannot be read does not end the loop */
        struct hearth_error err = { 0 };

        if (verify_path(&r, a->value[i], &err))
            status = complain(&err);
    }
    meter_end(&r.meter);
    if (r.good + r.foreign + r.bad + r.unread)
        printed = verify_print(&r);
    json_decref(r.rows);
    grid_free(&r.grid);
    if (r.bad || r.unread)
        return STATUS_WRONG;
    return status ? status : printed;
}
