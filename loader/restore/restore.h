/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A member's part of recovery, from its ranks' request to GO: sends what it holds, carries out the
 * plan, votes. States are drawn in restore_state.h, the rules are in docs/design/recovery.md.
 */
#ifndef HEARTH_LOADER_RESTORE_RESTORE_H
#define HEARTH_LOADER_RESTORE_RESTORE_H

#include "loader/plan/plan.h"
#include "replication/commit/commit.h"
#include <hearth/types.h>

struct hth_restore;

/* GO has come (code 0; info is filled, save epoch 0: nothing to recover), or this epoch has failed.
 * Once per epoch; a failure also before a rank of this node has asked. */
typedef void hth_restore_end_fn(void *self, int code, const struct hearth_error *err,
        struct hth_save_id save, const struct hearth_recovery *info);

int hth_restore_open(struct hth_ctx *ctx, hth_restore_end_fn *on_end, void *self,
        struct hth_restore **out, struct hearth_error *err);

/* A new epoch: what was under way ends with HEARTH_ECANCELED. */
void hth_restore_join(struct hth_restore *r);

#define HTH_RESTORE_COMMON 32u
#define HTH_RULED_OUT      2048u /* bytes of all reasons, NUL included */

/* Every node also needs the file of this name of a foreign container; until the next join. */
void hth_restore_common(struct hth_restore *r, const char *name);

/* The first local rank asks. Errors: HEARTH_ESTATE (running already, or ended). */
int hth_restore_start(struct hth_restore *r, uint32_t deadline_ms, struct hearth_error *err);

/* This node cannot take part: the coordinator, which is another node, is notified. */
void hth_restore_refuse(struct hth_restore *r, const struct hearth_error *why);

/* 0: no rank of this node has asked in this epoch */
int hth_restore_begun(const struct hth_restore *r);
int hth_restore_running(const struct hth_restore *r); /* 1: inventory sent, and not ended */
int hth_restore_ended(const struct hth_restore *r);
int hth_restore_late(const struct hth_restore *r, uint64_t now_ms); /* 1: past its deadline */
uint32_t hth_restore_left_ms(const struct hth_restore *r);          /* at least 1 */
/* the deadline has passed, and the coordinator is another node */
void hth_restore_give_up(struct hth_restore *r);

/* `code`: why the connection to `node` ended; HEARTH_EPEER: it may come back; HEARTH_ESTATE: it
 * answers, and has not joined the epoch yet. */
void hth_restore_peer_down(struct hth_restore *r, uint32_t node, int code, const char *text);

/* ---- The plan
 * ------------------------------------------------------------------------------------ */

struct hth_blob_id hth_restore_plan_id(const struct hth_ctx *ctx, uint32_t serial);
void hth_restore_plan(struct hth_restore *r, const struct hth_blob_id *id,
        const unsigned char *bytes, size_t len);
/* The same, decoded; taken over: what is left in *plan is its caller's to end. At the coordinator
 * the manifest of its save is held, or there as a blob. */
void hth_restore_take(struct hth_restore *r, const struct hth_blob_id *id, struct hth_plan *plan);
/* The manifest of a save has come by blob; a plan may wait for it. */
void hth_restore_manifest(struct hth_restore *r, const struct hth_blob_id *id);
int hth_restore_has_plan(const struct hth_restore *r, uint32_t serial);
void hth_restore_go(struct hth_restore *r, uint32_t serial);
/* Steps that were not chosen and why, as lines; "": none, or an older coordinator, which does not
 * send them. Until the next join. */
const char *hth_restore_ruled_out(const struct hth_restore *r);

/* After GO, in an engine that was restarted: takes the plan of the GO that was sent. Errors: as
 * hth_plan_decode(). */
int hth_restore_resume(
        struct hth_restore *r, const unsigned char *bytes, size_t len, struct hearth_error *err);

/* How many pulls wait for a slot to be made; UINT_MAX: this node does not pull now. */
unsigned hth_restore_put_off(const struct hth_restore *r);

/* A raw object has come, or (err) cannot be written. */
void hth_restore_raw(
        struct hth_restore *r, const struct hth_blob_id *id, const struct hearth_error *err);

/* Holders of an object of the chosen save as the plan knew them. */
uint32_t hth_restore_sources(
        const struct hth_restore *r, uint64_t object, uint32_t out[HTH_PLAN_SOURCES]);

/* ---- Events
 * -------------------------------------------------------------------------------------- */

void hth_restore_deliver(
        struct hth_restore *r, uint16_t kind, const unsigned char *bytes, size_t len);
void hth_restore_tick(struct hth_restore *r, uint64_t now_ms);
uint64_t hth_restore_due_ms(const struct hth_restore *r);
void hth_restore_close(struct hth_restore *r);

#endif
