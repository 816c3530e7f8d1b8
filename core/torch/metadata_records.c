/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A complete value becomes a record: a chunk once it is in a list, a tensor once it has a name, a
 * place once index and storage info are a pair. The records of one list or dict lie one behind the
 * other; a list or dict of anything else has no records, and may stand only in an attribute that is
 * ignored.
 */
#include "metadata_parts.h"

#include <stdlib.h>

/* List or dict `over` takes an element of kind `holds`, whose record will be number `records`. 1:
 * that is what it holds; 0: it is mixed now and has no records; less: refused. */
static int cell_becomes(struct md_machine *m, struct md_cell *over, enum md_holds holds,
        uint32_t records, uint32_t at)
{
    if (over->holds == MD_EMPTY && holds != MD_MIXED) {
        over->holds = (uint8_t)holds;
        over->first = records;
    } else if (over->holds != holds || holds == MD_MIXED) {
        if (over->holds != MD_MIXED)
            over->bad = at;
        if (over->holds != MD_CHUNKS)
            md_forget(m, over);
        over->holds = MD_MIXED;
        return 0;
    }
    if (over->first + over->count != records)
        return md_refuse_at(m, at, "two of a kind that grow by turns");
    over->count++;
    return 1;
}

int md_element(struct md_machine *m, struct md_cell *list, const struct md_slot *value)
{
    struct hearth_metadata *md = m->md;
    const struct md_slot *attr = m->cell.at[value->kind == MD_CHUNK ? value->x : 0].attr;
    enum md_holds holds = value->kind == MD_CHUNK  ? MD_CHUNKS
                          : value->kind == MD_TEXT ? MD_TEXTS
                                                   : MD_MIXED;
    uint32_t records = holds == MD_CHUNKS ? md->chunk.count : list->first + list->count;
    int is;

    if (md_unknown(m, value, &list->unknown)) {
        md_drop(m, value);
        return HEARTH_OK;
    }
    if ((is = cell_becomes(m, list, holds, records, value->at)) < 0)
        return is;
    if (is && holds == MD_CHUNKS) {
        if (list->count == 1)
            list->ndim = attr[MD_C_SIZES].n;
        if (list->ndim != attr[MD_C_SIZES].n)
            return md_refuse_at(m, value->at, "chunks of %u and of %u dimensions", list->ndim,
                    attr[MD_C_SIZES].n);
        if (!MD_ROOM(m, md->chunk))
            return m->rc;
        md->chunk.at[md->chunk.count++] =
                (struct md_chunk){ attr[MD_C_OFFSETS].at, attr[MD_C_SIZES].at };
    }
    md_drop(m, value);
    return HEARTH_OK;
}

/* ---- Tensors ------------------------------------------------------------------------------ */

static int chunk_check(
        struct md_machine *m, const struct md_chunk *c, const int64_t *shape, uint32_t ndim)
{
    const unsigned char *offset = m->md->bytes + c->offset, *size = m->md->bytes + c->shape;

    for (uint32_t i = 0; i < ndim; i++) {
        int64_t from = md_int_next(&offset), n = md_int_next(&size);

        if (from > shape[i] || n > shape[i] - from)
            return md_refuse_at(m, c->shape,
                    "dimension %" PRIu32 " of a chunk is %" PRId64 " at %" PRId64
                    ", and of its tensor %" PRId64,
                    i, n, from, shape[i]);
    }
    return HEARTH_OK;
}

/* Each list is gone through once, however many tensors share it. */
static int chunks_check(struct md_machine *m, struct md_cell *list, const struct md_slot *shape)
{
    int64_t dims[HTH_DIMS_MAX], other[HTH_DIMS_MAX];

    if (list->holds == MD_EMPTY)
        return HEARTH_OK;
    if (list->holds != MD_CHUNKS)
        return md_refuse_at(m, list->bad ? list->bad : list->at, "no chunk, in a list of chunks");
    if (list->ndim != shape->n)
        return md_refuse_at(m, list->at, "chunks of %" PRIu32 " dimensions, and a tensor of %u",
                list->ndim, shape->n);
    md_dims(m->md, shape->at, shape->n, dims);
    if (list->shape_at) {
        md_dims(m->md, list->shape_at, shape->n, other);
        if (memcmp(dims, other, shape->n * sizeof(*dims)) != 0)
            return md_refuse_at(m, list->at, "chunks that tensors of two shapes share");
        return HEARTH_OK;
    }
    list->shape_at = shape->at;
    for (uint32_t i = 0; i < list->count; i++)
        if (chunk_check(m, &m->md->chunk.at[list->first + i], dims, shape->n))
            return m->rc;
    return HEARTH_OK;
}

