/* SPDX-License-Identifier: Apache-2.0 */
/* The link to the node's engine: requests, and what comes back. */
#ifndef HEARTH_CLIENT_LINK_H
#define HEARTH_CLIENT_LINK_H

#include "client/base/member.h"
#include <sys/types.h>

#define HTH_REQUEST_MS 30000u

#define HTH_NO_DESCRIPTOR \
    "no descriptor came: has this process too many open files (RLIMIT_NOFILE)?"

struct hth_call {                  /* a request on its way; on its caller's stack or in its owner */
    uint64_t request, incarnation; /* of the connection it goes over */
    uint32_t want;                 /* type of the answer */
    void *answer;                  /* [answer_len] */
    size_t answer_len;
    int fd; /* of the answer, -1: none; the owner closes it */
    enum { HTH_CALL_IDLE = 0, HTH_CALL_SENT, HTH_CALL_DONE, HTH_CALL_LOST } state;
    int code; /* of HTH_LOCAL_ERROR, or 0 */
    struct hearth_error error;
    struct hth_call *next;
};

struct hth_ask {
    void *msg; /* begins with struct hth_local_head, filled in here */
    size_t len;
    uint32_t type, want;
    uint64_t token;
    int fd;               /* to send along, -1: none */
    int again;            /* 1: may be asked anew of a restarted engine */
    uint64_t incarnation; /* only of this connection, since `token` is its; 0: of any */
    uint64_t answered;    /* out: the connection it was answered on, and what it gave is of */
    void *answer;
    size_t answer_len;
    int *out_fd; /* NULL: no descriptor wanted */
    uint64_t wait_ms;
    const char *what; /* "begin step 40", for sentences */
};

struct hearth_handle {
    struct hearth *h;
    struct hearth_handle *next; /* h->handles */
    uint64_t token;
    uint64_t incarnation; /* of the connection that token belongs to */
    int committed;
    int copied;       /* COPIED was heard, which may be before or after COMPLETE */
    uint32_t objects; /* that the engine took over: sealed and common ones */
    struct hth_save_id save;
    struct hearth_status status;
};

struct hth_lease {          /* an object that stays as it is; taken again from a restarted engine */
    struct hth_lease *next; /* h->leases */
    struct hth_save_id save;
    uint64_t object;
    uint64_t id, number; /* the engine's, and ours */
    dev_t dev;
    ino_t ino;
};

/* With h->lock held: one round of waiting until something came or `until` passed. */
int hth_pump_locked(struct hearth *h, uint64_t until);
/* With h->lock held: a connection there is, made anew if it was lost. */
int hth_connected_locked(struct hearth *h, uint64_t until, struct hearth_error *err);
void hth_event_locked(struct hearth *h, const struct hth_local_event *event, size_t len);
/* With h->lock held, on a connection nobody else uses yet: attach, and take up what was ours. */
int hth_attach_locked(struct hearth *h, int fd, uint64_t until, struct hearth_error *err);
int hth_restore_locked(struct hearth *h, int fd, uint64_t until, struct hearth_error *err);
/* One request on that connection; events that come meanwhile are heard. */
int hth_exchange_locked(
        struct hearth *h, int fd, struct hth_ask *ask, uint64_t until, struct hearth_error *err);

int hth_ask(struct hearth *h, struct hth_ask *ask, struct hearth_error *err);
/* To ask for bytes of a save or an object; `what`, and a longer wait_ms, are the caller's to set. */
struct hth_ask hth_ask_bytes(enum hth_local_type type, struct hth_local_map *m,
        struct hth_local_bytes *answer, int *out_fd);
int hth_post(
        struct hearth *h, struct hth_ask *ask, struct hth_call *call, struct hearth_error *err);
int hth_collect(struct hearth *h, struct hth_call *call, uint64_t wait_ms, const char *what,
        struct hearth_error *err);
void hth_forget(struct hearth *h, struct hth_call *call); /* its answer is not wanted any more */

#endif
