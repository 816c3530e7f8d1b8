/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the coordinator decided last, in a record of fixed size: two lists of saves with room for
 * HTH_KEEP_MAX each, zeros where there is none.
 *
 *     0 "HTHKEEPS"   8 u32 version   12 u32 zero   16 u64 epoch   24 u64 serial
 *    32 u32 saves   36 u32 bads   40 ... zero to 64   then saves, bads, digest
 */
#include <hearth/internal/core/keep.h>
#include <hearth/internal/core/record.h>

#define MAGIC   "HTHKEEPS"
#define VERSION 1u
#define HEAD    64u

static void write_list(struct hth_writer *w, const struct hth_save_id *save, uint32_t n)
{
    for (uint32_t i = 0; i < n && i < HTH_KEEP_MAX; i++)
        hth_write_save(w, save[i]);
    for (uint32_t i = n; i < HTH_KEEP_MAX; i++)
        hth_write_zeros(w, HTH_SAVE_BYTES);
}

static void read_list(struct hth_reader *r, struct hth_save_id *save, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        save[i] = hth_read_save(r);
    hth_read_zeros(r, (size_t)(HTH_KEEP_MAX - n) * HTH_SAVE_BYTES);
}

void hth_keep_encode(const struct hth_keep *k, unsigned char out[HTH_KEEP_BYTES])
{
    struct hth_writer w = { .at = out, .cap = HTH_KEEP_BYTES };

    hth_write(&w, MAGIC, 8);
    hth_write32(&w, VERSION);
    hth_write32(&w, 0);
    hth_write64(&w, k->epoch);
    hth_write64(&w, k->serial);
    hth_write32(&w, k->saves);
    hth_write32(&w, k->bads);
    hth_write_zeros(&w, HEAD - w.len);
    write_list(&w, k->save, k->saves);
    write_list(&w, k->bad, k->bads);
    hth_write_digest(&w);
}

int hth_keep_decode(struct hth_keep *out, const void *bytes, size_t len, struct hearth_error *err)
{
    struct hth_reader r = { .at = bytes, .len = len };
    struct hth_keep k = { 0 };
    int rc;

    if ((rc = hth_read_head(&r, MAGIC, VERSION, "keep record", err)) ||
            (rc = hth_record_check(bytes, len, "keep record", err)))
        return rc;
    hth_read_zeros(&r, 4);
    k.epoch = hth_read64(&r);
    k.serial = hth_read64(&r);
    k.saves = hth_read32(&r);
    k.bads = hth_read32(&r);
    hth_read_zeros(&r, HEAD - 40);
    if (k.epoch > HTH_EPOCH_MOST)
        return hth_fail(err, HEARTH_ECORRUPT, 0,
                "the keep record says epoch %" PRIu64
                ", which no job has reached: it is left out, and no save is lost by that",
                k.epoch);
    if (len != HTH_KEEP_BYTES || k.saves > HTH_KEEP_MAX || k.bads > HTH_KEEP_MAX)
        return hth_fail(err, HEARTH_ECORRUPT, 0,
                "the keep record has %zu bytes, %" PRIu32 " saves and %" PRIu32 " bad ones", len,
                k.saves, k.bads);
    read_list(&r, k.save, k.saves);
    read_list(&r, k.bad, k.bads);
    if (r.bad)
        return hth_fail(err, HEARTH_ECORRUPT, 0, "the keep record holds what Hearth never writes");
    *out = k;
    return HEARTH_OK;
}

int hth_keep_has(const struct hth_keep *k, struct hth_save_id save)
{
    for (uint32_t i = 0; i < k->saves; i++)
        if (hth_save_cmp(k->save[i], save) == 0)
            return 1;
    return 0;
}
