/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The classes and functions that a `.metadata` may name, and what is made of them: a row each, and
 * for a class the attributes that are looked at, with what they may hold. Attributes that are in no
 * row are ignored, those that begin with __ refused. A class or function without a row is not
 * known, and neither is an object that needs it; everything else is read.
 */
#include "metadata_parts.h"

#define D "torch.distributed.checkpoint.metadata"
#define L "torch.distributed._shard.sharded_tensor.metadata" /* until torch 2.2 */

enum { SIZE = MD_KINDS, LAYOUT, FORMAT, GETATTR, PATH, DTYPE = 100 }; /* ids below: classes */

static const struct hth_pickle_global globals[] = {
    { .module = D, .name = "Metadata", .id = MD_METADATA },
    { .module = D, .name = "TensorStorageMetadata", .id = MD_TENSOR },
    { .module = D, .name = "BytesStorageMetadata", .id = MD_BYTES },
    { .module = D, .name = "TensorProperties", .id = MD_NEW_PROPERTIES },
    { .module = L, .name = "TensorProperties", .id = MD_NEW_PROPERTIES },
    { .module = D, .name = "ChunkStorageMetadata", .id = MD_CHUNK },
    { .module = D, .name = "MetadataIndex", .id = MD_INDEX },
    { .module = D, .name = "StorageMeta", .id = MD_STORAGE },
    { .module = "torch.distributed.checkpoint.filesystem",
            .name = "_StorageInfo",
            .id = MD_STORED },
    { .module = D, .name = "_MEM_FORMAT_ENCODING", .id = FORMAT },
    { .module = L, .name = "MEM_FORMAT_ENCODING", .id = FORMAT },
    { .module = "builtins", .name = "getattr", .id = GETATTR },
    { .module = "torch", .name = "Size", .id = SIZE },
    { .module = "torch.serialization", .name = "_get_layout", .id = LAYOUT },
#define PATHS(from)                                                  \
    { .module = from, .name = "PosixPath", .id = PATH },             \
            { .module = from, .name = "PurePosixPath", .id = PATH }, \
            { .module = from, .name = "WindowsPath", .id = PATH },   \
    {                                                                \
        .module = from, .name = "PureWindowsPath", .id = PATH        \
    }
    PATHS("pathlib"), PATHS("pathlib._local"),
#undef PATHS
#define HEARTH_X(enumerator, value, text, bytes) \
    { .module = "torch", .name = text, .id = DTYPE + (value) },
    HEARTH_DTYPES(HEARTH_X)
#undef HEARTH_X
};

struct field {
    uint8_t attr; /* enum md_attr */
    uint8_t optional;
    uint32_t kinds; /* bits of enum md_kind */
};

#define IS(kind) (UINT32_C(1) << (kind))

