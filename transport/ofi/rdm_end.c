/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An endpoint with its address vector, its completion queue and the operations under way on it.
 * Nothing is shared between two, so that closing one disturbs nothing of the other: some providers
 * allow one endpoint to a vector, and a queue that is read after one of its endpoints is closed has
 * ended the process (ofi_rxm of libfabric 1.17).
 *
 * There are never more operations with the library than it says it takes, and never more than the
 * queue has room for.
 *
 * Where connections are sockets of this process, a pull endpoint has a domain of its own, too:
 * closed with an answer half here, 1.17 puts a record of that domain into its pool twice.
 */
#include "rdm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#define QUEUE_LEAST 4u
#define BATCHES     4

static struct fid_domain *end_domain(const struct hth_rdm_end *e)
{
    return e->domain ? e->domain : e->r->o.domain;
}

static uint32_t end_least(size_t offered, uint32_t most)
{
    return !offered || offered > most ? most : (uint32_t)offered;
}

/* *size: less than requested if the provider has no queues of that length. 0 or -fi_errno. */
static int end_queue_open(struct hth_rdm_end *e, uint32_t *size)
{
    struct fi_cq_attr attr = { .format = FI_CQ_FORMAT_MSG,
        .wait_obj = e->r->polls ? FI_WAIT_NONE : FI_WAIT_FD };
    int rc = -FI_EINVAL;

    for (; *size >= QUEUE_LEAST; *size /= 2) {
        attr.size = *size;
        rc = fi_cq_open(end_domain(e), &attr, &e->cq, NULL);
        if (rc && attr.wait_obj == FI_WAIT_FD) {
            attr.wait_obj = FI_WAIT_NONE;
            rc = fi_cq_open(end_domain(e), &attr, &e->cq, NULL);
        }
        if (!rc)
            break;
    }
    e->fd = -1;
    if (!rc && (attr.wait_obj == FI_WAIT_NONE || fi_control(&e->cq->fid, FI_GETWAIT, &e->fd))) {
        e->fd = -1;
        e->r->polls = 1;
    }
    return rc;
}

static int end_wait(struct hth_rdm_end *e)
{
    struct epoll_event ev = { .events = EPOLLIN, .data.fd = e->fd };

    return e->fd >= 0 && epoll_ctl(e->r->o.epoll_fd, EPOLL_CTL_ADD, e->fd, &ev) ? -FI_EIO : 0;
}

/* Opens and enables its objects. 0 or -fi_errno. */
static int end_objects(struct hth_rdm_end *e, struct fi_info *info, uint32_t *queue)
{
    struct fi_av_attr av = { .type = info->domain_attr->av_type, .count = 64 };
    int rc = fi_av_open(end_domain(e), &av, &e->av, NULL);

    if (!rc)
        rc = end_queue_open(e, queue);
    if (!rc)
        rc = fi_endpoint(end_domain(e), info, &e->ep, NULL);
    if (!rc)
        rc = fi_ep_bind(e->ep, &e->av->fid, 0);
    if (!rc)
        rc = fi_ep_bind(e->ep, &e->cq->fid, FI_TRANSMIT | FI_RECV);
    if (!rc)
        rc = fi_enable(e->ep);
    return rc ? rc : end_wait(e);
}

/* `receives` of them and `others`; all but reads have bytes. */
static int end_ops(struct hth_rdm_end *e, uint32_t receives, uint32_t others, int reads)
{
    struct hth_rdm *r = e->r;
    size_t packets = receives + (reads ? 0 : others);

    e->count = receives + others;
    e->ops = calloc(e->count, sizeof(*e->ops));
    e->slab = packets ? malloc(packets * r->packet) : NULL;
    if (!e->ops || (packets && !e->slab))
        return -FI_ENOMEM;
    for (uint32_t i = 0; i < e->count; i++) {
        struct hth_rdm_op *op = &e->ops[i];
        struct hth_rdm_op **list = i < receives ? &e->back : &e->free;

        op->end = e;
        op->kind = i < receives ? HTH_RDM_RECV : reads ? HTH_RDM_READ : HTH_RDM_SEND;
        op->bytes = i < packets ? e->slab + (size_t)i * r->packet : NULL;
        op->next = *list;
        *list = op;
    }
    if (packets && (r->o.mr_mode & FI_MR_LOCAL))
        return hth_ofi_mr_open(&r->o, e->slab, packets * r->packet, FI_SEND | FI_RECV, &e->mr);
    return 0;
}

