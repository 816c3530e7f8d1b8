/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The structs and functions that the files of the commit share.
 *
 *   member, a `track` per save that is under way in this epoch or being protected again:
 *       OPEN ──all local ranks done──► DONE ──manifest, raw objects──► HELD ──all that is
 *              assigned to us sealed──► PROMISED        each fact repeated until it had its effect
 *   coordinator, a `tally` per save of which a fact has come:
 *       gathers DONE of all nodes → a worker → manifest → HELD of all → COMPLETE;
 *       PROMISE of enough → PROTECTED;  failure or deadline → CANCELLED;
 *       PROMISE of every holder of what is kept → settled
 *
 *   any state ──a head that decides it──► gone
 *
 *   Beside its facts a track has the level that this node's ranks know of the save. It only rises:
 *       level      nothing ──DONE──► SEALED ──COMPLETE──► COMPLETE ──a head──► PROTECTED
 *                  It begins at COMPLETE if the save was published before, or recovery has chosen
 *                  it, and at PROTECTED if it is kept.
 *       fail_code  0 ──a rank or this node cannot──► FAILED is sent ──no decision comes──► unknown
 *                  Only what head_is_open() may fail.
 *
 * The coordinator's decisions are a row of heads (core/format/head.h), each a whole state. Its
 * other state is gathered again from facts after its restart.
 *
 * Each file calls only those below it. A message from another node comes in at the top, also if
 * that node is the coordinator itself.
 *
 *   commit.c                       the front: begin, events, time, questions
 *   ├─ coordinate.c                the coordinator: gathers facts
 *   │  └─ decide.c                 ... and decides each save once
 *   │     ├─ wishes.c              ... what users wish of kept saves
 *   │     ├─ steps.c               ... ranks that name different steps
 *   │     └─ maps.c                ... nodes that are lost or returned, and the next map
 *   │        └─ pairs.c            ... pairs of nodes that are unreachable to each other
 *   └─ apply.c                     a head, applied by every member
 *      member.c                    makes a member's facts true: objects sealed, copied, repaired
 *      facts.c                     the facts that a member sends to the coordinator
 *      room.c                      copies of kept saves go first; a copy that has no room
 *      unreachable.c               nodes that this node cannot reach
 *      release.c                   saves and copies that leave this node
 *   known.c                        what a node knows of members and copies, for operators
 *   heartbeat.c                    as of when a node knows the state of the job
 *   head.c                         the newest head that is known here, on record; the log grows
 *   tallies.c  tracks.c  places.c  kept.c     what members have sent of saves; saves under way and
 *                                  this node's ranks; the node of each place; the keep list
 */
/* For this folder alone. */
#ifndef HEARTH_REPLICATION_COMMIT_STATE_H
#define HEARTH_REPLICATION_COMMIT_STATE_H

#include "commit.h"
#include "core/base/attempts.h"
#include "core/format/head.h"
#include "core/format/places.h"
#include "remap.h"
#include "replication/held/draft.h"
#include "replication/transfer/transfer.h"
#include "replication/tree/tree.h"

enum {
    RANK_BEGUN = 1,
    RANK_DONE = 2,
    RANK_COPIED = 4,    /* reported; never taken back */
    RANK_ELSEWHERE = 8, /* each of its shards has a copy on a holder of the map, as known now */
};

#define REFUSAL_TEXT 180u

/* A copy has no room: on this node, or on the node to which this node offers it. */
struct refusal {
    char text[REFUSAL_TEXT];
    uint32_t node;
    uint64_t until_ms; /* the refusal counts until then, unless it is repeated */
    uint64_t since_ms; /* refused on this node without a break since then ... */
    uint64_t sure_ms;  /* ... and since then nothing can make room for the copy */
    int warned;
};

/* A member's part in one save. A restart loses all of it: the next engine derives it from what it
 * holds. */