static const struct class
{
    const char *name;
    struct field field[MD_ATTRS]; /* attr 0: no more */
} classes[MD_KINDS] = {
    [MD_METADATA] = { "Metadata",
            {
                    [MD_M_STATE_DICT] = { MD_A_STATE_DICT, 0, IS(MD_DICT) },
                    [MD_M_PLANNER] = { MD_A_PLANNER, 1, IS(MD_DICT) | IS(MD_NONE) },
                    [MD_M_STORAGE_DATA] = { MD_A_STORAGE_DATA, 1, IS(MD_DICT) | IS(MD_NONE) },
                    [MD_M_STORAGE] = { MD_A_STORAGE_META, 1, IS(MD_STORAGE) | IS(MD_NONE) },
                    [MD_M_VERSION] = { MD_A_VERSION, 1, IS(MD_TEXT) | IS(MD_NONE) },
            } },
    [MD_TENSOR] = { "TensorStorageMetadata",
            {
                    [MD_T_PROPERTIES] = { MD_A_PROPERTIES, 0, IS(MD_NEW_PROPERTIES) },
                    [MD_T_SHAPE] = { MD_A_SIZE, 0, IS(MD_SIZE) },
                    [MD_T_CHUNKS] = { MD_A_CHUNKS, 0, IS(MD_LIST) },
            } },
    [MD_CHUNK] = { "ChunkStorageMetadata",
            {
                    [MD_C_OFFSETS] = { MD_A_OFFSETS, 0, IS(MD_SIZE) },
                    [MD_C_SIZES] = { MD_A_SIZES, 0, IS(MD_SIZE) },
            } },
    [MD_INDEX] = { "MetadataIndex",
            {
                    [MD_I_NAME] = { MD_A_FQN, 0, IS(MD_TEXT) },
                    [MD_I_HINT] = { MD_A_INDEX, 1, IS(MD_INT) | IS(MD_NONE) },
                    [MD_I_OFFSET] = { MD_A_OFFSET, 1, IS(MD_SIZE) | IS(MD_NONE) },
            } },
    [MD_STORED] = { "_StorageInfo",
            {
                    [MD_S_PATH] = { MD_A_PATH, 0, IS(MD_TEXT) },
                    [MD_S_AT] = { MD_A_OFFSET, 0, IS(MD_INT) },
                    [MD_S_LENGTH] = { MD_A_LENGTH, 0, IS(MD_INT) },
                    [MD_S_TRANSFORMS] = { MD_A_TRANSFORMS, 1,
                            IS(MD_LIST) | IS(MD_TUPLE) | IS(MD_INTS) | IS(MD_NONE) },
            } },
    [MD_STORAGE] = { "StorageMeta",
            {
                    [MD_G_ID] = { MD_A_CHECKPOINT_ID, 1, IS(MD_TEXT) | IS(MD_PATH) | IS(MD_NONE) },
                    [MD_G_SAVE] = { MD_A_SAVE_ID, 1, IS(MD_TEXT) | IS(MD_NONE) },
                    [MD_G_LOAD] = { MD_A_LOAD_ID, 1, IS(MD_TEXT) | IS(MD_NONE) },
                    [MD_G_MODULES] = { MD_A_MODULES, 1, IS(MD_LIST) | IS(MD_NONE) },
            } },
};

static const struct {
    const char *name;
    uint8_t len, attr;
} attrs[] = {
#define A(text, attr)                \
    {                                \
        text, sizeof(text) - 1, attr \
    }
    A("state_dict_metadata", MD_A_STATE_DICT),
    A("planner_data", MD_A_PLANNER),
    A("storage_data", MD_A_STORAGE_DATA),
    A("storage_meta", MD_A_STORAGE_META),
    A("version", MD_A_VERSION),
    A("properties", MD_A_PROPERTIES),
    A("size", MD_A_SIZE),
    A("chunks", MD_A_CHUNKS),
    A("offsets", MD_A_OFFSETS),
    A("sizes", MD_A_SIZES),
    A("fqn", MD_A_FQN),
    A("index", MD_A_INDEX),
    A("offset", MD_A_OFFSET),
    A("checkpoint_id", MD_A_CHECKPOINT_ID),
    A("save_id", MD_A_SAVE_ID),
    A("load_id", MD_A_LOAD_ID),
    A("modules", MD_A_MODULES),
    A("relative_path", MD_A_PATH),
    A("length", MD_A_LENGTH),
    A("transform_descriptors", MD_A_TRANSFORMS),
#undef A
};

enum md_attr md_attr_of(const unsigned char *text, size_t len)
{
    if (len >= 2 && text[0] == '_' && text[1] == '_')
        return MD_DUNDER;
    if (len > 21 || len < 3)
        return MD_NO_ATTR;
    for (size_t i = 0; i < sizeof(attrs) / sizeof(attrs[0]); i++)
        if (attrs[i].len == len && !memcmp(attrs[i].name, text, len))
            return (enum md_attr)attrs[i].attr;
    return MD_NO_ATTR;
}

/* ---- Globals and calls -------------------------------------------------------------------- */

static int text_is(const char *want, struct hearth_text text)
{
    return strlen(want) == text.len && !memcmp(want, text.data, text.len);
}

