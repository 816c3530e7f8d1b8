/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests of ranks. A packet that is not whole (packet.c) is answered with an error and does
 * nothing else; what may be asked for before ATTACH is STATUS alone, and what a request names is
 * looked for among what belongs to its connection.
 */
#include "begin.h"
#include "client.h"
#include "follow.h"
#include "node_state.h"
#include "reply.h"

#include "core/base/bytes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- RECOVER --------------------------------------------------------------------------------- */

static void answer_recovered(struct hth_node *n, struct client *c)
{
    struct hth_local_recovered answer = {
        .head = { sizeof(answer), HTH_LOCAL_RECOVERED, c->recover_request, 0 },
        .save = hth_local_save_of(n->chosen),
        .info = n->info,
    };

    c->recover_request = 0;
    reply_packet(n, c->id, &answer, sizeof(answer));
}

void serve_recovered(struct hth_node *n, int code, const struct hearth_error *err)
{
    for (struct client *c = n->clients; c; c = c->next) {
        if (!c->recover_request)
            continue;
        if (code) {
            reply_error(n, c->id, c->recover_request, err);
            c->recover_request = 0;
        } else {
            answer_recovered(n, c);
        }
    }
}

/* What follows the fixed part. */
static void take_common(struct hth_node *n, const struct hth_local_recover *m)
{
    const char *name = (const char *)(m + 1);

    for (uint32_t i = 0; i < m->count; i++, name += HTH_COMMON_NAME)
        if (!hth_object_name_check(name, NULL))
            hth_recover_common(n->recover, name);
}

static void recover(struct hth_node *n, struct client *c, const struct hth_local_recover *m)
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
    take_common(n, m);
    if (n->recovered) {
        answer_recovered(n, c);
        return;
    }
    if (n->recovering)
        return;
    n->recovering = 1;
    if (m->accept_loss)
        hth_recover_accept_loss(n->recover);
    if (hth_recover_start(
                n->recover, m->deadline_ms ? m->deadline_ms : n->ctx.opts.recover_ms, &err)) {
        n->recovering = 0;
        c->recover_request = 0;
        reply_error(n, c->id, m->head.request, &err);
    }
}

/* ---- STATUS ------------------------------------------------------------------------------------------ */

/* Saves on the keep list, with what is known of them now; out[KEPT_JSON]. */
#define KEPT_JSON (HTH_KEEP_MAX * (HTH_SAVE_TEXT + 64) + 4)
static void kept_json(const struct hth_node *n, char *out)
{
    static const char *const words[] = { [HTH_KEPT_UNSURE] = "kept",
        [HTH_KEPT_DEGRADED] = "degraded",
        [HTH_KEPT_PROTECTED] = "protected" };
    char save[HTH_SAVE_TEXT];
    size_t len = 0;

    out[len++] = '[';
    for (uint32_t i = 0; i < n->ctx.keep.saves; i++) {
        hth_save_text(n->ctx.keep.save[i], save);
        len += (size_t)snprintf(out + len, KEPT_JSON - len,
                "%s{\"save\": \"%s\", \"state\": \"%s\", \"age_s\": %" PRIu64 "}", i ? ", " : "",
                save, words[hth_commit_kept(n->commit, i)], hth_commit_kept_s(n->commit, i));
    }
    memcpy(out + len, "]", 2);
}

static void status(struct hth_node *n, uint32_t client, uint64_t request)
{
    char text[400];
    char kept[KEPT_JSON];
    char json[2048 + KEPT_JSON];
    uint64_t pulled = 0;
    uint32_t saves = 0;
    int len;

    hth_commit_text(n->commit, text, sizeof(text));
    for (char *at = text; *at; at++)
        if (*at == '"' || *at == '\\' || (unsigned char)*at < ' ')
            *at = '\''; /* it goes into a JSON string */
    kept_json(n, kept);
    hth_transfer_pulled(&n->ctx, &pulled, NULL);
    for (struct hth_held_save *s = hth_holdings_first(&n->ctx); s; s = s->next)
        saves += !s->removed;
    len = snprintf(json, sizeof(json),
            "{\"job\": \"%s\", \"node\": \"%s\", \"epoch\": %" PRIu64 ", \"member\": %" PRIu32
            ", \"members\": %" PRIu32 ", \"ranks_attached\": %" PRIu32 ", \"recovered\": %s"
            ", \"saves\": %" PRIu32 ", \"connections\": %" PRIu32 ", \"pulled_bytes\": %" PRIu64
            ", \"kept\": %s, \"state\": \"%s\", \"log\": \"%s\"}",
            n->ctx.opts.job, n->env.node, n->epoch.epoch, n->epoch.self, n->epoch.nodes,
            client_count(n), n->recovered ? "true" : "false", saves,
            hth_session_connections(n->ctx.session), pulled, kept, text, n->env.log_path);
    if (len > 0 && (size_t)len < sizeof(json))
        reply_bytes(n, client, request, json, (size_t)len);
    else
        reply_refusal(n, client, request, HEARTH_EIO, "the status does not fit");
}

