/* SPDX-License-Identifier: Apache-2.0 */
/* The table of providers, and the reasons against one, the plainest first. */
#include "providers.h"

#include "core/base/fail.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const struct hth_ofi_provider hth_ofi_providers[] = {
    { .name = "verbs",
            .fabric = "InfiniBand, RoCE v2",
            .shape = HTH_OFI_CONNECTED,
            .pins = 1,
            .needs_ip = 1,
            .files = HTH_OFI_UVERBS,
            .hardware = "an InfiniBand or RoCE adapter",
            /* A trainer with the engine in it forks; slots may lie on huge pages. */
            .setting = { { "RDMAV_FORK_SAFE", "1" }, { "RDMAV_HUGEPAGES_SAFE", "1" } } },
    { .name = "efa",
            .fabric = "EFA (AWS)",
            .shape = HTH_OFI_RDM,
            .pins = 1,
            .files = HTH_OFI_UVERBS,
            .hardware = "an Elastic Fabric Adapter",
            .is_efa = 1,
            /* Not RDMAV_HUGEPAGES_SAFE: the provider refuses to open with both. */
            .setting = { { "FI_EFA_FORK_SAFE", "1" } } },
    { .name = "efa-direct", /* a fabric of the provider efa */
            .prov = "efa",
            .fabric = "EFA (AWS), without the library's protocol",
            .shape = HTH_OFI_RDM,
            .pins = 1,
            .files = HTH_OFI_UVERBS,
            .hardware = "an Elastic Fabric Adapter",
            .is_efa = 1,
            .setting = { { "FI_EFA_FORK_SAFE", "1" } } },
    { .name = "cxi",
            .fabric = "Slingshot (HPE Cray)",
            .shape = HTH_OFI_RDM,
            .pins = 1,
            .files = "/dev/cxi*",
            .hardware = "a Slingshot adapter",
            /* So that a read with a key that was closed is refused, not served. */
            .setting = { { "FI_CXI_MR_MATCH_EVENTS", "1" }, { "FI_CXI_OPTIMIZED_MRS", "0" } } },
    { .name = "opx",
            .fabric = "Omni-Path, Cornelis CN5000",
            .shape = HTH_OFI_RDM,
            .obeys = 1,
            .pins = 1,
            .files = "/dev/hfi1*",
            .hardware = "an Omni-Path adapter" },
    { .name = "psm2",
            .fabric = "Omni-Path",
            .shape = HTH_OFI_RDM,
            .obeys = 1,
            .pins = 1,
            .files = "/dev/hfi1*",
            .hardware = "an Omni-Path adapter" },
    { .name = "verbs;ofi_rxm",
            .fabric = "InfiniBand, RoCE v2, without connections",
            .shape = HTH_OFI_RDM,
            .pins = 1,
            .needs_ip = 1,
            .files = HTH_OFI_UVERBS,
            .hardware = "an InfiniBand or RoCE adapter",
            .setting = { { "RDMAV_FORK_SAFE", "1" }, { "RDMAV_HUGEPAGES_SAFE", "1" } } },
    { .name = "psm3", .fabric = "Intel Ethernet", .shape = HTH_OFI_RDM, .obeys = 1 },
    { .name = "tcp", .fabric = "any Ethernet", .shape = HTH_OFI_CONNECTED, .obeys = 1 },
    { .name = "tcp;ofi_rxm",
            .fabric = "any Ethernet, without connections",
            .shape = HTH_OFI_RDM,
            .obeys = 1,
            /* Buffers that all peers share: 4096 by itself, which each endpoint clears on the
             * engine's thread. */
            .setting = { { "FI_OFI_RXM_MSG_RX_SIZE", "128" } } },
    { .name = "shm", .fabric = "one machine", .shape = HTH_OFI_RDM, .obeys = 1 },
    { .name = NULL },
};

const struct hth_ofi_provider *hth_ofi_provider_find(const char *name)
{
    size_t len = strcspn(name, "/");

    for (const struct hth_ofi_provider *p = hth_ofi_providers; p->name; p++)
        if (strlen(p->name) == len && strncmp(p->name, name, len) == 0)
            return p;
    return NULL;
}

/* Adds the parts of "a;b" that are missing. */
static void filter_add(const char *name, char *out, size_t len)
{
    const struct hth_ofi_provider *p = hth_ofi_provider_find(name);
    const char *part = p && p->prov ? p->prov : name;

    for (; *part && *part != '/'; part += strcspn(part, ";/"), part += *part == ';') {
        int n = (int)strcspn(part, ";/");
        char with_commas[96], all[160];

        snprintf(with_commas, sizeof(with_commas), ",%.*s,", n < 64 ? n : 64, part);
        snprintf(all, sizeof(all), ",%.150s,", out);
        if (!strstr(all, with_commas))
            snprintf(out + strlen(out), len - strlen(out), ",%.*s", n < 64 ? n : 64, part);
    }
}

