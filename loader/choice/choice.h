/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The coordinator's part of recovery: gathers the inventories of all members, chooses a save, gives
 * the plan, counts votes, and sends GO or that the epoch has failed. All nodes have this object; at
 * members it stays empty.
 */
#ifndef HEARTH_LOADER_CHOICE_CHOICE_H
#define HEARTH_LOADER_CHOICE_CHOICE_H

#include "loader/restore/restore.h"

struct hth_choice;

/* `restore`: this node's own part as a member; borrowed until close. */
int hth_choice_open(struct hth_ctx *ctx, struct hth_restore *restore, struct hth_choice **out,
        struct hearth_error *err);

/* A node's inventory or vote has come: `count` of `due` nodes have sent it. */
typedef void hth_choice_report_fn(
        void *self, int vote, uint32_t node, uint32_t count, uint32_t due);
void hth_choice_on_report(struct hth_choice *co, hth_choice_report_fn *on_report, void *self);

void hth_choice_join(struct hth_choice *co); /* a new epoch: all of the old one is forgotten */

/* If all saves are beyond redundancy, the job begins with nothing instead of HEARTH_ELOST; until
 * the next join. */
void hth_choice_accept_loss(struct hth_choice *co);
void hth_choice_same_job(struct hth_choice *co);

/* Only this save may be chosen; epoch 0: the newest attempt at its step; until the next join. */
void hth_choice_want(struct hth_choice *co, struct hth_save_id save);

/* GO was sent before this process began. It is sent again to nodes that have not received it.
 * Errors: HEARTH_EUNSUPPORTED: the record of plans is of another version. */
int hth_choice_resume(struct hth_choice *co, struct hearth_error *err);

/* Sends all nodes that the epoch has failed. The first reason stays; none counts after GO. */
void hth_choice_fail(struct hth_choice *co, int code, const char *text);
void hth_choice_late(
        struct hth_choice *co); /* as above: the deadline has passed, and which nodes are missing */

void hth_choice_deliver(struct hth_choice *co, uint32_t origin, uint16_t kind,
        const unsigned char *bytes, size_t len);
void hth_choice_manifest(struct hth_choice *co, const struct hth_blob_id *id,
        const unsigned char *bytes, size_t len);
void hth_choice_tick(struct hth_choice *co, uint64_t now_ms);
void hth_choice_close(struct hth_choice *co); /* workers have ended */

#endif
