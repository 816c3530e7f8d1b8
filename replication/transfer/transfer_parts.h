/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The structs and functions that the files of a transfer share. Each calls only those below it:
 *
 *   transfer.c                        the front: messages, time, joining and closing
 *   ├─ offer.c  sum.c                 holder's side
 *   │  writing.c                      of objects that ranks still write
 *   ├─ batch.c                        slices, several in a message, of both sides
 *   ├─ take.c                         what holders say to a receiver
 *   └─ pieces.c                       what moves fetches on: pulls, and works on what has come
 *      fetch_check.c fetch_foreign.c  what has come is looked at: with a table, without one
 *      slice.c                        a few bytes, with the holder's checksum instead of a table
 *      fetch.c                        how a fetch begins
 *      fetch_end.c                    how it ends
 *      source.c                       the nodes that a fetch pulls from
 *      scratch.c                      memory for ranges
 *      early.c                        chunks of objects that ranks of other nodes still write
 *   wire.c tally.c                    messages; who has given how much
 */
/* For this folder alone. */
#ifndef REPLICATION_TRANSFER_PARTS_H
#define REPLICATION_TRANSFER_PARTS_H

#include "batch.h"
#include "replication/held/region.h"
#include "scratch.h"
#include "tally.h"
#include "transfer.h"
#include "wire.h"

#define LEASE_MS    60000u /* after this silence a grant is withdrawn; a puller renews it by WANT */
#define RENEW_MS    20000u /* again this often */
#define HTH_BAD_MAX 2u     /* wrong pieces before a source is not asked any more */

#define UNIT_FILE   (UINT32_MAX - 3) /* foreign: all of it */
#define UNIT_TABLE  (UINT32_MAX - 2)
#define UNIT_BLOCK  (UINT32_MAX - 1)
#define UNIT_NONE   UINT32_MAX

enum source_state {
    SOURCE_NEW,   /* the source is asked at the next tick */
    SOURCE_ASKED, /* asked: END or NAK comes, or it is asked again */
    SOURCE_GRANTED,
    SOURCE_AWAY, /* asked again later */
    SOURCE_OUT,
};

struct source {
    uint32_t node;
    enum source_state state;
    int gone;    /* SOURCE_OUT: it is out of reach, and may have the object */
    int offered; /* the source sent OFFER: it gets a NAK if the fetch fails */
    int asked;   /* a message was sent to the source: it gets PULLED or RELEASE at the end */
    struct hth_grant grant;
    uint32_t grants;   /* how many so far: a pull under an older grant proves nothing of this one */
    uint64_t due_ms;   /* HTH_NEVER: it waits for a message of the source */
    uint64_t renew_ms; /* GRANTED: WANT is sent again */
    uint32_t in_flight;
    uint32_t bad, bad_unit; /* wrong pieces; the last one */
    uint32_t strikes;       /* failures since its last good piece */
    uint64_t given;         /* bytes asked of it so far */
    int sum_asked, has_sum; /* a slice: SUM_WANT was sent; SUM has come since it was asked */
    int has_grant;          /* a slice: END has come since; GRANTED once both are here */
    int queued;             /* a slice: it goes with the next SLICES_WANT to this node */
    int denied;             /* a slice: not in SLICES_WANT: the answer to WANT has the reason */
    uint32_t sum;
};

/* A pull and its check. */
struct piece {
    struct hth_session_pull pull;
    struct hth_work work;
    struct hth_fetch *fetch;
    uint32_t source, unit, grants;
    uint64_t len;
    uint32_t sum;       /* of a slice, by the source */
    int right;          /* by its check */
    struct piece *next; /* spare */
    struct piece *all;  /* of the fetch */
};

enum phase {
    PHASE_TABLE,  /* pulled part by part from one source; foreign objects have none */
    PHASE_CHECK,  /* its digest is being computed; foreign: that of the whole file, after DATA */
    PHASE_REUSE,  /* chunks that are here are compared, those of a bad copy copied */
    PHASE_DATA,   /* chunks are pulled from all sources */
    PHASE_BLOCK,  /* last */
    PHASE_ENDING, /* outcome known; pulls and works under way */
    PHASE_KEPT,   /* a range: the owner has the bytes */
};

