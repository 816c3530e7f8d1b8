/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From joining to GO: inventory, choice, plan, pull, verify, vote; on a member and at the
 * coordinator. The rules are in docs/design/recovery.md.
 */
#ifndef HEARTH_LOADER_RECOVER_H
#define HEARTH_LOADER_RECOVER_H

#include "loader/plan/plan.h"
#include "replication/commit/commit.h"
#include <hearth/types.h>

struct hth_recover;

struct hth_recover_events {
    void *self;
    /* GO has come (code 0; info is filled, save epoch 0: nothing to recover), or this epoch has
     * failed. Once per epoch; a failure also before a rank of this node has asked. */
    void (*on_end)(void *self, int code, const struct hearth_error *err, struct hth_save_id save,
            const struct hearth_recovery *info);
    /* At the coordinator, before the end: a node's inventory or vote has come; `count` of `due`
     * nodes have sent it. NULL: there is no record. */
    void (*on_report)(void *self, int vote, uint32_t node, uint32_t count, uint32_t due);
};

int hth_recover_open(struct hth_ctx *ctx, const struct hth_recover_events *events,
        struct hth_recover **out, struct hearth_error *err);

/* A new epoch: what was under way ends with HEARTH_ECANCELED. */
void hth_recover_join(struct hth_recover *r);

/* Every node also needs the file of this name of a foreign container; until the next join. */
void hth_recover_common(struct hth_recover *r, const char *name);

/* If all saves are beyond redundancy, the job begins with nothing instead of HEARTH_ELOST; until
 * the next join. */
void hth_recover_accept_loss(struct hth_recover *r);

/* The ranks have recovered in an earlier epoch, so the job that did has not ended. Until the next
 * join; only the call for the coordinator's ranks counts. */
void hth_recover_same_job(struct hth_recover *r);

/* Only this save may be chosen (epoch 0: the newest attempt at its step); until the next join. Only
 * the call for the coordinator's ranks counts. */
void hth_recover_want(struct hth_recover *r, struct hth_save_id save);

/* The first local rank asks. Errors: HEARTH_ESTATE (running already, or ended). */
int hth_recover_start(struct hth_recover *r, uint32_t deadline_ms, struct hearth_error *err);

/* This node cannot take part in the epoch that it has just joined: all members are notified. */
void hth_recover_refuse(struct hth_recover *r, const struct hearth_error *why);

/* An engine was restarted after GO: this epoch's recovery ended well before this process began. The
 * coordinator sends GO again to nodes that have not received it. Errors: HEARTH_EUNSUPPORTED: the
 * coordinator's record of plans is of another version. */
int hth_recover_resume(struct hth_recover *r, struct hearth_error *err);

/* Holders of an object of the chosen save as the plan knew them; for resharded reads. */
uint32_t hth_recover_sources(
        const struct hth_recover *r, uint64_t object, uint32_t out[HTH_PLAN_SOURCES]);

/* Steps that were not chosen and why, as lines; "" where none was. Of this epoch, once it has ended
 * well. */
const char *hth_recover_ruled_out(const struct hth_recover *r);

/* How many pulls wait for a slot to be made; UINT_MAX: this node does not pull now. */
unsigned hth_recover_put_off(const struct hth_recover *r);

void hth_recover_deliver(struct hth_recover *r, uint32_t origin, uint16_t kind,
        const unsigned char *bytes, size_t len);
void hth_recover_blob(struct hth_recover *r, const struct hth_blob_id *id,
        const unsigned char *bytes, size_t len);
void hth_recover_blob_failed(
        struct hth_recover *r, const struct hth_blob_id *id, const struct hearth_error *err);
void hth_recover_peer_down(struct hth_recover *r, uint32_t node, int code, const char *text);
void hth_recover_tick(struct hth_recover *r);
uint64_t hth_recover_due_ms(const struct hth_recover *r);
void hth_recover_close(struct hth_recover *r);

#endif
