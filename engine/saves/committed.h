/* SPDX-License-Identifier: Apache-2.0 */
/* The commit record: what ranks handed over by COMMIT, of saves that are not decided. */
#ifndef HEARTH_ENGINE_COMMITTED_H
#define HEARTH_ENGINE_COMMITTED_H

#include "core/format/handed.h"

struct hth_held;
struct hth_held_save;
struct hth_node;
struct loan;

/* Writes to the record that COMMIT has come. 0: it is on record. */
int committed_note(struct hth_node *n, const struct loan *l);
/* A common object is sealed: writes its digest to the record, if COMMIT has come. */
void committed_digested(
        struct hth_node *n, const struct hth_held_save *save, const struct hth_held *held);
/* 1: the record has another digest of the common object. */
int committed_differs(
        const struct hth_node *n, const struct hth_held_save *save, const struct hth_held *held);
/* Reads what the engine before this one had on record. Errors: HEARTH_EUNSUPPORTED. */
int committed_read(struct hth_node *n, struct hearth_error *err);
/* The set of ranks that the record has for the save; NULL: none. */
const struct hth_ranks *committed_ranks(const struct hth_node *n, struct hth_save_id save);
void committed_forget(struct hth_node *n); /* all of it: its epoch is over */
void committed_close(struct hth_node *n);

#endif
