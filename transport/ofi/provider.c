/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The provider, and the kind of its endpoints: connected ones (FI_EP_MSG), which fail one by one,
 * where it has them; else reliable datagrams (FI_EP_RDM). Where peers are reached by IP it listens
 * on the address that was given; other fabrics have addresses of their own, and `device` names the
 * domain.
 */
#include "ofi.h"

#include "core/base/network.h"
#include "transport/machine.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define API FI_VERSION(1, 15)

static const char *const connected[] = { "tcp", "verbs", "net" };

enum fi_ep_type hth_ofi_provider_type(const char *provider, char out_name[HTH_OFI_PROVIDER])
{
    const char *slash;

    if (!provider || !*provider)
        provider = HTH_PROVIDER_DEFAULT;
    slash = strchr(provider, '/');
    snprintf(out_name, HTH_OFI_PROVIDER, "%.*s",
            (int)(slash ? (size_t)(slash - provider) : strlen(provider)), provider);
    if (slash)
        return strcmp(slash, "/rdm") == 0 ? FI_EP_RDM : FI_EP_MSG;
    for (size_t i = 0; i < sizeof(connected) / sizeof(*connected); i++)
        if (strcmp(out_name, connected[i]) == 0)
            return FI_EP_MSG;
    return FI_EP_RDM;
}

/* A request to the library for providers. */
struct question {
    const struct hth_transport_opts *opts;
    const char *provider; /* NULL: any */
    enum fi_ep_type type;
    int by_ip;
};

static void hints_fill(struct fi_info *hints, const struct hth_ofi *o, const struct question *q)
{
    hints->caps = FI_MSG | FI_SEND | FI_RECV | FI_RMA | FI_READ | FI_REMOTE_READ;
    /* Verbs requires the last one; it costs nothing, since no peer writes to this node. */
    hints->mode = FI_CONTEXT | FI_CONTEXT2 | FI_RX_CQ_DATA;
    hints->ep_attr->type = q->type;
    if (q->by_ip)
        hints->addr_format = o->self.sa.sa_family == AF_INET6 ? FI_SOCKADDR_IN6 : FI_SOCKADDR_IN;
    hints->domain_attr->threading = FI_THREAD_SAFE; /* reg() comes from any thread */
    hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
    if (q->type == FI_EP_RDM)
        hints->domain_attr->mr_mode |= FI_MR_ENDPOINT | FI_MR_RAW;
}

static int provider_ask(const struct hth_ofi *o, const struct question *q, struct fi_info **out)
{
    const struct hth_ofi_provider *p = q->provider ? hth_ofi_provider_find(q->provider) : NULL;
    const char *name = p && p->prov ? p->prov : q->provider;
    struct fi_info *hints = o->lib->dupinfo(NULL);
    char service[8];
    int rc = 0;

    if (!hints)
        return -FI_ENOMEM;
    hints_fill(hints, o, q);
    if (name && !(hints->fabric_attr->prov_name = strdup(name)))
        rc = -FI_ENOMEM;
    if (!q->by_ip && q->opts->device && !(hints->domain_attr->name = strdup(q->opts->device)))
        rc = -FI_ENOMEM;
    snprintf(service, sizeof(service), "%u", q->opts->port);
    if (!rc && q->by_ip)
        rc = o->lib->getinfo(API, q->opts->bind, service, FI_SOURCE | FI_NUMERICHOST, hints, out);
    else if (!rc)
        rc = o->lib->getinfo(API, NULL, NULL, 0, hints, out);
    o->lib->freeinfo(hints);
    return rc;
}

/* "tcp, net": what the library offers for this address. */
static void provider_list(const struct hth_ofi *o, struct question q, char *out, size_t cap)
{
    struct fi_info *all = NULL;

    snprintf(out, cap, "none");
    q.provider = NULL;
    if (provider_ask(o, &q, &all))
        return;
    out[0] = 0;
    for (struct fi_info *i = all; i; i = i->next) {
        size_t n = strlen(out);

        if (!strstr(out, i->fabric_attr->prov_name))
            snprintf(out + n, cap - n, "%s%s", n ? ", " : "", i->fabric_attr->prov_name);
    }
    o->lib->freeinfo(all);
}

