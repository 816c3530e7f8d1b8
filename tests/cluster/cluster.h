/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A cluster on one machine, for one scenario: machines that can be lost, ranks that take orders,
 * and saves that must be recoverable. Every call returns 0, LOST_IT with the reason in world.why,
 * or SKIPPED; every wait has a deadline.
 */
#ifndef HEARTH_TESTS_CLUSTER_H
#define HEARTH_TESTS_CLUSTER_H

#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#define NODES_MAX 8
#define RANKS_MAX 64
#define TAGS_MAX  1024

#define LOST_IT   (-1)
#define SKIPPED   77

#define STEP_ANY  UINT64_MAX /* for world_recover(): whatever is promised */

/* Levels as in <hearth/types.h>; the driver itself uses nothing of the library. */
#define SEALED    10u
#define COMPLETE  30u
#define PROTECTED 40u

#define TRY(call)            \
    do {                     \
        int try_rc = (call); \
        if (try_rc)          \
            return try_rc;   \
    } while (0)

struct node {
    int up;
    pid_t init;       /* holds the namespaces; 0: a directory and a loopback address */
    char name[32];    /* a new one for each incarnation */
    char address[32]; /* as well */
    char bind[64];    /* it, and with two links the other one behind it */
    char root[160];   /* as its processes see it */
    char seen[192];   /* as we do */
};

struct rank {
    pid_t pid; /* 0: not running */
    uint32_t node;
    int in, out;
    int pending;      /* an answer is due */
    char asked[64];   /* what for */
    char text[16384]; /* read and not yet looked at */
    char answer[700];
    size_t have;
};

struct world {
    const char *transport, *bin; /* hearthd and cluster_job are in bin */
    const char *provider;        /* NULL: the transport's default */
    const char *dir;             /* ours alone */
    int namespaces;
    uint32_t id; /* of the scenario, for addresses */
    FILE *log;
    void (*closing)(void); /* planted: what goes wrong at the end */
    char why[3000];

    struct node node[NODES_MAX];
    struct rank rank[RANKS_MAX];
    uint32_t nodes, ranks, per_node;
    uint32_t seat[RANKS_MAX]; /* the machine of each rank */
    uint32_t made, launches;  /* nodes ever made; times that ranks were started */

    /* Options of the ranks to be started. */
    uint32_t copies, min_copies, keep, degraded, kib, racks, save_ms, recover_ms, open_ms, mib,
            common_kib;      /* 0: 1000 bytes */
    uint32_t pods;           /* nodes of one machine; 0: 1 */
    uint32_t dead_ms;        /* 0: 2000 */
    uint32_t rows;           /* of the whole tensor; 0: each rank has kib of its own */
    uint32_t whole;          /* not 0: each rank has room for all rows, and may save them alone */
    const char *start;       /* NULL: auto */
    uint32_t untold;         /* no rank says how large its objects are */
    uint32_t no_ofi, no_ucx; /* bits: machines whose library for it is not there */
    uint32_t no_tcp;         /* bits: machines where hearth-tcp.so is not installed */
    uint32_t allow_slower;
    int strong;    /* integrity = strong */
    char key[256]; /* the file of the job's key; "": none */
    int trusted;   /* the network is called so although there is a key; without one it always is */
    const char *cgroup; /* of engines started by hand; NULL: ours */
    int two_links;      /* machines have two interfaces, each on a switch of its own */
    int reboots;        /* a machine that comes up again has its old name and address */
    int loses_engines;  /* 0: a rank that says its engine is gone ends the scenario */
    int surprised;      /* it did */

    /* The saves that were written. A tag names one save. */
    uint64_t tags;
    uint64_t step_of[TAGS_MAX];
    uint64_t newest;    /* step of the last save begun */
    uint64_t protected; /* the newest that all ranks saw PROTECTED */
    uint64_t protected_tag;
    uint64_t got, got_tag; /* by the last recovery */
    uint64_t pulled;
    uint32_t beyond;
};

struct scenario {
    const char *name;
    int (*run)(struct world *w, const char *arg);
    const char *arg;
};

extern const struct scenario scenarios_loss[], scenarios_life[], scenarios_damage[],
        scenarios_stop[], scenarios_room[], scenarios_store[], scenarios_fabric[], scenarios_auto[],
        scenarios_key[], scenarios_paths[], scenarios_shape[], scenarios_some[], scenarios_slots[],
        scenarios_why[], scenarios_upgrade[], scenarios_upgrades[], scenarios_many[],
        scenarios_deaths[], scenarios_planted[];

/* A world of its own for each seed; -1: there are SOAK_MAX already. */
#define SOAK_MAX 1024
int soak_world(struct scenario *out, uint64_t seed);
int soak_open(unsigned rounds); /* of each world; before the first is run */
void soak_say(void);            /* what all of them did */

/* ---- time.c ---- */
uint64_t now_ms(void);
void nap_ms(unsigned ms);
__attribute__((format(printf, 2, 3))) int lost(struct world *w, const char *format, ...);
__attribute__((format(printf, 2, 3))) void note(struct world *w, const char *format, ...);

/* ---- node.c ---- */
int key_make(struct world *w);                        /* and the network is called hostile */
int nodes_open(struct world *w);                      /* SKIPPED: no rights for namespaces */
int node_up(struct world *w, uint32_t k);             /* a fresh machine at place k */
int node_kill(struct world *w, uint32_t k);           /* processes and memory */
pid_t node_fork(struct world *w, uint32_t k);         /* as fork(), in the machine */
pid_t node_engine(const struct world *w, uint32_t k); /* its pid; 0: none */
int node_engine_signal(struct world *w, uint32_t k, int sig); /* SIGKILL: until it is gone */
/* The engine's thread that decides stands still for so long; its workers and its copy threads
 * run on. */
