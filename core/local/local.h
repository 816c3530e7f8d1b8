/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The messages between ranks and their node's engine: requests and completions, no pointers into
 * either side. Over SOCK_SEQPACKET `<root>/<job>/.hearth/sock` one message is one packet with at
 * most one descriptor (SCM_RIGHTS); inside one process or the simulator the same bytes go by
 * function call and the descriptor's content as an attachment.
 *
 *     head (24 bytes) | fixed part of the type | variable part
 *
 * Every request but WRITTEN gets exactly one answer with its `request` number: the type's own
 * answer or HTH_LOCAL_ERROR. Answers may come much later and in another order. The engine sends
 * EVENT and LET_GO without a request, and LENT too where ATTACH asked for slots ahead. Same
 * machine, same build family: native little-endian structs, all fields naturally aligned.
 */
#ifndef HEARTH_CORE_LOCAL_LOCAL_H
#define HEARTH_CORE_LOCAL_LOCAL_H

#include "core/base/auth.h"
#include "core/base/meeting_place.h"
#include "core/base/network.h"
#include "core/format/epoch.h"
#include <hearth/types.h>
#include <string.h>

#define HTH_LOCAL_MAX 16384u              /* bytes of a packet */
#define HTH_LOCAL_OWN (UINT64_C(1) << 63) /* tokens that clients give, apart from the engine's */

enum hth_local_type {
    HTH_LOCAL_ERROR = 1,   /* struct hth_local_error */
    HTH_LOCAL_OK = 2,      /* head alone */
    HTH_LOCAL_ATTACH = 10, /* first of every connection */
    HTH_LOCAL_ATTACHED = 11,
    HTH_LOCAL_JOIN = 12, /* descriptor: memfd with table[world][HTH_GATHER] */
    HTH_LOCAL_JOINED = 13,
    HTH_LOCAL_RECOVER = 14,
    HTH_LOCAL_RECOVERED = 15,
    HTH_LOCAL_BEGIN = 20,
    HTH_LOCAL_LENT = 21,     /* descriptor: the slot; request 0: lent ahead, see BEGIN */
    HTH_LOCAL_SET_STEP = 22, /* answered by HTH_LOCAL_SAVE_ID */
    HTH_LOCAL_SEAL = 24,     /* one object is written; answered OK at once, sealing goes on */
    HTH_LOCAL_WRITTEN = 25,  /* chunks of an object are complete; no answer */
    HTH_LOCAL_COMMON = 26,   /* descriptor: memfd with the bytes; OK at once, as SEAL */
    HTH_LOCAL_COMMIT = 28,   /* no more objects of this rank; answered by SAVE_ID */
    HTH_LOCAL_ABORT = 30,    /* OK */
    HTH_LOCAL_CANCEL = 32,   /* OK */
    HTH_LOCAL_SAVE_ID = 34,
    HTH_LOCAL_EVENT = 36,    /* a save of this rank moved; request 0 */
    HTH_LOCAL_FOLLOW = 38,   /* what became of this save? OK, and EVENTs from there on */
    HTH_LOCAL_MANIFEST = 40, /* answered by BYTES: the encoded manifest */
    HTH_LOCAL_MAP = 42,      /* answered by MAPPED with the slot's descriptor; takes a lease */
    HTH_LOCAL_MAPPED = 43,
    HTH_LOCAL_UNMAP = 44,      /* gives a lease back; OK */
    HTH_LOCAL_RANGE = 46,      /* bytes of an object held elsewhere; answered by BYTES */
    HTH_LOCAL_COMMON_GET = 48, /* a raw object's bytes; answered by BYTES */
    HTH_LOCAL_BYTES = 49,      /* descriptor: in memory; sealed, maybe others have it too */
    HTH_LOCAL_STATUS = 50,     /* answered by BYTES: JSON for people and programs */
    HTH_LOCAL_CLOSE = 52,      /* keep or drop; OK */
    HTH_LOCAL_FIND = 56, /* a save of this epoch that can be read; answered by FOUND, in its time */
    HTH_LOCAL_FOUND = 57,
    HTH_LOCAL_GIVE = 58, /* the save goes on in another process of the rank; answered by GIVEN */
    HTH_LOCAL_GIVEN = 59,
    HTH_LOCAL_TAKE = 60, /* answered by TAKEN with the slot's descriptor */
    HTH_LOCAL_TAKEN = 61,
    HTH_LOCAL_REGAIN = 62, /* an object's slot, lent by an engine before this one; OK */
    HTH_LOCAL_REFIT =
            63, /* take this fabric, if that can be had; answered by REFITTED: what it has */
    HTH_LOCAL_REFITTED = 64,
    HTH_LOCAL_BAD =
            66, /* what I was given is wrong; OK when it was looked at, and another may be read */
    HTH_LOCAL_WISH = 68, /* pin, release, ... a kept save; also before ATTACH; OK, or why not */
    HTH_LOCAL_KEPT = 70, /* what is kept; answered by KEPT_LIST */
    HTH_LOCAL_KEPT_LIST = 71,
    HTH_LOCAL_FORGET = 74, /* no caller waits for my BEGIN any more: token is its request; OK */
    HTH_LOCAL_MEET = 80,   /* come to a gather of all ranks; answered by BYTES: the packed table. */
    HTH_LOCAL_HISTORY =
            82, /* last saves or recoveries; also before ATTACH; answered by BYTES: JSON */
    HTH_LOCAL_NODES = 84, /* members of the epoch; also before ATTACH; answered by BYTES: JSON */
    HTH_LOCAL_ELSEWHERE = 86, /* a question to another node; also before ATTACH; its BYTES */
    HTH_LOCAL_EVENTS = 88,    /* last lines of its log; as HISTORY, what 0 */
    HTH_LOCAL_METRICS = 90,   /* all series; also before ATTACH; answered by BYTES: JSON */
    HTH_LOCAL_PLACES = 92,    /* which nodes hold what; as HISTORY, what 0 */
    HTH_LOCAL_LOG_LEVEL = 94, /* also before ATTACH; answered by BYTES: JSON */
    HTH_LOCAL_UPGRADE = 96,   /* also before ATTACH; OK: another engine takes over, or why not */
    HTH_LOCAL_LET_GO =
            72, /* from the engine, request 0: this slot is unmapped once no save needs it */
};

