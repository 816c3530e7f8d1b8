/* SPDX-License-Identifier: Apache-2.0 */
/* Reading item by item: find, view, box, bytes, common objects, descriptors. */
#include "client.h"

#include "core/base/auth.h"
#include "core/format/manifest.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

int hth_ckpt_enter(const struct hearth_checkpoint *c, struct hearth_error *err)
{
    if (!c)
        return hth_fail(err, HEARTH_EINVAL, 0,
                "the checkpoint is NULL: hearth_recover() or hearth_checkpoint_open() gives one");
    return hth_enter(c->h, err);
}

static int give_item(const struct hearth_checkpoint *c, const struct hth_entry *e, void *out,
        struct hearth_error *err)
{
    const struct hth_source *s = &c->source[e->source];
    const struct hth_item *i = &e->item;
    struct hearth_item item = { .key = i->key,
        .key_len = i->key_len,
        .object = s->object->name,
        .owner = s->object->owner,
        .kind = i->kind,
        .dtype = i->dtype,
        .ndim = i->ndim,
        .shape = i->shape,
        .global_shape = i->global_shape,
        .global_offset = i->global_offset,
        .offset = i->offset,
        .bytes = i->length - i->payload,
        .local = (uint32_t)s->local,
        .checkpoint = c->number,
        .handle = ((uint64_t)e->source + 1) << 32 | (uint64_t)(e - s->entry) };

    return hth_give(out, &item, sizeof(item), err);
}

/* The entry an item speaks of. */
static int take_item(const struct hearth_checkpoint *c, const struct hearth_item *item,
        const struct hth_entry **out, struct hearth_error *err)
{
    const struct hth_source *s = NULL;
    uint32_t index = 0;
    int whole = item && item->struct_size <= HTH_STRUCT_MAX &&
                item->struct_size >= offsetof(struct hearth_item, handle) + sizeof(item->handle);

    if (whole && item->checkpoint == c->number) {
        uint64_t source = item->handle >> 32;

        index = (uint32_t)item->handle;
        s = source && source <= c->sources ? &c->source[source - 1] : NULL;
    }
    if (!s || !s->entry || index >= s->table.items)
        return hth_fail(err, HEARTH_EINVAL, 0,
                "%s: take it from hearth_item_at(), hearth_item_find() or hearth_item_in() of the "
                "one that is read",
                whole && item->checkpoint && item->checkpoint != c->number
                        ? "the item is of another checkpoint"
                        : "the item is none of this checkpoint");
    *out = &s->entry[index];
    return HEARTH_OK;
}

int hearth_item_at(struct hearth_checkpoint *ckpt, int all, size_t index, struct hearth_item *out,
        struct hearth_error *err)
{
    int rc;

    if ((rc = hth_ckpt_enter(ckpt, err)) || (rc = hth_index(ckpt, all, err)))
        return rc;
    if (index >= (all ? ckpt->entries : ckpt->own_entries))
        return hth_fail(err, HEARTH_ENOENT, 0, "there is no item %zu", index);
    return give_item(ckpt, hth_entry_at(ckpt, index), out, err);
}

int hearth_item_find(struct hearth_checkpoint *ckpt, const void *key, size_t key_len,
        struct hearth_item *out, size_t cap, size_t *out_count, struct hearth_error *err)
{
    const struct hth_entry *e = NULL;
    size_t n = 0;
    int rc;

    if ((rc = hth_ckpt_enter(ckpt, err)) || (rc = hth_index(ckpt, 1, err)))
        return rc;
    if (!key || !out_count || (cap && !out))
        return hth_fail(err, HEARTH_EINVAL, 0, "the key, out or out_count is NULL");
    while ((e = hth_entry_find(ckpt, key, key_len, e))) {
        char *at = n < cap ? (char *)out + n * out->struct_size : NULL;

        if (at && n) /* the size of the first is the size of all */
            memcpy(at, &out->struct_size, sizeof(out->struct_size));
        if (at && (rc = give_item(ckpt, e, at, err)))
            return rc;
        n++;
    }
    *out_count = n;
    return HEARTH_OK;
}

int hearth_item_in(struct hearth_checkpoint *ckpt, const char *object, uint64_t offset,
        struct hearth_item *out, struct hearth_error *err)
{
    const struct hth_entry *e;
    int rc;

    if ((rc = hth_ckpt_enter(ckpt, err)))
        return rc;
    if (!object || !out)
        return hth_fail(err, HEARTH_EINVAL, 0, "the object's name or the item is NULL");
    if ((rc = hth_entry_in(ckpt, object, offset, &e, err)))
        return rc;
    return give_item(ckpt, e, out, err);
}

static int not_here(const struct hth_source *s, struct hearth_error *err)
{
    return hth_fail(err, HEARTH_ENOENT, 0,
            "object '%s' of rank %u is not on this node: read it with hearth_read_box() or "
            "hearth_read_bytes()",
            s->object->name, s->object->owner);
}

