/* SPDX-License-Identifier: Apache-2.0 */
/* Reading a checkpoint, recovered or of this epoch, beyond hearth_load(). */
#ifndef HEARTH_READ_H
#define HEARTH_READ_H

#include <hearth/error.h>
#include <hearth/init.h>
#include <hearth/types.h>

HEARTH_BEGIN

#define HEARTH_LOAD_PARTIAL 1u

/*
 * A checkpoint stays readable until a newer save is PROTECTED and its own is freed. From then on
 * views, descriptors, and objects of this node that were read already go on; anything else is
 * HEARTH_ELOST or HEARTH_ENOENT. Load before the second save of the new epoch, or keep 2. Close it
 * before saving: each object of this node whose items were listed, found or read is leased until
 * then, and its slot is not recycled.
 */
HEARTH_API int hearth_checkpoint_info(const struct hearth_checkpoint *ckpt,
        struct hearth_recovery *out, struct hearth_error *err);
HEARTH_API void hearth_checkpoint_close(struct hearth_checkpoint *ckpt); /* views stay */

/*
 * A save that is PROTECTED and kept, of this epoch or an older one, or the recovered one, without
 * asking the other ranks. Checked like a recovered one: local objects were checksummed when they
 * were sealed, remote ones are where they arrive. This rank's own objects need no other node.
 *
 * step  The newest attempt at it that is PROTECTED (or counts as such). One that the ranks of this node
 *       have handed over and that is not decided as far as this node knows is waited for: it may be
 *       PROTECTED already for a rank elsewhere. HEARTH_STEP_NEWEST: the newest save that this node
 *       knows to be PROTECTED, after a wait for those handed over if wait_ms says so.
 *       What is kept of older epochs is known on every node once the recovered save is PROTECTED again,
 *       and is waited for until then, too.
 *
 * It lives as the recovered one does: a newer save that becomes PROTECTED frees it, unless it is
 * one of those that `keep` keeps; what was read of it stays readable until it is closed. The
 * recovered checkpoint and any number of these may be open at once. Ranks that are to read one and
 * the same save while others are written agree on its id first (hearth_handle_id,
 * hearth_checkpoint_id).
 *
 * Errors   HEARTH_EINVAL   HEARTH_STEP_LATER, which is for saving
 *          HEARTH_ENOENT   no such step, or not PROTECTED; which steps there are
 *          HEARTH_ESTATE   hearth_recover() has not ended in this epoch
 *          HEARTH_ETIMEOUT a newer attempt is undecided after wait_ms: which, and what it waits for
 *          HEARTH_EUNKNOWN no engine will decide it in this epoch
 *          HEARTH_EFAILED  the save of this id has failed: why
 */
#define HEARTH_STEP_NEWEST (UINT64_MAX - 1) /* no step; for these two calls alone */
struct hearth_find_opts {
    size_t struct_size;
    const struct hearth_save_id *save; /* this one and no other; NULL: any of the step */
    uint32_t wait_ms; /* for a decision, at most 86400000; 0: opts.open_ms, with a step */
    uint32_t reserved;
};
HEARTH_SIZED(hearth_find_opts);
#define HEARTH_FIND_OPTS_INIT HEARTH_INIT(hearth_find_opts)
HEARTH_API int hearth_checkpoint_find(struct hearth *h, uint64_t step,
        const struct hearth_find_opts *opts, struct hearth_checkpoint **out_ckpt,
        struct hearth_error *err);

/* The same with the default options. */
HEARTH_API int hearth_checkpoint_open(struct hearth *h, uint64_t step,
        struct hearth_checkpoint **out_ckpt, struct hearth_error *err);

/* Which save it is. */
HEARTH_API int hearth_checkpoint_id(
        const struct hearth_checkpoint *ckpt, struct hearth_save_id *out, struct hearth_error *err);

