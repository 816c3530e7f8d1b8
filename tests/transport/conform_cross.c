/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Both dial each other, and of two connections one is given up, maybe before it stands: as the
 * session does. A library that connects in a thread of its own has to bear that. Then they go on.
 */
#include "conform.h"

#include <poll.h>

#define CROSSINGS 12 /* dials of a side in a round */
#define ROUNDS    35 /* CONNS is for what the peer dials, too */

struct blob {
    uint32_t len;
    unsigned char bytes[HTH_ADDR_MAX];
};

static struct blob cross_address(struct side *s)
{
    struct blob b = { 0 };

    CHECK(s->t->ops->address(s->t, b.bytes, &b.len, NULL) == 0);
    return b;
}

static hth_conn cross_dial(struct side *s, const struct blob *peer)
{
    struct conn_record *r;

    for (uint64_t end = real_ms() + WAIT_MS; !(r = dial_begin(s, peer->bytes, peer->len));
            pump_for(s->w, 1))
        CHECK(real_ms() < end);
    return r->conn;
}

static void cross_drop(struct side *s, hth_conn conn)
{
    s->t->ops->drop(s->t, conn);
}

static int all_down(struct world *w, void *side)
{
    struct side *s = side;
    int standing = 0;

    (void)w;
    for (int i = 0; i < s->conns; i++)
        standing += !s->conn[i].downs;
    return !standing;
}

static void cross_end(struct side *s)
{
    for (int i = 0; i < s->conns; i++)
        if (!s->conn[i].downs)
            cross_drop(s, s->conn[i].conn);
    CHECK(pump(s->w, all_down, s, WAIT_MS));
}

static void cross_round(struct side *s, const struct blob *peer, unsigned *chance)
{
    hth_conn dialled[CROSSINGS];

    for (int i = 0; i < CROSSINGS; i++) {
        dialled[i] = cross_dial(s, peer);
        if (rand_r(chance) % 2)
            pump_for(s->w, (uint64_t)rand_r(chance) % 2);
        if (i && rand_r(chance) % 2)
            cross_drop(s, dialled[i - 1]);
    }
    pump_for(s->w, (uint64_t)rand_r(chance) % 4);
    cross_end(s);
}

/* Until the peer has come to the same line. */
static void cross_meet(struct world *w, const int in[2], const int out[2])
{
    struct pollfd p = { in[0], POLLIN, 0 };
    char byte = 0;

    put_all(out[1], &byte, 1);
    for (uint64_t end = real_ms() + WAIT_MS; !poll(&p, 1, 0); pump_for(w, 1))
        CHECK(real_ms() < end);
    get_all(in[0], &byte, 1);
}

static int has_message(struct world *w, void *side)
{
    struct side *s = side;
    uint64_t messages = 0;

    (void)w;
    for (int i = 0; i < s->conns; i++)
        messages += s->conn[i].messages;
    return messages != 0;
}

static void cross_side(
        const struct conform_backend *backend, const int in[2], const int out[2], int last_dials)
{
    struct world *w = world_open(backend);
    unsigned chance = (unsigned)getpid();
    struct blob own, peer;

    side_open(w, 0);
    own = cross_address(A);
    put_all(out[1], &own, sizeof(own));
    get_all(in[0], &peer, sizeof(peer));
    for (int round = 0; round < ROUNDS; round++)
        cross_round(A, &peer, &chance);
    cross_meet(w, in, out);
    cross_end(A);
    cross_meet(w, in, out);
    cross_end(A); /* what came meanwhile */
    cross_meet(w, in, out);
    if (last_dials) {
        struct conn_record *r = dial(A, peer.bytes, peer.len);

        CHECK(r->up && A->t->ops->send(A->t, r->conn, "on", 2) == 0);
        CHECK(pump(w, is_down, r, WAIT_MS)); /* he has it */
    } else {
        CHECK(pump(w, has_message, A, WAIT_MS));
    }
    world_close(w);
}

static void one(const struct conform_backend *backend, const struct link_pipe *p)
{
    cross_side(backend, p->to_owner, p->to_puller, 0);
}

static void other(const struct conform_backend *backend, const struct link_pipe *p)
{
    cross_side(backend, p->to_puller, p->to_owner, 1);
}

static void cross_processes(const struct conform_backend *backend)
{
    struct link_pipe p;
    pid_t a, b;

    pipe_open(&p);
    a = child_start(one, backend, &p);
    b = child_start(other, backend, &p);
    child_must_end(a);
    child_must_end(b);
    pipe_close(&p);
}

/* A backend that knows no other process. */
static void cross_here(const struct conform_backend *backend)
{
    struct world *w = world_open(backend);
    unsigned chance = 1;
    struct blob a, b;

    side_open(w, 0);
    side_open(w, 1);
    a = cross_address(A);
    b = cross_address(B);
    for (int round = 0; round < ROUNDS; round++) {
        cross_round(A, &b, &chance);
        cross_round(B, &a, &chance);
    }
    cross_end(A);
    cross_end(B);
    CHECK(dial(B, a.bytes, a.len)->up);
    world_close(w);
}

void conform_crossing(const struct conform_backend *backend)
{
    for (int i = 0; i < (long_run() ? 100 : 5); i++)
        if (backend->module)
            cross_processes(backend);
        else
            cross_here(backend);
}
