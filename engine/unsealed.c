/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The commit record. It is written when COMMIT is heard and removed when all in it is sealed; a row that is
 * left of a sealed object does no harm, since its slot is not in the pool any more.
 */
#include "unsealed.h"

#include "loan.h"
#include "node_state.h"

#include <stdlib.h>
#include <string.h>

#define RECORD "handed"

static int unsealed_write(struct hth_node *n)
{
    size_t len = hth_handed_bytes(n->unsealed_rows);
    struct hearth_error err;
    unsigned char *bytes;
    int rc;

    if (!n->unsealed_rows) {
        n->env.store->ops->record_remove(n->env.store, RECORD);
        return HEARTH_OK;
    }
    bytes = malloc(len);
    if (bytes)
        hth_handed_encode(n->unsealed, n->unsealed_rows, bytes);
    rc = bytes ? n->env.store->ops->record_put(n->env.store, RECORD, bytes, len, &err)
               : hth_fail(&err, HEARTH_ENOMEM, 0, "no memory for the commit record");
    free(bytes);
    if (rc)
        hth_say(&n->ctx.log, HEARTH_LOG_WARN, "commit-record", "%s", err.text);
    return rc;
}

static int unsealed_has(const struct hth_node *n, struct hth_save_id save, uint64_t object)
{
    const struct hth_held_save *s = hth_holdings_find((struct hth_ctx *)(uintptr_t)&n->ctx, save);

    for (const struct hth_held *h = s ? s->held : NULL; h; h = h->next)
        if (h->object.id == object)
            return h->state != HTH_HELD_SEALED;
    return 0;
}

int unsealed_note(struct hth_node *n, const struct loan *l)
{
    size_t rows = n->unsealed_rows;
    struct hth_handed *more;

    if (rows + l->objects > HTH_HANDED_MAX)
        return HEARTH_ENOSPC;
    more = realloc(n->unsealed, (rows + l->objects) * sizeof(*more));
    if (!more)
        return HEARTH_ENOMEM;
    n->unsealed = more;
    for (uint32_t i = 0; i < l->objects; i++) {
        if (!unsealed_has(n, l->save, hth_object_id(l->rank, i)))
            continue;
        more[n->unsealed_rows] = l->object[i].sealed;
        more[n->unsealed_rows++].commons = l->commons;
    }
    return n->unsealed_rows > rows ? unsealed_write(n) : HEARTH_OK;
}

void unsealed_end(struct hth_node *n, struct hth_save_id save, uint64_t object)
{
    for (size_t i = 0; i < n->unsealed_rows; i++) {
        const struct hth_handed *row = &n->unsealed[i];

        if (hth_save_cmp(row->save, save) || hth_object_id(row->rank, row->index) != object)
            continue;
        n->unsealed[i] = n->unsealed[--n->unsealed_rows];
        if (!n->unsealed_rows)
            unsealed_write(n);
        return;
    }
}

int unsealed_read(struct hth_node *n, struct hearth_error *err)
{
    struct hearth_error cause;
    void *bytes = NULL;
    size_t len = 0;
    int rc;

    if (n->env.store->ops->record_get(n->env.store, RECORD, &bytes, &len, NULL))
        return HEARTH_OK;
    rc = hth_handed_decode(&n->unsealed, &n->unsealed_rows, bytes, len, &cause);
    free(bytes);
    if (rc == HEARTH_EUNSUPPORTED)
        return hth_fail(err, rc, 0, "%s", cause.text);
    if (rc)
        hth_say(&n->ctx.log, HEARTH_LOG_ERROR, "commit-record", "%s", cause.text);
    return HEARTH_OK;
}

void unsealed_forget(struct hth_node *n)
{
    if (!n->unsealed_rows)
        return;
    n->unsealed_rows = 0;
    unsealed_write(n);
}

void unsealed_close(struct hth_node *n)
{
    free(n->unsealed);
    n->unsealed = NULL;
    n->unsealed_rows = 0;
}
