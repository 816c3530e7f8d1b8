/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A save that events are about, and what this rank has said of it and would have to say again to an
 * engine that comes in place of this node's: kept until the engine says that all of it is sealed.
 */
#ifndef HEARTH_CLIENT_KEPT_H
#define HEARTH_CLIENT_KEPT_H

#include "client/base/member.h"
#include "core/format/ranks.h"

struct hth_kept_object {
    uint64_t slot, generation, bytes; /* bytes: as begin asked for them */
    uint64_t data_len, items_len;     /* once it is sealed */
    uint32_t items;
    int sealed, summed;  /* summed: with the sums of its chunks */
    int said, seal_said; /* to the engine that there is now */
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
    uint64_t number;            /* ours, for answers that come when it may be gone */
    uint64_t token;
    uint64_t incarnation; /* of the connection that token belongs to */
    uint64_t step;        /* HEARTH_STEP_LATER: not known yet */
    int ahead;            /* its first slot was lent ahead, and BEGIN is to be said */
    int committed, commit_said;
    int cancelled, cancel_said;
    int follow_said;
    int closed;                     /* by its caller; it goes when nothing of it is kept */
    int copied;                     /* COPIED was heard, which may be before or after COMPLETE */
    struct hth_kept_object *object; /* [objects]; NULL: nothing is kept any more */
    uint32_t objects;
    struct hth_kept_common *commons;
    struct hth_save_id save;
    struct hth_ranks *ranks; /* that take part in it; NULL: all */
    struct hearth_status status;
};

/* A message that is to be said, and about what. */
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
    int *said; /* 1 when it is */
};

/* With h->lock held: */
struct hearth_handle *hth_kept_find_locked(
        struct hearth *h, uint64_t number); /* NULL: it is gone */
/* 1: *out comes next, on the connection there is. An engine is also sent everything that an earlier
 * engine knew. */
int hth_kept_next_locked(struct hearth *h, struct hth_unsaid *out);
/* The engine has all of it, or it has failed: nothing is said again. */
void hth_kept_end_locked(struct hearth_handle *handle);
/* With all that is kept of it; it is in no list any more. */
void hth_kept_free_locked(struct hearth_handle *handle);
/* The engine refused what was said. */
void hth_kept_refused_locked(
        struct hearth_handle *handle, uint32_t type, int code, const char *text);

/* One more object, in a slot of the connection that lent it. HEARTH_ENOMEM. */
int hth_kept_object_locked(struct hearth_handle *handle, const struct hth_kept_object *object);
/* common: taken over. */
void hth_kept_common_locked(struct hearth_handle *handle, struct hth_kept_common *common);

#endif