int md_tensor(struct md_machine *m, struct md_slot *attr)
{
    struct md_slot properties = attr[MD_T_PROPERTIES], list = attr[MD_T_CHUNKS];
    const struct md_slot *shape = &attr[MD_T_SHAPE];
    struct hth_header h = { .ndim = shape->n };
    uint64_t bytes;

    attr[MD_T_PROPERTIES] = m->cell.at[properties.x].attr[0];
    h.dtype = (enum hearth_dtype)attr[MD_T_PROPERTIES].small;
    md_dims(m->md, shape->at, shape->n, h.shape);
    if (hth_header_bytes(&h, &bytes, NULL)) { /* huge_check() compares it with what is stored */
        attr[MD_T_PROPERTIES].n |= MD_HUGE;
        m->md->huge = 1;
    }
    if (chunks_check(m, &m->cell.at[list.x], shape))
        return m->rc;
    attr[MD_T_CHUNKS] = (struct md_slot){ .kind = MD_OPAQUE,
        .at = list.at,
        .x = m->cell.at[list.x].first,
        .y = m->cell.at[list.x].count };
    md_drop(m, &properties);
    md_drop(m, &list);
    return HEARTH_OK;
}

/* ---- Pairs -------------------------------------------------------------------------------- */

static struct md_entry entry_record(
        const struct md_machine *m, const struct md_slot *key, const struct md_slot *value)
{
    struct md_entry e = { .name = key->at, .hash = key->y };
    const struct md_slot *attr;

    if (value->kind == MD_BYTES || md_unknown(m, value, &e.unknown))
        return e;
    attr = m->cell.at[value->x].attr;
    e.tensor = 1;
    e.dtype = attr[MD_T_PROPERTIES].small;
    e.flags = (uint8_t)attr[MD_T_PROPERTIES].n;
    e.layout = attr[MD_T_PROPERTIES].at;
    e.shape = attr[MD_T_SHAPE].at;
    e.ndim = (uint8_t)attr[MD_T_SHAPE].n;
    e.chunk = attr[MD_T_CHUNKS].x;
    e.chunks = attr[MD_T_CHUNKS].y;
    return e;
}

static struct md_stored stored_record(
        const struct md_machine *m, const struct md_slot *key, const struct md_slot *value)
{
    const struct md_slot *i = m->cell.at[key->x].attr, *s = m->cell.at[value->x].attr;
    struct md_stored out = { .name = i[MD_I_NAME].at,
        .hash = i[MD_I_NAME].y,
        .path = s[MD_S_PATH].at,
        .at = s[MD_S_AT].at,
        .len = s[MD_S_LENGTH].at,
        .transforms = (uint16_t)s[MD_S_TRANSFORMS].i };

    if (i[MD_I_HINT].kind == MD_INT)
        out.hint = i[MD_I_HINT].at;
    if (i[MD_I_OFFSET].kind == MD_SIZE) {
        out.has_offset = 1;
        out.offset = i[MD_I_OFFSET].at;
        out.ndim = (uint8_t)i[MD_I_OFFSET].n;
    }
    return out;
}

static enum md_holds pair_kind(const struct md_slot *key, const struct md_slot *value)
{
    if (key->kind == MD_INDEX && value->kind == MD_STORED)
        return MD_PLACES;
    if (key->kind != MD_TEXT)
        return MD_MIXED;
    if (value->kind == MD_TENSOR || value->kind == MD_BYTES || value->kind == MD_UNKNOWN)
        return MD_ENTRIES;
    return value->kind == MD_INTS || (value->kind == MD_TUPLE && value->n & MD_OF_STEPS) ? MD_PATHS
                                                                                         : MD_MIXED;
}

