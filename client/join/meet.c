/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The all-gather of a joining, over whichever bootstrap. Over TCP the node's engine meets the
 * others for its ranks; a rank without one meets them by itself. Each row is proved with a key of
 * the job's, so that no bootstrap, of ours or the caller's own, need be believed: a row without
 * that proof ends the joining by name. The job key itself is read, used and forgotten, for each
 * joining anew: it may have been changed, and two are taken meanwhile.
 */
#include "meet.h"

#include "client/base/clock.h"
#include "client/bootstrap/tcp.h"
#include "client/link/link.h"
#include "core/base/auth.h"
#include "core/base/file.h"
#include "core/format/rows.h"
#include "joining.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MEET_MORE_MS 10000u /* beyond the gather's own deadlines: the engine is busy */

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

/* The packed table that the engine's answer has. Errors: HEARTH_EPROTO, HEARTH_ENOMEM. */
static int meet_unpack(
        struct hearth *h, int fd, uint64_t len, unsigned char *table, struct hearth_error *err)
{
    unsigned char *packed = NULL;
    int rc = HEARTH_EPROTO;

    if (fd >= 0 && len && len <= hth_rows_most(HTH_GATHER, h->opts.world))
        packed = malloc((size_t)len);
    if (packed && !hth_file_fill(fd, packed, (size_t)len, 0))
        rc = hth_rows_unpack(table, HTH_GATHER, h->opts.world, packed, (size_t)len);
    free(packed);
    return rc ? hth_fail(err, rc, 0, "the ranks' table from the engine is not valid") : HEARTH_OK;
}

/* With the addresses that the place has now. HEARTH_ENOENT: none of them answers. */
static int meet_at_engine_once(struct hearth *h, const struct hth_tcp *t, uint64_t until,
        struct hth_local_meet *m, unsigned char *table, struct hearth_error *err)
{
    struct hth_local_bytes a;
    int fd = -1, rc = hth_tcp_resolve(t, until, &m->place, err);
    uint64_t now = hth_mono_ms();
    struct hth_ask ask = { .msg = m,
        .len = sizeof(*m),
        .type = HTH_LOCAL_MEET,
        .want = HTH_LOCAL_BYTES,
        .fd = -1,
        .answer = &a,
        .answer_len = sizeof(a),
        .out_fd = &fd,
        .what = "meet the other ranks" };

    if (rc)
        return rc;
    m->left_ms = until > now ? (uint32_t)(until - now) : 0;
    ask.wait_ms = m->left_ms + (uint64_t)t->deadline_ms + MEET_MORE_MS;
    rc = hth_ask(h, &ask, err);
    rc = rc ? rc : meet_unpack(h, fd, a.len, table, err);
    if (fd >= 0)
        close(fd);
    if (!rc && now < until && memcmp(table + (size_t)t->rank * HTH_GATHER, m->row, HTH_GATHER) != 0)
        rc = HEARTH_ENOENT; /* of a gather that this rank's process came too late for */
    return rc;
}

/* This rank's engine meets the others for it. */
static int meet_at_engine(struct hearth *h, struct hth_tcp *t, uint64_t until,
        const unsigned char own[HTH_GATHER], unsigned char *table, struct hearth_error *err)
{
    struct hth_local_meet *m = calloc(1, sizeof(*m));
    struct hearth_error why;
    int rc;

    if (!m)
        return hth_fail(err, HEARTH_ENOMEM, 0, "no memory to meet the other ranks");
    m->deadline_ms = t->deadline_ms;
    m->tree_from = t->tree_from;
    memcpy(m->token, t->token, sizeof(m->token));
    memcpy(m->row, own, HTH_GATHER);
    hth_tcp_rest(t);
    while ((rc = meet_at_engine_once(h, t, until, m, table, &why)) == HEARTH_ENOENT)
        continue; /* the engine ends it in time */
    free(m);
    if (rc && err)
        *err = why;
    return rc;
}

static void meet_tell(const struct hearth *h)
{
    const struct hth_joining *j = h->joining;
    struct hth_meeting_keys k = {
        .told = 1, .trusted = h->opts.network == HEARTH_NETWORK_TRUSTED, .keyed = j->keyed
    };

    snprintf(k.job, sizeof(k.job), "%s", h->opts.job);
    memcpy(k.key, j->key, sizeof(k.key));
    hth_bootstrap_tell(h->opts.bootstrap, &k);
    hth_wipe(&k, sizeof(k));
}

static int meet_gather(struct hearth *h, int absent, uint64_t until,
        const unsigned char own[HTH_GATHER], unsigned char *table, struct hearth_error *err)
{
    const struct hearth_bootstrap *b = h->opts.bootstrap;
    struct hth_tcp *t = hth_tcp_of(b);
    int rc;

    if (t && (t->rank != h->opts.rank || t->world != h->opts.world))
        return hth_fail(err, HEARTH_EINVAL, 0,
                "the bootstrap is of rank %u of %u, and this process opens as rank %u of %u",
                t->rank, t->world, h->opts.rank, h->opts.world);
    if (t && !absent && t->world > 1)
        return meet_at_engine(h, t, until, own, table, err);
    meet_tell(h);
    rc = t ? hth_tcp_meet(t, until, own, HTH_GATHER, table, err)
           : b->allgather(b->self, own, HTH_GATHER, table, err);
    if (t)
        hth_tcp_rest(t);
    return rc > 0 ? hth_fail(err, HEARTH_EINVAL, 0,
                            "the bootstrap's all-gather returned %d: it must return 0 or a "
                            "negative code",
                            rc)
                  : rc;
}

uint64_t hth_meet_until(const struct hearth *h)
{
    const struct hth_tcp *t = h->opts.bootstrap ? hth_tcp_of(h->opts.bootstrap) : NULL;

    return hth_until_ms(t ? t->deadline_ms : h->opts.open_ms);
}

int hth_meet(struct hearth *h, int absent, uint64_t until, unsigned char own[HTH_GATHER],
        unsigned char *table, struct hearth_error *err)
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
    rc = meet_gather(h, absent, until, own, table, err);
    if (rc)
        return hth_while(err, rc, "find the other ranks");
    if (memcmp(table + (size_t)h->opts.rank * HTH_GATHER, own, HTH_GATHER) != 0)
        return hth_fail(err, HEARTH_EINVAL, 0,
                "find the other ranks: the bootstrap gave place %u of the table to another "
                "process: "
                "is this process rank %u of %u?",
                h->opts.rank, h->opts.rank, h->opts.world);
    rc = hth_gather_check(table, h->opts.world, j->key, j->keyed, err);
    return rc ? hth_while(err, rc, "find the other ranks") : HEARTH_OK;
}
