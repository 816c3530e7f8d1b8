/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pickles, items and objects made to break a reader, each with its verdict: refuse, ok with a
 * meaning, or survive. The list is tests/data/hostile/index.tsv.
 */
#include "check.h"
#include "vectors.h"

#include "core/foreign/items.h"

#include <unistd.h>

enum { FILE_NAME, READER, LAYER, VERDICT, WHAT, FIELDS };

/* `TensorHeader(float32, (2, 3))` or `float32 (2,3)` -> what hth_header_text() says. */
static void meaning(const char *verdict, char out[HTH_HEADER_TEXT])
{
    const char *dims = strrchr(verdict, '(');
    size_t n = (size_t)sprintf(out, "float32 ");

    cr_assert(ne(ptr, strstr(verdict, "float32"), NULL));
    for (dims++; *dims != ')'; dims++)
        if (*dims != ' ')
            out[n++] = *dims;
    out[n] = '\0';
}

/* The file with the length in front that a header has. */
static struct file framed(const struct file *f, size_t len)
{
    struct file out = { malloc(len + 4), len + 4 };
    uint32_t n = (uint32_t)len;

    memcpy(out.at, &n, 4);
    memcpy(out.at + 4, f->at, len);
    return out;
}

static int read_header(
        const struct file *f, size_t len, struct hth_header *out, struct hearth_error *err)
{
    struct file in = framed(f, len);
    int rc = hth_header_decode(out, in.at, in.len, NULL, err);

    free(in.at);
    return rc;
}

static int read_item(const struct file *f, struct hth_header *out, struct hearth_error *err)
{
    struct hth_found found = { 0 };
    int rc = hth_found_tensor(&found, f->at, f->len, err);

    *out = found.header;
    return rc;
}

/* The object's one item is its whole data section. */
static int read_object(const struct file *f, struct hth_header *out, struct hearth_error *err)
{
    struct hth_block block;
    struct hth_found found = { 0 };
    int rc = hth_block_decode(&block, f->at, f->len, f->len, err);

    if (rc || (rc = hth_object_check(&block, f->at + HTH_BLOCK, block.data_len, err)))
        return rc;
    if (block.data_len && block.signature == HTH_SIG_TENSORS)
        rc = hth_found_tensor(&found, f->at + HTH_BLOCK, block.data_len, err);
    *out = found.header;
    return rc;
}

static int read_any(
        const struct file *f, const char *reader, struct hth_header *out, struct hearth_error *err)
{
    if (!strcmp(reader, "item"))
        return read_item(f, out, err);
    if (!strcmp(reader, "object file"))
        return read_object(f, out, err);
    return read_header(f, f->len, out, err);
}

static void judge(char **field)
{
    struct hearth_error err = { 0 };
    struct hth_header h = { 0 }, prefix;
    char name[256], got[HTH_HEADER_TEXT], want[HTH_HEADER_TEXT];
    struct file f;
    uint64_t bytes;
    int rc;

    snprintf(name, sizeof(name), "hostile/%s", field[FILE_NAME]);
    f = file_read(name);
    rc = read_any(&f, field[READER], &h, &err);
    if (rc) {
        cr_assert(eq(int, rc, HEARTH_ECORRUPT), "%s", name);
        cr_assert(ne(int, err.text[0], 0), "%s: no sentence", name);
    } else if (h.dtype) {
        must(hth_header_bytes(&h, &bytes, NULL));
    }
    if (!strncmp(field[VERDICT], "refuse", 6)) {
        cr_assert(ne(int, rc, 0), "%s was accepted: %s", name, field[WHAT]);
    } else if (!strncmp(field[VERDICT], "ok", 2)) {
        cr_assert(eq(int, rc, 0), "%s was refused: %s", name, err.text);
        if (strstr(field[VERDICT], "float32")) {
            hth_header_text(&h, got);
            meaning(field[VERDICT], want);
            must_say(got, want);
        }
        for (size_t cut = 0; !strcmp(field[READER], "header") && cut < f.len; cut++)
            must_fail(read_header(&f, cut, &prefix, NULL), HEARTH_ECORRUPT);
    }
    free(f.at);
}

Test(hostile, every_input_gets_its_verdict, .timeout = 120)
{
    struct file index = file_read("hostile/index.tsv");
    size_t pos = 0, rows = 0;
    char *field[FIELDS];

    alarm(120);
    row_next(&index, &pos, field, FIELDS);
    while (row_next(&index, &pos, field, FIELDS)) {
        if (!strcmp(field[READER], "metadata"))
            continue;
        judge(field);
        rows++;
    }
    cr_assert(eq(sz, rows, 132u + 27 + 14 + 13));
    free(index.at);
}

Test(hostile, a_refusal_names_the_byte)
{
    static const unsigned char evil[] = "\x80\x04\x8c\x02os\x8c\x06system\x93.";
    struct file f = { malloc(sizeof(evil) - 1), sizeof(evil) - 1 };
    struct hearth_error err;
    struct hth_header h;

    memcpy(f.at, evil, f.len);
    must_fail(read_header(&f, f.len, &h, &err), HEARTH_ECORRUPT);
    must_say(err.text, "byte 14: the global 'system' of 'os' is not allowed here");
    free(f.at);
}
