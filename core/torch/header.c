/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The header of a tensor. Writing: the very bytes that Python's pickle would write, with every
 * MEMOIZE it would write. Reading: whatever the pickle machine accepts and comes to the same.
 */
#include "header.h"
#include "core/base/bytes.h"
#include "pickle.h"
#include "pickle_write.h"

#include <stdio.h>

#define READ_MAX (16u << 10) /* bytes of a header that is read: room for unknown attributes */
#define VALUES   512         /* in it: 64 dimensions, and as many again */

/* --- writing --- */

static void header_text(struct hth_writer *w, const char *s)
{
    hth_write8(w, 0x8c); /* SHORT_BINUNICODE, MEMOIZE */
    hth_write8(w, (uint8_t)strlen(s));
    hth_write(w, s, strlen(s));
    hth_write8(w, 0x94);
}

static void header_global(struct hth_writer *w, const char *module, const char *name)
{
    header_text(w, module);
    header_text(w, name);
    hth_write(w, "\x93\x94", 2); /* STACK_GLOBAL, MEMOIZE */
}

static void header_dimension(struct hth_writer *w, int64_t dim)
{
    unsigned char bytes[HTH_PICKLE_INT_MAX];

    hth_write(w, bytes, hth_pickle_int(bytes, dim));
}

static void header_shape(struct hth_writer *w, const struct hth_header *header)
{
    static const unsigned char tuple[] = { 0x85, 0x86, 0x87 }; /* TUPLE1 to TUPLE3 */

    if (header->ndim > 3)
        hth_write8(w, '(');
    for (uint32_t i = 0; i < header->ndim; i++)
        header_dimension(w, header->shape[i]);
    if (header->ndim == 0) {
        hth_write8(w, ')'); /* the empty tuple is not memoized */
        return;
    }
    hth_write8(w, header->ndim > 3 ? 't' : tuple[header->ndim - 1]);
    hth_write8(w, 0x94);
}

size_t hth_header_encode(const struct hth_header *header, unsigned char out[HTH_HEADER_MAX])
{
    struct hth_writer w = { .at = out, .cap = HTH_HEADER_MAX };
    const char *dtype = hearth_dtype_name(header->dtype);

    if (!dtype || header->ndim > HTH_DIMS_MAX)
        return 0;
    for (uint32_t i = 0; i < header->ndim; i++)
        if (header->shape[i] < 0)
            return 0;

    hth_write32(&w, 0);
    hth_write(&w, "\x80\x04\x95", 3); /* PROTO 4, FRAME */
    hth_write64(&w, 0);
    header_global(&w, "ml_flashpoint.core.tensor_header", "TensorHeader");
    hth_write(&w, ")\x81\x94}\x94(", 6); /* a new one; the dict of its attributes */
    header_text(&w, "dtype");
    header_global(&w, "torch", dtype);
    header_text(&w, "shape");
    header_global(&w, "torch", "Size");
    header_shape(&w, header);
    hth_write(&w, "\x85\x94R\x94ub.", 7); /* Size((dims,)); SETITEMS, BUILD, STOP */
    hth_put32(out, (uint32_t)(w.len - 4));
    hth_put64(out + 7, w.len - 15);
    return w.len;
}

/* --- reading --- */

enum { TENSOR_HEADER = 1000, SIZE }; /* dtypes have the ids of their own */

static const struct hth_pickle_global globals[] = {
    { .module = "ml_flashpoint.core.tensor_header",
            .name = "TensorHeader",
            .id = TENSOR_HEADER,
            .may = HTH_PICKLE_AS_NEW | HTH_PICKLE_STATE_DICT },
    { .module = "torch", .name = "Size", .id = SIZE, .args = "t" },
#define HEARTH_X(enumerator, value, text, bytes) \
    { .module = "torch", .name = text, .id = value, .may = HTH_PICKLE_AS_VALUE },
    HEARTH_DTYPES(HEARTH_X)
#undef HEARTH_X
};