/* The ranks' table: small beside what else a join does. */
static void join(struct hth_node *n, struct client *c, const struct hth_local_join *m,
        struct hth_content *content)
{
    size_t len = content ? content->len : 0;
    void *table = malloc(len ? len : 1);

    if (!table)
        reply_refusal(n, c->id, m->head.request, HEARTH_ENOMEM, "no memory for the ranks' table");
    else if (len && content->read(content, 0, table, len))
        reply_refusal(n, c->id, m->head.request, HEARTH_EPROTO,
                "the ranks' table changed while it was read");
    else
        epoch_join(n, c, m, table, len);
    free(table);
}

/* ---- Dispatch ----------------------------------------------------------------------------------------- */

/* What a rank does with a save of its own. */
static void dispatch_save(struct hth_node *n, struct client *c, const struct hth_local_head *head,
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
        lend_seal(n, c, m);
        break;
    case HTH_LOCAL_COMMON:
        lend_common(n, c, m, content);
        break;
    case HTH_LOCAL_COMMIT:
        lend_commit(n, c, m);
        break;
    case HTH_LOCAL_ABORT:
        lend_abort(n, c, m);
        break;
    case HTH_LOCAL_CANCEL:
        lend_cancel(n, c, m);
        break;
    case HTH_LOCAL_FOLLOW:
        follow_ask(n, c, m);
        break;
    case HTH_LOCAL_GIVE:
        lend_give(n, c, m);
        break;
    case HTH_LOCAL_TAKE:
        lend_take(n, c, m);
        break;
    default: /* answers are not requests; packet.c lets none through */
        break;
    }
}

static void dispatch(struct hth_node *n, struct client *c, const struct hth_local_head *head,
        struct hth_content **content)
{
    const void *m = head;

    switch ((enum hth_local_type)head->type) {
    case HTH_LOCAL_ATTACH:
        rank_attach(n, c, m);
        break;
    case HTH_LOCAL_JOIN:
        join(n, c, m, *content);
        break;
    case HTH_LOCAL_RECOVER:
        recover(n, c, m);
        break;
    case HTH_LOCAL_FIND:
        read_find(n, c, m);
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
    case HTH_LOCAL_CLOSE:
        rank_close(n, c, m);
        break;
    default:
        dispatch_save(n, c, head, content);
        break;
    }
}

/* What is only asked for in an epoch that goes well. */
static int needs_epoch(uint32_t type)
{
    return type == HTH_LOCAL_RECOVER || type == HTH_LOCAL_BEGIN || type == HTH_LOCAL_SET_STEP ||
           type == HTH_LOCAL_FIND;
}

static void take_request(struct hth_node *n, uint32_t client, const void *bytes, size_t len,
        struct hth_content **content)
{
    const struct hth_local_head *head = bytes;
    struct client *c;

    if (!packet_is_whole(head, len)) {
        reply_refusal(n, client, len < sizeof(*head) ? 0 : head->request, HEARTH_EPROTO,
                "a request of an unknown type or length, or with a name that does not end: use one "
                "version of Hearth");
        return;
    }
    if (head->type == HTH_LOCAL_STATUS) {
        status(n, client, head->request);
        return;
    }
    c = client_get(n, client);
    if (!c) {
        reply_refusal(n, client, head->request, HEARTH_ENOMEM, "no memory for a client");
        return;
    }
    if (!c->attached && head->type != HTH_LOCAL_ATTACH)
        reply_refusal(n, client, head->request, HEARTH_ESTATE, "a request before attach");
    else if (n->failure.code && needs_epoch(head->type))
        reply_error(n, client, head->request, &n->failure);
    else
        dispatch(n, c, head, content);
}

void hth_node_request(struct hth_node *n, uint32_t client, const void *bytes, size_t len,
        struct hth_content *content)
{
    take_request(n, client, bytes, len, &content);
    if (content)
        content->end(content);
}

void hth_node_client_gone(struct hth_node *n, uint32_t client)
{
    lend_gone(n, client);
    begin_gone(n, client);
    find_gone(n, client);
    read_gone(n, client);
    client_remove(n, client);
}
