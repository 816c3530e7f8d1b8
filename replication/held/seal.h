/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Works on the objects that are here: sealing the objects that a rank has written, verifying the
 * sealed ones. Work that grows with an object is done by the workers; `done` runs on the engine's
 * thread, once.
 */
#ifndef HEARTH_REPLICATION_SEAL_H
#define HEARTH_REPLICATION_SEAL_H

#include "holdings.h"

typedef void hth_sealed_fn(void *self, struct hth_held_save *save, struct hth_held *held, int code,
        const struct hearth_error *err);

/* The bytes that a rank has put into a slot behind its data (held->object.data_len). */
struct hth_seal_part {
    uint32_t items;
    uint64_t items_len; /* behind the place of the table's head */
    int summed;         /* and behind that the CRC32C of each chunk */
    uint32_t early;     /* chunks, from the first on, that peers may have pulled before */
};

/* Makes checksums, table, digest and block, and seals the object under its final name. If the rank
 * has made the checksums of its chunks and integrity is not strong, only chunks that peers may have
 * pulled already are compared with them: of any other, the first peer that pulls it finds a wrong
 * checksum. If integrity is strong, all are compared when the SHA-256 is made. HEARTH_ECORRUPT
 * names the chunk. save and held are readable in `done`, even if the object was dropped meanwhile
 * (HEARTH_ECANCELED). Wrong items: HEARTH_EINVAL. */
int hth_seal_start(struct hth_ctx *ctx, struct hth_held_save *save, struct hth_held *held,
        const struct hth_seal_part *part, hth_sealed_fn *done, void *self,
        struct hearth_error *err);

/* Compares every chunk of a sealed object with its table (and the table with held->object.digest),
 * or a raw object as a whole. HEARTH_ECORRUPT names the chunk. Sets held->verified. */
int hth_verify_start(struct hth_ctx *ctx, struct hth_held_save *save, struct hth_held *held,
        hth_sealed_fn *done, void *self, struct hearth_error *err);

/* Raw objects. put: content becomes the bytes of held, which is LENT and has name and length;
 * content is taken over, also on failure. The call itself looks for room (HEARTH_ENOSPC); workers
 * copy and make the digest, and held is SEALED when `done` gets 0. An object that fails is dropped
 * after `done`. A content that changes: HEARTH_EPROTO. take: the engine before this one has sealed
 * the bytes, and their digest becomes the object's (HEARTH_ENOENT, HEARTH_ECORRUPT: they are not
 * here). look: the part of hth_verify_start() for raw objects: compares the bytes with
 * held->object.digest, HEARTH_ECORRUPT. */
int hth_raw_put(struct hth_ctx *ctx, struct hth_held_save *save, struct hth_held *held,
        struct hth_content *content, hth_sealed_fn *done, void *self, struct hearth_error *err);
int hth_raw_take(struct hth_ctx *ctx, struct hth_held_save *save, struct hth_held *held,
        hth_sealed_fn *done, void *self, struct hearth_error *err);
int hth_raw_look(struct hth_ctx *ctx, struct hth_held_save *save, struct hth_held *held,
        hth_sealed_fn *done, void *self, struct hearth_error *err);

/* Makes the digest of a foreign file. For the container's own file it becomes held->object.digest;
 * a copy from another node must have the digest that held has (HEARTH_ECORRUPT). Sets
 * held->verified. */
int hth_digest_start(struct hth_ctx *ctx, struct hth_held_save *save, struct hth_held *held,
        hth_sealed_fn *done, void *self, struct hearth_error *err);

/* 1: one of these works uses the object. */
int hth_job_runs(const struct hth_ctx *ctx, const struct hth_held *held);
void hth_jobs_close(struct hth_ctx *ctx); /* after the last work; before the holdings' */

/* 0 when the block is that of this object. Errors: HEARTH_ECORRUPT, as hth_block_decode(). */
int hth_block_check(const struct hth_ctx *ctx, struct hth_save_id save,
        const struct hth_object *object, const unsigned char *block, struct hearth_error *err);

#endif
