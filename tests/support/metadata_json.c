/* SPDX-License-Identifier: Apache-2.0 */
#include "metadata_json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void want(int good, const char *what)
{
    if (good)
        return;
    fprintf(stderr, "metadata: %s\n", what);
    abort();
}

static json_t *text(struct hearth_text t)
{
    return t.data ? json_stringn(t.data, t.len) : json_null();
}

static json_t *dims(const int64_t *at, uint32_t ndim)
{
    json_t *out = json_array();

    for (uint32_t i = 0; i < ndim; i++)
        json_array_append_new(out, json_integer(at[i]));
    return out;
}

static json_t *chunks(struct hearth_metadata *md, const struct hearth_metadata_entry *e)
{
    struct hearth_metadata_chunk c = { .struct_size = sizeof(c) };
    json_t *out = json_array();

    for (size_t i = 0; i < e->chunks; i++) {
        want(!hearth_metadata_chunk_at(md, e->index, i, &c, NULL), "a chunk is missing");
        want(c.ndim == e->ndim, "a chunk has other dimensions than its tensor");
        json_array_append_new(out, json_pack("{s:o,s:o}", "offsets", dims(c.offset, c.ndim),
                                           "sizes", dims(c.shape, c.ndim)));
    }
    want(hearth_metadata_chunk_at(md, e->index, e->chunks, &c, NULL) == HEARTH_ENOENT,
            "a chunk past the last");
    return out;
}

static json_t *entry(struct hearth_metadata *md, const struct hearth_metadata_entry *e)
{
    static const char *const formats[] = { "contiguous_format", "channels_last",
        "preserve_format" };
    json_t *name = text(e->name), *shape;

    if (e->kind == HEARTH_METADATA_BYTES)
        return json_pack("{s:o,s:s}", "fqn", name, "type", "bytes");
    if (e->kind == HEARTH_METADATA_UNKNOWN)
        return json_pack("{s:o,s:s,s:s%,s:s%}", "fqn", name, "type", "unknown", "module",
                e->unknown_module.data, e->unknown_module.len, "name", e->unknown_name.data,
                e->unknown_name.len);
    want(e->kind == HEARTH_METADATA_TENSOR && e->memory_format <= 2, "an entry of no kind");
    want(e->layout.len > 6 && !memcmp(e->layout.data, "torch.", 6), "a layout of no name");
    shape = dims(e->shape, e->ndim); /* chunks() overwrites it */
    return json_pack("{s:o,s:s,s:s,s:o,s:s%,s:b,s:s,s:b,s:o}", "fqn", name, "type", "tensor",
            "dtype", hearth_dtype_name((enum hearth_dtype)e->dtype), "size", shape, "layout",
            e->layout.data + 6, e->layout.len - 6, "requires_grad", (int)e->requires_grad,
            "memory_format", formats[e->memory_format], "pin_memory", (int)e->pin_memory, "chunks",
            chunks(md, e));
}

static json_t *path(struct hearth_metadata *md, const struct hearth_metadata_entry *e)
{
    struct hearth_metadata_step s;
    json_t *out = json_array();

    for (size_t i = 0; i < e->path; i++) {
        want(!hearth_metadata_path_at(md, e->index, i, &s, NULL), "a step is missing");
        json_array_append_new(out, s.key.data ? text(s.key) : json_integer(s.index));
    }
    want(hearth_metadata_path_at(md, e->index, e->path, &s, NULL) == HEARTH_ENOENT,
            "a step past the last");
    return out;
}

static json_t *stored(struct hearth_metadata *md, size_t index)
{
    struct hearth_metadata_stored s = { .struct_size = sizeof(s) }, again = s;
    int64_t offset[64] = { 0 };
    json_t *out;
    int rc;

    want(!hearth_metadata_stored_at(md, index, &s, NULL), "a place is missing");
    if (s.has_offset)
        memcpy(offset, s.offset, s.ndim * sizeof(*offset));
    out = json_pack("{s:o,s:o,s:o,s:o,s:I,s:I,s:i}", "fqn", text(s.name), "offset",
            s.has_offset ? dims(s.offset, s.ndim) : json_null(), "index",
            s.hint < 0 ? json_null() : json_integer(s.hint), "relative_path", text(s.path),
            "file_offset", (json_int_t)s.at, "length", (json_int_t)s.len, "transforms",
            (int)s.transforms);
    rc = hearth_metadata_stored_find(
            md, s.name.data, s.name.len, s.has_offset ? offset : NULL, s.ndim, &again, NULL);
    if (rc == HEARTH_EUNSUPPORTED) /* of an entry that is not known */
        return out;
    want(!rc, "a place is not found");
    want(again.path.data == s.path.data && again.at == s.at && again.len == s.len,
            "another place is found");
    return out;
}

static json_t *storage(const struct hearth_metadata_head *info)
{
    json_t *id = json_null();

    if (info->id_kind != HEARTH_ID_NONE)
        id = json_pack("{s:b,s:o}", "path", info->id_kind == HEARTH_ID_PATH, "value",
                text(info->checkpoint_id));
    return json_pack("{s:o,s:o,s:o,s:i}", "checkpoint_id", id, "save_id", text(info->save_id),
            "load_id", text(info->load_id), "modules", (int)info->modules);
}

json_t *metadata_json(struct hearth_metadata *md)
{
    struct hearth_metadata_head info = { .struct_size = sizeof(info) };
    struct hearth_metadata_entry e = { .struct_size = sizeof(e) }, again = e;
    json_t *entries = json_array(), *paths = json_array(), *places = json_array();
    size_t chunks_all = 0;

    want(!hearth_metadata_info(md, &info, NULL), "no info");
    for (size_t i = 0; i < info.entries; i++) {
        want(!hearth_metadata_entry_at(md, i, &e, NULL) && e.index == i, "an entry is missing");
        want(!hearth_metadata_entry_find(md, e.name.data, e.name.len, &again, NULL) &&
                        again.index == i,
                "another entry is found");
        json_array_append_new(entries, entry(md, &e));
        if (info.has_planner)
            json_array_append_new(
                    paths, json_pack("{s:o,s:o}", "fqn", text(e.name), "path", path(md, &e)));
        chunks_all += e.chunks;
    }
    want(hearth_metadata_entry_at(md, info.entries, &e, NULL) == HEARTH_ENOENT,
            "an entry past the last");
    for (size_t i = 0; i < info.stored; i++)
        json_array_append_new(places, stored(md, i));
    want(chunks_all == info.chunks, "the number of chunks is wrong");
    return json_pack("{s:o,s:o,s:o,s:o,s:o}", "version", text(info.version), "storage_meta",
            storage(&info), "state_dict_metadata", entries, "planner_data",
            info.has_planner ? paths : (json_decref(paths), json_null()), "storage_data",
            info.has_stored ? places : (json_decref(places), json_null()));
}
