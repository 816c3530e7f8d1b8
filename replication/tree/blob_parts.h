/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The structs and functions that the files of the blobs share: blob_list.c is the list of them,
 * blob_give.c the nodes that get them from this one, blob_pull.c how one comes here, blob.c the
 * front. Each calls those before it.
 */
/* For this folder alone. */
#ifndef REPLICATION_BLOB_PARTS_H
#define REPLICATION_BLOB_PARTS_H

#include "replication/held/region.h"
#include "replication/held/sweep.h"

#include "blob.h"
#include "core/base/auth.h"
#include "core/format/record.h"
#include "replication/held/holdings.h"

#define BLOB_MAX      (UINT64_C(64) << 20) /* bytes of one in memory */
#define ID_LEN        48u

/* Limits of unsolicited blobs from ancestors in the tree: how many, and their bytes together. */
#define UNASKED_MAX   1024u
#define UNASKED_BYTES (UINT64_C(1) << 30)

enum state { ASKING, MAKING, PULLING, CHECKING, HERE };

/* A node that should get the blob. */
struct reader {
    uint32_t node;
    int done, granted;
    struct hth_grant grant;
    uint64_t due_ms;
    struct reader *next;
};

struct blob;

/* The bytes are registered (code 0), or cannot be. */
typedef void hth_blob_ready_fn(struct blob *b, int code, const struct hearth_error *err);

struct blob {
    struct hth_blob_id id;
    enum state state;
    int give_on;   /* to this node's children */
    int unasked;   /* an ancestor offered it unsolicited */
    int forgotten; /* freed when pull, work or registration ends */
    int busy;      /* one of them is under way */
    unsigned char *bytes;
    struct hth_raw *raw; /* a raw object: bytes are its ... */
    struct hth_buf *buf; /* ... else these */
    uint64_t len, at;    /* at: pulled so far */
    unsigned char digest[HTH_DIGEST];
    unsigned char found[HTH_DIGEST];
    struct hth_reg *reg;      /* of bytes; NULL: not registered */
    struct hth_reg_wait wait; /* for it, then: */
    hth_blob_ready_fn *ready;
    struct hth_region *region; /* NULL: not yet */
    uint32_t source;           /* the node that is asked; HTH_NODE_NONE: the parent */
    uint32_t puller;           /* the node that it is pulled from */
    uint32_t avoid;            /* a pull from it stalled ... */
    uint64_t avoid_ms;         /* ... and until then other nodes are asked; 0: no pull stalled */
    struct hth_grant grant;
    uint64_t due_ms; /* ASKING, PULLING: try again */
    struct hth_session_pull pull;
    struct hth_sweep sweep; /* MAKING, CHECKING */
    struct hth_digesting sum;
    struct hearth_error err; /* of MAKING */
    struct reader *readers;
    struct hth_ctx *ctx;
    struct blob *next;
};

struct hth_blobs {
    struct hth_blob_events events;
    uint32_t count;
    uint64_t family; /* hth_blobs_family() when all blobs were last offered */
    struct blob *first;
    struct blob *dying; /* forgotten, under a pull or a work */
};

/* blob_list.c */
struct blob *hth_blob_look(struct hth_ctx *ctx, const struct hth_blob_id *id); /* NULL: none */
struct blob *hth_blob_get(struct hth_ctx *ctx, const struct hth_blob_id *id);
void hth_blob_bury(struct blob *b); /* forgotten; freed at once, or when it is no longer busy */
void hth_blob_free(struct blob *b); /* forgotten, and no longer busy */
void hth_blob_list_free(struct blob **list); /* at the end: no grant is left to be revoked */
void hth_blob_failed(struct blob *b, const struct hearth_error *err); /* last: may forget it */
/* 0: its bytes are registered, or it has none. HEARTH_EBUSY: a worker registers them, then `ready`
 * runs. */
int hth_blob_register(struct blob *b, hth_blob_ready_fn *ready);
int hth_blob_empty(struct blob *b); /* frees its bytes; HEARTH_EBUSY: they are in use */
/* The object that the manifest of the blob's save names; NULL: the manifest is not here, or does
 * not name it. */
const struct hth_object *hth_blob_named(struct hth_ctx *ctx, const struct hth_blob_id *id);
struct hth_held *hth_blob_held(struct hth_ctx *ctx, const struct hth_blob_id *id); /* SEALED */
void hth_blob_id_write(struct hth_writer *w, const struct hth_blob_id *id);
struct hth_blob_id hth_blob_id_read(struct hth_reader *r);
void hth_blob_say(struct hth_ctx *ctx, const struct hth_blob_id *id, uint32_t node, uint16_t type);

/* blob_give.c */
void hth_blob_revoke(struct blob *b, struct reader *r);
void hth_blob_readers_free(struct blob *b);
void hth_blob_offer(struct blob *b, struct reader *r);
void hth_blob_serve_children(struct blob *b);
uint64_t hth_blobs_family(const struct hth_ctx *ctx);
void hth_blob_wanted(struct hth_ctx *ctx, uint32_t from, const struct hth_blob_id *id);
void hth_blob_taken(struct hth_ctx *ctx, uint32_t from, const struct hth_blob_id *id);

/* blob_pull.c */
void hth_blob_ask(struct blob *b);
void hth_blob_step(struct blob *b); /* PULLING: the next part, or the check of the whole */
void hth_blob_offered(struct hth_ctx *ctx, uint32_t from, struct hth_reader *r);

#endif