struct track {
    struct hth_save_id id;
    struct track *next; /* newest first */
    uint64_t since_ms;
    uint64_t repeat_ms; /* the track is looked at again then */
    uint64_t send_ms;   /* from then on facts are sent again */
    uint32_t sends;     /* repeats of the last fact */
    int done_sent, held, promised;
    int copies_unknown;    /* COMPLETE before this engine: holders told the one before */
    int lost;              /* an object was lost here, and the save was not promised since */
    uint64_t promised_map; /* the position of the map under which it was promised */
    uint32_t repairs;      /* tries begun so far under this map */
    uint32_t tried, vain;  /* of these, with the manifest here; at which a copy had no slot */
    int no_slot;           /* at the last of them a copy had NO_SLOT, or SLOT_SOON */
    /* kept: an object that this node has to hold, and no node that it could ask has: its rank + 1,
     * since when. 0: there is none, as far as it has asked */
    uint32_t gone;
    uint64_t gone_ms;
    struct hth_draft *draft; /* the manifest has come, and a worker reads it */
    uint8_t *rank;           /* [local ranks] RANK_ bits */
    uint32_t objects;        /* how many the local ranks that are done have handed over */
    struct hth_ranks *ranks; /* NULL: all ranks, or no rank or message here has named them */
    enum hearth_level level;
    uint64_t repair_ms; /* this node fetches missing copies from then on */
    /* since when a rank here is behind the save and may stay behind (steps.c); 0: no rank is */
    uint64_t left_ms;
    int fail_code; /* a rank or this node cannot do it: reported until a head cancels it; 0: no */
    int unknown;   /* its ranks were notified that no decision will come: they get no more events */
    char why[200];
    struct refusal refusal;
};

/* The facts that the coordinator has received of one save. A restart loses them: members send them
 * again. */
struct report {     /* what one member has sent */
    uint64_t parts; /* of its DONE, a bit for each part that has come */
    uint32_t done, held;
    uint32_t promised; /* under the newest map */
    uint32_t due;      /* the member has a rank that takes part */
};

struct tally {
    struct hth_save_id id;
    struct tally *next; /* newest first */
    uint64_t since_ms;
    struct report *node;     /* [nodes] */
    struct hth_ranks *ranks; /* NULL: all ranks, or no member has named them yet */
    uint32_t nodes_due;      /* 0: as long as no member has named the ranks */
    uint32_t nodes_done, nodes_held, nodes_promised;
    unsigned char *
            object; /* [objects][HTH_MANIFEST_OBJECT] of DONEs; the draft's while that is being made */
    uint32_t objects, object_cap;
    struct hth_draft *draft; /* a worker makes the manifest; not state: members repeat DONE */
    int complete;            /* COMPLETE was sent */
    uint64_t owed_ms;        /* a lost node has owed its part since then; 0: no node does */
    uint64_t awaited_ms;     /* AWAITED is sent then; 0: no node has sent DONE, or all have */
    int fail_code;           /* the save is to be CANCELLED with that code; 0: no */
    char why[200];
    char refusal[REFUSAL_TEXT]; /* why a holder has no room for a copy; "": all have room */
    uint32_t refusal_node;
};

/* At the coordinator: whether a member is lost. A restart loses it, except what a note of the map
 * repeats. */
struct liveness {
    uint64_t life, count; /* the newest that came from the member */
    uint64_t since_ms;    /* not lost since then, as far as this process knows */
    uint64_t heard_ms;    /* the newest fact came then, by whatever way */
    int connected;        /* to the coordinator itself */
    int lost, returned;   /* noticed, and not in the map yet */
    int overtaken;        /* the fact being delivered is older than a fact that came before */
    uint64_t remind_ms;   /* if lost: the newest head is sent to it again then */
    uint32_t reminders;
};

/* At the coordinator: whether two members reach each other. A restart loses it: members report
 * again, and the map has the unreachable pairs. */
struct pair {
    uint32_t a, b;              /* a < b */
    uint64_t first_ms, last_ms; /* reports in a row: the first and the last; last_ms 0: none */
    uint64_t
            returned_ms[2]; /* last report of a, b that it reaches the other again; 0: none since */
    uint64_t due_ms;   /* reported for long enough: unreachable if `other` lives after it; 0: not */
    uint32_t other;    /* the node of the two that has not reported */
    uint64_t since_ms; /* reachable since then, as far as this process knows */
    int unreachable, returned; /* noticed, and not in the map yet */
};

