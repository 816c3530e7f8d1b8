/* SPDX-License-Identifier: Apache-2.0 */
/* The properties of this machine that count for a provider. */
#include "providers.h"

#include "transport/machine.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void look_adapter(const struct hth_interface *i, struct hth_ofi_look *out)
{
    size_t n = strlen(out->adapters);
    int first = (int)strcspn(i->addresses, ",");

    if (i->is_rdma && n < sizeof(out->adapters))
        snprintf(out->adapters + n, sizeof(out->adapters) - n, "%s%s%s%.*s", n ? "; " : "", i->name,
                first ? " " : "", first, i->addresses);
}

/* Adapters of all makes have the same device files; the driver shows which are EFA adapters. */
static int look_adapter_of(const struct hth_machine *m, const struct hth_ofi_provider *p)
{
    for (unsigned i = 0; i < m->ports; i++)
        if (p->is_efa == (strcmp(m->port[i].driver, "efa") == 0))
            return 1;
    return m->ports == 0; /* /sys may be hidden: the files count */
}

int hth_ofi_hardware(const struct hth_machine *m, const struct hth_ofi_provider *p)
{
    if (!p->files)
        return -1;
    if (!hth_machine_files(m, p->files))
        return 0;
    return strcmp(p->files, HTH_OFI_UVERBS) != 0 || look_adapter_of(m, p);
}

void hth_ofi_look_at(const struct hth_machine *m, const struct hth_ofi_provider *p,
        const char *bind, struct hth_ofi_look *out)
{
    const struct hth_interface *own = bind ? hth_machine_interface_of(m, bind) : NULL;

    memset(out, 0, sizeof(*out));
    out->shapes = HTH_OFI_SHAPES;
    out->built = -1;
    out->hardware = hth_ofi_hardware(m, p);
    out->files = p->files ? hth_machine_files(m, p->files) : 1;
    out->has_vni = getenv("SLINGSHOT_VNIS") != NULL;
    out->memlock_bytes = m->locks_any ? UINT64_MAX : m->memlock_bytes;
    snprintf(out->bind, sizeof(out->bind), "%s", bind ? bind : "");
    if (own) {
        out->is_rdma = own->is_rdma;
        snprintf(out->interface, sizeof(out->interface), "%s", own->name);
    }
    for (unsigned i = 0; i < m->interfaces; i++)
        look_adapter(&m->interface[i], out);
}
