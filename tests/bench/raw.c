/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The transport alone: an owner and a puller, each a process with one transport, sleeping on its
 * descriptor. The puller brings the owner's region over in pieces as the engine does, without
 * sessions, checksums or a catalogue.
 */
#include "bench.h"

#include "transport/transport.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PIECE  (UINT64_C(4) << 20)
#define WINDOW 4u

static struct {
    struct hth_transport *t;
    struct hth_region *region;
    uint64_t bytes, issued, here;
    unsigned under_way;
    hth_conn conn;
    int up, granted;
    unsigned char desc[HTH_DESC_MAX];
    uint32_t desc_len;
} side;

static uint64_t clock_ms(void *self)
{
    (void)self;
    return (uint64_t)(now_s() * 1e3);
}

static uint64_t wall_ms(void *self)
{
    (void)self;
    return (uint64_t)time(NULL) * 1000;
}

static void on_accept(void *self, hth_conn conn)
{
    (void)self;
    side.conn = conn;
}

static void on_up(void *self, hth_conn conn)
{
    (void)self, (void)conn;
    side.up = 1;
}

static void on_down(void *self, hth_conn conn, int code, const char *detail)
{
    (void)self, (void)conn;
    if (side.granted && side.region && code != HEARTH_ECANCELED && side.here < side.bytes)
        die("raw pull: the connection went down: %s", detail ? detail : "");
}

/* To the owner: a question. To the puller: the descriptor of a grant. */
static void on_message(void *self, hth_conn conn, const void *bytes, size_t len)
{
    struct hearth_error err = { 0 };

    (void)self;
    if (len > 1) {
        memcpy(side.desc, bytes, len);
        side.desc_len = (uint32_t)len;
        side.granted = 1;
    } else if (side.t->ops->grant(
                       side.t, side.region, 0, side.bytes, conn, side.desc, &side.desc_len, &err) ||
               side.t->ops->send(side.t, conn, side.desc, side.desc_len)) {
        die("raw grant: %s", err.text);
    }
}

static void on_writable(void *self, hth_conn conn)
{
    (void)self, (void)conn;
}

static void on_pull(void *self, uint64_t cookie, int code)
{
    (void)self;
    if (code)
        die("raw pull: %s", hearth_strerror(code));
    side.here += cookie;
    side.under_way--;
}

static void open_side(const char *transport, const char *provider, const char *base, uint64_t bytes,
        const char *bind)
{
    struct hth_transport_opts o = { .bind = bind,
        .provider = provider,
        .library = transport && !strcmp(transport, "ucx") ? getenv("HEARTH_UCX_LIBRARY") : NULL,
        .clock = { .now_ms = clock_ms, .wall_ms = wall_ms } };
    struct hth_transport_events e = { NULL, on_accept, on_up, on_down, on_message, on_writable,
        on_pull };
    struct hearth_error err = { 0 };
    void *at = file_memory(base, bind, bytes);

    side.bytes = bytes;
    if (hth_transport_open(transport ? transport : "ofi", NULL, &o, &e, &side.t, &err) ||
            side.t->ops->reg(side.t, at, bytes, &side.region, &err))
        die("raw %s: %s", transport ? transport : "ofi", err.text);
}

/* Until something was done or `also` can be read. 1: `also`. */
static int turn(int also)
{
    struct pollfd p[2] = { { .fd = also, .events = POLLIN }, { .fd = -1, .events = POLLIN } };
    uint64_t due = UINT64_MAX, now;

    if (side.t->ops->progress(side.t) > 0)
        return 0;
    if (!side.t->ops->arm(side.t, &p[1].fd, &due))
        return 0;
    now = clock_ms(NULL);
    poll(p, 2,
            due == UINT64_MAX ? 1000
            : due > now       ? (int)(due - now < 1000 ? due - now : 1000)
                              : 0);
    return p[0].revents != 0;
}

