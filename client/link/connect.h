/* SPDX-License-Identifier: Apache-2.0 */
/* Finding this node's engine, and starting one. */
#ifndef HEARTH_CLIENT_CONNECT_H
#define HEARTH_CLIENT_CONNECT_H

#include "client/base/member.h"

/* One connected socket to the node's engine, started if need be. */
int hth_connect(struct hearth *h, uint64_t until, int *out_fd, struct hearth_error *err);

/* hearthd's command line for these options. words: what it prints, a memfd. */
struct hth_args {
    const char *argv[40];
    int argc;
    char port[16], linger[16];
};
void hth_args_make(struct hth_args *args, const struct hearth *h, const char *program);

/* The folder of this library, or of the program it is linked into. */
int hth_own_dir(char *out, size_t len);

/* An engine of our own: a process, or a thread in this one. *out_pidfd: -1 where it ended already,
 * HTH_PID_UNSEEN where the system does not tell. share: take part in one that runs here. */
#define HTH_PID_UNSEEN (-2)
int hth_spawn(const struct hearth *h, int *out_pidfd, int *out_words, struct hearth_error *err);
void hth_inside_share(struct hearth *h);
int hth_inside_start(struct hearth *h, struct hearth_error *err);
void hth_inside_stop(struct hearth *h);

#endif
