/* SPDX-License-Identifier: Apache-2.0 */
/* An object opened for reading. */
/* For this folder alone. */
#ifndef HEARTH_CLIENT_SOURCE_H
#define HEARTH_CLIENT_SOURCE_H

#include "checkpoint.h"

struct hth_lease;

/* Map the object or fetch its table. */
int hth_source_open(struct hearth_checkpoint *c, struct hth_source *s, struct hearth_error *err);
/* The halves of that, by the engine's answer; each takes fd, and the lease. After a failure the
 * source may be opened again. */
int hth_source_mapped(struct hearth_checkpoint *c, struct hth_source *s,
        const struct hth_local_mapped *m, int fd, struct hth_lease *lease,
        struct hearth_error *err);
int hth_source_table(struct hth_source *s, int fd, struct hearth_error *err);
void hth_source_close(struct hearth_checkpoint *c, struct hth_source *s);
/* HEARTH_ENOENT, with what to do instead. */
int hth_source_not_here(const struct hth_source *s, struct hearth_error *err);

#endif
