/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An all-gather over TCP. Rank 0 listens for as long as the bootstrap lives; each round the others
 * come to it with a connection of their own, which ends with the round:
 *
 *     rank r --> rank 0   greeting { magic, rank, world, round, len } and its bytes
 *     rank 0 --> rank r   answer { magic, code, round, len }; code 0: the table; else a sentence
 *
 * What does not begin with a fitting greeting is hung up on and counts for nothing. Rank 0 waits
 * for all in one poll loop; when the time is over it tells those who came who did not.
 */
#include "bootstrap.h"
#include "client.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define MAGIC       UINT64_C(0x315448474e494a48) /* "HJINGHT1" */
#define SAID_MAX    HEARTH_ERROR_TEXT
#define STRANGERS   64   /* connections that have not said who they are */
#define GRACE_MS    1000 /* for rank 0's sentence to arrive before ours */

#define FIRST_ROUND 1u

struct greeting {
    uint64_t magic;
    uint32_t rank, world, round, len;
};

struct answer {
    uint64_t magic;
    int32_t code;
    uint32_t round; /* code 0: the one that all are in now */
    uint64_t len;
};

struct tcp {
    struct hearth_bootstrap base;
    char host[256], port[8];
    uint32_t rank, world, deadline_ms, round;
    int listener;
};

struct guest { /* of rank 0 */
    int fd;
    struct greeting hello;
    size_t got; /* bytes of greeting and data */
};

/* ---- sockets -------------------------------------------------------------------------------- */

static int resolve(const struct tcp *t, struct addrinfo **out, struct hearth_error *err)
{
    struct addrinfo hints = { .ai_socktype = SOCK_STREAM };
    int e = getaddrinfo(t->host, t->port, &hints, out);

    if (e)
        return hth_fail(
                err, HEARTH_EINVAL, 0, "the meeting place %s: %s", t->host, gai_strerror(e));
    return HEARTH_OK;
}

static int listen_at(struct tcp *t, struct hearth_error *err)
{
    struct addrinfo *all;
    int fd = -1, e = 0, rc, yes = 1;

    if ((rc = resolve(t, &all, err)))
        return rc;
    for (struct addrinfo *a = all; a && fd < 0; a = a->ai_next) {
        fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (fd >= 0)
            setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
        if (fd >= 0 && (bind(fd, a->ai_addr, a->ai_addrlen) != 0 || listen(fd, 4096) != 0)) {
            e = errno;
            close(fd);
            fd = -1;
        }
    }
    freeaddrinfo(all);
    if (fd < 0)
        return hth_fail(err, HEARTH_EINVAL, e,
                "rank 0 cannot listen at %s port %s: %s: give an address of rank 0's node and a "
                "free port",
                t->host, t->port, strerror(e));
    t->listener = fd;
    return HEARTH_OK;
}

/* All of it by `until`: 0, or an errno. */
static int move(int fd, void *bytes, size_t len, int out, uint64_t until)
{
    size_t done = 0;

    while (done < len) {
        struct pollfd p = { .fd = fd, .events = out ? POLLOUT : POLLIN };
        uint64_t now = hth_mono_ms();
        ssize_t n;

        if (now >= until || poll(&p, 1, (int)(until - now)) == 0)
            return ETIMEDOUT;
        n = out ? send(fd, (char *)bytes + done, len - done, MSG_NOSIGNAL | MSG_DONTWAIT)
                : recv(fd, (char *)bytes + done, len - done, MSG_DONTWAIT);
        if (n == 0)
            return ECONNRESET;
        if (n < 0 && errno != EAGAIN && errno != EINTR)
            return errno;
        done += n > 0 ? (size_t)n : 0;
    }
    return 0;
}

