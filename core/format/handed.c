/* SPDX-License-Identifier: Apache-2.0 */
/* Objects handed over and not sealed. Layout: core/format/handed.h. */
#include "handed.h"
#include "record.h"

#include <stdlib.h>

#define MAGIC     "HTHANDED"
#define HEAD      16u
#define SETS_HEAD 8u
#define SET_HEAD  (HTH_SAVE_BYTES + 8u)
#define WITH_SETS 2u /* the versions that have them */
#define WITH_SUMS 3u

size_t hth_handed_bytes(const struct hth_handed_record *record)
{
    size_t len = HEAD + record->rows * HTH_HANDED_ROW + SETS_HEAD + HTH_DIGEST;

    for (size_t i = 0; i < record->sets; i++)
        len += SET_HEAD + hth_ranks_bytes(&record->set[i].ranks);
    return len;
}

static void handed_write_row(struct hth_writer *w, const struct hth_handed *row)
{
    hth_write_save(w, row->save);
    hth_write64(w, row->slot);
    hth_write64(w, row->generation);
    hth_write64(w, row->summed);
    hth_write64(w, row->data_len);
    hth_write64(w, row->items_len);
    hth_write32(w, row->items);
    hth_write32(w, row->rank);
    hth_write32(w, row->index);
    hth_write32(w, row->commons);
    hth_write_text(w, row->name, HTH_HANDED_NAME);
}

static void handed_write_set(struct hth_writer *w, const struct hth_handed_set *set)
{
    unsigned char runs[HTH_RANK_RUNS * HTH_RANK_RUN_BYTES];

    hth_ranks_encode(&set->ranks, runs);
    hth_write_save(w, set->save);
    hth_write32(w, set->ranks.runs);
    hth_write32(w, 0);
    hth_write(w, runs, hth_ranks_bytes(&set->ranks));
}

void hth_handed_encode(const struct hth_handed_record *record, unsigned char *out)
{
    struct hth_writer w = { .at = out, .cap = hth_handed_bytes(record) };

    hth_write(&w, MAGIC, 8);
    hth_write32(&w, hth_version_written(HTH_FORMAT_HANDED));
    hth_write32(&w, (uint32_t)record->rows);
    for (size_t i = 0; i < record->rows; i++)
        handed_write_row(&w, &record->row[i]);
    hth_write32(&w, (uint32_t)record->sets);
    hth_write32(&w, 0);
    for (size_t i = 0; i < record->sets; i++)
        handed_write_set(&w, &record->set[i]);
    hth_write_digest(&w);
}

static void handed_read_row(struct hth_reader *r, uint32_t version, struct hth_handed *out)
{
    uint64_t summed;

    out->save = hth_read_save(r);
    out->slot = hth_read64(r);
    out->generation = hth_read64(r);
    summed = hth_read64(r);
    out->summed = version >= WITH_SUMS ? summed : 0;
    r->bad |= out->summed > 1;
    out->data_len = hth_read64(r);
    out->items_len = hth_read64(r);
    out->items = hth_read32(r);
    out->rank = hth_read32(r);
    out->index = hth_read32(r);
    out->commons = hth_read32(r);
    hth_read_text(r, out->name, HTH_HANDED_NAME);
}

static void handed_read_set(struct hth_reader *r, struct hth_handed_set *out)
{
    const unsigned char *runs;
    uint32_t count;

    out->save = hth_read_save(r);
    count = hth_read32(r);
    r->bad |= hth_read32(r) != 0 || !count || count > HTH_RANK_RUNS;
    runs = r->bad ? NULL : hth_read(r, (size_t)count * HTH_RANK_RUN_BYTES);
    r->bad |= !runs ||
              hth_ranks_decode(&out->ranks, runs, (size_t)count * HTH_RANK_RUN_BYTES, NULL) ||
              hth_ranks_bits(&out->ranks) != hth_attempt_set(out->save.attempt);
}

static void handed_read_sets(struct hth_reader *r, struct hth_handed_record *out)
{
    uint32_t sets = hth_read32(r);

    r->bad |= hth_read32(r) != 0 || sets > HTH_HANDED_SETS;
    out->set = r->bad ? NULL : calloc(sets ? sets : 1, sizeof(*out->set));
    for (uint32_t i = 0; out->set && i < sets && !r->bad; i++, out->sets++)
        handed_read_set(r, &out->set[i]);
}

static int handed_read(struct hth_reader *r, const struct hth_versions *versions, uint32_t version,
        struct hth_handed_record *out, struct hearth_error *err)
{
    uint32_t rows = hth_read32(r);

    if (r->bad || rows > HTH_HANDED_MAX ||
            r->len - r->pos < (size_t)rows * HTH_HANDED_ROW + HTH_DIGEST)
        return hth_record_odd(r, versions, err);
    out->row = calloc(rows ? rows : 1, sizeof(*out->row));
    if (!out->row)
        return hth_fail(err, HEARTH_ENOMEM, 0, "no memory for a %s", versions->what);
    for (uint32_t i = 0; i < rows; i++)
        handed_read_row(r, version, &out->row[i]);
    out->rows = rows;
    if (version >= WITH_SETS) {
        handed_read_sets(r, out);
        if (!r->bad && !out->set)
            return hth_fail(err, HEARTH_ENOMEM, 0, "no memory for a %s", versions->what);
    }
    return r->bad || r->pos + HTH_DIGEST != r->len ? hth_record_odd(r, versions, err) : HEARTH_OK;
}

int hth_handed_decode_as(const struct hth_versions *versions, struct hth_handed_record *out,
        const void *bytes, size_t len, struct hearth_error *err)
{
    struct hth_reader r = { .at = bytes, .len = len };
    struct hth_handed_record record = { 0 };
    uint32_t version;
    int rc = hth_read_record(&r, MAGIC, versions, &version, err);

    rc = rc ? rc : handed_read(&r, versions, version, &record, err);
    if (rc)
        hth_handed_fini(&record);
    else
        *out = record;
    return rc;
}

int hth_handed_decode(
        struct hth_handed_record *out, const void *bytes, size_t len, struct hearth_error *err)
{
    return hth_handed_decode_as(hth_versions_of(HTH_FORMAT_HANDED), out, bytes, len, err);
}

void hth_handed_fini(struct hth_handed_record *record)
{
    free(record->row);
    free(record->set);
    *record = (struct hth_handed_record){ 0 };
}