struct hth_local_head {
    uint32_t length; /* of the packet */
    uint32_t type;
    uint64_t request; /* the client's; echoed */
    uint64_t token;   /* of the save, where the type has one; else 0 */
};

struct hth_local_save { /* a save id with fixed layout */
    uint64_t epoch, nonce, step;
    uint32_t attempt, zero;
};

struct hth_local_error {
    struct hth_local_head head;
    int32_t code, native;
    char text[HEARTH_ERROR_TEXT];
};

/* Options with the same values on all ranks of a job. The engine receives them at JOIN, and answers
 * with those in effect. */
struct hth_local_opts {
    uint32_t copies, min_copies, keep, allow_degraded;
    uint32_t recover_ms, save_ms, heartbeat_ms, dead_ms, stall_ms, linger_s, inflight_mib;
    uint32_t bad_after;
    uint64_t lease_bytes, spare_bytes;
};

#define HTH_LOCAL_TRUSTED 1u /* network = trusted */
#define HTH_LOCAL_STRONG  2u /* integrity = strong */

/* The rank's host name may follow, NUL-terminated, at most so many bytes: a pod's name, for
 * errors. */
#define HTH_LOCAL_HOST    65

struct hth_local_attach {
    struct hth_local_head head;
    uint32_t version; /* that the library speaks; the engine answers in it */
    uint32_t rank, world;
    uint32_t helper;
    uint32_t pid;
    uint32_t want_log;     /* enum hearth_log_level of lines wanted as events; 0: none */
    uint64_t epoch, nonce; /* that the rank has joined already; 0: none */
    unsigned char challenge[HTH_LOCAL_CHALLENGE]; /* random */
    uint32_t flags;             /* HTH_LOCAL_..., as the engine must have them too */
    uint32_t ahead;             /* 1: slots may be lent to it before it asks */
    char job[HTH_NAME_MAX + 8]; /* NUL-terminated */
};