/* An endpoint may accept less at once than its description has as the maximum. Libfabric 2.0
 * reports it by these options; an older libfabric does not have them. */
#define OPT_MAX_MSG_SIZE 12
#define OPT_MAX_RMA_SIZE 14

static size_t end_limit(const struct hth_rdm_end *e, int option)
{
    size_t most = e->r->o.info->ep_attr->max_msg_size, told = 0, len = sizeof(told);

    if (!fi_getopt(&e->ep->fid, FI_OPT_ENDPOINT, option, &told, &len) && told && told < most)
        return told;
    return most;
}

static int end_refused(const struct hth_rdm *r, int rc, const char *what, struct hearth_error *err)
{
    return hth_fail(err, rc == -FI_ENOMEM ? HEARTH_ENOMEM : HEARTH_EIO, -rc,
            "libfabric provider %s: no %s: %s", r->o.info->fabric_attr->prov_name, what,
            r->o.lib->strerror(-rc));
}

/* The length of this transport's buffers: at most that of a message. */
static int home_packet(struct hth_rdm *r, struct hearth_error *err)
{
    size_t most = end_limit(&r->home, OPT_MAX_MSG_SIZE);

    if (most < HTH_RDM_LEAST)
        return hth_fail(err, HEARTH_EUNSUPPORTED, 0,
                "libfabric provider %s has messages of %zu bytes, and %u are needed",
                r->o.info->fabric_attr->prov_name, most, HTH_RDM_LEAST);
    r->packet = most < HTH_RDM_PACKET ? (uint32_t)most : HTH_RDM_PACKET;
    return HEARTH_OK;
}

int hth_rdm_home_open(struct hth_rdm *r, struct hearth_error *err)
{
    struct hth_rdm_end *e = &r->home;
    uint32_t receives = end_least(r->o.info->rx_attr->size, HTH_RDM_OPS);
    uint32_t sends = end_least(r->o.info->tx_attr->size, HTH_RDM_OPS);
    uint32_t queue = receives + sends;
    int rc;

    e->r = r;
    rc = end_objects(e, r->o.info, &queue);
    if (rc == -FI_EADDRINUSE)
        return hth_fail(err, HEARTH_EEXIST, -rc,
                "another program listens there already; choose another port, or 0 for any");
    if (rc)
        return end_refused(r, rc, "endpoint", err);
    if (queue < receives + sends) {
        receives = end_least(receives, queue / 2);
        sends = end_least(sends, queue / 2);
    }
    r->o.home = e->ep;
    rc = home_packet(r, err);
    if (rc)
        return rc;
    rc = end_ops(e, receives, sends, 0);
    if (rc)
        return end_refused(r, rc, "memory for messages", err);
    rc = hth_rdm_blob(r, e->ep, r->address, &r->address_len);
    if (rc)
        return end_refused(r, rc, "address that fits", err);
    hth_rdm_receives_post(e);
    return HEARTH_OK;
}

int hth_rdm_pull_end_open(struct hth_rdm *r, struct hth_rdm_end *e, struct hearth_error *err)
{
    uint32_t reads = end_least(r->o.info->tx_attr->size, HTH_RDM_OPS), queue = reads;
    struct hth_ofi_fds before;
    int rc;

    *e = (struct hth_rdm_end){ .r = r, .fd = -1, .number = r->pulls_made + 1 };
    hth_ofi_fds_note(&before);
    rc = r->own_domains ? fi_domain(r->o.fabric, r->pull_info, &e->domain, NULL) : 0;
    if (!rc)
        rc = end_objects(e, r->pull_info, &queue);
    if (!rc)
        rc = end_ops(e, 0, end_least(reads, queue), 1);
    hth_ofi_fds_seal(&before, NULL);
    if (rc) {
        hth_rdm_end_close(e);
        return end_refused(r, rc, "endpoint to read by", err);
    }
    e->most = end_limit(e, OPT_MAX_RMA_SIZE);
    if (r->o.sockets && e->most > HTH_OFI_SIP)
        e->most = HTH_OFI_SIP;
    r->pulls_made++;
    return HEARTH_OK;
}

