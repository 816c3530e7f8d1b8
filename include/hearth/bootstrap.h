/* SPDX-License-Identifier: Apache-2.0 */
/* How ranks find each other: one all-gather of bytes, the caller's own or one of these. */
#ifndef HEARTH_BOOTSTRAP_H
#define HEARTH_BOOTSTRAP_H

#include <hearth/error.h>
#include <hearth/init.h>
#include <stddef.h>
#include <stdint.h>

HEARTH_BEGIN

/* Gather mine[len] of every rank into all[world][len], in rank order, on every rank. Called by
 * hearth_open() and by each later hearth_recover(), on the caller's thread. Must end by itself. One
 * of the caller's own begins as HEARTH_BOOTSTRAP_INIT. */
struct hearth_bootstrap {
    size_t struct_size;
    int (*allgather)(void *self, const void *mine, size_t len, void *all, struct hearth_error *err);
    void (*close)(struct hearth_bootstrap *bootstrap); /* NULL: nothing to free */
    void *self;
};
HEARTH_SIZED(hearth_bootstrap);
#define HEARTH_BOOTSTRAP_INIT HEARTH_INIT(hearth_bootstrap)

/* TCP: ranks meet at host:port, on rank 0's node. hearth_open() and hearth_recover() give the
 * rank's row to its node's engine, and the engines meet there, with one connection a node. The
 * engine of rank 0's node listens meanwhile, at all addresses of host that its machine has. If
 * host is the machine's own name, has only loopback addresses there (/etc/hosts), and ranks may
 * meet off loopback, it listens at all addresses of its machine. If the caller calls allgather()
 * itself, or the engine cannot start, the rank's own process does the same.
 * deadline_ms: 1 .. 86400000. If hearth_open() has opts.key_file, ranks that do not prove the
 * key are refused; without a key host must be a loopback address, unless opts.network is
 * trusted. (If a bootstrap of your own calls this one, hearth_open() passes it neither option,
 * and it accepts the ranks that come first; rows are proved all the same.)
 * If the port is still in use, the gather waits for it for up to 5 s. If host has no address
 * yet, the resolver is asked again until the deadline (its own timeouts come on top). If host
 * has several addresses, each gets a share of the time, and the error names each with its cause.
 * Errors of the call: HEARTH_EINVAL wrong arguments. Of the gather: HEARTH_EINVAL on all ranks
 * if rank 0's node cannot listen there, or has too few descriptors for a connection of each
 * node. HEARTH_ETIMEOUT names the ranks that did not come, HEARTH_EAUTH where some came without
 * proof. */
HEARTH_API int hearth_bootstrap_tcp(const char *host, uint16_t port, uint32_t rank, uint32_t world,
        uint32_t deadline_ms, struct hearth_bootstrap **out, struct hearth_error *err);

/* The same from torchrun's variables: MASTER_ADDR, HEARTH_PORT (else MASTER_PORT + 1), RANK,
 * WORLD_SIZE; out_rank and out_world may be NULL. */
HEARTH_API int hearth_bootstrap_tcp_from_env(uint32_t deadline_ms, struct hearth_bootstrap **out,
        uint32_t *out_rank, uint32_t *out_world, struct hearth_error *err);

/* PMIx, as mpirun and Slurm offer it; opened at run time. HEARTH_EUNSUPPORTED where there is
 * none. */
HEARTH_API int hearth_bootstrap_pmix(uint32_t deadline_ms, struct hearth_bootstrap **out,
        uint32_t *out_rank, uint32_t *out_world, struct hearth_error *err);

/* A static host file: line r is rank r's "host port"; `#` comments. Rank 0's line is the meeting
 * place, the others say how many ranks there are. */
HEARTH_API int hearth_bootstrap_hostfile(const char *path, uint32_t rank, uint32_t deadline_ms,
        struct hearth_bootstrap **out, uint32_t *out_world, struct hearth_error *err);

HEARTH_API void hearth_bootstrap_close(struct hearth_bootstrap *bootstrap);

HEARTH_END

#endif
