/* SPDX-License-Identifier: Apache-2.0 */
/* The link to the node's engine: requests, and what comes back. */
#ifndef HEARTH_CLIENT_LINK_H
#define HEARTH_CLIENT_LINK_H

#include "client/base/member.h"
#include "core/format/ranks.h"

#define HTH_REQUEST_MS 30000u
#define HTH_PROMPT_MS  2000u /* for what the engine answers at once */

#define HTH_NO_DESCRIPTOR \
    "no descriptor came: has this process too many open files (RLIMIT_NOFILE)?"

struct hth_asked {                 /* a request on its way; on its caller's stack or in its owner */
    uint64_t request, incarnation; /* of the connection it goes over */
    uint64_t token;
    uint32_t want; /* type of the answer */
    void *answer;  /* [answer_len] */
    size_t answer_len;
    char *text; /* [text_size] what follows the answer, NUL-terminated; NULL: not wanted */
    size_t text_size;
    int fd; /* of the answer, -1: none; the owner closes it */
    enum { HTH_ASKED_IDLE = 0, HTH_ASKED_SENT, HTH_ASKED_DONE, HTH_ASKED_LOST } state;
    int code; /* of HTH_LOCAL_ERROR, or 0 */
    struct hearth_error error;
    struct hth_asked *next;
};

struct hth_ask {
    void *msg; /* begins with struct hth_local_head, filled in here */
    size_t len;
    uint32_t type, want;
    uint64_t token;
    struct hearth_handle *handle; /* of its save: the token as it is by then; NULL: `token` */
    int fd;                       /* to send along, -1: none */
    int again;                    /* 1: may be sent again to a restarted engine */
    uint64_t incarnation;         /* send it on this connection only, which `token` is of; 0: any */
    uint64_t answered; /* out: the connection it was answered on, which the answer is of */
    void *answer;
    size_t answer_len;
    char *text; /* as in struct hth_asked; cut where it is longer */
    size_t text_size;
    int *out_fd;      /* NULL: no descriptor wanted */
    uint64_t wait_ms; /* 0: HTH_REQUEST_MS */
    const char *what; /* "begin step 40", for sentences */
};

int hth_link_open(struct hearth *h); /* without a connection; HEARTH_ENOMEM */
void hth_link_close(struct hearth *h);

/* With h->lock held: ensures a connection, and makes a new one if it was lost. */
int hth_connected_locked(struct hearth *h, uint64_t until, struct hearth_error *err);
/* With h->lock held: waits once, until something has come or `until` has passed. */
int hth_hear_one_locked(struct hearth *h, uint64_t until);
/* With h->lock held: handles the packets that have come without waiting for more, and sends as
 * hth_say_locked() does. */
void hth_hear_locked(struct hearth *h);
/* With h->lock held: sends the messages of the saves that are not sent yet, and gives slots and
 * leases back, as far as the socket accepts it. */
void hth_say_locked(struct hearth *h);
/* With h->lock held: which connection it is, counted from 1. */
uint64_t hth_incarnation_locked(const struct hearth *h);
/* With h->lock held: 1 if a request has been unanswered for longer than the engine needs. */
int hth_is_silent_locked(const struct hearth *h);
/* With h->lock held: gives the slot of a save (ABORT) or a lease (UNMAP) back, on this
 * connection. */
void hth_give_locked(struct hearth *h, uint32_t type, uint64_t id);
/* With h->lock held: takes the slot that was lent ahead, if it has so many bytes: 1, and the caller
 * owns *out_fd. */
int hth_ahead_take_locked(
        struct hearth *h, uint64_t bytes, struct hth_local_lent *out, int *out_fd);
/* With h->lock held: gives the slot that was lent ahead back to the engine. */
void hth_ahead_back_locked(struct hearth *h);

/* With h->lock held: counts that this rank begins `step` once more with these ranks (NULL: all),
 * and returns the attempt. 0: the engine must count, since only it knows the number, or must report
 * why there is none. */
uint32_t hth_count_locked(struct hearth *h, uint64_t step, const struct hth_ranks *ranks);
/* With h->lock held: the engine knows of this save, so its attempt counts as begun. */
void hth_counted_locked(struct hearth *h, struct hth_save_id save);

int hth_is_connected(const struct hearth *h);

/* From 1 until 0: this rank is about to join a new epoch. If an engine comes back meanwhile, the
 * rank does not make it join the epoch before, which another rank of the node may have ended
 * there. */
void hth_link_joins(struct hearth *h, int on);
/* For `ms` the rank starts no engine in place of one that ends: the engine comes back by itself. */
void hth_link_awaits(struct hearth *h, uint64_t ms);
/* The engine has made this epoch from the ranks' table. table_fd, which has the table, is kept to
 * join again with it. */
void hth_link_joined(struct hearth *h, const struct hth_local_joined *a, int table_fd);

/* Sends a request, and waits for the answer. */
int hth_ask(struct hearth *h, struct hth_ask *ask, struct hearth_error *err);
/* Sends a request and waits until the engine has done it, or has refused with a reason. `want` and
 * `answer` are filled in. */
int hth_tell(struct hearth *h, struct hth_ask *ask, struct hearth_error *err);

/* Sends a request on the present connection, if there is one and its socket accepts it. No caller
 * waits for the answer. */
void hth_post(struct hearth *h, struct hth_ask *tell);

/* Sends a message that has no answer, if the present connection accepts it now. */
void hth_hint_locked(struct hearth *h, struct hth_ask *hint);

/* Sends a request now; the caller waits later, and may have many on their way. *asked must stay in
 * place until it is waited for or dropped. */
int hth_ask_ahead(
        struct hearth *h, struct hth_ask *ask, struct hth_asked *asked, struct hearth_error *err);
/* The same for a request that may be left out: it is sent only on the present connection, if that
 * accepts it now. */
int hth_ask_try(struct hearth *h, struct hth_ask *ask, struct hth_asked *asked);
int hth_ask_wait(struct hearth *h, struct hth_asked *asked, uint64_t wait_ms, const char *what,
        struct hearth_error *err);
void hth_ask_drop(
        struct hearth *h, struct hth_asked *asked); /* the answer is not wanted any more */

#endif
