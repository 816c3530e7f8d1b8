/* SPDX-License-Identifier: Apache-2.0 */
/* An item. If it is accepted, it can be walked, and tensors lie within it, shape and strides
 * too. */
#include <hearth/value.h>

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void tensor(const struct hearth_value *t, const uint8_t *data, size_t size)
{
    const uint8_t *first = t->data;
    uint64_t last = 0;

    if (first < data || first > data + size || t->len > (size_t)(data + size - first))
        abort();
    for (uint32_t i = 0; i < t->ndim; i++) {
        if (t->shape[i] == 0)
            return;
        last += (uint64_t)(t->shape[i] - 1) * (uint64_t)t->strides[i];
    }
    if (last >= t->len / hearth_dtype_bytes((enum hearth_dtype)t->dtype))
        abort();
}

static void walk(struct hearth_values *v, const struct hearth_value *at, int *left,
        const uint8_t *data, size_t size)
{
    struct hearth_value kid = { .struct_size = sizeof(kid) };
    size_t kids = at->count << (at->kind == HEARTH_VALUE_DICT);

    if (at->kind == HEARTH_VALUE_TENSOR)
        tensor(at, data, size);
    else if (at->len && ((const volatile uint8_t *)at->data)[at->len - 1] == 1)
        (*left)--; /* it can be read */
    for (size_t i = 0; i < kids && --*left > 0; i++)
        if (!hearth_value_child(v, at, i, &kid, NULL))
            walk(v, &kid, left, data, size);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct hearth_value root = { .struct_size = sizeof(root) };
    struct hearth_values *v = NULL;
    int left = 1000;

    if (size && !hearth_values_open(data, size, &v, NULL)) {
        if (!hearth_value_root(v, &root, NULL))
            walk(v, &root, &left, data, size);
        hearth_values_close(v);
    }
    return 0;
}