enum { CHUNK_TODO, CHUNK_BUSY, CHUNK_RIGHT };

struct hth_fetch {
    struct hth_ctx *ctx;
    struct hth_save_id save;
    struct hth_object object;
    enum hth_fetch_class class;
    enum phase phase;
    int whole;
    int slice;     /* a range without its whole chunks: one unit, no table */
    uint32_t sum;  /* of a slice: that of the source whose bytes are here */
    int by_offer;  /* begun by an OFFER, not by hth_fetch_start() */
    int pull_said; /* hth_point() was called for its first pull */
    int made;      /* its save was not known before */
    int code;      /* ENDING */
    int stirred;   /* the region is there since the last pump */
    struct hearth_error err;
    struct hearth_error cause; /* the last failure of a source */
    uint64_t deadline_ms;
    uint32_t deadline_after_ms;

    /* [lo, hi) of the file lies at base, the table at base + table_at. */
    unsigned char *base; /* of slot or scratch; NULL: a range that waits for room */
    uint64_t off, lo, hi, table_at;
    uint32_t chunk0, chunk1;     /* covering chunks: [chunk0, chunk1) */
    struct hth_slot *slot;       /* leased while the fetch uses it; NULL: a range */
    struct hth_scratch *scratch; /* of a range */
    struct hth_region *region;   /* NULL: being registered, nothing is pulled yet */
    struct hth_reg_wait wait;    /* for that */
    struct hth_held_save *in;    /* pinned with held */
    struct hth_held *held;       /* NULL: a range */
    struct hth_slot *old; /* leased: the copy that was bad in places; its owner is held->old */
    int half;             /* the slot has chunks that an earlier fetch left */
    struct hth_early_chunks *early; /* the slot has chunks that came while they were written */

    unsigned char *chunk; /* [chunk1 - chunk0] */
    uint32_t cursor,
            left; /* chunks: all before `cursor` were asked for; `left` are not right yet */
    struct hth_proofs proofs; /* of all chunks, in the table */
    uint64_t table_got;
    uint32_t table_source;
    struct hth_foreign_look look; /* foreign, once its digest is right */
    int table_code;
    struct hth_work work; /* CHECK, REUSE */
    uint32_t reuse_next, reuse_count;

    struct source *source; /* [sources] */
    uint32_t sources;
    struct piece *spare, *pieces; /* pieces: all there are */
    uint32_t busy;                /* pulls and works under way */
    uint64_t issued;              /* turn of its last pull */
    int dry;                      /* nothing to pull in this round */
    hth_fetched_fn *done;
    void *self;
    struct hth_fetch *next;
};

/* Chunks that came while the object was still written, with the CRC32C of each as it lies here. */
struct hth_early_chunks {
    uint32_t count;
    unsigned char *here; /* [count] */
    uint32_t crc[];      /* [count] */
};

struct offer;
struct writing;
struct early;
struct hth_sum;

struct slices_out;

struct hth_transfer {
    struct hth_transfer_events events;
    struct offer *offers;
    struct writing *writings;       /* objects that ranks of this node write */
    struct early *early;            /* objects that ranks of other nodes write */
    int stirred;                    /* early.c: the next tick is due at once */
    struct hth_sum *sums;           /* being made for receivers */
    struct slices_out *slices_said; /* to receivers, with the next tick */
    int slices_queued;              /* a source is asked with the next tick */
    struct hth_fetch *fetches;      /* oldest first */
    uint64_t in_flight;             /* bytes being pulled */
    uint64_t turn;
    int pumping, settling;
    struct hth_tally tally;
    struct hth_scratches scratches;
};

static inline int hth_fetch_runs(const struct hth_fetch *f)
{
    return f->phase < PHASE_ENDING;
}

