/* SPDX-License-Identifier: Apache-2.0 */
/* What node.c (wiring), serve.c (requests), lend.c (slots in ranks' hands) and epoch.c (joining)
 * share of one engine. */
/* For this folder alone. */
#ifndef HEARTH_ENGINE_NODE_STATE_H
#define HEARTH_ENGINE_NODE_STATE_H

#include "core/base/auth.h"
#include "core/format/table.h"
#include "loader/recover.h"
#include "node.h"
#include "replication/commit/commit.h"
#include "replication/held/holdings.h"
#include "replication/held/seal.h"
#include "replication/transfer/transfer.h"
#include "replication/tree/blob.h"
#include "replication/tree/tree.h"

#define LOAN_OBJECTS 64u
#define LINGER_S     86400u

struct client {
    uint32_t id;
    struct client *next;
    uint32_t rank, world, pid; /* as ATTACH said */
    int attached, helper;
    uint64_t epoch, nonce;    /* that its rank has joined; 0: none */
    uint64_t recover_request; /* waits for the end of recovery; 0: no */
};

/* One object of a loan: its slot is in a rank's hands until SEAL. */
struct lent {
    struct hth_slot *slot; /* NULL: handed over */
    uint64_t asked;        /* bytes, by BEGIN */
    char name[HTH_NAME_MAX + 1];
};

/* A save as one rank of this node writes it: from BEGIN to COMMIT, and then followed. */
struct loan {
    struct loan *next;
    uint64_t token;
    uint32_t client;
    uint32_t rank;
    int has_id; /* its step is known */
    int dead;   /* its epoch is over, or it failed: what is handed over goes back */
    int committed;
    int given; /* waits for another process of the rank, who knows the secret */
    uint64_t secret[2];
    struct hth_local_written written; /* by the giver */
    uint32_t commons;
    struct hth_save_id save;
    struct lent object[LOAN_OBJECTS];
    uint32_t objects;
    uint64_t bytes;   /* handed over */
    uint64_t look_ms; /* progress.c: when to look again, what was said last */
    uint64_t copied;
    uint32_t said;
};

struct lease { /* a sealed object in a reader's hands */
    struct lease *next;
    uint64_t id;
    uint32_t client;
    struct hth_slot *slot;
};

union start {
    struct hth_local_head head;
    struct hth_local_begin begin;
    struct hth_local_set_step set_step;
};

struct pending { /* a BEGIN or SET_STEP that waits for room */
    struct pending *next;
    uint32_t client;
    uint64_t until_ms;
    union start start;
};

struct reading { /* a range on its way from a peer; ends by itself */
    struct hth_node *node;
    uint32_t client;
    uint64_t request;
    uint64_t len;
};

struct drop { /* of the whole job; drop.c */
    uint32_t state;
    uint8_t *rank;  /* [world] ours that have dropped */
    uint32_t ranks; /* how many */
    uint64_t due_ms, wait_ms, quiet_ms;
    int over;     /* nothing is left to say */
    int answered; /* no record of it is needed here any more */
    int finished; /* another engine's drop, of which nothing is left */
    /* The coordinator's. */
    uint8_t *from; /* [nodes] the furthest state heard from each */
    int decided;
    uint64_t enough_ms; /* who has not answered by then is not waited for */
};

struct hth_node {
    struct hth_node_env env;
    struct hth_ctx ctx;
    struct hth_epoch epoch; /* ctx.epoch points here once there is one */
    struct hth_transport *transport;
    struct hth_commit *commit;
    struct hth_recover *recover;
    struct client *clients;
    struct loan *loans;
    struct lease *leases;
    struct look *looks; /* of read.c */
    struct find *finds; /* of find.c */
    struct pending *pending;
    uint64_t next_id; /* tokens, leases */
    struct hth_local_opts opts;
    uint64_t *shard_bytes;       /* [world] as the gather said */
    int recovering;              /* asked for, not ended */
    int recovered;               /* this epoch's recovery has ended well */
    struct hearth_error failure; /* why this epoch came to nothing; code 0: it has not */
    struct hth_save_id chosen;
    struct hearth_recovery info;
    uint64_t join_ms; /* how long joining took */
    struct drop drop;
    uint64_t made_ms; /* when the store wants to be worked on again; HTH_NEVER: nothing was left */
    int not_foreseen; /* there was no room for slots ahead: said once an epoch */
};

/* serve.c */
void serve_event(struct hth_node *n, const struct loan *l, enum hearth_level level, int degraded,
        int code, const char *text);
void serve_recovered(struct hth_node *n, int code, const struct hearth_error *err);
void reply_error(
        struct hth_node *n, uint32_t client, uint64_t request, const struct hearth_error *err);
