/* SPDX-License-Identifier: Apache-2.0 */
/* Which pieces a rank's save has already. */
/* For this folder alone. */
#ifndef HEARTH_CLIENT_SEEN_H
#define HEARTH_CLIENT_SEEN_H

#include "save.h"

/* Note the records of the open object that are new. HEARTH_EINVAL, naming the key: a piece is there
 * already; then what came after `before` is to be taken back. */
int hth_seen_take(
        struct hearth_save *s, const struct hth_written *before, struct hearth_error *err);
void hth_seen_clear(struct hth_seen *seen); /* or NULL */
void hth_seen_close(struct hth_seen *seen);

#endif