struct hth_local_attached {
    struct hth_local_head head;
    uint64_t store, highest_epoch, wall_ms, random;
    uint64_t epoch, nonce; /* joined now; 0: none */
    uint32_t recovered;    /* 1: this epoch has chosen already (engine restarted under the ranks) */
    uint32_t pid;
    uint32_t addr_len;
    unsigned char addr[HTH_ADDR_MAX];
    char node[HTH_NAME_MAX + 8];
    char log[512]; /* path of the engine's log */
    char transport[HTH_BACKEND_MAX + 1];
    uint32_t version_low, version_high; /* protocols that the engine speaks with others */
    /* The options that the engine was started with, of those that a rank may require, as they are
     * in effect. */
    char provider[HTH_PROVIDER_MAX + 1];
    char first_bind[64];                      /* of `bind`, for libraries to version 14 */
    char device[32];                          /* "": the one that has the address */
    uint32_t port;                            /* that it listens on */
    uint32_t flags;                           /* HTH_LOCAL_... */
    uint32_t heartbeat_ms, dead_ms, stall_ms; /* 0: as the ranks set them */
    uint32_t has_key;
    unsigned char key_proof[HTH_MAC]; /* hth_local_proof() */
    uint32_t
            fabrics; /* transport = auto: bits of what it may take (core/format/fabric.h); else 0 */
    uint32_t first_fabric;      /* that this job's first epoch ran on here; 0: none has been */
    struct hth_local_opts opts; /* in effect in `epoch` */
    char bind[HTH_BINDS_TEXT];  /* all addresses, by version 15 */
};

struct hth_local_join {
    struct hth_local_head head;
    struct hth_local_opts opts;
    uint32_t world;
    uint32_t rank;
};

struct hth_local_joined {
    struct hth_local_head head;
    uint64_t epoch, nonce;
    uint32_t nodes, self;
    struct hth_local_opts opts; /* in effect */
};

/* If no address answers, the engine answers ERROR with HEARTH_ENOENT. The rank then resolves the
 * name anew and sends MEET again, until its time is over. */
struct hth_local_meet {
    struct hth_local_head head;
    uint32_t deadline_ms, left_ms; /* of the whole gather; what is left of it */
    uint64_t tree_from;            /* of rank 0: see meeting/meeting.h; 0 but in tests */
    unsigned char token[16];       /* of the process */
    unsigned char row[HTH_GATHER];
    struct hth_meeting_place place;
};

struct hth_local_refit { /* an engine that is in an epoch ends, and the next one answers */
    struct hth_local_head head;
    uint32_t fabric; /* its number */
    uint32_t zero;
};

struct hth_local_refitted { /* as in ATTACHED */
    struct hth_local_head head;
    uint32_t fabrics, port, addr_len;
    unsigned char addr[HTH_ADDR_MAX];
    char transport[HTH_BACKEND_MAX + 1];
    char provider[HTH_PROVIDER_MAX + 1];
};

#define HTH_COMMON_NAME 256u

struct hth_local_recover { /* then name[count][HTH_COMMON_NAME], NUL-terminated; at most 32 */
    struct hth_local_head head;
    uint32_t deadline_ms;
    uint32_t count;
    uint32_t accept_loss;
    uint32_t wants;             /* 1: `save` and no other */
    struct hth_local_save save; /* epoch 0: the newest attempt at its step */
};

struct hth_local_recovery { /* struct hearth_recovery with fixed layout */
    uint64_t step, epoch, now_epoch;
    uint32_t degraded, beyond;
    uint32_t join_ms, inventory_ms, plan_ms, pull_ms, verify_ms, vote_ms;
    uint64_t pulled_bytes;
    uint32_t sources, passed;
    char text[256];
};