struct wish { /* a wish that is not decided yet */
    uint32_t origin, wish;
    uint64_t number;
    struct hth_save_id save;
};

struct coord { /* the coordinator's; its decisions are in the head */
    struct tally *tallies;
    struct liveness *live; /* [nodes] */
    struct pair pair[HTH_PAIRS_MAX];
    uint32_t pairs;
    int look;                              /* something came that may decide a save; tick looks */
    int news;                              /* a loss or a return is not in the map yet */
    int late;                              /* this engine was late, and has made no map since */
    uint32_t lates;                        /* how often the session has found it late */
    struct hth_save_id loss[HTH_KEEP_MAX]; /* kept saves that have lost a copy, not on record yet */
    uint32_t losses;
    struct wish wish[HTH_KEEP_MAX];
    uint32_t wishes;
    int begins;            /* GO was sent, and the keep list of recovery is to be sent */
    uint64_t heartbeat_ms; /* POSITION is sent again then */
    uint64_t look_ms;      /* a head could not be written: the next try */
    uint64_t stable_ms;    /* a node that has returned is given copies again then; HTH_NEVER */
    uint64_t remind_ms;    /* the earliest remind_ms of `live`; HTH_NEVER */
};

/* A member that this node cannot reach or cannot pull from, or with which the map has it as an
 * unreachable pair. A restart loses it: the next engine notices again. */
struct unreachable {
    uint32_t node;
    int disconnected;       /* the session has no connection to it */
    int in_map;             /* the map has the pair as unreachable */
    int test_passed;        /* in_map: a test pull has completed */
    int retract;            /* the report is taken back at the next tick */
    uint32_t stalls;        /* pulls that stalled in a row ... */
    uint64_t stall_bytes;   /* ... the bytes of the shortest; 0: none stalled */
    uint64_t stall_ms;      /* ... and the time of the last */
    struct hth_fetch *test; /* in_map: under way */
    uint32_t tests;         /* tests in a row without a result */
    uint64_t send_ms;       /* it is reported, tested or taken back then; HTH_NEVER */
    uint32_t sends;
    uint64_t since_ms; /* something has been against it since then */
};
#define UNREACHABLES_MAX 64u /* the newest are kept */

struct local_rank {
    uint32_t rank;
    struct hth_attempts begun; /* in this epoch */
    /* the rank begins no earlier step: it has begun this step, or waits for its room */
    uint64_t passed;
};

struct outcome { /* of a decided save, to answer late questions */
    struct hth_save_id id;
    enum hearth_level level;
    int degraded, code;
    char text[200];
};
#define OUTCOMES 32 /* more than a head names */

struct hth_commit {
    struct hth_ctx *ctx;
    struct hth_commit_events events;
    int joined;  /* an epoch for which this store has room; else messages are ignored */
    int running; /* GO has come */
    struct hth_save_id chosen;
    struct local_rank *local;
    uint32_t locals;
    struct track *tracks;
    int head_bad;                      /* the record of the head is damaged */
    uint64_t found_epoch, found_nonce; /* of the head on record when the engine started; 0: none */
    struct hth_head head;              /* as on record */
    struct hth_places map;             /* the head's */
    struct hth_head awaited;           /* a head that came without its map; position 0: none */
    int skipped;               /* heads before the one that is being applied have not come here */
    struct hth_placement base; /* as the epoch began */
    /* [nodes] since when this engine has known whether the node is lost: s of its clock */
    uint32_t *since_s;
    struct coord coord;
    struct outcome outcome[OUTCOMES];
    uint32_t outcomes; /* how many ever; gives the next place in the ring */
    /* the coordinator was disconnected then, and is silent since; 0: no */
    uint64_t silent_since_ms;
    uint64_t contact_ms; /* last message of the coordinator; 0: none since this engine's start */
    /* The coordinator may call this node lost, or a head was missed: ALIVE is sent until it
     * answers. */
    int unsure;
    uint64_t alive_ms;
    uint32_t alives;
    struct unreachable unreachable[UNREACHABLES_MAX];
    uint32_t unreachables;
    uint64_t mapped_ms; /* this engine has the newest map since then */
};

