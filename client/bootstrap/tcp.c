/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An all-gather over TCP. Rank 0 listens for as long as the bootstrap lives; each round the others
 * come to it with a connection of their own, which ends with the round. What they say is drawn in
 * client/bootstrap/rendezvous.h, rank 0's side is host.c, the others' guest.c.
 */
#include "tcp.h"

#include "client/base/clock.h"
#include "guest.h"
#include "host.h"
#include "name.h"
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define IN_USE_MS 5000u /* that a rank 0 which is ending may still have the port */

/* ---- listening ----------------------------------------------------------------------------- */

static int tcp_listen_once(const struct addrinfo *all, int *out_fd)
{
    int e = EADDRNOTAVAIL, yes = 1;

    for (const struct addrinfo *a = all; a; a = a->ai_next) {
        int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

        if (fd >= 0)
            setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
        if (fd >= 0 && bind(fd, a->ai_addr, a->ai_addrlen) == 0 && listen(fd, 4096) == 0) {
            *out_fd = fd;
            return 0;
        }
        e = errno;
        if (fd >= 0)
            close(fd);
    }
    return e;
}

static int tcp_listen(struct hth_tcp *t, struct hearth_error *err)
{
    static const struct timespec nap = { .tv_nsec = 50000000 };
    uint64_t until = hth_until_ms(t->deadline_ms < IN_USE_MS ? t->deadline_ms : IN_USE_MS);
    struct addrinfo *all;
    int e, rc = hth_name_ask(t, hth_until_ms(t->deadline_ms), &all, err);

    if (rc)
        return rc;
    while ((e = tcp_listen_once(all, &t->listener)) == EADDRINUSE && hth_mono_ms() < until)
        nanosleep(&nap, NULL);
    freeaddrinfo(all);
    if (e)
        return hth_fail(err, HEARTH_EINVAL, e,
                "rank 0 cannot listen at %s port %s: %s: give an address of rank 0's node and a "
                "free port",
                t->host, t->port, strerror(e));
    return HEARTH_OK;
}

/* ---- opening -------------------------------------------------------------------------------- */

static int tcp_allgather(
        void *self, const void *mine, size_t len, void *all, struct hearth_error *err)
{
    struct hth_tcp *t = self;

    return t->rank == 0 ? hth_host(t, mine, len, all, err) : hth_come(t, mine, len, all, err);
}

void hth_bootstrap_tell(const struct hearth_bootstrap *bootstrap, const char *job,
        const unsigned char (*key)[HTH_KEY], unsigned keys, int trusted)
{
    struct hth_tcp *t = bootstrap->self;

    if (bootstrap->allgather != tcp_allgather)
        return;
    t->knows.told = 1;
    t->knows.trusted = trusted;
    t->knows.keyed = keys;
    snprintf(t->knows.job, sizeof(t->knows.job), "%s", job);
    if (keys)
        memcpy(t->knows.key, key, (size_t)keys * HTH_KEY);
}

static void tcp_close(struct hearth_bootstrap *bootstrap)
{
    struct hth_tcp *t = bootstrap->self;

    if (t->listener >= 0)
        close(t->listener);
    hth_wipe(&t->knows, sizeof(t->knows));
    free(t);
}

int hearth_bootstrap_tcp(const char *host_name, uint16_t port, uint32_t rank, uint32_t world,
        uint32_t deadline_ms, struct hearth_bootstrap **out, struct hearth_error *err)
{
    struct hth_tcp *t;
    int rc;

    if ((rc = hth_bootstrap_check(rank, world, deadline_ms, out, err)))
        return rc;
    if (!host_name || !host_name[0] || strlen(host_name) >= sizeof(t->host) || !port)
        return hth_fail(err, HEARTH_EINVAL, 0,
                "the meeting place needs the host name or address of rank 0 and a port");
    if ((rc = hth_auth_init(err)))
        return rc;
    t = calloc(1, sizeof(*t));
    if (!t)
        return hth_fail(err, HEARTH_ENOMEM, 0, "no memory for a bootstrap");
    t->base = (struct hearth_bootstrap){
        .struct_size = sizeof(t->base), .allgather = tcp_allgather, .close = tcp_close, .self = t
    };
    snprintf(t->host, sizeof(t->host), "%s", host_name);
    snprintf(t->port, sizeof(t->port), "%u", port);
    t->rank = rank;
    t->world = world;
    t->deadline_ms = deadline_ms;
    t->listener = -1;
    hth_random_bytes(t->token, sizeof(t->token));
    if (rank == 0 && world > 1 && (rc = tcp_listen(t, err))) {
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