static inline int hth_fetch_foreign(const struct hth_fetch *f)
{
    return f->object.kind == HTH_OBJECT_FOREIGN;
}

/* offer.c */
void hth_offer_message(
        struct hth_ctx *ctx, uint32_t from, uint16_t type, const struct hth_wire *wire);
void hth_offers_peer_down(struct hth_ctx *ctx, uint32_t node);
void hth_offers_peer_unreachable(struct hth_ctx *ctx, uint32_t node);
void hth_offers_forget(struct hth_ctx *ctx, const struct hth_save_id *save); /* NULL: all */
void hth_offers_tick(struct hth_ctx *ctx, uint64_t now);
uint64_t hth_offers_due_ms(const struct hth_ctx *ctx);
void hth_offers_close(struct hth_ctx *ctx);

/* writing.c */
/* The node does not use the grant any more. */
void hth_writing_unused(
        struct hth_ctx *ctx, uint32_t from, struct hth_save_id save, uint64_t object);
void hth_writings_forget(struct hth_ctx *ctx, const struct hth_save_id *save); /* NULL: all */
void hth_writings_peer_down(struct hth_ctx *ctx, uint32_t node);
void hth_writings_tick(struct hth_ctx *ctx, uint64_t now);
uint64_t hth_writings_due_ms(const struct hth_ctx *ctx);
void hth_writings_close(struct hth_ctx *ctx);

/* early.c */
void hth_early_message(struct hth_ctx *ctx, uint32_t from, const struct hth_wire *wire);
/* 1: pulls of the object are under way; the offer is taken when they have ended. */
int hth_early_delays(struct hth_ctx *ctx, uint32_t from, const struct hth_wire *offer);
/* The chunks that are here, the caller's to free, and *out, the slot in which they lie, as
 * take() gives one; NULL: there are none. */
struct hth_early_chunks *hth_early_take(struct hth_ctx *ctx, struct hth_save_id save,
        uint64_t object, uint64_t bytes, struct hth_slot **out);
/* 1: the next offer that has waited so, and may be taken now. */
int hth_early_offer(struct hth_ctx *ctx, uint32_t *out_from, struct hth_wire *out);
void hth_earlies_forget(struct hth_ctx *ctx, const struct hth_save_id *save); /* NULL: all */
void hth_earlies_pump(struct hth_ctx *ctx, uint64_t budget);
void hth_earlies_peer_down(struct hth_ctx *ctx, uint32_t node);
void hth_earlies_tick(struct hth_ctx *ctx, uint64_t now);
uint64_t hth_earlies_due_ms(const struct hth_ctx *ctx);
void hth_earlies_close(struct hth_ctx *ctx);

/* sum.c */
/* 0: SUM, or if `many` an answer in SLICES, follows, or another request has it on its way already.
 * HEARTH_ENOENT: no such slice is here. HEARTH_EBUSY. */
int hth_sum_begin(struct hth_ctx *ctx, uint32_t from, const struct hth_wire *wire, int many);
void hth_sums_join(struct hth_ctx *ctx); /* none is sent to a node of the old epoch */
void hth_sums_close(struct hth_ctx *ctx);

/* source.c */
struct source *hth_source_find(struct hth_fetch *f, uint32_t node);
struct source *hth_source_add(struct hth_fetch *f, uint32_t node); /* or there already; NULL */
/* As hth_source_add(); and a source that is out and may be asked again becomes NEW. NULL: no
 * memory, or too many sources. */
struct source *hth_source_join(struct hth_fetch *f, uint32_t node);
void hth_source_ask(struct hth_fetch *f, struct source *s);
/* Asks for the checksum of a slice: with the next SLICES_WANT, or at once by SUM_WANT. */
void hth_source_ask_slice(struct hth_fetch *f, struct source *s);
struct source *hth_source_first(struct hth_fetch *f); /* of a slice, asked alone; NULL: ask all */
void hth_source_late(struct hth_fetch *f, struct source *s);  /* no answer in time: asked again */
void hth_source_renew(struct hth_fetch *f, struct source *s); /* its grant is in use */
void hth_source_away(struct hth_fetch *f, struct source *s, int code);
void hth_source_out(struct hth_fetch *f, struct source *s, int code, const char *text);
void hth_source_bad(struct hth_fetch *f, struct source *s, uint32_t unit, const char *what);
/* 1: there is a source that is not out and has not given this unit wrongly; UNIT_NONE: that is not
 * out. */
