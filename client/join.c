/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Joining an epoch: every rank brings 512 bytes about itself and its node, all get the same
 * table, and each hands it to its node's engine, which makes the epoch of it. The table is kept:
 * an engine that was restarted since is given it again.
 */
#include "client.h"

#include "core/base/auth.h"
#include "told.h"
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static uint64_t domain_hash(const char *name)
{
    unsigned char digest[HTH_DIGEST];
    uint64_t v;

    hth_digest(digest, name, strlen(name));
    memcpy(&v, digest, sizeof(v));
    return v ? v : 1;
}

static uint64_t wall_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_REALTIME, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static void mine(struct hearth *h, unsigned char out[HTH_GATHER])
{
    const struct hth_local_attached *a = &h->attached;
    struct hth_gather g = { .store = a->store,
        .highest_epoch = a->highest_epoch,
        .wall_ms = a->wall_ms,
        .random = a->random,
        .copies = h->opts.copies,
        .min_copies = h->opts.min_copies,
        .keep = h->opts.keep,
        .flags = (h->opts.allow_degraded ? HTH_GATHER_ALLOW_DEGRADED : 0) |
                 (h->opts.network == HEARTH_NETWORK_TRUSTED ? HTH_GATHER_TRUSTED : 0),
        .heartbeat_ms = a->heartbeat_ms ? a->heartbeat_ms : h->opts.heartbeat_ms,
        .dead_ms = a->dead_ms ? a->dead_ms : h->opts.dead_ms,
        .version_low = a->version_low,
        .version_high = a->version_high,
        .addr_len = a->addr_len,
        .rank = h->opts.rank,
        .world = h->opts.world };
    uint64_t seen;

    memcpy(g.job, h->opts.job, strlen(h->opts.job) + 1);
    memcpy(g.node, a->node, strnlen(a->node, HTH_NAME_MAX));
    memcpy(g.addr, a->addr, a->addr_len);
    memcpy(g.transport, a->transport, sizeof(g.transport));
    for (size_t i = 0; i < h->opts.domain_count; i++)
        g.domain[i] = domain_hash(h->opts.domains[i]);
    for (size_t i = 0; i < h->opts.object_count; i++)
        g.shard_bytes += hth_file_bytes(h->opts.object_bytes[i]);
    if (h->rounds) { /* what attach said is of the round before */
        g.wall_ms = wall_ms();
        hth_random_bytes(&g.random, sizeof(g.random));
        seen = hth_epoch_seen(h->epoch, h->nonce, &g.random);
        if (seen > g.highest_epoch)
            g.highest_epoch = seen;
    }
    hth_gather_encode(&g, out);
}

static int tell_engine(struct hearth *h, int table_fd, struct hearth_error *err)
{
    struct hth_local_join m;
    struct hth_local_joined a;
    struct hth_ask ask = { .msg = &m,
        .len = sizeof(m),
        .type = HTH_LOCAL_JOIN,
        .want = HTH_LOCAL_JOINED,
        .fd = table_fd,
        .again = 1,
        .answer = &a,
        .answer_len = sizeof(a),
        .wait_ms = h->opts.open_ms,
        .what = "join the epoch" };
    int rc;

    hth_opts_told(&h->opts, &m);
    if ((rc = hth_ask(h, &ask, err)))
        return rc;
    pthread_mutex_lock(&h->lock);
    h->epoch = a.epoch;
    h->nonce = a.nonce;
    h->joined = a.opts;
    h->recovered = 0;
    pthread_mutex_unlock(&h->lock);
    return HEARTH_OK;
}

int hth_join(struct hearth *h, struct hearth_error *err)
{
    size_t len = (size_t)h->opts.world * HTH_GATHER;
    unsigned char own[HTH_GATHER], *table = malloc(len);
    int rc, fd;

    if (!table)
        return hth_fail(err, HEARTH_ENOMEM, 0, "no memory for a table of %zu bytes", len);
    mine(h, own);
    h->rounds++;
    rc = hth_meet(h, own, table, err);
    fd = rc ? -1 : hth_memfd("hearth-table", table, len);
    free(table);
    if (!rc && fd < 0)
        rc = hth_fail(err, HEARTH_ENOMEM, 0, "no memory for a table of %zu bytes", len);
    if (!rc && (rc = tell_engine(h, fd, err)))
        close(fd);
    if (!rc) {
        pthread_mutex_lock(&h->lock);
        if (h->table_fd >= 0)
            close(h->table_fd);
        h->table_fd = fd;
        pthread_mutex_unlock(&h->lock);
    }
    return rc;
}
