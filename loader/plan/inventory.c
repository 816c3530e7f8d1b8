/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A node's inventory as it goes up:
 *
 *   "HTHINVN\2" | u64 store | keep record | u32 saves | u32 zero
 *   each save:  32 save | u32 1: has manifest | u32 objects | u32 runs | u32 zero | 32 manifest digest
 *               runs: u32 first | u32 count
 *               objects: u64 id | 32 digest
 *
 * What is here as the node's own manifest has it comes as runs of places in that, 8 bytes each:
 * what its ranks wrote is one, and each node's that it has copies of. All else has 40 bytes an
 * object. A foreign container has no manifest that would say what its files are, so they come as a
 * manifest's objects:
 *
 *   each:       32 save | u32 2: unfinished | u32 objects | u64 zero | 32 zero
 *               objects: 128 as in a manifest | u32 enum hth_foreign_flag | u32 items | u64 data length
 *                        32 digest of the items
 */
#include "core/base/bytes.h"
#include "core/foreign/foreign.h"
#include "plan.h"

#include <stdlib.h>

#define MAGIC       "HTHINVN\2"
#define HEAD        (8u + 8u + HTH_KEEP_BYTES + 8u)
#define SAVE_HEAD   (32u + 16u + HTH_DIGEST)
#define RUN         8u
#define OBJECT      (8u + HTH_DIGEST)
#define OBJECTS_MAX (1u << 20)
#define LOOK        (4u + 4u + 8u + HTH_DIGEST)
#define UNFINISHED  2u

static size_t inventory_object_bytes(struct hth_save_id save)
{
    return hth_save_foreign(save) ? HTH_MANIFEST_OBJECT + LOOK : OBJECT;
}

size_t hth_inventory_bytes(const struct hth_inventory *inv)
{
    size_t n = HEAD;

    for (uint32_t i = 0; i < inv->saves; i++)
        n += SAVE_HEAD + (size_t)inv->save[i].runs * RUN +
             inv->save[i].objects * inventory_object_bytes(inv->save[i].id);
    return n;
}

static void inventory_write_file(
        struct hth_writer *w, const struct hth_object *o, const struct hth_foreign_look *look)
{
    unsigned char bytes[HTH_MANIFEST_OBJECT];

    hth_object_encode(o, bytes);
    hth_write(w, bytes, sizeof(bytes));
    hth_write32(w, look->flags);
    hth_write32(w, look->items);
    hth_write64(w, look->data_len);
    hth_write(w, look->digest, HTH_DIGEST);
}

static void inventory_write_objects(struct hth_writer *w, const struct hth_seen_save *s)
{
    for (uint32_t k = 0; k < s->objects; k++) {
        if (hth_save_foreign(s->id)) {
            inventory_write_file(w, &s->file[k], &s->look[k]);
        } else {
            hth_write64(w, s->object[k].id);
            hth_write(w, s->object[k].digest, HTH_DIGEST);
        }
    }
}

void hth_inventory_encode(const struct hth_inventory *inv, unsigned char *out)
{
    struct hth_writer w = { out, hth_inventory_bytes(inv), 0 };
    unsigned char keep[HTH_KEEP_BYTES];

    hth_keep_encode(&inv->keep, keep);
    hth_write(&w, MAGIC, 8);
    hth_write64(&w, inv->store);
    hth_write(&w, keep, sizeof(keep));
    hth_write32(&w, inv->saves);
    hth_write32(&w, 0);
    for (uint32_t i = 0; i < inv->saves; i++) {
        const struct hth_seen_save *s = &inv->save[i];

        hth_write64(&w, s->id.epoch);
        hth_write64(&w, s->id.nonce);
        hth_write64(&w, s->id.step);
        hth_write32(&w, s->id.attempt);
        hth_write32(&w, 0);
        hth_write32(&w, s->unfinished ? UNFINISHED : (uint32_t)s->has_manifest);
        hth_write32(&w, s->objects);
        hth_write32(&w, s->runs);
        hth_write32(&w, 0);
        hth_write(&w, s->manifest, HTH_DIGEST);
        for (uint32_t k = 0; k < s->runs; k++) {
            hth_write32(&w, s->run[k].first);
            hth_write32(&w, s->run[k].count);
        }
        inventory_write_objects(&w, s);
    }
}

