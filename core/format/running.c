/* SPDX-License-Identifier: Apache-2.0 */
/* The state that an engine needs after a restart, in a record of fixed size. Layout:
 * core/format/running.h. */
#include "running.h"
#include "record.h"

#define MAGIC "HTHRUNNG"

void hth_running_encode(const struct hth_running *r, unsigned char out[HTH_RUNNING_BYTES])
{
    struct hth_writer w = { .at = out, .cap = HTH_RUNNING_BYTES };

    hth_write(&w, MAGIC, 8);
    hth_write32(&w, hth_version_written(HTH_FORMAT_RUNNING));
    hth_write32(&w, 0);
    hth_write64(&w, r->epoch);
    hth_write64(&w, r->nonce);
    hth_write_save(&w, r->chosen);
    hth_write32(&w, r->copies);
    hth_write32(&w, r->min_copies);
    hth_write32(&w, r->keep);
    hth_write32(&w, r->allow_degraded);
    hth_write32(&w, r->recover_ms);
    hth_write32(&w, r->save_ms);
    hth_write32(&w, r->heartbeat_ms);
    hth_write32(&w, r->dead_ms);
    hth_write32(&w, r->stall_ms);
    hth_write32(&w, r->linger_s);
    hth_write32(&w, r->inflight_mib);
    hth_write32(&w, r->bad_after);
    hth_write64(&w, r->lease_bytes);
    hth_write64(&w, r->spare_bytes);
    hth_write_digest(&w);
}

static void read_opts(struct hth_reader *r, struct hth_running *out)
{
    out->copies = hth_read32(r);
    out->min_copies = hth_read32(r);
    out->keep = hth_read32(r);
    out->allow_degraded = hth_read32(r);
    out->recover_ms = hth_read32(r);
    out->save_ms = hth_read32(r);
    out->heartbeat_ms = hth_read32(r);
    out->dead_ms = hth_read32(r);
    out->stall_ms = hth_read32(r);
    out->linger_s = hth_read32(r);
    out->inflight_mib = hth_read32(r);
    out->bad_after = hth_read32(r);
    out->lease_bytes = hth_read64(r);
    out->spare_bytes = hth_read64(r);
}

int hth_running_decode_as(const struct hth_versions *versions, struct hth_running *out,
        const void *bytes, size_t len, struct hearth_error *err)
{
    struct hth_reader r = { .at = bytes, .len = len };
    struct hth_running x = { 0 };
    int rc;

    if ((rc = hth_read_record(&r, MAGIC, versions, NULL, err)))
        return rc;
    hth_read_zeros(&r, 4);
    x.epoch = hth_read64(&r);
    x.nonce = hth_read64(&r);
    x.chosen = hth_read_save(&r);
    read_opts(&r, &x);
    if (r.bad || len != HTH_RUNNING_BYTES)
        return hth_record_odd(&r, versions, err);
    *out = x;
    return HEARTH_OK;
}

int hth_running_decode(
        struct hth_running *out, const void *bytes, size_t len, struct hearth_error *err)
{
    return hth_running_decode_as(hth_versions_of(HTH_FORMAT_RUNNING), out, bytes, len, err);
}
