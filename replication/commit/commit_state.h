/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of the commit share: one `track` per save that is under way in this epoch or being
 * protected again.
 *
 *   member:       OPEN ──all local ranks done──► DONE ──manifest, raw objects──► HELD ──all that is
 *                 assigned to us sealed──► PROMISED        each fact repeated until it had its effect
 *   coordinator:  gathers DONE of all nodes → manifest → HELD of all → COMPLETE;
 *                 PROMISE of enough → keep record → PROTECTED;  failure or deadline → CANCELLED
 *
 *   any state ──PROTECTED or CANCELLED heard──► gone
 *
 * Each file calls only those below it. What one node says to another comes back in at the top, also
 * when both are the coordinator.
 *
 *   commit.c                       the front: begin, events, time, questions
 *   ├─ coordinate.c                the coordinator: gathers facts, decides each save once
 *   └─ word.c                      the coordinator's word, carried out by every member
 *      member.c                    what makes a member's facts true: objects sealed, copied, repaired
 *      facts.c                     what a member says to the coordinator
 *   tracks.c  locals.c  holders.c  kept.c     saves under way and decided; this node's ranks; who
 *                                  holds copies of whom; the keep record
 */
/* For this folder alone. */
#ifndef HEARTH_REPLICATION_COMMIT_STATE_H
#define HEARTH_REPLICATION_COMMIT_STATE_H

#include "commit.h"
#include "replication/tree/tree.h"

enum { RANK_BEGUN = 1, RANK_DONE = 2, RANK_COPIED = 4 };

struct node_state { /* what the coordinator knows of a member for one save */
    uint64_t parts; /* of its DONE, a bit each */
    uint32_t done, held;
    uint32_t promised; /* 1 + the ASSIGN serial of its promise; 0: none */
};

struct track {
    struct hth_save_id id;
    struct track *next; /* newest first */
    uint64_t since_ms;
    uint64_t repeat_ms; /* next time facts are said again */
    int recovered;      /* the chosen save of this epoch, or a kept one that lost a copy */
    int done_sent, held, promised, complete;
    uint32_t promised_serial;
    uint8_t *rank; /* [local ranks] RANK_ bits */
    enum hearth_level level;
    uint64_t repair_ms; /* missing copies are fetched from then on */

    /* coordinator */
    struct node_state *node; /* [nodes]; NULL at others */
    uint32_t nodes_done, nodes_held, nodes_promised;
    struct hth_object *object; /* gathered from DONEs */
    uint32_t objects, object_cap;
    uint64_t owed_ms; /* since then a lost node owes its part; 0: none does */
    int failing;      /* CANCELLED is to be said as soon as possible */
    int fail_code;
    char why[200];
};

struct local_rank {
    uint32_t rank;
    uint64_t last_step; /* steps never go down; HTH_NEVER: none yet */
    uint32_t attempts;  /* begins of last_step */
};

struct override { /* one ASSIGNed holder */
    uint32_t rank, copy, node;
};

struct outcome { /* of a decided save, for late questions */
    struct hth_save_id id;
    enum hearth_level level;
    int degraded, code;
    char text[200];
};
#define OUTCOMES 16

struct hth_commit {
    struct hth_ctx *ctx;
    struct hth_commit_events events;
    struct hth_placement placement;
    int running; /* GO was heard */
    struct hth_save_id chosen;
    struct local_rank *local;
    uint32_t locals;
    struct track *tracks;
    uint32_t serial; /* of the last ASSIGN */
    struct override *override;
    uint32_t overrides;
    struct outcome outcome[OUTCOMES];
    uint32_t outcomes;        /* ever; the ring's next place */
    int look;                 /* coordinator: something came that may decide a save; tick looks */
    uint64_t silent_since_ms; /* the coordinator is lost; 0: no */
};

/* 32 bytes on the wire, as in the manifest. */
#define SAVE_BYTES 32u
void save_put(unsigned char *out, struct hth_save_id s);
struct hth_save_id save_get(const unsigned char *in);

struct track *track_find(struct hth_commit *c, struct hth_save_id id);
struct track *track_get(struct hth_commit *c, struct hth_save_id id); /* or make; NULL: no memory */
void track_remove(struct hth_commit *c, struct track *t);

