/* SPDX-License-Identifier: Apache-2.0 */
/* An input that is several things said one after the other: {u8 how, u8 more, u16 type, u16 length,
 * bytes}. */
#ifndef HEARTH_TESTS_FUZZ_STEPS_H
#define HEARTH_TESTS_FUZZ_STEPS_H

#include "core/base/bytes.h"

#include <stdio.h>
#include <stdlib.h>

#define STEP_HEAD 6u
#define STEPS_MAX 200 /* of one input: what comes after them is not looked at */

struct step {
    uint8_t how, more; /* bits of the target's own */
    uint16_t type;
    size_t len;
    const unsigned char *bytes;
};

static unsigned long long steps_said;

/* For tests/fuzz/run: an input counts as one execution, however much it says. */
__attribute__((destructor)) static void steps_tell(void)
{
    if (getenv("FUZZ_COUNT"))
        fprintf(stderr, "messages said: %llu\n", steps_said);
}

/* 1, or 0 at the end. A length beyond the end is what is left. */
static inline int step_next(struct hth_reader *r, struct step *out)
{
    const unsigned char *head = hth_read(r, STEP_HEAD);

    if (!head)
        return 0;
    *out = (struct step){
        .how = head[0], .more = head[1], .type = hth_get16(head + 2), .len = hth_get16(head + 4)
    };
    if (out->len > r->len - r->pos)
        out->len = r->len - r->pos;
    out->bytes = hth_read(r, out->len);
    steps_said++;
    return 1;
}

#endif
