/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The packed table of a gather, from the engine of a node that has it. The ranks' meeting has
 * received a ticket, which names that engine, and the table's length and digest. The two engines
 * may be in different epochs or in none, so they meet outside of all epochs
 * (hth_session_visit()). An engine that has the table answers each request by itself and keeps
 * nothing of the other engine.
 *
 *     ticket --> TABLE_GET, WINDOW of them at a time --TABLE_PART--> all here, digest right:
 *                  |                                              given to the meeting
 *                  +-- the table is not there, the connection ends, or the time is up:
 *                      the meeting learns it, and asks the host again
 *
 *     TABLE_GET   0 u32 round   4 u32 zero   8 u64 offset
 *     TABLE_PART  0 u32 round   4 u32 zero   8 u64 offset   16 bytes; none: the table is not here
 *
 * Parts are copied on the engine's thread, a few microseconds each, since memory for pulls would be
 * registered with a transport that REFIT may have to change.
 */
#include "fetch.h"

#include "core/base/buf.h"
#include "core/base/bytes.h"
#include "core/format/ticket.h"
#include "engine/state/node_state.h"

#include <stdlib.h>
#include <string.h>

#define PART        8000u
#define PART_HEAD   16u
#define WINDOW      32u /* requests that are not answered yet */
#define WAIT_MAX_MS 60000u

struct fetch {
    uint32_t round, peer;
    uint64_t until_ms;
    struct hth_buf *buf;
    size_t got, asked;           /* bytes */
    char node[HTH_NAME_MAX + 1]; /* the node that the table comes from */
};

/* ---- the engine that has the table ----------------------------------------------------------- */

static void fetch_serve(struct hth_node *n, uint32_t to, const unsigned char *body, size_t len)
{
    unsigned char out[PART_HEAD + PART];
    size_t part = 0;
    uint64_t off;

    if (len != PART_HEAD)
        return;
    off = hth_get64(body + 8);
    hth_point(&n->ctx.points, "table");
    if (n->table && hth_get32(body) == n->table_round && off < n->table->len) {
        part = n->table->len - off < PART ? n->table->len - off : PART;
        memcpy(out + PART_HEAD, n->table->at + off, part);
    }
    memcpy(out, body, PART_HEAD);
    (void)hth_session_send(n->ctx.session, to, HTH_MSG_TABLE_PART, out, PART_HEAD + part);
}

/* ---- the engine that receives it ------------------------------------------------------------- */

static void fetch_drop(struct hth_node *n)
{
    struct fetch *f = n->fetch;

    if (!f)
        return;
    n->fetch = NULL;
    hth_session_leave(n->ctx.session, f->peer);
    hth_buf_put(f->buf);
    free(f);
}

static void fetch_ends(struct hth_node *n, uint32_t round, struct hth_buf *table)
{
    n->env.meeting.fetched(n->env.meeting.self, round, table);
}

static void fetch_fail(struct hth_node *n, int code, const char *why)
{
    struct fetch *f = n->fetch;
    uint32_t round = f->round;
    struct hearth_error err;

    hth_fail(&err, code, 0, "node %s has not received the ranks' table from node %s: %s",
            n->env.node, f->node, why);
    hth_say(&n->ctx.log, HEARTH_LOG_WARN, "table-not-received", "%s", err.text);
    fetch_drop(n);
    fetch_ends(n, round, NULL);
}

static int fetch_get(struct hth_node *n, struct fetch *f, size_t off)
{
    unsigned char body[PART_HEAD] = { 0 };

    hth_put32(body, f->round);
    hth_put64(body + 8, off);
    return hth_session_send(n->ctx.session, f->peer, HTH_MSG_TABLE_GET, body, sizeof(body));
}

static void fetch_more(struct hth_node *n)
{
    struct fetch *f = n->fetch;

    while (f->asked < f->buf->len && f->asked - f->got < (size_t)WINDOW * PART) {
        if (fetch_get(n, f, f->asked)) {
            fetch_fail(n, HEARTH_EPEER, "its engine cannot be asked");
            return;
        }
        f->asked += PART;
    }
}

