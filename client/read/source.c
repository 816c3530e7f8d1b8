/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where an object's bytes are read from:
 *
 *     here       the slot, mapped and leased until the checkpoint is closed; its payload was
 *                verified by the engine before the ranks agreed
 *     elsewhere  the table, checked against the manifest's digest; then whole chunks, checked
 *                against the table. The last ones fetched are kept, so that a box read row by row
 *                moves each chunk once
 */
#include "source.h"

#include "client/slots/lease.h"
#include "core/base/auth.h"
#include "core/base/crc.h"
#include "core/base/map.h"
#include "core/format/manifest.h"
#include "foreign.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define AHEAD_MAX     (UINT64_C(64) << 20)
#define AHEAD_OBJECTS 32u                   /* of a checkpoint, each with a descriptor */
#define AHEAD_ALL     (UINT64_C(512) << 20) /* bytes of them together: nobody else counts them */
#define READ_MAX      (UINT64_C(32) << 20)  /* of a remote object at once */

int hth_map_answer(int fd, uint64_t len, void **out, struct hearth_error *err)
{
    struct stat st;
    void *p = NULL;
    int ok, why;

    if (fd < 0)
        return hth_fail(err, HEARTH_EPROTO, 0, HTH_NO_DESCRIPTOR);
    ok = fstat(fd, &st) == 0 && (uint64_t)st.st_size >= len;
    if (ok && len)
        p = mmap(NULL, len, PROT_READ, MAP_PRIVATE, fd, 0);
    why = errno;
    close(fd);
    if (!ok)
        return hth_fail(err, HEARTH_EPROTO, 0,
                "the engine sent less than the %" PRIu64 " bytes it spoke of", len);
    if (p == MAP_FAILED)
        return hth_fail(err, HEARTH_ENOMEM, why, "map %" PRIu64 " bytes: %s", len, strerror(why));
    *out = p;
    return HEARTH_OK;
}

static int check_table(const struct hth_object *o, const void *bytes, struct hth_table *out,
        struct hearth_error *err)
{
    unsigned char digest[HTH_DIGEST];
    int rc;

    hth_digest(digest, bytes, o->table_len);
    if (memcmp(digest, o->digest, sizeof(digest)) != 0)
        return hth_fail(err, HEARTH_ECORRUPT, 0,
                "object '%s' of rank %u: its table is not the one of the manifest", o->name,
                o->owner);
    if ((rc = hth_table_decode(out, bytes, o->table_len, err)))
        return hth_while(err, rc, "object '%s' of rank %u", o->name, o->owner);
    if (out->data_len != o->data_len)
        return hth_fail(err, HEARTH_ECORRUPT, 0,
                "object '%s' of rank %u: table and manifest differ about its length", o->name,
                o->owner);
    return HEARTH_OK;
}

static int map_local(
        struct hth_source *s, const struct hth_local_mapped *m, int fd, struct hearth_error *err)
{
    const struct hth_object *o = s->object;
    uint64_t table = HTH_ALIGN(HTH_BLOCK + o->data_len);
    struct stat st;
    void *p;
    int rc;

    if (m->data_len != o->data_len || m->table_off != table || m->table_len != o->table_len ||
            fstat(fd, &st) != 0 || (uint64_t)st.st_size < table + o->table_len)
        return hth_fail(err, HEARTH_ECORRUPT, 0,
                "object '%s' of rank %u: what this node holds is not what the manifest says",
                o->name, o->owner);
    p = hth_map_shared(fd, table + o->table_len, PROT_READ);
    if (!p)
        return hth_fail(err, HEARTH_ENOMEM, errno, "map object '%s': %s", o->name, strerror(errno));
    if ((rc = check_table(o, (unsigned char *)p + table, &s->table, err))) {
        munmap(p, table + o->table_len);
        return rc;
    }
    s->map = p;
    s->map_len = table + o->table_len;
    s->fd = fd;
    s->local = 1;
    return HEARTH_OK;
}

static struct hth_ask range_ask(struct hth_local_map *m, struct hth_local_bytes *a, int *out_fd)
{
    struct hth_ask ask = hth_ask_bytes(HTH_LOCAL_RANGE, m, a, out_fd);

    ask.wait_ms += (m->len >> 20) * 100;
    ask.what = "fetch from another node";
    return ask;
}

