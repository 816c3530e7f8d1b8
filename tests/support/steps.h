/* SPDX-License-Identifier: Apache-2.0 */
/* What a part of the calling thread costs the processor, counted: by a process that traces it. */
#ifndef STEPS_H
#define STEPS_H

#include <stdint.h>

struct steps {
    uint64_t instructions; /* of the thread's own */
    uint64_t calls;        /* of the system */
};

/* Runs what(arg) and counts what of both `mode` says: instructions, each of which stops the thread
 * for some microseconds, or system calls. Returns 0, or -1 where no process may be traced; what()
 * has run then, too. More than `most` instructions are counted no further. */
enum steps_mode { STEPS_INSTRUCTIONS, STEPS_CALLS };
int steps_count(
        struct steps *out, enum steps_mode mode, uint64_t most, void (*what)(void *), void *arg);

#endif
