/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tensors. In the pickle a tensor is a call: of a function that is known by name, with a storage,
 * an offset, shape and strides. Nothing is called; what the arguments say is checked against the
 * storage's bytes, so that a reader that follows shape and strides stays within them.
 */
#include "core/base/grow.h"
#include "header.h"
#include "values.h"

#include <stdlib.h>
#include <string.h>

/* --- storages --- */

/* The storage's bytes: data and len of the tensor, until its offset is known. */
static int tensor_storage(struct hearth_values *v, const struct hth_pickle_value *id,
        struct hth_tensor *out, struct hearth_error *err)
{
    struct hth_storage s = { 0 };
    uint64_t want;
    int rc = hth_values_persistent(&v->p, id, &s, err);

    if (rc)
        return rc;
    out->data = hth_values_storage(v, s.key, s.key_len, &out->len, &out->storage);
    if (!out->data)
        return hth_pickle_refuse(id, err, "a storage that is not there");
    out->dtype = s.dtype;
    if (__builtin_mul_overflow(s.elements, (uint64_t)hearth_dtype_bytes(s.dtype), &want) ||
            want != out->len)
        return hth_pickle_refuse(id, err,
                "a storage of %" PRIu64 " elements of %s that has %" PRIu64 " bytes", s.elements,
                hearth_dtype_name(s.dtype), out->len);
    return HEARTH_OK;
}

/* --- shape and strides --- */

/* Check that offset, shape and strides stay within the storage; move data and len to the first
 * element. */
static int tensor_extent(
        struct hth_tensor *t, const struct hth_pickle_value *at, struct hearth_error *err)
{
    unsigned element = hearth_dtype_bytes((enum hearth_dtype)t->dtype);
    struct hth_header header = { .dtype = (enum hearth_dtype)t->dtype, .ndim = t->ndim };
    uint64_t room = t->len / element, last = t->offset, step, bytes;
    int over = 0;

    if (t->ndim)
        memcpy(header.shape, t->shape, sizeof(t->shape[0]) * t->ndim);
    if (hth_header_bytes(&header, &bytes, NULL))
        return hth_pickle_refuse(at, err, "a shape with a negative dimension, or too many bytes");
    for (uint32_t i = 0; i < t->ndim; i++) {
        if (t->strides[i] < 0)
            return hth_pickle_refuse(at, err, "a negative stride");
        over |= bytes && (__builtin_mul_overflow(
                                  (uint64_t)t->shape[i] - 1, (uint64_t)t->strides[i], &step) ||
                                 __builtin_add_overflow(last, step, &last));
    }
    if (bytes && (over || last >= room))
        return hth_pickle_refuse(
                at, err, "a tensor reaches out of its storage of %" PRIu64 " elements", room);
    last = t->offset < room ? t->offset : room; /* an empty one may begin past the end */
    t->data += last * element;
    t->len = bytes ? t->len - last * element : 0;
    return HEARTH_OK;
}

int hth_values_integers(
        struct hearth_values *v, struct hth_pickle_value *tuple, struct hearth_error *err)
{
    if (tuple->built)
        return HEARTH_OK; /* looked at already: a tuple that a thousand tensors share is not slow */
    for (uint32_t i = 0; i < tuple->n; i++) {
        const struct hth_pickle_value *k = hth_values_kid(v, tuple, i);

        if (k->kind != HTH_PICKLE_INT)
            return hth_pickle_refuse(k, err, "a dimension that is no integer");
        v->number[tuple->u.integer + i] = k->u.integer;
    }
    tuple->built = 1;
    return HEARTH_OK;
}

static int tensor_dimensions(struct hearth_values *v, struct hth_pickle_value *shape,
        struct hth_pickle_value *strides, struct hth_tensor *out, struct hearth_error *err)
{
    int rc;

    if (shape->n > HTH_DIMS_MAX || shape->n != strides->n)
        return hth_pickle_refuse(shape, err,
                "%" PRIu32 " dimensions and %" PRIu32 " strides; at most %d", shape->n, strides->n,
                HTH_DIMS_MAX);
    if ((rc = hth_values_integers(v, shape, err)) || (rc = hth_values_integers(v, strides, err)))
        return rc;
    out->ndim = shape->n;
    out->shape = v->number + shape->u.integer;
    out->strides = v->number + strides->u.integer;
    return HEARTH_OK;
}

enum { SEEN = 1, CONJ = 2, NEG = 4 }; /* `built` of a dict of metadata */

/* Which bits the dict sets. It is gone through once, as tuples of integers are. */
static int tensor_bits(
        const struct hearth_values *v, struct hth_pickle_value *dict, struct hearth_error *err)
{
    uint8_t set = SEEN;

    for (uint32_t i = 0; !dict->built && i < dict->n; i += 2) {
        const struct hth_pickle_value *key = hth_values_kid(v, dict, i);
        const struct hth_pickle_value *bit = hth_values_kid(v, dict, i + 1);
        int conj = hth_pickle_is(&v->p, key, "conj");

        if (!conj && !hth_pickle_is(&v->p, key, "neg"))
            continue;
        if (bit->kind != HTH_PICKLE_BOOL)
            return hth_pickle_refuse(bit, err, "conj or neg is no bool");
        set &= (uint8_t) ~(conj ? CONJ : NEG); /* the last one of a name holds */
        if (bit->u.integer)
            set |= conj ? CONJ : NEG;
    }
    if (!dict->built)
        dict->built = set;
    return HEARTH_OK;
}

