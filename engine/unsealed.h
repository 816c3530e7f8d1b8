/* SPDX-License-Identifier: Apache-2.0 */
/* The commit record: what ranks handed over by COMMIT and is not sealed yet. */
/* For this folder alone. */
#ifndef HEARTH_ENGINE_UNSEALED_H
#define HEARTH_ENGINE_UNSEALED_H

#include "core/format/handed.h"

struct hth_node;
struct loan;

/* COMMIT was heard: on record what of it is not sealed. 0 when it is on record, or need not be. */
int unsealed_note(struct hth_node *n, const struct loan *l);
/* It is sealed, or will never be. */
void unsealed_end(struct hth_node *n, struct hth_save_id save, uint64_t object);
/* What the engine before this one had on record; known from here on. Errors: HEARTH_EUNSUPPORTED. */
int unsealed_read(struct hth_node *n, struct hearth_error *err);
/* The set of ranks that the record has for the save; NULL: none. */
const struct hth_ranks *unsealed_ranks(const struct hth_node *n, struct hth_save_id save);
void unsealed_forget(struct hth_node *n); /* all of it: its epoch is over */
void unsealed_close(struct hth_node *n);

#endif
