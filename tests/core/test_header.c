/* SPDX-License-Identifier: Apache-2.0 */
/* Tensor headers: byte for byte what Python's pickle writes, and back. */
#include "check.h"
#include "vectors.h"

#include "core/torch/header.h"

static struct hth_header header_of(const char *dtype, const char *shape)
{
    struct hth_header h = { .dtype = hearth_dtype_parse(dtype) };
    const char *p = shape;
    char *end;

    for (; *p && *p != '-'; p = *end ? end + 1 : end)
        h.shape[h.ndim++] = strtoll(p, &end, 10);
    return h;
}

static int same(const struct hth_header *a, const struct hth_header *b)
{
    return a->dtype == b->dtype && a->ndim == b->ndim &&
           memcmp(a->shape, b->shape, a->ndim * sizeof(a->shape[0])) == 0;
}

Test(header, all_reference_rows_are_written_and_read, .timeout = 60)
{
    struct file f = file_read("tensor_headers.tsv");
    unsigned char want[HTH_HEADER_MAX], got[HTH_HEADER_MAX];
    size_t pos = 0, rows = 0;
    char *field[3];

    row_next(&f, &pos, field, 3);
    while (row_next(&f, &pos, field, 3)) {
        struct hth_header h = header_of(field[0], field[1]), back;
        size_t n = from_hex(want, sizeof(want), field[2]), used;

        cr_assert(eq(sz, hth_header_encode(&h, got), n), "%s %s", field[0], field[1]);
        cr_assert(eq(int, memcmp(got, want, n), 0), "%s %s", field[0], field[1]);
        must(hth_header_decode(&back, want, n, &used, NULL));
        cr_assert(eq(sz, used, n));
        cr_assert(eq(int, same(&h, &back), 1), "%s %s", field[0], field[1]);
        rows++;
    }
    cr_assert(eq(sz, rows, 46u * 44u));
    free(f.at);
}

#define ONE(...) +1
#define DTYPES   ((size_t)(0 HEARTH_DTYPES(ONE)))

Test(header, all_reference_dtypes_are_known_with_their_size)
{
    struct file f = file_read("dtypes.tsv");
    size_t pos = 0, rows = 0;
    char *field[4];

    row_next(&f, &pos, field, 4);
    while (row_next(&f, &pos, field, 4)) {
        enum hearth_dtype dtype = hearth_dtype_parse(field[0]);

        cr_assert(ne(int, (int)dtype, HEARTH_DTYPE_NONE), "%s", field[0]);
        must_say(hearth_dtype_name(dtype), field[0]);
        cr_assert(eq(uint, hearth_dtype_bytes(dtype), (unsigned)atoi(field[1])), "%s", field[0]);
        if (strcmp(field[3], "-") != 0) /* another name in Python, and never in a pickle */
            cr_assert(eq(int, (int)hearth_dtype_parse(field[3]), HEARTH_DTYPE_NONE));
        rows++;
    }
    cr_assert(eq(sz, rows, DTYPES), "a dtype is missing in dtypes.tsv");
    cr_assert(eq(ptr, (void *)(uintptr_t)hearth_dtype_name(HEARTH_DTYPE_NONE), NULL));
    cr_assert(eq(uint, hearth_dtype_bytes((enum hearth_dtype)9999), 0u));
    free(f.at);
}

Test(header, every_width_of_a_dimension_comes_back)
{
    static const int64_t dims[] = { 0, 1, 255, 256, 65535, 65536, INT32_MAX, 2147483648, 4294967295,
        549755813887, 549755813888, INT64_MAX / 2, INT64_MAX };
    unsigned char bytes[HTH_HEADER_MAX];

    for (size_t i = 0; i < sizeof(dims) / sizeof(dims[0]); i++) {
        struct hth_header h = { .dtype = HEARTH_INT8, .ndim = 1, .shape = { dims[i] } }, back;
        size_t n = hth_header_encode(&h, bytes);

        must(hth_header_decode(&back, bytes, n, NULL, NULL));
        cr_assert(eq(i64, back.shape[0], dims[i]));
    }
}

Test(header, the_largest_header_fits)
{
    struct hth_header h = { .dtype = HEARTH_FLOAT8_E4M3FNUZ, .ndim = HTH_DIMS_MAX }, back;
    unsigned char bytes[HTH_HEADER_MAX];
    size_t n;

    for (int i = 0; i < HTH_DIMS_MAX; i++)
        h.shape[i] = i ? INT64_MAX : 0;
    n = hth_header_encode(&h, bytes);
    cr_assert(gt(sz, n, 0));
    cr_assert(le(sz, n, (size_t)HTH_HEADER_MAX));
    must(hth_header_decode(&back, bytes, n, NULL, NULL));
    cr_assert(eq(int, same(&h, &back), 1));
}

