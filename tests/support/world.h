/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Machines, engines, ranks and a launcher in virtual time on one thread. The engines are the real
 * ones (engine/state/node.h) on the loop transport and stores in plain memory; ranks speak the
 * local protocol with them. One seed, one history.
 *
 * A machine is memory that may hold an engine. A job is a list of machines, one per node; the
 * launcher restarts it when a rank fails. What must be true is asked of a model that knows every
 * save that was ever reported PROTECTED (world_check.c).
 */
#ifndef WORLD_H
#define WORLD_H

#include "engine/state/node.h"
#include "transport/loop/loop.h"

#define WORLD_WHY 400
#define WORLD_COPIED_HERE \
    (UINT64_C(1) << 20) /* bytes of one answer that an engine's thread may copy */

/* What can go wrong: a bit each in world_opts.kinds. A world draws its own among those that are
 * on. */
#define WORLD_KINDS(X)                                                                             \
    X(NET, net, "messages late, lost, doubled, overtaken; pulls cut and flipped")                  \
    X(LOSS, loss, "a machine and its memory lost, and replaced")                                   \
    X(KILL, kill, "an engine and its ranks killed, the memory kept")                               \
    X(RESTART, restart, "the job restarted")                                                       \
    X(STALE, stale, "a machine replaced while it goes on, or back from that")                      \
    X(BACK, back, "engines killed under ranks that recover, and started again")                    \
    X(RANK, rank, "a rank killed")                                                                 \
    X(CRASH, crash, "one to three engines killed under running ranks, and started again")          \
    X(STOP, stop, "an engine stopped, and going on")                                               \
    X(SILENCE, silence, "a node silent for a time")                                                \
    X(PAIR, pair, "two nodes that do not hear each other")                                         \
    X(ONEWAY, oneway, "a node that does not hear another one")                                     \
    X(PARTITION, partition, "a part of the nodes cut off from the rest")                           \
    X(FLAP, flap, "a node silent and back, again and again")                                       \
    X(TWO, two, "as many machines lost at once as there are promised copies")                      \
    X(SHRINK, shrink, "the job goes on without a node")                                            \
    X(GROW, grow, "the job goes on with one more node")                                            \
    X(RENUMBER, renumber, "the ranks are dealt out to other nodes")                                \
    X(ROOM, room, "memory is bounded, and a stranger takes some of it for a time")                 \
    X(WRITE, write, "records cannot be written for a time")                                        \
    X(ROT, rot, "a byte of an object at rest changes")                                             \
    X(CLOCK, clock, "clocks that run apart, and wall clocks that jump")                            \
    X(SLOW, slow, "workers that take their time")                                                  \
    X(GIVEUP, giveup, "a rank gives up waiting for its slot")                                      \
    X(TWICE, twice, "saves begun twice, cancelled, out of step")                                   \
    X(GOON, goon, "no restart after the last fault: saving has to go on by itself")                \
    X(APART, apart, "until a restart, two nodes that do not hear each other")                      \
    X(GROUPS, groups, "until a restart, two groups of nodes that do not hear each other")          \
    X(MTU, mtu, "until a restart, pulls between two nodes that stall where messages pass")         \
    X(CUT, cut, "a rank cut off from its engine that writes on")                                   \
    X(BLOCK, block, "an engine's thread blocked in the middle of its work")                        \
    X(BEYOND, beyond, "more machines lost at once than there are copies")                          \
    X(RECORD, record, "an engine killed, and one of its records changed before the next")          \
    X(READ, read, "ranks that read, and map what they read, while the job goes on")                \
    X(OPTIONS, options, "the job restarted with other options, on the memory that it has")         \
    X(RETURN, return, "machines replaced that come back with older memory")                        \
    X(HOURS, hours, "minutes or hours with few saves, and what lasts so long")                     \
    X(RACK, rack, "all machines of one failure domain lost at once, and replaced")                 \
    X(FLIP, flip, "a bit that changes after its rank has summed it up and before a peer pulls it") \
    X(UPGRADE, upgrade, "an engine that is replaced under its ranks, at a moment of its own")

enum world_kind {
#define WORLD_KIND(kind, name, text) WORLD_KIND_##kind,
    WORLD_KINDS(WORLD_KIND)
#undef WORLD_KIND
            WORLD_KINDS_COUNT
};
#define WORLD_BIT(kind) (UINT64_C(1) << WORLD_KIND_##kind)
#define WORLD_ALL       ((UINT64_C(1) << WORLD_KINDS_COUNT) - 1)

