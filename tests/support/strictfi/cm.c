/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Connections of FI_EP_MSG endpoints.
 *
 *   IDLE ─ fi_connect() ─► ASKING ─ ACCEPT ─► UP ─ GOODBYE, peer gone, fi_shutdown() ─► DOWN
 *     └─── fi_accept() ──► ANSWERING ─ READY ─┘
 *
 * When a connection goes down, everything under way ends with FI_ECANCELED, as a queue pair
 * flushes.
 */
#include "strictfi.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define PROBE_MS 100

void sfi_cm_data_check(const char *what, size_t len)
{
    if (len > SFI_CM_DATA)
        sfi_sin("size", "%s was given %zu bytes of private data where %u are the limit", what, len,
                SFI_CM_DATA);
}

int sfi_cm_getopt(int level, int name, void *value, size_t *len)
{
    size_t found = SFI_CM_DATA;

    if (level != FI_OPT_ENDPOINT || name != FI_OPT_CM_DATA_SIZE)
        return -FI_ENOPROTOOPT;
    if (*len < sizeof(found))
        return -FI_ETOOSMALL;
    memcpy(value, &found, sizeof(found));
    *len = sizeof(found);
    return 0;
}

static void cm_flush(struct sfi_ep *ep)
{
    while (ep->tx.head)
        sfi_op_end(ep->tx.head, FI_ECANCELED);
    while (ep->rx.head)
        sfi_op_end(ep->rx.head, FI_ECANCELED);
}

static void cm_tell(struct sfi_ep *ep, uint32_t event, int err, const void *data, size_t len)
{
    if (ep->eq)
        sfi_eq_put(ep->eq, event, &ep->fid.fid, NULL, err, data, len);
}

void sfi_cm_down(struct sfi_ep *ep, int err)
{
    if (ep->state == SFI_UP)
        cm_tell(ep, FI_SHUTDOWN, 0, NULL, 0);
    else if (ep->state == SFI_ASKING || ep->state == SFI_ANSWERING)
        cm_tell(ep, FI_SHUTDOWN, err, NULL, 0);
    if (ep->state == SFI_DOWN)
        return;
    ep->state = SFI_DOWN;
    cm_flush(ep);
}

/* ---- words of the peer ---- */

static void cm_up(struct sfi_ep *ep, const void *data, size_t len)
{
    ep->state = SFI_UP;
    ep->probed_ms = sfi_now_ms();
    cm_tell(ep, FI_CONNECTED, 0, data, len);
}

void sfi_cm_heard(struct sfi_ep *ep, const struct sfi_wire *head, const void *body, size_t len)
{
    struct sfi_wire ready = { .word = SFI_WORD_READY };

    if (head->word == SFI_WORD_ACCEPT && ep->state == SFI_ASKING) {
        ep->peer = head->from;
        cm_up(ep, body, len);
        sfi_wire_answer(ep, ep->peer, &ready, NULL, 0);
    } else if (head->word == SFI_WORD_REJECT && ep->state == SFI_ASKING) {
        ep->state = SFI_DOWN;
        cm_flush(ep);
        cm_tell(ep, FI_SHUTDOWN, FI_ECONNREFUSED, body, len);
    } else if (head->word == SFI_WORD_READY && ep->state == SFI_ANSWERING &&
               head->from == ep->peer) {
        cm_up(ep, NULL, 0);
    } else if (head->word == SFI_WORD_GOODBYE && head->from == ep->peer) {
        sfi_cm_down(ep, FI_ECONNABORTED);
    }
}

/* ---- turns ---- */

static void cm_ask(struct sfi_ep *ep)
{
    struct sfi_wire head = { .word = SFI_WORD_CONNECT };
    int rc;

    if (ep->asked)
        return;
    rc = sfi_wire_call(ep, ep->dial, &head, ep->dial_data, ep->dial_len);
    ep->asked = rc != -EAGAIN;
    if (rc == -ECONNREFUSED)
        sfi_cm_down(ep, FI_ECONNREFUSED);
}