int node_engine_block(struct world *w, uint32_t k, unsigned ms);
/* With this variable in its environment, unless it is NULL (engine/driver/stop_point.h). SKIPPED:
 * this build's engines heed none. */
int node_engine_start(struct world *w, uint32_t k, const char *variable, const char *value);
/* `hearth rm` of the job's save there, its exit status; an engine is killed before. */
int node_remove(struct world *w, uint32_t k, uint64_t step, int *out_status);
/* What `hearth why` prints there of the job's save; out[len]. */
/* `hearth` with these arguments on that node, and HEARTH_ROOT: what it prints, and its status. */
int node_hearth(struct world *w, uint32_t k, const char *const args[], char *out, size_t len,
        int *out_status);
int node_why(struct world *w, uint32_t k, uint64_t step, char *out, size_t len);
int node_stopped(const struct world *w, uint32_t k); /* its engine stands at its point */
int node_log_has(struct world *w, uint32_t k, const char *text); /* 1: a line of its engine's log */
int node_log_wait(struct world *w, uint32_t k, const char *text, unsigned ms);
/* The last lines of engines that crashed: "" where none did. */
void node_last_words(const struct world *w, char *out, size_t len);
void node_path(const struct world *w, uint32_t k, const char *rest, char *out, size_t len);

/* ---- path.c: what is between machines; SKIPPED: no networks of their own, or no nft ---- */
enum loss {
    LOSE_ALL,
    LOSE_LARGE
}; /* LOSE_LARGE: packets above 1,000 bytes, as a wrong MTU on a port does */

/* Packets that k sends to `to` are lost in silence, until path_mend() or the end of either
 * machine. */
int path_cut(struct world *w, uint32_t k, uint32_t to, enum loss loss);
/* Of what k sends to `to`, 2 MiB pass at once and 2 MiB a second after that; the rest is lost. */
int path_slow(struct world *w, uint32_t k, uint32_t to);
int path_cut_link(struct world *w, uint32_t link); /* 0 or 1: what comes by it is lost everywhere */
int path_mend(struct world *w);                    /* all that was cut */

/* ---- files.c ---- */
struct object {
    char path[400]; /* as we see it */
    uint64_t data_len, table_len;
};

int object_find(struct world *w, uint32_t k, uint64_t step, uint32_t owner, struct object *out);
int object_holder(struct world *w, uint64_t step, uint32_t owner, uint32_t not_here, uint32_t *out);
int object_same(struct world *w, const struct object *a, const struct object *b); /* 1: equal */
int file_flip(struct world *w, const char *path, uint64_t offset);
int file_flip_if_there(struct world *w, const char *path, uint64_t offset); /* or it is gone */
int file_forge(
        struct world *w, const char *path, uint64_t offset); /* its CRC stays; no zeros there */
uint64_t file_digest(const char *path, uint64_t seed);       /* no file: the seed */
int common_path(struct world *w, uint32_t k, uint64_t step, char *out, size_t len);
int manifest_path(struct world *w, uint32_t k, uint64_t step, char *out, size_t len);
int step_digest(struct world *w, uint64_t step, uint64_t *out); /* all its files on all machines */
int tmpfs_fill(struct world *w, uint32_t k, uint32_t left_kib); /* all but the last pages */
void tmpfs_unfill(struct world *w, uint32_t k);
/* Each rank's object of a step is on its machine and on `copies` others, the same to the last
 * byte. */
int objects_compare(struct world *w, uint64_t step, uint64_t *out_bytes);

/* ---- weigh.c ---- */
struct weight {
    pid_t pid;          /* of the engine */
    char name[32];      /* of the machine */
    uint64_t kib;       /* of the engine's own memory: not the store's */
    unsigned files;     /* it has open */
    uint64_t store_kib; /* of the machine's memory, without logs */
};
int engine_weigh(struct world *w, uint32_t k, struct weight *out);
void engine_files_say(struct world *w, uint32_t k); /* into the log, kind by kind */

/* ---- rank.c ---- */
int rank_start(struct world *w, uint32_t r, uint32_t node);
uint32_t rank_port(const struct world *w); /* where the ranks of this launch meet */
void rank_kill(struct world *w, uint32_t r);
int rank_post(struct world *w, uint32_t r, const char *line);
int rank_poll(struct world *w, uint32_t r, unsigned ms);   /* 1: rank.answer has it; 0: not yet */
int rank_answer(struct world *w, uint32_t r, unsigned ms); /* "ok ...", or lost */
int rank_refusal(struct world *w, uint32_t r, unsigned ms, const char *part); /* "err ...part" */

/* ---- world.c ---- */
int world_open(struct world *w, uint32_t nodes, uint32_t per_node);
int world_start(struct world *w); /* all ranks */
void world_stop(struct world *w); /* kill all ranks */
void world_close(struct world *w);
int world_post(struct world *w, const char *line);
int world_answers(struct world *w, unsigned ms);
int world_recover(struct world *w, uint64_t step);   /* all ranks, `step`, verified */
int world_recovered(struct world *w, uint64_t step); /* the same, when all have been told */
int world_save(struct world *w, uint64_t step);      /* and wait until PROTECTED */
int world_save_begin(struct world *w, uint64_t step);
int world_save_end(struct world *w, uint64_t step);
int world_answers_any(struct world *w, unsigned ms); /* errors are answers too; 1: there was one */
int world_restart(struct world *w, uint64_t step);   /* stop, start, recover */
int world_is_protected(struct world *w);             /* 1: the recovered save is, again */
int world_protected(struct world *w);                /* wait for it */
int world_begin(struct world *w, uint32_t nodes, uint32_t per_node, uint64_t steps);

#endif