/* The record of a pair, behind those of its kind. */
static int pair_add(struct md_machine *m, enum md_holds holds, const struct md_slot *key,
        const struct md_slot *value)
{
    struct hearth_metadata *md = m->md;

    if (holds == MD_ENTRIES) {
        if (MD_ROOM(m, md->entry))
            md->entry.at[md->entry.count++] = entry_record(m, key, value);
    } else if (holds == MD_PATHS) {
        if (MD_ROOM(m, md->path))
            md->path.at[md->path.count++] = (struct md_path){ key->at, key->y, *value };
        if (value->kind == MD_TUPLE) /* its steps stay where they are */
            m->heap_floor = md->heap.count;
    } else if (MD_ROOM(m, md->stored)) {
        md->stored.at[md->stored.count++] = stored_record(m, key, value);
    }
    return m->rc;
}

/* A place or path with an unknown class in it has no record, and its entry is not known. 1: this is
 * one; 0: it is not; less: refused. */
static int pair_unknown(struct md_machine *m, struct md_cell *dict, const struct md_slot *key,
        const struct md_slot *value)
{
    const struct md_slot *name = key->kind == MD_INDEX ? &m->cell.at[key->x].attr[MD_I_NAME] : key;
    int place = (key->kind == MD_INDEX || key->kind == MD_UNKNOWN) &&
                (dict->holds == MD_EMPTY || dict->holds == MD_PLACES);
    int path = key->kind == MD_TEXT && (value->kind == MD_TUPLE || value->kind == MD_UNKNOWN) &&
               (dict->holds == MD_PATHS || (dict->holds == MD_EMPTY && value->kind == MD_TUPLE));
    struct md_what what;

    if ((!place && !path) || !(md_unknown(m, key, &what) || md_unknown(m, value, &what)))
        return 0;
    if (name->kind == MD_TEXT) {
        if (!MD_ROOM(m, m->md->spoiled))
            return m->rc;
        m->md->spoiled.at[m->md->spoiled.count++] =
                (struct md_spoiled){ name->at, name->y, dict->at, what };
    }
    md_drop(m, value);
    md_drop(m, key);
    return 1;
}

int md_pair(struct md_machine *m, struct md_cell *dict, const struct md_slot *key,
        const struct md_slot *value)
{
    struct hearth_metadata *md = m->md;
    enum md_holds holds = pair_kind(key, value);
    uint32_t records = holds == MD_ENTRIES  ? md->entry.count
                       : holds == MD_PATHS  ? md->path.count
                       : holds == MD_PLACES ? md->stored.count
                                            : 0;
    int is;

    if (key->kind == MD_BYTES || (key->kind > MD_GLOBAL && key->kind != MD_INDEX))
        return md_refuse_at(m, key->at, "a key that is a list, a dict or an object");
    if ((is = pair_unknown(m, dict, key, value)))
        return is < 0 ? is : HEARTH_OK;
    if ((is = cell_becomes(m, dict, holds, records, holds == MD_MIXED ? value->at : key->at)) < 0)
        return is;
    if (is && pair_add(m, holds, key, value))
        return m->rc;
    md_drop(m, value);
    md_drop(m, key);
    return HEARTH_OK;
}

/* ---- The whole ---------------------------------------------------------------------------- */

/* The parts of a path as pathlib joins them. */
static int path_join(struct md_machine *m, const struct md_slot *path)
{
    struct hearth_metadata *md = m->md;
    const struct md_slot *part = &md->heap.at[path->x];
    size_t len = 1, n = 0;

    for (uint32_t i = 0; i < path->y; i++)
        if ((len += part[i].x + (size_t)1) > UINT16_MAX)
            return md_refuse_at(m, path->at, "a path of more than %d bytes", UINT16_MAX);
    if (!(md->id = malloc(len + 1)))
        return m->rc = hth_fail(m->err, HEARTH_ENOMEM, 0, "no memory for a path");
    for (uint32_t i = 0; i < path->y; i++) {
        if (n && md->id[n - 1] != '/' && md->id[n - 1] != '\\')
            md->id[n++] = path->small ? '\\' : '/';
        memcpy(md->id + n, md_text(md, part[i].at).data, part[i].x);
        n += part[i].x;
    }
    if (n == 0)
        md->id[n++] = '.';
    md->info.checkpoint_id = (struct hearth_text){ md->id, n };
    return HEARTH_OK;
}

