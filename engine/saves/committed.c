/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The commit record. It is written when COMMIT comes. A row stays until its save is decided or has
 * its manifest here: until then the next engine has no other sign that the rank is done with the
 * save, since the rank may have closed its handle, or ended.
 */
#include "committed.h"

#include "core/base/bytes.h"
#include "engine/state/node_state.h"
#include "loan.h"

#include <stdlib.h>
#include <string.h>

#define RECORD "handed"

/* Adds the sets of ranks of the rows' saves, as the commit has them. HEARTH_ENOMEM. */
static int committed_name_sets(struct hth_node *n, struct hth_handed_record *record)
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

static int committed_write(struct hth_node *n)
{
    struct hth_handed_record record = { .row = n->committed, .rows = n->committed_rows };
    struct hearth_error err;
    unsigned char *bytes = NULL;
    int rc;

    if (!n->committed_rows) {
        n->env.store->ops->record_remove(n->env.store, RECORD);
        return HEARTH_OK;
    }
    if (!committed_name_sets(n, &record))
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

/* Drops rows that no engine needs any more from the next record. */
static void committed_prune(struct hth_node *n)
{
    size_t kept = 0;

    for (size_t i = 0; i < n->committed_rows; i++)
        if (hth_commit_needs_ranks(n->commit, n->committed[i].save))
            n->committed[kept++] = n->committed[i];
    n->committed_rows = kept;
}

static struct hth_handed *committed_find(
        const struct hth_node *n, struct hth_save_id save, uint32_t rank, uint32_t index)
{
    for (size_t i = 0; i < n->committed_rows; i++)
        if (n->committed[i].rank == rank && n->committed[i].index == index &&
                !hth_save_cmp(n->committed[i].save, save))
            return &n->committed[i];
    return NULL;
}

static void committed_add(struct hth_node *n, struct hth_handed row, const struct loan *l)
{
    row.commons = l->commons;
    if (!committed_find(n, row.save, row.rank, row.index))
        n->committed[n->committed_rows++] = row;
}

/* A common object lies in no slot: its digest has that place. */
static void committed_digest(struct hth_handed *row, const struct hth_held *held)
{
    row->summed = held->state == HTH_HELD_SEALED;
    row->slot = row->summed ? hth_get64(held->object.digest) : 0;
    row->generation = row->summed ? hth_get64(held->object.digest + 8) : 0;
}

void committed_digested(
        struct hth_node *n, const struct hth_held_save *save, const struct hth_held *held)
{
    struct hth_handed *row =
            committed_find(n, save->id, held->object.owner, (uint32_t)held->object.id);

    if (!row || row->summed)
        return;
    committed_digest(row, held);
    committed_write(n);
}

int committed_differs(
        const struct hth_node *n, const struct hth_held_save *save, const struct hth_held *held)
{
    const struct hth_handed *row =
            committed_find(n, save->id, held->object.owner, (uint32_t)held->object.id);

    return row && row->summed &&
           (row->slot != hth_get64(held->object.digest) ||
                   row->generation != hth_get64(held->object.digest + 8));
}

/* Adds the rank's common objects, which are in the holdings from COMMON on. */
static void committed_add_commons(struct hth_node *n, const struct loan *l)
{
    const struct hth_held_save *s = hth_holdings_find(&n->ctx, l->save);
    uint32_t left = l->commons;

    for (const struct hth_held *h = s ? s->held : NULL; h && left; h = h->next) {
        struct hth_handed row = { .save = l->save, .rank = l->rank };

        if (h->object.kind != HTH_OBJECT_RAW || h->object.owner != l->rank)
            continue;
        row.data_len = h->object.data_len;
        row.index = (uint32_t)h->object.id;
        memcpy(row.name, h->object.name, sizeof(h->object.name));
        committed_digest(&row, h);
        committed_add(n, row, l);
        left--;
    }
}

int committed_note(struct hth_node *n, const struct loan *l)
{
    struct hth_handed *more;
    size_t rows, most;

    committed_prune(n);
    rows = n->committed_rows;
    most = rows + l->objects + l->commons;
    if (most > HTH_HANDED_MAX)
        return HEARTH_ENOSPC;
    more = realloc(n->committed, most * sizeof(*more));
    if (!more)
        return HEARTH_ENOMEM;
    n->committed = more;
    for (uint32_t i = 0; i < l->objects; i++)
        if (!hth_save_none(l->object[i].sealed.save))
            committed_add(n, l->object[i].sealed, l);
    committed_add_commons(n, l);
    return n->committed_rows > rows ? committed_write(n) : HEARTH_OK;
}

int committed_read(struct hth_node *n, struct hearth_error *err)
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
        n->committed = record.row;
        n->committed_rows = record.rows;
        n->committed_set = record.set;
        n->committed_sets = record.sets;
    }
    if (rc == HEARTH_EUNSUPPORTED)
        return hth_fail(err, rc, 0, "%s", cause.text);
    if (rc)
        hth_say(&n->ctx.log, HEARTH_LOG_ERROR, "commit-record", "%s", cause.text);
    return HEARTH_OK;
}

const struct hth_ranks *committed_ranks(const struct hth_node *n, struct hth_save_id save)
{
    for (size_t i = 0; i < n->committed_sets; i++)
        if (!hth_save_cmp(n->committed_set[i].save, save))
            return &n->committed_set[i].ranks;
    return NULL;
}

void committed_forget(struct hth_node *n)
{
    if (!n->committed_rows)
        return;
    n->committed_rows = 0;
    committed_write(n);
}

void committed_close(struct hth_node *n)
{
    free(n->committed);
    free(n->committed_set);
    n->committed = NULL;
    n->committed_set = NULL;
    n->committed_rows = n->committed_sets = 0;
}
