/* SPDX-License-Identifier: Apache-2.0 */
/* An object of this node as this process reads it: one mapping and one lease, whatever number of
 * checkpoints and views use it. */
#ifndef HEARTH_CLIENT_SHARED_H
#define HEARTH_CLIENT_SHARED_H

#include "client/base/member.h"
#include <sys/types.h>

struct hth_lease;
struct hth_pin;

struct hth_shared {
    const unsigned char *map; /* [bytes] the file from 0 on, to read */
    uint64_t bytes;
    int fd; /* a child of a fork has none */
    /* shared.c's */
    struct hth_shared *next, **at; /* of all of the process */
    struct hearth *h;              /* NULL: it was closed while this is used */
    struct hth_lease *lease;       /* under h->lock */
    struct hth_pin *pin;           /* likewise, once; NULL: never asked for, or not to be had */
    struct hth_save_id save;
    uint64_t object;
    dev_t dev;
    ino_t ino;
    _Atomic uint64_t users; /* without h->lock it may not become 0, nor leave 0 */
    _Atomic uint64_t views; /* under the list's lock it becomes 1 or 0 */
};

/* The leased object's first `bytes` mapped, or the mapping that there is. Takes lease and fd, also
 * when it fails. hth_shared_put() */
int hth_shared_get(struct hearth *h, struct hth_lease *lease, int fd, uint64_t bytes,
        struct hth_shared **out, struct hearth_error *err);
/* Its registration with the GPU's driver, which is queued by the first call if this rank uses GPU
 * memory (h->device) and the option `pin` allows it. NULL: there will be none. */
const struct hth_pin *hth_shared_pin(struct hth_shared *s);
/* One more user of what the caller uses. hth_shared_put() */
void hth_shared_hold(struct hth_shared *s);
/* The same, and until the last of these, a child of a fork inherits the
 * mapping. hth_shared_view_put() */
int hth_shared_view(struct hth_shared *s, struct hearth_error *err);
void hth_shared_view_put(struct hth_shared *s);
/* By any thread. The last user ends mapping and lease; of a child of a fork: nothing. */
void hth_shared_put(struct hth_shared *s);

/* Before h is freed: what is still used stays mapped until its last user is gone. */
void hth_shared_fini(struct hearth *h);

#endif