static void end_fid_close(struct hth_rdm_end *e, struct fid *fid)
{
    int rc = fi_close(fid);

    if (rc)
        hth_say(&e->r->o.log, HEARTH_LOG_WARN, "ofi-close", "libfabric keeps an object: %s",
                e->r->o.lib->strerror(-rc));
}

/* A registration that is bound to an endpoint is closed before the endpoint, any other after all
 * endpoints that used it. */
int hth_rdm_end_close(struct hth_rdm_end *e)
{
    int rc;

    if (e->mr && (e->r->o.mr_mode & FI_MR_ENDPOINT)) {
        end_fid_close(e, &e->mr->fid);
        e->mr = NULL;
    }
    rc = e->ep ? fi_close(&e->ep->fid) : 0;
    if (rc) { /* tried again at each turn */
        if (!e->kept)
            hth_say(&e->r->o.log, HEARTH_LOG_ERROR, "ofi-close", "libfabric keeps an endpoint: %s",
                    e->r->o.lib->strerror(-rc));
        e->kept = 1;
        return rc;
    }
    e->ep = NULL;
    if (e->fd >= 0)
        epoll_ctl(e->r->o.epoll_fd, EPOLL_CTL_DEL, e->fd, NULL);
    if (e->cq)
        end_fid_close(e, &e->cq->fid);
    if (e->av)
        end_fid_close(e, &e->av->fid);
    e->av = NULL;
    if (e->mr)
        end_fid_close(e, &e->mr->fid);
    if (e->domain)
        end_fid_close(e, &e->domain->fid);
    for (uint32_t i = 0; e->ops && i < e->count; i++)
        hth_rdm_peer_put(e->r, e->ops[i].peer);
    free(e->ops);
    free(e->slab);
    return 0;
}

/* ---- operations ---- */

struct hth_rdm_op *hth_rdm_op_take(
        struct hth_rdm_end *e, struct hth_rdm_peer *peer, hth_conn conn, uint32_t index)
{
    struct hth_rdm_op *op = e->free;

    if (!op)
        return NULL;
    e->free = op->next;
    e->busy++;
    op->peer = peer;
    peer->refs++;
    op->conn = conn;
    op->index = index;
    return op;
}

void hth_rdm_op_give(struct hth_rdm_op *op)
{
    struct hth_rdm_end *e = op->end;

    hth_rdm_peer_put(e->r, op->peer);
    op->peer = NULL;
    op->next = e->free;
    e->free = op;
    e->busy--;
}

void hth_rdm_receives_post(struct hth_rdm_end *e)
{
    while (e->back) {
        struct hth_rdm_op *op = e->back;
        ssize_t rc = fi_recv(e->ep, op->bytes, e->r->packet, e->mr ? fi_mr_desc(e->mr) : NULL,
                FI_ADDR_UNSPEC, op);

        if (rc)
            return; /* again at the next turn */
        e->back = op->next;
    }
}

static int end_read_failure(struct hth_rdm_end *e)
{
    struct fi_cq_err_entry failure = { 0 };

    if (fi_cq_readerr(e->cq, &failure, 0) < 0)
        return 0;
    if (failure.op_context)
        e->r->ended(failure.op_context, 0, failure.err ? failure.err : FI_EIO);
    return 1;
}

int hth_rdm_end_read(struct hth_rdm_end *e)
{
    struct fi_cq_msg_entry entry[16];
    int n = 0;

    for (int i = 0; i < BATCHES; i++) {
        ssize_t got = fi_cq_read(e->cq, entry, sizeof(entry) / sizeof(entry[0]));

        if (got == -FI_EAVAIL && end_read_failure(e)) {
            n++;
            continue;
        }
        if (got <= 0)
            break;
        for (ssize_t k = 0; k < got; k++)
            e->r->ended(entry[k].op_context, entry[k].len, 0);
        n += (int)got;
    }
    hth_rdm_receives_post(e);
    return n;
}
