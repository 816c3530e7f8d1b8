/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A save that goes on in another process of its rank. From GIVE to TAKE it belongs to no process,
 * but ends with the giver's connection; from TAKE on it is the taker's, as if that had begun it.
 *
 *     giver ──GIVE──► given, with a secret ──TAKE, secret──► taker
 *                       │ the giver's connection ends: aborted
 */
#include "pass.h"

#include "engine/state/client.h"
#include "engine/state/node_state.h"
#include "engine/state/reply.h"
#include "loan.h"

#include <string.h>

static int pass_give_loan(struct hth_node *n, struct loan *l, const struct hth_local_give *m,
        struct hearth_error *err)
{
    const struct hth_local_written *w = &m->written;

    if (!l)
        return loan_unknown(err);
    if (l->objects != 1 || !l->object[0].slot || l->committed)
        return hth_fail(
                err, HEARTH_ESTATE, 0, "a save is given with one object, and before it is sealed");
    if (w->data_len > w->room || w->items_len > w->room - w->data_len ||
            w->room > l->object[0].slot->capacity)
        return hth_fail(err, HEARTH_EINVAL, 0, "a save that is larger than what was lent for it");
    l->written = *w;
    for (int i = 0; i < 2; i++)
        l->secret[i] = hth_random_next(&n->ctx.random);
    l->given = 1;
    return HEARTH_OK;
}

void pass_give(struct hth_node *n, struct client *c, const struct hth_local_give *m)
{
    struct hth_local_given answer = { .head = { sizeof(answer), HTH_LOCAL_GIVEN, m->head.request,
                                              m->head.token } };
    struct loan *l = loan_find(n, c, m->head.token);
    struct hearth_error err;

    if (pass_give_loan(n, l, m, &err)) {
        reply_error(n, c->id, m->head.request, &err);
        return;
    }
    memcpy(answer.secret, l->secret, sizeof(answer.secret));
    reply_packet(n, c->id, &answer, sizeof(answer));
}

static struct loan *pass_given_to(
        struct hth_node *n, const struct client *c, const struct hth_local_take *m)
{
    struct loan *l = n->loans;

    while (l && (!l->given || l->token != m->head.token || l->rank != c->rank ||
                        memcmp(l->secret, m->secret, sizeof(l->secret)) != 0))
        l = l->next;
    return l;
}

void pass_take(struct hth_node *n, struct client *c, const struct hth_local_take *m)
{
    struct {
        struct hth_local_taken m;
        unsigned char runs[HTH_RANK_RUNS * HTH_RANK_RUN_BYTES];
    } packet = {
        .m = { .head = { sizeof(packet.m), HTH_LOCAL_TAKEN, m->head.request, m->head.token } }
    };
    struct hth_local_taken *answer = &packet.m;
    struct loan *l = pass_given_to(n, c, m);
    const struct hth_slot *slot;

    if (!l) {
        reply_refusal(n, c->id, m->head.request, HEARTH_ENOENT,
                "no save of this rank waits here for this ticket: it was taken, or went with the "
                "process that gave it");
        return;
    }
    slot = l->object[0].slot;
    l->given = 0;
    l->client = c->id;
    l->request = 0; /* a number of the process that gave it, which this one may use, too */
    answer->slot = slot->id;
    answer->generation = slot->generation;
    answer->capacity = slot->capacity;
    answer->written = l->written;
    answer->commons = l->commons;
    if (l->has_id)
        answer->save = hth_local_save_of(l->save);
    if (l->ranks) {
        answer->runs = l->ranks->runs;
        hth_ranks_encode(l->ranks, packet.runs);
        answer->head.length += (uint32_t)hth_ranks_bytes(l->ranks);
    }
    reply_packet_fd(n, c->id, answer, answer->head.length, slot->fd);
}
