/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The coordinator's last decision, in a record of fixed size: three lists with room for
 * HTH_KEEP_MAX each, zeros where there is none.
 *
 *     0 "HTHKEEPS"   8 u32 version   12 u32 zero   16 u64 epoch   24 u64 serial
 *    32 u32 saves   36 u32 bads   40 u32 degraded, a bit each   44 u32 pinned, likewise   48 u64 dropped
 *    56 u32 tries   60 u32 more tries   64 saves, bads, u64 since when each is PROTECTED, digest
 *
 * The save that is tried, if there is one, stands in the last place of the bads. Version 2 had no
 * pins, and version 3 no tries: zeros are there. At 60 this version writes zero. Earlier engines of
 * version 4 wrote 1 there for a job that had recovered the save and had not ended.
 */
#include "keep.h"
#include "record.h"

#define MAGIC       "HTHKEEPS"
#define HEAD        64u

#define PINS_SINCE  3u /* version */
#define TRIES_SINCE 4u

/* A bit for each save that there may be. */
static uint32_t all_of(uint32_t saves)
{
    return saves < 32 ? (UINT32_C(1) << saves) - 1 : UINT32_MAX;
}

static void write_list(struct hth_writer *w, const struct hth_save_id *save, uint32_t n)
{
    for (uint32_t i = 0; i < n && i < HTH_KEEP_MAX; i++)
        hth_write_save(w, save[i]);
    for (uint32_t i = n; i < HTH_KEEP_MAX; i++)
        hth_write_zeros(w, HTH_SAVE_BYTES);
}

static void write_bads(struct hth_writer *w, const struct hth_keep *k)
{
    struct hth_save_id place[HTH_KEEP_MAX] = { 0 };

    memcpy(place, k->bad, k->bads * sizeof(place[0]));
    if (!hth_save_none(k->tried))
        place[HTH_KEEP_BADS] = k->tried;
    write_list(w, place, HTH_KEEP_MAX);
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
    hth_write32(&w, hth_version_written(HTH_FORMAT_KEEP));
    hth_write32(&w, 0);
    hth_write64(&w, k->epoch);
    hth_write64(&w, k->serial);
    hth_write32(&w, k->saves);
    hth_write32(&w, k->bads);
    hth_write32(&w, k->degraded & all_of(k->saves));
    hth_write32(&w, k->pinned & all_of(k->saves));
    hth_write64(&w, k->dropped);
    hth_write32(&w, k->tries);
    hth_write32(&w, 0);
    write_list(&w, k->save, k->saves);
    write_bads(&w, k);
    for (uint32_t i = 0; i < HTH_KEEP_MAX; i++)
        hth_write64(&w, i < k->saves ? k->since_ms[i] : 0);
    hth_write_digest(&w);
}

/* The last place is a mark of version 3's where all are. */
static void read_bads(struct hth_reader *r, struct hth_keep *k)
{
    if (k->bads == HTH_KEEP_MAX) {
        read_list(r, k->bad, k->bads);
        return;
    }
    for (uint32_t i = 0; i < k->bads; i++)
        k->bad[i] = hth_read_save(r);
    hth_read_zeros(r, (size_t)(HTH_KEEP_BADS - k->bads) * HTH_SAVE_BYTES);
    k->tried = hth_read_save(r);
}

static int tries_are_odd(const struct hth_keep *k, uint32_t more, uint32_t version)
{
    struct hth_save_id none = { 0 };

    if (hth_save_none(k->tried))
        return hth_save_cmp(k->tried, none) != 0 || k->tries || more;
    return version < TRIES_SINCE || more > 1;
}

int hth_keep_decode_as(const struct hth_versions *versions, struct hth_keep *out, const void *bytes,
        size_t len, struct hearth_error *err)
{
    struct hth_reader r = { .at = bytes, .len = len };
    struct hth_keep k = { 0 };
    uint32_t version, more = 0;
    int rc;

    if ((rc = hth_read_record(&r, MAGIC, versions, &version, err)))
        return rc;
    hth_read_zeros(&r, 4);
    k.epoch = hth_read64(&r);
    k.serial = hth_read64(&r);
    k.saves = hth_read32(&r);
    k.bads = hth_read32(&r);
    k.degraded = hth_read32(&r);
    if (version >= PINS_SINCE)
        k.pinned = hth_read32(&r);
    else
        hth_read_zeros(&r, 4);
    k.dropped = hth_read64(&r);
    if (version >= TRIES_SINCE) {
        k.tries = hth_read32(&r);
        more = hth_read32(&r);
    } else {
        hth_read_zeros(&r, HEAD - 56);
    }
    if (k.epoch > HTH_EPOCH_MOST || k.dropped > HTH_EPOCH_MOST)
        return hth_fail(err, HEARTH_ECORRUPT, 0,
                "the keep record has epoch %" PRIu64
                ", which no job has reached: it is left out, and no save is lost by that",
                k.epoch > k.dropped ? k.epoch : k.dropped);
    if (len != HTH_KEEP_BYTES || k.saves > HTH_KEEP_MAX || k.bads > HTH_KEEP_MAX)
        return hth_fail(err, HEARTH_ECORRUPT, 0,
                "the keep record has %zu bytes, %" PRIu32 " saves and %" PRIu32 " bad ones", len,
                k.saves, k.bads);
    read_list(&r, k.save, k.saves);
    read_bads(&r, &k);
    for (uint32_t i = 0; i < k.saves; i++)
        k.since_ms[i] = hth_read64(&r);
    hth_read_zeros(&r, (size_t)(HTH_KEEP_MAX - k.saves) * 8);
    if (r.bad || (k.degraded | k.pinned) & ~all_of(k.saves) || tries_are_odd(&k, more, version))
        return hth_fail(err, HEARTH_ECORRUPT, 0, "the keep record holds what Hearth never writes");
    k.tries += more;
    *out = k;
    return HEARTH_OK;
}

