/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the benchmarks: time, rows of the table, the machine's own copy, a job of processes. */
#ifndef HEARTH_TESTS_BENCH_H
#define HEARTH_TESTS_BENCH_H

#include <hearth/hearth.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#define ROUNDS_MAX 31
#define NODES_MAX  12

/* ---- common.c ---- */
/* TRANSPORT[+key][:PROVIDER] as a user names it, "ofi:tcp;ofi_rxm"; no provider: the transport's
 * default; NULL: ofi. "+key": with a job key, which of tcp encrypts. */
struct backend {
    char transport[16];
    const char *provider; /* NULL, or within the name */
    int keyed;
    int trusted; /* network = trusted: a library's listener opens with that alone */
};
extern const unsigned char bench_key[32];

struct series {
    double value[ROUNDS_MAX];
    unsigned count;
};

/* One line of the table. All are rates, so more is better; the ratio is that of each pair,
 * median. */
struct row {
    const char *name, *limit_name;
    const struct series *rate, *limit;    /* same count; limit may be NULL: no ratio */
    const struct series *cpu, *limit_cpu; /* seconds of processors per GB; both or none */
    const struct series *sealing;         /* beside cpu, not in it; may be NULL */
    const char *unit;
    double want;     /* least ratio; 0: for information */
    double want_cpu; /* most, cpu / limit_cpu; 0: for information */
};

__attribute__((noreturn, format(printf, 1, 2))) void die(const char *format, ...);
/* An option of a benchmark: where its value goes, or what takes it. */
struct flag {
    const char *name; /* NULL: the last one */
    const char **text;
    uint64_t *number;
    unsigned *count;
    void (*take)(const char *value);
};
void flags_take(const struct flag *known, int argc, char **argv); /* or status 2 */
double now_s(void);
double cpu_s(void); /* of this thread, so far */
void nap_ms(unsigned ms);
struct backend backend_of(const char *name);
void series_add(struct series *s, double value);
double series_median(const struct series *s);
double series_ratio(const struct series *a, const struct series *b);
unsigned series_middle(const struct series *s); /* the place of the value nearest to the median */
/* NULL: no file; what the memory is; bytes of the shard that rows are about, 0: of none. */
void rows_open(const char *json_lines, const char *mount, uint64_t bytes);
int row_say(const struct row *row); /* 1: below what is wanted */
/* Where the time of a round went, into the file of rows alone: tests/bench/plot.py draws it. */
struct span {
    const char *name;
    double begin_s, end_s; /* since the timeline began */
};
void timeline_say(const char *timeline, const char *lane, const struct span *spans, unsigned count);
void fill(uint64_t *data, uint64_t bytes, uint64_t seed);
void check(const uint64_t *data, uint64_t bytes, uint64_t seed); /* or die */
/* The same of the words from `first` on. */
void check_from(const uint64_t *data, uint64_t first, uint64_t bytes, uint64_t seed);
void *memory(uint64_t bytes); /* present pages, or die */
void touch(uint64_t bytes);   /* free memory, so that what comes next can have it at once */
void *file_memory(const char *root, const char *name, uint64_t bytes); /* the same in the tmpfs */
int file_open(
        const char *root, const char *name, uint64_t bytes, void **out); /* with its descriptor */

/* ---- engine.c: the process beside us ---- */
pid_t engine_pid(const char *root);   /* 0: none */
void engine_settle(const char *root); /* until it has prepared all that it prepares ahead, or die */
void engine_end(const char *root);    /* SIGKILL; all that is under root goes */

/* ---- copy.c: what the machine can do ---- */
double copy_s(void *dst, const void *src, uint64_t bytes, unsigned threads);
double copy_rows_s(
        void *dst, const void *src, uint64_t row, uint64_t step, uint64_t rows, unsigned threads);
double copy_turned_s(
        uint32_t *dst, const uint32_t *src, uint64_t rows, uint64_t cols, unsigned threads);

/* ---- job.c: one process per rank, one node each ---- */
/* TRY: a save that may fail. AGAIN: close, keep, and open at the port that stands for the step.
 * READ: the last rank reads slices of rank 0's tensor, as long as stands for the step. */
