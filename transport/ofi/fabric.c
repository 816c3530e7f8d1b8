/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The library's objects, from the provider's description down to the listening endpoint:
 *
 *   info -> fabric -> domain -> completion queue
 *                  -> event queue -> listening endpoint
 *
 * Connected endpoints (FI_EP_MSG) only: they fail one by one and refuse what was not granted.
 */
#include "ofi.h"

#include "core/base/network.h"
#include "transport/machine.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define API         FI_VERSION(1, 15)
#define COMPLETIONS 16384u

static struct fi_info *provider_hints(
        const struct hth_ofi *o, const char *provider, const union hth_ofi_addr *addr)
{
    struct fi_info *hints = o->lib->dupinfo(NULL);

    if (!hints)
        return NULL;
    hints->caps = FI_MSG | FI_SEND | FI_RECV | FI_RMA | FI_READ | FI_REMOTE_READ;
    hints->ep_attr->type = FI_EP_MSG;
    hints->addr_format = addr->sa.sa_family == AF_INET6 ? FI_SOCKADDR_IN6 : FI_SOCKADDR_IN;
    hints->domain_attr->threading = FI_THREAD_DOMAIN;
    hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
    hints->tx_attr->size = 2 * HTH_OFI_RING;
    hints->rx_attr->size = HTH_OFI_RING;
    if (provider) {
        hints->fabric_attr->prov_name = strdup(provider);
        if (!hints->fabric_attr->prov_name) {
            o->lib->freeinfo(hints);
            return NULL;
        }
    }
    return hints;
}

static int provider_ask(const struct hth_ofi *o, const char *provider,
        const struct hth_transport_opts *opts, struct fi_info **out)
{
    struct fi_info *hints = provider_hints(o, provider, &o->self);
    char service[8];
    int rc;

    if (!hints)
        return -FI_ENOMEM;
    snprintf(service, sizeof(service), "%u", opts->port);
    rc = o->lib->getinfo(API, opts->bind, service, FI_SOURCE | FI_NUMERICHOST, hints, out);
    o->lib->freeinfo(hints);
    return rc;
}

/* "tcp, net": what the library offers for this address. */
static void provider_list(
        const struct hth_ofi *o, const struct hth_transport_opts *opts, char *out, size_t cap)
{
    struct fi_info *all = NULL;

    snprintf(out, cap, "none");
    if (provider_ask(o, NULL, opts, &all))
        return;
    out[0] = 0;
    for (struct fi_info *i = all; i; i = i->next) {
        size_t n = strlen(out);

        if (!strstr(out, i->fabric_attr->prov_name))
            snprintf(out + n, cap - n, "%s%s", n ? ", " : "", i->fabric_attr->prov_name);
    }
    o->lib->freeinfo(all);
}

/* Why there is none: what this machine lacks, or at least what the library has instead. */
static int provider_refused(const struct hth_ofi *o, const struct hth_transport_opts *opts,
        const char *provider, int rc, struct hearth_error *err)
{
    struct hth_machine machine;
    char known[160], why[HEARTH_ERROR_TEXT];

    hth_machine_look("", &machine);
    if (hth_ofi_explain(o->lib, provider, opts->bind, &machine, why, sizeof(why)))
        return hth_fail(err, HEARTH_EINVAL, -rc, "libfabric's provider %.40s: %s", provider, why);
    provider_list(o, opts, known, sizeof(known));
    return hth_fail(err, HEARTH_EINVAL, -rc,
            "libfabric has no provider '%s' with connected endpoints on %s; it has: %s (the "
            "command hearth doctor net shows more)",
            provider, opts->bind, known);
}

static int provider_choose(
        struct hth_ofi *o, const struct hth_transport_opts *opts, struct hearth_error *err)
{
    const char *provider = opts->provider ? opts->provider : HTH_PROVIDER_DEFAULT;
    struct fi_info *found = NULL;
    int rc = provider_ask(o, provider, opts, &found);

    for (struct fi_info *i = rc ? NULL : found; i && !o->info; i = i->next)
        if (strcmp(i->fabric_attr->prov_name, provider) == 0)
            o->info = o->lib->dupinfo(i);
    if (found)
        o->lib->freeinfo(found);
    return o->info ? HEARTH_OK : provider_refused(o, opts, provider, rc, err);
}