#define HTH_LOCAL_RULED_OUT 2048u /* bytes at most, NUL not sent */

/* Then text up to the packet's end: steps that were not chosen and why, a line each. A client that
 * does not know the text skips it. */
struct hth_local_recovered {
    struct hth_local_head head;
    struct hth_local_save save; /* epoch 0: nothing, start from scratch */
    struct hth_local_recovery info;
};

static inline struct hth_local_recovery hth_local_recovery_of(const struct hearth_recovery *r)
{
    struct hth_local_recovery l = { r->step, r->epoch, r->now_epoch, r->degraded, r->beyond,
        r->join_ms, r->inventory_ms, r->plan_ms, r->pull_ms, r->verify_ms, r->vote_ms,
        r->pulled_bytes, r->sources, r->passed, "" };

    memcpy(l.text, r->text, sizeof(l.text));
    return l;
}

static inline struct hearth_recovery hth_local_recovery_to(const struct hth_local_recovery *l)
{
    struct hearth_recovery r = { .struct_size = sizeof(r),
        .step = l->step,
        .epoch = l->epoch,
        .now_epoch = l->now_epoch,
        .degraded = l->degraded,
        .beyond = l->beyond,
        .join_ms = l->join_ms,
        .inventory_ms = l->inventory_ms,
        .plan_ms = l->plan_ms,
        .pull_ms = l->pull_ms,
        .verify_ms = l->verify_ms,
        .vote_ms = l->vote_ms,
        .pulled_bytes = l->pulled_bytes,
        .sources = l->sources,
        .passed = l->passed };

    memcpy(r.text, l->text, sizeof(r.text) - 1); /* the sender may have left out the terminator */
    return r;
}

/* The engine keeps a BEGIN without wait_ms for so many milliseconds while it makes a slot of
 * `bytes`: at 200 MiB/s, and 5 s for workers that get no processor on a loaded machine. The rank
 * waits longer. */
static inline uint64_t hth_local_making_ms(uint64_t bytes)
{
    return 5000 + (bytes >> 20) * 5;
}

/* BEGIN and REGAIN: the set of ranks that take part in the save follows, as in core/format/ranks.h;
 * nothing: all ranks. */
struct hth_local_begin {
    struct hth_local_head head;
    uint64_t step;  /* HEARTH_STEP_LATER: set_step follows */
    uint64_t bytes; /* of the object's file: block, data, table with items part */
    uint32_t wait_ms;
    uint32_t cancel_old;
    /* 0: first object of a save (token 0; or of the slot that was lent ahead: answered by
     * SAVE_ID); else a further one of `token` */
    uint32_t index;
    /* The rank's own count of the step's begins; 0: the engine counts. */
    uint32_t attempt;
    char name[HTH_NAME_MAX + 8];
};

#define HTH_LOCAL_WARNING 768u /* bytes at most, NUL not sent */

/* Then text up to the packet's end: a warning for the rank. */
struct hth_local_lent {
    struct hth_local_head head; /* token: of the save from now on */
    uint64_t slot, generation, capacity;
    /* Epoch 0 while the step is not known; lent ahead: the last one that the rank has begun. */
    struct hth_local_save save;
};

struct hth_local_let_go {
    struct hth_local_head head;
    uint64_t slot;
};

struct hth_local_set_step {
    struct hth_local_head head;
    uint64_t step;
    uint32_t wait_ms; /* for room, as in BEGIN */
    uint32_t attempt; /* as in BEGIN */
};

struct hth_local_save_id {
    struct hth_local_head head;
    struct hth_local_save save;
};

