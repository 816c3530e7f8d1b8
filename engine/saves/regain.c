/* SPDX-License-Identifier: Apache-2.0 */
/*
 * REGAIN, after an engine was started again under its ranks: what a rank wrote, or still writes,
 * lies in a slot that the engine before this one lent it. The slot is the rank's again, and the
 * save goes on under the token that the rank gives it: SEAL, COMMON, COMMIT come as ever, and those
 * that came before come again.
 *
 *     REGAIN, object by object ──► loan ──► SEAL ... COMMIT
 *        └─ the slot is gone, or the save decided: refused, and the save fails on all ranks
 */
#include "regain.h"

#include "engine/state/client.h"
#include "engine/state/node_state.h"
#include "engine/state/reply.h"
#include "loan.h"

#include <string.h>

static int regain_check(
        const struct loan *l, const struct hth_local_regain *m, struct hearth_error *err)
{
    int rc;

    if (m->index != (l ? l->objects : 0) || m->index >= LOAN_OBJECTS || (l && l->committed))
        return hth_fail(
                err, HEARTH_EINVAL, 0, "object %" PRIu32 " regained out of order", m->index);
    if (!(m->head.token & HTH_LOCAL_OWN) || m->bytes < 2 * HTH_BLOCK)
        return hth_fail(err, HEARTH_EINVAL, 0, "a regained object that was never lent");
    rc = hth_object_name_check(m->name, err);
    for (uint32_t i = 0; l && !rc && i < l->objects; i++)
        if (!strcmp(l->object[i].name, m->name))
            rc = hth_fail(err, HEARTH_EEXIST, 0, "object %s is regained twice", m->name);
    return rc;
}

static int regain_is_here(struct hth_node *n, struct hth_save_id save, uint64_t object)
{
    struct hth_held_save *s = hth_save_none(save) ? NULL : hth_holdings_find(&n->ctx, save);

    return s && hth_held_find(s, object);
}

/* Regains one object of the rank. If it is held here, the rank has handed it over to an earlier
 * engine, and its next SEAL changes nothing. */
static int regain_object(struct hth_node *n, struct loan *l, const struct hth_local_regain *m,
        struct hearth_error *err)
{
    struct lent *o = loan_next(l);
    struct hth_save_id save = hth_local_save_to(m->save);
    int rc;

    if (!o)
        return hth_fail(err, HEARTH_ENOMEM, 0, "one more object that is regained");
    o->asked = m->bytes;
    o->early = LENT_EARLY_ALL;
    o->regained = regain_is_here(n, save, hth_object_id(l->rank, m->index));
    if (!o->regained && loan_slot(n, m->slot))
        return hth_fail(err, HEARTH_EINVAL, 0, "a slot that is in a rank's hands already");
    if (!o->regained && (rc = n->env.store->ops->claim(
                                 n->env.store, m->slot, m->generation, l->rank, &o->slot, err)))
        return rc;
    memcpy(o->name, m->name, strlen(m->name) + 1);
    l->objects++;
    return HEARTH_OK;
}

static int regain_save(struct hth_node *n, struct client *c, const struct hth_local_regain *m,
        struct hearth_error *err)
{
    struct hth_save_id save = hth_local_save_to(m->save);
    struct loan *l = loan_open(n, c, m->head.token);
    struct hth_ranks set;
    const struct hth_ranks *ranks = loan_ranks(&m->head, sizeof(*m), &set);
    int rc = regain_check(l, m, err), first = !l;

    if (!rc && first && save.epoch)
        rc = hth_commit_rejoin(n->commit, c->rank, save, ranks, err);
    if (!rc && first && !(l = loan_make(n, c)))
        rc = hth_fail(err, HEARTH_ENOMEM, 0, "no memory to go on with a save");
    if (rc)
        return rc;
    if (first && (rc = loan_name(l, ranks, err))) {
        loan_free(n, l);
        return rc;
    }
    l->token = m->head.token;
    l->has_id = save.epoch != 0;
    l->save = save;
    if ((rc = regain_object(n, l, m, err)))
        loan_free(n, l);
    return rc;
}

void regain_ask(struct hth_node *n, struct client *c, const struct hth_local_regain *m)
{
    struct hth_save_id save = hth_local_save_to(m->save);
    struct hearth_error err;

    if (!regain_save(n, c, m, &err)) {
        reply_ok(n, c->id, m->head.request);
        return;
    }
    if (n->ctx.epoch && save.epoch == n->epoch.epoch && save.nonce == n->epoch.nonce &&
            err.code == HEARTH_ENOENT)
        hth_commit_fail(n->commit, save, HEARTH_EENGINE, err.text);
    reply_error(n, c->id, m->head.request, &err);
}
