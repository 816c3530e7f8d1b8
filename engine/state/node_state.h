/* SPDX-License-Identifier: Apache-2.0 */
/* One engine's state. A list belongs to the file that its comment names, and so do its records. */
#ifndef HEARTH_ENGINE_NODE_STATE_H
#define HEARTH_ENGINE_NODE_STATE_H

#include "core/base/auth.h"
#include "core/format/table.h"
#include "loader/recover.h"
#include "metrics.h"
#include "node.h"
#include "replication/commit/commit.h"
#include "replication/held/holdings.h"
#include "replication/held/seal.h"
#include "replication/transfer/transfer.h"
#include "replication/tree/blob.h"
#include "replication/tree/tree.h"

struct hth_node {
    struct hth_node_env env;
    struct hth_ctx ctx;
    struct hth_transport *transport;
    struct hth_commit *commit;
    struct hth_recover *recover;

    struct client *clients;      /* client.c */
    struct loan *loans;          /* loan.c */
    struct pending *pending;     /* begin.c */
    uint64_t begin_look_ms;      /* begin.c: when those are looked at again */
    struct find *finds;          /* find.c */
    struct bad_copy *bad_copies; /* bad_copy.c */
    struct wish *wishes;         /* keep.c */
    struct meeting *meetings;    /* meet.c, which keeps the next two too */
    struct hth_buf *table;       /* of the ranks, packed; NULL: none */
    uint32_t table_round;
    struct fetch *fetch;        /* fetch.c: of such a table; NULL: none */
    struct look *looks;         /* read.c */
    struct reading *readings;   /* read.c: ranges on their way */
    struct bringing *bringings; /* read.c: foreign objects on theirs */
    struct lease *leases;       /* read.c */
    struct answer *answers;     /* answer.c: whose bytes the workers copy */
    struct drop *drop;          /* drop.c */
    struct history *history;    /* why.c */
    struct metrics metrics;     /* why.c, and the log */
    uint64_t next_id;           /* of a loan, a lease */

    struct elsewhere *elsewhere; /* elsewhere.c */
    struct events *events;       /* recent.c: lines of the log */
    struct upgrade *upgrade;     /* upgrade.c; NULL: none is under way */

    /* The epoch: written by epoch.c. */
    struct hth_epoch epoch; /* ctx.epoch points here once there is one */
    struct hth_local_opts opts;
    struct hearth_error failure; /* why the epoch failed; code 0: it has not */
    struct hearth_error over;    /* why this engine ends; code 0: it does not */
    /* Coordinator: an epoch whose decisions were on a record that is gone or damaged. It is not
     * joined again. */
    uint64_t forgot_epoch, forgot_nonce;
    uint64_t join_ms; /* how long joining took */
    unsigned char
            first_row[HTH_GATHER]; /* epoch.c: of the table that was joined by; zeros: none was */

    uint64_t
            expects_ms; /* rank.c: until then, ranks of the engine before this one; HTH_NEVER: none */

    /* Its recovery: written by recovery.c. */
    int recovering; /* asked for, not ended */
    int recovered;  /* has ended well */
    struct hth_save_id chosen;
    struct hearth_recovery info;

    /* committed.c alone */
    struct hth_handed *committed; /* [committed_rows] on record */
    size_t committed_rows;
    struct hth_handed_set *committed_set; /* [committed_sets] as they were read */
    size_t committed_sets;

    /* lend_ahead.c alone */
    int lend_ahead_look; /* something has changed: a slot may be lent ahead now */
    int ends;            /* fabric.c, upgrade.c: see hth_node_ends() */
    int hands_over;      /* upgrade.c: see hth_node_hands_over() */

    /* reserve.c alone */
    int looked; /* whether there is room for keep + 1 saves, at the first begin of the epoch */
    struct hth_sizes *objects; /* [world] sizes from the gather; NULL: no rank has sent any */
    int not_foreseen;          /* there was no room for slots ahead: logged once an epoch */
    uint32_t places;       /* ranks whose objects were here, at most, since slots were given back */
    uint64_t places_map;   /* the map that they were counted by; UINT64_MAX: none yet */
    uint64_t give_back_ms; /* HTH_NEVER: nothing is given back */

    /* node.c alone */
    uint64_t made_ms; /* when the store's background work is due; HTH_NEVER: nothing was left */
    uint64_t rest_ms; /* when slots are unmapped next, if memory is short; HTH_NEVER: never */
};

#endif
