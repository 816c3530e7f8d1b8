/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An object as a file that is mapped and trusted in steps: block, table by its digest, then, where
 * asked, chunks by their checksums. A foreign object has a block of two fields and no more.
 */
#include "named.h"

#include "core/base/auth.h"
#include "core/base/map.h"
#include "core/base/open.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define TABLE_MAX (UINT64_C(4) << 30) /* bytes */

static int object_map(struct object *o, int fd, const char *path, struct hearth_error *err)
{
    struct stat st;

    if (fstat(fd, &st))
        return place_failed(path, err);
    o->len = (uint64_t)st.st_size;
    o->at = o->len ? hth_map_sparse(fd, o->len) : NULL;
    if (o->len && !o->at)
        return hth_fail(err, HEARTH_EIO, errno, "%.300s cannot be mapped: %s", path,
                strerrordesc_np(errno));
    return HEARTH_OK;
}

/* It is read again at each use, so it is a copy: another program may write over the file
 * meanwhile. */
static int object_open_table(struct object *o, struct hearth_error *err)
{
    unsigned char digest[HTH_DIGEST], *at;
    int rc;

    at = o->block.table_len <= TABLE_MAX ? malloc(o->block.table_len) : NULL;
    if (!at)
        return hth_fail(err, HEARTH_ENOMEM, 0,
                "an object table of %" PRIu64 " bytes is too large to be read", o->block.table_len);
    o->table_copy = at;
    memcpy(at, o->at + o->block.table_off, o->block.table_len);
    hth_digest(digest, at, o->block.table_len);
    if (memcmp(digest, o->block.table_digest, HTH_DIGEST) != 0)
        return hth_fail(err, HEARTH_ECORRUPT, 0, "the object table does not match its digest");
    rc = hth_table_decode(&o->table, at, o->block.table_len, err);
    if (!rc && o->table.data_len != o->block.data_len)
        rc = hth_fail(err, HEARTH_ECORRUPT, 0, "block and table differ in the length of the data");
    return rc;
}

int object_open(struct object *o, int fd, const char *path, struct hearth_error *err)
{
    uint64_t head;
    int rc;

    *o = (struct object){ .path = path };
    if ((rc = object_map(o, fd, path, err)))
        return rc;
    head = o->len < HTH_BLOCK ? o->len : HTH_BLOCK;
    rc = hth_block_decode(&o->block, o->at, head, o->len, err);
    if (!rc)
        rc = o->block.own ? object_open_table(o, err)
                          : hth_object_check(&o->block, o->at + HTH_BLOCK, o->block.data_len, err);
    if (rc) {
        object_close(o);
        return hth_while(err, rc, "%.300s", path);
    }
    object_rewind(o);
    return HEARTH_OK;
}

int object_open_named(struct object *o, const char *path, struct hearth_error *err)
{
    struct place p;
    int fd = object_file(NULL, path, &p, err), rc;

    if (fd < 0)
        return fd;
    rc = object_open(o, fd, path, err);
    close(fd);
    place_close(&p);
    return rc;
}

struct object_names {
    struct named metadata;
    struct named_item *item; /* [count] in order, apart, within the data */
    size_t count, at;
};

static void object_names_free(struct object_names *names)
{
    if (!names)
        return;
    free(names->item);
    named_close(&names->metadata);
    free(names);
}

/* All of them lie in this object, one behind the other. */
static int object_names_fit(const struct object_names *names, uint64_t len)
{
    uint64_t end = 0;

    for (size_t i = 0; i < names->count; i++) {
        if (names->item[i].at < end || names->item[i].at > len ||
                names->item[i].len > len - names->item[i].at)
            return 0;
        end = names->item[i].at + names->item[i].len;
    }
    return names->count != 0;
}

void object_name_items(struct object *o)
{
    const char *slash = strrchr(o->path, '/');
    struct object_names *names = o->block.own || o->names ? NULL : calloc(1, sizeof(*names));
    char dir[4096] = ".";
    int container;

    if (slash)
        snprintf(dir, sizeof(dir), "%.*s", (int)(slash - o->path) + (slash == o->path), o->path);
    container = names ? hth_open_named(dir, O_PATH | O_DIRECTORY) : -1;
    if (container >= 0 && !named_open(&names->metadata, container, dir, NULL) &&
            !named_items(&names->metadata, slash ? slash + 1 : o->path, &names->item, &names->count,
                    NULL) &&
            object_names_fit(names, o->block.data_len))
        o->names = names;
    else
        object_names_free(names);
    if (container >= 0)
        close(container);
}

void object_close(struct object *o)
{
    object_names_free(o->names);
    o->names = NULL;
    free(o->table_copy);
    o->table_copy = NULL;
    if (o->at)
        munmap((void *)(uintptr_t)o->at, o->len);
    o->at = NULL;
}

