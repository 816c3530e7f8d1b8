/* SPDX-License-Identifier: Apache-2.0 */
/* inspect and cat: what one object consists of, and one item of it. */
#include "cli.h"
#include "core/base/options.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static json_t *inspect_json_dims(const int64_t *dims, uint32_t n)
{
    json_t *list = json_array();

    for (uint32_t i = 0; i < n; i++)
        json_array_append_new(list, json_integer(dims[i]));
    return list;
}

/* Adds what only the table has, and no header. */
static void inspect_add_own(json_t *j, const struct hth_item *own)
{
    json_object_set_new(j, "key", json_text(own->key, own->key_len));
    if (own->kind != HTH_ITEM_TENSOR)
        return;
    json_object_set_new(j, "global_shape", inspect_json_dims(own->global_shape, own->ndim));
    json_object_set_new(j, "global_offset", inspect_json_dims(own->global_offset, own->ndim));
}

static json_t *inspect_json_item(const struct object *o, const struct item *item)
{
    const struct hth_found *f = &item->found;
    int tensor = f->kind == HTH_ITEM_TENSOR;
    json_t *j = json_object();

    json_object_set_new(j, "kind", json_string(tensor ? "tensor" : "bytes"));
    json_object_set_new(j, "offset", json_integer((json_int_t)f->offset));
    json_object_set_new(j, "length", json_integer((json_int_t)f->length));
    if (tensor) {
        json_object_set_new(j, "data_offset", json_integer(f->offset + f->payload));
        json_object_set_new(j, "data_bytes", json_integer(f->length - f->payload));
        json_object_set_new(j, "dtype", json_string(hearth_dtype_name(f->header.dtype)));
        json_object_set_new(j, "shape", inspect_json_dims(f->header.shape, f->header.ndim));
    }
    if (o->block.own)
        inspect_add_own(j, &item->own);
    else if (item->own.key)
        json_object_set_new(j, "key", json_text(item->own.key, item->own.key_len));
    return j;
}

static json_t *inspect_json_save(const struct hth_block *b)
{
    char nonce[20];

    snprintf(nonce, sizeof(nonce), "%016" PRIx64, b->save.nonce); /* beyond JSON's numbers */
    return json_pack("{s:o, s:o, s:s, s:I}", "step", json_unsigned(b->save.step), "epoch",
            json_unsigned(b->save.epoch), "nonce", nonce, "attempt", (json_int_t)b->save.attempt);
}

static const char *inspect_integrity(const struct object *o)
{
    return hth_option_word_of(&hth_options[HTH_AT_integrity],
            o->table.strong ? HEARTH_INTEGRITY_STRONG : HEARTH_INTEGRITY_CRC32C);
}

static json_t *inspect_json_object(const struct object *o, int verified, json_t *items)
{
    json_t *j = json_pack("{s:s, s:I, s:b}", "format", object_format(o), "bytes_written",
            (json_int_t)o->block.data_len, "verified", verified);

    if (o->block.own) {
        json_object_set_new(j, "job", json_string(o->block.job));
        json_object_set_new(j, "name", json_string(o->block.name));
        json_object_set_new(j, "owner", json_integer(o->block.owner));
        json_object_set_new(j, "save", inspect_json_save(&o->block));
        json_object_set_new(j, "integrity", json_string(inspect_integrity(o)));
    }
    json_object_set_new(j, "items", items);
    return j;
}

static void inspect_print_head(const struct object *o, int verified)
{
    const struct hth_block *b = &o->block;
    char size[32];

    human(size, b->data_len);
    say("format    %s\nwritten   %" PRIu64 " bytes (%s)\n", object_format(o), b->data_len, size);
    if (b->own)
        say("object    %s of rank %" PRIu32 ", job %s\nsave      " HTH_SAVE "\nintegrity %s\n",
                b->name, b->owner, b->job, HTH_SAVE_ARGS(b->save), inspect_integrity(o));
    say("verified  %s\n\n", verified ? "yes, every byte"
                            : b->own ? "NO: see the message"
                                     : "no: a foreign object has no checksums");
}

static void inspect_grid_item(struct grid *g, const struct item *item)
{
    const struct hth_found *f = &item->found;
    char text[HTH_HEADER_TEXT] = "", key[80] = "";

    if (f->kind == HTH_ITEM_TENSOR)
        hth_header_text(&f->header, text);
    if (item->own.key)
        plain(key, sizeof(key), item->own.key, item->own.key_len);
    grid_add(g, "%s", f->kind == HTH_ITEM_TENSOR ? "tensor" : "bytes");
    grid_add(g, "%" PRIu64, f->offset);
    grid_add(g, "%" PRIu64, f->length);
    grid_add(g, "%" PRIu64, f->length - f->payload);
    grid_add(g, "%s", text);
    grid_add(g, "%s", key);
}