/* {"conj": bool, "neg": bool}, or None; what else is in it is of other devices. */
static int tensor_metadata(const struct hearth_values *v, struct hth_pickle_value *dict,
        struct hth_tensor *out, struct hearth_error *err)
{
    int rc;

    if (dict->kind == HTH_PICKLE_NONE)
        return HEARTH_OK;
    if (dict->kind != HTH_PICKLE_DICT)
        return hth_pickle_refuse(dict, err, "a tensor's metadata is no dict");
    if ((rc = tensor_bits(v, dict, err)))
        return rc;
    out->conj = (dict->built & CONJ) != 0;
    out->neg = (dict->built & NEG) != 0;
    return HEARTH_OK;
}

/* --- calls --- */

/* A tensor of arguments that fit `id`. */
static int tensor_rebuild(struct hearth_values *v, int id, const struct hth_pickle_value *args,
        struct hth_tensor *out, struct hearth_error *err)
{
    const struct hth_pickle_value *offset = hth_values_kid(v, args, 1);
    uint32_t more = id == HTH_VALUE_TENSOR_V3 ? 7 : 6; /* where metadata stands */
    int dtype, rc;

    if ((rc = tensor_storage(v, hth_values_kid(v, args, 0), out, err)) ||
            (rc = tensor_dimensions(
                     v, hth_values_kid(v, args, 2), hth_values_kid(v, args, 3), out, err)))
        return rc;
    if (offset->u.integer < 0)
        return hth_pickle_refuse(offset, err, "a negative offset");
    out->offset = (uint64_t)offset->u.integer;
    if (id == HTH_VALUE_TENSOR_V3) {
        dtype = hth_pickle_id(&v->p, hth_values_kid(v, args, 6));
        if (dtype >= HTH_VALUE_STORAGE)
            return hth_pickle_refuse(args, err, "a tensor's dtype is none");
        out->dtype = (uint32_t)dtype;
    }
    if (id != HTH_VALUE_TENSOR_V1)
        out->requires_grad = hth_values_kid(v, args, 4)->u.integer != 0;
    if (args->n > more && (rc = tensor_metadata(v, hth_values_kid(v, args, more), out, err)))
        return rc;
    return tensor_extent(out, args, err);
}

/* The tensor that an argument is, once more. */
static int tensor_again(struct hearth_values *v, const struct hth_pickle_value *object,
        struct hth_tensor *out, struct hearth_error *err)
{
    int id = hth_pickle_id(&v->p, object);

    if (id < HTH_VALUE_TENSOR_V1 || id > HTH_VALUE_WITH_DICT)
        return hth_pickle_refuse(object, err, "this is no tensor");
    *out = v->tensor[object->u.integer];
    return HEARTH_OK;
}

/* function, torch.Tensor, arguments, attributes: these are dropped. */
static int tensor_with_dict(struct hearth_values *v, const struct hth_pickle_value *args,
        struct hth_tensor *out, struct hearth_error *err)
{
    const struct hth_pickle_value *function = hth_values_kid(v, args, 0);
    const struct hth_pickle_value *inner = hth_values_kid(v, args, 2);
    int id = hth_pickle_id(&v->p, function);

    if (id != HTH_VALUE_TENSOR_V2 && id != HTH_VALUE_TENSOR_V3)
        return hth_pickle_refuse(function, err, "a tensor made by what makes no tensor");
    if (hth_pickle_id(&v->p, hth_values_kid(v, args, 1)) != HTH_VALUE_CLASS)
        return hth_pickle_refuse(args, err, "a tensor of a class that is not torch.Tensor");
    if (!hth_pickle_fits(&v->p, inner, v->p.global[function->n].args))
        return hth_pickle_refuse(
                inner, err, "%s does not take these arguments", v->p.global[function->n].name);
    return tensor_rebuild(v, id, inner, out, err);
}

static int tensor_called(struct hearth_values *v, const struct hth_pickle_value *object,
        struct hth_tensor *out, struct hearth_error *err)
{
    const struct hth_pickle_value *args = hth_pickle_at(&v->p, object->head);
    int id = hth_pickle_id(&v->p, object), rc;

    if (id == HTH_VALUE_WITH_DICT)
        return tensor_with_dict(v, args, out, err);
    if (id < HTH_VALUE_PARAMETER)
        return tensor_rebuild(v, id, args, out, err);
    if ((rc = tensor_again(v, hth_values_kid(v, args, 0), out, err)))
        return rc;
    if (id == HTH_VALUE_MOVED &&
            hth_pickle_id(&v->p, hth_values_kid(v, args, 1)) != (int)out->dtype)
        return hth_pickle_refuse(object, err, "a tensor that changes its dtype on the way");
    out->requires_grad = hth_values_kid(v, args, id == HTH_VALUE_MOVED ? 3 : 1)->u.integer != 0;
    return HEARTH_OK;
}

int hth_values_tensor(
        struct hearth_values *v, struct hth_pickle_value *object, struct hearth_error *err)
{
    struct hth_tensor t = { 0 }, *more;
    int rc = tensor_called(v, object, &t, err);

    if (rc)
        return rc;
    more = hth_grow(v->tensor, &v->tensors_cap, v->tensors + 1, 8, sizeof(*more));
    if (!more)
        return hth_fail(err, HEARTH_ENOMEM, 0, "no memory for %zu tensors", v->tensors + 1);
    v->tensor = more;
    object->u.integer = (int64_t)v->tensors;
    v->tensor[v->tensors++] = t;
    return HEARTH_OK;
}
