/* SPDX-License-Identifier: Apache-2.0 */
/* Options, machine and libraries put together: what opens, and what stands against the rest. */
#include "choice.h"
#include "transport.h"

#include <stdio.h>
#include <string.h>

static const struct hth_offer *offer_of(const struct hth_library *library, const char *provider)
{
    for (unsigned i = 0; i < library->offers.count; i++)
        if (strcmp(library->offers.offer[i].provider, provider) == 0)
            return &library->offers.offer[i];
    return NULL;
}

/* The address to use an adapter by; "" where none has one. */
static const char *rdma_address(const struct hth_machine *m, char out[64])
{
    out[0] = '\0';
    for (unsigned i = 0; i < m->interfaces && !out[0]; i++)
        if (m->interface[i].is_rdma && strcmp(m->interface[i].state, "down") != 0)
            snprintf(out, 64, "%.*s", (int)strcspn(m->interface[i].addresses, ","),
                    m->interface[i].addresses);
    return out;
}

/* The first of the addresses that no interface has; NULL: each is on one. */
static const char *choice_missing(const struct hth_network *network,
        const struct hth_machine *machine, char out[HTH_BIND_TEXT])
{
    const char *at = network->bind;

    while (hth_bind_next(&at, out))
        if (hth_address_reach(out) == HTH_REACH_OTHERS && !hth_machine_interface_of(machine, out))
            return out;
    return NULL;
}

/* Why this machine or the library cannot use the provider on this address; out "": it can. */
static int choice_refused_here(const struct hth_network *network, const struct hth_machine *machine,
        const struct hth_library *library, char *out, size_t len)
{
    const struct hth_interface *own = hth_machine_interface_of(machine, network->bind);
    const struct hth_offer *offer = offer_of(library, network->provider);
    char address[64], one[HTH_BIND_TEXT];

    out[0] = '\0';
    if (choice_missing(network, machine, one))
        snprintf(out, len, "no interface of this machine has the address %s", one);
    else if (!library->answered)
        snprintf(out, len, "%.600s", library->why);
    else if (offer && offer->against[0])
        snprintf(out, len, "%s", offer->against);
    else if (offer && offer->needs_ip && !(own && own->is_rdma))
        snprintf(out, len,
                "%.64s is no address of an RDMA adapter's interface, by which %s finds its peers: "
                "set HEARTH_BIND=%s",
                network->bind, network->provider, rdma_address(machine, address));
    return out[0] != '\0';
}

int hth_choice_refused(const struct hth_network *network, const struct hth_machine *machine,
        const struct hth_library *library, char *out, size_t len)
{
    struct hearth_error err = { 0 };

    out[0] = '\0';
    if (hth_network_check(network, &err))
        return snprintf(out, len, "%s", err.text) > 0;
    return library && choice_refused_here(network, machine, library, out, len);
}

void hth_choice_setting(const struct hth_machine *machine, const char *transport,
        const struct hth_offer *offer, char *out, size_t len)
{
    char address[64];

    rdma_address(machine, address);
    snprintf(out, len, "set HEARTH_TRANSPORT=%s HEARTH_PROVIDER=%s%s%s", transport, offer->provider,
            address[0] ? " HEARTH_BIND=" : "", address);
}

/* ---- auto ------------------------------------------------------------------------------------ */

static const struct hth_library *candidate_library(
        const struct hth_library *libraries, size_t count, const char *transport)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(libraries[i].transport, transport) == 0)
            return &libraries[i];
    return NULL;
}

static int is_among(const char *devices, const char *device)
{
    size_t n = strlen(device);

    for (const char *at = devices; n && (at = strstr(at, device)); at += n)
        if ((at == devices || at[-1] == ' ') && (!at[n] || at[n] == ',' || at[n] == ':'))
            return 1;
    return 0;
}

/* The rate of the adapter's port, if the address is an adapter's, else of the address's
 * interface. */
