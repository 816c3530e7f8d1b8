/* SPDX-License-Identifier: Apache-2.0 */
/* A transport alone in a process of its own, with one connection, driven as an engine drives it. */
#ifndef HEARTH_TESTS_BENCH_SIDE_H
#define HEARTH_TESTS_BENCH_SIDE_H

#include "transport/transport.h"

struct side {
    struct hth_transport *t;
    hth_conn conn; /* the last that was accepted or dialled */
    int up;        /* a dialled one */
    uint16_t port; /* to listen on; 0: any */
    double dialled_s;
    const char *backend;
    void (*on_message)(struct side *s, hth_conn conn, const void *bytes, size_t len);
    void (*on_pull)(struct side *s, uint64_t cookie, int code); /* NULL: pulls are not used */
};

uint64_t side_ms(void *self); /* monotonic; self: unused */
struct hth_clock side_clock(void);

/* backend: TRANSPORT[:PROVIDER], as bench.h says. Die where it does not work. */
void side_open(struct side *s, const char *backend, const char *bind);
/* Opens on 127.0.0.1, writes the address to the descriptor and turns for ever. */
__attribute__((noreturn)) void side_serve(struct side *s, int out);
/* Connects to the address read from the descriptor, until the connection is up. */
void side_dial(struct side *s, int in);
/* Until something was done, a second has passed, `also` can be read or it is `until_s` (0: none).
 * 1: `also` can be read. */
int side_turn(struct side *s, int also, double until_s);
void side_send(struct side *s, hth_conn conn, const void *bytes, size_t len);

#endif