/* The rank whose placement an object follows: its owner, or a stand-in in a smaller world. */
static inline uint32_t stand_in(const struct hth_ctx *ctx, uint32_t owner)
{
    return owner % ctx->epoch->world;
}

void outcome_put(struct hth_commit *c, struct hth_save_id id, enum hearth_level level, int degraded,
        int code, const char *text);
const struct outcome *outcome_find(const struct hth_commit *c, struct hth_save_id id);

void track_level(struct hth_commit *c, struct track *t, enum hearth_level level); /* told */
void track_end(struct hth_commit *c, struct track *t, enum hearth_level level, int degraded,
        int code, const char *text); /* remembered, removed, told */

/* locals.c */
int locals_make(struct hth_commit *c, struct hearth_error *err); /* of a new epoch */
struct local_rank *local_find(struct hth_commit *c, uint32_t rank);
int local_owns(const struct hth_ctx *ctx, const struct hth_held *h); /* a local rank's object */

/* holders.c; hth_commit_holders() too */
int holders_make(struct hth_commit *c, struct hearth_error *err); /* of a new epoch */
void holders_fini(struct hth_commit *c);
int holders_have(
        struct hth_commit *c, uint32_t rank, uint32_t node); /* node is rank's or holds it */
void holders_set(struct hth_commit *c, const struct override *o);
/* Coordinator: `node` is lost; its copies move to others, or are stuck. */
void holders_lost(struct hth_commit *c, uint32_t node, uint32_t *out_moved, uint32_t *out_stuck);

/* kept.c; hth_commit_kept() and hth_commit_kept_s() too */
void kept_degraded(struct hth_commit *c); /* a member is lost: so are copies of what is kept */
int kept_write(struct hth_commit *c, const struct hth_keep *keep);
struct hth_keep kept_with(const struct hth_ctx *ctx, struct hth_save_id save, uint32_t degraded);

/* facts.c; hth_commit_fail() too */
void fact_done(struct hth_commit *c, struct track *t, struct hth_held_save *s);
void fact_held(struct hth_commit *c, const struct track *t);
void fact_promise(struct hth_commit *c, const struct track *t);
void fact_lost(struct hth_commit *c, uint32_t node);
void facts_repeat(struct hth_commit *c, struct track *t); /* what has had no effect yet */

/* member.c */
void member_offer(struct hth_commit *c, struct hth_held_save *s, struct hth_held *h);
void member_check(struct hth_commit *c, struct track *t); /* HELD and PROMISE if due */
void member_repair(struct hth_commit *c, struct track *t);
/* The manifest is here: what it names is asked for, verified, promised. */
void member_manifest(struct hth_commit *c, struct track *t, struct hth_held_save *s);

/* word.c */
void word_complete(struct hth_commit *c, struct hth_save_id save);
void word_protected(struct hth_commit *c, const unsigned char *bytes, size_t len);
void word_cancelled(struct hth_commit *c, const unsigned char *bytes, size_t len);
void word_assign(struct hth_commit *c, const unsigned char *bytes, size_t len);

/* coordinate.c; all only at the coordinator. */
void coord_done(struct hth_commit *c, uint32_t origin, const unsigned char *bytes, size_t len);
void coord_held(struct hth_commit *c, uint32_t origin, const unsigned char *bytes, size_t len);
void coord_promise(struct hth_commit *c, uint32_t origin, const unsigned char *bytes, size_t len);
void coord_failed(struct hth_commit *c, uint32_t origin, const unsigned char *bytes, size_t len);
void coord_lost(struct hth_commit *c, uint32_t node);
void coord_report_lost(struct hth_commit *c, const unsigned char *bytes, size_t len);
void coord_returned(struct hth_commit *c, uint32_t node);
void coord_tick(struct hth_commit *c, uint64_t now_ms);
/* A save that a lost node owes its part of fails, unless the node comes back soon. */
void coord_give_up(struct hth_commit *c, struct track *t, uint64_t now_ms);
void coord_waits_for(const struct hth_commit *c, const struct track *t, char *out, size_t len);
void coord_say_assign(struct hth_commit *c, uint32_t node); /* HTH_NODE_NONE: everybody */

#endif