int hth_sources_left(const struct hth_fetch *f, uint32_t bad_unit);

/* fetch_end.c */
void hth_fetch_end(struct hth_fetch *f, int code, const char *text); /* text NULL: f->err is set */
void hth_fetch_complete(struct hth_fetch *f);               /* the whole object is here and right */
void hth_fetch_keep_old(struct hth_fetch *f, int verified); /* the copy that was here stays */
/* removes the save if the fetch made it and left nothing in it */
void hth_fetch_tidy(const struct hth_fetch *f);
void hth_fetch_free(struct hth_fetch *f);
void hth_fetches_stop(struct hth_ctx *ctx, const struct hth_save_id *save, /* NULL: all */
        const char *why);
/* notifies of outcomes; may start and end other fetches */
void hth_fetches_settle(struct hth_ctx *ctx);
void hth_fetches_tick(struct hth_ctx *ctx, uint64_t now);
uint64_t hth_fetches_due_ms(const struct hth_ctx *ctx);
void hth_fetches_close(struct hth_ctx *ctx);

/* fetch.c */
int hth_fetch_new(struct hth_ctx *ctx, const struct hth_fetch_want *want, struct hth_fetch **out,
        struct hearth_error *err);          /* no source is asked yet */
void hth_fetches_room(struct hth_ctx *ctx); /* ranges that wait for room, oldest first */
/* The fetch of the whole object; NULL: none runs. */
struct hth_fetch *hth_fetch_find(struct hth_ctx *ctx, struct hth_save_id save, uint64_t object);

/* fetch_check.c. ..._run(): f->work, on a worker; ..._done(): the next step of the phase. */
void hth_fetch_table_here(struct hth_fetch *f);
void hth_check_table_run(struct hth_work *work);
void hth_check_table_done(struct hth_fetch *f);
void hth_check_reuse_run(struct hth_work *work);
void hth_check_reuse_done(struct hth_fetch *f);
void hth_fetch_data_here(struct hth_fetch *f); /* no chunk is left */
void hth_fetch_block_here(struct hth_fetch *f, struct source *s);

/* fetch_foreign.c */
int hth_foreign_from(struct hth_fetch *f, const struct source *s);   /* 1: s is the one to ask */
void hth_foreign_begin(struct hth_fetch *f, struct source *s);       /* a chunk is asked of s */
int hth_foreign_arrived(struct hth_fetch *f, const struct piece *p); /* 1: all, to be CHECKed */
void hth_foreign_digest_run(struct hth_work *work);
void hth_foreign_digest_done(struct hth_fetch *f);

/* slice.c */
/* 1: this range is a slice. */
int hth_slice_is(const struct hth_object *object, uint64_t off, uint64_t len);
void hth_slice_granted(struct hth_fetch *f, struct source *s); /* END has come: s->grant */
void hth_slice_sum(struct hth_fetch *f, struct source *s, const struct hth_wire *wire);

/* The holder's answer in SLICES. */
void hth_slice_said(struct hth_fetch *f, struct source *s, const struct hth_slice_said *said);

/* pieces.c */
/* The bytes of a slice have come in a message, with this checksum. */
void hth_piece_came(
        struct hth_fetch *f, struct source *s, const unsigned char *bytes, uint32_t sum);
void hth_pump(struct hth_ctx *ctx); /* pull what may be pulled now */

/* take.c */
void hth_fetch_message(
        struct hth_ctx *ctx, uint32_t from, uint16_t type, const struct hth_wire *wire);

#endif
