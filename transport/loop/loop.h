/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The network inside one process, on one thread and (usually) in virtual time: bytes move from
 * memory to memory, and faults come when the script says so. A net belongs to one thread, but for
 * reg().
 */
#ifndef HEARTH_TRANSPORT_LOOP_H
#define HEARTH_TRANSPORT_LOOP_H

#include "transport/transport.h"

struct hth_loop_net;

enum hth_loop_kind { HTH_LOOP_CONNECT, HTH_LOOP_MESSAGE, HTH_LOOP_PULL };

enum hth_loop_fault {
    HTH_LOOP_NONE,
    HTH_LOOP_DROP,      /* a message is not delivered; a connect or pull: the connection breaks */
    HTH_LOOP_CUT,       /* a pull: half of the bytes come, then the connection breaks */
    HTH_LOOP_STALL,     /* a pull or connect: nothing happens until drop or close */
    HTH_LOOP_FLIP,      /* one byte wrong */
    HTH_LOOP_FORGE,     /* a pull: five bytes wrong, and their CRC32C as it was */
    HTH_LOOP_DUPLICATE, /* a message: delivered twice; a connect: two on_accept() */
    HTH_LOOP_FULL,      /* a connect: HEARTH_EBUSY, as where no more connections may stand */
};

struct hth_loop_verdict {
    enum hth_loop_fault fault;
    uint32_t
            delay_ms; /* on top of the net's latency; messages then overtake each other only with `late` */
    int late;         /* this message may be overtaken */
};

/* Asked once for each connect, message and pull. from, to: the addresses' numbers; of a pull,
 * `from` pulls `len` bytes and `bytes` is its descriptor. */
typedef struct hth_loop_verdict hth_loop_script(void *arg, enum hth_loop_kind kind, uint32_t from,
        uint32_t to, const void *bytes, size_t len);

int hth_loop_net_open(const struct hth_clock *clock, uint32_t latency_ms, struct hth_loop_net **out,
        struct hearth_error *err);
void hth_loop_net_script(struct hth_loop_net *net, hth_loop_script *script, void *arg);

/* Called for each registration, on the thread that registers: returns the code with which it is to
 * fail, or 0. It may advance the net's clock, as pinning would. For a test that registers on the
 * net's thread alone. */
typedef int hth_loop_reg_fn(void *arg, uint32_t node, const void *base, uint64_t len);
void hth_loop_net_on_reg(struct hth_loop_net *net, hth_loop_reg_fn *on_reg, void *arg);

/* Behaves as if network cards served the pulls: peers can pull under a revoked grant until their
 * connection is down or the region is deregistered; no HTH_CAP_REVOKES. */
void hth_loop_net_no_revoke(struct hth_loop_net *net);

/* Each pull completes with the CRC32C of its bytes, as with `tcp`. */
void hth_loop_net_sums(struct hth_loop_net *net);

/* Silences a node: messages from it and to it wait (a stopped process, a partition) until it is not
 * silent any more. Nothing breaks by itself. */
void hth_loop_net_silence(struct hth_loop_net *net, uint32_t node, int silent);

/* Blocks a node's thread: messages to it wait until the thread continues, messages that it has sent
 * arrive. Pulls of its memory are served meanwhile if network cards serve them
 * (hth_loop_net_no_revoke()), and wait otherwise. */
void hth_loop_net_block(struct hth_loop_net *net, uint32_t node, int blocked);

/* Mutes one way of a pair: messages of `from` wait until the way is unmuted, and then come to `to`
 * in the order in which they were sent. Errors: HEARTH_ENOMEM. */
int hth_loop_net_mute(struct hth_loop_net *net, uint32_t from, uint32_t to, int muted);

void hth_loop_net_close(struct hth_loop_net *net); /* after all its transports */

/* `node`: any number that no open transport of the net has; its address blob is that number.
 * Closing breaks its connections; peers get on_down(HEARTH_EPEER) one latency later. */
int hth_loop_open(struct hth_loop_net *net, uint32_t node,
        const struct hth_transport_events *events, struct hth_transport **out,
        struct hearth_error *err);

/* When anything of the whole net is due; HTH_NEVER: nothing. */
uint64_t hth_loop_net_due_ms(struct hth_loop_net *net);

/* The transport whose progress() is due first; NULL: nothing is due. */
struct hth_transport *hth_loop_net_first(struct hth_loop_net *net);

#endif
