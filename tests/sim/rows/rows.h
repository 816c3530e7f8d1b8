/* SPDX-License-Identifier: Apache-2.0 */
/* What ../rows.c and the rows of this folder share. */
#ifndef ROWS_H
#define ROWS_H

#include "script.h"
#include "world_parts.h"

#define DEAD_MS 2000u
#define FLAP_MS 6000u /* a node's silence: dead_ms is 2000, connect_ms 2000 */
#define WELL_MS 9000u /* after it: found, well for 2 x dead_ms, its copies back */
#define SAVE_MS \
    9000u /* the longest that a save takes: longer than the wait for copies that no node makes */

static inline void must_save(struct world *w, uint32_t saves, const char *when)
{
    if (!script_save(w, saves, SAVE_MS + 1000))
        world_broken(w, "%s: a save is not PROTECTED (%.200s)", when, w->heard);
}

void steps_differ(struct world *w);
void sets(struct world *w);
void both_open(struct world *w);
void forgotten(struct world *w);
void flipped(struct world *w);
void late(struct world *w);
void queued(struct world *w);
void written(struct world *w);

#endif
