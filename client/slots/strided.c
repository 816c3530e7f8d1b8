/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An n-dimensional copy between two layouts. Dimensions of length 1 go, neighbours that are
 * contiguous on both sides become one, and an innermost dimension that is contiguous on both sides
 * becomes the unit that is moved. The remaining dimensions are walked in C order with an odometer,
 * from any element on, so that several threads can share one copy.
 */
#include "strided.h"

#include <string.h>

/* If one dimension is empty the others may be of any length: their strides wrap, and are
 * not used. */
void hth_c_order(uint32_t ndim, const int64_t *shape, int64_t *out)
{
    uint64_t step = 1;

    for (uint32_t i = ndim; i-- > 0;) {
        out[i] = (int64_t)step;
        step *= shape[i] ? (uint64_t)shape[i] : 1;
    }
}

/* Merge dimension `d` into the last one kept, or keep it. */
static void strided_take_dim(struct hth_strided *s, int64_t len, int64_t dst, int64_t src)
{
    uint32_t last = s->ndim - 1;

    if (len == 1)
        return;
    if (s->ndim && s->dst[last] == dst * len && s->src[last] == src * len) {
        s->shape[last] *= len;
        s->dst[last] = dst;
        s->src[last] = src;
        return;
    }
    s->shape[s->ndim] = len;
    s->dst[s->ndim] = dst;
    s->src[s->ndim] = src;
    s->ndim++;
}

int hth_strided_init(struct hth_strided *s, uint32_t elem, uint32_t ndim, const int64_t *shape,
        const int64_t *dst_strides, const int64_t *src_strides)
{
    int64_t dst[HTH_DIMS_MAX], src[HTH_DIMS_MAX];
    uint64_t total = 1;

    s->ndim = 0;
    s->elem = elem;
    for (uint32_t i = 0; i < ndim; i++)
        total *= (uint64_t)shape[i];
    s->count = total;
    if (!total)
        return 1;
    hth_c_order(ndim, shape, dst);
    memcpy(src, dst, sizeof(dst[0]) * ndim);
    if (dst_strides && ndim)
        memcpy(dst, dst_strides, sizeof(dst[0]) * ndim);
    if (src_strides && ndim)
        memcpy(src, src_strides, sizeof(src[0]) * ndim);
    for (uint32_t i = 0; i < ndim; i++)
        strided_take_dim(s, shape[i], dst[i] * elem, src[i] * elem);
    return s->ndim == 0 || (s->ndim == 1 && s->dst[0] == elem && s->src[0] == elem);
}

const unsigned char *hth_strided_at(const struct hth_strided *s, const void *src, uint64_t element)
{
    const unsigned char *at = src;

    for (uint32_t i = s->ndim; i-- > 0;) {
        at += (int64_t)(element % (uint64_t)s->shape[i]) * s->src[i];
        element /= (uint64_t)s->shape[i];
    }
    return at;
}

/* n elements, one step apart on each side. */
static void strided_row(unsigned char *dst, int64_t dst_step, const unsigned char *src,
        int64_t src_step, uint32_t elem, uint64_t n)
{
#define EACH(bytes)                    \
    for (uint64_t i = 0; i < n; i++) { \
        memcpy(dst, src, bytes);       \
        dst += dst_step;               \
        src += src_step;               \
    }
    if (dst_step == elem && src_step == elem) {
        memcpy(dst, src, n * elem);
        return;
    }
    switch (elem) {
    case 1:
        EACH(1) break;
    case 2:
        EACH(2) break;
    case 4:
        EACH(4) break;
    case 8:
        EACH(8) break;
    default:
        EACH(elem) break;
    }
#undef EACH
}

void hth_strided_copy(
        const struct hth_strided *s, void *dst, const void *src, uint64_t first, uint64_t count)
{
    uint64_t at[HTH_DIMS_MAX] = { 0 };
    unsigned char *d = dst;
    const unsigned char *f = src;
    uint32_t last;

    if (!count)
        return;
    if (!s->ndim) {
        memcpy(d, f, s->elem);
        return;
    }
    last = s->ndim - 1;
    for (uint32_t i = s->ndim; i-- > 0;) {
        at[i] = first % (uint64_t)s->shape[i];
        first /= (uint64_t)s->shape[i];
        d += (int64_t)at[i] * s->dst[i];
        f += (int64_t)at[i] * s->src[i];
    }
    for (;;) {
        uint64_t n = (uint64_t)s->shape[last] - at[last];

        n = n < count ? n : count;
        strided_row(d, s->dst[last], f, s->src[last], s->elem, n);
        count -= n;
        if (!count)
            return;
        d -= (int64_t)at[last] * s->dst[last];
        f -= (int64_t)at[last] * s->src[last];
        at[last] = 0;
        for (uint32_t i = last; i-- > 0;) {
            d += s->dst[i];
            f += s->src[i];
            if (++at[i] < (uint64_t)s->shape[i])
                break;
            d -= s->shape[i] * s->dst[i];
            f -= s->shape[i] * s->src[i];
            at[i] = 0;
        }
    }
}
