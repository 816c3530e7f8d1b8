/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The library's objects, from the provider's description down to the listening endpoint:
 *
 *   info -> fabric -> domain -> completion queue
 *                  -> event queue -> listening endpoint
 *
 * Fabric and domain are of both kinds of endpoints, the rest is for connected ones.
 */
#include "ofi.h"

#include <stdio.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

int hth_ofi_fabric_refused(
        const struct hth_ofi *o, int rc, const char *what, struct hearth_error *err)
{
    return hth_fail(err, rc == -FI_ENOMEM ? HEARTH_ENOMEM : HEARTH_EIO, -rc,
            "libfabric provider %s: %s: %s", o->info->fabric_attr->prov_name, what,
            o->lib->strerror(-rc));
}

#define QUEUE_LEAST 1023u

/* libfabric has no attribute for the longest queue of a device; many devices have 2^n - 1. */
static int queue_open(struct hth_ofi *o)
{
    struct fi_cq_attr attr = {
        .size = HTH_OFI_QUEUE, .format = FI_CQ_FORMAT_MSG, .wait_obj = FI_WAIT_FD
    };
    int rc = fi_cq_open(o->domain, &attr, &o->cq, NULL);

    while (rc && attr.size / 2 >= QUEUE_LEAST) {
        attr.size /= 2;
        rc = fi_cq_open(o->domain, &attr, &o->cq, NULL);
    }
    o->queue = (uint32_t)attr.size;
    return rc;
}

static int queues_open(struct hth_ofi *o, struct hearth_error *err)
{
    struct fi_eq_attr eq = { .wait_obj = FI_WAIT_FD };
    int rc = fi_eq_open(o->fabric, &eq, &o->eq, NULL);

    if (rc)
        return hth_ofi_fabric_refused(o, rc, "no event queue to wait on", err);
    rc = queue_open(o);
    return rc ? hth_ofi_fabric_refused(o, rc, "no completion queue to wait on", err) : HEARTH_OK;
}

static int wait_watch(struct hth_ofi *o, int fd)
{
    struct epoll_event ev = { .events = EPOLLIN, .data.fd = fd };

    return epoll_ctl(o->epoll_fd, EPOLL_CTL_ADD, fd, &ev);
}

/* Opens one descriptor for all events that the transport waits for. */
static int wait_open(struct hth_ofi *o, struct hearth_error *err)
{
    int eq_fd = -1, cq_fd = -1;
    int rc = fi_control(&o->eq->fid, FI_GETWAIT, &eq_fd);

    if (!rc)
        rc = fi_control(&o->cq->fid, FI_GETWAIT, &cq_fd);
    if (rc)
        return hth_ofi_fabric_refused(o, rc, "its queues have no descriptor", err);
    o->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    o->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (o->epoll_fd < 0 || o->wake_fd < 0 || wait_watch(o, eq_fd) || wait_watch(o, cq_fd) ||
            wait_watch(o, o->wake_fd))
        return hth_fail(
                err, HEARTH_EIO, errno, "epoll over libfabric's queues: %s", strerror(errno));
    return HEARTH_OK;
}

static int listen_open(struct hth_ofi *o, struct hearth_error *err)
{
    char text[HTH_ADDR_LABEL];
    size_t len = sizeof(o->self);
    int rc = fi_passive_ep(o->fabric, o->info, &o->pep, NULL);

    if (!rc)
        rc = fi_pep_bind(o->pep, &o->eq->fid, 0);
    if (!rc)
        rc = fi_listen(o->pep);
    hth_addr_text(&o->self, text);
    if (rc == -FI_EADDRINUSE)
        return hth_fail(err, HEARTH_EEXIST, -rc,
                "another program listens on %s already; choose another port, or 0 for any", text);
    if (rc)
        return hth_fail(err, HEARTH_EINVAL, -rc, "libfabric cannot listen on %s: %s", text,
                o->lib->strerror(-rc));
    rc = fi_getname(&o->pep->fid, &o->self, &len);
    return rc ? hth_ofi_fabric_refused(o, rc, "the listening port is not told", err) : HEARTH_OK;
}

int hth_ofi_domain_open(struct hth_ofi *o, struct hearth_error *err)
{
    int rc = o->lib->fabric(o->info->fabric_attr, &o->fabric, NULL);

    if (rc)
        return hth_ofi_fabric_refused(o, rc, "no fabric", err);
    rc = fi_domain(o->fabric, o->info, &o->domain, NULL);
    return rc ? hth_ofi_fabric_refused(o, rc, "no domain", err) : HEARTH_OK;
}

int hth_ofi_listen_open(struct hth_ofi *o, struct hearth_error *err)
{
    int rc = queues_open(o, err);

    if (!rc)
        rc = wait_open(o, err);
    return rc ? rc : listen_open(o, err);
}

static void fid_close(struct hth_ofi *o, struct fid *fid, const char *what)
{
    int rc = fi_close(fid);

    if (rc)
        hth_say(&o->log, HEARTH_LOG_WARN, "ofi-close", "libfabric keeps its %s: %s", what,
                o->lib->strerror(-rc));
}

void hth_ofi_fabric_close(struct hth_ofi *o)
{
    if (o->epoll_fd >= 0)
        close(o->epoll_fd);
    if (o->wake_fd >= 0)
        close(o->wake_fd);
    if (o->pep)
        fid_close(o, &o->pep->fid, "listening endpoint");
    if (o->cq)
        fid_close(o, &o->cq->fid, "completion queue");
    if (o->domain)
        fid_close(o, &o->domain->fid, "domain");
    if (o->eq)
        fid_close(o, &o->eq->fid, "event queue");
    if (o->fabric)
        fid_close(o, &o->fabric->fid, "fabric");
    if (o->info)
        o->lib->freeinfo(o->info);
}

int hth_ofi_endpoint_enable(struct hth_ofi *o, struct fid_ep *ep)
{
    int rc = fi_ep_bind(ep, &o->eq->fid, 0);

    if (!rc)
        rc = fi_ep_bind(ep, &o->cq->fid, FI_TRANSMIT | FI_RECV);
    if (!rc)
        rc = fi_enable(ep);
    if (rc)
        fi_close(&ep->fid);
    return rc;
}

int hth_ofi_endpoint(struct hth_ofi *o, struct fi_info *info, struct fid_ep **out)
{
    struct fid_ep *ep = NULL;
    int rc = fi_endpoint(o->domain, info, &ep, NULL);

    if (!rc)
        rc = hth_ofi_endpoint_enable(o, ep);
    if (!rc)
        *out = ep;
    return rc;
}
