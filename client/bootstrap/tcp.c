/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An all-gather over TCP. Rank 0 listens for as long as the bootstrap lives; each round the others
 * come to it with a connection of their own, which ends with the round. What they say is drawn in
 * client/bootstrap/rendezvous.h, rank 0's side is host.c, the others' guest.c.
 */
#include "tcp.h"

#include "guest.h"
#include "host.h"
#include "listen.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

void hth_bootstrap_mates(const struct hearth_bootstrap *bootstrap, const struct hth_mates *mates)
{
    struct hth_tcp *t = bootstrap->self;

    if (bootstrap->allgather == tcp_allgather)
        t->mates = *mates;
}

void hth_bootstrap_tree_from(const struct hearth_bootstrap *bootstrap, uint64_t bytes)
{
    struct hth_tcp *t = bootstrap->self;

    if (bootstrap->allgather == tcp_allgather)
        t->tree_from = bytes;
}

static void tcp_close(struct hearth_bootstrap *bootstrap)
{
    struct hth_tcp *t = bootstrap->self;

    hth_listen_end(t);
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
    hth_random_bytes(t->token, sizeof(t->token));
    if (rank == 0 && world > 1 && (rc = hth_listen(t, err))) {
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