struct md_slot *md_stack_global(struct md_machine *m, struct md_slot *sp)
{
    struct hearth_text module, name;
    struct md_slot *e = sp - 2;
    uint32_t x, y;
    int id;

    if (sp - m->floor < 2 || e[0].kind != MD_TEXT || e[1].kind != MD_TEXT)
        return md_refuse(m, "a global whose names are no texts");
    x = e[0].at;
    y = e[1].at;
    module = md_text(m->md, e[0].at);
    name = md_text(m->md, e[1].at);
    for (size_t row = 0; row < sizeof(globals) / sizeof(globals[0]); row++) {
        if (!text_is(globals[row].name, name) || !text_is(globals[row].module, module))
            continue;
        id = globals[row].id;
        *e = (struct md_slot){ .kind = id < DTYPE ? MD_GLOBAL : MD_DTYPE,
            .small = (uint8_t)(id < DTYPE ? (int)row : id - DTYPE),
            .at = (uint32_t)(m->op - m->md->bytes),
            .x = x,
            .y = y };
        return e + 1;
    }
    *e = (struct md_slot){
        .kind = MD_UNKNOWN, .at = (uint32_t)(m->op - m->md->bytes), .x = x, .y = y
    };
    return e + 1;
}

/* Put an object of an unknown class in the place of the class; its arguments are dropped. */
static struct md_slot *object_stand_in(
        struct md_machine *m, struct md_slot *class, struct md_slot *sp)
{
    for (struct md_slot *arg = sp; arg-- > class + 1;) {
        if (arg->kind > MD_GLOBAL && md_place(m, arg))
            return NULL;
        md_drop(m, arg);
    }
    class->small = 1;
    class->at = (uint32_t)(m->op - m->md->bytes);
    return class + 1;
}

static int is_class(const struct md_slot *s)
{
    return s->kind == MD_UNKNOWN && !s->small;
}

struct md_slot *md_newobj_ex(struct md_machine *m, struct md_slot *sp)
{
    if (sp - m->floor < 3 || !is_class(sp - 3))
        return md_refuse(
                m, "a new object, with named arguments, of what is no class or takes none");
    return object_stand_in(m, sp - 3, sp);
}

struct md_slot *md_newobj(struct md_machine *m, struct md_slot *sp)
{
    struct md_slot *e = sp - 2;
    uint32_t cell = 0;
    int id;

    if (sp - m->floor >= 2 && is_class(e))
        return object_stand_in(m, e, sp);
    if (sp - m->floor < 2 || e[0].kind != MD_GLOBAL || (id = globals[e[0].small].id) >= MD_KINDS)
        return md_refuse(m, "a new object of what is no class");
    if (e[1].kind != MD_INTS || e[1].n)
        return md_refuse(m, "a new %s with arguments", globals[e[0].small].name);
    if (id != MD_BYTES && (cell = md_cell_new(m)) == UINT32_MAX)
        return NULL;
    *e = (struct md_slot){ .kind = (uint8_t)id, .at = (uint32_t)(m->op - m->md->bytes), .x = cell };
    return e + 1;
}

/* A member of the enum of memory formats, by its number or its name. */
static int object_format(const struct md_machine *m, const struct md_slot *arg)
{
    static const char *const member[] = { "TORCH_CONTIGUOUS_FORMAT", "TORCH_CHANNELS_LAST",
        "TORCH_PRESERVE_FORMAT" };
    int64_t i = arg->kind == MD_INTS && arg->n == 1 ? md_int(m->md, arg->at) : -1;

    if (arg->kind == MD_TEXT)
        for (i = 2; i >= 0 && !text_is(member[i], md_text(m->md, arg->at)); i--)
            ;
    return i >= 0 && i <= 2 ? (int)i : -1;
}

/* A number that a member may have in a later torch. */
static int later_format(const struct md_machine *m, const struct md_slot *arg)
{
    int64_t number = arg->kind == MD_INTS && arg->n == 1 ? md_int(m->md, arg->at) : 0;

    return number > 0 && number <= UINT8_MAX;
}

