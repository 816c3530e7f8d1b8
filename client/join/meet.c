/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The all-gather of a joining, over whichever bootstrap. Each row is proved with a key of the
 * job's, so that no bootstrap, of ours or the caller's own, need be believed: a row without that
 * proof ends the joining by name. The job key itself is read, used and forgotten, for each joining anew: it may have
 * been changed, and two are taken meanwhile.
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

int hth_meet(struct hearth *h, unsigned char own[HTH_GATHER], unsigned char *table,
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
    hth_bootstrap_tell(b, h->opts.job, j->key, j->keyed, h->opts.network == HEARTH_NETWORK_TRUSTED);
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
    rc = hth_gather_check(table, h->opts.world, j->key, j->keyed, err);
    return rc ? hth_while(err, rc, "find the other ranks") : HEARTH_OK;
}
