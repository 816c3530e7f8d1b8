/* SPDX-License-Identifier: Apache-2.0 */
/* Three processes on one backend: a victim, a healthy peer that goes on pulling from it, and an
 * enemy with the key. */
#ifndef HEARTH_TESTS_HOSTILE_WIRES_H
#define HEARTH_TESTS_HOSTILE_WIRES_H

#include "hostile.h"

#include "core/base/bytes.h"
#include "transport/session/session_parts.h"

#include <stdatomic.h>

#define OBJECT (UINT64_C(256) << 10) /* bytes that the victim grants */
#define PULLED (UINT64_C(64) << 10)  /* of them, at once */

enum { VICTIM, HEALTHY, ENEMY, SIDES };
enum { UP = 1 };     /* sent: after the hello */
enum { RANDOM = 1 }; /* sent: no frame that was changed */

struct backend {
    const char *name, *module, *provider;
    int keyed; /* it proves and seals by itself */
    int plain; /* plain sockets may say what they like to its listener */
    int ends; /* its library ends who dials and cuts again and again, now and then, by assertions of its own */
};

/* The memory that the processes share. */
struct shared {
    struct hth_member member[SIDES];
    atomic_int here, stop;
    atomic_ullong slice, cut, sent[2][2];             /* enemy: [UP or not][RANDOM or not] */
    atomic_ullong heard, named, kib_before, kib_most; /* victim */
    atomic_ullong pulls, wrong, downs, gap_ms;        /* healthy peer */
};

struct side {
    const struct backend *backend;
    struct shared *shared;
    uint32_t self;
    struct hth_transport *t;
    struct hth_session *session;
    struct hth_clock clock;
    uint64_t dice;
    struct hth_epoch epoch;
    struct hth_member member[SIDES];
    unsigned char *bytes;
    struct hth_region *region;
    struct hth_grant grant[SIDES]; /* victim: given to each; others: the last that they have got */
    uint64_t offers;
    struct hth_session_pull pull;
    int pulling, pull_code;
};

extern const struct hth_key hostile_key;

uint64_t side_now_ms(void);
/* Transport and session; waits until all sides are there. */
void side_open(struct side *s, const struct backend *b, struct shared *shared, uint32_t self);
int side_turn(struct side *s);               /* how much was done */
void side_wait(struct side *s, unsigned ms); /* at most; turns while there is something to do */
void side_close(struct side *s);
unsigned own_kib(void);

void enemy_run(struct side *s, const struct hostile_opts *o); /* enemy.c */

#endif
