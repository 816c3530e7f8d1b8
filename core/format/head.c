/* SPDX-License-Identifier: Apache-2.0 */
/* The newest head of an epoch's log. Layout: core/format/head.h. */
#include "head.h"
#include "record.h"

#define MAGIC "HTHHEADS"

void hth_head_encode(const struct hth_head *h, const void *map, size_t map_len, unsigned char *out)
{
    struct hth_writer w = { .at = out, .cap = hth_head_bytes(map_len) };
    unsigned char keep[HTH_KEEP_BYTES];

    hth_keep_encode(&h->keep, keep);
    hth_write(&w, MAGIC, 8);
    hth_write32(&w, hth_version_written(HTH_FORMAT_HEAD));
    hth_write32(&w, h->settled != 0);
    hth_write64(&w, h->epoch);
    hth_write64(&w, h->nonce);
    hth_write64(&w, h->position);
    hth_write64(&w, h->mapped);
    hth_write(&w, h->map, HTH_DIGEST);
    hth_write_save(&w, h->decided);
    hth_write32(&w, h->cancels);
    hth_write32(&w, 0);
    for (uint32_t i = 0; i < h->cancels; i++) {
        hth_write_save(&w, h->cancelled[i].save);
        hth_write32(&w, (uint32_t)h->cancelled[i].code);
        hth_write32(&w, h->cancelled[i].whole);
    }
    hth_write_zeros(&w, (size_t)(HTH_HEAD_CANCELLED - h->cancels) * 40);
    hth_write_text(&w, h->why, HTH_HEAD_WHY);
    hth_write(&w, keep, sizeof(keep));
    hth_write64(&w, map_len);
    hth_write(&w, map, map_len);
    hth_write_digest(&w);
}

static void read_cancelled(struct hth_reader *r, struct hth_head *h)
{
    for (uint32_t i = 0; i < h->cancels; i++) {
        h->cancelled[i].save = hth_read_save(r);
        h->cancelled[i].code = (int)hth_read32(r);
        h->cancelled[i].whole = hth_read32(r);
        if (h->cancelled[i].whole > 1)
            r->bad = 1;
    }
    hth_read_zeros(r, (size_t)(HTH_HEAD_CANCELLED - h->cancels) * 40);
}

int hth_head_decode_as(const struct hth_versions *versions, struct hth_head *out,
        const unsigned char **out_map, size_t *out_map_len, const void *bytes, size_t len,
        struct hearth_error *err)
{
    struct hth_reader r = { .at = bytes, .len = len };
    struct hth_head h = { 0 };
    const unsigned char *keep, *map;
    uint64_t map_len;
    int rc;

    if ((rc = hth_read_record(&r, MAGIC, versions, NULL, err)))
        return rc;
    h.settled = (int)hth_read32(&r);
    h.epoch = hth_read64(&r);
    h.nonce = hth_read64(&r);
    h.position = hth_read64(&r);
    h.mapped = hth_read64(&r);
    hth_read_into(&r, h.map, HTH_DIGEST);
    h.decided = hth_read_save(&r);
    h.cancels = hth_read32(&r);
    hth_read_zeros(&r, 4);
    if (h.cancels > HTH_HEAD_CANCELLED)
        return hth_fail(err, HEARTH_ECORRUPT, 0, "the %s has %" PRIu32 " cancelled saves",
                versions->what, h.cancels);
    read_cancelled(&r, &h);
    hth_read_text(&r, h.why, HTH_HEAD_WHY);
    keep = hth_read(&r, HTH_KEEP_BYTES);
    map_len = hth_read64(&r);
    map = map_len <= len ? hth_read(&r, (size_t)map_len) : NULL;
    if (!map || r.bad || r.pos + HTH_DIGEST != len || h.settled < 0 || h.settled > 1 ||
            h.mapped > h.position)
        return hth_record_odd(&r, versions, err);
    if ((rc = hth_keep_decode(&h.keep, keep, HTH_KEEP_BYTES, err)))
        return rc;
    *out = h;
    *out_map = map;
    *out_map_len = (size_t)map_len;
    return HEARTH_OK;
}

int hth_head_decode(struct hth_head *out, const unsigned char **out_map, size_t *out_map_len,
        const void *bytes, size_t len, struct hearth_error *err)
{
    return hth_head_decode_as(
            hth_versions_of(HTH_FORMAT_HEAD), out, out_map, out_map_len, bytes, len, err);
}
