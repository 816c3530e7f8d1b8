/* SPDX-License-Identifier: Apache-2.0 */
/* Locals that close themselves on every return path. Constructors build into one
 * and hand it on at the end: `*out = thing; thing = NULL;`. */
#ifndef HEARTH_CORE_BASE_AUTO_H
#define HEARTH_CORE_BASE_AUTO_H

#define HTH_AUTO(close) __attribute__((cleanup(auto_##close)))

#define HTH_AUTO_DEFINE(close, type)            \
    static inline void auto_##close(type **own) \
    {                                           \
        close(*own);                            \
    }

#endif
