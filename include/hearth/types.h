/* SPDX-License-Identifier: Apache-2.0 */
/* Types that the calls share. Values of enums are ABI; gaps are for later values. */
#ifndef HEARTH_TYPES_H
#define HEARTH_TYPES_H

#include <hearth/dtype.h>
#include <hearth/init.h>
#include <stddef.h>
#include <stdint.h>

HEARTH_BEGIN

struct hearth;            /* one rank's membership in a job */
struct hearth_save;       /* a save being written */
struct hearth_handle;     /* a save handed over */
struct hearth_checkpoint; /* a recovered save */
struct hearth_report;     /* what a partial load did not find */

/* How safe a save is. Each includes the ones before, but that COPIED may come before or after
 * COMPLETE: hearth_wait() for COPIED waits for the copies themselves. */
enum hearth_level {
    HEARTH_OFF = 1,        /* the kill switch is on: nothing is kept */
    HEARTH_WRITTEN = 5,    /* handed over */
    HEARTH_SEALED = 10,    /* this rank's objects are immutable and checksummed */
    HEARTH_COPIED = 20,    /* and held by min_copies others */
    HEARTH_COMPLETE = 30,  /* all ranks' are sealed, the manifest is on every node */
    HEARTH_PROTECTED = 40, /* the required copies are promised: survives any one failure domain */
    /* 50 is reserved: also on persistent storage */
};

enum hearth_leave {
    HEARTH_KEEP = 0,  /* the checkpoints stay, the engine lingers */
    HEARTH_DROP = 10, /* the job is over */
};

enum hearth_memory {
    HEARTH_HOST = 0,
    HEARTH_CUDA = 10, /* of a GPU, CUDA's or HIP's */
};

/* A piece of a tensor. Shapes, strides and offsets in elements, [ndim] each. */
struct hearth_piece {
    size_t struct_size; /* sizeof(struct hearth_piece): also the stride of an array of them */
    const void *key;    /* [key_len], any bytes */
    size_t key_len;
    union {               /* the first element; NULL in hearth_save_reserve() */
        const void *from; /* for what saves: it is read only */
        void *data;       /* for hearth_load(): it is written; what saves takes it as well */
    };
    uint32_t dtype;    /* enum hearth_dtype */
    uint32_t memory;   /* enum hearth_memory */
    uint32_t ndim;     /* 0: a scalar; at most 64 */
    uint32_t reserved; /* 0 */
    const int64_t *shape;
    const int64_t *strides;       /* NULL: C order, contiguous */
    const int64_t *global_shape;  /* NULL: as shape */
    const int64_t *global_offset; /* NULL: zeros */
};
HEARTH_SIZED(hearth_piece);
#define HEARTH_PIECE_INIT HEARTH_INIT(hearth_piece)

/* A byte string with a key. */
struct hearth_bytes {
    size_t struct_size;
    const void *key; /* [key_len] */
    size_t key_len;
    const void *data; /* [len] */
    size_t len;
};
HEARTH_SIZED(hearth_bytes);
#define HEARTH_BYTES_INIT HEARTH_INIT(hearth_bytes)

/* One save and no other, also if its step is saved again: plain memory, which ranks may pass to
 * each other. All zeros under the kill switch. */
struct hearth_save_id {
    uint64_t epoch, nonce, step;
    uint32_t attempt, reserved;
};

struct hearth_status {
    size_t struct_size;
    uint64_t step;
    uint32_t level;    /* enum hearth_level reached */
    uint32_t degraded; /* 1: counts as PROTECTED with fewer copies than asked */
    int32_t code;      /* 0; HEARTH_EFAILED; HEARTH_ENOSPC; HEARTH_EUNKNOWN */
    uint32_t attempt;
    uint64_t bytes;  /* of this rank's objects */
    uint64_t copied; /* bytes that other nodes have pulled so far, all copies together */
    char text[256];  /* why it failed, or what it waits for */
};
HEARTH_SIZED(hearth_status);
#define HEARTH_STATUS_INIT HEARTH_INIT(hearth_status)

struct hearth_recovery {
    size_t struct_size;
    uint64_t step, epoch; /* of the save recovered */
    uint64_t now_epoch;   /* the one begun by this recovery */
    uint32_t degraded;    /* 1: copies are being brought back */
    uint32_t beyond;      /* saves newer than this one that were beyond redundancy */
    /* ms, this node: joining; from sending what is here until the plan comes; making room by it;
     * from then on, side by side, until the last object was pulled, and until the last that was
     * here already was verified; voting */
    uint32_t join_ms, inventory_ms, plan_ms, pull_ms, verify_ms, vote_ms;
    uint64_t pulled_bytes; /* to this node */
    uint32_t sources;      /* nodes pulled from */
    char text[256];        /* for people: what was chosen and why */
    uint32_t passed;       /* newer saves that were whole and are marked bad */
    uint32_t reserved;
};
HEARTH_SIZED(hearth_recovery);
#define HEARTH_RECOVERY_INIT HEARTH_INIT(hearth_recovery)

HEARTH_END

#endif
