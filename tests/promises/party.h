/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Small real jobs: machines are directories with an engine each, ranks are forked processes that
 * do what they are asked to, one function call at a time. Every wait has a deadline; a case that
 * hangs is killed by its own alarm.
 *
 *     runner ── the case ──┬── rank 0 ──(library)── engine on n0
 *     adopts and ends      └── rank 1 ──(library)── engine on n1
 *     what is left
 */
#ifndef HEARTH_TESTS_PARTY_H
#define HEARTH_TESTS_PARTY_H

#include "port.h"

#include <hearth/hearth.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/types.h>

#define NODES_MAX 4
#define RANKS_MAX 8

/* A rank's own, in its process. */
struct me {
    struct hearth_opts opts;
    struct hearth_bootstrap *boot;
    struct hearth *h;
    struct hearth_checkpoint *ckpt;
    struct hearth_save *save;
    struct hearth_handle *handle[16]; /* by step % 16 */
    unsigned char *data;
    size_t bytes; /* of `data` */
    uint32_t rank, world;
    void *own; /* a case's */
};

struct answer {
    int rc;
    uint64_t v[4];
    struct hearth_error err;
};

typedef void deed(struct me *me, const uint64_t arg[3], struct answer *out);

struct seat {
    pid_t pid; /* 0: no process */
    int fd;
    uint32_t node;
};

struct party {
    char base[64];
    char root[NODES_MAX][96];
    char name[NODES_MAX][16];
    uint32_t nodes, ranks;
    unsigned mib; /* of a machine's memory */
    size_t bytes; /* of a rank's tensor */
    unsigned launches;
    struct seat seat[RANKS_MAX];
    struct hearth_opts opts; /* of every rank, and then: */
    void (*adjust)(const struct party *p, struct me *me);
};

/* ---- the case ---- */
__attribute__((format(printf, 3, 4), noreturn)) void party_fail(
        const char *file, int line, const char *format, ...);
__attribute__((format(printf, 1, 2), noreturn)) void party_skip(const char *format, ...);
void party_needs_points(void); /* skips where engines heed no HEARTH_STOP_POINT */
#define CHECK(condition, ...)                            \
    do {                                                 \
        if (!(condition))                                \
            party_fail(__FILE__, __LINE__, __VA_ARGS__); \
    } while (0)

struct party_case {
    const char *name;
    void (*run)(void);
};
int party_main(int argc, char **argv, const struct party_case *cases); /* ends with a NULL name */

uint64_t now_ms(void);
void nap_ms(unsigned ms);

/* ---- machines ---- */
void party_open(struct party *p, uint32_t nodes, uint32_t ranks, unsigned mib);
void party_lose_node(
        struct party *p, uint32_t node); /* processes and memory; a fresh one is there */
pid_t party_engine(const struct party *p, uint32_t node); /* 0: none */
void party_kill_engine(const struct party *p, uint32_t node);
void party_wait_stopped(const struct party *p, uint32_t node); /* its engine stands at its point */
void party_path(const struct party *p, uint32_t node, const char *rest, char *out, size_t len);
int party_log_has(const struct party *p, uint32_t node, const char *text);
int party_find(
        const char *path, void (*f)(const char *path, void *arg), void *arg); /* files below */
uint64_t party_free_bytes(const struct party *p, uint32_t node);

/* ---- ranks ---- */
void party_start(struct party *p); /* all of them, opened */
void party_start_rank(struct party *p, uint32_t rank);
void party_kill_rank(struct party *p, uint32_t rank);
void party_kill_ranks(struct party *p);
void party_tell(struct party *p, uint32_t rank, deed *f, uint64_t a, uint64_t b, uint64_t c);
struct answer party_hear(struct party *p, uint32_t rank, unsigned ms);
int party_heard(struct party *p, uint32_t rank, unsigned ms); /* 1: an answer waits */
struct answer party_ask(
        struct party *p, uint32_t rank, deed *f, uint64_t a, uint64_t b, uint64_t c);
void party_all(struct party *p, deed *f, uint64_t a, uint64_t b, uint64_t c); /* all succeed */
void party_must_fail(const struct answer *a, int code, const char *part, const char *part2);

/* ---- deeds ---- */
deed do_open, do_close, do_recover, do_begin, do_write, do_commit, do_save, do_wait, do_test,
        do_cancel, do_verify, do_abort;
void fill(unsigned char *data, size_t bytes, uint64_t seed);
uint64_t seed_of(uint64_t step, uint64_t tag, uint32_t rank);
struct hearth_piece weights(struct me *me, int64_t shape[1]);

/* ---- whole steps ---- */
void party_save(struct party *p, uint64_t step, uint64_t tag);    /* all ranks, PROTECTED */
void party_recover(struct party *p, uint64_t step, uint64_t tag); /* all ranks, byte for byte */
void party_restart(struct party *p);                              /* ranks are new, engines stay */

#endif
