/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The one thread of an engine in production: it waits on the transport, the local socket, finished
 * work and time, and feeds struct hth_node. hearthd and hearth-engine.so run the same one from the
 * same command line.
 */
#ifndef HEARTH_ENGINE_DRIVER_H
#define HEARTH_ENGINE_DRIVER_H

#include "config.h"

struct hth_driver;

/* Takes the job's lock, adopts the objects that are there, opens the transport and listens.
 * stop_fd: the engine ends when it becomes readable (a signalfd); -1: none; borrowed until close.
 * Errors: those of hth_store_tmpfs_open(), hth_transport_open(), hth_key_open(), HEARTH_EIO. The
 * error is also the log's last line, if the log's folder can be opened. */
int hth_driver_open(const struct hth_config *config, int stop_fd, struct hth_driver **out,
        struct hearth_error *err);

/* The folder of the engine's records, where its log lies; the driver's. */
int hth_driver_records(const struct hth_driver *d);

/* Returns when the engine is stopped, the job is dropped, or no client has come for the linger
 * time. HEARTH_EIO: the system refused to wait. HEARTH_EENGINE: another program has removed the
 * job's directory. */
int hth_driver_run(struct hth_driver *d, struct hearth_error *err);
/* After hth_driver_run(). 1: it ended only to be opened again, with the same command line. */
int hth_driver_comes_back(const struct hth_driver *d);
/* Likewise. 1: it ended for another program, to which the caller hands these two; the caller closes
 * them. 0: it did not, or comes back since no descriptor was left. */
int hth_driver_keep(struct hth_driver *d, int *out_lock, int *out_sock);
/* 1: this thread is confined, so that only another process can open another fabric. */
int hth_driver_confined(const struct hth_driver *d);
void hth_driver_stop(struct hth_driver *d); /* any thread, signal handlers too */

/* Call it on the thread that called hth_driver_run(). The socket is removed; files stay, unless the
 * job was dropped. NULL: nothing. */
void hth_driver_close(struct hth_driver *d);

#endif
