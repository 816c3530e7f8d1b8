/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests of ranks. A packet that is not whole (request.c) is answered with an error and has no
 * other effect. Before ATTACH a client may only send WISH and questions. A save or loan that a
 * request names is looked for only among those of its connection.
 */
#include "serve.h"

#include "engine/job/elsewhere.h"
#include "engine/job/epoch.h"
#include "engine/job/fabric.h"
#include "engine/job/log_level.h"
#include "engine/job/meet.h"
#include "engine/job/question.h"
#include "engine/job/rank.h"
#include "engine/job/recovery.h"
#include "engine/job/upgrade.h"
#include "engine/reads/bad_copy.h"
#include "engine/reads/find.h"
#include "engine/reads/keep.h"
#include "engine/reads/read.h"
#include "engine/saves/begin.h"
#include "engine/saves/follow.h"
#include "engine/saves/handover.h"
#include "engine/saves/pass.h"
#include "engine/saves/regain.h"
#include "engine/state/client.h"
#include "engine/state/node_state.h"
#include "engine/state/reply.h"
#include "request.h"
#include "series.h"

/* Serves the requests of a rank about a save of its own. */
static void serve_save(struct hth_node *n, struct client *c, const struct hth_local_head *head,
        struct hth_content **content)
{
    const void *m = head;

    switch ((enum hth_local_type)head->type) {
    case HTH_LOCAL_BEGIN:
        begin_ask(n, c, m);
        break;
    case HTH_LOCAL_SET_STEP:
        begin_set_step(n, c, m);
        break;
    case HTH_LOCAL_SEAL:
        handover_seal(n, c, m);
        break;
    case HTH_LOCAL_WRITTEN:
        handover_written(n, c, m);
        break;
    case HTH_LOCAL_COMMON:
        handover_common(n, c, m, content);
        break;
    case HTH_LOCAL_COMMIT:
        handover_commit(n, c, m);
        break;
    case HTH_LOCAL_ABORT:
        handover_abort(n, c, m);
        break;
    case HTH_LOCAL_CANCEL:
        handover_cancel(n, c, m);
        break;
    case HTH_LOCAL_FORGET:
        begin_forget(n, c, head->token);
        handover_forget(n, c, head);
        break;
    case HTH_LOCAL_FOLLOW:
        follow_ask(n, c, m);
        break;
    case HTH_LOCAL_GIVE:
        pass_give(n, c, m);
        break;
    case HTH_LOCAL_TAKE:
        pass_take(n, c, m);
        break;
    case HTH_LOCAL_REGAIN:
        regain_ask(n, c, m);
        break;
    default: /* answers are not requests; request.c lets none through */
        break;
    }
}

static void serve_dispatch(struct hth_node *n, struct client *c, const struct hth_local_head *head,
        struct hth_content **content)
{
    const void *m = head;

    switch ((enum hth_local_type)head->type) {
    case HTH_LOCAL_ATTACH:
        rank_attach(n, c, m);
        break;
    case HTH_LOCAL_JOIN:
        epoch_join(n, c, m, *content);
        break;
    case HTH_LOCAL_MEET:
        meet_ask(n, c, m);
        break;
    case HTH_LOCAL_REFIT:
        fabric_refit(n, c, m);
        break;
    case HTH_LOCAL_RECOVER:
        recovery_ask(n, c, m);
        break;
    case HTH_LOCAL_FIND:
        find_ask(n, c, m);
        break;
    case HTH_LOCAL_MANIFEST:
        read_manifest(n, c, m);
        break;
    case HTH_LOCAL_MAP:
        read_map(n, c, m);
        break;
    case HTH_LOCAL_UNMAP:
        read_unmap(n, c, m);
        break;
    case HTH_LOCAL_RANGE:
        read_range(n, c, m);
        break;
    case HTH_LOCAL_COMMON_GET:
        read_common(n, c, m);
        break;
    case HTH_LOCAL_WISH:
        keep_ask(n, c, m);
        break;
    case HTH_LOCAL_KEPT:
        keep_list(n, c, head->request);
        break;
    case HTH_LOCAL_BAD:
        bad_copy_ask(n, c, m);
        break;
    case HTH_LOCAL_CLOSE:
        rank_close(n, c, m);
        break;
    default:
        serve_save(n, c, head, content);
        break;
    }
}

/* 1: the request is valid only in an epoch that has not failed. */
static int serve_needs_epoch(uint32_t type)
{
    return type == HTH_LOCAL_RECOVER || type == HTH_LOCAL_BEGIN || type == HTH_LOCAL_SET_STEP ||
           type == HTH_LOCAL_FIND;
}

void serve_request(struct hth_node *n, uint32_t client, const void *bytes, size_t len,
        struct hth_content **content)
{
    const struct hth_local_head *head = bytes;
    struct client *c;

    if (n->ends) /* the connection breaks at once, and the client asks the next engine */
        return;
    if (!request_is_whole(head, len)) {
        reply_refusal(n, client, len < sizeof(*head) ? 0 : head->request, HEARTH_EPROTO,
                "a request of an unknown type or length, or with a name that does not end: use one "
                "version of Hearth");
        return;
    }
    if (question_is(head->type)) {
        question_ask(n, client, head);
        return;
    }
    if (head->type == HTH_LOCAL_ELSEWHERE) {
        elsewhere_ask(n, client, bytes);
        return;
    }
    if (head->type == HTH_LOCAL_METRICS) {
        series_ask(n, client, head->request);
        return;
    }
    if (head->type == HTH_LOCAL_LOG_LEVEL) {
        log_level_ask(n, client, bytes);
        return;
    }
    if (head->type == HTH_LOCAL_UPGRADE) {
        upgrade_ask(n, client, head);
        return;
    }
    c = client_get(n, client);
    if (!c) {
        reply_refusal(n, client, head->request, HEARTH_ENOMEM, "no memory for a client");
        return;
    }
    if (n->over.code)
        reply_error(n, client, head->request, &n->over);
    else if (!c->attached && head->type != HTH_LOCAL_ATTACH && head->type != HTH_LOCAL_WISH)
        reply_refusal(n, client, head->request, HEARTH_ESTATE, "a request before attach");
    else if (n->failure.code && serve_needs_epoch(head->type))
        reply_error(n, client, head->request, &n->failure);
    else
        serve_dispatch(n, c, head, content);
}
