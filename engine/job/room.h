/* SPDX-License-Identifier: Apache-2.0 */
/* The memory of this node by what it is used for, as STATUS and METRICS have it. */
#ifndef HEARTH_ENGINE_ROOM_H
#define HEARTH_ENGINE_ROOM_H

#include <stdint.h>

struct hth_node;

#define ROOM_KINDS 11u

struct room_kind {
    const char *name;
    uint64_t bytes; /* UINT64_MAX: not known, or there is no such limit */
};

/* 0: the store does not know. */
int room_look(struct hth_node *n, struct room_kind out[ROOM_KINDS]);

#endif
