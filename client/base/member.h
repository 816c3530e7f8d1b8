/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One rank's membership, and the parts it is made of.
 *
 * One lock, `h->lock`, guards the connection, the handles' status, the slot maps, the objects that
 * are read and the leases.
 * Copies run without it. Log lines have a lock of their own and reach the caller's sink with
 * no lock held.
 */
#ifndef HEARTH_CLIENT_MEMBER_H
#define HEARTH_CLIENT_MEMBER_H

#include "core/local/local.h"
#include "core/store/store_tmpfs.h"
#include "log.h"
#include <pthread.h>
#include <stdatomic.h>

struct hth_crew;
struct hth_device;
struct hth_joining;
struct hth_link;
struct hth_slot_map;

struct hearth {
    struct hearth_opts opts;  /* strings: own copies, NULL where unset */
    struct hearth_opts wants; /* the same, but times 0 where unset; strings: of opts */
    char *records;            /* <root>/<job>/.hearth */
    atomic_int forked;        /* this process is a child of the one that opened it */
    struct hth_lines lines;
    struct hth_crew *crew;

    pthread_mutex_t lock;
    /* Facts from the engine's answers. client/link and client/join write them. */
    struct hth_local_attached attached; /* pid 0: it has none in this process's namespace */
    char engine[HTH_LOCK_HOLDER_TEXT];  /* "pid 12", or the place where it runs */
    struct hth_local_opts joined;       /* in effect there */
    uint64_t epoch, nonce;
    uint32_t ranks_a_node; /* of the job, rounded up; a helper's: all ranks */
    /* Each folder's own. */
    struct hth_link *link;
    struct hth_slot_map *slots;
    void *shared; /* tree of objects that are read: client/slots/shared.c */
    void *spare;  /* memory of the save before, for the next one: client/save/save.c */
    void (*spare_free)(void *spare);
    struct hth_joining *joining;
    struct hth_device *device; /* GPU memory: client/device/device.h; NULL: none was used */
};

/* Every public call begins with this: 0, HEARTH_EINVAL for NULL, HEARTH_EFORK. */
int hth_enter(const struct hearth *h, struct hearth_error *err);

#endif