/* Without an address to listen on, a provider with IP addresses would listen on all addresses. */
static int provider_fits(const struct question *q, const struct fi_info *i)
{
    int ip = i->addr_format == FI_SOCKADDR_IN || i->addr_format == FI_SOCKADDR_IN6 ||
             i->addr_format == FI_SOCKADDR;

    return hth_ofi_info_is(i, q->provider) && (q->by_ip || !ip);
}

static int provider_find(struct hth_ofi *o, const struct question *q)
{
    struct fi_info *found = NULL;
    int rc = provider_ask(o, q, &found);

    for (struct fi_info *i = rc ? NULL : found; i && !o->info; i = i->next)
        if (provider_fits(q, i))
            o->info = o->lib->dupinfo(i);
    if (found)
        o->lib->freeinfo(found);
    return rc;
}

/* Checks the provider that was found, which may differ from the requested name, before anything
 * listens. */
static int provider_check(
        const struct hth_ofi *o, const struct question *q, struct hearth_error *err)
{
    const struct hth_transport_opts *opts = q->opts;
    struct hth_network network = { .bind = opts->bind,
        .transport = "ofi",
        .provider = o->info->fabric_attr->prov_name,
        .trusted = opts->trusted,
        .strong = opts->strong };

    if (q->by_ip && opts->device) {
        int rc = hth_addr_device(opts->device, opts->bind, &o->self, err);

        if (rc)
            return rc;
    }
    return hth_listener_check(&network, err);
}

/* The error if there is no such provider: what this machine lacks, or else what the library has
 * instead. */
static int provider_refused(
        const struct hth_ofi *o, const struct question *q, int rc, struct hearth_error *err)
{
    struct hth_machine machine;
    char known[160], why[HEARTH_ERROR_TEXT];
    int is;

    hth_machine_look("", &machine);
    is = hth_ofi_explain(o->lib, q->provider, q->opts->bind, &machine, why, sizeof(why));
    hth_machine_fini(&machine);
    if (is)
        return hth_fail(
                err, HEARTH_EINVAL, -rc, "libfabric's provider %.40s: %s", q->provider, why);
    provider_list(o, *q, known, sizeof(known));
    return hth_fail(err, HEARTH_EINVAL, -rc,
            "libfabric has no provider '%s' with %s endpoints on %s; it has: %s (the command "
            "hearth doctor net shows more)",
            q->provider, q->type == FI_EP_MSG ? "connected" : "datagram", q->opts->bind, known);
}

int hth_ofi_provider_choose(
        struct hth_ofi *o, const struct hth_transport_opts *opts, struct hearth_error *err)
{
    char name[HTH_OFI_PROVIDER];
    struct question q = { .opts = opts,
        .provider = name,
        .type = hth_ofi_provider_type(opts->provider, name),
        .by_ip = 1 };
    int rc = hth_addr_local(opts->bind, opts->port, &o->self, err);

    if (!rc)
        rc = hth_ofi_load(opts->library, opts->provider ? opts->provider : HTH_PROVIDER_DEFAULT,
                opts->also, &o->lib, err);
    if (rc)
        return rc;
    rc = provider_find(o, &q);
    if (!o->info && q.type == FI_EP_RDM) {
        q.by_ip = 0;
        rc = provider_find(o, &q);
    }
    if (o->info) {
        o->mr_mode = o->info->domain_attr->mr_mode;
        o->sockets = q.by_ip && strncmp(o->info->fabric_attr->prov_name, "verbs", 5) != 0;
        return provider_check(o, &q, err);
    }
    q.by_ip = 1;
    return provider_refused(o, &q, rc, err);
}
