/* SPDX-License-Identifier: Apache-2.0 */
/* A `.metadata`. What it holds is found by its name, and every chunk lies within its tensor. */
#include <hearth/metadata.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void want(int good)
{
    if (!good)
        abort();
}

static void entry(struct hearth_metadata *md, size_t index)
{
    struct hearth_metadata_entry e = { .struct_size = sizeof(e) }, same = e;
    struct hearth_metadata_chunk c = { .struct_size = sizeof(c) };
    struct hearth_metadata_step step;
    int64_t shape[64];

    want(!hearth_metadata_entry_at(md, index, &e, NULL) && e.ndim <= 64);
    want(!hearth_metadata_entry_find(md, e.name.data, e.name.len, &same, NULL));
    want(same.index == index);
    for (uint32_t i = 0; i < e.ndim; i++)
        want((shape[i] = e.shape[i]) >= 0);
    for (size_t k = 0; k < e.chunks; k++) {
        want(!hearth_metadata_chunk_at(md, index, k, &c, NULL) && c.ndim == e.ndim);
        for (uint32_t i = 0; i < c.ndim; i++)
            want(c.offset[i] >= 0 && c.shape[i] >= 0 && c.offset[i] <= shape[i] - c.shape[i]);
    }
    for (size_t k = 0; k < e.path; k++)
        want(!hearth_metadata_path_at(md, index, k, &step, NULL));
}

static void stored(struct hearth_metadata *md, size_t index)
{
    struct hearth_metadata_stored s = { .struct_size = sizeof(s) }, same = s;
    int64_t offset[64];
    int rc;

    want(!hearth_metadata_stored_at(md, index, &s, NULL) && s.ndim <= 64);
    for (uint32_t i = 0; i < s.ndim; i++)
        want((offset[i] = s.offset[i]) >= 0);
    want(s.at + s.len <= INT64_MAX && s.path.len && s.path.data[0] != '/');
    rc = hearth_metadata_stored_find(
            md, s.name.data, s.name.len, s.has_offset ? offset : NULL, s.ndim, &same, NULL);
    want(rc == HEARTH_EUNSUPPORTED || (!rc && same.path.data == s.path.data && same.at == s.at));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct hearth_metadata_head info = { .struct_size = sizeof(info) };
    struct hearth_metadata *md;

    if (hearth_metadata_open(data, size, &md, NULL))
        return 0;
    want(!hearth_metadata_info(md, &info, NULL));
    for (size_t i = 0; i < info.entries; i++)
        entry(md, i);
    for (size_t i = 0; i < info.stored; i++)
        stored(md, i);
    hearth_metadata_close(md);
    return 0;
}
