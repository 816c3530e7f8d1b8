/* SPDX-License-Identifier: Apache-2.0 */
/* How much room a node's store makes ahead of the saves to come. */
#ifndef HEARTH_ENGINE_RESERVE_H
#define HEARTH_ENGINE_RESERVE_H

#include "core/format/epoch.h"

struct hth_node;
struct hth_ranks;

/* A new epoch: what each rank's part has, from the gather's table[world][HTH_GATHER] that the epoch
 * was made of, or nothing known. Errors: HEARTH_ENOMEM. */
int reserve_sizes(
        struct hth_node *n, const unsigned char *table, uint32_t world, struct hearth_error *err);
void reserve_no_sizes(struct hth_node *n);
/* Bytes of the rank's largest object; 0: the rank has sent no sizes. */
uint64_t reserve_said(const struct hth_node *n, uint32_t rank);

/* Asks the store for slots of those sizes. Errors: HEARTH_ENOMEM, the store's. */
int reserve_slots(struct hth_node *n, struct hearth_error *err);
/* In a job of one node, where readers have the slots that a begin of an object of so many bytes
 * needs, with leases or without (a program that has the file open): makes keep + 1 more, once, if
 * there is room. Other jobs reserve as many for maps that are not settled. */
void reserve_for_readers(struct hth_node *n, uint64_t object);
/* At an epoch's first begin, of an object of so many bytes: checks whether there is room for keep +
 * 1 saves, if ranks that have sent no sizes have parts like this one. Errors: HEARTH_ENOSPC with
 * the store's numbers; later calls: none. */
int reserve_look(struct hth_node *n, uint64_t object, struct hearth_error *err);
/* 0: there is room for saves of these sets[saves] of ranks (NULL: all), with the objects of this
 * node's ranks and the copies that this node holds. `rank` has an object of `object` bytes. If a
 * rank declared no sizes, those of its last save count. Errors: HEARTH_ENOSPC with the store's
 * numbers. */
int reserve_room(struct hth_node *n, uint32_t rank, uint64_t object,
        const struct hth_ranks *const *sets, uint32_t saves, struct hearth_error *err);
/* Makes slots for saves to come, as large as those of this save, if ranks have not sent their sizes
 * in advance. */
void reserve_ahead(struct hth_node *n, struct hth_save_id save);
/* Gives back slots that were made for places which have returned to other nodes. */
void reserve_tick(struct hth_node *n, uint64_t now_ms);
/* A rank that had slots mapped is back: other slots may have been made beside them. */
void reserve_look_again(struct hth_node *n);
uint64_t reserve_due_ms(const struct hth_node *n);
void reserve_close(struct hth_node *n);

#endif