enum order {
    ORDER_RECOVER = 1,
    ORDER_SAVE = 2,
    ORDER_KEEP = 3,
    ORDER_DROP = 4,
    ORDER_TRY = 5,
    ORDER_AGAIN = 6,
    ORDER_READ = 7,
    ORDER_READ_CALL = 8
};

struct said { /* what a rank answers */
    int code;
    char text[400];
    double blocked_s;             /* save: begin, add, commit */
    double commit_s;              /* commit alone */
    double sealed_s, protected_s; /* save: from commit's return */
    double sealing_cpu_s;         /* save: of its engine, from there to SEALED */
    double recover_s;
    double read_s;
    uint64_t asked;                  /* read: bytes */
    uint64_t slices;                 /* likewise */
    struct hearth_recovery recovery; /* step 0: from scratch */
};

struct job {
    const char *base, *backend; /* roots are base/n0 ... */
    uint32_t nodes, copies;
    uint64_t bytes[NODES_MAX]; /* of each rank's tensor */
    int unsaid;                /* object_bytes is not given */
    uint32_t copy_threads;     /* 0: the default */
    int confined; /* a rank that opens the job again may run on one processor meanwhile */
    uint32_t heartbeat_ms, dead_ms; /* 0: the default */
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
/* While it runs: a rank's process, engine and memory are gone; the other ranks, which have the
 * order TRY, report when their save has failed; and all begin again, with a fresh node in its
 * place. */
void job_kill(struct job *j, uint32_t node);
void job_others(struct job *j, uint32_t but, enum order order, uint64_t step);
void job_others_failed(struct job *j, uint32_t but, struct said out[NODES_MAX]);
void job_again(struct job *j, uint32_t fresh);

/* ---- peers.c: two processes, one reached by the other ---- */
struct took {
    double s, cpu_s; /* by the clock; of both processes */
};
struct peers {
    pid_t owner, dialler;
    int to, from; /* of the dialler */
};
pid_t peers_fork(void); /* a child that dies with its parent, or die */
/* The owner writes its address to `out`; the dialler reads it from `address`, orders from `in`. */
void peers_start(struct peers *p, void (*owner)(const void *arg, int out),
        void (*dialler)(const void *arg, int address, int in, int out), const void *arg);
/* The first thread of a process on the `which`-th of the processors that we may use. */
void place(pid_t pid, int which);
void peers_place(const struct peers *p); /* each on one of its own */
void peers_order(const struct peers *p, const void *order, size_t len);
void peers_answer(const struct peers *p, void *out, size_t len); /* or die */
struct took peers_pull(const struct peers *p);                   /* of raw.c and wire.c */
/* [count] at once: the seconds of the slowest, the processors' of all. */
struct took peers_pull_all(const struct peers *p, unsigned count);
/* raw.c: into memory that is made for it, which counts; as a fresh node's is. */
struct took peers_pull_into_new(const struct peers *p);
double cpu_of(pid_t pid); /* seconds so far, or die */
double peers_cpu_s(const struct peers *p);
uint64_t peers_sleeps(const struct peers *p); /* so far: times that one gave up its core */
void peers_end(struct peers *p);

/* ---- raw.c, wire.c: as many bytes through a transport alone; through a socket ---- */
enum wire { WIRE_SEND, WIRE_SENDFILE, WIRE_SEALED }; /* SEALED: by tcp's cipher, in its records */
struct pull_job {
    const char *backend, *base;
    uint64_t bytes;
    enum wire wire;
    uint16_t port; /* raw.c: the owner's; 0: any */
};
void raw_start(struct peers *p, const struct pull_job *job);
void wire_start(struct peers *p, const struct pull_job *job);

/* ---- tool.c: the library's own benchmark ---- */
struct tool_said {
    double rate, cpu_per_gb; /* GB/s; seconds of both its processes, with their start */
};
/* Runs `script BACKEND MIB`. rate 0: the tool is not here, or has said nothing. */
struct tool_said tool_run(const char *script, const char *backend, uint64_t mib);

#endif