static void inventory_read_digest(struct hth_reader *r, unsigned char out[HTH_DIGEST])
{
    const unsigned char *p = hth_read(r, HTH_DIGEST);

    if (p)
        memcpy(out, p, HTH_DIGEST);
}

static int inventory_read_file(struct hth_reader *r, struct hth_seen_save *s, uint32_t k)
{
    const unsigned char *bytes = hth_read(r, HTH_MANIFEST_OBJECT);
    struct hth_object *o = &s->file[k];

    if (!bytes || hth_object_decode(o, bytes, NULL) || o->kind != HTH_OBJECT_FOREIGN ||
            !o->data_len || o->listed || o->owner != hth_foreign_owner(o->name) ||
            o->id != hth_foreign_object(o->name, 0).id)
        return HEARTH_EPROTO;
    s->object[k].id = o->id;
    memcpy(s->object[k].digest, o->digest, HTH_DIGEST);
    s->look[k].flags = hth_read32(r);
    s->look[k].items = hth_read32(r);
    s->look[k].data_len = hth_read64(r);
    inventory_read_digest(r, s->look[k].digest);
    return HEARTH_OK;
}

static int inventory_read_object(struct hth_reader *r, struct hth_seen_save *s, uint32_t k)
{
    if (s->file)
        return inventory_read_file(r, s, k);
    s->object[k].id = hth_read64(r);
    inventory_read_digest(r, s->object[k].digest);
    return HEARTH_OK;
}

int hth_seen_make(struct hth_seen_save *s, uint32_t objects)
{
    size_t n = objects ? objects : 1;
    int foreign = hth_save_foreign(s->id);

    s->object = calloc(n, sizeof(*s->object));
    s->file = foreign ? calloc(n, sizeof(*s->file)) : NULL;
    s->look = foreign ? calloc(n, sizeof(*s->look)) : NULL;
    return s->object && (!foreign || (s->file && s->look)) ? HEARTH_OK : HEARTH_ENOMEM;
}

/* Reads the runs. They must rise without touching, so that no object is listed twice, and one list
 * has one form. */
static int inventory_read_runs(
        struct hth_reader *r, struct hth_seen_save *s, uint32_t runs, struct hearth_error *err)
{
    uint64_t end = 0; /* the least that the next may begin at */

    s->run = calloc(runs ? runs : 1, sizeof(*s->run));
    if (!s->run)
        return hth_fail(err, HEARTH_ENOMEM, 0, "inventory");
    for (; s->runs < runs; s->runs++) {
        struct hth_seen_run *run = &s->run[s->runs];

        run->first = hth_read32(r);
        run->count = hth_read32(r);
        if (!run->count || run->first < end || run->count > OBJECTS_MAX)
            return hth_fail(err, HEARTH_EPROTO, 0, "an inventory's runs are out of order");
        end = (uint64_t)run->first + run->count + 1;
    }
    return HEARTH_OK;
}

static int inventory_read_save(
        struct hth_reader *r, struct hth_seen_save *s, struct hearth_error *err)
{
    uint32_t objects, runs;
    int rc;