const char *object_format(const struct object *o)
{
    switch (o->block.signature) {
    case HTH_SIG_TENSORS:
        return "MLF_TENS";
    case HTH_SIG_TORCH:
        return "TORCH___";
    default:
        return "none";
    }
}

void object_rewind(struct object *o)
{
    o->pos = 0;
    if (o->names)
        o->names->at = 0;
    hth_items_init(&o->walk, o->block.signature, o->at + HTH_BLOCK, o->block.data_len);
}

/* The next item of the table, compared with the header in the data. */
static int object_own_next(struct object *o, struct item *out, struct hearth_error *err)
{
    struct hth_item *own = &out->own;
    struct hearth_error cause;
    int rc = hth_item_next(&o->table, &o->pos, own);

    if (rc)
        return rc; /* it is our copy: HEARTH_ENOENT */
    if (own->kind == HTH_ITEM_TENSOR) {
        rc = hth_found_tensor(&out->found, o->at + HTH_BLOCK + own->offset, own->length, &cause);
        if (rc || out->found.header.dtype != own->dtype || out->found.header.ndim != own->ndim ||
                out->found.payload != own->payload ||
                memcmp(out->found.header.shape, own->shape, own->ndim * sizeof(int64_t)) != 0)
            return hth_fail(err, HEARTH_ECORRUPT, 0,
                    "%.200s: the header of the tensor at offset %" PRIu64
                    " does not match the table%s%.200s",
                    o->path, own->offset, rc ? ": " : "", rc ? cause.text : "");
    }
    out->found.kind = own->kind;
    out->found.offset = own->offset;
    out->found.length = own->length;
    out->found.payload = own->kind == HTH_ITEM_TENSOR ? own->payload : 0;
    return HEARTH_OK;
}

/* The next item of the list; of a tensor its header. */
static int object_named_next(struct object *o, struct item *out)
{
    const struct named_item *i = &o->names->item[o->names->at];
    struct hth_found f;

    if (o->names->at == o->names->count)
        return HEARTH_ENOENT;
    o->names->at++;
    out->found = (struct hth_found){ .kind = HTH_ITEM_BYTES, .offset = i->at, .length = i->len };
    if (i->tensor && o->block.signature == HTH_SIG_TENSORS &&
            !hth_found_tensor(&f, o->at + HTH_BLOCK + i->at, i->len, NULL)) {
        f.offset = i->at;
        out->found = f;
    }
    out->own.key = i->name.data;
    out->own.key_len = i->name.len;
    return HEARTH_OK;
}

int object_next(struct object *o, struct item *out, struct hearth_error *err)
{
    int rc;

    memset(out, 0, sizeof(*out));
    if (o->block.own)
        return object_own_next(o, out, err);
    if (o->names)
        return object_named_next(o, out);
    rc = hth_items_next(&o->walk, &out->found, err);
    return rc && rc != HEARTH_ENOENT ? hth_while(err, rc, "%.300s", o->path) : rc;
}

static int object_chunk_is_wrong(const struct object *o, uint32_t c, struct hearth_error *err)
{
    uint64_t from = c * HTH_CHUNK, n = hth_chunk_len(o->block.data_len, c);

    return hth_fail(err, HEARTH_ECORRUPT, 0,
            "%.300s: chunk %" PRIu32 " (bytes %" PRIu64 " to %" PRIu64
            " of the data) does not match its checksum",
            o->path, c, from, from + n - 1);
}

int object_check(
        struct object *o, uint64_t off, uint64_t len, struct meter *meter, struct hearth_error *err)
{
    if (!o->block.own || !len)
        return HEARTH_OK;
    for (uint32_t c = (uint32_t)(off / HTH_CHUNK); c < o->table.chunks && c * HTH_CHUNK < off + len;
            c++) {
        if (!hth_chunk_is(&o->table.proofs, c, o->at + HTH_BLOCK + c * HTH_CHUNK))
            return object_chunk_is_wrong(o, c, err);
        meter_add(meter, hth_chunk_len(o->block.data_len, c));
    }
    return HEARTH_OK;
}

int object_chunk(struct object *o, uint32_t chunk, unsigned char *out, uint64_t *out_len,
        struct hearth_error *err)
{
    *out_len = hth_chunk_len(o->block.data_len, chunk);
    memcpy(out, o->at + HTH_BLOCK + chunk * HTH_CHUNK, *out_len);
    if (o->block.own && !hth_chunk_is(&o->table.proofs, chunk, out))
        return object_chunk_is_wrong(o, chunk, err);
    return HEARTH_OK;
}

int object_verify(struct object *o, struct meter *meter, struct hearth_error *err)
{
    struct item item;
    int rc = object_check(o, 0, o->block.data_len, meter, err);

    object_rewind(o);
    while (!rc)
        rc = object_next(o, &item, err);
    object_rewind(o);
    return rc == HEARTH_ENOENT ? HEARTH_OK : rc;
}