static void candidate_rate(const struct hth_machine *m, const char *bind,
        const struct hth_offer *offer, char out[HTH_MACHINE_WORD])
{
    const struct hth_interface *own = hth_machine_interface_of(m, bind);

    out[0] = '\0';
    for (unsigned i = 0; offer && offer->hardware > 0 && i < m->ports && !out[0]; i++)
        if (is_among(offer->devices, m->port[i].device))
            snprintf(out, HTH_MACHINE_WORD, "%s", m->port[i].rate);
    if (!out[0] && offer && offer->hardware < 0 && own && own->speed_mbit > 0)
        snprintf(out, HTH_MACHINE_WORD, "%ld Mbit/s", (long)own->speed_mbit);
}

static void candidate_look(const struct hth_network *network, const struct hth_machine *machine,
        const struct hth_library *library, struct hth_candidate *out)
{
    const struct hth_fabric *f = out->fabric;
    const struct hth_offer *offer = library ? offer_of(library, f->provider) : NULL;
    struct hth_network own = *network;

    own.transport = f->transport;
    own.provider = f->provider;
    candidate_rate(machine, network->bind, offer, out->rate);
    out->untrusted = offer && !offer->against[0] && hth_listener_check(&own, NULL);
    /* A provider that the library lacks is reported as such first; that the network would not allow
     * it comes second. */
    if (library && !library->answered)
        snprintf(out->against, sizeof(out->against), "%.600s", library->why);
    else if (offer && !offer->hardware && offer->against[0])
        snprintf(out->against, sizeof(out->against), "%s", offer->against);
    else if (!hth_choice_refused(&own, machine, library, out->against, sizeof(out->against)) &&
             !offer)
        snprintf(out->against, sizeof(out->against), "%s does not have it",
                library ? library->offers.library : "no library");
}

void hth_candidates_find(const struct hth_network *network, const struct hth_machine *machine,
        const struct hth_library *libraries, size_t count, struct hth_candidates *out)
{
    memset(out, 0, sizeof(*out));
    for (const struct hth_fabric *f = hth_fabrics; f->number; f++) {
        struct hth_candidate *c = &out->one[out->count++];

        c->fabric = f;
        candidate_look(network, machine, candidate_library(libraries, count, f->transport), c);
        if (!c->against[0])
            out->usable |= HTH_FABRIC_BIT(f->number);
    }
}

static const char *own_against(const struct hth_candidates *c)
{
    const char *against = "it is not known";

    for (uint32_t i = 0; i < c->count; i++)
        if (strcmp(c->one[i].fabric->transport, "tcp") == 0)
            against = c->one[i].against;
    return against;
}

/* 1: a setting would help: Ethernet or loopback is called hostile, and the tcp transport, which
 * checks keys, is not installed. */
static int why_hostile(const struct hth_candidates *c, const struct hth_network *network,
        const struct hth_machine *machine, char *out, size_t len)
{
    int is_loopback = hth_address_reach(network->bind) == HTH_REACH_LOOPBACK, untrusted = 0;

    for (uint32_t i = 0; i < c->count; i++)
        untrusted |= c->one[i].untrusted;
    if (!untrusted || (!is_loopback && !hth_machine_interface_of(machine, network->bind)))
        return 0;
    snprintf(out, len,
            "tcp: %.200s; TCP of libfabric and UCX is taken on %.64s only where %s reaches "
            "it (set network = trusted, HEARTH_NETWORK=trusted), and no fabric that checks keys is here",
            own_against(c), network->bind, is_loopback ? "no other user" : "no stranger");
    return 1;
}

/* Most machines have no fabric hardware, and no setting adds it. So the text has only the reasons
 * of the default providers, each reason once. */
void hth_candidates_why(const struct hth_candidates *c, const struct hth_network *network,
        const struct hth_machine *machine, char *out, size_t len)
{
    const char *last = "";
    size_t n = 0;

    out[0] = '\0';
    if (why_hostile(c, network, machine, out, len))
        return;
    for (uint32_t i = 0; i < c->count && n < len; i++) {
        const struct hth_candidate *one = &c->one[i];

        if (strcmp(one->fabric->provider, HTH_PROVIDER_DEFAULT) != 0 || !one->against[0] ||
                strcmp(one->against, last) == 0)
            continue;
        last = one->against;
        n += (size_t)snprintf(
                out + n, len - n, "%s%s: %.95s", n ? "; " : "", one->fabric->name, one->against);
    }
}
