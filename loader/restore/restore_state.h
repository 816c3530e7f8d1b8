/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Recovery of one epoch, on a member.
 *
 *   IDLE ──start──► TOLD ──plan arrived──► PULLING ──all needed verified──► VOTED ──GO──► ENDED
 *                    │       ▲                 │ cannot: VOTE(no)             │
 *                    │       └──── next plan (an older save) ────────────────┘
 *                    └── deadline, EPOCH_FAILED, member lost ──► ENDED with a code
 *   IDLE ──this node cannot take part──► REFUSED ──EPOCH_FAILED, deadline──► ENDED
 */
/* For this folder alone. */
#ifndef HEARTH_LOADER_RESTORE_RESTORE_STATE_H
#define HEARTH_LOADER_RESTORE_RESTORE_STATE_H

#include "core/foreign/foreign.h"
#include "replication/held/draft.h"
#include "replication/tree/tree.h"
#include "restore.h"

enum restore_state { IDLE, TOLD, PULLING, VOTED, REFUSED, ENDED };

struct hth_restore {
    struct hth_ctx *ctx;
    hth_restore_end_fn *on_end;
    void *on_end_self;
    enum restore_state state;
    uint64_t deadline_ms, repeat_ms;
    /* When ranks asked; the plan came; pulling and verifying began; the last of each ended; the
     * vote. */
    uint64_t t_start, t_told, t_plan, t_pull, t_verify, t_vote;
    unsigned char *inventory; /* this node's, as it goes up */
    size_t inventory_len;
    int lists; /* the coordinator has asked for lists: no runs */
    struct hth_plan plan;
    int has_plan;
    struct hth_blob_id early; /* a plan that came before a rank asked to recover; epoch 0: none */
    uint64_t asked_ms;        /* for a plan that has not come, first; 0: not yet */
    uint32_t least;  /* plans up to this serial are void: the engine that gave them is gone */
    int plan_waits;  /* the plan waits for the manifest, or for the old epoch's last pull */
    int failed_code; /* of this plan on this node */
    char failed[HEARTH_ERROR_TEXT];
    struct hearth_error refused; /* REFUSED: the reason that is sent up */
    char ruled_out[HTH_RULED_OUT];
    char absent[HEARTH_ERROR_TEXT]; /* the coordinator's node has not joined; "": not known */
    uint64_t pulled_before;
    uint32_t digesting; /* raw objects, foreign files: the inventory waits for them */
    char common[HTH_RESTORE_COMMON][HTH_NAME_MAX + 1]; /* foreign: names that every node needs */
    uint32_t commons;

    uint64_t manifest_ms; /* the plan's manifest was asked for first; 0: not yet */
    /* another manifest came, or one that cannot be decoded: the coordinator is asked */
    int manifest_bad;
    struct hth_draft *draft; /* of the manifest that has come, while it is read */

    uint32_t generation; /* of plans and epochs: what began under an older one is not counted */

    /* pull.c's own */
    uint32_t waiting;   /* fetches and verifications under way for this plan */
    struct wait *waits; /* all that a plan waits for */
    struct wait *later; /* could not begin yet; looked at again from later_ms on */
    struct wait *raws;  /* raw objects on their way here */
    uint64_t later_ms;
};

/* ruled_out.c */
void restore_rule_out(struct hth_restore *r, const unsigned char *text, size_t len);

/* end.c */
void restore_end(struct hth_restore *r, int code, const struct hearth_error *err);

/* tell.c: what a member holds */
int tell_look(struct hth_restore *r); /* 1: the inventory is sent when all was looked at */
int tell_make(struct hth_restore *r, struct hearth_error *err); /* r->inventory */
void tell_inventory(struct hth_restore *r);                     /* sends r->inventory up */
/* The coordinator asks for the inventory again: its engine is a new one, which has voided the plan
 * that this node may have. */
void tell_again(struct hth_restore *r, const unsigned char *bytes, size_t len);

/* manifest.c: the manifest of the plan's save */
/* NULL: this node holds no manifest with the plan's digest. It goes when its save is freed. */
const struct hth_manifest *restore_manifest(const struct hth_restore *r);
/* 1: the manifest is neither held nor here, and was requested; or it is being read: then `read`
 * runs later, with r. */
int manifest_lacks(struct hth_restore *r, hth_draft_fn *read);
/* Makes this node hold it. Errors: HEARTH_ENOMEM, HEARTH_ECORRUPT, HEARTH_EPROTO (not what the plan
 * names), the store's. */
int manifest_hold(struct hth_restore *r, struct hth_held_save *s, struct hearth_error *err);
void manifest_leave(struct hth_restore *r); /* gives up the manifest that is being read */

/* carry.c: a member and the plan */
void carry_out(struct hth_restore *r);

/* pull.c: `index` is of the plan's manifest */
void pull_begin(
        struct hth_restore *r); /* a new plan: what began under an older one does not count */
int pull_object(struct hth_restore *r, uint32_t index);
void pull_raw(struct hth_restore *r, uint32_t index);
void pull_verify(struct hth_restore *r, struct hth_held_save *s, struct hth_held *h);
void pull_ended(struct hth_restore *r); /* one wait has ended; the node votes after the last */
void pull_tick(struct hth_restore *r, uint64_t now_ms); /* what could not begin */
uint64_t pull_due_ms(const struct hth_restore *r);
/* A raw object is here, or cannot be written. */
void pull_raw_ended(
        struct hth_restore *r, const struct hth_blob_id *id, const struct hearth_error *err);
void pull_close(struct hth_restore *r);

/* vote.c */
void vote_no(struct hth_restore *r, int code, const char *text); /* the first reason stays */
void vote_cast(struct hth_restore *r);
void vote_say(struct hth_restore *r); /* up, as it was cast */

/* foreign.c: a member */
int foreign_listed(const struct hth_restore *r, const struct hth_held_save *s);
int foreign_see(const struct hth_held_save *s, struct hth_seen_save *out);
void foreign_needs(struct hth_restore *r, struct hth_held_save *s);

#endif
