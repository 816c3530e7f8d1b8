/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A node's memory in plain memory: the ops of core/store/store.h with the same rules as the one on
 * tmpfs, for the simulator and for tests of what stands on a store. It outlives engines: close()
 * ends an engine's use (also use scan() alone after one that was dropped without a close), and
 * the next engine's scan() finds all there is. One seed, one behaviour.
 *
 * Different from tmpfs: capacity is rounded up to 64 bytes, reserve() makes everything at once,
 * there are no foreign containers, and `limit_bytes` alone says what fits.
 */
#ifndef STORE_MEM_H
#define STORE_MEM_H

#include "core/store/store.h"

/* `seed` gives the store its id. limit_bytes: of slots, raw objects and records; 0: none.
 * The caller owns *out: hth_store_mem_destroy(). */
int hth_store_mem_open(uint64_t seed, uint64_t limit_bytes, struct hth_store **out);

/* The memory itself is gone: the node is lost. NULL is fine. */
void hth_store_mem_destroy(struct hth_store *s);

/* The n-th allocating operation from now (1: the next) fails with HEARTH_ENOSPC, once; 0: none.
 * Allocating: a slot made, a directory made, raw_make, raw_back, raw_seal, publish, record_put. */
void hth_store_mem_fail_at(struct hth_store *s, uint64_t n);

/* From now on the memory has this size, as if a stranger had taken the rest or given it back: slots
 * and records that are there stay. 0: without bound. */
void hth_store_mem_room(struct hth_store *s, uint64_t limit_bytes);

/* No record can be written while it is on. */
void hth_store_mem_no_records(struct hth_store *s, int on);

/* From now on each record remembers what it was before it was written last. */
void hth_store_mem_remember(struct hth_store *s);

/* Changes one of the records, while no engine uses the store: `die` decides which, and whether a
 * bit of it changes, it loses its end, or its version before is back. Writes which, and how; 0:
 * there is no record that can change. */
int hth_store_mem_spoil(struct hth_store *s, uint64_t die, char out[240]);

/* From now on large records of all stores of this process are kept once where they are alike; one
 * thread has them all. */
void hth_store_mem_share(void);

/* Told of each record that was written, and of each sealed slot before it is given back. NULL: of
 * none. */
struct slot;
typedef void hth_store_mem_written(void *watcher, const char *name, const void *bytes, size_t len);
typedef void hth_store_mem_freed(void *watcher, const struct slot *slot);
void hth_store_mem_watch(struct hth_store *s, hth_store_mem_written *written,
        hth_store_mem_freed *freed, void *watcher);

/* 1: some process has the slot open by another open file than `opened`. The store numbers its open
 * files: the slot's number changes when an engine opens the store and when the slot is abandoned.
 * NULL: no process ever has one open. */
typedef int hth_store_mem_elsewhere(void *world, uint64_t slot, uint64_t opened);
void hth_store_mem_processes(struct hth_store *s, hth_store_mem_elsewhere *elsewhere, void *world);
/* The open file of that slot that its engine has; 0: there is no such slot. */
uint64_t hth_store_mem_opened(struct hth_store *s, uint64_t slot);

/* Allocating operations so far, failed ones too. */
uint64_t hth_store_mem_allocations(struct hth_store *s);

/* How many sizes foresee() was given last. */
size_t hth_store_mem_foreseen(struct hth_store *s);

/* Bytes counted against the limit. */
uint64_t hth_store_mem_used(struct hth_store *s);

/* Reports as scan() does, without its effect on leases and held slots: for checks in the middle of
 * an engine's life, and to flip bits in a slot. */
void hth_store_mem_each(
        struct hth_store *s, void (*found)(void *arg, const struct hth_store_found *f), void *arg);

#endif