struct world_kind_name {
    const char *name, *text;
};
extern const struct world_kind_name world_kind_name[WORLD_KINDS_COUNT];

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
    WORLD_SOME,      /* an engine reports to a rank that a save of some ranks is PROTECTED */
    WORLD_BACK,      /* an engine gone under ranks that recover, and started again by them */
    WORLD_CUT,       /* a rank cut off from its engine */
    WORLD_TICKET,    /* an engine has received the ranks' table from another one */
    WORLD_SAID,      /* an engine was asked how all is, and was judged (world_said.c) ... */
    WORLD_SAID_CALM, /* ... after all had been well for long ... */
    WORLD_SAID_DEAD, /* ... or a machine alone had been dead for as long as it takes to notice it */
    WORLD_SAID_NEW,  /* ... and it named the newest PROTECTED save as such */
    WORLD_EVENTS
};

extern const char *const world_event_name[WORLD_EVENTS];

struct world_opts {
    uint64_t seed;
    uint32_t nodes;
    uint32_t ranks_per_node;
    uint32_t copies;
    uint32_t min_copies; /* 0: copies */
    uint32_t keep;
    uint32_t strong;    /* integrity = strong */
    uint32_t large;     /* drawn: few ranks, whose objects have several chunks */
    uint32_t some;      /* 1: some steps are saved by some of the ranks, alone or before all are */
    uint32_t asks;      /* 1: a client asks engines about each other */
    uint32_t bad_after; /* jobs, for marking by count; 0: off */
    uint32_t racks;     /* machines stand in so many failure domains; 0: none is named */
    uint32_t pods;      /* 1: machines here are pods, and racks are their machines */
    uint32_t degree;    /* of the tree; 0: the engines' own */
    uint32_t heartbeat_ms; /* 0: 200 */
    uint32_t dead_ms;      /* 0: 2000 */
    uint32_t connect_ms;   /* 0: 2000 */
    uint32_t save_ms;      /* 0: 3000 */
    uint32_t recover_ms;   /* 0: 12000 */
    uint32_t every_ms;     /* from one save to the next; 0: 100 */
    uint32_t room;      /* of each memory, in hundredths of what its node owes; 0: without bound */
    uint64_t breaks;    /* enum hth_break, and the ranks' */
    int deaf;           /* the judge reads no messages, and judges only by their consequences */
    uint32_t faults;    /* 0: none; else about so many in the history */
    uint64_t kinds;     /* of them, WORLD_BIT; 0: as before there were any, WORLD_FIRST */
    uint64_t left_out;  /* these do not happen, a bit each, in the order in which they would come */
    uint64_t run_ms;    /* faults happen in this span; then the world must come to rest */
    uint32_t data_max;  /* bytes of an object's data */
    int loud;           /* print the trace */
    uint32_t work_ms;   /* what workers take for each piece of work */
    uint32_t reg_ms;    /* what each registration takes; 0: in some worlds with faults something */
    uint32_t reg_fails; /* the port where memory of slot_bytes cannot be registered; 0: nowhere */
    uint32_t blob_fails; /* the port where smaller memory cannot be registered; 0: nowhere */
    uint64_t slot_bytes; /* see world.slot_regs */
    int accept_loss;     /* ranks begin anew where all is beyond redundancy */
    /* In the last launch the engine of this node - 1 is killed under its ranks, so many events
     * after the first has asked to recover; 0: in some launches, at random. */
    uint32_t back_node;
    uint32_t back_also; /* this node - 1 in the same moment; 0: in some launches one, at random */
    uint64_t back_event;
    /* instead: it is killed when it comes to this point; what it sends after that does not
     * arrive */
    const char *back_point;
    const char *hold_point; /* the workers keep the work that an engine hands them next after it */
    /* That machine's engine runs now, or does not any more; on its own thread or on a worker. NULL:
     * no call. */
    void (*watch)(uint32_t machine, int runs, int worker);
    void (*adjust)(uint32_t machine, struct hth_session_opts *session); /* NULL: all alike */
};

#define WORLD_FIRST                                                                               \
    (WORLD_BIT(NET) | WORLD_BIT(LOSS) | WORLD_BIT(KILL) | WORLD_BIT(RESTART) | WORLD_BIT(STALE) | \
            WORLD_BIT(BACK))

#define WORLD_BREAK_GRANT (UINT64_C(1) << 63) /* ranks keep slots that came too late */
#define WORLD_BREAK_MAPS  (UINT64_C(1) << 62) /* ranks keep slots mapped across engines */
#define WORLD_BREAK_PODS  (UINT64_C(1) << 61) /* ranks do not name the machine of their pod */

