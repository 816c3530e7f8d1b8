/* SPDX-License-Identifier: Apache-2.0 */
/* The items of a checkpoint. */
/* For this folder alone. */
#ifndef HEARTH_CLIENT_INDEX_H
#define HEARTH_CLIENT_INDEX_H

#include "checkpoint.h"

/* Index the items of this rank's objects, or of all. */
int hth_index(struct hearth_checkpoint *c, int all, struct hearth_error *err);
size_t hth_index_count(const struct hearth_checkpoint *c, int all); /* after hth_index() */
void hth_index_fini(struct hearth_checkpoint *c);
/* The next entry of a key after `last` (NULL: the first); NULL: no more. */
const struct hth_entry *hth_entry_find(const struct hearth_checkpoint *c, const void *key,
        size_t len, const struct hth_entry *last);
/* The entry of this number in the index, which has it. */
const struct hth_entry *hth_entry_at(const struct hearth_checkpoint *c, size_t index);
/* The source of this name, opened. HEARTH_ENOENT: the checkpoint has none. */
int hth_source_named(struct hearth_checkpoint *c, const char *name, struct hth_source **out,
        struct hearth_error *err);
/* The item that begins at `offset` of the object's data. */
int hth_entry_in(struct hearth_checkpoint *c, const char *object, uint64_t offset,
        const struct hth_entry **out, struct hearth_error *err);

#endif