/* Puts the result of a call into e[0]. 0: the callee does not take these arguments. */
static int object_call(struct md_machine *m, struct md_slot *e, int id)
{
    struct md_slot *arg = e + 1, *of = NULL;
    uint32_t n = 0;
    int i;

    if (arg->kind == MD_TUPLE) {
        of = &m->md->heap.at[arg->x];
        n = arg->y;
    }
    if (id == SIZE && arg->kind == MD_ARGS && !(arg->small & MD_NEGATIVE)) {
        *e = *arg;
        e->kind = MD_SIZE;
        return 1;
    }
    if (id == LAYOUT && n == 1 && of->kind == MD_TEXT && of->x > 6 &&
            !memcmp(md_text(m->md, of->at).data, "torch.", 6)) {
        *e = *of;
        e->kind = MD_LAYOUT;
        return 1;
    }
    if (id == FORMAT && (i = object_format(m, arg)) >= 0) {
        *e = (struct md_slot){ .kind = MD_FORMAT, .small = (uint8_t)i, .at = e->at };
        return 1;
    }
    if (id == FORMAT && later_format(m, arg)) {
        e->kind = MD_UNKNOWN;
        e->small = 1;
        return 1;
    }
    if (id == GETATTR && n == 2 && of->kind == MD_GLOBAL && globals[of->small].id == FORMAT &&
            of[1].kind == MD_TEXT && (i = object_format(m, of + 1)) >= 0) {
        *e = (struct md_slot){ .kind = MD_FORMAT, .small = (uint8_t)i, .at = e->at };
        return 1;
    }
    return 0;
}

/* pathlib's classes take their parts, or from Python 3.13 on one text. */
static int object_path(struct md_machine *m, struct md_slot *e)
{
    const struct md_slot *arg = e + 1;
    uint32_t row = e->small;

    if (arg->kind == MD_TUPLE ? !(arg->n & MD_OF_TEXTS) : arg->kind != MD_INTS || arg->n)
        return 0;
    *e = (struct md_slot){ .kind = MD_PATH,
        .small = strstr(globals[row].name, "Windows") != NULL,
        .at = e->at,
        .x = arg->kind == MD_TUPLE ? arg->x : 0,
        .y = arg->kind == MD_TUPLE ? arg->y : 0 };
    m->heap_floor = m->md->heap.count; /* its parts stay */
    return 1;
}

struct md_slot *md_reduce(struct md_machine *m, struct md_slot *sp)
{
    struct md_slot *e = sp - 2, arg;
    int id;

    if (sp - m->floor >= 2 && is_class(e))
        return object_stand_in(m, e, sp);
    if (sp - m->floor < 2 || e[0].kind != MD_GLOBAL || (id = globals[e[0].small].id) < MD_KINDS)
        return md_refuse(m, "a call of what cannot be called");
    arg = e[1];
    if (id == PATH ? !object_path(m, e) : !object_call(m, e, id))
        return md_refuse(m, "%s does not take these arguments", globals[e[0].small].name);
    if (id != PATH)
        md_drop(m, &arg);
    return e + 1;
}

/* ---- Attributes --------------------------------------------------------------------------- */

int md_attributes(struct md_machine *m, const struct md_slot *object, const struct md_slot *values,
        size_t pairs)
{
    const struct field *field = classes[object->kind].field;
    struct md_cell *c = &m->cell.at[object->x];

    for (const struct md_slot *v = values; pairs; pairs--, v += 2) {
        unsigned i = 0;

        if (v[0].kind != MD_TEXT)
            return md_refuse_at(m, v[0].at, "an attribute's name is not a text");
        if (v[0].small == MD_DUNDER)
            return md_refuse_at(m, v[0].at, "an attribute whose name begins with __");
        if (md_place(m, &v[1]))
            return m->rc;
        while (i < MD_ATTRS && field[i].attr && field[i].attr != v[0].small)
            i++;
        if (v[0].small == MD_NO_ATTR || i == MD_ATTRS || !field[i].attr) {
            md_drop(m, &v[1]);
            continue;
        }
        if (c->set & 1u << i)
            return md_refuse_at(m, v[0].at, "an attribute that comes twice");
        c->set |= (uint8_t)(1u << i);
        c->attr[i] = v[1];
    }
    return HEARTH_OK;
}

