/* SPDX-License-Identifier: Apache-2.0 */
/* Where an object's bytes are read from. */
/* For this folder alone. */
#ifndef HEARTH_CLIENT_SOURCE_H
#define HEARTH_CLIENT_SOURCE_H

#include "checkpoint.h"

/* Map the object or fetch its table. */
int hth_source_open(struct hearth_checkpoint *c, struct hth_source *s, struct hearth_error *err);
/* The halves of that, by the engine's answer; each takes fd. What fails may be opened again. */
int hth_source_mapped(struct hearth_checkpoint *c, struct hth_source *s,
        const struct hth_local_mapped *m, int fd, uint64_t lease, struct hearth_error *err);
int hth_source_table(struct hth_source *s, int fd, struct hearth_error *err);
void hth_source_close(struct hearth_checkpoint *c, struct hth_source *s);
/* Bytes [off, off + len) of the object's data, where they can be read: until the next call for
 * this source. Checked against the table where they came from elsewhere. */
int hth_source_at(struct hearth_checkpoint *c, struct hth_source *s, uint64_t off, uint64_t len,
        const unsigned char **out, struct hearth_error *err);
/* The same copied to dst[len], piece by piece. */
int hth_read_data(struct hearth_checkpoint *c, struct hth_source *s, uint64_t off, void *dst,
        uint64_t len, struct hearth_error *err);
/* Ask for what of [off, off + len) comes first, if there is room for more that is on its way. */
void hth_source_ahead(
        struct hearth_checkpoint *c, struct hth_source *s, uint64_t off, uint64_t len);
int hth_ahead_room(const struct hearth_checkpoint *c);
int hth_range(struct hearth *h, struct hth_save_id save, uint64_t object, uint64_t off,
        uint64_t len, int *out_fd, struct hearth_error *err);
/* A descriptor the engine sent, mapped; at least `len` long. */
int hth_map_answer(int fd, uint64_t len, void **out, struct hearth_error *err);

#endif
