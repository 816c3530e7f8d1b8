/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The objects of a save, to and from bytes; layout: core/format/manifest.h. Objects are in
 * order of id, so a manifest has one form, and its digest names the save's content.
 */
#include "manifest.h"
#include "core/base/auth.h"
#include "record.h"
#include "table.h"

#include <stdlib.h>

#define MAGIC       "HTHMANIF"
#define WITH_STRONG 3u /* the version that may say so */
#define LISTED      1u
#define STRONG      2u
#define DATA_MAX    ((uint64_t)UINT32_MAX * HTH_CHUNK)

size_t hth_manifest_bytes(const struct hth_manifest *m)
{
    return HTH_MANIFEST_HEAD + (size_t)m->objects * HTH_MANIFEST_OBJECT + HTH_DIGEST;
}

static int object_by_id(const void *a, const void *b)
{
    const struct hth_object *x = a, *y = b;

    return x->id < y->id ? -1 : x->id > y->id;
}

static int object_by_name(const void *a, const void *b)
{
    const struct hth_object *const *x = a, *const *y = b;

    return strcmp((*x)->name, (*y)->name);
}

/* No two objects with one name. `object` is in order of id. */
static int objects_unique(const struct hth_object *object, uint32_t n, struct hearth_error *err)
{
    const struct hth_object **sorted = malloc(((size_t)n + 1) * sizeof(void *));
    int rc = HEARTH_OK;

    if (!sorted)
        return hth_fail(err, HEARTH_ENOMEM, 0, "no memory to sort %" PRIu32 " names", n);
    for (uint32_t i = 0; i < n; i++)
        sorted[i] = &object[i];
    qsort(sorted, n, sizeof(void *), object_by_name);
    for (uint32_t i = 1; i < n && !rc; i++)
        if (strcmp(sorted[i - 1]->name, sorted[i]->name) == 0)
            rc = hth_fail(err, HEARTH_EEXIST, 0,
                    "rank %" PRIu32 " and rank %" PRIu32
                    " both saved an object '%s': names are unique in a save",
                    sorted[i - 1]->owner, sorted[i]->owner, sorted[i]->name);
    free(sorted);
    return rc;
}

static int in_order(const struct hth_object *object, uint32_t n, struct hearth_error *err)
{
    for (uint32_t i = 1; i < n; i++)
        if (object[i - 1].id >= object[i].id)
            return hth_fail(err, HEARTH_EEXIST, 0,
                    "rank %" PRIu32 " and rank %" PRIu32 " both saved an object %016" PRIx64,
                    object[i - 1].owner, object[i].owner, object[i].id);
    return HEARTH_OK;
}

/* Each shard is as strong as its save is. */
static int objects_strong(const struct hth_manifest *m, struct hearth_error *err)
{
    for (uint32_t i = 0; i < m->objects; i++)
        if (m->object[i].kind == HTH_OBJECT_SHARD && m->object[i].strong != m->strong)
            return hth_fail(err, HEARTH_EINVAL, 0,
                    "rank %" PRIu32 "'s object '%s' has %s SHA-256 of its chunks, and the save's "
                    "integrity is %s",
                    m->object[i].owner, m->object[i].name, m->strong ? "no" : "a",
                    m->strong ? "strong" : "crc32c");
    return HEARTH_OK;
}

void hth_object_encode(const struct hth_object *o, unsigned char out[HTH_MANIFEST_OBJECT])
{
    struct hth_writer w = { .at = out, .cap = HTH_MANIFEST_OBJECT };

    hth_write64(&w, o->id);
    hth_write32(&w, o->owner);
    hth_write16(&w, (uint16_t)o->kind);
    hth_write16(&w, (uint16_t)(o->listed | (o->strong ? STRONG : 0)));
    hth_write64(&w, o->data_len);
    hth_write64(&w, o->table_len);
    hth_write(&w, o->digest, HTH_DIGEST);
    hth_write_text(&w, o->name, HTH_NAME_MAX);
}

