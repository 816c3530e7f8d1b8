/* SPDX-License-Identifier: Apache-2.0 */
/* The opcodes that the pickle machine runs. */
/* For this folder alone. */
#ifndef HEARTH_CORE_TORCH_PICKLE_OPS_H
#define HEARTH_CORE_TORCH_PICKLE_OPS_H

#include "pickle_machine.h"

/* arg[n]: the argument without its length, in the pickle. */
typedef int hth_op_fn(struct hth_machine *m, const unsigned char *arg, size_t n);

struct hth_op {
    uint8_t values; /* 1: in hth_pickle_load_values() only */
    hth_op_fn *run; /* NULL: refused */
};
extern const struct hth_op hth_pickle_op[256];

/* pickle_objects.c: those that refer. */
hth_op_fn hth_op_memoize, hth_op_put, hth_op_get, hth_op_global, hth_op_stack_global, hth_op_newobj,
        hth_op_reduce, hth_op_build, hth_op_persistent;

#endif
