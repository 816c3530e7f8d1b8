/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An object opened for reading:
 *
 *     here       the slot, mapped and leased until checkpoint and views are closed; its payload
 *                was verified by the engine before the ranks agreed
 *     elsewhere  the table, checked against the manifest's digest; its bytes are window.c's
 */
#include "source.h"

#include "client/slots/lease.h"
#include "client/slots/shared.h"
#include "core/base/auth.h"
#include "core/format/manifest.h"
#include "fetch.h"
#include "foreign.h"
#include "window.h"
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static int source_check_table(const struct hth_object *o, const void *bytes, struct hth_table *out,
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
    if (out->data_len != o->data_len || out->strong != o->strong)
        return hth_fail(err, HEARTH_ECORRUPT, 0,
                "object '%s' of rank %u: table and manifest differ about its %s", o->name, o->owner,
                out->data_len != o->data_len ? "length" : "integrity");
    return HEARTH_OK;
}

/* A copy of the table, since it is read again at each use. */
static int source_keep_table(struct hth_source *s, const void *bytes, struct hearth_error *err)
{
    const struct hth_object *o = s->object;
    void *copy = malloc(o->table_len);
    int rc;

    if (!copy)
        return hth_fail(err, HEARTH_ENOMEM, 0, "no memory for the table of object '%s'", o->name);
    memcpy(copy, bytes, o->table_len);
    if ((rc = source_check_table(o, copy, &s->table, err))) {
        free(copy);
        return rc;
    }
    s->table_copy = copy;
    return HEARTH_OK;
}

static int source_check(const struct hth_object *o, const struct hth_local_mapped *m, int fd,
        struct hearth_error *err)
{
    uint64_t table = HTH_ALIGN(HTH_BLOCK + o->data_len);
    struct stat st;

    if (m->data_len != o->data_len || m->table_off != table || m->table_len != o->table_len ||
            fstat(fd, &st) != 0 || (uint64_t)st.st_size < table + o->table_len)
        return hth_fail(err, HEARTH_ECORRUPT, 0,
                "object '%s' of rank %u: the copy on this node does not match the manifest",
                o->name, o->owner);
    return HEARTH_OK;
}

int hth_source_mapped(struct hearth_checkpoint *c, struct hth_source *s,
        const struct hth_local_mapped *m, int fd, struct hth_lease *lease, struct hearth_error *err)
{
    const struct hth_object *o = s->object;
    uint64_t table = HTH_ALIGN(HTH_BLOCK + o->data_len);
    struct hth_shared *shared;
    int rc = source_check(o, m, fd, err);

    if (rc) {
        close(fd);
        hth_lease_put(c->h, lease);
        return rc;
    }
    if ((rc = hth_shared_get(c->h, lease, fd, table + o->table_len, &shared, err)))
        return hth_while(err, rc, "object '%s'", o->name);
    if ((rc = source_keep_table(s, shared->map + table, err))) {
        hth_shared_put(shared);
        return rc;
    }
    s->shared = shared;
    s->tried = s->local = 1;
    return HEARTH_OK;
}

int hth_source_table(struct hth_source *s, int fd, struct hearth_error *err)
{
    const struct hth_object *o = s->object;
    void *bytes;
    int rc;

    if ((rc = hth_map_answer(fd, o->table_len, &bytes, err)))
        return hth_while(err, rc, "table of object '%s' of rank %u", o->name, o->owner);
    rc = source_keep_table(s, bytes, err);
    munmap(bytes, o->table_len);
    if (rc)
        return rc;
    s->tried = 1;
    return HEARTH_OK;
}

static int source_fetch_table(
        struct hearth_checkpoint *c, struct hth_source *s, struct hearth_error *err)
{
    const struct hth_object *o = s->object;
    struct hth_local_bytes a;
    int fd, rc;

    rc = hth_range(
            c->h, c->save, o->id, HTH_ALIGN(HTH_BLOCK + o->data_len), o->table_len, &a, &fd, err);
    if (rc)
        return hth_while(err, rc, "table of object '%s' of rank %u", o->name, o->owner);
    return hth_source_table(s, fd, err);
}

int hth_source_open(struct hearth_checkpoint *c, struct hth_source *s, struct hearth_error *err)
{
    const struct hth_object *o = s->object;
    struct hth_local_mapped m;
    struct hth_lease *lease;
    int fd, rc;

    if (s->tried)
        return HEARTH_OK;
    if (s->object->kind == HTH_OBJECT_FOREIGN) {
        rc = hth_source_open_foreign(c, s, err);
        s->tried = !rc;
        return rc;
    }
    rc = hth_lease_get(c->h, c->save, o->id, &m, &fd, &lease, err);
    if (!rc)
        rc = hth_source_mapped(c, s, &m, fd, lease, err);
    if (rc == HEARTH_ECORRUPT)
        hth_tell_bad(c->h, c->save, o->id, HTH_BAD_TABLE);
    if (rc == HEARTH_ENOENT || rc == HEARTH_ECORRUPT) /* not here, or not ours: another holder's */
        rc = source_fetch_table(c, s, err);
    if (rc == HEARTH_ECORRUPT) {
        hth_tell_bad(c->h, c->save, o->id, HTH_BAD_TABLE);
        rc = source_fetch_table(c, s, err);
    }
    return rc;
}

void hth_source_close(struct hearth_checkpoint *c, struct hth_source *s)
{
    hth_window_close(c, s);
    if (s->shared)
        hth_shared_put(s->shared);
    free(s->table_copy);
}

int hth_source_not_here(const struct hth_source *s, struct hearth_error *err)
{
    return hth_fail(err, HEARTH_ENOENT, 0,
            "object '%s' of rank %u is not on this node: read it with hearth_read_box() or "
            "hearth_read_bytes()",
            s->object->name, s->object->owner);
}