static int object_check(const struct hth_object *o, int torn, struct hearth_error *err)
{
    int table = o->table_len >= HTH_TABLE_HEAD && o->table_len <= DATA_MAX;
    int nobodys = o->kind == HTH_OBJECT_FOREIGN && o->owner == HTH_OWNER_NONE;

    if (torn || (o->listed && !nobodys) || (o->strong && o->kind != HTH_OBJECT_SHARD) ||
            (o->kind != HTH_OBJECT_SHARD && o->kind != HTH_OBJECT_RAW &&
                    o->kind != HTH_OBJECT_FOREIGN))
        return hth_fail(err, HEARTH_ECORRUPT, 0,
                "object %016" PRIx64 ": a field holds what Hearth never writes", o->id);
    if (hth_object_name_check(o->name, NULL))
        return hth_fail(
                err, HEARTH_ECORRUPT, 0, "object %016" PRIx64 ": its name is not allowed", o->id);
    if (o->data_len > DATA_MAX || (o->kind == HTH_OBJECT_SHARD ? !table : o->table_len != 0))
        return hth_fail(err, HEARTH_ECORRUPT, 0,
                "object %s: %" PRIu64 " bytes with a table of %" PRIu64 " cannot be", o->name,
                o->data_len, o->table_len);
    return HEARTH_OK;
}

int hth_object_decode(struct hth_object *out, const unsigned char in[HTH_MANIFEST_OBJECT],
        struct hearth_error *err)
{
    struct hth_reader r = { .at = in, .len = HTH_MANIFEST_OBJECT };
    struct hth_object o = { 0 };
    uint32_t flags;
    int rc;

    o.id = hth_read64(&r);
    o.owner = hth_read32(&r);
    o.kind = (enum hth_object_kind)hth_read16(&r);
    flags = hth_read16(&r);
    o.listed = flags & LISTED;
    o.strong = (flags & STRONG) != 0;
    r.bad |= (flags & ~(LISTED | STRONG)) != 0;
    o.data_len = hth_read64(&r);
    o.table_len = hth_read64(&r);
    hth_read_into(&r, o.digest, HTH_DIGEST);
    hth_read_text(&r, o.name, HTH_NAME_MAX);
    if ((rc = object_check(&o, r.bad, err)))
        return rc;
    *out = o;
    return HEARTH_OK;
}

int hth_manifest_encode(struct hth_manifest *m, unsigned char *out, struct hearth_error *err)
{
    struct hth_writer w = { .at = out, .cap = hth_manifest_bytes(m) };
    int rc;

    if (m->objects)
        qsort(m->object, m->objects, sizeof(*m->object), object_by_id);
    if ((rc = in_order(m->object, m->objects, err)) ||
            (rc = objects_unique(m->object, m->objects, err)) || (rc = objects_strong(m, err)))
        return rc;
    hth_write(&w, MAGIC, 8);
    hth_write32(&w, hth_version_written(HTH_FORMAT_MANIFEST));
    hth_write32(&w, m->world);
    hth_write_save(&w, m->save);
    hth_write_save(&w, m->from);
    hth_write_text(&w, m->job, HTH_NAME_MAX);
    hth_write32(&w, m->objects);
    hth_write32(&w, m->nodes);
    hth_write32(&w, m->strong);
    hth_write_zeros(&w, HTH_MANIFEST_HEAD - w.len);
    for (uint32_t i = 0; i < m->objects; i++) {
        hth_object_encode(&m->object[i], out + w.len);
        w.len += HTH_MANIFEST_OBJECT;
    }
    hth_write_digest(&w);
    memcpy(m->digest, out + w.len - HTH_DIGEST, HTH_DIGEST);
    return HEARTH_OK;
}

