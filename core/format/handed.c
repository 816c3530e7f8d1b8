/* SPDX-License-Identifier: Apache-2.0 */
/* Objects handed over and not sealed. Layout: core/format/handed.h. */
#include "handed.h"
#include "record.h"

#include <stdlib.h>

#define MAGIC "HTHANDED"
#define HEAD  16u

size_t hth_handed_bytes(size_t rows)
{
    return HEAD + rows * HTH_HANDED_ROW + HTH_DIGEST;
}

void hth_handed_encode(const struct hth_handed *row, size_t rows, unsigned char *out)
{
    struct hth_writer w = { .at = out, .cap = hth_handed_bytes(rows) };

    hth_write(&w, MAGIC, 8);
    hth_write32(&w, hth_version_written(HTH_FORMAT_HANDED));
    hth_write32(&w, (uint32_t)rows);
    for (size_t i = 0; i < rows; i++) {
        hth_write_save(&w, row[i].save);
        hth_write64(&w, row[i].slot);
        hth_write64(&w, row[i].generation);
        hth_write64(&w, row[i].bytes);
        hth_write64(&w, row[i].data_len);
        hth_write64(&w, row[i].items_len);
        hth_write32(&w, row[i].items);
        hth_write32(&w, row[i].rank);
        hth_write32(&w, row[i].index);
        hth_write32(&w, row[i].commons);
        hth_write_text(&w, row[i].name, HTH_HANDED_NAME);
    }
    hth_write_digest(&w);
}

static void handed_read_row(struct hth_reader *r, struct hth_handed *out)
{
    out->save = hth_read_save(r);
    out->slot = hth_read64(r);
    out->generation = hth_read64(r);
    out->bytes = hth_read64(r);
    out->data_len = hth_read64(r);
    out->items_len = hth_read64(r);
    out->items = hth_read32(r);
    out->rank = hth_read32(r);
    out->index = hth_read32(r);
    out->commons = hth_read32(r);
    hth_read_text(r, out->name, HTH_HANDED_NAME);
}

int hth_handed_decode_as(const struct hth_versions *versions, struct hth_handed **out_row,
        size_t *out_rows, const void *bytes, size_t len, struct hearth_error *err)
{
    struct hth_reader r = { .at = bytes, .len = len };
    struct hth_handed *row;
    uint32_t rows;
    int rc;

    if ((rc = hth_read_record(&r, MAGIC, versions, NULL, err)))
        return rc;
    rows = hth_read32(&r);
    if (r.bad || rows > HTH_HANDED_MAX || len != hth_handed_bytes(rows))
        return hth_record_odd(&r, versions, err);
    row = calloc(rows ? rows : 1, sizeof(*row));
    if (!row)
        return hth_fail(err, HEARTH_ENOMEM, 0, "no memory for a %s", versions->what);
    for (uint32_t i = 0; i < rows; i++)
        handed_read_row(&r, &row[i]);
    if (r.bad) {
        free(row);
        return hth_record_odd(&r, versions, err);
    }
    *out_row = row;
    *out_rows = rows;
    return HEARTH_OK;
}

int hth_handed_decode(struct hth_handed **out_row, size_t *out_rows, const void *bytes, size_t len,
        struct hearth_error *err)
{
    return hth_handed_decode_as(
            hth_versions_of(HTH_FORMAT_HANDED), out_row, out_rows, bytes, len, err);
}