static inline uint64_t commit_wall_ms(const struct hth_commit *c)
{
    return c->ctx->clock.wall_ms(c->ctx->clock.self);
}

/* 32 bytes on the wire, as in the manifest. */
#define SAVE_BYTES 32u
void save_put(unsigned char *out, struct hth_save_id s);
struct hth_save_id save_get(const unsigned char *in);

/* tracks.c; hth_commit_count(), hth_commit_counted() too */
struct track *track_find(struct hth_commit *c, struct hth_save_id id);
struct track *track_get(struct hth_commit *c, struct hth_save_id id); /* or make; NULL: no memory */
void track_remove(struct hth_commit *c, struct track *t);

/* The rank whose placement an object follows: its owner, or a stand-in in a smaller world. */
static inline uint32_t stand_in(const struct hth_ctx *ctx, uint32_t owner)
{
    return owner % ctx->epoch->world;
}

/* Reports what has happened; of a save that is decided only its end. */
void track_note(
        const struct hth_commit *c, struct hth_save_id save, const struct hth_happened *happened);
void outcome_put(struct hth_commit *c, struct hth_save_id id, enum hearth_level level, int degraded,
        int code, const char *text);
const struct outcome *outcome_find(const struct hth_commit *c, struct hth_save_id id);

/* The save is of these ranks (NULL: of all), which are copied to *known if it is NULL. Errors:
 * HEARTH_EINVAL the save was named with other ranks before; HEARTH_EPROTO its id does not belong to
 * these ranks; HEARTH_ENOMEM. */
int ranks_name(struct hth_ranks **known, struct hth_save_id id, const struct hth_ranks *ranks,
        struct hearth_error *err);
int track_name(struct track *t, const struct hth_ranks *ranks, struct hearth_error *err);
/* 1: local rank i takes part, as far as this node has the set. */
int track_has(const struct hth_commit *c, const struct track *t, uint32_t i);

/* 1: a copy of the save has no room, by the refusals that this node has. */
int track_is_refused(const struct hth_commit *c, const struct track *t);
void track_level(struct hth_commit *c, struct track *t, enum hearth_level level); /* notifies */
/* Ends the save with HEARTH_EUNKNOWN: the outcome is stored, and the ranks are notified. If this
 * node holds anything of the save, the track stays until a head decides the save. */
int track_unknown(struct hth_commit *c, struct track *t, const char *text); /* 1: t was removed */
void track_end(struct hth_commit *c, struct track *t, enum hearth_level level, int degraded,
        int code, const char *text); /* stores the outcome, removes t, notifies */

/* The ranks of this node. */
int locals_make(struct hth_commit *c, struct hearth_error *err); /* of a new epoch */
struct local_rank *local_find(struct hth_commit *c, uint32_t rank);
void local_passes(struct local_rank *l, uint64_t step);              /* hth_commit_passes() too */
int local_owns(const struct hth_ctx *ctx, const struct hth_held *h); /* a local rank's object */

/* places.c; hth_commit_holders() too */
#define PLACES_MAX (HTH_COPIES_MAX + 1)
int places_make(struct hth_commit *c, struct hearth_error *err); /* of a new epoch */
void places_fini(struct hth_commit *c);
/* This map applies from now on, with the nodes that it calls lost. The map is taken over. */
void places_take(struct hth_commit *c, struct hth_places *map);
/* The nodes that have the places of the rank, the owner's place included: out[PLACES_MAX]; returns
 * how many. */
uint32_t places_of(const struct hth_commit *c, uint32_t rank, uint32_t *out);
int places_have(const struct hth_commit *c, uint32_t rank, uint32_t node);
/* Nodes without a place that may still have the bytes: out[PLACES_MAX]. */
uint32_t places_were(const struct hth_commit *c, uint32_t rank, uint32_t *out);
int node_is_lost(const struct hth_commit *c, uint32_t node);
/* In how many different failure domains these nodes are. */
uint32_t places_domains(const struct hth_commit *c, const uint32_t *node, uint32_t nodes);

