/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Joining an epoch: every rank brings 512 bytes about itself and its node, all get the same
 * table, and each hands it to its node's engine, which makes the epoch of it. The table is kept:
 * an engine that was restarted since is given it again.
 */
#include "join.h"

#include "client/base/clock.h"
#include "client/base/limits.h"
#include "client/base/machine.h"
#include "client/base/memfd.h"
#include "client/link/link.h"
#include "client/link/mapped.h"
#include "client/opts/told.h"
#include "core/base/auth.h"
#include "core/base/network.h"
#include "core/format/fabric.h"
#include "joining.h"
#include "meet.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

_Static_assert(HTH_OBJECTS_MAX == HTH_SIZES_OBJECTS, "of one save of a rank");

/* An engine that ends for another fabric comes back by itself; a second one would be in its way,
 * and might be started where that one ends with the trainer. */
#define COMES_BACK_MS 3000u

/* That may end, one after the other, while they meet the others for a rank. */
#define ENGINES       4u

/* Of one joining: each takes a fabric from a node's list, or is the last. */
#define MEETINGS      64u

static uint64_t join_wall_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_REALTIME, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

/* Fabrics that this node may still change to. None if the rank wants the one that the engine has.
 * An engine in an epoch would have to end for another fabric: it does only with allow_slower. */
static uint32_t join_fabrics(const struct hearth *h, const struct hth_local_attached *a)
{
    const struct hth_fabric *opened = hth_fabric_find(a->transport, a->provider);
    int by_hand = h->wants.provider ||
                  (h->wants.transport && strcmp(h->wants.transport, HTH_TRANSPORT_AUTO) != 0);

    if (by_hand || !a->fabrics)
        return 0;
    return (a->epoch || h->epoch) && !h->opts.allow_slower && opened
                   ? HTH_FABRIC_BIT(opened->number)
                   : a->fabrics;
}

/* The id of this node's loopback, and whether its engine listens there by IP. */
static uint32_t join_loopback(const struct hearth *h, const struct hth_local_attached *a)
{
    const char *bind = h->opts.bind ? h->opts.bind : "127.0.0.1";
    int ip = strstr(a->transport, "tcp") || strstr(a->provider, "tcp");
    uint32_t id = hth_loopback_id();
    int listens = ip && hth_address_reach(bind) == HTH_REACH_LOOPBACK;

    return id && listens ? id | HTH_LOOPBACK_LISTENS : id;
}

static void join_sizes(const struct hearth *h, struct hth_sizes *out)
{
    uint64_t bytes[HTH_OBJECTS_MAX];
    size_t count = h->opts.object_count < HTH_OBJECTS_MAX ? h->opts.object_count : HTH_OBJECTS_MAX;

    for (size_t i = 0; i < count; i++)
        bytes[i] = hth_file_bytes(h->opts.object_bytes[i]);
    hth_sizes_of(out, bytes, count);
}

/* Another thread that waits for the engine may attach to the next one meanwhile. */
static struct hth_local_attached join_attached(struct hearth *h)
{
    struct hth_local_attached a;

    pthread_mutex_lock(&h->lock);
    a = h->attached;
    pthread_mutex_unlock(&h->lock);
    return a;
}

