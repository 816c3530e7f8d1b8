/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tables of many objects. A bounded number of requests is under way at once, so that thousands of
 * objects on other nodes do not cost as many round trips one behind the other:
 *
 *     object --MAP--> here: mapped and leased
 *               '---> not here --RANGE, behind the others--> its table
 *
 * An object that cannot be opened ends nothing here: it is left as it was. index.c opens it once
 * more by itself and returns the error.
 */
#include "tables.h"

#include "client/slots/lease.h"
#include "core/format/manifest.h"
#include "fetch.h"
#include "source.h"
#include <stdlib.h>
#include <unistd.h>

#define AT_ONCE 32u

struct asked {
    struct hth_source *source;
    struct hth_asked asked;
    int table; /* 1: it is not here, and its table is asked for */
    union {
        struct hth_local_mapped mapped;
        struct hth_local_bytes bytes;
    } answer;
};

struct asking {
    struct hearth_checkpoint *c;
    uint32_t first, count; /* the oldest, and how many */
    int stop;              /* nothing more is asked for */
    struct asked at[AT_ONCE];
};

static int tables_ask(struct asking *q, struct hth_source *s, int table, struct hearth_error *err)
{
    struct asked *a = &q->at[(q->first + q->count) % AT_ONCE];
    const struct hth_object *o = s->object;
    struct hth_local_map m = { .save = hth_local_save_of(q->c->save), .object = o->id };
    struct hth_ask ask;
    int rc;

    *a = (struct asked){ .source = s, .table = table };
    if (table) {
        m.off = HTH_ALIGN(HTH_BLOCK + o->data_len);
        m.len = o->table_len;
        ask = hth_bytes_ask(HTH_LOCAL_RANGE, &m, &a->answer.bytes, NULL);
    } else {
        ask = hth_lease_ask(&m, &a->answer.mapped, NULL);
    }
    ask.what = "list an object";
    if (!(rc = hth_ask_ahead(q->c->h, &ask, &a->asked, err)))
        q->count++;
    return rc;
}

/* The answer to the oldest. */
static int tables_take(struct asking *q, struct hearth_error *err)
{
    /* Each answer is waited for, since it may bring a lease that has to be given back; not so once
     * one did not come in time. */
    uint64_t wait_ms = q->stop == HEARTH_ETIMEOUT ? 0 : HTH_REQUEST_MS;
    struct hth_lease *lease;
    struct hearth *h = q->c->h;
    struct hearth_error why;
    int rc = hth_ask_wait(h, &q->at[q->first].asked, wait_ms, "list an object", &why);
    struct asked a = q->at[q->first]; /* its place may be taken again */

    q->first = (q->first + 1) % AT_ONCE;
    q->count--;
    if (rc == HEARTH_ENOENT && !a.table)
        return q->stop ? HEARTH_OK : tables_ask(q, a.source, 1, err);
    if (rc == HEARTH_EENGINE || rc == HEARTH_ETIMEOUT)
        q->stop = rc;
    if (rc == HEARTH_ETIMEOUT)
        return hth_fail(err, rc, 0, "%s", why.text);
    if (rc)
        return HEARTH_OK;
    if (a.table)
        hth_source_table(a.source, a.asked.fd, NULL);
    else if (!hth_lease_enter(h, q->c->save, a.source->object->id, a.answer.mapped.lease,
                     a.asked.incarnation, a.asked.fd, &lease, NULL))
        hth_source_mapped(q->c, a.source, &a.answer.mapped, a.asked.fd, lease, NULL);
    else if (a.asked.fd >= 0)
        close(a.asked.fd);
    return HEARTH_OK;
}

/* A foreign object has no table. */
static int tables_want(const struct hth_source *s)
{
    return !s->tried && s->object->kind != HTH_OBJECT_FOREIGN;
}

int hth_tables(struct hearth_checkpoint *c, uint32_t from, uint32_t to, struct hearth_error *err)
{
    struct asking *q = to - from > 1 ? calloc(1, sizeof(*q)) : NULL;
    int rc = HEARTH_OK, now;

    if (!q)
        return HEARTH_OK;
    q->c = c;
    while (q->count || (!q->stop && from < to)) {
        now = HEARTH_OK;
        if (q->stop || from == to || q->count == AT_ONCE)
            now = tables_take(q, rc ? NULL : err);
        else if (tables_want(&c->source[from++]))
            now = tables_ask(q, &c->source[from - 1], 0, err);
        if (now && !q->stop)
            q->stop = now;
        rc = rc ? rc : now;
    }
    free(q);
    return rc;
}