/* Map the pages around the payload privately. */
static int map_view(
        struct hearth_view *v, int fd, uint64_t at, uint64_t bytes, struct hearth_error *err)
{
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), from = at / page * page;
    struct stat st;
    void *p;

    if (fstat(fd, &st) != 0 || (uint64_t)st.st_size < at + bytes)
        return hth_fail(err, HEARTH_ECORRUPT, 0, "the object is shorter than its table says");
    v->map_bytes = at - from + (bytes ? bytes : 1);
    p = mmap(NULL, v->map_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, (off_t)from);
    if (p == MAP_FAILED)
        return hth_fail(err, HEARTH_ENOMEM, errno, "map a view: %s", strerror(errno));
    madvise(p, v->map_bytes, MADV_DONTDUMP);
    v->map = p;
    v->data = (char *)p + (at - from);
    v->bytes = bytes;
    return HEARTH_OK;
}

/* Without the last field of the first version a view cannot be closed. */
#define VIEW_LEAST (offsetof(struct hearth_view, lease) + sizeof(uint64_t))

int hearth_view_open(struct hearth_checkpoint *ckpt, const struct hearth_item *item,
        struct hearth_view *out, struct hearth_error *err)
{
    struct hearth_view v = { .struct_size = sizeof(v) };
    struct hth_local_mapped m;
    const struct hth_entry *e;
    const struct hth_source *s;
    int fd, rc;

    if ((rc = hth_ckpt_enter(ckpt, err)) || (rc = take_item(ckpt, item, &e, err)))
        return rc;
    if (!out || out->struct_size < VIEW_LEAST || out->struct_size > HTH_STRUCT_MAX)
        return hth_fail(err, HEARTH_EINVAL, 0,
                "the view is NULL or its struct_size is not sizeof(struct hearth_view)");
    s = &ckpt->source[e->source];
    if (!s->local)
        return not_here(s, err);
    /* A lease of its own: views outlive the checkpoint. */
    if ((rc = hth_lease_get(ckpt->h, ckpt->save, s->object->id, &m, &fd, &v.lease, err)))
        return hth_while(err, rc, "view object '%s'", s->object->name);
    rc = map_view(&v, fd, s->data_at + e->item.offset + e->item.payload,
            e->item.length - e->item.payload, err);
    close(fd);
    if (rc)
        hth_lease_put(ckpt->h, v.lease);
    return rc ? rc : hth_give(out, &v, sizeof(v), err);
}

void hearth_view_close(struct hearth *h, struct hearth_view *view)
{
    struct hearth_view none = HEARTH_VIEW_INIT;

    if (!view || view->struct_size < VIEW_LEAST || !view->map)
        return;
    munmap(view->map, view->map_bytes);
    if (h && !hth_enter(h, NULL))
        hth_lease_put(h, view->lease);
    hth_give(view, &none, sizeof(none), NULL);
}

int hth_box_check(const struct hth_item *item, const int64_t *offset, const int64_t *shape,
        struct hth_box *out, struct hearth_error *err)
{
    char key[HTH_KEY_TEXT];

    if (item->kind != HTH_ITEM_TENSOR)
        return hth_fail(err, HEARTH_EINVAL, 0,
                "item %s is a byte string and has no boxes: use hearth_read_bytes()",
                hth_key_text(item->key, item->key_len, key));
    for (uint32_t i = 0; i < item->ndim; i++) {
        int64_t end;

        if (offset[i] < 0 || shape[i] < 0 || __builtin_add_overflow(offset[i], shape[i], &end) ||
                end > item->shape[i])
            return hth_fail(err, HEARTH_EINVAL, 0,
                    "the box reaches out of piece %s in dimension %u, which has %" PRId64
                    " elements",
                    hth_key_text(item->key, item->key_len, key), i, item->shape[i]);
        out->offset[i] = offset[i];
        out->shape[i] = shape[i];
    }
    return HEARTH_OK;
}

int hearth_read_box(struct hearth_checkpoint *ckpt, const struct hearth_item *item,
        const int64_t *offset, const int64_t *shape, void *dst, const int64_t *dst_strides,
        struct hearth_error *err)
{
    const struct hth_entry *e;
    struct hth_box box;
    int rc;

    if ((rc = hth_ckpt_enter(ckpt, err)) || (rc = take_item(ckpt, item, &e, err)))
        return rc;
    if (!dst || (e->item.ndim && (!offset || !shape)))
        return hth_fail(err, HEARTH_EINVAL, 0, "offset, shape or dst is NULL");
    if ((rc = hth_box_check(&e->item, offset, shape, &box, err)))
        return rc;
    return hth_read_part(ckpt, e, &box, dst, dst_strides, NULL, err);
}

