/* SPDX-License-Identifier: Apache-2.0 */
/* How many engines have started on a store. Layout: core/format/life.h. */
#include "life.h"
#include "record.h"

#define MAGIC "HTHLIFES"

void hth_life_encode(uint64_t starts, unsigned char out[HTH_LIFE_BYTES])
{
    struct hth_writer w = { .at = out, .cap = HTH_LIFE_BYTES };

    hth_write(&w, MAGIC, 8);
    hth_write32(&w, hth_version_written(HTH_FORMAT_LIFE));
    hth_write32(&w, 0);
    hth_write64(&w, starts);
    hth_write_digest(&w);
}

int hth_life_decode_as(const struct hth_versions *versions, uint64_t *out, const void *bytes,
        size_t len, struct hearth_error *err)
{
    struct hth_reader r = { .at = bytes, .len = len };
    uint64_t starts;
    int rc;

    if ((rc = hth_read_record(&r, MAGIC, versions, NULL, err)))
        return rc;
    hth_read_zeros(&r, 4);
    starts = hth_read64(&r);
    if (r.bad || len != HTH_LIFE_BYTES)
        return hth_record_odd(&r, versions, err);
    *out = starts;
    return HEARTH_OK;
}

int hth_life_decode(uint64_t *out, const void *bytes, size_t len, struct hearth_error *err)
{
    return hth_life_decode_as(hth_versions_of(HTH_FORMAT_LIFE), out, bytes, len, err);
}
