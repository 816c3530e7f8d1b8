/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Answers with bytes of this node: in a descriptor, which is filled by the workers where it takes
 * long.
 */
#ifndef HEARTH_ENGINE_ANSWER_H
#define HEARTH_ENGINE_ANSWER_H

#include <hearth/error.h>
#include <stddef.h>
#include <stdint.h>

struct hth_node;

#define ANSWER_HERE ((size_t)1 << 20) /* bytes: as many are copied on the engine's thread */

struct asker { /* a request that waits for bytes */
    struct asker *next;
    uint32_t client;
    uint64_t request;
};

/* HEARTH_ENOMEM */
int asker_add(struct asker **list, uint32_t client, uint64_t request, struct hearth_error *err);
void askers_free(struct asker *list);
void askers_forget(struct asker **list, uint32_t client); /* which has gone */
/* Sends err to each asker, and frees the list. */
void askers_refuse(struct hth_node *n, struct asker *list, const struct hearth_error *err);

/* Bytes that may not change until let_go(what) runs, on the engine's thread: when they are copied,
 * or no asker waits for them any more. */
struct answer_bytes {
    const void *at;
    size_t len;
    void (*let_go)(struct hth_node *n, void *what); /* NULL: nothing */
    void *what;
    /* Called when they are copied. 0: the bytes were right all the time. Otherwise the askers get
     * `err`. NULL: no check. */
    int (*check)(struct hth_node *n, void *what, struct hearth_error *err);
    uint32_t sum, summed; /* of struct hth_local_bytes */
};

/* All askers get one descriptor; the list is taken over. At most ANSWER_HERE bytes are there,
 * and let go of, when this returns. */
void answer_bytes(struct hth_node *n, struct asker *askers, const struct answer_bytes *bytes);
void answer_bytes_to(
        struct hth_node *n, uint32_t client, uint64_t request, const struct answer_bytes *bytes);

void answer_gone(struct hth_node *n, uint32_t client);
void answer_close(struct hth_node *n); /* the workers have ended */

#endif
