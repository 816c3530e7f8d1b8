/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An epoch's one recovery, as the ranks of this node see it: the first rank that asks starts it,
 * all that have asked get its result, and a rank that asks later gets the same.
 *
 *     RECOVER ──► no rank has asked yet: started ──► ended ──► RECOVERED, or why not
 *        └─ it runs: the answer waits                 └─ asked for again: answered at once
 */
#include "recovery.h"

#include "engine/state/client.h"
#include "engine/state/node_state.h"
#include "engine/state/reply.h"
#include "running.h"
#include "why.h"

#include <string.h>

void recovery_join(struct hth_node *n)
{
    why_over(n, "a new epoch began before this was decided");
    n->recovering = 0;
    n->recovered = 0;
}

static void recovery_answer(struct hth_node *n, struct client *c)
{
    const char *why = hth_recover_ruled_out(n->recover);
    size_t len = strnlen(why, HTH_LOCAL_RULED_OUT - 1);
    unsigned char packet[sizeof(struct hth_local_recovered) + HTH_LOCAL_RULED_OUT];
    struct hth_local_recovered answer = {
        .head = { (uint32_t)(sizeof(answer) + len), HTH_LOCAL_RECOVERED, c->recover_request, 0 },
        .save = hth_local_save_of(n->chosen),
        .info = hth_local_recovery_of(&n->info),
    };

    c->recover_request = 0;
    c->has_recovered = 1;
    memcpy(packet, &answer, sizeof(answer));
    memcpy(packet + sizeof(answer), why, len);
    reply_packet(n, c->id, packet, sizeof(answer) + len);
}

/* Reads the names that follow the fixed part. */
static void recovery_take_common(struct hth_node *n, const struct hth_local_recover *m)
{
    const char *name = (const char *)(m + 1);

    for (uint32_t i = 0; i < m->count; i++, name += HTH_COMMON_NAME)
        if (!hth_object_name_check(name, NULL))
            hth_recover_common(n->recover, name);
}

void recovery_ask(struct hth_node *n, struct client *c, const struct hth_local_recover *m)
{
    struct hearth_error err;

    if (!n->ctx.epoch || (c->helper && !n->recovered)) {
        reply_refusal(n, c->id, m->head.request, HEARTH_ESTATE,
                n->ctx.epoch ? "a helper does not recover before its rank has"
                             : "recover before the node has joined");
        return;
    }
    if (c->recover_request) {
        reply_refusal(n, c->id, m->head.request, HEARTH_ESTATE,
                "this rank's recovery is under way: it is answered once");
        return;
    }
    c->recover_request = m->head.request;
    recovery_take_common(n, m);
    if (n->recovered) {
        recovery_answer(n, c);
        return;
    }
    if (n->recovering)
        return;
    n->recovering = 1;
    why_recovery_begin(n);
    if (c->has_recovered)
        hth_recover_same_job(n->recover);
    if (m->accept_loss)
        hth_recover_accept_loss(n->recover);
    if (m->wants)
        hth_recover_want(n->recover, hth_local_save_to(m->save));
    if (hth_recover_start(
                n->recover, m->deadline_ms ? m->deadline_ms : n->ctx.opts.recover_ms, &err)) {
        n->recovering = 0;
        c->recover_request = 0;
        reply_error(n, c->id, m->head.request, &err);
    }
}

static void recovery_tell_all(struct hth_node *n, int code, const struct hearth_error *err)
{
    for (struct client *c = n->clients; c; c = c->next) {
        if (!c->recover_request)
            continue;
        if (code) {
            reply_error(n, c->id, c->recover_request, err);
            c->recover_request = 0;
        } else {
            recovery_answer(n, c);
        }
    }
}

void recovery_end(struct hth_node *n, int code, const struct hearth_error *err,
        struct hth_save_id save, const struct hearth_recovery *info)
{
    n->recovering = 0;
    if (code == HEARTH_OK) {
        n->recovered = 1;
        n->chosen = save;
        n->info = *info;
        n->info.join_ms = (uint32_t)n->join_ms;
        running_write(n);
        hth_commit_go(n->commit, save);
        n->lend_ahead_look = 1;
    } else if (!n->failure.code) {
        n->failure = *err;
    }
    why_recovery_end(n, code, code ? err->text : "", save);
    recovery_tell_all(n, code, err);
}

int recovery_resume(struct hth_node *n, struct hth_save_id chosen, struct hearth_error *err)
{
    int rc = hth_recover_resume(n->recover, err);

    if (rc)
        return rc;
    n->recovered = 1;
    n->chosen = chosen;
    n->info = (struct hearth_recovery){ .struct_size = sizeof(n->info),
        .step = n->chosen.step,
        .epoch = n->chosen.epoch,
        .now_epoch = n->epoch.epoch };
    hth_commit_go(
            n->commit, hth_keep_has(&n->ctx.keep, n->chosen) && n->ctx.keep.epoch == n->epoch.epoch
                               ? (struct hth_save_id){ 0 }
                               : n->chosen);
    hth_commit_resume(n->commit);
    return HEARTH_OK;
}
