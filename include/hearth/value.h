/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One item of a checkpoint that another program wrote, as a value: what torch.save wrote (a zip, or
 * the older plain form) or a bare pickle. Numbers, text, bytes, tuples, lists, dicts of them, and
 * tensors whose bytes stay where they are. No code of the pickle is run, and no class is made but
 * these.
 */
#ifndef HEARTH_VALUE_H
#define HEARTH_VALUE_H

#include <hearth/dtype.h>
#include <hearth/error.h>
#include <hearth/init.h>
#include <stddef.h>
#include <stdint.h>

HEARTH_BEGIN

struct hearth_values;

enum hearth_value_kind {
    HEARTH_VALUE_NONE = 1,
    HEARTH_VALUE_BOOL = 2,
    HEARTH_VALUE_INT = 3,
    HEARTH_VALUE_FLOAT = 4,
    HEARTH_VALUE_TEXT = 5,
    HEARTH_VALUE_BYTES = 6,
    HEARTH_VALUE_TUPLE = 10,
    HEARTH_VALUE_LIST = 11,
    HEARTH_VALUE_DICT = 12,  /* count pairs; children: key, value, key, value; OrderedDict too */
    HEARTH_VALUE_SIZE = 13,  /* torch.Size: a tuple of integers */
    HEARTH_VALUE_DTYPE = 14, /* torch.float32: `integer` is enum hearth_dtype */
    HEARTH_VALUE_TENSOR = 20,
};

struct hearth_value {
    size_t struct_size;
    uint32_t kind;    /* enum hearth_value_kind */
    uint32_t dtype;   /* tensor */
    int64_t integer;  /* bool, int (64 bits; a longer one is refused), dtype */
    double real;      /* float */
    const void *data; /* text, bytes: [len]; tensor: first element, in the input */
    size_t len;       /* text, bytes; tensor: bytes of its storage from `data` on */
    size_t count;     /* tuple, list: children; dict: pairs */
    uint32_t ndim;    /* tensor */
    uint32_t requires_grad, conj, neg; /* conj, neg: bits that are set on the view */
    const int64_t *shape, *strides; /* tensor: [ndim] elements; they live as long as the values */
    uint64_t storage;               /* tensor: number of its storage; equal: shared */
    uint64_t offset;                /* tensor: of `data` in the storage, elements */
    uint64_t handle;                /* for hearth_value_child() */
};
HEARTH_SIZED(hearth_value);
#define HEARTH_VALUE_INIT HEARTH_INIT(hearth_value)

/* bytes[len] are borrowed until close. A bare pickle is one whose first byte is 0x80. Errors:
 * HEARTH_ECORRUPT, "byte N: ...", with the global that is not allowed; HEARTH_EUNSUPPORTED for
 * big-endian numbers and TorchScript; HEARTH_ENOMEM. Threads: once open, any number may look at the
 * values at once. */
HEARTH_API int hearth_values_open(
        const void *bytes, size_t len, struct hearth_values **out, struct hearth_error *err);
HEARTH_API void hearth_values_close(struct hearth_values *v);
HEARTH_API int hearth_value_root(
        const struct hearth_values *v, struct hearth_value *out, struct hearth_error *err);
/* Child `index` of a container: each costs the same, in any order. Values may be shared, so that a
 * short item can spell a tree of any size: look at what you expect. HEARTH_ENOENT past the last;
 * HEARTH_ECORRUPT for a class or a bare storage, which are no values. */
HEARTH_API int hearth_value_child(struct hearth_values *v, const struct hearth_value *of,
        size_t index, struct hearth_value *out, struct hearth_error *err);

HEARTH_END

#endif