int hearth_read_bytes(struct hearth_checkpoint *ckpt, const struct hearth_item *item,
        uint64_t offset, void *dst, uint64_t len, struct hearth_error *err)
{
    const struct hth_entry *e;
    uint64_t have, at;
    int rc;

    if ((rc = hth_ckpt_enter(ckpt, err)) || (rc = take_item(ckpt, item, &e, err)))
        return rc;
    have = e->item.length - e->item.payload;
    if (offset > have || len > have - offset || (len && !dst))
        return hth_fail(err, HEARTH_EINVAL, 0,
                "bytes %" PRIu64 " to %" PRIu64 " are not in an item of %" PRIu64
                ", or dst is NULL",
                offset, hth_add_up(offset, len), have);
    at = e->item.offset + e->item.payload + offset;
    return hth_read_data(ckpt, &ckpt->source[e->source], at, dst, len, err);
}

static const struct hth_object *object_named(const struct hearth_checkpoint *c, const char *name)
{
    for (uint32_t i = 0; i < c->manifest->objects; i++)
        if (!strcmp(c->manifest->object[i].name, name))
            return &c->manifest->object[i];
    return NULL;
}

static int fetch_common(struct hearth_checkpoint *c, const char *name, int *out_fd, uint64_t *len,
        struct hearth_error *err)
{
    struct hth_local_common m = { .save = hth_local_save_of(c->save) };
    struct hth_local_bytes a;
    struct hth_ask ask = { .msg = &m,
        .len = sizeof(m),
        .type = HTH_LOCAL_COMMON_GET,
        .want = HTH_LOCAL_BYTES,
        .fd = -1,
        .again = 1,
        .answer = &a,
        .answer_len = sizeof(a),
        .out_fd = out_fd,
        .wait_ms = HTH_REQUEST_MS,
        .what = "get a common object" };
    int rc;

    memcpy(m.name, name, strlen(name) + 1);
    if (!(rc = hth_ask(c->h, &ask, err)))
        *len = a.len;
    return rc;
}

int hearth_read_common(struct hearth_checkpoint *ckpt, const char *name, void **out,
        size_t *out_len, struct hearth_error *err)
{
    const struct hth_object *o;
    unsigned char digest[HTH_DIGEST];
    void *bytes, *copy;
    uint64_t len = 0;
    int fd = -1, rc;

    if ((rc = hth_ckpt_enter(ckpt, err)))
        return rc;
    if (!name || !out || !out_len)
        return hth_fail(err, HEARTH_EINVAL, 0, "name, out or out_len is NULL");
    if ((rc = hth_foreign_name_check(name, err)) ||
            (rc = fetch_common(ckpt, name, &fd, &len, err)) ||
            (rc = hth_map_answer(fd, len, &bytes, err)))
        return hth_while(err, rc, "common object '%.255s'", name);
    o = object_named(ckpt, name);
    hth_digest(digest, bytes, len);
    copy = malloc(len ? len : 1);
    if (o && (o->data_len != len || memcmp(digest, o->digest, sizeof(digest)) != 0))
        rc = hth_fail(
                err, HEARTH_ECORRUPT, 0, "common object '%s' is not the one of the manifest", name);
    else if (!copy)
        rc = hth_fail(err, HEARTH_ENOMEM, 0, "no memory for common object '%s'", name);
    else if (len)
        memcpy(copy, bytes, len);
    if (len)
        munmap(bytes, len);
    if (rc) {
        free(copy);
        return rc;
    }
    *out = copy;
    *out_len = len;
    return HEARTH_OK;
}

int hearth_object_fd(struct hearth_checkpoint *ckpt, const char *object, int *out_fd,
        uint64_t *out_offset, uint64_t *out_bytes, struct hearth_error *err)
{
    struct hth_source *s;
    char path[64];
    int rc, fd;

    if ((rc = hth_ckpt_enter(ckpt, err)))
        return rc;
    if (!object || !out_fd || !out_offset || !out_bytes)
        return hth_fail(err, HEARTH_EINVAL, 0, "object or a place for the result is NULL");
    if ((rc = hth_source_named(ckpt, object, &s, err)))
        return rc;
    if (!s->local)
        return not_here(s, err);
    /* The engine's descriptor may be writable: the caller's is not. */
    snprintf(path, sizeof(path), "/proc/self/fd/%d", s->fd);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return hth_fail(
                err, HEARTH_EIO, errno, "descriptor of object '%s': %s", object, strerror(errno));
    *out_fd = fd;
    *out_offset = s->data_at;
    *out_bytes = s->data_len;
    return HEARTH_OK;
}

int hearth_prefetch(struct hearth_checkpoint *ckpt, const struct hearth_item *items, size_t count,
        struct hearth_error *err)
{
    const struct hth_entry *e;
    int rc;

    if ((rc = hth_ckpt_enter(ckpt, err)))
        return rc;
    if (count && !items)
        return hth_fail(err, HEARTH_EINVAL, 0, "the array of %zu items is NULL", count);
    for (size_t i = 0; i < count; i++) {
        const void *at = (const char *)items + i * items->struct_size;

        if ((rc = take_item(ckpt, at, &e, err)))
            return rc;
        hth_source_ahead(ckpt, &ckpt->source[e->source], e->item.offset + e->item.payload,
                e->item.length - e->item.payload);
    }
    return HEARTH_OK;
}