struct rank_state;
struct machine;
struct world_heard;
struct world_past;
struct world_said;
struct world_reads;
struct world_work;

struct known_save { /* the model's */
    struct hth_save_id id;
    uint64_t lineage; /* which launch wrote it */
};

/* Something that lasts for a while: a silence, a stop, memory that a stranger has. */
struct world_ill {
    enum world_kind kind;
    uint64_t until_ms;
    uint32_t a, b;  /* machines */
    uint32_t times; /* flap: halves to come; apart, mtu: ways that are cut */
    uint32_t on_ms, off_ms;
    int off;        /* flap: it speaks at present */
    uint64_t bytes; /* room: that the stranger has */
    uint8_t *part;  /* partition, groups: [machines] the side that it is on; 0: on none */
};
#define WORLD_ILLS 8u

/* The options that a launch may have otherwise than the one before. */
struct world_options {
    uint32_t copies, min_copies, keep, allow_degraded, racks, ranks_per_node;
    uint64_t last_epoch; /* of that launch, once it is over */
};

#define LAUNCHES 16u /* that are remembered */
#define RETURNS  4u
struct world_returns {           /* machines that are put aside, and their replacements */
    uint32_t count, done, first; /* so many in all, so far, nodes from there on */
    uint32_t old[RETURNS], fresh[RETURNS];
    int pauses; /* no rank begins a save */
    uint64_t next_ms;
    struct known_save before; /* the newest on their memory */
};

struct world {
    struct world_opts opts;
    struct world_options after, largest; /* the next launch's, if `changes` */
    struct world_options past[LAUNCHES]; /* the launches' before this one, the oldest first */
    uint32_t pasts;
    int changes;
    uint32_t allow_degraded; /* this launch's */
    uint32_t tolerance;      /* copies of the newest PROTECTED save that may be lost at once */
    uint32_t older_keep;     /* the launches' before, until this one has decided; 0: since */
    uint64_t now_ms, dice, trace, steps;
    struct hth_loop_net *net;
    struct machine *machine; /* [machines] */
    uint32_t machines;
    uint32_t *member;        /* [nodes] machine of each node of the job */
    struct rank_state *rank; /* [ranks]: the job's; then those of stale machines */
    uint32_t ranks;
    struct rank_state *stale; /* [ranks_per_node] on a machine that was replaced alive */
    uint32_t stale_machine;   /* or UINT32_MAX */
    uint64_t lineage;         /* launches so far */
    uint64_t restart_ms;      /* the launcher starts the job then; HTH_NEVER: it runs */
    uint32_t nodes_max,
            ranks_max; /* opts.nodes and ranks are the launch's; those the most there may be */
    struct world_wake *wake; /* when each machine and rank is due */
    uint32_t *client_rank;   /* [next_client + 1]: whose connection it is */
    uint32_t client_cap;
    uint32_t *launch_ranks; /* [lineage + 1]: how many each launch had */
    uint64_t front;         /* step that some rank of the launch has begun: none is behind it */
    uint32_t recovered;     /* ranks of the launch */
    unsigned char *table;   /* [ranks][HTH_GATHER] what they gathered ... */
    int tabled;             /* ... is made */
    unsigned char *packed;  /* [packed_len] the same, packed; NULL: not yet */
    size_t packed_len;
    int gathers, asked,
            dies;        /* a rank has attached; one has asked to recover; an engine is dying */
    uint64_t fault_dice; /* of the fault to come, which is */
    uint32_t fault_number;
    uint64_t hits[WORLD_KINDS_COUNT];
    struct world_heard *told;  /* heads that coordinators have sent */
    struct world_past *notes;  /* what happened to saves */
    struct world_said *said;   /* what engines say, and what is true */
    struct world_reads *reads; /* readers, and what they may find */
    struct {                   /* of a client that asks about nodes; world_ask.c */
        uint64_t dice, due_ms, request, until_ms, stood_ms, answers;
        uint32_t machine, ends; /* its engine is the one after so many */
        int waits;
        char name[HTH_NAME_MAX + 1]; /* of the node that is asked about; "": none has to be named */
    } ask;
    struct {               /* an engine that is asked to hand over; world_upgrade.c */
        uint64_t until_ms; /* 0: none */
        uint32_t machine, ends, done;
    } upgrade;
    struct world_ill ill[WORLD_ILLS];
    enum world_kind trick; /* what trick_rank does when it begins its next save; 0: nothing */
    uint32_t trick_rank, trick_dice;
    uint64_t well_ms; /* when the last of them ended */
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
    uint32_t hurt;            /* machines lost since what is protected had all its copies */
    uint64_t hurt_ms;         /* when */
    int hurt_rack;            /* 1: all of these were of one failure domain */
    uint32_t net_sides;       /* something happens to 12 messages in so many */
    uint32_t slow_ms;         /* each pull takes up to that long */
    uint32_t slow_port;       /* only pulls of that machine; 0: all */
    int quiet;                /* no more faults */
    uint64_t quiet_ms;        /* since then */
    uint64_t rest_ms;         /* the job must have come to rest by then */
    int goes_on;              /* ... without a restart */
    int resting;              /* and no rank begins a save */
    struct known_save newest; /* newest ever reported PROTECTED; epoch 0: none */
    uint64_t hours_until_ms, hours_every_ms; /* until then few saves are begun, so often */
    uint64_t hours_ms;                       /* of these in all; they are not counted in run_ms */
    uint64_t well_since;                     /* faults and engines' ends before this launch */
    uint64_t home, home_of; /* where the copies of its first save were; of which launch */
    struct world_returns back;
    /* a save newer than `newest` is lost beyond redundancy, and none has been decided since */
    int gone;
    /* 1: a save was decided after that, by promises of machines that are lost. Members may have
     * freed the save that is back. */
    int late;
    /* the newest save is lost beyond redundancy, and none has been decided since */
    int beyond;
    struct known_save final; /* protected after the faults had ended */
    uint64_t count[WORLD_EVENTS];
    uint32_t next_client;
    struct world_work *work_first, *work_last;
    struct world_work *slow; /* have run, and will be done at their time */
    int working;             /* a worker runs: this is not an engine's thread */
    uint64_t attached[2];    /* bytes of answers that engines' threads copied, and workers */
    int attach_fails;        /* errno; 0: it does not */
    struct machine *runs;  /* its engine's thread does, or is about to leave its work; else NULL */
    uint64_t work_cost_ms; /* what it has taken */
    uint32_t regs, slot_regs; /* registrations; of memory that is no smaller than opts.slot_bytes */
    uint32_t reg_ms;
    uint64_t late_ms;      /* the latest that any engine was woken, after what was due */
    struct hth_work *kept; /* until world_let_go(), or an engine ends */
    struct letter *letters, **letters_end;
    /* Receives the messages of engines to clients that are not ranks; NULL: they are dropped. */
    void (*stranger)(struct world *w, const struct letter *l);
    char heard[WORLD_WHY]; /* why the last save failed, as a rank's engine reported it */
    /* an object that a memory has and its node does not owe, or owes and does not have */
    char pool[WORLD_WHY];
    char why[WORLD_WHY]; /* what is broken; "": nothing */
};

