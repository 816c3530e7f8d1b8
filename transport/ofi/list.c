/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The providers of Hearth's table that the library offers here, and the reasons against each. A
 * provider that is built and does not start is missing from fi_getinfo(), which gives no reason:
 * this file looks for the reason in the machine.
 */
#include "ofi.h"

#include "transport/offers.h"
#include <hearth/export.h>
#include <stdio.h>
#include <string.h>

#define API FI_VERSION(1, 15)

/* The parts of "verbs;ofi_rxm" are providers of their own. */
static int list_has(const struct fi_info *all, const char *name)
{
    while (*name) {
        size_t n = strcspn(name, ";");
        const struct fi_info *i = all;

        while (i && (!i->fabric_attr->prov_name || strlen(i->fabric_attr->prov_name) != n ||
                            strncmp(i->fabric_attr->prov_name, name, n) != 0))
            i = i->next;
        if (!i)
            return 0;
        name += n;
        name += *name == ';';
    }
    return 1;
}

int hth_ofi_built(const struct hth_ofi_lib *lib, const struct hth_ofi_provider *p)
{
    struct fi_info *all = NULL;
    int has;

    if (lib->getinfo(API, NULL, NULL, FI_PROV_ATTR_ONLY, NULL, &all))
        return -1;
    has = list_has(all, p->prov ? p->prov : p->name);
    lib->freeinfo(all);
    return has;
}

int hth_ofi_explain(const struct hth_ofi_lib *lib, const char *provider, const char *bind,
        const struct hth_machine *machine, char *out, size_t len)
{
    const struct hth_ofi_provider *p = hth_ofi_provider_find(provider);
    struct hth_ofi_look look;

    out[0] = '\0';
    if (!p)
        return 0;
    hth_ofi_look_at(machine, p, bind, &look);
    look.built = hth_ofi_built(lib, p);
    snprintf(look.library, sizeof(look.library), "libfabric %u.%u", FI_MAJOR(lib->version()),
            FI_MINOR(lib->version()));
    return hth_ofi_provider_explain(provider, &look, out, len);
}

/* efa-direct is a fabric of the provider efa, beside the fabric that has the provider's name. */
int hth_ofi_info_is(const struct fi_info *info, const char *provider)
{
    const struct hth_ofi_provider *p = hth_ofi_provider_find(provider);
    const char *name = p && p->prov ? p->prov : provider, *fabric = info->fabric_attr->name;
    int is_direct = fabric && strcmp(fabric, "efa-direct") == 0;

    if (!info->fabric_attr->prov_name || strcmp(info->fabric_attr->prov_name, name) != 0)
        return 0;
    return strcmp(name, "efa") != 0 || is_direct == (strcmp(provider, "efa-direct") == 0);
}

static int list_is_of(const struct fi_info *info, const struct hth_ofi_provider *p)
{
    enum fi_ep_type type = p->shape == HTH_OFI_RDM ? FI_EP_RDM : FI_EP_MSG;

    return info->ep_attr->type == type && hth_ofi_info_is(info, p->name);
}

/* Adds a device to a list like "eth0, lo": each once, as many as there is room for. */
static void list_add_device(const char *domain, char *out, size_t len)
{
    char with[160], all[200];
    size_t n = strlen(out);

    snprintf(with, sizeof(with), " %.120s,", domain);
    snprintf(all, sizeof(all), " %s,", out);
    if (!strstr(all, with) && n + strlen(domain) + 3 < len)
        snprintf(out + n, len - n, "%s%s", n ? ", " : "", domain);
}

static void list_offer(const struct hth_ofi_lib *lib, const struct fi_info *all,
        const struct hth_ofi_provider *p, const struct hth_machine *machine, struct hth_offer *out)
{
    snprintf(out->provider, sizeof(out->provider), "%s", p->name);
    snprintf(out->fabric, sizeof(out->fabric), "%s", p->fabric);
    snprintf(out->shape, sizeof(out->shape), p->shape == HTH_OFI_RDM ? "datagram" : "connected");
    out->keys = !p->obeys;
    out->needs_ip = p->needs_ip;
    out->hardware = hth_ofi_hardware(machine, p);
    for (const struct fi_info *i = all; i; i = i->next)
        if (list_is_of(i, p)) {
            out->offered = 1;
            if (i->domain_attr && i->domain_attr->name)
                list_add_device(i->domain_attr->name, out->devices, sizeof(out->devices));
        }
    if (!hth_ofi_explain(lib, p->name, NULL, machine, out->against, sizeof(out->against)) &&
            !out->offered)
        snprintf(out->against, sizeof(out->against),
                "libfabric does not open it and gives no reason: FI_LOG_LEVEL=warn "
                "fi_info -p '%s' may show it",
                p->prov ? p->prov : p->name);
}

hth_transport_list_fn hth_transport_list;
HEARTH_API int hth_transport_list(const char *library, const struct hth_machine *machine,
        struct hth_offers *out, struct hearth_error *err)
{
    const struct hth_ofi_lib *lib;
    struct fi_info *all = NULL;
    int rc = hth_ofi_load(library, NULL, NULL, &lib, err);

    if (rc)
        return rc;
    snprintf(out->library, sizeof(out->library), "libfabric %u.%u", FI_MAJOR(lib->version()),
            FI_MINOR(lib->version()));
    if (lib->getinfo(API, NULL, NULL, 0, NULL, &all))
        all = NULL; /* no provider starts: each row has the reason */
    for (const struct hth_ofi_provider *p = hth_ofi_providers;
            p->name && out->count < HTH_OFFERS_MOST; p++)
        list_offer(lib, all, p, machine, &out->offer[out->count++]);
    if (all)
        lib->freeinfo(all);
    return HEARTH_OK;
}