static void join_own_row(struct hearth *h, unsigned char out[HTH_GATHER])
{
    const struct hth_local_attached attached = join_attached(h), *a = &attached;
    struct hth_gather g = { .store = a->store,
        .highest_epoch = a->highest_epoch,
        .wall_ms = a->wall_ms,
        .random = a->random,
        .copies = h->opts.copies,
        .min_copies = h->opts.min_copies,
        .keep = h->opts.keep,
        .bad_after = h->opts.bad_after,
        .flags = (h->opts.allow_degraded ? HTH_GATHER_ALLOW_DEGRADED : 0) |
                 (h->opts.allow_slower ? HTH_GATHER_ALLOW_SLOWER : 0) |
                 (h->opts.network == HEARTH_NETWORK_TRUSTED ? HTH_GATHER_TRUSTED : 0) |
                 (h->opts.integrity == HEARTH_INTEGRITY_STRONG ? HTH_GATHER_STRONG : 0),
        .heartbeat_ms = a->heartbeat_ms ? a->heartbeat_ms : h->opts.heartbeat_ms,
        .dead_ms = a->dead_ms ? a->dead_ms : h->opts.dead_ms,
        .version_low = a->version_low,
        .version_high = a->version_high,
        .addr_len = a->addr_len,
        .fabrics = join_fabrics(h, a),
        .first_fabric = a->first_fabric,
        .rank = h->opts.rank,
        .world = h->opts.world };
    uint64_t seen;

    memcpy(g.job, h->opts.job, strlen(h->opts.job) + 1);
    memcpy(g.node, a->node, strnlen(a->node, HTH_NAME_MAX));
    memcpy(g.addr, a->addr, a->addr_len);
    memcpy(g.transport, a->transport, sizeof(g.transport));
    memcpy(g.provider, a->provider, sizeof(g.provider));
    for (size_t i = 0; i < h->opts.domain_count; i++)
        g.domain[i] = hth_domain_hash(h->opts.domains[i]);
    g.machine = h->opts.machine ? hth_domain_hash(h->opts.machine) : 0;
    g.loopback = join_loopback(h, a);
    join_sizes(h, &g.objects);
    if (h->joining->rounds) { /* the facts that attach returned are of the round before */
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

/* The other ranks would wait for this one otherwise, and rank 0's meeting place would be shut. */
static void join_tell_absent(struct hearth *h, uint64_t until, const struct hearth_error *why)
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
    hth_meet(h, 1, until, own, table,
            NULL); /* a failure is ignored: the other ranks have errors of their own for it */
    free(table);
}

void hth_join_absent(struct hearth *h, const struct hearth_error *why)
{
    join_tell_absent(h, hth_meet_until(h), why);
}

/* Gives the other ranks the error that this rank's caller gets: `why`, whose code is rc. */
static int join_give_up(struct hearth *h, uint64_t until, int rc, const struct hearth_error *why,
        struct hearth_error *err)
{
    join_tell_absent(h, until, why);
    if (err)
        *err = *why;
    return rc;
}

/* Makes this node's engine take the fabric; the engine answers with the fabric that it has
 * afterwards. */
static int join_refit(struct hearth *h, uint32_t fabric, struct hearth_error *err)
{
    struct hth_local_refit m = { .fabric = fabric };
    struct hth_local_refitted a;
    struct hth_ask ask = { .msg = &m,
        .len = sizeof(m),
        .type = HTH_LOCAL_REFIT,
        .want = HTH_LOCAL_REFITTED,
        .fd = -1,
        .again = 1,
        .answer = &a,
        .answer_len = sizeof(a),
        .wait_ms = h->opts.open_ms,
        .what = "take the fabric that all nodes have" };
    int rc;

    hth_link_awaits(h, COMES_BACK_MS);
    if ((rc = hth_ask(h, &ask, err)))
        return rc;
    if (a.addr_len > HTH_ADDR_MAX)
        return hth_fail(err, HEARTH_EPROTO, 0,
                "the engine's answer is not valid: engine and library are not of one version");
    pthread_mutex_lock(&h->lock);
    h->attached.fabrics = a.fabrics;
    h->attached.port = a.port;
    h->attached.addr_len = a.addr_len;
    memcpy(h->attached.addr, a.addr, sizeof(a.addr));
    snprintf(h->attached.transport, sizeof(h->attached.transport), "%.*s", HTH_BACKEND_MAX,
            a.transport);
    snprintf(h->attached.provider, sizeof(h->attached.provider), "%.*s", HTH_PROVIDER_MAX,
            a.provider);
    pthread_mutex_unlock(&h->lock);
    return HEARTH_OK;
}

/* This rank's row of the table names the engine that runs now, not one that has ended. */
static int join_find_engine(struct hearth *h, uint64_t until, struct hearth_error *err)
{
    int rc;

    pthread_mutex_lock(&h->lock);
    hth_hear_locked(h); /* the end of one that is gone */
    rc = hth_connected_locked(h, until, err);
    if (!rc) { /* recovery may want them, and slots of other sizes */
        hth_ahead_back_locked(h);
        hth_slots_let_go_all_locked(h);
    }
    pthread_mutex_unlock(&h->lock);
    hth_slots_let_go(h);
    return rc;
}

/* The engine may end while it meets the others. Then the row is made for the next engine, in the
 * time that is left. If it has not ended, the error is another rank's. */
static int join_gather(struct hearth *h, unsigned char *table, struct hearth_error *err)
{
    uint64_t until = hth_meet_until(h);
    unsigned char own[HTH_GATHER];
    struct hearth_error why;
    uint64_t search;
    int rc;

    for (unsigned left = ENGINES;; left--) {
        join_own_row(h, own);
        h->joining->rounds++;
        rc = hth_meet(h, 0, until, own, table, err);
        if (rc != HEARTH_EENGINE || hth_is_connected(h) || left == 1 || hth_mono_ms() >= until)
            return rc;
        search = hth_until_ms(h->opts.open_ms);
        if ((rc = join_find_engine(h, search < until ? search : until, &why)))
            return join_give_up(h, until, rc, &why, err);
    }
}

static int join_meet_once(struct hearth *h, unsigned char *table, struct hth_fabric_choice *out,
        struct hearth_error *err)
{
    int rc = join_gather(h, table, err);

    rc = rc ? rc : hth_loopback_check(table, h->opts.world, err);
    return rc ? rc : hth_fabric_choose(table, h->opts.world, out, err);
}

/* Meets until all nodes listen on the fabric that was chosen: once, if they are alike. Each further
 * meeting follows from the table of the one before, so all ranks come to it. */
static int join_meet(struct hearth *h, unsigned char *table, struct hearth_error *err)
{
    struct hth_fabric_choice c = { 0 };
    char text[HTH_FABRIC_TEXT];
    struct hearth_error why;
    int rc;

    for (unsigned left = MEETINGS; !(rc = join_meet_once(h, table, &c, err)) && !c.settled;
            left--) {
        if (!left)
            return hth_fail(err, HEARTH_EPROTO, 0,
                    "the nodes do not come to one fabric: set transport and provider");
        if ((rc = join_refit(h, c.fabric, &why)))
            return join_give_up(h, hth_meet_until(h), rc, &why, err);
    }
    if (rc || !c.fabric)
        return rc;
    hth_fabric_say(&c, table, text);
    hth_line_add(&h->lines, HEARTH_LOG_INFO, "fabric", "job %s rank %u: %s", h->opts.job,
            h->opts.rank, text);
    return HEARTH_OK;
}

int hth_join(struct hearth *h, struct hearth_error *err)
{
    size_t len = (size_t)h->opts.world * HTH_GATHER;
    unsigned char *table = malloc(len);
    struct hth_local_joined a;
    struct hearth_error why;
    int rc, fd;

    if (!table)
        return hth_fail(err, HEARTH_ENOMEM, 0, "no memory for a table of %zu bytes", len);
    rc = join_find_engine(h, hth_until_ms(h->opts.open_ms), &why);
    rc = rc ? join_give_up(h, hth_meet_until(h), rc, &why, err) : join_meet(h, table, err);
    fd = rc ? -1 : hth_memfd("hearth-table", table, len, err);
    free(table);
    if (!rc && fd < 0)
        rc = hth_while(err, HEARTH_ENOMEM, "the table of the ranks");
    hth_link_joins(h, 1);
    if (!rc && (rc = join_ask(h, fd, &a, err)))
        close(fd);
    hth_link_joins(h, 0);
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