/* kept.c; hth_commit_kept() and hth_commit_kept_s() too */
int kept_write(struct hth_commit *c, const struct hth_keep *keep, struct hearth_error *err);
/* 1: recovery has found no whole save, and the ranks have accepted the loss. The list of an earlier
 * epoch still names the remains of the lost saves. They stay, for a later recovery, until a save
 * of this epoch is PROTECTED. No member fetches the missing parts in this epoch: recovery has asked
 * all members for them. */
int kept_lost(const struct hth_commit *c, const struct hth_keep *list);
struct hth_keep kept_with(const struct hth_commit *c, struct hth_save_id save, uint32_t degraded);

/* tallies.c */
struct tally *tally_find(struct hth_commit *c, struct hth_save_id id);
struct tally *tally_get(struct hth_commit *c, struct hth_save_id id); /* or make; NULL: no memory */
void tally_remove(struct hth_commit *c, struct tally *t);
/* As ranks_name(). */
int tally_name(struct hth_commit *c, struct tally *t, const struct hth_ranks *ranks,
        struct hearth_error *err);
/* How many nodes with a place of the rank have a promise that counts. *out_domains: how many of
 * these nodes share no failure domain; *out_full: 1 if each node with a place has promised. */
uint32_t tally_promised(const struct hth_commit *c, const struct tally *t, uint32_t rank,
        uint32_t *out_domains, int *out_full);

/* head.c; hth_commit_adopt() and hth_commit_knows() too */
enum fate {
    FATE_OPEN,      /* not decided */
    FATE_KEPT,      /* PROTECTED, and on the list */
    FATE_CANCELLED, /* by name */
    FATE_SUPERSEDED /* older than a decision, and not on the keep list */
};
enum fate head_fate(const struct hth_commit *c, struct hth_save_id save);
int head_frees(const struct hth_commit *c, struct hth_save_id save); /* CANCELLED, SUPERSEDED */
/* 1: the save may still be PROTECTED or CANCELLED. The save that recovery chose is COMPLETE and is
 * never cancelled, so it does not count as open, even if no head has decided it. */
int head_is_open(const struct hth_commit *c, struct hth_save_id save);
int head_code(const struct hth_commit *c, struct hth_save_id save, const char **out_why);
/* goes on with the head on record, or writes the epoch's first */
int head_join(struct hth_commit *c, struct hearth_error *err);
/* Writes the head to the record, then puts it into effect. *map: taken over; NULL: as it is. */
int head_put(struct hth_commit *c, const struct hth_head *head, struct hth_places *map,
        struct hearth_error *err);
struct hth_blob_id head_map_id(const struct hth_head *head);
/* The digest by which a promise names the map. */
void head_map_name(const struct hth_commit *c, unsigned char out[HTH_DIGEST]);

/* release.c */
void release_moved(struct hth_commit *c);

/* facts.c; hth_commit_fail() too */
#define DONE_HEAD (SAVE_BYTES + 16u)
void fact_done(struct hth_commit *c, struct track *t, struct hth_held_save *s);
void fact_held(struct hth_commit *c, const struct track *t);
void fact_promise(struct hth_commit *c, const struct track *t);
#define COPY_LOST_BYTES (SAVE_BYTES + 8u)
void fact_copy_lost(struct hth_commit *c, struct track *t);
/* A fact is sent now for the first time: the intervals of its repeats begin here. */
void facts_sent(const struct hth_commit *c, struct track *t);
void facts_repeat(struct hth_commit *c, struct track *t); /* facts without effect so far */
void facts_anew(struct hth_commit *c); /* facts may have been lost: the repeats begin anew */

#define UNREACHABLE_BYTES 8u
enum reach_report { REPORT_REACHABLE, REPORT_DISCONNECTED, REPORT_STALLED };
void fact_unreachable(const struct hth_commit *c, uint32_t node, enum reach_report what);
/* An empty message to any member, for which the session makes a connection. */
void fact_dial(const struct hth_commit *c, uint32_t node);

