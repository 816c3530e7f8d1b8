/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The all-gather of a joining, over whichever bootstrap. Each row is proved with a key of the
 * job's, so that no bootstrap, of ours or the caller's own, need be believed: a row without that
 * proof ends the joining by name. The job key itself is read, used and forgotten.
 */
#include "meet.h"

#include "client/bootstrap/rendezvous.h"
#include "core/base/auth.h"
#include "joining.h"
#include <string.h>

static int meet_key(struct hearth *h, struct hearth_error *err)
{
    struct hth_key key;
    int rc;

    if (!h->opts.key_file || h->joining->keyed)
        return HEARTH_OK;
    if ((rc = hth_key_open(h->opts.key_file, &key, err)))
        return rc;
    hth_subkey(h->joining->key, key.bytes, HTH_GATHER_PURPOSE);
    hth_key_close(&key);
    h->joining->keyed = 1;
    return HEARTH_OK;
}

int hth_meet(struct hearth *h, unsigned char own[HTH_GATHER], unsigned char *table,
        struct hearth_error *err)
{
    const struct hearth_bootstrap *b = h->opts.bootstrap;
    const unsigned char *key;
    int rc;

    if ((rc = meet_key(h, err)))
        return rc;
    key = h->joining->keyed ? h->joining->key : NULL;
    if (key)
        hth_gather_prove(own, key);
    if (!b) {
        memcpy(table, own, HTH_GATHER);
        return HEARTH_OK;
    }
    hth_bootstrap_tell(b, h->opts.job, key, h->opts.network == HEARTH_NETWORK_TRUSTED);
    rc = b->allgather(b->self, own, HTH_GATHER, table, err);
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
    rc = hth_gather_check(table, h->opts.world, key, err);
    return rc ? hth_while(err, rc, "find the other ranks") : HEARTH_OK;
}
