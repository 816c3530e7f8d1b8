/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Wishes of users for saves that are kept. The coordinator decides; this node sends a wish again
 * until the coordinator has answered:
 *
 *     WISH ──► kept, and sent ──WISH_RESULT──► OK, or why not
 *                 └── its time is up ──► ETIMEOUT; the wish may still take effect
 */
#include "keep.h"

#include "engine/state/client.h"
#include "engine/state/node_state.h"
#include "engine/state/reply.h"

#include <stdlib.h>

#define WAIT_MAX_MS 25000u /* less than a rank waits for any answer */

struct wish {
    struct wish *next;
    uint32_t client;
    uint64_t request, number, until_ms, again_ms;
    enum hth_wish wish;
    struct hth_save_id save;
};

void keep_list(struct hth_node *n, struct client *c, uint64_t request)
{
    const struct hth_keep *k = &n->ctx.keep;
    struct hth_local_kept_list a = { .head = { sizeof(a), HTH_LOCAL_KEPT_LIST, request, 0 },
        .count = k->saves,
        .copies = n->ctx.opts.copies };

    _Static_assert(sizeof(a.kept) / sizeof(a.kept[0]) == HTH_KEEP_MAX, "as the keep record");
    for (uint32_t i = 0; i < k->saves; i++) {
        enum hth_kept now = hth_commit_kept(n->commit, i);
        uint32_t flags = hth_keep_degraded(k, (int)i) ? HTH_KEPT_IS_DEGRADED : 0;

        flags |= hth_keep_pinned(k, (int)i) ? HTH_KEPT_IS_PINNED : 0;
        flags |= hth_keep_is_bad(k, k->save[i]) ? HTH_KEPT_IS_BAD : 0;
        flags |= now != HTH_KEPT_UNSURE ? HTH_KEPT_IS_CONFIRMED : 0;
        a.kept[i] =
                (struct hth_local_kept){ hth_local_save_of(k->save[i]), k->since_ms[i], flags, 0 };
    }
    reply_packet(n, c->id, &a, sizeof(a));
}

void keep_ask(struct hth_node *n, struct client *c, const struct hth_local_wish *m)
{
    uint64_t now_ms = hth_now_ms(&n->ctx.clock);
    struct wish *w;

    if (!n->ctx.epoch || !n->recovered) {
        reply_refusal(n, c->id, m->head.request, HEARTH_ESTATE,
                "no job runs here that has recovered: only a running job decides what it keeps");
        return;
    }
    w = calloc(1, sizeof(*w));
    if (!w) {
        reply_refusal(n, c->id, m->head.request, HEARTH_ENOMEM, "no memory for a wish");
        return;
    }
    w->client = c->id;
    w->request = m->head.request;
    w->number = hth_random_next(&n->ctx.random); /* no other engine of this node has had it */
    w->until_ms = now_ms + (m->wait_ms && m->wait_ms < WAIT_MAX_MS ? m->wait_ms : WAIT_MAX_MS);
    w->again_ms = now_ms;
    w->wish = (enum hth_wish)m->wish;
    w->save = hth_local_save_to(m->save);
    w->next = n->wishes;
    n->wishes = w; /* the next tick, which comes at once, sends it */
}

static void wish_free(struct wish **at)
{
    struct wish *w = *at;

    *at = w->next;
    free(w);
}

void keep_wish_result(struct hth_node *n, uint64_t number, int code, const char *text)
{
    struct wish **at = &n->wishes;

    while (*at && (*at)->number != number)
        at = &(*at)->next;
    if (!*at)
        return;
    if (code)
        reply_refusal(n, (*at)->client, (*at)->request, code, text);
    else
        reply_ok(n, (*at)->client, (*at)->request);
    wish_free(at);
}

static void wish_too_late(struct hth_node *n, const struct wish *w)
{
    struct hearth_error err;

    hth_fail(&err, HEARTH_ETIMEOUT, 0,
            "the coordinator, node %s, has not answered: `hearth keep` shows what came of it",
            n->epoch.nodes ? n->epoch.member[0].node : "?");
    reply_error(n, w->client, w->request, &err);
}

void keep_tick(struct hth_node *n, uint64_t now_ms)
{
    struct wish **at = &n->wishes;

    while (*at) {
        struct wish *w = *at;

        if (now_ms >= w->until_ms || !n->recovered) {
            wish_too_late(n, w);
            wish_free(at);
            continue;
        }
        at = &w->next;
        if (now_ms < w->again_ms)
            continue;
        w->again_ms = now_ms + n->ctx.opts.retry_ms;
        hth_commit_wish(n->commit, w->number, w->wish, w->save);
    }
}

uint64_t keep_due_ms(const struct hth_node *n)
{
    uint64_t due_ms = HTH_NEVER;

    for (const struct wish *w = n->wishes; w; w = w->next) {
        due_ms = w->again_ms < due_ms ? w->again_ms : due_ms;
        due_ms = w->until_ms < due_ms ? w->until_ms : due_ms;
    }
    return due_ms;
}

void keep_gone(struct hth_node *n, uint32_t client)
{
    struct wish **at = &n->wishes;

    while (*at) {
        if ((*at)->client == client)
            wish_free(at);
        else
            at = &(*at)->next;
    }
}

void keep_close(struct hth_node *n)
{
    while (n->wishes)
        wish_free(&n->wishes);
}
