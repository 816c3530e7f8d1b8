/* SPDX-License-Identifier: Apache-2.0 */
/* Between the parts of <hearth/value.h>, the lowest first; README.md has their order. */
/* For this folder alone. */
#ifndef HEARTH_CORE_TORCH_VALUES_H
#define HEARTH_CORE_TORCH_VALUES_H

#include "pickle.h"
#include "zip.h"
#include <hearth/value.h>

/* Globals of values, by id. Dtypes have the ids of their own. */
enum {
    HTH_VALUE_STORAGE = 1000, /* and the dtype of its elements */
    HTH_VALUE_UNTYPED = 2000, /* elements are bytes */
    HTH_VALUE_ORDERED,        /* OrderedDict */
    HTH_VALUE_SHAPE,          /* torch.Size */
    HTH_VALUE_ENCODE,         /* bytes as protocol 2 spells them: a text, and "latin1" */
    HTH_VALUE_NO_BYTES,       /* bytes() */
    HTH_VALUE_BYTEARRAY,
    HTH_VALUE_TENSOR_V1, /* storage, offset, shape, strides */
    HTH_VALUE_TENSOR_V2, /* and requires_grad, hooks, metadata */
    HTH_VALUE_TENSOR_V3, /* and dtype */
    HTH_VALUE_PARAMETER,
    HTH_VALUE_MOVED,     /* a tensor of a device without storages of its own */
    HTH_VALUE_WITH_DICT, /* a tensor with attributes */
    HTH_VALUE_CLASS,     /* torch.Tensor */
};

struct hth_tensor {
    const unsigned char *data;
    uint64_t len, storage, offset;
    const int64_t *shape, *strides; /* [ndim], in hearth_values.number */
    uint32_t dtype, ndim;
    uint8_t requires_grad, conj, neg;
};

/* A storage of the older form; keys in order. */
struct hth_stored {
    const unsigned char *key; /* [key_len] */
    uint32_t key_len;
    uint32_t element; /* bytes; 0: not known yet */
    uint64_t at, len;
    uint64_t number; /* its place among them */
};

struct hearth_values {
    const unsigned char *bytes; /* [len], the whole item, borrowed */
    size_t len;
    const char *what; /* which pickle of the item: goes in front of its errors */
    struct hth_zip zip;
    char top[256]; /* folder of a zip's members, with its slash */
    size_t top_len;
    struct hth_stored *stored; /* [stored_count] */
    size_t stored_count;

    struct hth_pickle p; /* bytes: where the pickle begins in the item */
    void *memory;
    uint32_t *child;           /* [p.cells] children of each container, one behind the other, from
                            * u.integer of the container on */
    int64_t *number;           /* [p.cells] likewise, where all are integers (built of the tuple) */
    struct hth_tensor *tensor; /* [tensors]; u.integer of an object is its index */
    size_t tensors, tensors_cap;
    unsigned char *latin; /* [p.len] what texts spell as bytes, at the place of the text */
};

extern const struct hth_pickle_global hth_value_globals[];
extern const uint32_t hth_value_globals_count;

/* The storage that a persistent id speaks of, and the dtype of its elements. */
struct hth_storage {
    const unsigned char *key; /* [key_len] */
    uint32_t key_len;
    enum hearth_dtype dtype;
    uint64_t elements;
};
int hth_values_persistent(const struct hth_pickle *p, const struct hth_pickle_value *v,
        struct hth_storage *out, struct hearth_error *err);

/* Find out which form the item has, run its pickle, and find its storages. */
int hth_values_load(struct hearth_values *v, struct hearth_error *err);

/* The storage `key` as bytes[*out_len] and a number of its own. NULL: there is none. */
const unsigned char *hth_values_storage(const struct hearth_values *v, const unsigned char *key,
        uint32_t key_len, uint64_t *out_len, uint64_t *out_number);

/* All members of a tuple are integers: number[] of it is filled. */
int hth_values_integers(
        struct hearth_values *v, struct hth_pickle_value *tuple, struct hearth_error *err);

/* Make a tensor of a call: `object` remembers its index. */
int hth_values_tensor(
        struct hearth_values *v, struct hth_pickle_value *object, struct hearth_error *err);

static inline struct hth_pickle_value *hth_values_kid(
        const struct hearth_values *v, const struct hth_pickle_value *of, size_t i)
{
    return &v->p.value[v->child[(size_t)of->u.integer + i]];
}

#endif
