/* SPDX-License-Identifier: Apache-2.0 */
/* One transport and its turns: it sleeps on its descriptor, never longer than it asks for. */
#include "side.h"

#include "bench.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

uint64_t side_ms(void *self)
{
    (void)self;
    return (uint64_t)(now_s() * 1e3);
}

static uint64_t wall_ms(void *self)
{
    (void)self;
    return (uint64_t)time(NULL) * 1000;
}

struct hth_clock side_clock(void)
{
    return (struct hth_clock){ .now_ms = side_ms, .wall_ms = wall_ms };
}

static void side_on_accept(void *self, hth_conn conn)
{
    struct side *s = self;

    s->conn = conn;
}

static void side_on_up(void *self, hth_conn conn)
{
    struct side *s = self;

    (void)conn;
    s->up = 1;
}

static void side_on_down(void *self, hth_conn conn, int code, const char *detail)
{
    struct side *s = self;

    (void)conn;
    if (!s->up)
        _exit(0); /* served until the dialler ended; had that a reason, it has said it */
    die("%s: the connection went down: %s, %s", s->backend, hearth_strerror(code),
            detail ? detail : "");
}

static void side_on_message(void *self, hth_conn conn, const void *bytes, size_t len)
{
    struct side *s = self;

    s->on_message(s, conn, bytes, len);
}

static void side_on_writable(void *self, hth_conn conn)
{
    (void)self, (void)conn;
}

static void side_on_pull(void *self, uint64_t cookie, int code)
{
    struct side *s = self;

    s->on_pull(s, cookie, code);
}

void side_open(struct side *s, const char *backend, const char *bind)
{
    struct backend b = backend_of(backend);
    static const struct hth_key key = { .bytes = bench_key, .id = 1 };
    struct hth_transport_opts o = { .bind = bind,
        .port = s->port,
        .provider = b.provider,
        .trusted = b.trusted,
        .key = b.keyed ? &key : NULL,
        .library = !strcmp(b.transport, "ucx") ? getenv("HEARTH_UCX_LIBRARY") : NULL,
        .clock = side_clock() };
    struct hth_transport_events e = { s, side_on_accept, side_on_up, side_on_down, side_on_message,
        side_on_writable, side_on_pull };
    struct hearth_error err = { 0 };

    s->backend = backend;
    if (hth_transport_open(b.transport, NULL, &o, &e, &s->t, &err))
        die("%s: %s", backend, err.text);
}

void side_serve(struct side *s, int out)
{
    unsigned char addr[HTH_ADDR_MAX];
    struct hearth_error err = { 0 };
    uint32_t len = 0;

    if (s->t->ops->address(s->t, addr, &len, &err))
        die("%s: %s", s->backend, err.text);
    if (write(out, addr, len) != (ssize_t)len)
        _exit(1);
    close(out);
    for (;;)
        side_turn(s, -1, 0);
}

void side_dial(struct side *s, int in)
{
    unsigned char addr[HTH_ADDR_MAX];
    struct hearth_error err = { 0 };
    ssize_t len = read(in, addr, sizeof(addr));

    if (len <= 0)
        die("%s: the other side does not start", s->backend);
    s->dialled_s = now_s();
    if (s->t->ops->connect(s->t, addr, (uint32_t)len, &s->conn, &err))
        die("%s: %s", s->backend, err.text);
    while (!s->up)
        side_turn(s, -1, 0);
}

/* Rounded up, as the engine does; what is due now is not slept for. */
static int sleep_ms(uint64_t due_ms, double until_s)
{
    uint64_t now = side_ms(NULL), most = 1000;

    if (until_s > 0) {
        double left = (until_s - now_s()) * 1e3;

        most = left <= 0 ? 0 : left < 1000 ? (uint64_t)left + 1 : 1000;
    }
    if (due_ms <= now)
        return 0;
    return (int)(due_ms - now < most ? due_ms - now : most);
}

int side_turn(struct side *s, int also, double until_s)
{
    struct pollfd p[2] = { { .fd = also, .events = POLLIN }, { .fd = -1, .events = POLLIN } };
    uint64_t due = UINT64_MAX;

    if (s->t->ops->progress(s->t) > 0 || !s->t->ops->arm(s->t, &p[1].fd, &due))
        return 0;
    poll(p, 2, sleep_ms(due, until_s));
    return p[0].revents != 0;
}

void side_send(struct side *s, hth_conn conn, const void *bytes, size_t len)
{
    int rc;

    while ((rc = s->t->ops->send(s->t, conn, bytes, len)) == HEARTH_EBUSY)
        side_turn(s, -1, 0);
    if (rc)
        die("%s: a message: %s", s->backend, hearth_strerror(rc));
}