static int inspect_show_items(
        struct object *o, int verified, const struct args *a, struct hearth_error *err)
{
    static const char *const titles[] = { "KIND", "OFFSET", "LENGTH", "PAYLOAD", "TENSOR", "KEY" };
    struct grid g = { .columns = 6 };
    json_t *items = json_array();
    struct item item;
    int rc;

    grid_titles(&g, titles);
    while (!(rc = object_next(o, &item, err))) {
        if (a->json)
            json_array_append_new(items, inspect_json_item(o, &item));
        else
            inspect_grid_item(&g, &item);
    }
    rc = rc == HEARTH_ENOENT ? HEARTH_OK : rc;
    if (!rc && a->json && print_json(inspect_json_object(o, verified, json_incref(items))))
        rc = hth_fail(err, HEARTH_ENOMEM, 0, "no memory for the output");
    if (!rc && !a->json) {
        inspect_print_head(o, verified);
        grid_print(&g, "lrrrll");
    }
    json_decref(items);
    grid_free(&g);
    return rc;
}

enum status run_inspect(const struct args *a)
{
    struct hearth_error err = { 0 }, wrong = { 0 };
    struct meter meter = { 0 };
    struct object o;
    int rc = object_open_named(&o, a->value[0], &err), bad = 0;

    if (rc)
        return complain(&err);
    object_name_items(&o);
    if (o.block.own) {
        meter.total = o.block.data_len;
        bad = object_check(&o, 0, o.block.data_len, &meter, &wrong);
        meter_end(&meter);
    }
    rc = inspect_show_items(&o, o.block.own && !bad, a, &err);
    object_close(&o);
    if (rc)
        return complain(&err);
    return bad ? complain(&wrong) : STATUS_OK;
}

/* The item of non-zero length at `offset`. */
static int cat_find_item(
        struct object *o, uint64_t offset, struct item *out, struct hearth_error *err)
{
    int rc;

    while (!(rc = object_next(o, out, err)))
        if (out->found.offset == offset && out->found.length)
            return HEARTH_OK;
    if (rc != HEARTH_ENOENT)
        return rc;
    return hth_fail(err, HEARTH_ENOENT, 0,
            "%.300s: no item begins at offset %" PRIu64 ": see hearth inspect", o->path, offset);
}

static int cat_write(const unsigned char *at, uint64_t len, struct hearth_error *err)
{
    if (len && fwrite(at, 1, len, stdout) != len)
        return hth_fail(
                err, HEARTH_EIO, errno, "cannot write the output: %s", strerrordesc_np(errno));
    return HEARTH_OK;
}

/* Writes chunk by chunk: each is copied and then checked. All chunks were checked before the first
 * is written. */
static int cat_chunks(struct object *o, uint64_t off, uint64_t len, struct hearth_error *err)
{
    unsigned char *chunk = malloc(HTH_CHUNK);
    int rc = chunk ? HEARTH_OK : hth_fail(err, HEARTH_ENOMEM, 0, "no memory for 4 MiB");

    while (!rc && len) {
        uint32_t c = (uint32_t)(off / HTH_CHUNK);
        uint64_t from = off % HTH_CHUNK, n, have;

        rc = object_chunk(o, c, chunk, &have, err);
        if (rc)
            break;
        n = len < have - from ? len : have - from;
        rc = cat_write(chunk + from, n, err);
        off += n;
        len -= n;
    }
    free(chunk);
    return rc;
}

enum status run_cat(const struct args *a)
{
    struct hearth_error err = { 0 };
    unsigned long long offset = 0;
    struct item item;
    struct object o;
    char *end;
    int rc;

    if (!a->offset)
        return complain_usage("cat needs --offset: an item's, as hearth inspect shows it");
    errno = 0;
    offset = strtoull(a->offset, &end, 10);
    if (a->offset[0] < '0' || a->offset[0] > '9' || *end || errno)
        return complain_usage("--offset is '%.64s': give a number of bytes", a->offset);
    if (object_open_named(&o, a->value[0], &err))
        return complain(&err);
    object_name_items(&o);
    rc = cat_find_item(&o, offset, &item, &err);
    if (!rc)
        rc = object_check(&o, item.found.offset, item.found.length, NULL, &err);
    if (!rc)
        rc = cat_chunks(&o, item.found.offset + item.found.payload,
                item.found.length - item.found.payload, &err);
    object_close(&o);
    return rc ? complain(&err) : STATUS_OK;
}
