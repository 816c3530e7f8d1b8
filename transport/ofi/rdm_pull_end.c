/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pull endpoint of the moment, and the peers that know it. A fabric may refuse reads by an
 * endpoint that the target does not know. So a new one is announced to the target, which answers,
 * before the first read.
 */
#include "rdm.h"

#include "core/base/bytes.h"
#include <stdlib.h>
#include <string.h>

#define RETRY_MS 100u
#define OWED     4u /* answers that a peer may leave untaken */

struct hth_rdm_end *hth_rdm_pull_end(struct hth_rdm *r)
{
    struct hth_rdm_end *e = r->pull;
    struct hearth_error err = { 0 };

    if (e || hth_rdm_now(r) < r->pull_retry_ms)
        return e;
    e = calloc(1, sizeof(*e));
    if (!e)
        return NULL;
    if (hth_rdm_pull_end_open(r, e, &err)) {
        hth_say(&r->o.log, HEARTH_LOG_WARN, "ofi-pull-endpoint", "%s", err.text);
        r->pull_retry_ms = hth_rdm_now(r) + RETRY_MS;
        free(e);
        return NULL;
    }
    r->pull = e;
    return e;
}

/* ---- who may read ---- */

int hth_rdm_peer_knows(struct hth_rdm_conn *c, const struct hth_rdm_end *e)
{
    struct hth_rdm_hello hello = { .id = e->number, .packet = c->r->packet };
    unsigned char bytes[HTH_RDM_LEAST];

    if (c->end_told == e->number)
        return c->end_ok == e->number;
    if (hth_rdm_blob(c->r, e->ep, hello.addr, &hello.addr_len) ||
            hth_rdm_queue(c, HTH_RDM_PULL_FROM, bytes, hth_rdm_hello_write(&hello, bytes))) {
        hth_rdm_conn_refused(c, -FI_EAGAIN);
        return 0;
    }
    c->end_told = e->number;
    c->told_ms = hth_rdm_now(c->r);
    hth_rdm_scan_soon(c->r);
    hth_rdm_flush(c);
    return 0;
}

int hth_rdm_reader_told(struct hth_rdm_conn *c, const unsigned char *bytes, size_t len)
{
    struct hth_rdm_hello hello;
    struct hth_rdm_peer *reader;
    unsigned char answer[8];

    if (hth_rdm_hello_read(bytes, len, &hello) || hello.id <= c->reader_last ||
            hello.id > UINT32_MAX || c->owed >= OWED ||
            hth_rdm_peer_get(c->r, hello.addr, hello.addr_len, &reader, NULL))
        return HEARTH_EPROTO;
    hth_rdm_peer_put(c->r, c->reader[1]);
    c->reader[1] = c->reader[0];
    c->reader[0] = reader;
    c->reader_last = (uint32_t)hello.id;
    hth_put64(answer, hello.id);
    return hth_rdm_queue(c, HTH_RDM_PULL_OK, answer, sizeof(answer)); /* sent when this is taken */
}