/* Writes a list like "tcp,net,verbs". */
void hth_ofi_provider_filter(const char *name, const char *const *also, char *out, size_t len)
{
    snprintf(out, len, "tcp,net,verbs");
    filter_add(name, out, len);
    for (; also && *also; also++)
        filter_add(*also, out, len);
}

/* ---- reasons --------------------------------------------------------------------------------- */

struct reason {
    const struct hth_ofi_provider *p;
    const struct hth_ofi_look *look;
    char *out;
    size_t len;
};

static int HTH_PRINTF(2, 3) reason_is(const struct reason *r, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(r->out, r->len, fmt, ap);
    va_end(ap);
    return 1;
}

static int reason_shape(const struct reason *r)
{
    if (r->look->shapes & r->p->shape)
        return 0;
    return reason_is(r,
            "the provider %s has no %s endpoints, and this version of Hearth uses no others",
            r->p->name, r->p->shape == HTH_OFI_RDM ? "connected" : "reliable datagram");
}

static int reason_files(const struct reason *r)
{
    if (!r->p->files || (r->look->files == 1 && r->look->hardware))
        return 0;
    if (r->look->files == -1)
        return reason_is(r,
                "this user may not open %s, which %s needs: give the user the group of these "
                "files, or a udev rule that opens them",
                r->p->files, r->p->name);
    if (r->look->files == 1)
        return reason_is(r, "none of the adapters in /sys/class/infiniband is %s", r->p->hardware);
    return reason_is(r,
            "there is no %s, which %s makes with its driver: load the driver, and give a container "
            "the files (docker --device, Kubernetes: the device plugin of the adapter)",
            r->p->files, r->p->hardware);
}

/* A provider that finds no hardware is missing from the library's list, like a provider that is not
 * built. */
static int reason_not_built(const struct reason *r)
{
    const char *prov = r->p->prov ? r->p->prov : r->p->name;

    if (r->look->built != 0)
        return 0;
    return reason_is(r,
            "%s has no provider %s: it is built without it, or the provider found nothing to work "
            "with (FI_LOG_LEVEL=info fi_info -p '%s' says which); the library that comes with the "
            "fabric's software is named by fabric_library (HEARTH_FABRIC_LIBRARY)",
            r->look->library[0] ? r->look->library : "this libfabric", prov, prov);
}

static int reason_memlock(const struct reason *r)
{
    if (!r->p->pins || r->look->memlock_bytes >= HTH_OFI_MEMLOCK_LEAST)
        return 0;
    return reason_is(r,
            "this process may lock %u KiB of memory, and %s locks all that it sends from and "
            "receives into: raise the limit to unlimited (ulimit -l and limits.conf; of a systemd "
            "service LimitMEMLOCK=infinity; of a container --ulimit memlock=-1, in Kubernetes by "
            "the container runtime's own service, or the capability IPC_LOCK)",
            (unsigned)(r->look->memlock_bytes >> 10), r->p->name);
}

/* 1: an adapter of a list like "ib0; ib1 10.0.0.1" has an address. */
static int adapter_has_address(const char *adapters)
{
    while (*adapters) {
        if (adapters[strcspn(adapters, " ;")] == ' ')
            return 1;
        adapters += strcspn(adapters, " ;");
        adapters += strspn(adapters, "; ");
    }
    return 0;
}

static int reason_address(const struct reason *r)
{
    const struct hth_ofi_look *look = r->look;

    if (!r->p->needs_ip)
        return 0;
    if (!adapter_has_address(look->adapters))
        return reason_is(r,
                "no interface of an RDMA adapter has an IP address%s%s, and rdma_cm finds peers by "
                "one: give it one (ip address add; IPoIB on InfiniBand) and bind to that",
                look->adapters[0] ? "; there are: " : "", look->adapters);
    if (!look->bind[0] || look->is_rdma)
        return 0;
    return reason_is(r,
            "the address %s is of interface %s, which is no RDMA adapter's: bind to the address of "
            "one of these: %s",
            look->bind, look->interface[0] ? look->interface : "(none)", look->adapters);
}

static int reason_vni(const struct reason *r)
{
    if (strcmp(r->p->name, "cxi") != 0 || r->look->has_vni)
        return 0;
    return reason_is(r,
            "there is no SLINGSHOT_VNIS in the environment: the launcher gives each job a network "
            "of its own by that (Slurm's switch plugin), so let a rank start the engine, or start "
            "hearthd with SLINGSHOT_VNIS, SLINGSHOT_SVC_IDS and SLINGSHOT_DEVICES of a job step");
}

int hth_ofi_provider_explain(
        const char *name, const struct hth_ofi_look *look, char *out, size_t len)
{
    static int (*const reasons[])(const struct reason *) = { reason_shape, reason_files,
        reason_not_built, reason_memlock, reason_address, reason_vni };
    struct reason r = { hth_ofi_provider_find(name), look, out, len };

    out[0] = '\0';
    for (size_t i = 0; r.p && i < sizeof(reasons) / sizeof(reasons[0]); i++)
        if (reasons[i](&r))
            return 1;
    return 0;
}