static int shape_read(struct hth_header *out, const struct hth_pickle *p,
        const struct hth_pickle_value *v, struct hearth_error *err)
{
    const struct hth_pickle_value *dims = v;

    if (v->kind == HTH_PICKLE_OBJECT && hth_pickle_id(p, v) == SIZE)
        dims = hth_pickle_child(p, hth_pickle_at(p, v->head)->head);
    if (dims->kind != HTH_PICKLE_TUPLE)
        return hth_pickle_refuse(v, err, "the shape is no torch.Size");
    if (dims->n > HTH_DIMS_MAX)
        return hth_pickle_refuse(
                v, err, "%" PRIu32 " dimensions, more than %d", dims->n, HTH_DIMS_MAX);
    for (uint32_t c = dims->head; c; c = p->cell[c].next) {
        const struct hth_pickle_value *dim = hth_pickle_child(p, c);

        if (dim->kind != HTH_PICKLE_INT || dim->u.integer < 0)
            return hth_pickle_refuse(dim, err, "a dimension is no integer from 0 on");
        out->shape[out->ndim++] = dim->u.integer;
    }
    return HEARTH_OK;
}

static int header_content(
        struct hth_header *out, const struct hth_pickle *p, struct hearth_error *err)
{
    const struct hth_pickle_value *root = hth_pickle_root(p);
    const struct hth_pickle_value *dtype = hth_pickle_attr(p, root, "dtype");
    const struct hth_pickle_value *dims = hth_pickle_attr(p, root, "shape");
    uint64_t bytes;
    int rc;

    if (hth_pickle_id(p, root) != TENSOR_HEADER || !dtype || !dims)
        return hth_pickle_refuse(root, err, "not a TensorHeader with dtype and shape");
    if (dtype->kind != HTH_PICKLE_GLOBAL)
        return hth_pickle_refuse(dtype, err, "the dtype is none");
    out->dtype = (enum hearth_dtype)hth_pickle_id(p, dtype);
    if ((rc = shape_read(out, p, dims, err)))
        return rc;
    if (hth_header_bytes(out, &bytes, NULL))
        return hth_pickle_refuse(dims, err, "a tensor of more than 2^63 bytes");
    return HEARTH_OK;
}

int hth_header_decode(struct hth_header *out, const void *bytes, size_t len, size_t *out_used,
        struct hearth_error *err)
{
    uint64_t memory[VALUES * 5];  /* 40 bytes a value */
    unsigned char text[READ_MAX]; /* what is checked is what is used, whoever writes to `bytes` */
    struct hth_pickle p;
    struct hth_header h = { 0 };
    const unsigned char *at = bytes;
    uint32_t n;
    int rc;

    if (len < 4)
        return hth_fail(
                err, HEARTH_ECORRUPT, 0, "byte 0: a tensor header cut off after %zu bytes", len);
    n = hth_get32(at);
    if (n == 0 || n > READ_MAX || n > len - 4)
        return hth_fail(err, HEARTH_ECORRUPT, 0,
                "byte 0: a tensor header of %" PRIu32
                " bytes, where %zu follow and %u are the most",
                n, len - 4, READ_MAX);
    memcpy(text, at + 4, n);
    if ((rc = hth_pickle_load(&p, globals, sizeof(globals) / sizeof(globals[0]), text, n, memory,
                 sizeof(memory), err)) ||
            (rc = header_content(&h, &p, err)))
        return rc;
    *out = h;
    if (out_used)
        *out_used = n + 4u;
    return HEARTH_OK;
}

void hth_header_text(const struct hth_header *header, char out[HTH_HEADER_TEXT])
{
    const char *dtype = hearth_dtype_name(header->dtype);
    size_t len = 0;

    len += (size_t)snprintf(
            out, HTH_HEADER_TEXT, "%.24s %s", dtype ? dtype : "no-dtype", header->ndim ? "" : "()");
    for (uint32_t i = 0; i < header->ndim && i < HTH_DIMS_MAX; i++)
        len += (size_t)snprintf(
                out + len, HTH_HEADER_TEXT - len, "%s%" PRId64, i ? "," : "", header->shape[i]);
}
