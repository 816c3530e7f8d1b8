/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests of ranks, checked for length and taken apart. A wrong packet is answered with an error
 * and does nothing else; what a rank may ask for before ATTACH is STATUS alone.
 */
#include "node_state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COMMON_NAME 256u /* bytes: of each name behind a RECOVER */

void reply_error(
        struct hth_node *n, uint32_t client, uint64_t request, const struct hearth_error *err)
{
    struct hth_local_error answer = {
        .head = { sizeof(answer), HTH_LOCAL_ERROR, request, 0 },
        .code = err->code,
        .native = err->native,
    };

    memcpy(answer.text, err->text, sizeof(answer.text));
    n->env.reply(n->env.reply_self, client, &answer, sizeof(answer), -1, NULL, 0);
}

void reply_ok(struct hth_node *n, uint32_t client, uint64_t request)
{
    struct hth_local_head answer = { sizeof(answer), HTH_LOCAL_OK, request, 0 };

    n->env.reply(n->env.reply_self, client, &answer, sizeof(answer), -1, NULL, 0);
}

void reply_bytes(
        struct hth_node *n, uint32_t client, uint64_t request, const void *bytes, size_t len)
{
    struct hth_local_bytes answer = { .head = { sizeof(answer), HTH_LOCAL_BYTES, request, 0 },
        .len = len };

    n->env.reply(n->env.reply_self, client, &answer, sizeof(answer), -1, bytes, len);
}

void reply_refusal(
        struct hth_node *n, uint32_t client, uint64_t request, int code, const char *text)
{
    struct hearth_error err;

    hth_fail(&err, code, 0, "%s", text);
    reply_error(n, client, request, &err);
}

struct client *client_find(struct hth_node *n, uint32_t id)
{
    struct client *c = n->clients;

    while (c && c->id != id)
        c = c->next;
    return c;
}

void serve_event(struct hth_node *n, const struct loan *l, enum hearth_level level, int degraded,
        int code, const char *text)
{
    struct hth_local_event event = {
        .head = { sizeof(event), HTH_LOCAL_EVENT, 0, l->token },
        .save = hth_local_save_of(l->save),
        .level = level,
        .degraded = (uint32_t)degraded,
        .code = code,
        .bytes = l->bytes,
        .copied = l->copied,
    };

    snprintf(event.text, sizeof(event.text), "%s", text);
    n->env.reply(n->env.reply_self, l->client, &event, sizeof(event), -1, NULL, 0);
}

/* ---- ATTACH, RECOVER, CLOSE --------------------------------------------------------------------- */

static void attach(struct hth_node *n, struct client *c, const struct hth_local_attach *m)
{
    struct hth_local_attached answer = { .head = { sizeof(answer), HTH_LOCAL_ATTACHED,
                                                 m->head.request, 0 } };
    struct hearth_error err;

    if (m->version != HTH_LOCAL_VERSION) {
        hth_fail(&err, HEARTH_EPROTO, 0,
                "the rank's library speaks local protocol %" PRIu32
                ", this engine %u: use one version",
                m->version, HTH_LOCAL_VERSION);
        reply_error(n, c->id, m->head.request, &err);
        return;
    }
    if (strncmp(m->job, n->ctx.opts.job, sizeof(m->job)) != 0) {
        reply_refusal(n, c->id, m->head.request, HEARTH_EINVAL, "this engine serves another job");
        return;
    }
    c->attached = 1;
    c->rank = m->rank;
    c->helper = (int)m->helper;
    answer.store = n->env.store->ops->id(n->env.store);
    answer.random = hth_random_next(&n->ctx.random);
    answer.highest_epoch = hth_holdings_highest_epoch(&n->ctx, &answer.random);
    answer.wall_ms = n->ctx.clock.wall_ms(n->ctx.clock.self);
    answer.epoch = n->ctx.epoch ? n->epoch.epoch : 0;
    answer.nonce = n->ctx.epoch ? n->epoch.nonce : 0;
    answer.recovered = (uint32_t)n->recovered;
    if (n->transport->ops->address(n->transport, answer.addr, &answer.addr_len, &err)) {
        reply_error(n, c->id, m->head.request, &err);
        return;
    }
    snprintf(answer.node, sizeof(answer.node), "%s", n->env.node);
    snprintf(answer.log, sizeof(answer.log), "%s", n->env.log_path);
    snprintf(answer.transport, sizeof(answer.transport), "%s", n->transport->ops->name);
    hth_session_versions(n->ctx.session, &answer.version_low, &answer.version_high);
    n->env.reply(n->env.reply_self, c->id, &answer, sizeof(answer), -1, NULL, 0);
}

