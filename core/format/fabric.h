/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fabrics that `transport = auto` takes, the best first, and the choice among them: the best
 * that all nodes of the ranks' table have. Every rank has the same table and comes to the same
 * choice without further messages: nothing here may depend on the machine it runs on.
 */
#ifndef HEARTH_CORE_FORMAT_FABRIC_H
#define HEARTH_CORE_FORMAT_FABRIC_H

#include "epoch.h"

/* A number is a bit of each greeting, 1 to 31, and is never given again. The order is part of the
 * greeting's version: with two orders, ranks would choose differently. The table leaves out fabrics
 * for one machine, fabrics that run over another row, and fabrics that were never run on ordinary
 * Ethernet: an operator must name them. Our own sockets come before both libraries' TCP, since with
 * a key no stranger gets past their hello. The libraries' TCP stays for a node that has no
 * hearth-tcp.so.
 *         number, transport, provider, name */
#define HTH_FABRICS(X)                      \
    X(1, "ofi", "verbs", "ofi verbs")       \
    X(2, "ofi", "efa", "ofi efa")           \
    X(3, "ofi", "cxi", "ofi cxi")           \
    X(4, "ofi", "opx", "ofi opx")           \
    X(5, "ofi", "psm2", "ofi psm2")         \
    X(6, "ucx", "rc_mlx5", "ucx rc_mlx5")   \
    X(7, "ucx", "dc_mlx5", "ucx dc_mlx5")   \
    X(8, "ucx", "rc_verbs", "ucx rc_verbs") \
    X(11, "tcp", "tcp", "tcp")              \
    X(9, "ofi", "tcp", "ofi tcp")           \
    X(10, "ucx", "tcp", "ucx tcp")

struct hth_fabric {
    uint32_t number; /* 0: the end */
    const char *transport, *provider;
    const char *name; /* as people read it */
};

extern const struct hth_fabric hth_fabrics[]; /* the best first */
#define HTH_FABRICS_MOST  16u
#define HTH_FABRIC_BIT(n) (UINT32_C(1) << (n))
#define HTH_FABRIC_TEXT   240

/* NULL: there is none. */
const struct hth_fabric *hth_fabric_of(uint32_t number);
const struct hth_fabric *hth_fabric_find(const char *transport, const char *provider);

struct hth_fabric_choice {
    uint32_t fabric; /* 0: all nodes had their transport set by hand */
    int settled; /* every node listens on it, so the table's addresses are of it; else each is to
                      * take it, or say that it cannot, and the ranks are to meet again */
    uint32_t better; /* one that some node has and `lacks` has not; 0: none */
    uint32_t lacks;  /* a rank of that node, the lowest */
};

/* Errors: HEARTH_EINVAL, naming a rank and its node: nothing that all have; worse than what this
 * job's first epoch ran on, where that is not allowed. */
int hth_fabric_choose(const unsigned char *table, uint32_t world, struct hth_fabric_choice *out,
        struct hearth_error *err);
/* Writes what was chosen and why, as one line. */
void hth_fabric_say(
        const struct hth_fabric_choice *c, const unsigned char *table, char out[HTH_FABRIC_TEXT]);

/*
 * `.hearth/fabric`: the fabric on which this job's first epoch here ran, and the one that the
 * engine used last.
 *
 *     0 "HTHFABRC"   8 u32 version   12 u32 zero   16 u32 first   20 u32 last   24 digest
 */
#define HTH_FABRIC_BYTES (24 + HTH_DIGEST)

struct hth_fabric_record {
    uint32_t first, last; /* numbers; 0: none yet */
};

void hth_fabric_encode(const struct hth_fabric_record *r, unsigned char out[HTH_FABRIC_BYTES]);
int hth_fabric_decode_as(const struct hth_versions *versions, struct hth_fabric_record *out,
        const void *bytes, size_t len, struct hearth_error *err);
int hth_fabric_decode(
        struct hth_fabric_record *out, const void *bytes, size_t len, struct hearth_error *err);

#endif