static struct hearth_text text_or_none(const struct hearth_metadata *md, const struct md_slot *s)
{
    return s->kind == MD_TEXT ? md_text(md, s->at) : (struct hearth_text){ 0 };
}

static int root_storage(struct md_machine *m, const struct md_slot *attr)
{
    struct hearth_metadata_head *info = &m->md->info;

    info->save_id = text_or_none(m->md, &attr[MD_G_SAVE]);
    info->load_id = text_or_none(m->md, &attr[MD_G_LOAD]);
    info->modules = (uint32_t)attr[MD_G_MODULES].i;
    info->checkpoint_id = text_or_none(m->md, &attr[MD_G_ID]);
    if (attr[MD_G_ID].kind == MD_TEXT)
        info->id_kind = HEARTH_ID_TEXT;
    if (attr[MD_G_ID].kind != MD_PATH)
        return HEARTH_OK;
    info->id_kind = HEARTH_ID_PATH;
    return path_join(m, &attr[MD_G_ID]);
}

static int none_known(const struct hearth_metadata *md, const struct md_cell *entries)
{
    uint32_t i = 0;

    while (i < entries->count && md->entry.at[entries->first + i].unknown.name)
        i++;
    return i == entries->count;
}

/* Keep the spoiled ones that are in the root's own dicts. */
static void spoiled_keep(
        struct md_machine *m, const struct md_slot *planner, const struct md_slot *places)
{
    struct md_spoiled *all = m->md->spoiled.at;
    uint32_t kept = 0;

    for (uint32_t i = 0; i < m->md->spoiled.count; i++)
        if ((planner->kind == MD_DICT && all[i].dict == m->cell.at[planner->x].at) ||
                (places->kind == MD_DICT && all[i].dict == m->cell.at[places->x].at))
            all[kept++] = all[i];
    m->md->spoiled.count = kept;
}

/* The range of a dict that may hold nothing but `holds`. */
static int root_range(struct md_machine *m, const struct md_slot *s, enum md_holds holds,
        uint32_t *out_first, uint32_t *out_count, const char *what)
{
    const struct md_cell *c = &m->cell.at[s->x];

    if (s->kind != MD_DICT || c->holds == MD_EMPTY)
        return HEARTH_OK;
    if (holds == MD_PATHS && c->holds == MD_ENTRIES && none_known(m->md, c))
        return HEARTH_OK;
    if (c->holds != holds)
        return md_refuse_at(m, c->bad ? c->bad : c->at, "this is nothing for %s", what);
    *out_first = c->first;
    *out_count = c->count;
    return HEARTH_OK;
}

int md_root(struct md_machine *m, const struct md_cell *metadata)
{
    struct hearth_metadata *md = m->md;
    const struct md_slot *attr = metadata->attr;

    if (root_range(m, &attr[MD_M_STATE_DICT], MD_ENTRIES, &md->first_entry, &md->entries,
                "state_dict_metadata") ||
            root_range(m, &attr[MD_M_STORAGE_DATA], MD_PLACES, &md->first_stored, &md->storeds,
                    "storage_data") ||
            root_range(
                    m, &attr[MD_M_PLANNER], MD_PATHS, &md->first_path, &md->paths, "planner_data"))
        return m->rc;
    spoiled_keep(m, &attr[MD_M_PLANNER], &attr[MD_M_STORAGE_DATA]);
    md->info.entries = md->entries;
    md->info.stored = md->storeds;
    for (uint32_t i = 0; i < md->entries; i++)
        md->info.chunks += md->entry.at[md->first_entry + i].chunks;
    md->info.has_stored = attr[MD_M_STORAGE_DATA].kind == MD_DICT;
    md->info.has_planner = attr[MD_M_PLANNER].kind == MD_DICT;
    md->info.version = text_or_none(md, &attr[MD_M_VERSION]);
    return attr[MD_M_STORAGE].kind == MD_STORAGE
                   ? root_storage(m, m->cell.at[attr[MD_M_STORAGE].x].attr)
                   : HEARTH_OK;
}
