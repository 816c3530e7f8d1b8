/* SPDX-License-Identifier: Apache-2.0 */
/* Messages, and how quiet a transport is when nothing happens. */
#include "conform.h"

#include <poll.h>
#include <pthread.h>

struct got {
    struct conn_record *record;
    uint64_t messages;
};

static int has_messages(struct world *w, void *arg)
{
    struct got *g = arg;

    (void)w;
    return g->record->messages >= g->messages;
}

static int is_writable(struct world *w, void *record)
{
    (void)w;
    return ((struct conn_record *)record)->writable;
}

/* Sends messages first..last, each with its number in front, waiting where it must. */
static void number_send(struct world *w, struct side *s, struct conn_record *r, uint64_t first,
        uint64_t count, size_t len)
{
    unsigned char bytes[HTH_MESSAGE_MAX] = { 0 };

    for (uint64_t i = first; i < first + count; i++) {
        int rc;

        memcpy(bytes, &i, 8);
        bytes[len - 1] = (unsigned char)i;
        while ((rc = s->t->ops->send(s->t, r->conn, bytes, len)) == HEARTH_EBUSY) {
            r->writable = 0;
            CHECK(pump(w, is_writable, r, WAIT_MS));
        }
        CHECK(rc == 0);
    }
}

static void edges(struct world *w, struct conn_record *a, struct conn_record *b)
{
    static const size_t lens[] = { 0, 1, 64, 4096, HTH_MESSAGE_MAX };
    unsigned char bytes[HTH_MESSAGE_MAX + 1];

    fill(bytes, sizeof(bytes), 3);
    for (size_t i = 0; i < sizeof(lens) / sizeof(*lens); i++) {
        struct got one = { a, a->messages + 1 };

        CHECK(B->t->ops->send(B->t, b->conn, bytes, lens[i]) == 0);
        CHECK(pump(w, has_messages, &one, WAIT_MS));
        CHECK(a->last_len == lens[i] && memcmp(A->last, bytes, lens[i]) == 0);
    }
    CHECK(B->t->ops->send(B->t, b->conn, bytes, HTH_MESSAGE_MAX + 1) == HEARTH_EINVAL);
}

/* While the other side does not read, send() returns EBUSY some time, and on_writable() comes when
 * there is room. */
static void full(struct world *w, struct conn_record *a, struct conn_record *b)
{
    unsigned char bytes[HTH_MESSAGE_MAX] = { 0 };
    struct got all = { a, a->messages };
    uint64_t sent = 0;
    int rc = 0;

    A->ordered = 0;
    b->writable = 0;
    for (; sent < 100000; sent++) {
        memcpy(bytes, &sent, 8);
        rc = B->t->ops->send(B->t, b->conn, bytes, sizeof(bytes));
        if (rc)
            break;
    }
    CHECK(rc == HEARTH_EBUSY);
    all.messages += sent;
    CHECK(pump(w, is_writable, b, WAIT_MS));
    CHECK(pump(w, has_messages, &all, WAIT_MS));
    CHECK(A->disorder == 0 && a->messages == all.messages);
}

void conform_talk(const struct conform_backend *backend, uint64_t many)
{
    struct world *w = world_open(backend);
    struct conn_record *a, *b;
    struct got there, back;

    side_open(w, 0);
    side_open(w, 1);
    b = dial_side(B, A, &a);
    edges(w, a, b);
    A->disorder = B->disorder = 0;
    full(w, a, b);
    there = (struct got){ a, a->messages + many };
    back = (struct got){ b, b->messages + many };
    A->ordered = B->ordered = 0;
    for (uint64_t i = 0; i < many; i += 1000) {
        number_send(w, B, b, i, 1000, 64 + i / 1000 % 900);
        number_send(w, A, a, i, 1000, 128);
    }
    CHECK(pump(w, has_messages, &there, 6 * WAIT_MS));
    CHECK(pump(w, has_messages, &back, 6 * WAIT_MS));
    CHECK(A->disorder == 0 && B->disorder == 0);
    CHECK(a->messages == there.messages && b->messages == back.messages);
    world_close(w);
}

void conform_messages(const struct conform_backend *backend)
{
    conform_talk(backend, long_run() ? 1000000 : backend->profile ? 3000 : 10000);
}

static void *wake_later(void *arg)
{
    struct hth_transport *t = arg;

    usleep(50000);
    t->ops->wake(t);
    return NULL;
}

static int quiet(struct world *w, struct side *s, int *out_fd, uint64_t *out_due)
{
    for (int i = 0; i < 1000; i++) {
        while (s->t->ops->progress(s->t))
            ;
        if (s->t->ops->arm(s->t, out_fd, out_due))
            return 1;
        if (i > 900)
            pump_for(w, 1);
    }
    return 0;
}

void conform_idle(const struct conform_backend *backend)
{
    struct world *w = world_open(backend);
    struct conn_record *a, *b;
    uint64_t due, end;
    int wakes = 0, fd;
    pthread_t thread;

    side_open(w, 0);
    side_open(w, 1);
    b = dial_side(B, A, &a);
    pump_for(w, 200);
    CHECK(!a->downs && !b->downs);
    CHECK(quiet(w, B, &fd, &due));
    if (w->net) { /* no descriptor: the flag alone */
        CHECK(due == HTH_NEVER);
        B->t->ops->wake(B->t);
        CHECK(B->t->ops->arm(B->t, &fd, &due) == 0);
        world_close(w);
        return;
    }
    CHECK(fd >= 0);
    for (end = real_ms() + 500; real_ms() < end; wakes++) { /* it sleeps, not spins */
        struct pollfd p = { fd, POLLIN, 0 };
        uint64_t now = real_ms();
        uint64_t until = due < end ? due : end;

        poll(&p, 1, until > now ? (int)(until - now) : 0);
        CHECK(quiet(w, B, &fd, &due));
        CHECK(quiet(w, A, &fd, &due));
        CHECK(quiet(w, B, &fd, &due));
    }
    CHECK(wakes < 250);
    CHECK(pthread_create(&thread, NULL, wake_later, B->t) == 0);
    for (end = real_ms() + WAIT_MS;;) {
        struct pollfd p = { fd, POLLIN, 0 };

        CHECK(real_ms() < end);
        if (poll(&p, 1, 1000) == 1 && (p.revents & POLLIN))
            break;
    }
    pthread_join(thread, NULL);
    B->t->ops->progress(B->t);
    CHECK(quiet(w, B, &fd, &due)); /* and the descriptor is not readable for ever */
    world_close(w);
}