/* How bytes of GPUs come into this rank's slots, as it was when the object was written. */
enum hth_local_pinned {
    HTH_LOCAL_PINNED_UNSAID = 0, /* no bytes of GPUs, or a library of version 14 and before */
    HTH_LOCAL_PINNED_SLOTS = 1,  /* straight into slots that are registered */
    HTH_LOCAL_PINNED_RING = 2,   /* through registered buffers */
    HTH_LOCAL_PINNED_NOT = 3,    /* through buffers that are not registered */
};

struct hth_local_seal {
    struct hth_local_head head;
    uint64_t slot, generation;
    uint64_t data_len;  /* data at slot + 4096 */
    uint64_t items_len; /* items part at slot + HTH_ALIGN(4096 + data_len) + HTH_TABLE_HEAD */
    uint32_t items;
    uint32_t index;
    uint32_t summed; /* 1: the CRC32C of each chunk lies behind the items part, as in the table */
    /* enum hth_local_pinned in the low two bits; above them the ms that registering took for each
     * GiB of slots */
    uint32_t pinned;
};

/* The rank has copied these chunks. If a caller gets a place in the object later and changes them,
 * what peers have pulled by then does not count. */
struct hth_local_written_chunks {
    struct hth_local_head head;
    uint32_t index;
    uint32_t chunks; /* from the first on */
};

struct hth_local_common { /* COMMON, COMMON_GET */
    struct hth_local_head head;
    struct hth_local_save save; /* COMMON_GET: of this save */
    uint64_t len;
    char name[256];
};

struct hth_local_event {
    struct hth_local_head head; /* token */
    struct hth_local_save save;
    uint32_t level; /* enum hearth_level */
    uint32_t degraded;
    int32_t code; /* 0, HEARTH_EFAILED, HEARTH_EUNKNOWN */
    uint32_t zero;
    uint64_t bytes, copied;
    char text[256];
};

struct hth_local_follow {
    struct hth_local_head head; /* token: the client's new one for it */
    struct hth_local_save save;
};

struct hth_local_map { /* MAP, RANGE, MANIFEST (save only) */
    struct hth_local_head head;
    struct hth_local_save save;
    uint64_t object;   /* id */
    uint64_t off, len; /* RANGE: of the file */
};

struct hth_local_mapped {
    struct hth_local_head head;
    uint64_t lease; /* for UNMAP */
    uint64_t slot;
    uint64_t generation; /* 0: another program's file; MAP again says whether it is what it was */
    uint64_t capacity;
    uint64_t data_len, table_off, table_len;
};

#define HTH_BAD_TABLE UINT64_MAX /* no chunk: the table, or all of a common object */

struct hth_local_bad {
    struct hth_local_head head;
    struct hth_local_save save;
    uint64_t object; /* id */
    uint64_t chunk;
};

struct hth_local_wish {
    struct hth_local_head head;
    struct hth_local_save save; /* epoch 0: the newest kept one of save.step */
    uint32_t wish;              /* enum hth_wish */
    uint32_t wait_ms;           /* for the coordinator's word */
};

struct hth_local_kept {
    struct hth_local_save save;
    uint64_t since_ms; /* PROTECTED first, by the wall clock */
    uint32_t flags;    /* HTH_KEPT_IS_ */
    uint32_t zero;
};
#define HTH_KEPT_IS_DEGRADED  1u
#define HTH_KEPT_IS_PINNED    2u
#define HTH_KEPT_IS_BAD       4u
#define HTH_KEPT_IS_CONFIRMED 8u /* in this epoch, and the coordinator can be reached */

struct hth_local_kept_list {
    struct hth_local_head head;
    uint32_t count;
    uint32_t copies; /* that this job asks for */
    struct hth_local_kept kept[16];
};

enum { HTH_HISTORY_SAVES, HTH_HISTORY_RECOVERIES };
#define HTH_EVENTS_PAGE  64u /* likewise */
#define HTH_HISTORY_PAGE 32u /* entries of an answer, at most; fewer: there are no more */

struct hth_local_history {
    struct hth_local_head head;
    uint32_t what; /* HTH_HISTORY_... */
    uint32_t skip; /* so many of the newest; PLACES: of the nodes, and of the ranks */
};

