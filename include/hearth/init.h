/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a struct of the caller's begins: with its size and zeros, in C from C11 and in C++ from
 * C++11. Every struct whose first field is struct_size has both of
 *
 *     struct hearth_opts opts = HEARTH_OPTS_INIT;      in C a constant, for static objects too
 *     opts = hearth_opts_init();
 *
 * The size is what the caller knows of the struct. The library reads and writes no more than that;
 * what an older caller does not know is 0, and what a newer one knows beyond this library must be.
 */
#ifndef HEARTH_INIT_H
#define HEARTH_INIT_H

#include <hearth/export.h>
#include <stddef.h>

/* HEARTH_SIZED(hearth_opts); defines hearth_opts_init(). */
#ifdef __cplusplus
#define HEARTH_INIT(type) type##_init()
#define HEARTH_ZEROS \
    {                \
    }
#else
#define HEARTH_INIT(type)                  \
    {                                      \
        .struct_size = sizeof(struct type) \
    }
#define HEARTH_ZEROS \
    {                \
        0            \
    }
#endif

#define HEARTH_SIZED(type)                      \
    static inline struct type type##_init(void) \
    {                                           \
        struct type begun = HEARTH_ZEROS;       \
        begun.struct_size = sizeof(begun);      \
        return begun;                           \
    }                                           \
    struct type

#endif
