/* SPDX-License-Identifier: Apache-2.0 */
/* A checkpoint that is read, and the objects it is read from. */
/* For this folder alone. */
#ifndef HEARTH_CLIENT_CHECKPOINT_H
#define HEARTH_CLIENT_CHECKPOINT_H

#include "client/link/link.h"
#include "core/format/manifest.h"
#include "core/format/table.h"

struct hth_index;
struct hth_shared;
struct hth_window;

struct hth_entry {
    struct hth_item item;
    uint64_t hash;
    uint32_t source;        /* index */
    struct hth_entry *next; /* of the same bucket */
};

struct hth_source { /* one object of the checkpoint */
    const struct hth_object *object;
    struct hth_entry *entry;    /* [table.items] in order of offset; NULL: not listed yet */
    size_t first;               /* in the index: entries of the sources before it */
    int tried;                  /* its table was asked for */
    int local;                  /* 1: mapped here */
    int theirs;                 /* local: another program's file, which that may change */
    int unsure;                 /* theirs: bytes of it were read and are to be asked about */
    struct hth_shared *shared;  /* local: the file, mapped and leased; else NULL */
    uint64_t data_at, data_len; /* where the data section lies in the file */
    void *table_copy;           /* malloc'ed */
    struct hth_table table;
    struct hth_window *window; /* window.c; NULL: none so far */
};

struct hearth_checkpoint {
    struct hearth *h;
    uint32_t number; /* in this process: items say it */
    struct hth_save_id save;
    struct hearth_recovery info;
    struct hth_manifest *manifest;
    struct hth_source *source; /* [sources] this rank's first */
    uint32_t sources, own;
    struct hth_index *index; /* index.c; NULL: none so far */
    uint32_t aheads;         /* window.c: prefetches on their way */
    uint64_t ahead_bytes;
    int unsure;   /* so is one of them */
    void *stream; /* for copies to GPUs; NULL: calls wait for them */
};

/* Of this save, its manifest fetched; info is copied. hearth_checkpoint_close() */
int hth_checkpoint_make(struct hearth *h, struct hth_local_save save,
        const struct hearth_recovery *info, struct hearth_checkpoint **out,
        struct hearth_error *err);

int hth_checkpoint_enter(const struct hearth_checkpoint *c, struct hearth_error *err);

#endif