    s->id.epoch = hth_read64(r);
    s->id.nonce = hth_read64(r);
    s->id.step = hth_read64(r);
    s->id.attempt = hth_read32(r);
    (void)hth_read32(r);
    s->has_manifest = (int)hth_read32(r);
    if (hth_save_foreign(s->id)) {
        s->unfinished = s->has_manifest == (int)UNFINISHED;
        s->has_manifest = 0;
    }
    objects = hth_read32(r);
    runs = hth_read32(r);
    (void)hth_read32(r);
    inventory_read_digest(r, s->manifest);
    if (r->bad || (runs && s->has_manifest != 1) || (r->len - r->pos) / RUN < runs)
        return hth_fail(err, HEARTH_EPROTO, 0, "byte %zu: an inventory's save is cut", r->pos);
    rc = inventory_read_runs(r, s, runs, err);
    if (rc)
        return rc;
    if (objects > OBJECTS_MAX || (r->len - r->pos) / inventory_object_bytes(s->id) < objects)
        return hth_fail(err, HEARTH_EPROTO, 0, "byte %zu: an inventory's save is cut", r->pos);
    if (hth_seen_make(s, objects))
        return hth_fail(err, HEARTH_ENOMEM, 0, "inventory");
    s->objects = objects;
    for (uint32_t k = 0; k < s->objects; k++) {
        if (inventory_read_object(r, s, k))
            return hth_fail(err, HEARTH_EPROTO, 0, "an inventory's foreign file is none");
        if (k && s->object[k].id <= s->object[k - 1].id)
            return hth_fail(err, HEARTH_EPROTO, 0, "an inventory's objects are out of order");
    }
    return HEARTH_OK;
}

int hth_inventory_decode(
        struct hth_inventory *out, const void *bytes, size_t len, struct hearth_error *err)
{
    struct hth_reader r = { bytes, len, 0, 0 };
    const unsigned char *magic = hth_read(&r, 8);
    struct hth_inventory inv = { .store = hth_read64(&r) };
    const unsigned char *keep = hth_read(&r, HTH_KEEP_BYTES);
    uint32_t saves = hth_read32(&r);
    int rc = HEARTH_OK;

    (void)hth_read32(&r);
    if (r.bad || memcmp(magic, MAGIC, 8) != 0 || saves > HTH_INVENTORY_SAVES)
        return hth_fail(err, HEARTH_EPROTO, 0, "not an inventory");
    rc = hth_keep_decode(&inv.keep, keep, HTH_KEEP_BYTES, err);
    if (rc)
        return rc;
    inv.save = calloc(saves ? saves : 1, sizeof(*inv.save));
    if (!inv.save)
        return hth_fail(err, HEARTH_ENOMEM, 0, "inventory");
    for (; inv.saves < saves && !rc; inv.saves++)
        rc = inventory_read_save(&r, &inv.save[inv.saves], err);
    if (!rc && r.pos != len)
        rc = hth_fail(err, HEARTH_EPROTO, 0, "%zu bytes after an inventory", len - r.pos);
    if (rc) {
        hth_inventory_fini(&inv);
        return rc;
    }
    *out = inv;
    return HEARTH_OK;
}

void hth_inventory_fini(struct hth_inventory *inv)
{
    for (uint32_t i = 0; i < inv->saves; i++) {
        free(inv->save[i].run);
        free(inv->save[i].object);
        free(inv->save[i].file);
        free(inv->save[i].look);
    }
    free(inv->save);
    *inv = (struct hth_inventory){ 0 };
}

const struct hth_seen_save *hth_inventory_find(
        const struct hth_inventory *inv, struct hth_save_id id)
{
    for (uint32_t i = 0; i < inv->saves; i++)
        if (hth_save_cmp(inv->save[i].id, id) == 0)
            return &inv->save[i];
    return NULL;
}

int hth_inventory_has(
        const struct hth_inventory *inv, struct hth_save_id save, const struct hth_object *o)
{
    const struct hth_seen_save *s = hth_inventory_find(inv, save);
    uint32_t lo = 0;
    uint32_t hi = s ? s->objects : 0;

    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;

        if (s->object[mid].id < o->id)
            lo = mid + 1;
        else
            hi = mid;
    }
    return s && lo < s->objects && s->object[lo].id == o->id &&
           memcmp(s->object[lo].digest, o->digest, HTH_DIGEST) == 0;
}