void hth_keep_drop(struct hth_keep *k, uint64_t epoch)
{
    struct hth_keep left = *k;

    left.dropped = epoch > k->dropped ? epoch : k->dropped;
    left.saves = left.degraded = left.pinned = 0;
    for (uint32_t i = 0; i < k->saves; i++) {
        if (k->save[i].epoch <= left.dropped)
            continue;
        left.save[left.saves] = k->save[i];
        left.since_ms[left.saves] = k->since_ms[i];
        left.pinned |= (k->pinned >> i & 1) << left.saves;
        left.degraded |= (k->degraded >> i & 1) << left.saves++;
    }
    *k = left;
}

/* A place for bit `at`, which is not set. */
static uint32_t mask_with(uint32_t mask, int at)
{
    uint32_t below = (UINT32_C(1) << at) - 1;

    return (mask & below) | (mask & ~below) << 1;
}

static void keep_insert(struct hth_keep *k, const struct hth_keep *other, int from)
{
    int at = (int)k->saves;

    for (; at > 0 && hth_save_cmp(k->save[at - 1], other->save[from]) < 0; at--) {
        k->save[at] = k->save[at - 1];
        k->since_ms[at] = k->since_ms[at - 1];
    }
    k->save[at] = other->save[from];
    k->since_ms[at] = other->since_ms[from];
    k->degraded = mask_with(k->degraded, at) | (uint32_t)hth_keep_degraded(other, from) << at;
    k->pinned = mask_with(k->pinned, at) | (uint32_t)hth_keep_pinned(other, from) << at;
    k->saves++;
}

void hth_keep_unite(struct hth_keep *k, const struct hth_keep *other)
{
    for (uint32_t i = 0; i < other->saves && k->saves < HTH_KEEP_MAX; i++)
        if (!hth_keep_has(k, other->save[i]))
            keep_insert(k, other, (int)i);
}

/* A bit mask without bit `at`. */
static uint32_t mask_without(uint32_t mask, int at)
{
    uint32_t below = (UINT32_C(1) << at) - 1;

    return (mask & below) | ((mask >> 1) & ~below);
}

void hth_keep_leave(struct hth_keep *k, int at)
{
    k->saves--;
    for (uint32_t i = (uint32_t)at; i < k->saves; i++) {
        k->save[i] = k->save[i + 1];
        k->since_ms[i] = k->since_ms[i + 1];
    }
    k->save[k->saves] = (struct hth_save_id){ 0 };
    k->since_ms[k->saves] = 0;
    k->degraded = mask_without(k->degraded, at);
    k->pinned = mask_without(k->pinned, at);
}

static int keep_bad_at(const struct hth_keep *k, struct hth_save_id save)
{
    for (uint32_t i = 0; i < k->bads; i++)
        if (hth_save_cmp(k->bad[i], save) == 0)
            return (int)i;
    return -1;
}

int hth_keep_is_bad(const struct hth_keep *k, struct hth_save_id save)
{
    return keep_bad_at(k, save) >= 0;
}

void hth_keep_mark(struct hth_keep *k, struct hth_save_id save, int bad)
{
    int at = keep_bad_at(k, save);

    if (bad ? at >= 0 : at < 0)
        return;
    if (bad && k->bads < HTH_KEEP_BADS) {
        k->bad[k->bads++] = save;
        return;
    }
    for (uint32_t i = bad ? 0 : (uint32_t)at; i + 1 < k->bads; i++)
        k->bad[i] = k->bad[i + 1];
    k->bad[k->bads - 1] = bad ? save : (struct hth_save_id){ 0 };
    k->bads -= !bad;
}

void hth_keep_try(struct hth_keep *k, struct hth_save_id save, int again)
{
    if (hth_save_cmp(k->tried, save) != 0)
        k->tries = 1;
    else
        k->tries += !again;
    k->tried = save;
    if (k->bads > HTH_KEEP_BADS) /* as a record of version 3 may have */
        hth_keep_mark(k, k->bad[0], 0);
}

void hth_keep_end_tries(struct hth_keep *k)
{
    k->tried = (struct hth_save_id){ 0 };
    k->tries = 0;
}

uint32_t hth_keep_tries(const struct hth_keep *k, struct hth_save_id save)
{
    return hth_save_cmp(k->tried, save) == 0 ? k->tries : 0;
}

int hth_keep_at(const struct hth_keep *k, struct hth_save_id save)
{
    for (uint32_t i = 0; i < k->saves; i++)
        if (hth_save_cmp(k->save[i], save) == 0)
            return (int)i;
    return -1;
}

int hth_keep_has(const struct hth_keep *k, struct hth_save_id save)
{
    return hth_keep_at(k, save) >= 0;
}

int hth_keep_decode(struct hth_keep *out, const void *bytes, size_t len, struct hearth_error *err)
{
    return hth_keep_decode_as(hth_versions_of(HTH_FORMAT_KEEP), out, bytes, len, err);
}