void sfi_cm_progress(struct sfi_ep *ep)
{
    struct sfi_wire probe = { .word = SFI_WORD_PROBE };
    uint64_t now;

    if (ep->state == SFI_ASKING)
        cm_ask(ep);
    if (ep->state != SFI_UP && ep->state != SFI_ANSWERING)
        return;
    now = sfi_now_ms();
    if (now - ep->probed_ms < PROBE_MS)
        return;
    ep->probed_ms = now;
    if (sfi_wire_send(ep, ep->peer, &probe, NULL, 0) == -ECONNREFUSED)
        sfi_cm_down(ep, FI_ECONNABORTED);
}

void sfi_cm_leave(struct sfi_ep *ep)
{
    struct sfi_wire head = { .word = SFI_WORD_GOODBYE };

    if (ep->state == SFI_UP || ep->state == SFI_ANSWERING)
        sfi_wire_send(ep, ep->peer, &head, NULL, 0);
}

/* ---- calls ---- */

static struct sfi_ep *cm_ep(struct fid_ep *fid, const char *what, size_t len)
{
    struct sfi_ep *ep = sfi_of(fid, struct sfi_ep, fid);

    if (!ep->enabled || !ep->eq)
        sfi_sin("enable", "%s was called on an endpoint that is not enabled, or has no event queue",
                what);
    if (ep->state != SFI_IDLE)
        sfi_sin("connect", "%s was called on an endpoint that was connected before", what);
    sfi_cm_data_check(what, len);
    return ep;
}

static int cm_connect(struct fid_ep *fid, const void *addr, const void *data, size_t len)
{
    struct sfi_domain *d = sfi_of(fid, struct sfi_ep, fid)->domain;
    struct sfi_ep *ep;

    sfi_enter(d);
    ep = cm_ep(fid, "fi_connect()", len);
    if (ep->peer)
        sfi_sin("connect", "fi_connect() was called on an endpoint made of a request");
    sfi_sockaddr_text(addr, ep->dial, sizeof(ep->dial));
    if (len)
        memcpy(ep->dial_data, data, len);
    ep->dial_len = len;
    ep->state = SFI_ASKING;
    sfi_auto_nudge();
    sfi_leave(d);
    return 0;
}

static int cm_accept(struct fid_ep *fid, const void *data, size_t len)
{
    struct sfi_domain *d = sfi_of(fid, struct sfi_ep, fid)->domain;
    struct sfi_wire head = { .word = SFI_WORD_ACCEPT };
    struct sfi_ep *ep;

    sfi_enter(d);
    ep = cm_ep(fid, "fi_accept()", len);
    if (!ep->peer)
        sfi_sin("connect", "fi_accept() was called on an endpoint that no request was made for");
    sfi_request_take(ep->request);
    ep->request = NULL;
    ep->state = SFI_ANSWERING;
    ep->probed_ms = sfi_now_ms();
    sfi_wire_answer(ep, ep->peer, &head, data, len);
    sfi_auto_nudge();
    sfi_leave(d);
    return 0;
}

static int cm_shutdown(struct fid_ep *fid, uint64_t flags)
{
    struct sfi_ep *ep = sfi_of(fid, struct sfi_ep, fid);

    (void)flags;
    sfi_enter(ep->domain);
    sfi_cm_leave(ep);
    sfi_cm_down(ep, FI_ECONNABORTED);
    sfi_leave(ep->domain);
    return 0;
}

static int no_cm_setname(fid_t fid, void *addr, size_t len)
{
    (void)fid, (void)addr, (void)len;
    return -FI_ENOSYS;
}

static int no_cm_name(fid_t fid, void *addr, size_t *len)
{
    (void)fid, (void)addr, (void)len;
    return -FI_ENOSYS;
}

static int no_cm_peer(struct fid_ep *ep, void *addr, size_t *len)
{
    (void)ep, (void)addr, (void)len;
    return -FI_ENOSYS;
}

struct fi_ops_cm sfi_cm_ops = {
    .size = offsetof(struct fi_ops_cm, join), /* and no later slot */
    .setname = no_cm_setname,
    .getname = no_cm_name,
    .getpeer = no_cm_peer,
    .connect = cm_connect,
    .accept = cm_accept,
    .shutdown = cm_shutdown,
};