static void owner_run(
        const char *transport, const char *provider, const char *base, uint64_t bytes, int out)
{
    unsigned char addr[HTH_ADDR_MAX];
    struct hearth_error err = { 0 };
    uint32_t len = 0;

    open_side(transport, provider, base, bytes, "127.0.0.1");
    if (side.t->ops->address(side.t, addr, &len, &err))
        die("raw: %s", err.text);
    if (write(out, addr, len) != (ssize_t)len)
        _exit(1);
    close(out);
    for (;;)
        turn(-1);
}

static void issue(void)
{
    while (side.under_way < WINDOW && side.issued < side.bytes) {
        uint64_t len = side.bytes - side.issued < PIECE ? side.bytes - side.issued : PIECE;
        int rc = side.t->ops->pull(side.t, side.conn, side.desc, side.desc_len, side.issued,
                side.region, side.issued, len, len);

        if (rc == HEARTH_EBUSY)
            return;
        if (rc)
            die("raw pull: %s", hearth_strerror(rc));
        side.issued += len;
        side.under_way++;
    }
}

static void puller_run(const char *transport, const char *provider, const char *base,
        uint64_t bytes, const unsigned char *addr, uint32_t len, int in, int out)
{
    struct hearth_error err = { 0 };
    char c;

    open_side(transport, provider, base, bytes, "127.0.0.2");
    if (side.t->ops->connect(side.t, addr, len, &side.conn, &err))
        die("raw connect: %s", err.text);
    while (!side.up)
        turn(-1);
    if (side.t->ops->send(side.t, side.conn, "?", 1))
        die("raw: no message");
    while (!side.granted)
        turn(-1);
    for (;;) {
        double begin, took;

        while (!turn(in))
            continue;
        if (read(in, &c, 1) != 1)
            _exit(0);
        begin = now_s();
        for (side.here = side.issued = 0; side.here < side.bytes; turn(-1))
            issue();
        took = now_s() - begin;
        if (write(out, &took, sizeof(took)) != sizeof(took))
            _exit(1);
    }
}

void raw_start(struct raw *r, const char *transport, const char *provider, const char *base,
        uint64_t bytes)
{
    unsigned char addr[HTH_ADDR_MAX];
    int from[2], in[2], out[2];
    ssize_t len;

    if (pipe(from) || pipe(in) || pipe(out))
        die("no pipe");
    fflush(NULL);
    if ((r->owner = fork()) == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        owner_run(transport, provider, base, bytes, from[1]);
    }
    close(from[1]);
    len = read(from[0], addr, sizeof(addr));
    close(from[0]);
    if (len <= 0)
        die("raw: the owner does not start");
    if ((r->puller = fork()) == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(in[1]);
        puller_run(transport, provider, base, bytes, addr, (uint32_t)len, in[0], out[1]);
    }
    close(in[0]);
    close(out[1]);
    r->to = in[1];
    r->from = out[0];
}

double raw_pull_s(struct raw *r)
{
    double took = 0;

    if (write(r->to, "p", 1) != 1 || read(r->from, &took, sizeof(took)) != sizeof(took))
        die("raw: the puller is gone");
    return took;
}

static uint64_t sleeps_of(pid_t pid)
{
    char path[64], line[128];
    unsigned long long n = 0;
    FILE *f;

    snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
    f = fopen(path, "re");
    while (f && fgets(line, sizeof(line), f) &&
            sscanf(line, "voluntary_ctxt_switches: %llu", &n) != 1)
        continue;
    if (f)
        fclose(f);
    return n;
}

uint64_t raw_sleeps(const struct raw *r)
{
    return sleeps_of(r->owner) + sleeps_of(r->puller);
}

void raw_end(struct raw *r)
{
    kill(r->puller, SIGKILL);
    kill(r->owner, SIGKILL);
    waitpid(r->puller, NULL, 0);
    waitpid(r->owner, NULL, 0);
    close(r->to);
    close(r->from);
}
