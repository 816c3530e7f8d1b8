/* SPDX-License-Identifier: Apache-2.0 */
/* The state of the pickle machine, for its loop and its opcodes. */
/* For this folder alone. */
#ifndef HEARTH_CORE_TORCH_PICKLE_MACHINE_H
#define HEARTH_CORE_TORCH_PICKLE_MACHINE_H

#include "pickle.h"

struct hth_machine {
    struct hth_pickle p;
    size_t op;                       /* where the opcode in hand began */
    size_t pos;                      /* next byte */
    size_t frame_end;                /* of the last frame */
    uint32_t mark[HTH_PICKLE_MARKS]; /* depth of the stack at each */
    uint32_t marks;
    int stopped;
    int values; /* opcodes of values are allowed */
    struct hearth_error *err;
};

/* "byte N: ..." at the opcode in hand; a macro, so that an analyzer knows the code. */
void hth_machine_say(struct hth_machine *m, const char *fmt, ...) HTH_PRINTF(2, 3);
#define hth_machine_refuse(m, ...) (hth_machine_say((m), __VA_ARGS__), HEARTH_ECORRUPT)

/* The stack holds n values above the last mark. */
int hth_machine_need(struct hth_machine *m, uint32_t n);
struct hth_pickle_value *hth_machine_top(struct hth_machine *m, uint32_t below);
int hth_machine_push(struct hth_machine *m, uint32_t v);

/* A new value on the stack; *out is zero but for kind and place. */
int hth_machine_make(
        struct hth_machine *m, enum hth_pickle_kind kind, struct hth_pickle_value **out);

/* A value becomes part of the container `over`; NULL: it becomes the root. */
int hth_machine_use(struct hth_machine *m, uint32_t number, struct hth_pickle_value *over);

#endif
