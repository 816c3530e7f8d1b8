/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The record `.hearth/running`: what a member has to know besides the epoch to go on in it, should
 * its engine die under living ranks. It is there once recovery has ended well.
 */
/* For this folder alone. */
#ifndef HEARTH_ENGINE_RUNNING_H
#define HEARTH_ENGINE_RUNNING_H

#include "core/local/local.h"

struct hth_node;

/* Native layout: the record never leaves the machine, and its first field says when it does not fit. */
struct running {
    uint32_t bytes; /* sizeof */
    uint32_t world;
    uint64_t epoch, nonce;
    struct hth_local_opts opts;
    struct hth_local_save chosen;
};

void running_write(
        struct hth_node *n); /* a failure is logged: the ranks would have to join again */
int running_read(struct hth_node *n, struct running *out); /* 1: there is one, of this epoch */

#endif
