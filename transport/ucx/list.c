/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The transports of Hearth's table that UCX offers on this machine. UCX lists those that start, and
 * gives no reason for the others.
 */
#include "transport/offers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucp/api/ucp.h>
#include <uct/api/uct.h>

#define UVERBS "/dev/infiniband/uverbs*"

/* The best first. */
static const struct row {
    const char *tl, *fabric;
    int card, used; /* used: by open.c */
} rows[] = {
    { "rc_mlx5", "InfiniBand, RoCE v2", 1, 1 },
    { "dc_mlx5", "InfiniBand, RoCE v2", 1, 1 },
    { "rc_verbs", "InfiniBand, RoCE v2", 1, 1 },
    { "srd", "EFA (AWS)", 1, 0 },
    { "ud_mlx5", "InfiniBand, RoCE v2", 1, 0 },
    { "ud_verbs", "InfiniBand, RoCE v2", 1, 0 },
    { "tcp", "any Ethernet", 0, 1 },
    { "posix", "one machine", 0, 0 },
};

#define ROWS (sizeof(rows) / sizeof(rows[0]))

static void list_add_device(struct hth_offer *offer, const char *device)
{
    size_t n = strlen(offer->devices);

    offer->offered = 1;
    if (n + strlen(device) + 3 < sizeof(offer->devices))
        snprintf(offer->devices + n, sizeof(offer->devices) - n, "%s%s", n ? ", " : "", device);
}

static void list_domain(uct_component_h component, const char *name, struct hth_offers *out)
{
    uct_md_config_t *config;
    uct_tl_resource_desc_t *found;
    unsigned count = 0;
    uct_md_h md;

    if (uct_md_config_read(component, NULL, NULL, &config) != UCS_OK)
        return;
    if (uct_md_open(component, name, config, &md) == UCS_OK) {
        if (uct_md_query_tl_resources(md, &found, &count) == UCS_OK) {
            for (unsigned i = 0; i < count; i++)
                for (size_t r = 0; r < ROWS; r++)
                    if (strcmp(found[i].tl_name, rows[r].tl) == 0)
                        list_add_device(&out->offer[r], found[i].dev_name);
            uct_release_tl_resource_list(found);
        }
        uct_md_close(md);
    }
    uct_config_release(config);
}

static void list_component(uct_component_h component, struct hth_offers *out)
{
    uct_component_attr_t attr = { .field_mask = UCT_COMPONENT_ATTR_FIELD_MD_RESOURCE_COUNT };

    if (uct_component_query(component, &attr) != UCS_OK || !attr.md_resource_count)
        return;
    attr.md_resources = calloc(attr.md_resource_count, sizeof(*attr.md_resources));
    attr.field_mask = UCT_COMPONENT_ATTR_FIELD_MD_RESOURCES;
    if (attr.md_resources && uct_component_query(component, &attr) == UCS_OK)
        for (unsigned i = 0; i < attr.md_resource_count; i++)
            list_domain(component, attr.md_resources[i].md_name, out);
    free(attr.md_resources);
}

static void list_reason(
        const struct row *row, const struct hth_machine *machine, struct hth_offer *out)
{
    out->hardware = row->card ? hth_machine_files(machine, UVERBS) != 0 : -1;
    if (!out->hardware)
        snprintf(out->against, sizeof(out->against),
                "there is no " UVERBS
                ", which an InfiniBand or RoCE adapter makes with its driver: "
                "load the driver, and give a container the files");
    else if (!out->offered)
        snprintf(out->against, sizeof(out->against),
                "this UCX shows no device for it: it may be built without it (ucx_info -d)");
    else if (!row->used)
        snprintf(out->against, sizeof(out->against),
                "Hearth's transport ucx does not use it: use the transport ofi on this fabric");
}

hth_transport_list_fn hth_transport_list;
__attribute__((visibility("default"))) int hth_transport_list(const char *library,
        const struct hth_machine *machine, struct hth_offers *out, struct hearth_error *err)
{
    uct_component_h *components;
    unsigned count = 0;

    (void)library, (void)err; /* it is loaded */
    snprintf(out->library, sizeof(out->library), "UCX %s", ucp_get_version_string());
    out->count = ROWS;
    for (size_t r = 0; r < ROWS; r++) {
        snprintf(out->offer[r].provider, sizeof(out->offer[r].provider), "%s", rows[r].tl);
        snprintf(out->offer[r].fabric, sizeof(out->offer[r].fabric), "%s", rows[r].fabric);
        snprintf(out->offer[r].shape, sizeof(out->offer[r].shape), "connected");
        out->offer[r].keys = 0; /* with a card too, UCX itself answers for any address */
    }
    if (uct_query_components(&components, &count) == UCS_OK) {
        for (unsigned i = 0; i < count; i++)
            list_component(components[i], out);
        uct_release_component_list(components);
    }
    for (size_t r = 0; r < ROWS; r++)
        list_reason(&rows[r], machine, &out->offer[r]);
    return HEARTH_OK;
}