/* An attribute that has an unknown class in it counts as absent where the object can do without it;
 * else the object is not known either. */
static int field_unknown(const struct md_machine *m, const struct md_slot *object,
        const struct field *f, struct md_cell *c, struct md_slot *value)
{
    struct md_what what;

    if (!md_unknown(m, value, &what) || (object->kind == MD_METADATA && !f->optional))
        return 0;
    if (object->kind == MD_METADATA || object->kind == MD_STORAGE)
        *value = (struct md_slot){ .kind = MD_NONE };
    else
        c->unknown = what;
    return 1;
}

/* The attributes are what the class wants; those that are absent become None. */
static int fields_check(struct md_machine *m, const struct md_slot *object, struct md_cell *c)
{
    const struct class *class = &classes[object->kind];

    for (unsigned i = 0; i < MD_ATTRS && class->field[i].attr; i++) {
        const struct field *f = &class->field[i];
        const char *name = attrs[f->attr - MD_A_STATE_DICT].name;

        if (!(c->set & 1u << i)) {
            if (!f->optional)
                return md_refuse_at(m, object->at, "a %s without %s", class->name, name);
            c->attr[i] = (struct md_slot){ .kind = MD_NONE };
        } else if (!field_unknown(m, object, f, c, &c->attr[i]) &&
                   !(f->kinds >> c->attr[i].kind & 1)) {
            return md_refuse_at(
                    m, c->attr[i].at, "the %s of a %s cannot be this", name, class->name);
        }
    }
    return HEARTH_OK;
}

/* ---- Objects that are complete ------------------------------------------------------------ */

/* (dtype, layout, requires_grad, memory format, pin_memory), and what later torches add: then one
 * slot holds them all. */
static int object_properties(struct md_machine *m, struct md_cell *c, const struct md_slot *state)
{
    const struct md_slot *e;

    if (state->kind != MD_TUPLE || state->y < 5)
        return md_refuse_at(
                m, state->at, "the state of TensorProperties is no tuple of five or more");
    e = &m->md->heap.at[state->x];
    for (int i = 0; i < 5; i++)
        if (md_unknown(m, &e[i], &c->unknown))
            return HEARTH_OK;
    if (e[0].kind != MD_DTYPE || e[1].kind != MD_LAYOUT || e[2].kind != MD_BOOL ||
            e[3].kind != MD_FORMAT || e[4].kind != MD_BOOL)
        return md_refuse_at(m, state->at,
                "TensorProperties are no dtype, layout, requires_grad, format and pin_memory");
    c->attr[0] = (struct md_slot){ .kind = MD_PROPERTIES,
        .small = e[0].small,
        .n = (uint16_t)((e[2].i ? MD_GRAD : 0) | (e[4].i ? MD_PINNED : 0) |
                        e[3].small << MD_FORMAT_SHIFT),
        .at = e[1].at };
    return HEARTH_OK;
}

static int object_chunk(struct md_machine *m, struct md_cell *c)
{
    const struct md_slot *offset = &c->attr[MD_C_OFFSETS], *size = &c->attr[MD_C_SIZES];

    return offset->n == size->n
                   ? HEARTH_OK
                   : md_refuse_at(m, size->at, "a chunk of %u dimensions at an offset of %u",
                             size->n, offset->n);
}

