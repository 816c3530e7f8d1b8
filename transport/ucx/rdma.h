/* SPDX-License-Identifier: Apache-2.0 */
/* Network cards that read remote memory themselves. */
#ifndef HEARTH_UCX_RDMA_H
#define HEARTH_UCX_RDMA_H

#define HTH_UCX_DEVICE 64

/* "rc", or "rc_mlx5,dc_mlx5": nothing but transports of such cards. */
int hth_ucx_is_rdma(const char *provider);

/* The card and port behind the interface, as "mlx5_0:1"; `sys` is /sys. 0: there is none. */
int hth_ucx_rdma_device(const char *sys, const char *interface, char out[HTH_UCX_DEVICE]);

#endif