static void answer_recovered(struct hth_node *n, struct client *c)
{
    struct hth_local_recovered answer = {
        .head = { sizeof(answer), HTH_LOCAL_RECOVERED, c->recover_request, 0 },
        .save = hth_local_save_of(n->chosen),
        .info = n->info,
    };

    c->recover_request = 0;
    n->env.reply(n->env.reply_self, c->id, &answer, sizeof(answer), -1, NULL, 0);
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

/* What follows the fixed part, as far as it is there and a name. */
static void take_common(struct hth_node *n, const struct hth_local_recover *m)
{
    const char *name = (const char *)(m + 1);
    size_t left = m->head.length - sizeof(*m);

    for (uint32_t i = 0; i < m->count && left >= COMMON_NAME; i++) {
        if (memchr(name, '\0', COMMON_NAME) && !hth_object_name_check(name, NULL))
            hth_recover_common(n->recover, name);
        name += COMMON_NAME;
        left -= COMMON_NAME;
    }
}

static void recover(struct hth_node *n, struct client *c, const struct hth_local_recover *m)
{
    struct hearth_error err;

    if (!n->ctx.epoch) {
        reply_refusal(
                n, c->id, m->head.request, HEARTH_ESTATE, "recover before the node has joined");
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

/* The job is over when every rank of every node has said drop. */
static void check_dropped(struct hth_node *n)
{
    unsigned char body[4] = { 1 };
    uint32_t ranks = 0;

    for (uint32_t r = 0; n->ctx.epoch && r < n->epoch.world; r++)
        ranks += n->epoch.rank_node[r] == n->epoch.self;
    if (ranks == 0 || n->drops < ranks || n->drop_sent)
        return;
    n->drop_sent = 1;
    hth_tree_up(&n->ctx, HTH_KIND_CLOSE, body, sizeof(body));
}

static void on_close(struct hth_node *n, struct client *c, const struct hth_local_close *m)
{
    n->drops +=
            !c->closed && !c->helper && m->leave == HEARTH_DROP; /* c goes with its connection */
    c->closed = 1;
    reply_ok(n, c->id, m->head.request);
    check_dropped(n);
}

/* ---- STATUS ------------------------------------------------------------------------------------------ */

static void status(struct hth_node *n, uint32_t client, uint64_t request)
{
    char text[400];
    char json[2048];
    uint64_t pulled = 0;
    uint32_t saves = 0;
    int len;

    hth_commit_text(n->commit, text, sizeof(text));
    for (char *at = text; *at; at++)
        if (*at == '"' || *at == '\\' || (unsigned char)*at < ' ')
            *at = '\''; /* it goes into a JSON string */
    hth_transfer_pulled(&n->ctx, &pulled, NULL);
    for (struct hth_held_save *s = hth_holdings_first(&n->ctx); s; s = s->next)
        saves += !s->removed;
    len = snprintf(json, sizeof(json),
            "{\"job\": \"%s\", \"node\": \"%s\", \"epoch\": %" PRIu64 ", \"member\": %" PRIu32
            ", \"members\": %" PRIu32 ", \"ranks_attached\": %" PRIu32 ", \"recovered\": %s"
            ", \"saves\": %" PRIu32 ", \"connections\": %" PRIu32 ", \"pulled_bytes\": %" PRIu64
            ", \"state\": \"%s\", \"log\": \"%s\"}",
            n->ctx.opts.job, n->env.node, n->epoch.epoch, n->epoch.self, n->epoch.nodes,
            hth_node_clients(n), n->recovered ? "true" : "false", saves,
            hth_session_connections(n->ctx.session), pulled, text, n->env.log_path);
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

static const struct {
    uint32_t type;
    size_t bytes; /* of the fixed part */
} sizes[] = {
    { HTH_LOCAL_ATTACH, sizeof(struct hth_local_attach) },
    { HTH_LOCAL_JOIN, sizeof(struct hth_local_join) },
    { HTH_LOCAL_RECOVER, sizeof(struct hth_local_recover) },
    { HTH_LOCAL_BEGIN, sizeof(struct hth_local_begin) },
    { HTH_LOCAL_SET_STEP, sizeof(struct hth_local_set_step) },
    { HTH_LOCAL_SEAL, sizeof(struct hth_local_seal) },
    { HTH_LOCAL_COMMON, sizeof(struct hth_local_common) },
    { HTH_LOCAL_COMMIT, sizeof(struct hth_local_head) },
    { HTH_LOCAL_ABORT, sizeof(struct hth_local_head) },
    { HTH_LOCAL_CANCEL, sizeof(struct hth_local_head) },
    { HTH_LOCAL_FOLLOW, sizeof(struct hth_local_follow) },
    { HTH_LOCAL_MANIFEST, sizeof(struct hth_local_map) },
    { HTH_LOCAL_MAP, sizeof(struct hth_local_map) },
    { HTH_LOCAL_UNMAP, sizeof(struct hth_local_unmap) },
    { HTH_LOCAL_RANGE, sizeof(struct hth_local_map) },
    { HTH_LOCAL_COMMON_GET, sizeof(struct hth_local_common) },
    { HTH_LOCAL_STATUS, sizeof(struct hth_local_head) },
    { HTH_LOCAL_CLOSE, sizeof(struct hth_local_close) },
    { HTH_LOCAL_FIND, sizeof(struct hth_local_find) },
    { HTH_LOCAL_GIVE, sizeof(struct hth_local_give) },
    { HTH_LOCAL_TAKE, sizeof(struct hth_local_take) },
};

static int well_formed(const struct hth_local_head *head, size_t len)
{
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
        if (sizes[i].type == head->type)
            return len >= sizes[i].bytes && head->length == len;
    return 0;
}

/* What a rank does with a save of its own. */
static void dispatch_save(struct hth_node *n, struct client *c, const struct hth_local_head *head,
        struct hth_content **content)
{
    const void *m = head;

    switch ((enum hth_local_type)head->type) {
    case HTH_LOCAL_BEGIN:
        lend_begin(n, c, m);
        break;
    case HTH_LOCAL_SET_STEP:
        lend_set_step(n, c, m);
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
        lend_follow(n, c, m);
        break;
    case HTH_LOCAL_GIVE:
        lend_give(n, c, m);
        break;
    case HTH_LOCAL_TAKE:
        lend_take(n, c, m);
        break;
    default: /* answers are not requests; well_formed() lets none through */
        break;
    }
}

static void dispatch(struct hth_node *n, struct client *c, const struct hth_local_head *head,
        struct hth_content **content)
{
    const void *m = head;

    switch ((enum hth_local_type)head->type) {
    case HTH_LOCAL_ATTACH:
        attach(n, c, m);
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
        on_close(n, c, m);
        break;
    default:
        dispatch_save(n, c, head, content);
        break;
    }
}

static void take_request(struct hth_node *n, uint32_t client, const void *bytes, size_t len,
        struct hth_content **content)
{
    const struct hth_local_head *head = bytes;
    struct client *c = client_find(n, client);

    if (len < sizeof(*head) || !well_formed(head, len)) {
        reply_refusal(n, client, len < sizeof(*head) ? 0 : head->request, HEARTH_EPROTO,
                "a request of an unknown type or length: use one version of Hearth");
        return;
    }
    if (head->type == HTH_LOCAL_STATUS) {
        status(n, client, head->request);
        return;
    }
    if (!c) {
        c = calloc(1, sizeof(*c));
        if (!c) {
            reply_refusal(n, client, head->request, HEARTH_ENOMEM, "no memory for a client");
            return;
        }
        c->id = client;
        c->next = n->clients;
        n->clients = c;
    }
    if (!c->attached && head->type != HTH_LOCAL_ATTACH)
        reply_refusal(n, client, head->request, HEARTH_ESTATE, "a request before attach");
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
    struct client **at = &n->clients;

    lend_gone(n, client);
    read_gone(n, client);
    while (*at && (*at)->id != client)
        at = &(*at)->next;
    if (!*at)
        return;
    struct client *c = *at;
    *at = c->next;
    free(c);
}
