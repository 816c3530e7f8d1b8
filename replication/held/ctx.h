/* SPDX-License-Identifier: Apache-2.0 */
/* The context that all parts of one engine share. engine/node/node.c fills it; only the engine's
 * thread uses it. */
#ifndef HEARTH_REPLICATION_CTX_H
#define HEARTH_REPLICATION_CTX_H

#include "core/format/keep.h"
#include "core/format/manifest.h"
#include "core/format/places.h"
#include "core/store/store.h"
#include "transport/session/session.h"
#include <stddef.h>

/* Rules that a simulator run leaves out, to test that a property then fails. Never set in
 * production. */
enum hth_break {
    HTH_BREAK_VERIFY = 1,          /* pulled bytes are not checked */
    HTH_BREAK_FREE_EARLY = 2,      /* older saves are freed at COMPLETE */
    HTH_BREAK_EPOCH = 4,           /* saves are known by step number alone */
    HTH_BREAK_FENCE = 8,           /* messages of older sessions are accepted */
    HTH_BREAK_KEEP_CHOSEN = 16,    /* the plan keeps the chosen save only */
    HTH_BREAK_DEADLINE = 32,       /* undecided saves are never cancelled */
    HTH_BREAK_REGISTER = 64,       /* memory is registered on the engine's thread */
    HTH_BREAK_RECORD = 128,        /* heads are in memory only */
    HTH_BREAK_RETURNED = 256,      /* a lost node has returned only when it is connected */
    HTH_BREAK_MOVED = 512,         /* copies that have moved are never freed */
    HTH_TEST_BLOB = 1024,          /* no rule: maps go as blobs, however small */
    HTH_BREAK_SERIAL = 1 << 11,    /* the coordinator's next engine begins the epoch's log anew */
    HTH_BREAK_NUMBER = 1 << 12,    /* a promise names its map by a number */
    HTH_BREAK_CANCELLED = 1 << 13, /* CANCELLED is sent, and not on record */
    HTH_BREAK_CANCEL_FREES = 1 << 14, /* copies that have moved are freed by CANCELLED */
    HTH_BREAK_BYTES = 1 << 15,        /* a save begins where bytes are free */
    HTH_BREAK_ROOM = 1 << 16,         /* recovery passes over no save for lack of room */
    HTH_BREAK_COMMON = 1 << 17,       /* a save is promised without its common objects */
    HTH_BREAK_UNREACHABLE = 1 << 18,  /* no member reports nodes that it cannot reach */
    HTH_BREAK_KEPT_FIRST = 1 << 19,   /* copies of kept saves do not go first */
    HTH_BREAK_SET_DONE = 1 << 20,     /* a save of some ranks waits for all */
    HTH_BREAK_SET_COUNT = 1 << 21,    /* all sets of ranks count a step's begins together */
    HTH_TEST_WORKER = 1 << 22,        /* no rule: manifests are the workers', however small */
    HTH_BREAK_WRITER = 1 << 23,  /* a slot is lent again while a rank that was cut off writes it */
    HTH_BREAK_STALLED = 1 << 24, /* no member reports pulls that stall */
    HTH_BREAK_SOURCE = 1 << 25,  /* holders that the owner does not reach count as sources */
    HTH_BREAK_RULED_OUT = 1 << 26, /* a save that recovery ruled out takes room after GO */
    HTH_BREAK_DOMAINS = 1 << 30,   /* copies that share a failure domain count as different */
    HTH_BREAK_READER = 1 << 27,    /* slots that a rank has mapped to read count as free */
    HTH_BREAK_OPTIONS = 1 << 29,   /* an engine keeps the options of the first epoch it joins */
    HTH_BREAK_BAD = 1 << 28, /* a copy that a peer reports as bad is put aside, right or not */
};

/* Beyond the bits of an int. */
#define HTH_BREAK_LATE   (UINT64_C(1) << 31) /* promises from before the coordinator was busy count */
#define HTH_BREAK_FORGOT (UINT64_C(1) << 32) /* an epoch whose head is damaged is joined again */
#define HTH_BREAK_CROWD  (UINT64_C(1) << 34) /* a save is staged where bytes are free */
#define HTH_BREAK_HOME   (UINT64_C(1) << 33) /* copies that have moved stay where they are */
#define HTH_BREAK_ALIVE  (UINT64_C(1) << 35) /* a tick that is late makes all peers alive */
#define HTH_BREAK_STEPS  (UINT64_C(1) << 36) /* a save that a rank has passed waits for that rank */
#define HTH_BREAK_EARLY  (UINT64_C(1) << 37) /* chunks that came early count without the table */
#define HTH_BREAK_VOUCH  (UINT64_C(1) << 38) /* a member vouches for what it knows, however old */

struct hth_ctx_opts {
    char job[HTH_NAME_MAX + 1];
    uint32_t copies, min_copies, keep; /* resolved: never 0 */
    uint32_t allow_degraded;
    uint32_t strong;       /* integrity = strong */
    uint32_t foreign_last; /* foreign containers are recovered only while no save was PROTECTED */
    /* a save is bad after so many jobs recovered it and began no save; 0: never for that */
    uint32_t bad_after;
    uint32_t save_ms, recover_ms, dead_ms, heartbeat_ms;
    uint32_t retry_ms;       /* interval of repeats while a message has no effect; 500 */
    uint64_t inflight_bytes; /* being pulled by this node */
    uint32_t tree_degree;    /* 0: HTH_TREE_DEGREE; tests have less */
    uint64_t breaks;         /* enum hth_break */
};

/* Wrong bytes that this engine has found: in what this node has, or in what came from a node. */
struct hth_wrong {
    uint64_t count, last_ms;
    struct hth_save_id save; /* of the last ... */
    char text[160];          /* ... which, and where, a clause */
};

struct hth_holdings;
struct hth_job;
struct hth_reg;
struct hth_tree;
struct hth_blobs;
struct hth_draft;
struct hth_transfer;

struct hth_ctx {
    struct hth_clock clock;
    struct hth_random random;
    struct hth_workers workers;
    struct hth_log log;
    struct hth_points points;
    struct hth_ctx_opts opts;
    struct hth_store *store;
    struct hth_session *session;
    const struct hth_epoch *epoch; /* NULL before the first join */
    struct hth_keep keep;          /* the record, as last written */
    struct hth_holdings *holdings;
    struct hth_job *jobs;     /* works on objects that this node holds */
    struct hth_draft *drafts; /* manifests that a worker has */
    struct hth_reg *regs;     /* memory that is registered, or being registered */
    uint32_t regs_ending;     /* of these, how many are to end and are still in use */
    struct hth_tree *tree;
    struct hth_blobs *blobs;
    struct hth_transfer *transfer;
    uint32_t *lost; /* [epoch->nodes] 1: that member is lost, by the newest map known here */
    const struct hth_pair_note *pair; /* [pairs] by the newest map known here, which has them */
    uint32_t pairs;
    struct hth_wrong wrong;
    uint64_t life;  /* starts of an engine on this store, this one included */
    uint64_t facts; /* how many this engine has sent, in all its epochs */
};

/* The struct that holds `field`, whose address is `at`. */
#define hth_owner_of(type, field, at) ((type *)(void *)((char *)(at)-offsetof(type, field)))

static inline int hth_breaks(const struct hth_ctx *ctx, uint64_t rule)
{
    return (ctx->opts.breaks & rule) != 0;
}

static inline int hth_is_coordinator(const struct hth_ctx *ctx)
{
    return ctx->epoch && ctx->epoch->self == 0;
}

#endif
