/* SPDX-License-Identifier: Apache-2.0 */
/* Many copies, shared by threads. */
#ifndef HEARTH_CLIENT_COPY_H
#define HEARTH_CLIENT_COPY_H

#include "strided.h"
#include <stddef.h>

struct hth_copy {
    void *dst;
    const void *src;
    uint64_t bytes;              /* moved altogether */
    uint64_t head;               /* bytes in front of dst that are there already */
    struct hth_strided *strided; /* NULL: plain; owned by the list */
};

/* A list that grows. With `crc` the copies fill an object: each begins, with its head, where the
 * one before it ends, and the CRC32C of each chunk that they reach into is continued. */
struct hth_copies {
    struct hth_copy *copy;
    size_t count, room;
    uint64_t bytes; /* heads included */
    uint32_t *crc;  /* of the object's chunks; NULL: copied only */
    uint64_t at;    /* with crc: where in the object's data the first copy's head begins */
};

/* head: 0 without crc. 0 or HEARTH_ENOMEM; strided is copied. */
int hth_copies_add(struct hth_copies *list, void *dst, const void *src, uint64_t bytes,
        uint64_t head, const struct hth_strided *strided);
void hth_copies_fini(struct hth_copies *list);

struct hth_crew;
struct hth_crew *hth_crew_open(uint32_t threads); /* the caller is one of them */
void hth_crew_close(struct hth_crew *crew);
void hth_crew_run(struct hth_crew *crew, const struct hth_copies *list); /* until all is copied */

#endif
