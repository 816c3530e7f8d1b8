/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A save that events are about, and the messages about it that this rank has sent and would have to
 * send again to an engine in place of this node's. They are kept until the engine reports that all
 * of it is sealed.
 */
#ifndef HEARTH_CLIENT_KEPT_H
#define HEARTH_CLIENT_KEPT_H

#include "client/base/member.h"
#include "core/format/ranks.h"

struct hth_work;

struct hth_kept_object {
    uint64_t slot, generation, bytes; /* bytes: as begin asked for them */
    uint64_t data_len, items_len;     /* once it is sealed */
    uint32_t items;
    int sealed, summed;  /* summed: with the sums of its chunks */
    int said, seal_said; /* sent to the present engine */
    char name[HTH_NAME_MAX + 1];
};

struct hth_kept_common {
    struct hth_kept_common *next;
    uint64_t len;
    int fd, said;
    char name[HTH_NAME_MAX + 1];
};

/* Under h->lock. */
struct hearth_handle {
    struct hearth *h;
    struct hearth_handle *next; /* of those that events are about */
    uint64_t number;            /* ours, to find it for an answer: it may be freed by then */
    uint64_t token;
    uint64_t incarnation; /* of the connection that token belongs to */
    uint64_t step;        /* HEARTH_STEP_LATER: not known yet */
    int ahead;            /* its first slot was lent ahead, and BEGIN is to be sent */
    int committed, commit_said;
    int cancelled, cancel_said;
    int follow_said;
    int copying; /* bytes come from GPUs still: SEAL, COMMIT and what ends the save wait for them */
    int aborted; /* by its caller, while bytes came */
    struct hth_work *work;          /* these copies; NULL: none */
    uint32_t pinned;                /* how they came, as SEAL has it; 0: none came */
    int closed;                     /* by its caller; freed once nothing of it is kept */
    int copied;                     /* COPIED has come, which may be before or after COMPLETE */
    struct hth_kept_object *object; /* [objects]; NULL: nothing is kept any more */
    uint32_t objects;
    struct hth_kept_common *commons;
    struct hth_save_id save;
    struct hth_ranks *ranks; /* that take part in it; NULL: all */
    struct hearth_status status;
};

/* A message that is to be sent, and what it is about. */
struct hth_unsaid {
    union {
        struct hth_local_head head;
        struct hth_local_begin begin;
        struct hth_local_regain regain;
        struct hth_local_seal seal;
        struct hth_local_common common;
        struct hth_local_follow follow;
        unsigned char room[sizeof(struct hth_local_regain) + HTH_RANK_RUNS * HTH_RANK_RUN_BYTES];
    } m;
    size_t len;
    uint32_t type;
    uint64_t token, number;
    int fd;    /* borrowed; -1: none */
    int *said; /* set to 1 when it is sent */
};

/* With h->lock held: */
struct hearth_handle *hth_kept_find_locked(
        struct hearth *h, uint64_t number); /* NULL: it is gone */
/* 1: *out is the next message for the present connection. A new engine is also sent everything that
 * an earlier engine knew. */
int hth_kept_next_locked(struct hearth *h, struct hth_unsaid *out);
/* The engine has all of it, or the save has failed: nothing is sent again. */
void hth_kept_end_locked(struct hearth_handle *handle);
/* Frees the handle with all that is kept of it; it is in no list any more. */
void hth_kept_free_locked(struct hearth_handle *handle);
/* The engine has refused a message about this save. */
void hth_kept_refused_locked(
        struct hearth_handle *handle, uint32_t type, int code, const char *text);

/* Adds an object, in a slot of the connection that lent it. HEARTH_ENOMEM. */
int hth_kept_object_locked(struct hearth_handle *handle, const struct hth_kept_object *object);
/* common: taken over. */
void hth_kept_common_locked(struct hearth_handle *handle, struct hth_kept_common *common);

#endif
