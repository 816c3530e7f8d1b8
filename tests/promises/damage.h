/* SPDX-License-Identifier: Apache-2.0 */
/* Files of a store, spoiled on purpose. */
#ifndef HEARTH_TESTS_DAMAGE_H
#define HEARTH_TESTS_DAMAGE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum damage { DAMAGE_HALF, DAMAGE_EMPTY, DAMAGE_DANGLING, DAMAGE_GONE, DAMAGE_ZEROS, DAMAGES };

void damage(const char *path, enum damage how); /* as a new file: slots are mapped by others */
void damage_flip(const char *path, off_t at);   /* one bit, in place; at < 0: from the end */
off_t damage_table(const char *path);           /* where its object table has its first record */
uint64_t damage_sum(const char *path);
void damage_put(const char *path, const void *bytes, size_t len);
void damage_wait_whole(const char *path, size_t bytes); /* a file of at least so many, by and by */

#endif
