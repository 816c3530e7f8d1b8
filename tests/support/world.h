/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Machines, engines, ranks and a launcher in virtual time on one thread. The engines are the real
 * ones (engine/node.h) on the loop transport and stores in plain memory; ranks speak the local
 * protocol with them. One seed, one history.
 *
 * A machine is memory that may hold an engine. A job is a list of machines, one per node; the
 * launcher restarts it when a rank fails. What must be true is asked of a model that knows every
 * save that was ever reported PROTECTED (world_check.c).
 */
#ifndef WORLD_H
#define WORLD_H

#include "engine/node.h"
#include "transport/loop/loop.h"

#define WORLD_WHY 400

enum world_event {
    WORLD_SAVE,      /* a rank began a save */
    WORLD_PROTECTED, /* a save was reported PROTECTED */
    WORLD_FAILED,    /* a save was reported failed or unknown */
    WORLD_RECOVERED, /* a rank resumed from a save */
    WORLD_SCRATCH,   /* a rank started from nothing */
    WORLD_LOSS,      /* a machine and its memory gone */
    WORLD_KILL,      /* an engine gone, memory kept */
    WORLD_RESTART,   /* the job restarted */
    WORLD_STALE,     /* a machine replaced while it goes on, or back from that */
    WORLD_LATE,      /* a message overtaken or late */
    WORLD_DOUBLE,    /* a message delivered twice */
    WORLD_DROP,      /* a message or connection lost */
    WORLD_FLIP,      /* a byte changed in a pull */
    WORLD_SKIP,      /* a rank left a save out */
    WORLD_AGAIN,     /* a step saved again with other bytes */
    WORLD_BACK,      /* an engine gone under ranks that recover, and started again by them */
    WORLD_EVENTS
};

extern const char *const world_event_name[WORLD_EVENTS];

struct world_opts {
    uint64_t seed;
    uint32_t nodes;
    uint32_t ranks_per_node;
    uint32_t copies;
    uint32_t min_copies; /* 0: as copies */
    uint32_t keep;
    uint32_t breaks;     /* enum hth_break */
    uint32_t faults;     /* 0: none; else about so many in the history */
    uint64_t run_ms;     /* faults happen in this span; then the world must come to rest */
    uint32_t save_ms;    /* until a save fails; 0: 3000 */
    uint32_t data_max;   /* bytes of an object's data */
    int loud;            /* print the trace */
    uint32_t work_ms;    /* what workers take for each piece of work */
    uint32_t reg_ms;     /* what each registration takes; 0: in some worlds with faults something */
    uint32_t reg_fails;  /* the port where memory of slot_bytes cannot be registered; 0: nowhere */
    uint32_t blob_fails; /* the port where smaller memory cannot be registered; 0: nowhere */
    uint64_t slot_bytes; /* see world.slot_regs */
    int accept_loss;     /* ranks begin anew where all is beyond redundancy */
    /* In the last launch the engine of this node - 1 is killed under its ranks, so many events after
     * the first has asked to recover; 0: in some launches, at random. */
    uint32_t back_node;
    uint32_t back_also; /* this node - 1 in the same moment; 0: in some launches one, at random */
    uint64_t back_event;
    const char
            *back_point; /* instead: when it comes to this point; what it says then is not heard */
    const char *hold_point; /* what an engine gives its workers next after it, they keep */
    void (*adjust)(uint32_t machine, struct hth_session_opts *session); /* NULL: all alike */
};

struct rank_state;
struct machine;
struct world_work;

struct known_save { /* the model's */
    struct hth_save_id id;
    uint64_t lineage; /* which launch wrote it */
};

struct world {
    struct world_opts opts;
    uint64_t now_ms, dice, trace, steps;
    struct hth_loop_net *net;
    struct machine *machine; /* [machines] */
    uint32_t machines;
    uint32_t *member;        /* [nodes] machine of each node of the job */
    struct rank_state *rank; /* [ranks]: the job's; then those of stale machines */
    uint32_t ranks;
    struct rank_state *stale; /* [nodes * ranks_per_node] on a machine that was replaced alive */
    uint32_t stale_machine;   /* or UINT32_MAX */
    uint64_t lineage;         /* launches so far */
    uint64_t restart_ms;      /* the launcher starts the job then; HTH_NEVER: it runs */
    uint64_t next_fault_ms;
    uint64_t fault_saves;  /* or after that many begins ... */
    uint64_t fault_events; /* ... and that many events more */
    uint64_t events;
    int armed;
    uint64_t calm;            /* the launch in which only that happens; 0: none */
    int back_planned;         /* an engine will die in this launch's recovery ... */
    int back_armed;           /* ... a rank has asked to recover ... */
    uint64_t back_events;     /* ... when so many events have happened */
    uint32_t back_machine[2]; /* and comes back at back_ms; the second if there is one */
    uint64_t back_ms[2];
    int hurt;                 /* a machine was lost since what is protected had all its copies */
    uint64_t hurt_ms;         /* when */
    uint32_t slow_ms;         /* each pull takes up to that long */
    uint32_t slow_port;       /* only pulls of that machine; 0: all */
    int quiet;                /* no more faults */
    struct known_save newest; /* newest ever reported PROTECTED; epoch 0: none */
    struct known_save final;  /* protected after the faults had ended */
    uint64_t count[WORLD_EVENTS];
    uint32_t next_client;
    struct world_work *work_first, *work_last;
    uint64_t work_ready_ms;   /* the first of them */
    struct world_work *slow;  /* have run, and will be done at their time */
    int working;              /* a worker runs: this is not an engine's thread */
    uint64_t work_cost_ms;    /* what it has taken */
    uint32_t regs, slot_regs; /* registrations; of memory that is no smaller than opts.slot_bytes */
    uint32_t reg_ms;
    uint64_t late_ms;      /* the latest that any engine was woken, after what was due */
    struct hth_work *kept; /* until world_let_go(), or an engine ends */
    struct letter *letters, **letters_end;
    /* Hears what engines say to clients that are no ranks; NULL: nobody does. */
    void (*stranger)(struct world *w, const struct letter *l);
    char heard[WORLD_WHY]; /* why the last save failed, as a rank heard it */
    char why[WORLD_WHY];   /* what is broken; "": nothing */
};

void world_open(struct world *w, const struct world_opts *opts);
void world_run(struct world *w); /* to the end, or until something is broken */
void world_advance(struct world *w, uint64_t until_ms); /* as far as that, or until it is broken */
void world_let_go(struct world *w); /* of the works that are kept, and of those to come */
void world_close(struct world *w);

/* How the last recovery of a rank ended; NULL: it has not. */
const struct hearth_recovery *world_recovery(const struct world *w, uint32_t rank);
const struct hth_local_error *world_error(
        const struct world *w, uint32_t rank); /* of any request */

struct hth_node *world_node(struct world *w, uint32_t node); /* of the job's node */

void world_say(struct world *w, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void world_broken(struct world *w, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
uint32_t world_roll(struct world *w, uint32_t sides);

#endif
