/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The networks of this machine, as /sys, /proc and the kernel's list of addresses show it: for
 * the sentence of a transport that does not open, and for `hearth doctor net`.
 */
#ifndef HEARTH_TRANSPORT_MACHINE_H
#define HEARTH_TRANSPORT_MACHINE_H

#include <stddef.h>
#include <stdint.h>

#define HTH_MACHINE_WORD 32u

struct hth_interface {
    char name[HTH_MACHINE_WORD];
    char state[HTH_MACHINE_WORD]; /* "up", "down", "unknown" */
    int64_t speed_mbit;           /* -1: not known */
    int64_t mtu;
    int64_t numa; /* -1: none */
    int is_rdma;  /* an adapter's port has it, or one below it */
    int is_loopback;
    char *addresses; /* "10.0.0.1, fd00::1", never NULL: link-local ones left out */
};

struct hth_rdma_port {
    char device[HTH_MACHINE_WORD];
    char driver[HTH_MACHINE_WORD]; /* "mlx5_core", "efa"; empty: not known */
    int64_t port;
    char state[HTH_MACHINE_WORD]; /* "ACTIVE" */
    char rate[HTH_MACHINE_WORD];  /* "400 Gb/sec (4X NDR)" */
    char layer[HTH_MACHINE_WORD]; /* "InfiniBand", "Ethernet" */
    int64_t numa;
    char interface[HTH_MACHINE_WORD]; /* empty: it has none */
};

struct hth_machine {
    char root[256];                  /* what stands for "/"; "" but in tests */
    struct hth_interface *interface; /* [interfaces], as many as there are */
    struct hth_rdma_port *port;      /* [ports] */
    unsigned interfaces, ports;
    uint64_t memlock_bytes;            /* UINT64_MAX: no limit */
    int locks_any;                     /* the capability that no limit holds for */
    char congestion[HTH_MACHINE_WORD]; /* of TCP */
};

/* root: "", or a folder that stands for "/"; addresses then are lines "INTERFACE ADDRESS" of its
 * file `addresses`. What cannot be read is empty or -1. */
void hth_machine_look(const char *root, struct hth_machine *out);
void hth_machine_fini(struct hth_machine *m);
/* The interface of this name, or the one that has this address, or the first of these, however it
 * is written; NULL: none. */
const struct hth_interface *hth_machine_interface(const struct hth_machine *m, const char *name);
const struct hth_interface *hth_machine_interface_of(
        const struct hth_machine *m, const char *address);
/* Device files of this pattern. 1: this process may open one of them; -1: it may open none; 0:
 * there is none. */
int hth_machine_files(const struct hth_machine *m, const char *pattern);

#endif
