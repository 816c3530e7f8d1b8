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

/* The sets of ranks of the saves that rows are of, as the commit knows them. HEARTH_ENOMEM. */
static int unsealed_name_sets(struct hth_node *n, struct hth_handed_record *record)
{
    record->set = calloc(HTH_HANDED_SETS, sizeof(*record->set));
    if (!record->set)
        return HEARTH_ENOMEM;
    for (size_t i = 0; i < record->rows && record->sets < HTH_HANDED_SETS; i++) {
        struct hth_save_id save = record->row[i].save;
        const struct hth_ranks *ranks =
                hth_attempt_set(save.attempt) ? hth_commit_ranks(n->commit, save) : NULL;
        size_t k = 0;

        while (k < record->sets && hth_save_cmp(record->set[k].save, save))
            k++;
        if (ranks && k == record->sets)
            record->set[record->sets++] = (struct hth_handed_set){ save, *ranks };
    }
    return HEARTH_OK;
}

static int unsealed_write(struct hth_node *n)
{
    struct hth_handed_record record = { .row = n->unsealed, .rows = n->unsealed_rows };
    struct hearth_error err;
    unsigned char *bytes = NULL;
    int rc;

    if (!n->unsealed_rows) {
        n->env.store->ops->record_remove(n->env.store, RECORD);
        return HEARTH_OK;
    }
    if (!unsealed_name_sets(n, &record))
        bytes = malloc(hth_handed_bytes(&record));
    if (bytes)
        hth_handed_encode(&record, bytes);
    rc = bytes ? n->env.store->ops->record_put(
                         n->env.store, RECORD, bytes, hth_handed_bytes(&record), &err)
               : hth_fail(&err, HEARTH_ENOMEM, 0, "no memory for the commit record");
    free(record.set);
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
        if (l->object[i].regained || !unsealed_has(n, l->save, hth_object_id(l->rank, i)))
            continue; /* regained: the COMMIT that the engine before this one heard has put it on record */
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
    struct hth_handed_record record;
    struct hearth_error cause;
    void *bytes = NULL;
    size_t len = 0;
    int rc;

    if (n->env.store->ops->record_get(n->env.store, RECORD, &bytes, &len, NULL))
        return HEARTH_OK;
    rc = hth_handed_decode(&record, bytes, len, &cause);
    free(bytes);
    if (!rc) {
        n->unsealed = record.row;
        n->unsealed_rows = record.rows;
        n->unsealed_set = record.set;
        n->unsealed_sets = record.sets;
    }
    if (rc == HEARTH_EUNSUPPORTED)
        return hth_fail(err, rc, 0, "%s", cause.text);
    if (rc)
        hth_say(&n->ctx.log, HEARTH_LOG_ERROR, "commit-record", "%s", cause.text);
    return HEARTH_OK;
}

const struct hth_ranks *unsealed_ranks(const struct hth_node *n, struct hth_save_id save)
{
    for (size_t i = 0; i < n->unsealed_sets; i++)
        if (!hth_save_cmp(n->unsealed_set[i].save, save))
            return &n->unsealed_set[i].ranks;
    return NULL;
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
    free(n->unsealed_set);
    n->unsealed = NULL;
    n->unsealed_set = NULL;
    n->unsealed_rows = n->unsealed_sets = 0;
}