static int connect_once(const struct addrinfo *a, uint64_t until)
{
    struct pollfd p = { .events = POLLOUT };
    uint64_t now = hth_mono_ms();
    int e = 0, yes = 1;
    socklen_t len = sizeof(e);

    p.fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (p.fd < 0)
        return -1;
    if (connect(p.fd, a->ai_addr, a->ai_addrlen) != 0) {
        e = errno;
        if (e == EINPROGRESS && now < until && poll(&p, 1, (int)(until - now)) > 0)
            getsockopt(p.fd, SOL_SOCKET, SO_ERROR, &e, &len);
    }
    if (e) {
        close(p.fd);
        return -1;
    }
    setsockopt(p.fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
    return p.fd;
}

static int connect_to(struct tcp *t, uint64_t until, int *out_fd, struct hearth_error *err)
{
    static const struct timespec nap = { .tv_nsec = 20000000 };
    struct addrinfo *all;
    int fd = -1, rc;

    if ((rc = resolve(t, &all, err)))
        return rc;
    while (fd < 0 && hth_mono_ms() < until) {
        for (struct addrinfo *a = all; a && fd < 0; a = a->ai_next)
            fd = connect_once(a, until);
        if (fd < 0)
            nanosleep(&nap, NULL);
    }
    freeaddrinfo(all);
    if (fd < 0)
        return hth_fail(err, HEARTH_ETIMEOUT, 0,
                "rank %u: rank 0 does not listen at %s port %s after %u ms: is it running, and can "
                "this node reach it?",
                t->rank, t->host, t->port, t->deadline_ms);
    *out_fd = fd;
    return HEARTH_OK;
}

/* ---- a rank that comes ---------------------------------------------------------------------- */

static int hear_answer(
        struct tcp *t, int fd, void *all, size_t len, uint64_t until, struct hearth_error *err)
{
    struct answer a;
    char said[SAID_MAX] = "";
    int e = move(fd, &a, sizeof(a), 0, until);

    if (!e && a.magic == MAGIC && a.code == 0 && a.len == len) {
        e = move(fd, all, len, 0, until);
        t->round = a.round;
    } else if (!e && a.magic == MAGIC && a.code < 0 && a.len < sizeof(said)) {
        e = move(fd, said, a.len, 0, until);
        return hth_fail(err, e ? HEARTH_EPEER : a.code, e, "rank 0 says: %s", said);
    } else if (!e) {
        return hth_fail(err, HEARTH_EPROTO, 0,
                "what answers at %s port %s is not this job's rank 0", t->host, t->port);
    }
    if (e == ETIMEDOUT)
        return hth_fail(err, HEARTH_ETIMEOUT, 0,
                "rank %u: rank 0 is there, but sends no table after %u ms", t->rank,
                t->deadline_ms);
    if (e)
        return hth_fail(err, HEARTH_EPEER, e, "rank %u: the connection to rank 0 broke: %s",
                t->rank, strerror(e));
    return HEARTH_OK;
}

static int come(struct tcp *t, const void *mine, size_t len, void *all, struct hearth_error *err)
{
    uint64_t until = hth_until_ms((uint64_t)t->deadline_ms + GRACE_MS);
    struct greeting hello = { MAGIC, t->rank, t->world, t->round, (uint32_t)len };
    int fd = -1, e, rc;

    if ((rc = connect_to(t, until - GRACE_MS, &fd, err)))
        return rc;
    e = move(fd, &hello, sizeof(hello), 1, until);
    if (!e)
        e = move(fd, (void *)(uintptr_t)mine, len, 1, until);
    rc = e ? hth_fail(err, e == ETIMEDOUT ? HEARTH_ETIMEOUT : HEARTH_EPEER, e,
                     "rank %u: rank 0 does not take our data: %s", t->rank, strerror(e))
           : hear_answer(t, fd, all, len * t->world, until, err);
    close(fd);
    return rc;
}

/* ---- rank 0 --------------------------------------------------------------------------------- */

struct party {
    struct tcp *t;
    unsigned char *all; /* [world][len] */
    size_t len;
    struct guest *guest; /* [room] */
    struct pollfd *poll; /* [room + 1]: the last is the listener */
    size_t guests, room;
    unsigned char *there; /* [world] */
    int *fd;              /* [world] of those who came; -1 */
    uint32_t missing;
};

static void part_with(struct party *p, size_t i)
{
    close(p->guest[i].fd);
    p->guest[i] = p->guest[--p->guests];
}

/* All of a guest is here: his bytes are in place already. */
static void seat(struct party *p, size_t i)
{
    uint32_t rank = p->guest[i].hello.rank;

    if (p->fd[rank] >= 0)
        close(p->fd[rank]); /* he came before and comes again */
    if (p->t->round == FIRST_ROUND)
        p->t->round = p->guest[i].hello.round;
    p->missing -= !p->there[rank];
    p->there[rank] = 1;
    p->fd[rank] = p->guest[i].fd;
    p->guest[i] = p->guest[--p->guests];
}

/* A process that took the place of a lost one begins with the first round, whoever it is; what is
 * left in a queue of an older round than ours is nobody's any more. */
static int round_fits(uint32_t ours, uint32_t theirs)
{
    return theirs == ours || theirs == FIRST_ROUND || ours == FIRST_ROUND;
}

static int greeting_fits(const struct party *p, const struct greeting *g)
{
    return g->magic == MAGIC && g->world == p->t->world && g->rank && g->rank < g->world &&
           round_fits(p->t->round, g->round) && g->len == p->len;
}

/* Take what a guest has to say; 0: go on, 1: he is gone or seated (guest i is another one now). */
static int listen_to(struct party *p, size_t i)
{
    struct guest *g = &p->guest[i];
    const size_t head = sizeof(g->hello);
    char *at = g->got < head ? (char *)&g->hello + g->got
                             : (char *)p->all + (size_t)g->hello.rank * p->len + (g->got - head);
    size_t want = g->got < head ? head - g->got : head + p->len - g->got;
    ssize_t n = recv(g->fd, at, want, MSG_DONTWAIT);

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    g->got += n > 0 ? (size_t)n : 0;
    if (n <= 0 || (g->got == head && !greeting_fits(p, &g->hello))) {
        part_with(p, i);
        return 1;
    }
    if (g->got < head + p->len)
        return 0;
    seat(p, i);
    return 1;
}

static void let_in(struct party *p)
{
    int fd = accept4(p->t->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

    if (fd < 0)
        return;
    if (p->guests == p->room)
        part_with(p, 0); /* the longest here without a word */
    p->guest[p->guests++] = (struct guest){ .fd = fd };
}

static void wait_for_all(struct party *p, uint64_t until)
{
    while (p->missing) {
        uint64_t now = hth_mono_ms();

        if (now >= until)
            return;
        for (size_t i = 0; i < p->guests; i++)
            p->poll[i] = (struct pollfd){ .fd = p->guest[i].fd, .events = POLLIN };
        p->poll[p->guests] = (struct pollfd){ .fd = p->t->listener, .events = POLLIN };
        if (poll(p->poll, p->guests + 1, (int)(until - now)) <= 0)
            continue;
        if (p->poll[p->guests].revents & POLLIN) {
            let_in(p);
            continue; /* the places have changed */
        }
        for (size_t i = p->guests; i-- > 0;) /* from the end: who goes is replaced by the last */
            if (p->poll[i].revents)
                listen_to(p, i);
    }
}

static int answer_all(struct party *p, int code, const char *text, struct hearth_error *err)
{
    size_t bytes = code ? strnlen(text, SAID_MAX - 1) : p->len * p->t->world;
    struct answer a = { .magic = MAGIC, .code = code, .round = p->t->round, .len = bytes };
    void *body = code ? (void *)(uintptr_t)text : p->all;
    uint64_t until = hth_until_ms(p->t->deadline_ms);
    int rc = HEARTH_OK;

    for (uint32_t i = 1; i < p->t->world; i++) {
        int e;

        if (p->fd[i] < 0)
            continue;
        e = move(p->fd[i], &a, sizeof(a), 1, until);
        if (!e)
            e = move(p->fd[i], body, bytes, 1, until);
        if (e && !rc && !code)
            rc = hth_fail(err, HEARTH_EPEER, e, "rank %u left before it had the table: %s", i,
                    strerror(e));
    }
    return rc;
}

static int host(struct party *p, struct hearth_error *err)
{
    char who[200], text[SAID_MAX + 300];

    wait_for_all(p, hth_until_ms(p->t->deadline_ms));
    if (!p->missing)
        return answer_all(p, HEARTH_OK, NULL, err);
    hth_ranks_text(who, sizeof(who), p->there, p->t->world);
    snprintf(text, sizeof(text),
            "%u of %u ranks did not come to %.200s port %s in %u ms: %s: look at their output",
            p->missing, p->t->world, p->t->host, p->t->port, p->t->deadline_ms, who);
    answer_all(p, HEARTH_ETIMEOUT, text, NULL);
    return hth_fail(err, HEARTH_ETIMEOUT, 0, "%s", text);
}

static void party_fini(struct party *p)
{
    while (p->guests)
        part_with(p, 0);
    for (uint32_t i = 0; p->fd && i < p->t->world; i++)
        if (p->fd[i] >= 0)
            close(p->fd[i]);
    free(p->guest);
    free(p->poll);
    free(p->there);
    free(p->fd);
}

static int receive(struct tcp *t, const void *mine, size_t len, void *all, struct hearth_error *err)
{
    struct party p = { .t = t, .all = all, .len = len, .missing = t->world - 1 };
    int rc;

    p.room = (size_t)t->world + STRANGERS;
    p.guest = calloc(p.room, sizeof(*p.guest));
    p.poll = calloc(p.room + 1, sizeof(*p.poll));
    p.there = calloc(t->world, 1);
    p.fd = malloc(t->world * sizeof(*p.fd));
    if (p.fd)
        memset(p.fd, 0xff, t->world * sizeof(*p.fd));
    if (p.guest && p.poll && p.there && p.fd) {
        memcpy(all, mine, len);
        p.there[0] = 1;
        rc = host(&p, err);
    } else {
        rc = hth_fail(err, HEARTH_ENOMEM, 0, "no memory to receive %u ranks", t->world);
    }
    party_fini(&p);
    return rc;
}

static int allgather(void *self, const void *mine, size_t len, void *all, struct hearth_error *err)
{
    struct tcp *t = self;

    t->round++;
    if (t->rank == 0)
        return receive(t, mine, len, all, err);
    return come(t, mine, len, all, err);
}

/* ---- opening -------------------------------------------------------------------------------- */

static void tcp_close(struct hearth_bootstrap *bootstrap)
{
    struct tcp *t = bootstrap->self;

    if (t->listener >= 0)
        close(t->listener);
    free(t);
}

int hearth_bootstrap_tcp(const char *host_name, uint16_t port, uint32_t rank, uint32_t world,
        uint32_t deadline_ms, struct hearth_bootstrap **out, struct hearth_error *err)
{
    struct tcp *t;
    int rc;

    if ((rc = hth_bootstrap_check(rank, world, deadline_ms, out, err)))
        return rc;
    if (!host_name || !host_name[0] || strlen(host_name) >= sizeof(t->host) || !port)
        return hth_fail(err, HEARTH_EINVAL, 0,
                "the meeting place needs the host name or address of rank 0 and a port");
    t = calloc(1, sizeof(*t));
    if (!t)
        return hth_fail(err, HEARTH_ENOMEM, 0, "no memory for a bootstrap");
    t->base = (struct hearth_bootstrap){ .allgather = allgather, .close = tcp_close, .self = t };
    snprintf(t->host, sizeof(t->host), "%s", host_name);
    snprintf(t->port, sizeof(t->port), "%u", port);
    t->rank = rank;
    t->world = world;
    t->deadline_ms = deadline_ms;
    t->listener = -1;
    if (rank == 0 && world > 1 && (rc = listen_at(t, err))) {
        free(t);
        return rc;
    }
    *out = &t->base;
    return HEARTH_OK;
}

int hearth_bootstrap_tcp_from_env(uint32_t deadline_ms, struct hearth_bootstrap **out,
        uint32_t *out_rank, uint32_t *out_world, struct hearth_error *err)
{
    const char *where = getenv("MASTER_ADDR");
    uint32_t rank, world, port;
    int rc;

    if (!where || !where[0])
        return hth_fail(err, HEARTH_EINVAL, 0,
                "MASTER_ADDR is not set: start with torchrun, or set MASTER_ADDR, MASTER_PORT, "
                "RANK and WORLD_SIZE");
    rc = hth_env_number("HEARTH_PORT", 65535, &port, err);
    if (rc == HEARTH_ENOENT && !(rc = hth_env_number("MASTER_PORT", 65534, &port, err)))
        port++;
    if (rc || (rc = hth_env_number("RANK", UINT32_MAX - 1, &rank, err)) ||
            (rc = hth_env_number("WORLD_SIZE", 1u << 20, &world, err)))
        return rc == HEARTH_ENOENT
                       ? hth_while(err, HEARTH_EINVAL, "bootstrap from torchrun's variables")
                       : rc;
    rc = hearth_bootstrap_tcp(where, (uint16_t)port, rank, world, deadline_ms, out, err);
    if (!rc && out_rank)
        *out_rank = rank;
    if (!rc && out_world)
        *out_world = world;
    return rc;
}
