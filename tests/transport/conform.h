/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared by the conformance cases: two transports of one backend that record every event and judge
 * the order of the events themselves, and a pump that moves both in real or virtual time.
 */
#ifndef CONFORM_H
#define CONFORM_H

#include "transport/loop/loop.h"
#include "transport/transport.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CONNS   1024
#define PULLS   4096
#define WAIT_MS 20000 /* for what must come; generous: the machine may be busy */
#define MIB     (UINT64_C(1) << 20)

struct conform_backend {
    const char *name;   /* as on the command line */
    const char *module; /* NULL: loop */
    const char *provider;
    const char *bind;    /* NULL: 127.0.0.1 */
    const char *profile; /* of the strict provider, tests/support/strictfi */
    uint32_t connect_ms; /* 0: the usual */
    int silent;          /* a death may show as nothing but silence: the session's deadline cuts */
    int unguarded;       /* peers' memory is simply there: stopped, closed or not registered */
    int keyless;         /* keys are not checked: registered memory can be read for ever */
    const char *library; /* variable that names another one; NULL: none does */
    const char *setting; /* variable to set; NULL: none */
    int keyed;           /* it has a key of its own */
    int trusted;         /* which it proves, and does no more: conform_trusts() */
};

struct conn_record {
    hth_conn conn;
    int accepted, up, downs, code, writable;
    uint64_t messages;
    size_t last_len;
};

struct pull_record {
    hth_conn conn;
    int posted, done, code, has_crc;
    uint32_t crc;
};

struct world;

struct side {
    struct world *w;
    struct hth_transport *t;
    struct conn_record conn[CONNS];
    int conns;
    struct pull_record pull[PULLS]; /* by cookie */
    int pulls;                      /* posted */
    int done;
    unsigned char last[HTH_MESSAGE_MAX]; /* message */
    uint64_t ordered;                    /* next number expected in a message of number_send() */
    int disorder;
    int drop_in; /* enum hook: in which callback to drop the connection */
};

enum hook { HOOK_NONE, HOOK_ACCEPT, HOOK_UP, HOOK_MESSAGE, HOOK_PULL, HOOK_DOWN };

struct world {
    const struct conform_backend *backend;
    struct hth_loop_net *net; /* loop only */
    uint64_t virtual_ms;
    struct hth_clock clock;
    struct side side[2];
};

/* Ends the program with a line that says what was not so. */
#define CHECK(cond)                                    \
    do {                                               \
        if (!(cond))                                   \
            conform_failed(__FILE__, __LINE__, #cond); \
    } while (0)
_Noreturn void conform_failed(const char *file, int line, const char *what);
const struct hth_key *conform_key(const struct conform_backend *b); /* NULL: it has none */
/* Opened with network = trusted: a library's listener opens on loopback with that alone. */
int conform_trusts(const struct conform_backend *b);
_Noreturn void conform_skip(const char *reason); /* this cell cannot be had here */
/* Skips where peers' memory is simply there. */
void conform_needs_guard(const struct conform_backend *b);

#define A (&w->side[0])
#define B (&w->side[1])

struct world *world_open(const struct conform_backend *backend); /* no side yet */
void world_close(struct world *w);                               /* sides, too; judges them */
void side_open(struct world *w, int i);
void side_close(struct side *s);

/* Moves what is open until cond(w) or the time is over. Returns cond(w). */
typedef int cond_fn(struct world *w, void *arg);
int pump(struct world *w, cond_fn *cond, void *arg, uint64_t ms);
void pump_for(struct world *w, uint64_t ms);

/* A connection from `from` to the blob; its record, UP. dial_begin: not UP yet; NULL: no more
 * connections may stand. */
struct conn_record *dial_begin(struct side *from, const unsigned char *addr, uint32_t len);
struct conn_record *dial(struct side *from, const unsigned char *addr, uint32_t len);
struct conn_record *dial_side(struct side *from, struct side *to, struct conn_record **out_there);
struct conn_record *conn_find(struct side *s, hth_conn conn);
int all_pulled(struct world *w, void *side);
int is_down(struct world *w, void *conn_record);

/* Posts, pumping while busy; the cookie. `want` < 0: the code it is to be refused with, or
 * accepted. */
int pull_post(struct side *s, hth_conn conn, const unsigned char *desc, uint32_t desc_len,
        uint64_t roff, struct hth_region *region, uint64_t doff, uint64_t len);

/* bytes[len] that tell where they came from */
void fill(unsigned char *bytes, uint64_t len, uint64_t seed);
int is_filled(const unsigned char *bytes, uint64_t len, uint64_t seed, uint64_t off);
uint64_t real_ms(void);
int long_run(void);

/* Two processes, and we who judge. The child functions return; their process then ends with 0. */
struct link_pipe {
    int to_owner[2], to_puller[2], to_us[2]; /* pipes */
};
typedef void child_fn(const struct conform_backend *backend, const struct link_pipe *pipe);
pid_t child_start(child_fn *fn, const struct conform_backend *backend, const struct link_pipe *p);
void pipe_open(struct link_pipe *p);
void pipe_close(struct link_pipe *p);
void put_all(int fd, const void *bytes, size_t len);
void get_all(int fd, void *bytes, size_t len); /* with a deadline */
void child_must_end(pid_t pid);                /* with status 0, in time */
void child_killed(pid_t pid);

/* The cases; each opens its own worlds. */
void conform_data(const struct conform_backend *b);
void conform_messages(const struct conform_backend *b);
void conform_idle(const struct conform_backend *b);
void conform_death(const struct conform_backend *b);
void conform_stop(const struct conform_backend *b);
void conform_partition(const struct conform_backend *b);
void conform_post_to_dead(const struct conform_backend *b);
void conform_isolation(const struct conform_backend *b);
void conform_access(const struct conform_backend *b);
void conform_dereg(const struct conform_backend *b);
void conform_close(const struct conform_backend *b);
void conform_session(const struct conform_backend *b);
void conform_doors(const struct conform_backend *b);
void conform_crossing(const struct conform_backend *b);

/* Short ones, for many seeds of chance. */
void conform_pulls(const struct conform_backend *b); /* some sizes, cuts, connections anew */
void conform_talk(const struct conform_backend *b, uint64_t messages);
void conform_deaths(const struct conform_backend *b, unsigned when);

/* Seeds from..to of the strict provider, each in a process of its own; returns how many failed. */
int conform_seeds(const struct conform_backend *b, unsigned from, unsigned to);

#endif