/* A list or tuple of texts -> their number. */
static int count_texts(struct md_machine *m, struct md_slot *s)
{
    struct md_slot of = *s;
    uint32_t n = of.kind == MD_TUPLE ? of.y : 0;
    int good = of.kind == MD_NONE || (of.kind == MD_TUPLE && of.n & MD_OF_TEXTS) ||
               (of.kind == MD_INTS && !of.n);

    if (of.kind == MD_LIST) {
        n = m->cell.at[of.x].count;
        good = m->cell.at[of.x].holds == MD_EMPTY || m->cell.at[of.x].holds == MD_TEXTS;
    }
    if (!good || n > UINT16_MAX)
        return md_refuse_at(m, of.at, "not a list of texts, or of more than %d", UINT16_MAX);
    *s = (struct md_slot){ .kind = MD_INT, .at = of.at, .i = n };
    md_drop(m, &of);
    return HEARTH_OK;
}

static int object_stored(struct md_machine *m, struct md_cell *c)
{
    const struct md_slot *at = &c->attr[MD_S_AT], *len = &c->attr[MD_S_LENGTH],
                         *path = &c->attr[MD_S_PATH];
    struct hearth_text text;
    char say[HTH_KEY_TEXT];
    int64_t end;

    if (!at->small || !len->small)
        return md_refuse_at(m, at->at, "an integer that is fetched from the memo");
    if (at->i < 0 || len->i < 0 || __builtin_add_overflow(at->i, len->i, &end))
        return md_refuse_at(m, at->at, "%" PRId64 " bytes at %" PRId64, len->i, at->i);
    if (!path->n) {
        text = md_text(m->md, path->at);
        return md_refuse_at(m, path->at, "%s is no path in a directory",
                hth_key_text(text.data, text.len, say));
    }
    return count_texts(m, &c->attr[MD_S_TRANSFORMS]);
}

static int index_check(struct md_machine *m, struct md_cell *c)
{
    const struct md_slot *hint = &c->attr[MD_I_HINT];

    if (hint->kind == MD_INT && (hint->i < 0 || !hint->small))
        return md_refuse_at(m, hint->at, "an index hint of %" PRId64, hint->i);
    return HEARTH_OK;
}

static int object_complete(
        struct md_machine *m, const struct md_slot *object, const struct md_slot *state)
{
    struct md_cell *c = &m->cell.at[object->x], *dict;

    if (object->kind == MD_NEW_PROPERTIES)
        return object_properties(m, c, state);
    if (state->kind != MD_DICT)
        return md_refuse_at(
                m, state->at, "the state of a %s is no dict", classes[object->kind].name);
    dict = &m->cell.at[state->x];
    if (dict->closed || (dict->holds && (dict->holds != MD_STATE || dict->first != object->x)))
        return md_refuse_at(m, state->at, "a dict that is not this object's state");
    dict->closed = 1;
    if (fields_check(m, object, c))
        return m->rc;
    if (c->unknown.name)
        return HEARTH_OK;
    switch (object->kind) {
    case MD_TENSOR:
        return md_tensor(m, c->attr);
    case MD_CHUNK:
        return object_chunk(m, c);
    case MD_INDEX:
        return index_check(m, c);
    case MD_STORED:
        return object_stored(m, c);
    case MD_STORAGE:
        return count_texts(m, &c->attr[MD_G_MODULES]);
    default:
        return HEARTH_OK;
    }
}

/* The state is ignored: of an object of an unknown class, or of BytesStorageMetadata, which had no
 * attributes when this was written; that takes a dict only. */
static int takes_any(const struct md_slot *object, const struct md_slot *state)
{
    return (object->kind == MD_UNKNOWN && object->small) ||
           (object->kind == MD_BYTES && state->kind == MD_DICT);
}

struct md_slot *md_build(struct md_machine *m, struct md_slot *sp)
{
    struct md_slot *object = sp - 2, *state = sp - 1;

    if (sp - m->floor >= 2 && takes_any(object, state)) {
        if (md_place(m, state))
            return NULL;
        md_drop(m, state);
        return sp - 1;
    }
    if (sp - m->floor < 2 || object->kind < MD_NEW_PROPERTIES || m->cell.at[object->x].closed)
        return md_refuse(m, "BUILD of what is no new object");
    if (object_complete(m, object, state))
        return NULL;
    m->cell.at[object->x].closed = 1;
    md_drop(m, state);
    return sp - 1;
}
