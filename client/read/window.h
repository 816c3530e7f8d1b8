/* SPDX-License-Identifier: Apache-2.0 */
/* The bytes of an object. */
/* For this folder alone. */
#ifndef HEARTH_CLIENT_WINDOW_H
#define HEARTH_CLIENT_WINDOW_H

#include "checkpoint.h"

/* Makes bytes [off, off + len) of the object's data readable at *out, until the next call for this
 * source. Bytes from elsewhere are checked against the table. */
int hth_source_at(struct hearth_checkpoint *c, struct hth_source *s, uint64_t off, uint64_t len,
        const unsigned char **out, struct hearth_error *err);
/* 1: that call would make no other bytes unreadable. */
int hth_source_holds(const struct hth_source *s, uint64_t off, uint64_t len);
/* The same copied to dst[len], piece by piece. */
int hth_read_data(struct hearth_checkpoint *c, struct hth_source *s, uint64_t off, void *dst,
        uint64_t len, struct hearth_error *err);
/* Prefetches the first bytes of [off, off + len). Several prefetches of one source are read in the
 * order of their bytes. */
void hth_source_ahead(
        struct hearth_checkpoint *c, struct hth_source *s, uint64_t off, uint64_t len);
int hth_source_has_ahead(const struct hth_source *s);
/* 1: there is room for a prefetch of a source that has none. */
int hth_ahead_room(const struct hearth_checkpoint *c);
/* 1: there is room for one more prefetch of this source. Once slices of it have come with their
 * checksums, it may have many. */
int hth_source_room(const struct hearth_checkpoint *c, const struct hth_source *s);
/* 1: half of the prefetches that it may have are read. */
int hth_source_lacks(const struct hth_source *s);
/* Ends them: they will not be read. */
void hth_source_forget_ahead(struct hearth_checkpoint *c, struct hth_source *s);

void hth_window_close(struct hearth_checkpoint *c, struct hth_source *s);

#endif
