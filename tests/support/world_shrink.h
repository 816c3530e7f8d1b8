/* SPDX-License-Identifier: Apache-2.0 */
/* Worlds in words, and smaller ones that break the same promise. */
#ifndef WORLD_SHRINK_H
#define WORLD_SHRINK_H

#include "world.h"

/* "net+loss+crash"; to be read with commas too, and "all". 0, or -1 where a word is none of
 * them. */
void world_kinds_text(uint64_t kinds, char *out, size_t len);
int world_kinds_parse(const char *text, uint64_t *out);

/* "seed=5,nodes=3,...,faults=net+loss": all that a world is. 0, or -1 where it is no world. */
void world_text(const struct world_opts *o, char *out, size_t len);
int world_parse(const char *text, struct world_opts *o);

/* As long as the promise that `why` begins with is broken. Runs many worlds, each in a process. */
void world_shrink(struct world_opts *o, const char *why);

#endif
