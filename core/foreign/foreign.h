/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The content of a foreign container, by names and bytes: the rank that owns a file, where the
 * file's data begins, and which objects the container's `.metadata` names. All of these bytes are
 * untrusted.
 */
#ifndef HEARTH_CORE_FOREIGN_FOREIGN_H
#define HEARTH_CORE_FOREIGN_FOREIGN_H

#include "core/base/auth.h"
#include "core/format/manifest.h"

#define HTH_METADATA ".metadata"

/* The rank behind `src` in the name; else the first number of `__<rank>_<n>`; else
 * HTH_OWNER_NONE. */
uint32_t hth_foreign_owner(const char *name);

/* The file `name` of `bytes` bytes as an object; its digest is not known yet. */
struct hth_object hth_foreign_object(const char *name, uint64_t bytes);

/* Where the items of a file lie, and as what. A file without a block is one byte string from its
 * first byte on: signature HTH_SIG_NONE. A block of a length and nothing but zeros is what
 * ml-flashpoint wrote up to v0.0.4: torch.save's zips, as with the signature TORCH___. */
struct hth_foreign_data {
    uint64_t at, len;
    enum hth_signature signature;
};

/* Of bytes[len], a whole file. Errors: HEARTH_ECORRUPT, torn: it has the block of an object and
 * less data than its block says, or no signature and no data. */
int hth_foreign_data(
        struct hth_foreign_data *out, const void *bytes, uint64_t len, struct hearth_error *err);

/* Facts about a file's items, computed from all its bytes, for a node that has the `.metadata` but
 * not the file. */
enum hth_foreign_flag {
    HTH_FOREIGN_SHAPED = 1,   /* the digest has shapes in it */
    HTH_FOREIGN_TENSORS = 2,  /* no tensor comes after the items counted */
    HTH_FOREIGN_BLOCK = 4,    /* its data ends where its last item ends */
    HTH_FOREIGN_READABLE = 8, /* `.metadata`: Hearth can read it */
    HTH_FOREIGN_LINK = 16,    /* a link into its writer's buffers: the writer's own */
};

struct hth_foreign_look {
    uint32_t flags;
    uint32_t items;                   /* that carry their own length, from the front on */
    uint64_t data_len;                /* of the section that offsets count in */
    unsigned char digest[HTH_DIGEST]; /* of those items: hth_foreign_item() */
};

/* out->flags: HTH_FOREIGN_LINK stays as it is. Errors: HEARTH_ECORRUPT, torn: the same as above,
 * a tensor that is cut off, a `.metadata` that is no whole pickle; HEARTH_ENOMEM. */
int hth_foreign_look(struct hth_foreign_look *out, const char *name, const void *bytes,
        uint64_t len, struct hearth_error *err);

/* One item more. shape NULL: no tensor, or shapes are left out. */
void hth_foreign_item(
        struct hth_digesting *d, uint64_t at, uint64_t len, const int64_t *shape, uint32_t ndim);

/* The next file name `...distcp` in the pickle bytes[len] from *pos on. 1, or 0 at the end. Names
 * come as often as they stand there. */
int hth_foreign_name_next(const void *bytes, size_t len, size_t *pos, char out[HTH_NAME_MAX + 1]);

#endif