/* A world of the seed's own, in all that is 0 in *opts; at most `most` nodes. */
void world_draw(struct world_opts *opts, uint32_t most);

void world_open(struct world *w, const struct world_opts *opts);
void world_run(struct world *w); /* to the end, or until something is broken */
void world_advance(struct world *w, uint64_t until_ms); /* as far as that, or until it is broken */
void world_let_go(struct world *w); /* of the works that are kept, and of those to come */
void world_close(struct world *w);

/* Faults as calls, by machine (w->member[node]). Nothing ends by itself. */
void world_silence(struct world *w, uint32_t m, int on); /* what goes there or comes waits */
void world_mute(struct world *w, uint32_t from, uint32_t to, int on); /* one way of a pair */
void world_stop(struct world *w, uint32_t m, int on);                 /* as SIGSTOP and SIGCONT */
/* The thread of its engine is blocked, from the at-th reading of its clock on until then; busy:
 * it uses the processor meanwhile. */
void world_block(struct world *w, uint32_t m, uint32_t at, uint64_t until_ms, int busy);
void world_unblock(struct world *w, uint32_t m);
void world_crash(struct world *w, uint32_t m); /* the engine is killed under its ranks */
void world_come(struct world *w, uint32_t m);  /* and started again by them */

/* How the last recovery of a rank ended; NULL: it has not. */
const struct hearth_recovery *world_recovery(const struct world *w, uint32_t rank);
const struct hth_local_error *world_error(
        const struct world *w, uint32_t rank); /* of any request */

struct hth_node *world_node(struct world *w, uint32_t node); /* of the job's node */

void world_say(struct world *w, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void world_broken(struct world *w, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
uint32_t world_roll(struct world *w, uint32_t sides);

#endif
