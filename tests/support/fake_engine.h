/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An engine for the client library's tests: a thread that speaks the local protocol for one node
 * and keeps saves in memfds. It has no peers; `remote` makes it say of every object that another
 * node holds it. It can refuse, stay silent, die and come back.
 */
#ifndef FAKE_ENGINE_H
#define FAKE_ENGINE_H

#include "core/local/local.h"

struct fake_engine;

/* Makes <root>/<job>/.hearth and listens there. NULL when it cannot. */
struct fake_engine *fake_start(const char *root, const char *job);
void fake_stop(struct fake_engine *f); /* NULL is fine */

void fake_crash(struct fake_engine *f); /* all connections end; memory stays */
void fake_back(struct fake_engine *f);  /* it listens again; tokens and leases are forgotten */

/* It has this job key ([HTH_KEY], copied); without, none. */
void fake_key(struct fake_engine *f, const unsigned char *key);

/* Answer requests of `type` with `code`, HEARTH_OK: as usual. `text` in the sentence. */
void fake_refuse(struct fake_engine *f, uint32_t type, int code, const char *text);
void fake_silence(
        struct fake_engine *f, uint32_t type); /* no answer to this one; 0: to all again */
void fake_map_late(struct fake_engine *f);     /* the last MAP without an answer gets it */
void fake_hold(struct fake_engine *f, enum hearth_level level); /* saves get no further; 0: go on */
void fake_cancel_all(struct fake_engine *f, const char *why);   /* undecided saves fail */
void fake_remote(struct fake_engine *f, int remote);
void fake_without_sums(struct fake_engine *f); /* of ranges, as if their holders were older */
void fake_let_go(struct fake_engine *f, uint64_t slot); /* told to all ranks */
/* The next `count` requests for ranges are answered when all of them are there. */
void fake_gather(struct fake_engine *f, uint32_t count);
void fake_flip(
        struct fake_engine *f, int count); /* a wrong byte in the next ranges and common objects */
void fake_cut(struct fake_engine *f, int count); /* the next of these end a byte early */

/* Saves are taken with so many runs of ranks, which do not follow. */
void fake_runs(struct fake_engine *f, uint32_t runs);

/* Objects are sealed with SHA-256 from now on; five wrong bytes in the next ranges, and their
 * CRC32C as it was. */
void fake_strong(struct fake_engine *f);
void fake_forge(struct fake_engine *f, int count);

struct fake_counts {
    uint32_t clients, leases, begins, ranges, slots, follows, regains, closes, drops, aborts;
    uint32_t silenced; /* requests without an answer */
    uint64_t range_bytes;
    uint32_t summed;       /* objects that came with the sums of their chunks, which were right */
    uint32_t written;      /* chunks that the last WRITTEN named */
    uint32_t bads;         /* wrong chunks that clients reported */
    uint64_t bad_chunk;    /* the last */
    uint32_t step_wait_ms; /* of the last set_step */
    uint32_t find_wait_ms; /* of the last find */
    uint32_t meet_left_ms; /* of the last meet */
};
struct fake_counts fake_counts(struct fake_engine *f); /* waits at most 2 s until all messages are
                                                        * read */

#endif
