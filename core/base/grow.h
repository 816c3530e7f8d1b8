/* SPDX-License-Identifier: Apache-2.0 */
/* Arrays that grow by doubling, so that adding one after the other costs no more than copying all
 * twice. */
#ifndef HEARTH_CORE_BASE_GROW_H
#define HEARTH_CORE_BASE_GROW_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

/* `at` with room for `want` elements of `each` bytes: as it is where *room has as many, else
 * moved, *room elements long then, `least` at first. NULL: no memory, and `at` and *room are as
 * they were. */
static inline void *hth_grow(void *at, size_t *room, size_t want, size_t least, size_t each)
{
    size_t more = *room ? *room : least;
    void *bigger;

    if (*room && want <= *room)
        return at;
    if (want > SIZE_MAX / 2 / each)
        return NULL;
    while (more < want)
        more *= 2;
    bigger = realloc(at, more * each);
    if (bigger)
        *room = more;
    return bigger;
}

#endif
