/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The names that the pickle of a value may have: globals, each with what may be done with it, and
 * storages, by a tuple that torch makes of them.
 */
#include "values.h"

#define CLASSES(X)                               \
    X("DoubleStorage", HEARTH_FLOAT64)           \
    X("FloatStorage", HEARTH_FLOAT32)            \
    X("HalfStorage", HEARTH_FLOAT16)             \
    X("BFloat16Storage", HEARTH_BFLOAT16)        \
    X("LongStorage", HEARTH_INT64)               \
    X("IntStorage", HEARTH_INT32)                \
    X("ShortStorage", HEARTH_INT16)              \
    X("CharStorage", HEARTH_INT8)                \
    X("ByteStorage", HEARTH_UINT8)               \
    X("BoolStorage", HEARTH_BOOL)                \
    X("ComplexDoubleStorage", HEARTH_COMPLEX128) \
    X("ComplexFloatStorage", HEARTH_COMPLEX64)

/* Quantized, sparse, nested and meta tensors are not in the table: they are refused by name. */
const struct hth_pickle_global hth_value_globals[] = { { .module = "torch._utils",
                                                               .name = "_rebuild_tensor_v2",
                                                               .id = HTH_VALUE_TENSOR_V2,
                                                               .may = HTH_PICKLE_AS_VALUE,
                                                               .args = "pittbd?x" },
    { .module = "torch._utils",
            .name = "_rebuild_tensor_v3",
            .id = HTH_VALUE_TENSOR_V3,
            .may = HTH_PICKLE_AS_VALUE,
            .args = "pittbdg?x" },
    { .module = "torch._utils",
            .name = "_rebuild_tensor",
            .id = HTH_VALUE_TENSOR_V1,
            .args = "pitt" },
    { .module = "torch._utils",
            .name = "_rebuild_parameter",
            .id = HTH_VALUE_PARAMETER,
            .args = "obd" },
    { .module = "torch._utils",
            .name = "_rebuild_parameter_with_state",
            .id = HTH_VALUE_PARAMETER,
            .args = "obdx" },
    { .module = "torch._utils",
            .name = "_rebuild_device_tensor_from_cpu_tensor",
            .id = HTH_VALUE_MOVED,
            .args = "ogsb" },
    { .module = "torch._tensor",
            .name = "_rebuild_from_type_v2",
            .id = HTH_VALUE_WITH_DICT,
            .args = "ggtx" },
    { .module = "torch", .name = "Tensor", .id = HTH_VALUE_CLASS, .may = HTH_PICKLE_AS_VALUE },
    { .module = "torch", .name = "Size", .id = HTH_VALUE_SHAPE, .args = "t" },
    { .module = "torch.storage",
            .name = "UntypedStorage",
            .id = HTH_VALUE_UNTYPED,
            .may = HTH_PICKLE_AS_VALUE },
    { .module = "collections",
            .name = "OrderedDict",
            .id = HTH_VALUE_ORDERED,
            .may = HTH_PICKLE_AS_DICT,
            .args = "" },
    { .module = "_codecs", .name = "encode", .id = HTH_VALUE_ENCODE, .args = "ss" },
    { .module = "__builtin__", .name = "bytes", .id = HTH_VALUE_NO_BYTES, .args = "" },
    { .module = "builtins", .name = "bytes", .id = HTH_VALUE_NO_BYTES, .args = "" },
    { .module = "__builtin__", .name = "bytearray", .id = HTH_VALUE_BYTEARRAY, .args = "?xs" },
    { .module = "builtins", .name = "bytearray", .id = HTH_VALUE_BYTEARRAY, .args = "?xs" },
#define HEARTH_X(text, dtype)              \
    { .module = "torch",                   \
        .name = text,                      \
        .id = HTH_VALUE_STORAGE + (dtype), \
        .may = HTH_PICKLE_AS_VALUE },
    CLASSES(HEARTH_X)
#undef HEARTH_X
#define HEARTH_X(enumerator, value, text, bytes) \
    { .module = "torch", .name = text, .id = value, .may = HTH_PICKLE_AS_VALUE },
            HEARTH_DTYPES(HEARTH_X)
#undef HEARTH_X
};
const uint32_t hth_value_globals_count = sizeof(hth_value_globals) / sizeof(hth_value_globals[0]);

/* --- storages --- */

static const struct hth_pickle_value *tuple_member(
        const struct hth_pickle *p, const struct hth_pickle_value *tuple, unsigned i)
{
    uint32_t c = tuple->head;

    for (; i; i--)
        c = p->cell[c].next;
    return hth_pickle_child(p, c);
}

/* ("storage", class, key, where it lived, elements), and None in the older form. */
int hth_values_persistent(const struct hth_pickle *p, const struct hth_pickle_value *v,
        struct hth_storage *out, struct hearth_error *err)
{
    const struct hth_pickle_value *id = hth_pickle_at(p, v->head), *key, *elements;
    int class;

    if (!hth_pickle_fits(p, id, "sgssi?x") || !hth_pickle_is(p, tuple_member(p, id, 0), "storage"))
        return hth_pickle_refuse(v, err, "a persistent id that is none of a storage");
    class = hth_pickle_id(p, tuple_member(p, id, 1));
    if (class != HTH_VALUE_UNTYPED && (class < HTH_VALUE_STORAGE || class >= HTH_VALUE_UNTYPED))
        return hth_pickle_refuse(v, err, "a storage of what is no storage's class");
    if (id->n > 5 && tuple_member(p, id, 5)->kind != HTH_PICKLE_NONE)
        return hth_pickle_refuse(v, err, "a view of a storage");
    key = tuple_member(p, id, 2);
    elements = tuple_member(p, id, 4);
    if (elements->u.integer < 0)
        return hth_pickle_refuse(v, err, "a storage of less than no elements");
    *out = (struct hth_storage){ p->bytes + key->head, key->n, HEARTH_UINT8,
        (uint64_t)elements->u.integer };
    if (class != HTH_VALUE_UNTYPED)
        out->dtype = (enum hearth_dtype)(class - HTH_VALUE_STORAGE);
    return HEARTH_OK;
}
