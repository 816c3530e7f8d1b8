/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A conversation with a session before any proof, from both sides of a dial: bytes as they are, and
 * frames under the job's key with whatever in them. A side that does not compute a proof never
 * becomes a peer, and no message of it is delivered.
 */
#include "net_world.h"
#include "steps.h"
#include "transport/session/frame.h"

#include <stdlib.h>
#include <string.h>

enum { SEALED = 1, DIAL = 2, EPOCH_IS_RIGHT = 4, TO_WHO_DIALLED = 8, LATER = 16 };

#define LINKS 4 /* that may stand */

struct talker {
    struct hth_transport *t;
    hth_conn ours, theirs; /* dialled by us, by the session; 0: none */
    uint64_t seq;
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void on_accept(void *self, hth_conn conn)
{
    ((struct talker *)self)->theirs = conn;
}

static void on_conn(void *self, hth_conn conn)
{
    (void)self, (void)conn;
}

static void on_down(void *self, hth_conn conn, int code, const char *detail)
{
    struct talker *t = self;

    (void)code, (void)detail;
    if (t->ours == conn)
        t->ours = 0;
    if (t->theirs == conn)
        t->theirs = 0;
}

static void on_bytes(void *self, hth_conn conn, const void *bytes, size_t len)
{
    (void)self, (void)conn, (void)bytes, (void)len;
}

static void on_pull(void *self, uint64_t cookie, int code)
{
    (void)self, (void)cookie, (void)code;
}

static void talker_run(struct net_world *w, struct talker *t, uint64_t ms)
{
    net_run(w, ms);
    t->t->ops->progress(t->t);
}

static void talker_say(struct talker *t, const struct step *s, const unsigned char *key)
{
    hth_conn conn = s->how & TO_WHO_DIALLED ? t->theirs : t->ours;
    unsigned char out[HTH_MESSAGE_MAX];
    struct hth_frame f = { .version = HTH_VERSION_LOW,
        .type = s->type,
        .body_len = (uint32_t)(s->len < HTH_BODY_MAX ? s->len : HTH_BODY_MAX),
        .epoch = s->how & EPOCH_IS_RIGHT ? NET_EPOCH : 1,
        .nonce = s->how & EPOCH_IS_RIGHT ? NET_NONCE : 1,
        .seq = ++t->seq,
        .body = s->bytes };

    if (!conn)
        return;
    if (s->how & SEALED)
        (void)t->t->ops->send(t->t, conn, out, hth_frame_encode(&f, key, out));
    else if (s->len)
        (void)t->t->ops->send(
                t->t, conn, s->bytes, s->len < HTH_MESSAGE_MAX ? s->len : HTH_MESSAGE_MAX);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct hth_session_opts opts = net_keyed(1);
    struct net_world *w;
    struct hth_reader r = { .at = data, .len = size };
    struct talker t = { 0 };
    struct hth_transport_events e = { &t, on_accept, on_conn, on_down, on_bytes, on_conn, on_pull };
    struct step s;

    opts.links_max = LINKS;
    w = net_world_open(2, &opts);
    net_node_close(w, 1);
    if (hth_loop_open(w->net, 1, &e, &t.t, NULL))
        abort();
    (void)net_send(w, 0, 1, 5); /* the session dials us */
    talker_run(w, &t, 5);
    for (int i = 0; i < STEPS_MAX && step_next(&r, &s); i++) {
        if ((s.how & DIAL || !t.ours) &&
                t.t->ops->connect(t.t, w->member[0].addr, 4, &t.ours, NULL))
            t.ours = 0;
        talker_run(w, &t, 3);
        talker_say(&t, &s, opts.key->bytes);
        talker_run(w, &t, s.how & LATER ? 3000 : 3);
    }
    if (w->node[0].ups[1] || w->node[0].messages[1])
        abort();
    t.t->ops->close(t.t);
    net_world_close(w);
    return 0;
}