int hth_range(struct hearth *h, struct hth_save_id save, uint64_t object, uint64_t off,
        uint64_t len, int *out_fd, struct hearth_error *err)
{
    struct hth_local_map m = {
        .save = hth_local_save_of(save), .object = object, .off = off, .len = len
    };
    struct hth_local_bytes a;
    struct hth_ask ask = range_ask(&m, &a, out_fd);
    int rc;

    *out_fd = -1;
    if ((rc = hth_ask(h, &ask, err)))
        return rc;
    if (a.len == len)
        return HEARTH_OK;
    if (*out_fd >= 0)
        close(*out_fd);
    return hth_fail(err, HEARTH_EPROTO, 0,
            "the engine brought %" PRIu64 " bytes where %" PRIu64 " were asked for", a.len, len);
}

int hth_source_mapped(struct hearth_checkpoint *c, struct hth_source *s,
        const struct hth_local_mapped *m, int fd, uint64_t lease, struct hearth_error *err)
{
    int rc = map_local(s, m, fd, err);

    s->tried = !rc;
    if (!rc) {
        s->lease = lease;
        return HEARTH_OK;
    }
    close(fd);
    hth_lease_put(c->h, lease);
    return rc;
}

int hth_source_table(struct hth_source *s, int fd, struct hearth_error *err)
{
    const struct hth_object *o = s->object;
    void *bytes, *copy;
    int rc;

    if ((rc = hth_map_answer(fd, o->table_len, &bytes, err)))
        return hth_while(err, rc, "table of object '%s' of rank %u", o->name, o->owner);
    copy = malloc(o->table_len);
    if (copy)
        memcpy(copy, bytes, o->table_len);
    munmap(bytes, o->table_len);
    if (!copy)
        return hth_fail(err, HEARTH_ENOMEM, 0, "no memory for the table of object '%s'", o->name);
    if ((rc = check_table(o, copy, &s->table, err))) {
        free(copy);
        return rc;
    }
    s->table_copy = copy;
    s->tried = 1;
    return HEARTH_OK;
}

static int fetch_table(struct hearth_checkpoint *c, struct hth_source *s, struct hearth_error *err)
{
    const struct hth_object *o = s->object;
    int fd, rc;

    rc = hth_range(
            c->h, c->save, o->id, HTH_ALIGN(HTH_BLOCK + o->data_len), o->table_len, &fd, err);
    if (rc)
        return hth_while(err, rc, "table of object '%s' of rank %u", o->name, o->owner);
    return hth_source_table(s, fd, err);
}

int hth_source_open(struct hearth_checkpoint *c, struct hth_source *s, struct hearth_error *err)
{
    struct hth_local_mapped m;
    uint64_t lease;
    int fd, rc;

    if (s->tried)
        return HEARTH_OK;
    if (s->object->kind == HTH_OBJECT_FOREIGN) {
        rc = hth_source_open_foreign(c, s, err);
        s->tried = !rc;
        return rc;
    }
    rc = hth_lease_get(c->h, c->save, s->object->id, &m, &fd, &lease, err);
    if (!rc)
        rc = hth_source_mapped(c, s, &m, fd, lease, err);
    if (rc == HEARTH_ENOENT || rc == HEARTH_ECORRUPT) /* not here, or not ours: another holder's */
        rc = fetch_table(c, s, err);
    return rc;
}

static void drop_window(struct hth_source *s)
{
    if (s->window.map)
        munmap(s->window.map, s->window.map_len);
    s->window = (struct hth_window){ 0 };
}

int hth_ahead_room(const struct hearth_checkpoint *c)
{
    return c->aheads < AHEAD_OBJECTS && c->ahead_bytes < AHEAD_ALL;
}

/* What was asked for ahead is there, or not wanted. */
static void end_ahead(struct hearth_checkpoint *c, struct hth_source *s)
{
    hth_forget(c->h, &s->ahead);
    s->ahead = (struct hth_call){ .fd = -1 };
    c->aheads--;
    c->ahead_bytes -= s->ahead_len;
}

void hth_source_close(struct hearth_checkpoint *c, struct hth_source *s)
{
    if (s->ahead.request)
        end_ahead(c, s);
    drop_window(s);
    if (s->map)
        munmap(s->map, s->map_len);
    if (s->fd >= 0)
        close(s->fd);
    if (s->lease)
        hth_lease_put(c->h, s->lease);
    free(s->table_copy);
}

static int in_window(const struct hth_source *s, uint64_t off, uint64_t len)
{
    const struct hth_window *w = &s->window;

    return w->map && off >= w->off && off + len <= w->off + w->len;
}

/* Whole chunks around [off, off + len). */
static void widen(const struct hth_source *s, uint64_t *off, uint64_t *len)
{
    uint64_t end = *off + *len;

    end = HTH_CHUNKS(end) * HTH_CHUNK;
    end = end < s->table.data_len ? end : s->table.data_len;
    *off = *off / HTH_CHUNK * HTH_CHUNK;
    *len = end - *off;
}

