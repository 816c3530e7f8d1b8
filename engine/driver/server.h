/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The engine's side of the local socket: packets in, answers out, and who is still there.
 *
 * A client is a connection of our own user; it is gone when the connection ends, when its process
 * ends (by pidfd: a child that it forked and that keeps the socket changes nothing; where pid
 * namespaces hide the process the connection alone decides), when it sends nonsense, or when it
 * does not read its answers. One thread; nothing waits.
 */
/* For this folder alone. */
#ifndef HEARTH_ENGINE_SERVER_H
#define HEARTH_ENGINE_SERVER_H

#include "core/base/env.h"
#include "core/local/local.h"
#include <sys/types.h>

#define HTH_CLIENTS_MAX 4096u
#define HTH_QUEUE_MAX   512u /* answers waiting for a client that does not read */

struct hth_server;

struct hth_server_events {
    void *self;
    /* content: of the descriptor that came along; NULL: none. Taken over. */
    void (*request)(void *self, uint32_t client, const void *bytes, size_t len,
            struct hth_content *content);
    void (*gone)(void *self, uint32_t client); /* once per client, even if it has sent nothing */
};

/* Listens on <dir>/sock, mode 0600, in place of a socket that was left there: the caller holds the
 * store's lock, and has the folder open as dir_fd, which is borrowed until return. listens: the
 * socket there, of an engine that hands it over, borrowed likewise; clients may wait in its queue;
 * 0: none. Descriptors are added to epoll_fd with tags for hth_server_event(). Errors:
 * HEARTH_EIO. */
int hth_server_open(int dir_fd, const char *dir, int listens, int epoll_fd,
        const struct hth_server_events *events, const struct hth_log *log, struct hth_server **out,
        struct hearth_error *err);
/* The socket, for another engine: it stays when this server is closed, and clients that connect
 * wait. -1 and errno. The caller closes. */
int hth_server_keep(struct hth_server *s);

/* Handles an event of epoll_fd. 1: it was the server's, and a bounded number of packets was read;
 * else 0. */
int hth_server_event(struct hth_server *s, uint64_t tag, uint32_t events);

/* The pid of a client; 0: it is gone, or of a pid namespace that this process cannot see. */
pid_t hth_server_pid(const struct hth_server *s, uint32_t client);
/* Queues an answer; the semantics of struct hth_node_env's reply(). */
void hth_server_reply(struct hth_server *s, uint32_t client, const void *bytes, size_t len, int fd);

/* Removes clients that are gone, and calls `gone`. Call it after each round. Returns how many. */
unsigned hth_server_reap(struct hth_server *s);

uint32_t hth_server_clients(const struct hth_server *s); /* connections */
void hth_server_close(struct hth_server *s); /* unlinks the socket; `gone` is not called */

#endif