/*
 * GPU memory: the stream (CUstream, hipStream_t) for all calls of hearth_load() and
 * hearth_read_boxes() that follow. Their copies to GPUs start after what is in `stream` at the
 * call, which returns when host memory is written and the copies are enqueued. All that is enqueued
 * in `stream` after it starts after the copies. The mappings that these read stay until they are
 * done, also where the checkpoint is closed before. `stream` is borrowed until another one is set.
 *
 * NULL, as at first: copies start after what is in the default stream of each GPU, and the call
 * returns when all bytes have arrived. The default stream as a stream is CU_STREAM_LEGACY (1), that
 * of a thread CU_STREAM_PER_THREAD (2).
 *
 * Waits    This call for nothing. Those that load until the last bytes that are not pinned are in
 *          the two buffers of 16 MiB of their GPU, or with NULL until all have arrived, at most
 *          opts.save_ms. A failed load waits for its copies that are enqueued, likewise: after any
 *          error but HEARTH_ETIMEOUT nothing is written any more.
 * Errors   of the calls that load:
 *          HEARTH_ETIMEOUT      the copies were not that far in opts.save_ms
 *          HEARTH_EUNSUPPORTED  `stream` is being captured into a graph
 *          others               a copy has failed: key, GPU and the driver's number. A copy that
 *                               fails after the call has returned is a warning in the log.
 */
HEARTH_API int hearth_checkpoint_stream(
        struct hearth_checkpoint *ckpt, void *stream, struct hearth_error *err);

/* One item as the object has it. Pointers live as long as the checkpoint, and it is one of that
 * checkpoint alone: any other refuses it with HEARTH_EINVAL, also one of the same save. */
struct hearth_item {
    size_t struct_size;
    const void *key;
    size_t key_len;
    const char *object; /* its name */
    uint32_t owner;     /* rank; UINT32_MAX: unknown, in a container of another program */
    uint32_t kind;      /* 10 tensor, 20 bytes */
    uint32_t dtype;
    uint32_t ndim;
    const int64_t *shape, *global_shape, *global_offset;
    uint64_t offset;     /* of the item, from byte 4096 of the object */
    uint64_t bytes;      /* of the payload */
    uint32_t local;      /* 1: this node holds the object */
    uint32_t checkpoint; /* the checkpoint that it came from, and */
    uint64_t handle;     /* its number there: for the calls below */
};
HEARTH_SIZED(hearth_item);
#define HEARTH_ITEM_INIT HEARTH_INIT(hearth_item)

/* How many objects the whole checkpoint has, with those that every node has (`.metadata`). */
HEARTH_API size_t hearth_checkpoint_objects(const struct hearth_checkpoint *ckpt);

/* All items of this rank's objects (all = 0) or of every object of the checkpoint (all = 1; tables
 * of remote objects are fetched), one by one: index from 0; HEARTH_ENOENT past the last.
 * Cost: the first call with all = 1 reads all tables, some 30 at a time. */
HEARTH_API int hearth_item_at(struct hearth_checkpoint *ckpt, int all, size_t index,
        struct hearth_item *out, struct hearth_error *err);

/* The pieces of one key, wherever they are: out[cap], *out_count may be larger than cap. */
HEARTH_API int hearth_item_find(struct hearth_checkpoint *ckpt, const void *key, size_t key_len,
        struct hearth_item *out, size_t cap, size_t *out_count, struct hearth_error *err);

/* A view of a local item's payload without a copy, to read: a write there ends the process with
 * SIGSEGV. It stays valid and unchanged until hearth_view_close(), whatever is saved meanwhile,
 * also after its checkpoint is closed, and must be closed before hearth_close(). Any thread may
 * close it, once; a copy of the struct is the same view. A fork inherits it, and may read it until
 * this process closes it. Of a file that another program wrote it is a copy. A view shows the copy
 * of the object that the checkpoint opened, also after the engine has found that copy wrong and
 * replaced it: open the checkpoint again to see the new one.
 * Cost: a count. A process maps and leases an object once, for all checkpoints and views of it, and
 * until the last of them is closed. */
struct hearth_view {
    size_t struct_size;
    const void *data; /* [bytes] */
    uint64_t bytes;
    void *map; /* the library's */
    uint64_t map_bytes, lease;
};
HEARTH_SIZED(hearth_view);
#define HEARTH_VIEW_INIT HEARTH_INIT(hearth_view)
HEARTH_API int hearth_view_open(struct hearth_checkpoint *ckpt, const struct hearth_item *item,
        struct hearth_view *out, struct hearth_error *err);
HEARTH_API void hearth_view_close(struct hearth *h, struct hearth_view *view);

/* The box [offset, offset + shape) of a piece, [ndim] elements each and counted in the piece, into
 * dst (host memory) with dst_strides (elements; NULL: C order). Of an object that only a peer holds
 * the bytes are fetched, not the object. */
HEARTH_API int hearth_read_box(struct hearth_checkpoint *ckpt, const struct hearth_item *item,
        const int64_t *offset, const int64_t *shape, void *dst, const int64_t *dst_strides,
        struct hearth_error *err);

