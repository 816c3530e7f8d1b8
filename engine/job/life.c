/* SPDX-License-Identifier: Apache-2.0 */
/* One more start of an engine on this store, on record. */
#include "life.h"

#include "engine/state/node_state.h"

#include "core/format/life.h"

#include <stdlib.h>

/* If the record is damaged, the clock's value is used: it is more than any number of starts. */
static int life_read(struct hth_node *n, uint64_t *out, struct hearth_error *err)
{
    struct hearth_error cause;
    void *bytes = NULL;
    size_t len = 0;
    int rc;

    *out = 0;
    if (n->env.store->ops->record_get(n->env.store, "life", &bytes, &len, NULL))
        return HEARTH_OK;
    rc = hth_life_decode(out, bytes, len, &cause);
    free(bytes);
    if (rc == HEARTH_EUNSUPPORTED)
        return hth_fail(err, rc, 0, "%s", cause.text);
    if (rc) {
        hth_say(&n->ctx.log, HEARTH_LOG_ERROR, "life-bad", "%s", cause.text);
        *out = n->ctx.clock.wall_ms(n->ctx.clock.self);
    }
    return HEARTH_OK;
}

int life_begin(struct hth_node *n, struct hearth_error *err)
{
    unsigned char bytes[HTH_LIFE_BYTES];
    struct hearth_error cause;
    uint64_t starts;
    int rc = life_read(n, &starts, err);

    if (rc)
        return rc;
    n->ctx.life = starts + 1;
    hth_life_encode(n->ctx.life, bytes);
    if (n->env.store->ops->record_put(n->env.store, "life", bytes, sizeof(bytes), &cause))
        hth_say(&n->ctx.log, HEARTH_LOG_WARN, "life-failed", "%s", cause.text);
    return HEARTH_OK;
}
