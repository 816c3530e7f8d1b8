/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of libfabric's providers, one row each, and the sentences that say why a provider does
 * not come up. Nothing of libfabric is needed here, nor hardware.
 */
/* For this folder alone. */
#ifndef HEARTH_TRANSPORT_OFI_PROVIDERS_H
#define HEARTH_TRANSPORT_OFI_PROVIDERS_H

#include <stddef.h>
#include <stdint.h>

enum hth_ofi_shape {
    HTH_OFI_CONNECTED = 1, /* FI_EP_MSG */
    HTH_OFI_RDM = 2,       /* FI_EP_RDM: one endpoint and an address vector */
};

struct hth_ofi_setting {
    const char *variable, *value;
};

struct hth_ofi_provider {
    const char *name; /* as it is asked for */
    const char *prov; /* what libfabric calls it, where that is another name */
    const char *fabric;
    enum hth_ofi_shape shape;
    int obeys;         /* who reaches its port is obeyed before any key is asked for: loopback only,
                   * unless the network is trusted; core/base/network.c decides by its own list */
    int pins;          /* registered memory is locked */
    int is_efa;        /* its adapters have the driver efa, and others' have not */
    int needs_ip;      /* rdma_cm finds peers by the IP address of the adapter's interface */
    const char *files; /* device files, for glob(); NULL: none */
    const char *hardware;              /* what makes them */
    struct hth_ofi_setting setting[3]; /* of the environment, before the library is loaded; a
                                        * site's own value stays */
};

/* The best first: what a node with several of them should use. Ends with name NULL. */
extern const struct hth_ofi_provider hth_ofi_providers[];

/* NULL: none of this name. A provider below another, "verbs;ofi_rxm", is a row of its own; a part
 * after a slash, as in "verbs/msg", does not belong to the name. */
const struct hth_ofi_provider *hth_ofi_provider_find(const char *name);
/* FI_PROVIDER: the providers that the library must start for `name` and for those that may be
 * opened in its place (`also`; NULL: none, else NULL ends it). To start all providers costs time,
 * and opens adapters that the user has not chosen. */
void hth_ofi_provider_filter(const char *name, const char *const *also, char *out, size_t len);

#define HTH_OFI_UVERBS    "/dev/infiniband/uverbs*" /* device files of adapters of all makes */
#define HTH_OFI_LOOK_TEXT 160

/* What this backend opens today. */
#define HTH_OFI_SHAPES    (HTH_OFI_CONNECTED | HTH_OFI_RDM)

/* Facts about a provider that a look at this machine has found. */
struct hth_ofi_look {
    int shapes;   /* enum hth_ofi_shape: what this backend works with */
    int built;    /* the library lists it; -1: not known */
    int hardware; /* 1: it is here, 0: it is not, -1: none is needed */
    int files; /* its device files: 1 there, 0 none, -1 there, but this process may not open them */
    int is_rdma;                      /* the interface of `bind` is an adapter's */
    int has_vni;                      /* Slingshot: the launcher has given one */
    uint64_t memlock_bytes;           /* UINT64_MAX: no limit */
    char bind[64];                    /* empty: no address was asked for */
    char interface[32];               /* that has it; empty: not known */
    char adapters[HTH_OFI_LOOK_TEXT]; /* "ib0 10.0.0.1; ib1": interfaces of adapters */
    char library[HTH_OFI_LOOK_TEXT];  /* "libfabric 1.17" */
};

struct hth_machine;
/* As in struct hth_ofi_look. */
int hth_ofi_hardware(const struct hth_machine *m, const struct hth_ofi_provider *p);
/* `built` and `library` are the caller's to fill. bind: NULL: of no address. */
void hth_ofi_look_at(const struct hth_machine *m, const struct hth_ofi_provider *p,
        const char *bind, struct hth_ofi_look *out);

/* Below it not even queues can be had. */
#define HTH_OFI_MEMLOCK_LEAST (64u << 20)

/* What stands against the provider, in one sentence with the remedy: 1; 0: nothing that could be
 * seen, and `out` is empty. */
int hth_ofi_provider_explain(
        const char *name, const struct hth_ofi_look *look, char *out, size_t len);

#endif