/* unreachable.c */
void unreachable_disconnected(struct hth_commit *c, uint32_t node);
void unreachable_connected(struct hth_commit *c, uint32_t node);
void unreachable_pulled(struct hth_commit *c, uint32_t node, uint64_t len, int code);
/* 1: this node has no connection to `node`, or the map has the pair. */
int unreachable_is(const struct hth_commit *c, uint32_t node);
int unreachable_any(const struct hth_commit *c);
void unreachable_forget(struct hth_commit *c); /* its epoch is over */
void unreachable_mapped(struct hth_commit *c); /* another map */
void unreachable_tick(struct hth_commit *c, uint64_t now_ms);
uint64_t unreachable_due_ms(const struct hth_commit *c);

/* room.c; hth_commit_no_room() too */
#define ROOM_TRIES 8u /* of a kept save that has no slot, under one map */
enum { NO_SLOT = 1, SLOT_SOON = 2 };
uint64_t room_retry_ms(const struct hth_commit *c);                     /* between two of them */
int room_goes_first(const struct hth_commit *c, const struct track *t); /* kept, map not settled */
/* All that this node has to hold of the save is here, though perhaps not whole or not verified. */
int room_has_all(const struct hth_commit *c, struct hth_held_save *s);
/* 1: the save is undecided, and a copy of a kept one still has to get a slot here. */
int room_waits(const struct hth_commit *c, struct hth_save_id save);
/* The node has no room for a copy of the save. */
void refusal_of(struct hth_commit *c, struct track *t, uint32_t node, const char *text);

/* member.c */
void member_offer(struct hth_commit *c, struct hth_held_save *s, struct hth_held *h);
void member_publish(struct hth_commit *c, struct hth_held_save *s); /* as step-<N>_ckpt */
/* Sends HELD and PROMISE if they are due. 1: the track was removed, here and in repair.c. */
int member_check(struct hth_commit *c, struct track *t);
/* 1: a failure of this node fails the save. For a save that is COMPLETE this node tries again. */
int member_may_fail(const struct hth_commit *c, const struct track *t);
/* A kept save is complete, its ranks were notified, and it has no deadline. */
void member_follow(const struct hth_commit *c, struct track *t);
/* Another map applies: offers, promises and repairs follow it. */
void member_mapped(struct hth_commit *c);
void member_keep(struct hth_commit *c);   /* promises kept saves until the map is settled */
void member_resume(struct hth_commit *c); /* after a restart: reports what was lost meanwhile */

/* repair.c; hth_commit_copy_lost(), hth_commit_blob(), hth_commit_blob_failed() too */
/* Fetches and verifies what is missing. */
int repair_missing(struct hth_commit *c, struct track *t);
/* The manifest is here: requests, verifies and promises what it names. */
int repair_manifest(struct hth_commit *c, struct track *t, struct hth_held_save *s);

/* heartbeat.c; hth_commit_as_of() too */
void heartbeat_tick(struct hth_commit *c, uint64_t now_ms); /* the coordinator */
uint64_t heartbeat_due_ms(const struct hth_commit *c);
void heartbeat_contact(struct hth_commit *c); /* a message of the coordinator has come */
void heartbeat_receive(struct hth_commit *c, const unsigned char *bytes, size_t len); /* POSITION */
/* This node has missed a head, or the coordinator may call it lost. since_before: ALIVE is sent
 * already. */
void heartbeat_behind(struct hth_commit *c, int since_before);
void heartbeat_alive(struct hth_commit *c, uint64_t now_ms); /* ALIVE, if it is due */

/* steps.c; only the coordinator calls steps_coord() */
void steps_member(struct hth_commit *c, uint64_t now_ms);
void steps_coord(struct hth_commit *c, uint64_t now_ms);
void steps_awaited(struct hth_commit *c, const unsigned char *bytes, size_t len); /* AWAITED */

/* apply.c */
void apply_complete(struct hth_commit *c, struct hth_save_id save);
void apply_head(struct hth_commit *c, const unsigned char *bytes, size_t len);
void apply_newest(struct hth_commit *c); /* applies the newest head: frees, ends, promises */