Test(header, what_is_no_tensor_is_not_written)
{
    struct hth_header h = { .dtype = HEARTH_FLOAT32, .ndim = 1, .shape = { -1 } };
    unsigned char bytes[HTH_HEADER_MAX];
    uint64_t n;

    cr_assert(eq(sz, hth_header_encode(&h, bytes), 0));
    must_fail(hth_header_bytes(&h, &n, NULL), HEARTH_EINVAL);
    h.shape[0] = 1;
    h.dtype = HEARTH_DTYPE_NONE;
    cr_assert(eq(sz, hth_header_encode(&h, bytes), 0));
    h.dtype = HEARTH_FLOAT32;
    h.ndim = HTH_DIMS_MAX + 1;
    cr_assert(eq(sz, hth_header_encode(&h, bytes), 0));
    must_fail(hth_header_bytes(&h, &n, NULL), HEARTH_EINVAL);
}

Test(header, bytes_are_counted_up_to_63_bits)
{
    struct hth_header h = { .dtype = HEARTH_COMPLEX128, .ndim = 2, .shape = { 3, 5 } };
    uint64_t n = 0;

    must(hth_header_bytes(&h, &n, NULL));
    cr_assert(eq(u64, n, 240));
    h.shape[0] = INT64_C(1) << 59;
    h.shape[1] = 1;
    must_fail(hth_header_bytes(&h, &n, NULL), HEARTH_EINVAL); /* 2^63 */
    h.shape[1] = 32;
    must_fail(hth_header_bytes(&h, &n, NULL), HEARTH_EINVAL); /* 2^68 */
    h.shape[1] = 0;
    must(hth_header_bytes(&h, &n, NULL));
    cr_assert(eq(u64, n, 0));
    h.ndim = 0;
    must(hth_header_bytes(&h, &n, NULL));
    cr_assert(eq(u64, n, 16));
}

Test(header, a_header_as_text)
{
    struct hth_header h = { .dtype = HEARTH_FLOAT32, .ndim = 2, .shape = { 2, 3 } };
    char text[HTH_HEADER_TEXT];

    hth_header_text(&h, text);
    must_say(text, "float32 2,3");
    h.ndim = 0;
    hth_header_text(&h, text);
    must_say(text, "float32 ()");
    h.ndim = HTH_DIMS_MAX;
    for (int i = 0; i < HTH_DIMS_MAX; i++)
        h.shape[i] = INT64_MIN;
    hth_header_text(&h, text);
    cr_assert(lt(sz, strlen(text), (size_t)HTH_HEADER_TEXT));
}

/* The reference header of 5 dimensions: MARK, TUPLE, LONG1 and the rest of the opcodes. */
static size_t sample(unsigned char out[HTH_HEADER_MAX])
{
    struct hth_header h = {
        .dtype = HEARTH_BFLOAT16, .ndim = 5, .shape = { 1, 300, 70000, 2147483648, 3 }
    };

    return hth_header_encode(&h, out);
}

Test(header, every_truncation_is_refused)
{
    unsigned char whole[HTH_HEADER_MAX];
    size_t n = sample(whole);

    for (size_t cut = 0; cut < n; cut++) {
        unsigned char *exact = malloc(cut ? cut : 1);
        struct hth_header h;

        memcpy(exact, whole, cut);
        must_fail(hth_header_decode(&h, exact, cut, NULL, NULL), HEARTH_ECORRUPT);
        if (cut > 4) { /* and when the length in front says the same */
            uint32_t len = (uint32_t)cut - 4;

            memcpy(exact, &len, 4);
            must_fail(hth_header_decode(&h, exact, cut, NULL, NULL), HEARTH_ECORRUPT);
        }
        free(exact);
    }
}

Test(header, every_changed_byte_is_refused_or_gives_a_valid_tensor, .timeout = 60)
{
    unsigned char whole[HTH_HEADER_MAX];
    size_t n = sample(whole), taken = 0;

    for (size_t i = 0; i < n; i++)
        for (unsigned x = 1; x < 256; x++) {
            struct hth_header h;
            uint64_t bytes;

            whole[i] ^= (unsigned char)x;
            if (!hth_header_decode(&h, whole, n, NULL, NULL)) {
                must(hth_header_bytes(&h, &bytes, NULL));
                taken++;
            }
            whole[i] ^= (unsigned char)x;
        }
    cr_assert(lt(sz, taken, n * 16)); /* dims, protocol, frame: some changes are other headers */
}
