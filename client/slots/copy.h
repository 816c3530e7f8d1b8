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
    uint64_t start;              /* of the head in the stream of all copies */
    uint64_t head_at;            /* in the list's heads */
    size_t head;                 /* bytes of it that go in front of dst */
    struct hth_strided *strided; /* NULL: plain; owned by the list */
};

/* A list that grows. With `crc` the copies fill an object: each begins, with its head, where the
 * one before it ends, and the CRC32C of each chunk that they reach into is continued. */
struct hth_copies {
    struct hth_copy *copy;
    size_t count, room;
    unsigned char *heads; /* copies that follow each other may have one head in common */
    size_t heads_len, heads_room, head;
    uint64_t bytes; /* heads included */
    uint32_t *crc;  /* of the object's chunks; NULL: copied only */
    uint64_t at;    /* with crc: where in the object's data the first copy's head begins */
    /* The caller's thread calls it each HTH_COPIES_TOLD bytes or more: the first `bytes` of the
     * stream are where they belong. NULL: no call. */
    void (*progress)(void *self, uint64_t bytes);
    void *self;
};

#define HTH_COPIES_TOLD (UINT64_C(64) << 20)

/* The head of the copies that are added next; a list begins with none. 0 or HEARTH_ENOMEM. */
int hth_copies_head(struct hth_copies *list, const void *head, size_t len);
/* 0 or HEARTH_ENOMEM; strided is copied. */
int hth_copies_add(struct hth_copies *list, void *dst, const void *src, uint64_t bytes,
        const struct hth_strided *strided);
void hth_copies_clear(struct hth_copies *list); /* empty; its memory stays */
void hth_copies_fini(struct hth_copies *list);

struct hth_crew;
struct hth_crew *hth_crew_open(uint32_t threads); /* the caller is one of them */
void hth_crew_close(struct hth_crew *crew);
/* 1: this process may run on twice as many processors as copies of `ranks` such crews have threads,
 * or more. crew NULL: 0. */
int hth_crew_spares(const struct hth_crew *crew, uint32_t ranks);
void hth_crew_run(struct hth_crew *crew, const struct hth_copies *list); /* until all is copied */

#endif