/* Coordinator only, from here on. head.c: `map` is taken over; NULL: the same as before. */
int head_append(struct hth_commit *c, struct hth_head *next, struct hth_places *map);
void head_send(struct hth_commit *c, uint32_t node, int with_map); /* HTH_NODE_NONE: to all */

/* pairs.c */
void pairs_tick(struct hth_commit *c);
/* A node of which no fact has come since its parent reported it, where no dial of the coordinator
 * can find that it is lost; HTH_NODE_NONE: there is none. */
uint32_t pairs_silent(const struct hth_commit *c);
void pairs_lost(struct hth_commit *c, uint32_t node);
void pairs_reported(struct hth_commit *c, uint32_t origin, const unsigned char *bytes,
        size_t len); /* UNREACHABLE */
int pairs_have_news(const struct hth_commit *c);
/* The next map's pairs, the caller's. */
int pairs_next(struct hth_commit *c, uint64_t now_ms, struct hth_places *map);
uint32_t pairs_reachability(struct hth_commit *c, uint64_t now_ms, const struct hth_places *map,
        struct hth_pair out[HTH_PAIRS_MAX]);
void pairs_log(const struct hth_commit *c, uint32_t moved, uint32_t stuck);
void pairs_mapped(struct hth_commit *c); /* all news is in the map now */
uint64_t pairs_next_stable_ms(struct hth_commit *c, uint64_t now_ms); /* HTH_NEVER: no pair */
void pairs_begin(struct hth_commit *c, uint64_t now_ms);
/* When a node or pair that is reachable since `since_ms` is given copies again: later, if it was
 * lost or unreachable twice recently, at last_ms and before_ms. */
uint64_t pairs_stable_ms(const struct hth_commit *c, uint64_t since_ms, uint64_t last_ms,
        uint64_t before_ms, uint64_t now_ms);
int pairs_is_recent(const struct hth_commit *c, uint64_t last_ms); /* recent enough to count */

/* maps.c */
void maps_sign_of_life(struct hth_commit *c, uint32_t node, uint64_t life, uint64_t count);
void maps_peer_up(struct hth_commit *c, uint32_t node);
void maps_peer_down(struct hth_commit *c, uint32_t node);
void maps_node_lost(struct hth_commit *c, uint32_t node);
void maps_node_returned(struct hth_commit *c, uint32_t node); /* a connection with it stands */
void maps_tick(struct hth_commit *c, uint64_t now_ms);
void maps_begin(struct hth_commit *c);

/* wishes.c; hth_commit_wish() too */
void wish_result(struct hth_commit *c, const unsigned char *bytes, size_t len); /* any member */
void wishes_receive(struct hth_commit *c, uint32_t origin, const unsigned char *bytes, size_t len);
void wishes_tick(struct hth_commit *c); /* decides the wishes that have come */

/* decide.c */
void coord_begin(struct hth_commit *c); /* at GO, or in a new engine after GO */
void coord_stop(struct hth_commit *c);
int coord_make(struct hth_commit *c, struct hearth_error *err); /* of a new epoch */
void coord_tick(struct hth_commit *c, uint64_t now_ms);
uint64_t coord_due_ms(const struct hth_commit *c);
/* Fails each save that lacks the part of a lost node, unless the node returns soon. */
void coord_give_up(struct hth_commit *c, uint64_t now_ms);
void coord_waits_for(const struct hth_commit *c, struct hth_save_id save, char *out, size_t len);

/* coordinate.c */
void coord_done(struct hth_commit *c, uint32_t origin, const unsigned char *bytes, size_t len);
void coord_held(struct hth_commit *c, uint32_t origin, const unsigned char *bytes, size_t len);
void coord_promise(struct hth_commit *c, uint32_t origin, const unsigned char *bytes, size_t len);
void coord_failed(struct hth_commit *c, uint32_t origin, const unsigned char *bytes, size_t len);
void coord_copy_lost(struct hth_commit *c, uint32_t origin, const unsigned char *bytes, size_t len);
void coord_alive(struct hth_commit *c, uint32_t origin);

#endif
