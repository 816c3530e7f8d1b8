/* SPDX-License-Identifier: Apache-2.0 */
/* header: the pickle in front of a tensor, to and from hex. */
#include "cli.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define HEX_MAX (4u << 20) /* bytes that are read */

static int header_parse_shape(struct hth_header *h, const char *text, struct hearth_error *err)
{
    const char *at = text;

    if (!strcmp(text, "()"))
        return HEARTH_OK;
    for (;;) {
        char *end;

        errno = 0;
        if (h->ndim == HTH_DIMS_MAX || !isdigit((unsigned char)*at))
            break;
        h->shape[h->ndim++] = strtoll(at, &end, 10);
        if (errno || (*end && *end != ','))
            break;
        if (!*end)
            return HEARTH_OK;
        at = end + 1;
    }
    return hth_fail(err, HEARTH_EINVAL, 0,
            "'%.100s' is no shape: give at most %d numbers from 0 to 2^63-1 with commas, as 2,3, or "
            "() for a scalar",
            text, HTH_DIMS_MAX);
}

static enum status header_encode(const struct args *a)
{
    unsigned char out[HTH_HEADER_MAX];
    struct hth_header h = { 0 };
    struct hearth_error err;
    size_t n;

    if (a->count != 3)
        return complain_usage("header encode takes a dtype and a shape, as float32 2,3");
    h.dtype = hearth_dtype_parse(a->value[1]);
    if (!h.dtype)
        return complain_usage(
                "'%.64s' is no dtype: give torch's name, as float32 or bfloat16", a->value[1]);
    if (header_parse_shape(&h, a->value[2], &err))
        return complain(&err);
    n = hth_header_encode(&h, out);
    for (size_t i = 0; i < n; i++)
        printf("%02x", out[i]);
    putchar('\n');
    return STATUS_OK;
}

static int hex_nibble(int c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c = tolower(c);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

struct bytes {
    unsigned char *at;
    size_t len;
    int high; /* half of a byte; -1: none */
};

static int hex_take_digit(struct bytes *b, int c, struct hearth_error *err)
{
    int v = hex_nibble(c);

    if (isspace(c))
        return HEARTH_OK;
    if (v < 0)
        return hth_fail(err, HEARTH_EINVAL, 0, "the input is not hex: digit %zu is none",
                2 * b->len + (b->high >= 0) + 1);
    if (b->high < 0) {
        b->high = v;
        return HEARTH_OK;
    }
    if (b->len == HEX_MAX)
        return hth_fail(err, HEARTH_EINVAL, 0, "the input has more than %u bytes", HEX_MAX);
    b->at[b->len++] = (unsigned char)(b->high << 4 | v);
    b->high = -1;
    return HEARTH_OK;
}

/* The digits of the argument, or of standard input for "-". */
static int hex_read(struct bytes *b, const char *text, struct hearth_error *err)
{
    int c, rc = HEARTH_OK, from_stdin = !strcmp(text, "-");

    b->high = -1;
    while (!rc && (c = from_stdin ? getchar() : (unsigned char)*text++) != EOF && c)
        rc = hex_take_digit(b, c, err);
    if (!rc && from_stdin && ferror(stdin))
        rc = hth_fail(err, HEARTH_EIO, errno, "standard input cannot be read: %s",
                strerrordesc_np(errno));
    if (!rc && b->high >= 0)
        rc = hth_fail(err, HEARTH_EINVAL, 0, "the input is not hex: it has half a byte at the end");
    return rc;
}

static enum status header_decode(const struct args *a)
{
    struct bytes b = { .at = malloc(HEX_MAX) };
    struct hearth_error err = { 0 };
    struct hth_header h;
    char text[HTH_HEADER_TEXT];
    size_t used;
    int rc;

    if (a->count != 2) {
        free(b.at);
        return complain_usage(
                "header decode takes hex of length and pickle, or - for standard input");
    }
    rc = b.at ? hex_read(&b, a->value[1], &err)
              : hth_fail(&err, HEARTH_ENOMEM, 0, "no memory for the input");
    if (!rc)
        rc = hth_header_decode(&h, b.at, b.len, &used, &err);
    if (!rc && used != b.len)
        rc = hth_fail(&err, HEARTH_ECORRUPT, 0, "%zu bytes follow the header", b.len - used);
    free(b.at);
    if (rc)
        return complain(&err);
    hth_header_text(&h, text);
    puts(text);
    return STATUS_OK;
}

enum status run_header(const struct args *a)
{
    if (!strcmp(a->value[0], "encode"))
        return header_encode(a);
    if (!strcmp(a->value[0], "decode"))
        return header_decode(a);
    return complain_usage("header %.64s: give header encode or header decode", a->value[0]);
}
