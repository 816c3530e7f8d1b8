/* SPDX-License-Identifier: Apache-2.0 */
/* A checkpoint that is read, and the objects it is read from. */
/* For this folder alone. */
#ifndef HEARTH_CLIENT_CHECKPOINT_H
#define HEARTH_CLIENT_CHECKPOINT_H

#include "client/link/link.h"
#include "core/format/manifest.h"
#include "core/format/table.h"

struct hth_window { /* bytes of a remote object: [off, off + len) of its data, whole chunks */
    void *map;
    uint64_t map_len;
    uint64_t off, len;
};

struct hth_entry {
    struct hth_item item;
    uint64_t hash;
    uint32_t source;        /* index */
    struct hth_entry *next; /* of the same bucket */
};

struct hth_source { /* one object of the checkpoint */
    const struct hth_object *object;
    struct hth_entry *entry; /* [table.items] in order of offset; NULL: not listed yet */
    size_t first;            /* in the index: entries of the sources before it */
    int tried;               /* its table was asked for */
    int local;               /* 1: mapped here */
    uint64_t lease;
    int fd;                     /* local: of the file; else -1 */
    uint64_t data_at, data_len; /* where the data section lies in the file */
    unsigned char *map;         /* local: the file; else NULL */
    uint64_t map_len;
    void *table_copy; /* remote, foreign: malloc'ed */
    struct hth_table table;
    struct hth_window window;
    struct hth_call ahead; /* a prefetch on its way; request 0: none */
    struct hth_local_bytes ahead_answer;
    uint64_t ahead_off, ahead_len;
};

struct hearth_checkpoint {
    struct hearth *h;
    uint32_t number; /* in this process: items say it */
    struct hth_save_id save;
    struct hearth_recovery info;
    struct hth_manifest *manifest;
    struct hth_source *source; /* [sources] this rank's first */
    uint32_t sources, own;
    uint32_t *by_name; /* [sources] index of a source; NULL: not sorted yet */
    uint32_t indexed;  /* sources whose items are found by key */
    size_t entries, own_entries;
    struct hth_entry **bucket; /* [buckets] */
    size_t buckets;
    uint32_t aheads; /* sources with a prefetch on its way */
    uint64_t ahead_bytes;
};

int hth_ckpt_enter(const struct hearth_checkpoint *c, struct hearth_error *err);

#endif