static int fabric_refused(struct hth_ofi *o, int rc, const char *what, struct hearth_error *err)
{
    return hth_fail(err, rc == -FI_ENOMEM ? HEARTH_ENOMEM : HEARTH_EIO, -rc,
            "libfabric provider %s: %s: %s", o->info->fabric_attr->prov_name, what,
            o->lib->strerror(-rc));
}

static int queues_open(struct hth_ofi *o, struct hearth_error *err)
{
    struct fi_eq_attr eq = { .wait_obj = FI_WAIT_FD };
    struct fi_cq_attr cq = {
        .size = COMPLETIONS, .format = FI_CQ_FORMAT_MSG, .wait_obj = FI_WAIT_FD
    };
    int rc = fi_eq_open(o->fabric, &eq, &o->eq, NULL);

    if (rc)
        return fabric_refused(o, rc, "no event queue to wait on", err);
    rc = fi_cq_open(o->domain, &cq, &o->cq, NULL);
    return rc ? fabric_refused(o, rc, "no completion queue to wait on", err) : HEARTH_OK;
}

static int wait_watch(struct hth_ofi *o, int fd)
{
    struct epoll_event ev = { .events = EPOLLIN, .data.fd = fd };

    return epoll_ctl(o->epoll_fd, EPOLL_CTL_ADD, fd, &ev);
}

/* One descriptor for all there is to wait for. */
static int wait_open(struct hth_ofi *o, struct hearth_error *err)
{
    int eq_fd = -1, cq_fd = -1;
    int rc = fi_control(&o->eq->fid, FI_GETWAIT, &eq_fd);

    if (!rc)
        rc = fi_control(&o->cq->fid, FI_GETWAIT, &cq_fd);
    if (rc)
        return fabric_refused(o, rc, "its queues have no descriptor", err);
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
    char text[HTH_OFI_LABEL];
    size_t len = sizeof(o->self);
    int rc = fi_passive_ep(o->fabric, o->info, &o->pep, NULL);

    if (!rc)
        rc = fi_pep_bind(o->pep, &o->eq->fid, 0);
    if (!rc)
        rc = fi_listen(o->pep);
    hth_ofi_addr_text(&o->self, text);
    if (rc == -FI_EADDRINUSE)
        return hth_fail(err, HEARTH_EEXIST, -rc,
                "another program listens on %s already; choose another port, or 0 for any", text);
    if (rc)
        return hth_fail(err, HEARTH_EINVAL, -rc, "libfabric cannot listen on %s: %s", text,
                o->lib->strerror(-rc));
    rc = fi_getname(&o->pep->fid, &o->self, &len);
    return rc ? fabric_refused(o, rc, "the listening port is not told", err) : HEARTH_OK;
}

/* Before anything listens, and for the provider that was found, whatever was asked for. */
static int listen_check(
        const struct hth_ofi *o, const struct hth_transport_opts *opts, struct hearth_error *err)
{
    struct hth_network network = { .bind = opts->bind,
        .transport = "ofi",
        .provider = o->info->fabric_attr->prov_name,
        .trusted = opts->trusted };

    return hth_listener_check(&network, err);
}

int hth_ofi_fabric_open(
        struct hth_ofi *o, const struct hth_transport_opts *opts, struct hearth_error *err)
{
    int rc = provider_choose(o, opts, err);

    if (rc || (rc = listen_check(o, opts, err)))
        return rc;
    o->mr_mode = o->info->domain_attr->mr_mode;
    o->sockets = strcmp(o->info->fabric_attr->prov_name, "verbs") != 0;
    rc = o->lib->fabric(o->info->fabric_attr, &o->fabric, NULL);
    if (rc)
        return fabric_refused(o, rc, "no fabric", err);
    rc = fi_domain(o->fabric, o->info, &o->domain, NULL);
    if (rc)
        return fabric_refused(o, rc, "no domain", err);
    rc = queues_open(o, err);
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

int hth_ofi_endpoint(struct hth_ofi *o, struct fi_info *info, struct fid_ep **out)
{
    struct fid_ep *ep = NULL;
    int rc = fi_endpoint(o->domain, info, &ep, NULL);

    if (rc)
        return rc;
    rc = fi_ep_bind(ep, &o->eq->fid, 0);
    if (!rc)
        rc = fi_ep_bind(ep, &o->cq->fid, FI_TRANSMIT | FI_RECV);
    if (!rc)
        rc = fi_enable(ep);
    if (rc) {
        fi_close(&ep->fid);
        return rc;
    }
    *out = ep;
    return 0;
}
