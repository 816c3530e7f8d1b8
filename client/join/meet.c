/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The all-gather of a joining, over whichever bootstrap. Over TCP one rank of a node receives the
 * table, and the others receive it from their engine. Each row is proved with a key of the
 * job's, so that no bootstrap, of ours or the caller's own, need be believed: a row without that
 * proof ends the joining by name. The job key itself is read, used and forgotten, for each joining anew: it may have
 * been changed, and two are taken meanwhile.
 */
#include "meet.h"

#include "client/base/memfd.h"
#include "client/bootstrap/rendezvous.h"
#include "client/link/link.h"
#include "core/base/auth.h"
#include "core/base/file.h"
#include "core/format/fabric.h"
#include "joining.h"
#include <string.h>
#include <unistd.h>

static int meet_key(struct hearth *h, struct hearth_error *err)
{
    struct hth_key key;
    int rc;

    if (!h->opts.key_file)
        return HEARTH_OK;
    if ((rc = hth_key_open(h->opts.key_file, &key, err)))
        return h->joining->keyed ? HEARTH_OK
                                 : rc; /* the file has gone, and the key it held goes on */
    hth_subkey(h->joining->key[0], key.bytes, HTH_GATHER_PURPOSE);
    if (key.other)
        hth_subkey(h->joining->key[1], key.other, HTH_GATHER_PURPOSE);
    h->joining->keyed = key.other ? 2 : 1;
    hth_key_close(&key);
    return HEARTH_OK;
}

static int meet_bring(void *self, uint32_t round, const void *packed, size_t len)
{
    struct hth_local_meet m = { .round = round };
    struct hth_ask tell = { .msg = &m,
        .len = sizeof(m),
        .type = HTH_LOCAL_BRING,
        .fd = hth_memfd("hearth-table", packed, len, NULL),
        .what = "give the ranks' table to this node's other ranks" };
    int rc = tell.fd < 0 ? HEARTH_ENOMEM : hth_tell(self, &tell, NULL);

    if (tell.fd >= 0)
        close(tell.fd);
    return rc;
}

/* ask: its answer is the table. */
static int meet_ask_table(
        struct hearth *h, struct hth_ask *ask, uint64_t wait_ms, void *out, size_t len)
{
    struct hth_local_bytes a;
    int fd = -1, rc;

    ask->want = HTH_LOCAL_BYTES;
    ask->answer = &a;
    ask->answer_len = sizeof(a);
    ask->out_fd = &fd;
    ask->wait_ms = wait_ms + 1;
    rc = hth_ask(h, ask, NULL);
    if (!rc)
        rc = a.len == len && fd >= 0 && !hth_file_fill(fd, out, len, 0) ? HEARTH_OK : HEARTH_EPROTO;
    if (fd >= 0)
        close(fd);
    return rc;
}

static int meet_take(void *self, uint32_t round, uint64_t wait_ms, void *out, size_t len)
{
    struct hth_local_meet m = { .round = round, .wait_ms = (uint32_t)wait_ms };
    struct hth_ask ask = { .msg = &m,
        .len = sizeof(m),
        .type = HTH_LOCAL_MEET,
        .fd = -1,
        .what = "receive the ranks' table from this node's engine" };

    return meet_ask_table(self, &ask, wait_ms, out, len);
}

static int meet_fetch(void *self, uint32_t round, uint64_t wait_ms,
        const unsigned char ticket[HTH_TICKET], void *out, size_t len)
{
    struct hth_local_fetch m = { .round = round, .wait_ms = (uint32_t)wait_ms };
    struct hth_ask ask = { .msg = &m,
        .len = sizeof(m),
        .type = HTH_LOCAL_FETCH,
        .fd = -1,
        .what = "receive the ranks' table from another node's engine" };

    memcpy(m.ticket, ticket, HTH_TICKET);
    return meet_ask_table(self, &ask, wait_ms, out, len);
}

static int meet_place(void *self, const void *row, struct hth_member *out)
{
    struct hth_gather g;

    (void)self;
    if (hth_gather_decode(&g, row, NULL) || (g.flags & HTH_GATHER_ABSENT) || !g.addr_len)
        return HEARTH_EINVAL;
    *out = (struct hth_member){ .store = g.store, .addr_len = g.addr_len };
    memcpy(out->node, g.node, sizeof(out->node));
    memcpy(out->addr, g.addr, sizeof(out->addr));
    return HEARTH_OK;
}

/* Engines reach each other on one fabric only. Where not all have it yet, or all are to take a
 * better one, an engine ends as soon as a rank of its node has the table, and ranks meet again. */
static int meet_alike(void *self, const void *table, uint32_t world)
{
    const unsigned char *row = table;
    struct hth_gather first = { 0 }, g;
    struct hth_fabric_choice choice;

    (void)self;
    for (uint32_t i = 0; i < world; i++, row += HTH_GATHER) {
        if (hth_gather_decode(&g, row, NULL))
            return HEARTH_EINVAL;
        if (g.flags & HTH_GATHER_ABSENT)
            continue;
        if (!first.world)
            first = g;
        if (strcmp(g.transport, first.transport) != 0 || strcmp(g.provider, first.provider) != 0)
            return HEARTH_EINVAL;
    }
    return !hth_fabric_choose(table, world, &choice, NULL) && !choice.settled ? HEARTH_EINVAL
                                                                              : HEARTH_OK;
}

static void meet_mates(struct hearth *h, int absent)
{
    struct hth_mates mates = { .self = h,
        .bring = meet_bring,
        .meet = meet_take,
        .fetch = meet_fetch,
        .place = meet_place,
        .alike = meet_alike };

    pthread_mutex_lock(&h->lock);
    mates.node = absent ? 0 : h->attached.store;
    pthread_mutex_unlock(&h->lock);
    hth_bootstrap_mates(h->opts.bootstrap, &mates);
}

int hth_meet(struct hearth *h, int absent, unsigned char own[HTH_GATHER], unsigned char *table,
        struct hearth_error *err)
{
    const struct hearth_bootstrap *b = h->opts.bootstrap;
    const struct hth_joining *j = h->joining;
    int rc;

    if ((rc = meet_key(h, err)))
        return rc;
    if (j->keyed)
        hth_gather_prove(own, j->key[0]);
    if (!b) {
        memcpy(table, own, HTH_GATHER);
        return HEARTH_OK;
    }
    meet_mates(h, absent);
    hth_bootstrap_tell(b, h->opts.job, j->key, j->keyed, h->opts.network == HEARTH_NETWORK_TRUSTED);
    rc = b->allgather(b->self, own, HTH_GATHER, table, err);
    hth_bootstrap_mates(b, &(struct hth_mates){ 0 }); /* the caller may gather for himself */
    if (rc > 0)
        rc = hth_fail(err, HEARTH_EINVAL, 0,
                "the bootstrap's all-gather returned %d: it must return 0 or a negative code", rc);
    if (rc)
        return hth_while(err, rc, "find the other ranks");
    if (memcmp(table + (size_t)h->opts.rank * HTH_GATHER, own, HTH_GATHER) != 0)
        return hth_fail(err, HEARTH_EINVAL, 0,
                "find the other ranks: the bootstrap gave place %u of the table to somebody else: "
                "is this process rank %u of %u?",
                h->opts.rank, h->opts.rank, h->opts.world);
    rc = hth_gather_check(table, h->opts.world, j->key, j->keyed, err);
    return rc ? hth_while(err, rc, "find the other ranks") : HEARTH_OK;
}
