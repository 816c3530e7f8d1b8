/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Objects of another program's container. They have no table and no checksums of parts, so the
 * engine fetches an object that is not here as a whole; then its items are walked once and recorded
 * as a table of ours would have them. An item does not carry its key. The key is
 * `<object>@<offset>`, with the offset that `.metadata` has.
 *
 *     MLF_TENS           tensors, then what is left as one byte string
 *     TORCH___, no block one byte string
 *
 * A file of another program that lies here is mapped as it is. That program may write it again, so
 * after a read the rank asks the engine whether the file has changed.
 */
#include "foreign.h"

#include "client/slots/lease.h"
#include "client/slots/shared.h"
#include "core/foreign/foreign.h"
#include "core/foreign/items.h"
#include "fetch.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Requests one byte; the engine answers when all of the object is here. */
static int foreign_bring(
        struct hearth_checkpoint *c, const struct hth_object *o, struct hearth_error *err)
{
    struct hth_local_map m = {
        .save = hth_local_save_of(c->save), .object = o->id, .off = 0, .len = 1
    };
    struct hth_local_bytes a;
    int fd = -1, rc;
    struct hth_ask ask = hth_bytes_ask(HTH_LOCAL_RANGE, &m, &a, &fd);

    ask.wait_ms += (o->data_len >> 20) * 100;
    ask.what = "bring an object from another node";
    rc = hth_ask(c->h, &ask, err);
    if (fd >= 0)
        close(fd);
    return rc;
}

static int foreign_lease(struct hearth_checkpoint *c, const struct hth_source *s,
        struct hth_local_mapped *m, int *out_fd, struct hth_lease **out, struct hearth_error *err)
{
    int rc = hth_lease_get(c->h, c->save, s->object->id, m, out_fd, out, err);

    if (rc == HEARTH_ENOENT && !(rc = foreign_bring(c, s->object, err)))
        rc = hth_lease_get(c->h, c->save, s->object->id, m, out_fd, out, err);
    return rc;
}

static int foreign_map(struct hearth_checkpoint *c, struct hth_source *s,
        struct hth_local_mapped *m, struct hearth_error *err)
{
    const struct hth_object *o = s->object;
    struct hth_lease *lease;
    struct stat st;
    int fd = -1, rc = foreign_lease(c, s, m, &fd, &lease, err);

    if (rc)
        return rc;
    if (m->data_len == o->data_len && !fstat(fd, &st) && (uint64_t)st.st_size >= o->data_len)
        return hth_shared_get(c->h, lease, fd, o->data_len, &s->shared, err);
    close(fd);
    hth_lease_put(c->h, lease);
    return hth_fail(err, HEARTH_ECORRUPT, 0,
            "foreign object '%s' is not on this node as it was when it was recovered", o->name);
}

/* One more record behind the others; *at moves with the memory. */
static int foreign_note(
        unsigned char **at, uint64_t *len, const char *object, const struct hth_found *f)
{
    static const int64_t zeros[HTH_DIMS_MAX];
    char key[HTH_NAME_MAX + 24];
    struct hth_item item = {
        .offset = f->offset, .length = f->length, .payload = f->payload, .kind = f->kind, .key = key
    };
    unsigned char *more;
    uint64_t bytes;

    item.key_len = (uint32_t)snprintf(key, sizeof(key), "%s@%" PRIu64, object, f->offset);
    if (f->kind == HTH_ITEM_TENSOR) {
        item.dtype = f->header.dtype;
        item.ndim = f->header.ndim;
        item.shape = item.global_shape = f->header.shape;
        item.global_offset = zeros;
    }
    bytes = hth_item_bytes(item.ndim, item.key_len);
    more = realloc(*at, *len + bytes);
    if (!more)
        return HEARTH_ENOMEM;
    *at = more;
    hth_item_encode(&item, more + *len);
    *len += bytes;
    return HEARTH_OK;
}

static int foreign_list_items(struct hth_source *s, struct hearth_error *err)
{
    struct hth_foreign_data d;
    struct hth_items it;
    struct hth_found f;
    unsigned char *items = NULL;
    uint64_t len = 0;
    uint32_t count = 0;
    const unsigned char *map = s->shared->map;
    int rc = hth_foreign_data(&d, map, s->shared->bytes, err);

    if (rc)
        return rc;
    hth_items_init(&it, d.signature, map + d.at, d.len);
    while (!(rc = hth_items_next(&it, &f, err)) &&
            !(rc = foreign_note(&items, &len, s->object->name, &f)))
        count++;
    if (rc != HEARTH_ENOENT) {
        free(items);
        return rc == HEARTH_ENOMEM ? hth_fail(err, rc, 0, "no memory for a list of items") : rc;
    }
    s->data_at = d.at;
    s->data_len = d.len;
    s->table_copy = items;
    s->table = (struct hth_table){
        .data_len = d.len, .items = count, .items_at = items, .items_len = len
    };
    return HEARTH_OK;
}

int hth_source_same(struct hearth_checkpoint *c, struct hth_source *s, struct hearth_error *err)
{
    struct hth_local_mapped m;
    struct hth_lease *lease;
    int fd = -1, rc;

    s->unsure = 0;
    if (!s->theirs)
        return HEARTH_OK;
    rc = hth_lease_get(c->h, c->save, s->object->id, &m, &fd, &lease, err);
    if (rc == HEARTH_ENOENT) /* another engine has looked at it since */
        rc = hth_fail(
                err, HEARTH_ELOST, 0, "the file has changed since it was recovered: recover again");
    if (rc)
        return hth_while(err, rc, "object '%s'", s->object->name);
    close(fd);
    hth_lease_put(c->h, lease);
    return HEARTH_OK;
}

int hth_sources_same(struct hearth_checkpoint *c, struct hearth_error *err)
{
    int rc = HEARTH_OK;

    for (uint32_t i = 0; c->unsure && !rc && i < c->sources; i++)
        if (c->source[i].unsure)
            rc = hth_source_same(c, &c->source[i], err);
    c->unsure = 0;
    return rc;
}

int hth_source_open_foreign(
        struct hearth_checkpoint *c, struct hth_source *s, struct hearth_error *err)
{
    struct hth_local_mapped m;
    int rc;

    if ((rc = foreign_map(c, s, &m, err)))
        return hth_while(err, rc, "object '%s'", s->object->name);
    s->theirs = m.generation == 0;
    if (!(rc = foreign_list_items(s, err)) && !(rc = hth_source_same(c, s, err))) {
        s->local = 1;
        return HEARTH_OK;
    }
    hth_shared_put(s->shared);
    s->shared = NULL;
    free(s->table_copy);
    s->table_copy = NULL;
    return hth_while(err, rc, "object '%s'", s->object->name);
}
