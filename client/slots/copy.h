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
    struct hth_strided *strided; /* NULL: plain; owned by the list */
};

struct hth_copies { /* a list that grows */
    struct hth_copy *copy;
    size_t count, room;
    uint64_t bytes;
};

int hth_copies_add(struct hth_copies *list, void *dst, const void *src, uint64_t bytes,
        const struct hth_strided *strided); /* 0 or HEARTH_ENOMEM; strided is copied */
void hth_copies_fini(struct hth_copies *list);

struct hth_crew;
struct hth_crew *hth_crew_open(uint32_t threads); /* the caller is one of them */
void hth_crew_close(struct hth_crew *crew);
void hth_crew_run(struct hth_crew *crew, const struct hth_copies *list); /* until all is copied */

#endif
