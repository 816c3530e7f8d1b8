/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Records of many stores that are alike page by page, each page once in memory: an epoch's record
 * is the same on all nodes but for its own number and its digest. For one thread.
 */
#ifndef HEARTH_TESTS_STORE_MEM_LARGE_H
#define HEARTH_TESTS_STORE_MEM_LARGE_H

#include <stddef.h>

struct large;

struct large *large_put(const void *bytes, size_t len);
void large_get(const struct large *l, void *out); /* all of it */
void *large_first(const struct large *l);         /* its first 4096 bytes, or all of it */
void large_free(struct large *l);

#endif