/* The item at `offset` (from byte 4096) of an object, as `.metadata` names items; the table of no
 * other object is fetched for it. HEARTH_ENOENT: none begins there. */
HEARTH_API int hearth_item_in(struct hearth_checkpoint *ckpt, const char *object, uint64_t offset,
        struct hearth_item *out, struct hearth_error *err);

/* hearth_read_box() for thousands of items in one call, copied by several threads. All of them are
 * checked before the first byte is written. boxes[count] with the struct_size of the first as
 * stride. Errors name object and key. */
struct hearth_box {
    size_t struct_size;
    const char *object;            /* its name */
    uint64_t item;                 /* offset of the item in the object, from byte 4096 */
    uint32_t dtype;                /* must be the item's, or HEARTH_EINVAL naming its key */
    uint32_t ndim;                 /* likewise */
    const int64_t *offset, *shape; /* [ndim] in the piece */
    void *dst;
    const int64_t *dst_strides; /* elements; NULL: C order */
    uint32_t memory;            /* enum hearth_memory, of dst; as of a piece of hearth_load() */
    uint32_t reserved;          /* 0 */
};
HEARTH_SIZED(hearth_box);
#define HEARTH_BOX_INIT HEARTH_INIT(hearth_box)
HEARTH_API int hearth_read_boxes(struct hearth_checkpoint *ckpt, const struct hearth_box *boxes,
        size_t count, struct hearth_error *err);

/* Bytes [offset, offset + len) of an object's data, whatever lies there: for items that only
 * `.metadata` has. offset counts from byte 4096, or from 0 in a file without a block. Checked and
 * copied as hearth_read_boxes() does. HEARTH_EINVAL: reaches past the data. */
struct hearth_range {
    size_t struct_size;
    const char *object;
    uint64_t offset, len;
    void *dst; /* [len] */
};
HEARTH_SIZED(hearth_range);
#define HEARTH_RANGE_INIT HEARTH_INIT(hearth_range)
HEARTH_API int hearth_read_ranges(struct hearth_checkpoint *ckpt, const struct hearth_range *ranges,
        size_t count, struct hearth_error *err);

/* Fetch ahead the bytes that these boxes touch, as hearth_prefetch() does and with its limits: of
 * each remote object the first bytes that are read. dst may be NULL. Waits for the table of an
 * object that was not opened before, and for nothing else. */
HEARTH_API int hearth_prefetch_boxes(struct hearth_checkpoint *ckpt, const struct hearth_box *boxes,
        size_t count, struct hearth_error *err);

/* A byte item, or the raw payload of any item: [offset, offset + len). */
HEARTH_API int hearth_read_bytes(struct hearth_checkpoint *ckpt, const struct hearth_item *item,
        uint64_t offset, void *dst, uint64_t len, struct hearth_error *err);

/* An object that every node has (`.metadata`): malloc'ed, hearth_free(). Errors: HEARTH_ENOENT. */
HEARTH_API int hearth_read_common(struct hearth_checkpoint *ckpt, const char *name, void **out,
        size_t *out_len, struct hearth_error *err);
HEARTH_API void hearth_free(void *memory);

/* A local object as a read-only descriptor, to be mapped privately; data begins at *out_offset.
 * The caller closes it; the lease ends with the checkpoint. A file that Hearth did not write may
 * be changed by its writer while it is read. */
HEARTH_API int hearth_object_fd(struct hearth_checkpoint *ckpt, const char *object, int *out_fd,
        uint64_t *out_offset, uint64_t *out_bytes, struct hearth_error *err);

/* Fetch these objects' bytes to this node ahead of a later read. Returns at once. A hint: at most
 * 32 objects and 64 MiB of each are on their way for a checkpoint, some 512 MiB in all; bytes
 * beyond that are fetched when they are read. */
HEARTH_API int hearth_prefetch(struct hearth_checkpoint *ckpt, const struct hearth_item *items,
        size_t count, struct hearth_error *err);

/* The keys that a partial load missed: how many, and each by its index. */
HEARTH_API size_t hearth_report_missing(const struct hearth_report *report);
HEARTH_API const void *hearth_report_key(
        const struct hearth_report *report, size_t index, size_t *out_len);
HEARTH_API void hearth_report_close(struct hearth_report *report);

HEARTH_END

#endif
