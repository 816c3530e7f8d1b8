/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Room for slots, as the store has it; where it is short, free slots of other sizes give up what
 * they are registered with, so that the store can let them make way.
 */
#ifndef HEARTH_REPLICATION_SLOTS_H
#define HEARTH_REPLICATION_SLOTS_H

#include "ctx.h"

/* As the store's ops of these names. A store that makes slots when they are taken has no want(). */
int hth_slots_reserve(
        struct hth_ctx *ctx, const uint64_t *bytes, size_t count, struct hearth_error *err);
/* 1: some are registered still: they go with a later call, when that has ended. */
int hth_slots_keep_only(struct hth_ctx *ctx, const uint64_t *bytes, size_t count);
int hth_slots_want(struct hth_ctx *ctx, const uint64_t *bytes, size_t count, enum hth_want how,
        struct hearth_error *err);

#endif
