/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the names and bytes of somebody else's container say: whose a file is, where its data
 * begins, and which objects its `.metadata` speaks of. Bytes nobody vouches for.
 */
#ifndef HEARTH_INTERNAL_CORE_FOREIGN_H
#define HEARTH_INTERNAL_CORE_FOREIGN_H

#include <hearth/internal/core/manifest.h>

#define HTH_METADATA ".metadata"

/* The rank behind `src` in the name; else the first number of `__<rank>_<n>`; else HTH_OWNER_NONE. */
uint32_t hth_foreign_owner(const char *name);

/* The file `name` of `bytes` bytes as an object; its digest is not known yet. */
struct hth_object hth_foreign_object(const char *name, uint64_t bytes);

/* Where the items of a file lie, and as what. A file without a block is one byte string from its
 * first byte on: signature HTH_SIG_NONE. */
struct hth_foreign_data {
    uint64_t at, len;
    enum hth_signature signature;
};

/* Of bytes[len], a whole file. Errors: HEARTH_ECORRUPT, torn: it has the signature of an object and
 * less data than its block says. */
int hth_foreign_data(
        struct hth_foreign_data *out, const void *bytes, uint64_t len, struct hearth_error *err);

/* Somebody else's file can be cut while it is mapped, and what is gone must not be touched. fd < 0: in
 * plain memory. */
int hth_foreign_whole(int fd, uint64_t bytes);

/* The next file name `...distcp` in the pickle bytes[len] from *pos on. 1, or 0 at the end. Names
 * come as often as they stand there. */
int hth_foreign_name_next(const void *bytes, size_t len, size_t *pos, char out[HTH_NAME_MAX + 1]);

#endif