static void fetch_here(struct hth_node *n)
{
    struct hth_buf *table = hth_buf_get(n->fetch->buf);
    uint32_t round = n->fetch->round;
    unsigned char digest[HTH_DIGEST];

    hth_digest(digest, table->at, table->len);
    if (memcmp(digest, table->digest, HTH_DIGEST) != 0) {
        fetch_fail(n, HEARTH_ECORRUPT, "it is another table than rank 0 has sent");
        hth_buf_put(table);
        return;
    }
    hth_say(&n->ctx.log, HEARTH_LOG_INFO, "table-received",
            "the ranks' table of %zu bytes from node %s", table->len, n->fetch->node);
    fetch_drop(n);
    fetch_ends(n, round, table);
    hth_buf_put(table);
}

/* Parts come in the order of the requests. */
static void fetch_take(struct hth_node *n, const unsigned char *body, size_t len)
{
    struct fetch *f = n->fetch;
    size_t left = f->buf->len - f->got, part = left < PART ? left : PART;

    if (len < PART_HEAD || hth_get32(body) != f->round || hth_get64(body + 8) != f->got)
        return;
    if (len != PART_HEAD + part) {
        fetch_fail(n, HEARTH_ENOENT, "its engine does not have this table");
        return;
    }
    memcpy(f->buf->at + f->got, body + PART_HEAD, part);
    f->got += part;
    if (f->got < f->buf->len)
        fetch_more(n);
    else
        fetch_here(n);
}

void fetch_message(
        struct hth_node *n, uint32_t from, uint16_t type, const unsigned char *body, size_t len)
{
    if (type == HTH_MSG_TABLE_GET)
        fetch_serve(n, from, body, len);
    else if (type == HTH_MSG_TABLE_PART && n->fetch && n->fetch->peer == from)
        fetch_take(n, body, len);
}

void fetch_peer_down(struct hth_node *n, uint32_t node, const char *text)
{
    if (n->fetch && n->fetch->peer == node)
        fetch_fail(n, HEARTH_EPEER, text[0] ? text : "the connection ended");
}

/* HEARTH_ENOMEM, or that of hth_session_visit(). */
static int fetch_begin(
        struct hth_node *n, const struct hth_ticket *t, uint32_t round, uint32_t wait_ms)
{
    struct fetch *f = calloc(1, sizeof(*f));
    int rc = f && (f->buf = hth_buf_new((size_t)t->len, t->digest)) ? HEARTH_OK : HEARTH_ENOMEM;

    rc = rc ? rc : hth_session_visit(n->ctx.session, &t->at, &f->peer);
    if (rc) {
        hth_buf_put(f ? f->buf : NULL);
        free(f);
        return rc;
    }
    f->round = round;
    f->until_ms = hth_now_ms(&n->ctx.clock) + (wait_ms < WAIT_MAX_MS ? wait_ms : WAIT_MAX_MS);
    memcpy(f->node, t->at.node, sizeof(f->node));
    n->fetch = f;
    return HEARTH_OK;
}

/* The newest ticket counts: the host writes another ticket if the first has led to nothing. */
void fetch_ticket(struct hth_node *n, uint32_t round, uint32_t wait_ms, const struct hth_ticket *t)
{
    int rc;

    fetch_drop(n);
    rc = fetch_begin(n, t, round, wait_ms);
    if (!rc) {
        fetch_more(n); /* last: it may come to nothing at once */
        return;
    }
    hth_say(&n->ctx.log, HEARTH_LOG_WARN, "table-not-received",
            "node %s cannot ask node %s for the ranks' table: %s", n->env.node, t->at.node,
            rc == HEARTH_ENOMEM ? "there is no memory for it" : "no transport is open");
    fetch_ends(n, round, NULL);
}

void fetch_tick(struct hth_node *n, uint64_t now_ms)
{
    if (n->fetch && now_ms >= n->fetch->until_ms)
        fetch_fail(n, HEARTH_ETIMEOUT, "its time is up");
}

uint64_t fetch_due_ms(const struct hth_node *n)
{
    return n->fetch ? n->fetch->until_ms : HTH_NEVER;
}

void fetch_close(struct hth_node *n)
{
    if (!n->fetch)
        return;
    hth_buf_put(n->fetch->buf);
    free(n->fetch);
    n->fetch = NULL;
}