static int check_chunks(const struct hth_source *s, const unsigned char *bytes, uint64_t off,
        uint64_t len, struct hearth_error *err)
{
    for (uint64_t at = 0; at < len; at += HTH_CHUNK) {
        uint64_t n = len - at < HTH_CHUNK ? len - at : HTH_CHUNK;
        uint64_t chunk = (off + at) / HTH_CHUNK;

        if (hth_crc32c(bytes + at, n) != s->table.crc[chunk])
            return hth_fail(err, HEARTH_ECORRUPT, 0,
                    "object '%s' of rank %u: chunk %" PRIu64 " is wrong as it came from another "
                    "node",
                    s->object->name, s->object->owner, chunk);
    }
    return HEARTH_OK;
}

static int take_window(
        struct hth_source *s, int fd, uint64_t off, uint64_t len, struct hearth_error *err)
{
    void *bytes = NULL;
    int rc;

    drop_window(s);
    if ((rc = hth_map_answer(fd, len, &bytes, err)))
        return rc;
    s->window = (struct hth_window){ .map = bytes, .map_len = len, .off = off, .len = len };
    if ((rc = check_chunks(s, bytes, off, len, err)))
        drop_window(s);
    return rc;
}

static int fetch_window(struct hearth_checkpoint *c, struct hth_source *s, uint64_t off,
        uint64_t len, struct hearth_error *err)
{
    int fd, rc = HEARTH_ECORRUPT;

    for (int tries = 0; tries < 2 && rc == HEARTH_ECORRUPT; tries++) {
        rc = hth_range(c->h, c->save, s->object->id, HTH_BLOCK + off, len, &fd, err);
        if (!rc)
            rc = take_window(s, fd, off, len, err);
    }
    return rc;
}

/* What was asked for ahead, if it is of use. */
static int take_ahead(struct hearth_checkpoint *c, struct hth_source *s, uint64_t off, uint64_t len)
{
    int fd = -1;

    if (!s->ahead.request)
        return HEARTH_ENOENT;
    if (off >= s->ahead_off && off + len <= s->ahead_off + s->ahead_len &&
            !hth_collect(c->h, &s->ahead, HTH_REQUEST_MS, "prefetch", NULL) &&
            s->ahead_answer.len == s->ahead_len) {
        fd = s->ahead.fd;
        s->ahead.fd = -1;
    }
    end_ahead(c, s);
    return fd < 0 ? HEARTH_ENOENT : take_window(s, fd, s->ahead_off, s->ahead_len, NULL);
}

int hth_source_at(struct hearth_checkpoint *c, struct hth_source *s, uint64_t off, uint64_t len,
        const unsigned char **out, struct hearth_error *err)
{
    uint64_t wide_off = off, wide_len = len;
    int rc;

    if (s->local) {
        *out = s->map + s->data_at + off;
        return HEARTH_OK;
    }
    if (!in_window(s, off, len)) {
        widen(s, &wide_off, &wide_len);
        rc = take_ahead(c, s, off, len);
        if (rc && (rc = fetch_window(c, s, wide_off, wide_len, err)))
            return hth_while(
                    err, rc, "read object '%s' of rank %u", s->object->name, s->object->owner);
    }
    *out = (const unsigned char *)s->window.map + (off - s->window.off);
    return HEARTH_OK;
}

int hth_read_data(struct hearth_checkpoint *c, struct hth_source *s, uint64_t off, void *dst,
        uint64_t len, struct hearth_error *err)
{
    const unsigned char *src;
    int rc;

    for (uint64_t done = 0, n; done < len; done += n) {
        n = len - done < READ_MAX ? len - done : READ_MAX;
        if ((rc = hth_source_at(c, s, off + done, n, &src, err)))
            return rc;
        memcpy((char *)dst + done, src, n);
    }
    return HEARTH_OK;
}

void hth_source_ahead(struct hearth_checkpoint *c, struct hth_source *s, uint64_t off, uint64_t len)
{
    struct hth_local_map m = { .save = hth_local_save_of(c->save), .object = s->object->id };
    struct hth_ask ask;

    if (s->local || !len || s->ahead.request || !hth_ahead_room(c))
        return;
    len = len < AHEAD_MAX ? len : AHEAD_MAX;
    if (in_window(s, off, len))
        return;
    widen(s, &off, &len);
    m.off = HTH_BLOCK + off;
    m.len = len;
    s->ahead_off = off;
    s->ahead_len = len;
    ask = range_ask(&m, &s->ahead_answer, NULL);
    if (hth_post(c->h, &ask, &s->ahead, NULL)) {
        s->ahead = (struct hth_call){ .fd = -1 };
        return;
    }
    c->aheads++;
    c->ahead_bytes += len;
}
