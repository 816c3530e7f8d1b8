/* SPDX-License-Identifier: Apache-2.0 */
/* What the benchmarks share: time, rows of the table, the machine's own copy, a job of processes. */
#ifndef HEARTH_TESTS_BENCH_H
#define HEARTH_TESTS_BENCH_H

#include <hearth/hearth.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#define ROUNDS_MAX 15
#define NODES_MAX  4

/* ---- common.c ---- */
struct series {
    double value[ROUNDS_MAX];
    unsigned count;
};

/* One line of the table. All are rates, so more is better; the ratio is that of each pair, median. */
struct row {
    const char *name, *limit_name;
    const struct series *rate, *limit; /* same count; limit may be NULL: no ratio */
    const char *unit;
    double want; /* least ratio; 0: for information */
};

__attribute__((noreturn, format(printf, 1, 2))) void die(const char *format, ...);
double now_s(void);
void nap_ms(unsigned ms);
void series_add(struct series *s, double value);
double series_median(const struct series *s);
double series_ratio(const struct series *a, const struct series *b);
void rows_open(const char *json_lines, const char *mount); /* NULL: no file; what the memory is */
int row_say(const struct row *row);                        /* 1: below what is wanted */
void fill(uint64_t *data, uint64_t bytes, uint64_t seed);
void check(const uint64_t *data, uint64_t bytes, uint64_t seed);       /* or die */
void *memory(uint64_t bytes);                                          /* present pages, or die */
void *file_memory(const char *root, const char *name, uint64_t bytes); /* the same in the tmpfs */

/* ---- engine.c: the process beside us ---- */
struct engine_use {
    uint64_t faults; /* minor, since it started */
    double cpu_s;
};
pid_t engine_pid(const char *root); /* 0: none */
int engine_use(pid_t pid, struct engine_use *out);
void engine_settle(const char *root); /* until it has prepared all it wants to, or die */
void engine_end(const char *root);    /* SIGKILL; all that is under root goes */

/* ---- copy.c: what the machine can do ---- */
double copy_s(void *dst, const void *src, uint64_t bytes, unsigned threads);
double copy_rows_s(
        void *dst, const void *src, uint64_t row, uint64_t step, uint64_t rows, unsigned threads);
double copy_turned_s(
        uint32_t *dst, const uint32_t *src, uint64_t rows, uint64_t cols, unsigned threads);

/* ---- job.c: one process per rank, one node each ---- */
enum order { ORDER_RECOVER = 1, ORDER_SAVE = 2, ORDER_KEEP = 3, ORDER_DROP = 4 };

struct said { /* what a rank answers */
    int code;
    char text[400];
    double blocked_s;             /* save: begin, add, commit */
    double sealed_s, protected_s; /* save: from commit's return */
    uint64_t faults;              /* save: minor, of this rank, begin to PROTECTED */
    double recover_s;
    struct hearth_recovery recovery; /* step 0: from scratch */
};

struct job {
    const char *base, *transport; /* roots are base/n0 ... */
    uint32_t nodes, copies;
    uint64_t bytes[NODES_MAX]; /* of each rank's tensor */
    int unsaid;                /* object_bytes is not given */
    uint16_t port;
    unsigned lives[NODES_MAX]; /* a lost node comes back by another name */
    pid_t pid[NODES_MAX];
    int to[NODES_MAX], from[NODES_MAX];
};

void job_root(const struct job *j, uint32_t node, char out[256]);
void job_start(struct job *j); /* ranks open and recover not yet */
void job_all(
        struct job *j, enum order order, uint64_t step, struct said out[NODES_MAX]); /* or die */
void job_end(struct job *j, enum order leave);
void job_lose(struct job *j, uint32_t node); /* its engine and memory, after job_end() */

/* ---- raw.c: the transport alone, two processes ---- */
struct raw {
    pid_t owner, puller;
    int to, from;
};
void raw_start(struct raw *r, const char *transport, const char *provider, const char *base,
        uint64_t bytes); /* provider NULL: the transport's default */
double raw_pull_s(struct raw *r);
uint64_t raw_sleeps(const struct raw *r); /* of both, so far: times that one gave up its core */
void raw_end(struct raw *r);

#endif