#define HTH_PLACES_PAGE 256u /* nodes, and ranks, of an answer, at most; fewer: there are no more */

/* STATUS, HISTORY, ... of another member's engine. */
struct hth_local_elsewhere {
    struct hth_local_head head;
    uint32_t node;       /* its index; HTH_NODE_NONE: the member `name`; "": the coordinator */
    uint32_t type;       /* HTH_LOCAL_STATUS, ... */
    uint32_t what, skip; /* as that type has them, or 0 */
    char name[HTH_NAME_MAX + 8];
};

#define HTH_NODES_PAGE 256u /* members of an answer, at most */

struct hth_local_nodes { /* fields as those of HISTORY */
    struct hth_local_head head;
    uint32_t zero;
    uint32_t skip; /* members from the first on */
};

struct hth_local_log_level {
    struct hth_local_head head;
    uint32_t level; /* enum hearth_log_level, until the engine ends; 0: it stays */
    uint32_t zero;
};

struct hth_local_unmap {
    struct hth_local_head head;
    uint64_t lease;
};

struct hth_local_bytes {
    struct hth_local_head head;
    uint64_t len;
    uint32_t sum;    /* RANGE: CRC32C of bytes that came without their whole chunks ... */
    uint32_t summed; /* ... 1: it is there */
};

struct hth_local_find {
    struct hth_local_head head;
    uint64_t step;              /* HEARTH_STEP_NEWEST: the newest PROTECTED */
    struct hth_local_save save; /* this one and no other; epoch 0: by step */
    uint32_t wait_ms;           /* for the decision of one that may be meant */
    uint32_t zero;
};

struct hth_local_found {
    struct hth_local_head head;
    struct hth_local_save save;
    uint32_t level, degraded;
};

/* An object as far as it is written: what the next process has to know to go on. */
struct hth_local_written {
    uint64_t room;      /* payload bytes that begin asked for */
    uint64_t data_len;  /* data at slot + 4096 */
    uint64_t items_len; /* records where a table behind this data would have them */
    uint32_t items;
    uint32_t has_bytes; /* 1: tensors may not follow */
};

struct hth_local_give {
    struct hth_local_head head; /* token: of the save, which no process owns until it is taken */
    struct hth_local_written written;
};

struct hth_local_given {
    struct hth_local_head head;
    uint64_t secret[2]; /* a process that knows it may take the save */
};

struct hth_local_take {
    struct hth_local_head head; /* token: as the giver had it */
    uint64_t secret[2];
};

struct hth_local_taken {
    struct hth_local_head head; /* token: the taker's */
    uint64_t slot, generation, capacity;
    struct hth_local_save save; /* epoch 0 while the step is not known */
    struct hth_local_written written;
    uint32_t commons; /* handed over already */
    uint32_t runs;    /* of its set of ranks, which follows; 0: all */
};

/* A rank goes on with an object that it wrote, or writes, into a slot of the engine before: under
 * this token, by SEAL, COMMON and COMMIT as ever. Objects that it has handed over already
 * stay handed over. */
struct hth_local_regain {
    struct hth_local_head head; /* token: the client's, its own for each save */
    struct hth_local_save save; /* epoch 0: its step is not known yet */
    uint64_t slot, generation;
    uint64_t bytes; /* as BEGIN asked for them */
    uint32_t index, zero;
    char name[HTH_NAME_MAX + 8];
};

struct hth_local_close {
    struct hth_local_head head;
    uint32_t leave; /* enum hearth_leave */
    uint32_t zero;
};

static inline struct hth_local_save hth_local_save_of(struct hth_save_id s)
{
    return (struct hth_local_save){ s.epoch, s.nonce, s.step, s.attempt, 0 };
}

static inline struct hth_save_id hth_local_save_to(struct hth_local_save s)
{
    return (struct hth_save_id){ s.epoch, s.nonce, s.step, s.attempt };
}

#endif
