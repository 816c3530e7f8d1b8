/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The enemy of a transport's and an engine's every door. Frames have numbers: number k of a seed is
 * always the same lie to the same state, from the start of its slice on, so that a million of them
 * can be had in parts, and a finding again.
 */
#ifndef HEARTH_TESTS_HOSTILE_H
#define HEARTH_TESTS_HOSTILE_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#ifndef SLICE
#define SLICE 500u
#endif /* frames from one fresh state on */

struct hostile_opts {
    const char *backend;
    uint64_t seed, first, frames; /* whole slices: first is rounded down, frames up */
    int loud;
    int dials; /* connections are made and cut, and nothing else is done */
};

/* Ends the process with a line that has the failed check, and how to repeat it. */
#define CHECK(condition, ...)                                \
    do {                                                     \
        if (!(condition))                                    \
            hostile_failed(__FILE__, __LINE__, __VA_ARGS__); \
    } while (0)
__attribute__((format(printf, 3, 4))) _Noreturn void hostile_failed(
        const char *file, int line, const char *format, ...);
extern uint64_t hostile_slice; /* that is under way */

/* Frames and bodies that an honest peer has sent: a hostile peer sends them again, changed. */
struct hostile_corpus {
    struct heard {
        uint16_t type;
        uint32_t len;
        unsigned char *bytes;
    } heard[1024];
    uint32_t count;
};

void corpus_add(
        struct hostile_corpus *c, uint64_t *dice, uint16_t type, const void *bytes, size_t len);
void corpus_clear(struct hostile_corpus *c);
/* Anything at all, into out[most]: its length. */
size_t hostile_random(uint64_t *dice, unsigned char *out, size_t most, uint16_t *out_type);
/* A message that was sent before, or nearly that; the corpus is not empty. */
size_t corpus_lie(const struct hostile_corpus *c, uint64_t *dice, unsigned char *out, size_t most,
        uint16_t *out_type);
/* In place, of bytes[len]; the new length, most at most. */
size_t hostile_mutate(uint64_t *dice, unsigned char *bytes, size_t len, size_t most);
uint64_t hostile_roll(uint64_t *dice, uint64_t sides);

void hostile_lies(const struct hostile_opts *o);  /* a member of three engines, in virtual time */
void hostile_wires(const struct hostile_opts *o); /* a peer of a session, by a backend */

#endif
