/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The members of a zip that torch.save wrote: stored, never compressed, so that each lies in the
 * bytes as it is. Only the central directory has their places; local headers carry no sizes, or the
 * same ones.
 */
#ifndef HEARTH_CORE_TORCH_ZIP_H
#define HEARTH_CORE_TORCH_ZIP_H

#include <hearth/error.h>
#include <stddef.h>
#include <stdint.h>

struct hth_zip_member {
    const char *name; /* [name_len], in the input */
    size_t name_len;
    uint64_t head; /* its local header: all offsets count from the zip's first byte */
    uint64_t at, len;
};

struct hth_zip {
    struct hth_zip_member *member; /* [count] in order of name */
    size_t count;
};

/* bytes[len] is the whole zip, and is borrowed while `out` is used. Members do not overlap and lie
 * before the central directory, and the local header of each agrees with the central directory; no
 * two names differ in case alone. Checksums are not looked at (torch.save may leave them out).
 * Errors: HEARTH_ECORRUPT, HEARTH_ENOMEM. */
int hth_zip_open(struct hth_zip *out, const void *bytes, size_t len, struct hearth_error *err);
void hth_zip_close(struct hth_zip *zip);

/* The length of the zip that begins at bytes[0]; 0: none begins there. Time: that of looking for
 * its end. */
size_t hth_zip_front(const void *bytes, size_t len);

/* NULL: none of this name. */
const struct hth_zip_member *hth_zip_find(const struct hth_zip *zip, const void *name, size_t len);

#endif
