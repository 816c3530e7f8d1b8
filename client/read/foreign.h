/* SPDX-License-Identifier: Apache-2.0 */
/* Objects of another program's container. */
/* For this folder alone. */
#ifndef HEARTH_CLIENT_FOREIGN_H
#define HEARTH_CLIENT_FOREIGN_H

#include "checkpoint.h"

/* Maps the object and lists its items, which carry their kind. */
int hth_source_open_foreign(
        struct hearth_checkpoint *c, struct hth_source *s, struct hearth_error *err);

/* After each call that has read: are the files of other programs that it has read still as they
 * were? Asks the engine about each. Errors: HEARTH_ELOST by name; the bytes that were read may be
 * wrong. */
int hth_sources_same(struct hearth_checkpoint *c, struct hearth_error *err);
/* The same for one file. */
int hth_source_same(struct hearth_checkpoint *c, struct hth_source *s, struct hearth_error *err);

#endif