static int manifest_head_decode(const struct hth_versions *versions, struct hth_manifest *m,
        const void *bytes, size_t len, struct hearth_error *err)
{
    struct hth_reader r = { .at = bytes, .len = len };
    uint32_t version;
    int rc;

    if ((rc = hth_read_record(&r, MAGIC, versions, &version, err)))
        return rc;
    m->world = hth_read32(&r);
    m->save = hth_read_save(&r);
    m->from = hth_read_save(&r);
    hth_read_text(&r, m->job, HTH_NAME_MAX);
    m->objects = hth_read32(&r);
    m->nodes = hth_read32(&r);
    m->strong = hth_read32(&r);
    hth_read_zeros(&r, HTH_MANIFEST_HEAD - r.pos);
    if (r.bad || hth_job_check(m->job, NULL) || !m->world || !m->nodes || m->nodes > m->world ||
            m->strong > (version >= WITH_STRONG && !hth_save_foreign(m->save) ? 1u : 0u))
        return hth_fail(
                err, HEARTH_ECORRUPT, 0, "the manifest's head holds what Hearth never writes");
    if (hth_manifest_bytes(m) != len)
        return hth_fail(err, HEARTH_ECORRUPT, 0,
                "the manifest has %zu bytes, which are not those of its %" PRIu32 " objects", len,
                m->objects);
    return HEARTH_OK;
}

static int objects_decode(struct hth_manifest *m, const unsigned char *at, struct hearth_error *err)
{
    int rc;

    for (uint32_t i = 0; i < m->objects; i++) {
        if ((rc = hth_object_decode(&m->object[i], at + (size_t)i * HTH_MANIFEST_OBJECT, err)))
            return hth_while(err, rc, "manifest");
        if ((m->object[i].kind == HTH_OBJECT_FOREIGN) != hth_save_foreign(m->save))
            return hth_fail(err, HEARTH_ECORRUPT, 0,
                    "manifest: object %s is of a kind that " HTH_SAVE " has not", m->object[i].name,
                    HTH_SAVE_ARGS(m->save));
        if (m->object[i].owner >= m->world &&
                (m->object[i].kind != HTH_OBJECT_FOREIGN || m->object[i].owner != HTH_OWNER_NONE))
            return hth_fail(err, HEARTH_ECORRUPT, 0,
                    "manifest: object %s belongs to rank %" PRIu32 " of %" PRIu32,
                    m->object[i].name, m->object[i].owner, m->world);
    }
    if ((rc = in_order(m->object, m->objects, err)) ||
            (rc = objects_unique(m->object, m->objects, err)) || (rc = objects_strong(m, err)))
        return rc == HEARTH_ENOMEM ? rc : hth_while(err, HEARTH_ECORRUPT, "manifest");
    return HEARTH_OK;
}

int hth_manifest_decode_as(const struct hth_versions *versions, struct hth_manifest *out,
        const void *bytes, size_t len, struct hearth_error *err)
{
    const unsigned char *at = bytes;
    struct hth_manifest m = { 0 };
    int rc;

    if ((rc = manifest_head_decode(versions, &m, bytes, len, err)))
        return rc;
    m.object = calloc((size_t)m.objects + 1, sizeof(*m.object));
    if (!m.object)
        return hth_fail(err, HEARTH_ENOMEM, 0, "no memory for a manifest of %" PRIu32 " objects",
                m.objects);
    if ((rc = objects_decode(&m, at + HTH_MANIFEST_HEAD, err))) {
        hth_manifest_fini(&m);
        return rc;
    }
    memcpy(m.digest, at + len - HTH_DIGEST, HTH_DIGEST);
    *out = m;
    return HEARTH_OK;
}

int hth_manifest_decode(
        struct hth_manifest *out, const void *bytes, size_t len, struct hearth_error *err)
{
    return hth_manifest_decode_as(hth_versions_of(HTH_FORMAT_MANIFEST), out, bytes, len, err);
}

void hth_manifest_fini(struct hth_manifest *m)
{
    free(m->object);
    m->object = NULL;
    m->objects = 0;
}

const struct hth_object *hth_manifest_find(const struct hth_manifest *m, uint64_t id)
{
    struct hth_object key = { .id = id };

    return m->objects ? bsearch(&key, m->object, m->objects, sizeof(key), object_by_id) : NULL;
}

uint64_t hth_object_file_bytes(const struct hth_object *o)
{
    if (o->kind != HTH_OBJECT_SHARD)
        return o->data_len;
    return HTH_BLOCK + HTH_ALIGN(o->data_len) + o->table_len;
}