void reply_ok(struct hth_node *n, uint32_t client, uint64_t request);
void reply_bytes(
        struct hth_node *n, uint32_t client, uint64_t request, const void *bytes, size_t len);
void reply_refusal(
        struct hth_node *n, uint32_t client, uint64_t request, int code, const char *text);
struct client *client_find(struct hth_node *n, uint32_t id);

/* packet.c */
int packet_is_whole(const struct hth_local_head *head, size_t len);

/* rank.c */
void rank_attach(struct hth_node *n, struct client *c, const struct hth_local_attach *m);
/* Does it join as what it is? Errors: HEARTH_EINVAL, HEARTH_ESTATE. */
int rank_may_join(const struct client *c, const struct hth_local_join *m, struct hearth_error *err);
void rank_close(struct hth_node *n, struct client *c, const struct hth_local_close *m);

/* read.c */
void read_manifest(struct hth_node *n, struct client *c, const struct hth_local_map *m);
void read_map(struct hth_node *n, struct client *c, const struct hth_local_map *m);
void read_unmap(struct hth_node *n, struct client *c, const struct hth_local_unmap *m);
void read_range(struct hth_node *n, struct client *c, const struct hth_local_map *m);
void read_common(struct hth_node *n, struct client *c, const struct hth_local_common *m);
void read_gone(struct hth_node *n, uint32_t client);
void read_close(struct hth_node *n);

/* find.c */
void read_find(struct hth_node *n, struct client *c, const struct hth_local_find *m);
void find_tick(struct hth_node *n, uint64_t now_ms);
uint64_t find_due_ms(const struct hth_node *n);
void find_gone(struct hth_node *n, uint32_t client);
void find_close(struct hth_node *n);

/* lend.c */
void lend_begin(struct hth_node *n, struct client *c, const struct hth_local_begin *m);
void lend_set_step(struct hth_node *n, struct client *c, const struct hth_local_set_step *m);
/* Slots for saves to come, as large as those of this one: where ranks have not said their sizes. */
void lend_foresee(struct hth_node *n, struct hth_save_id save);
void lend_seal(struct hth_node *n, struct client *c, const struct hth_local_seal *m);
/* Takes *content over where it needs it, and sets it to NULL. */
void lend_common(struct hth_node *n, struct client *c, const struct hth_local_common *m,
        struct hth_content **content);
void lend_commit(struct hth_node *n, struct client *c, const struct hth_local_head *m);
void lend_abort(struct hth_node *n, struct client *c, const struct hth_local_head *m);
void lend_cancel(struct hth_node *n, struct client *c, const struct hth_local_head *m);
void lend_follow(struct hth_node *n, struct client *c, const struct hth_local_follow *m);
void lend_gone(struct hth_node *n, uint32_t client);
void lend_tick(struct hth_node *n, uint64_t now_ms);
uint64_t lend_due_ms(const struct hth_node *n);
void lend_new_epoch(
        struct hth_node *n); /* what is being written belongs to an epoch that is over */
void lend_close(struct hth_node *n);
struct loan *loan_find(struct hth_node *n, const struct client *c, uint64_t token);
struct loan *loan_open(struct hth_node *n, const struct client *c, uint64_t token);
int no_such_loan(struct hearth_error *err);
void answer_save_id(
        struct hth_node *n, const struct client *c, const struct loan *l, uint64_t request);
void loan_free(struct hth_node *n, struct loan *l);

/* pass.c */
void lend_give(struct hth_node *n, struct client *c, const struct hth_local_give *m);
void lend_take(struct hth_node *n, struct client *c, const struct hth_local_take *m);

/* progress.c */
void progress_tick(struct hth_node *n, uint64_t now_ms);
uint64_t progress_due_ms(const struct hth_node *n);

/* drop.c */
void drop_join(struct hth_node *n); /* a new epoch: nobody has dropped anything */
void drop_close(struct hth_node *n, const struct client *c); /* a rank has closed with drop */
void drop_deliver(
        struct hth_node *n, uint32_t origin, uint16_t kind, const unsigned char *bytes, size_t len);
void drop_resume(struct hth_node *n);       /* what an engine before us began */
int drop_is_done(const struct hth_node *n); /* nothing is held here any more */
void drop_tick(struct hth_node *n);
uint64_t drop_due_ms(const struct hth_node *n);

/* epoch.c */
void epoch_join(struct hth_node *n, struct client *c, const struct hth_local_join *m,
        const void *attach, size_t attach_len);
void epoch_write_running(struct hth_node *n); /* recovery has ended well */
int epoch_resume(
        struct hth_node *n, struct hearth_error *err); /* after a restart under living ranks */

#endif
