/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Joining an epoch: every rank brings 512 bytes about itself and its node, all get the same
 * table, and each hands it to its node's engine, which makes the epoch of it. The table is kept:
 * an engine that was restarted since is given it again.
 */
#include "join.h"

#include "client/base/memfd.h"
#include "client/link/link.h"
#include "client/opts/told.h"
#include "client/slots/slots.h"
#include "core/base/auth.h"
#include "joining.h"
#include "meet.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static uint64_t join_domain_hash(const char *name)
{
    unsigned char digest[HTH_DIGEST];
    uint64_t v;

    hth_digest(digest, name, strlen(name));
    memcpy(&v, digest, sizeof(v));
    return v ? v : 1;
}

static uint64_t join_wall_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_REALTIME, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static void join_own_row(struct hearth *h, unsigned char out[HTH_GATHER])
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
    memcpy(g.provider, a->provider, sizeof(g.provider));
    for (size_t i = 0; i < h->opts.domain_count; i++)
        g.domain[i] = join_domain_hash(h->opts.domains[i]);
    for (size_t i = 0; i < h->opts.object_count; i++)
        g.shard_bytes += hth_file_bytes(h->opts.object_bytes[i]);
    if (h->joining->rounds) { /* what attach said is of the round before */
        g.wall_ms = join_wall_ms();
        hth_random_bytes(&g.random, sizeof(g.random));
        seen = hth_epoch_seen(h->epoch, h->nonce, &g.random);
        if (seen > g.highest_epoch)
            g.highest_epoch = seen;
    }
    hth_gather_encode(&g, out);
}

int hth_joining_open(struct hearth *h)
{
    h->joining = calloc(1, sizeof(*h->joining));
    return h->joining ? HEARTH_OK : HEARTH_ENOMEM;
}

void hth_joining_close(struct hearth *h)
{
    if (h->joining)
        hth_wipe(h->joining, sizeof(*h->joining));
    free(h->joining);
}

void hth_set_recovered(struct hearth *h, int recovered)
{
    pthread_mutex_lock(&h->lock);
    h->joining->recovered = recovered;
    pthread_mutex_unlock(&h->lock);
}

int hth_has_recovered(struct hearth *h)
{
    int recovered;

    pthread_mutex_lock(&h->lock);
    recovered = h->joining->recovered;
    pthread_mutex_unlock(&h->lock);
    return recovered;
}

static int join_ask(
        struct hearth *h, int table_fd, struct hth_local_joined *out, struct hearth_error *err)
{
    struct hth_local_join m;
    struct hth_ask ask = { .msg = &m,
        .len = sizeof(m),
        .type = HTH_LOCAL_JOIN,
        .want = HTH_LOCAL_JOINED,
        .fd = table_fd,
        .again = 1,
        .answer = out,
        .answer_len = sizeof(*out),
        .wait_ms = h->opts.open_ms,
        .what = "join the epoch" };

    hth_opts_told(&h->opts, &m);
    return hth_ask(h, &ask, err);
}

/* Nobody would be told otherwise: the others would wait for us, and rank 0's meeting place would be shut. */
void hth_join_absent(struct hearth *h, const struct hearth_error *why)
{
    struct hth_gather g = {
        .flags = HTH_GATHER_ABSENT, .code = why->code, .rank = h->opts.rank, .world = h->opts.world
    };
    unsigned char own[HTH_GATHER], *table = malloc((size_t)h->opts.world * HTH_GATHER);

    if (!table)
        return;
    memcpy(g.job, h->opts.job, strlen(h->opts.job) + 1);
    if (h->opts.node)
        memcpy(g.node, h->opts.node, strlen(h->opts.node) + 1);
    else
        gethostname(g.node, sizeof(g.node) - 1); /* checked before */
    snprintf(g.why, sizeof(g.why), "%.*s", (int)HTH_WHY_MAX, why->text);
    hth_gather_encode(&g, own);
    hth_meet(h, own, table,
            NULL); /* it may fail for them as well: they have their own word for it */
    free(table);
}

int hth_join(struct hearth *h, struct hearth_error *err)
{
    size_t len = (size_t)h->opts.world * HTH_GATHER;
    unsigned char own[HTH_GATHER], *table = malloc(len);
    struct hth_local_joined a;
    int rc, fd;

    if (!table)
        return hth_fail(err, HEARTH_ENOMEM, 0, "no memory for a table of %zu bytes", len);
    pthread_mutex_lock(&h->lock);
    hth_ahead_back_locked(h); /* recovery may want it */
    pthread_mutex_unlock(&h->lock);
    join_own_row(h, own);
    h->joining->rounds++;
    rc = hth_meet(h, own, table, err);
    fd = rc ? -1 : hth_memfd("hearth-table", table, len);
    free(table);
    if (!rc && fd < 0)
        rc = hth_fail(err, HEARTH_ENOMEM, 0, "no memory for a table of %zu bytes", len);
    if (!rc && (rc = join_ask(h, fd, &a, err)))
        close(fd);
    if (!rc) {
        hth_link_joined(h, &a, fd);
        hth_set_recovered(h, 0);
    }
    return rc;
}

int hth_join_to_recover(struct hearth *h, struct hearth_error *err)
{
    int again = h->joining->asked;

    h->joining->asked = 1;
    return again ? hth_join(h, err) : HEARTH_OK;
}
