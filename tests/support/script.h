/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A history by hand: worlds (world.h) in which nothing goes wrong but what a test does, in virtual
 * time. Ranks save only on demand, so that all of them are at one step whatever is done in between.
 */
#ifndef SCRIPT_H
#define SCRIPT_H

#include "world.h"

/* Machines 0 .. nodes - 1 with `ranks` each; recovered, resting. dead_ms 2000, connect_ms 2000. */
void script_open(struct world *w, const struct world_opts *opts);
void script_run(struct world *w, uint64_t ms);

/* Until all ranks have recovered, or have ended what they are at, and rest. */
void script_rest(struct world *w);
void script_go(struct world *w); /* they save one after the other from now on, all at one step */

/* `saves` more, one after the other; 1: each was PROTECTED within so long. */
int script_save(struct world *w, uint32_t saves, uint64_t each_ms);

void script_silent(struct world *w, uint32_t node, uint64_t ms); /* and back, in the end */
void script_silence(struct world *w, uint32_t node, int silent);
/* Its engine is killed and started again, under its ranks. */
void script_again(struct world *w, uint32_t node);
void script_kill(struct world *w, uint32_t node);
void script_start(struct world *w, uint32_t node);

/* Objects of a save that are on a node, sealed; those of all saves that are there. */
uint32_t script_objects(struct world *w, uint32_t node, struct hth_save_id save);
uint32_t script_all_objects(struct world *w, uint32_t node);
uint32_t script_slots(struct world *w, uint32_t node); /* of its memory, in whatever state */
/* The fewest nodes that have one and the same object of the newest PROTECTED save. */
uint32_t script_copies(struct world *w);

#endif
