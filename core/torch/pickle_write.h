/* SPDX-License-Identifier: Apache-2.0 */
/* The opcodes that Python's pickler writes for values that more than one of our writers has. */
/* For this folder alone. */
#ifndef HEARTH_CORE_TORCH_PICKLE_WRITE_H
#define HEARTH_CORE_TORCH_PICKLE_WRITE_H

#include <stddef.h>
#include <stdint.h>

#define HTH_PICKLE_INT_MAX 10 /* bytes */

/* The shortest of BININT1, BININT2, BININT, LONG1. Returns its bytes. */
size_t hth_pickle_int(unsigned char out[HTH_PICKLE_INT_MAX], int64_t v);

#endif
