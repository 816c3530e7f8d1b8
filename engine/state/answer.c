/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An answer with bytes:
 *
 *     bytes ─► at most ANSWER_HERE: copied at once ─────────────────────┐
 *          '─► more: a worker copies a piece, and again ─► all copied ──┴─► BYTES, let go
 *                             │ no rank waits any more
 *                             '─► let go
 *
 * The engine's thread also pings the peers. The pings would be late if it copied an object.
 */
#include "answer.h"

#include "node_state.h"
#include "replication/held/sweep.h"
#include "reply.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct answer {
    struct answer *next;
    struct hth_node *node;
    struct asker *askers;
    struct answer_bytes bytes;
    struct hth_sweep sweep;
    int fd;   /* -1: none yet */
    int why;  /* errno, where no descriptor could be made or filled */
    int vain; /* no client waits for it any more */
};

/* ---- Who waits ------------------------------------------------------------------------------- */

int asker_add(struct asker **list, uint32_t client, uint64_t request, struct hearth_error *err)
{
    struct asker *a = malloc(sizeof(*a));

    if (!a)
        return hth_fail(err, HEARTH_ENOMEM, 0, "no memory for a request");
    *a = (struct asker){ *list, client, request };
    *list = a;
    return HEARTH_OK;
}

void askers_free(struct asker *list)
{
    while (list) {
        struct asker *next = list->next;

        free(list);
        list = next;
    }
}

void askers_refuse(struct hth_node *n, struct asker *list, const struct hearth_error *err)
{
    for (const struct asker *a = list; a; a = a->next)
        reply_error(n, a->client, a->request, err);
    askers_free(list);
}

void askers_forget(struct asker **list, uint32_t client)
{
    while (*list) {
        struct asker *a = *list;

        if (a->client != client) {
            list = &a->next;
            continue;
        }
        *list = a->next;
        free(a);
    }
}

/* ---- One answer ------------------------------------------------------------------------------ */

static void answer_free(struct answer *a)
{
    struct answer **at = &a->node->answers;

    while (*at != a)
        at = &(*at)->next;
    *at = a->next;
    if (a->bytes.let_go)
        a->bytes.let_go(a->node, a->bytes.what);
    if (a->fd >= 0)
        close(a->fd);
    askers_free(a->askers);
    free(a);
}

static void answer_say(const struct answer *a)
{
    for (const struct asker *to = a->askers; to; to = to->next) {
        struct hth_local_bytes said = { .head = { sizeof(said), HTH_LOCAL_BYTES, to->request, 0 },
            .len = a->bytes.len,
            .sum = a->bytes.sum,
            .summed = a->bytes.summed };

        reply_packet_fd(a->node, to->client, &said, sizeof(said), a->fd);
    }
}

static int answer_piece(struct hth_sweep *sweep, uint64_t off, uint64_t len)
{
    struct answer *a = hth_owner_of(struct answer, sweep, sweep);
    const struct hth_node_env *env = &a->node->env;

    if (env->attach && env->attach(env->reply_self, &a->fd, (const char *)a->bytes.at + off, off,
                               len, off + len == a->bytes.len))
        a->why = errno;
    return a->why;
}

static void answer_done(struct hth_sweep *sweep)
{
    struct answer *a = hth_owner_of(struct answer, sweep, sweep);
    struct hearth_error err;

    if (a->why) {
        hth_fail(&err, HEARTH_EIO, a->why,
                "the engine cannot make a descriptor for its answer of %zu bytes: %s", a->bytes.len,
                strerrordesc_np(a->why));
    }
    if (a->why || (a->bytes.check && a->bytes.check(a->node, a->bytes.what, &err))) {
        askers_refuse(a->node, a->askers, &err);
        a->askers = NULL;
    }
    answer_say(a);
    answer_free(a);
}

void answer_bytes(struct hth_node *n, struct asker *askers, const struct answer_bytes *bytes)
{
    struct answer *a = malloc(sizeof(*a));
    struct hearth_error err;

    if (!a) {
        hth_fail(&err, HEARTH_ENOMEM, 0, "no memory for an answer");
        askers_refuse(n, askers, &err);
        if (bytes->let_go)
            bytes->let_go(n, bytes->what);
        return;
    }
    *a = (struct answer){ .next = n->answers, n, askers, *bytes, .fd = -1, .vain = !askers };
    a->sweep = (struct hth_sweep){
        .ctx = &n->ctx, .len = bytes->len, .piece = answer_piece, .done = answer_done
    };
    a->sweep.vain = &a->vain;
    n->answers = a;
    if (bytes->len > ANSWER_HERE) {
        hth_sweep_start(&a->sweep);
    } else {
        answer_piece(&a->sweep, 0, bytes->len);
        answer_done(&a->sweep);
    }
}

void answer_bytes_to(
        struct hth_node *n, uint32_t client, uint64_t request, const struct answer_bytes *bytes)
{
    struct asker *asker = NULL;
    struct hearth_error err;

    if (!asker_add(&asker, client, request, &err)) {
        answer_bytes(n, asker, bytes);
        return;
    }
    reply_error(n, client, request, &err);
    if (bytes->let_go)
        bytes->let_go(n, bytes->what);
}

void answer_gone(struct hth_node *n, uint32_t client)
{
    for (struct answer *a = n->answers; a; a = a->next) {
        askers_forget(&a->askers, client);
        a->vain = !a->askers;
    }
}

void answer_close(struct hth_node *n)
{
    while (n->answers)
        answer_free(n->answers);
}
