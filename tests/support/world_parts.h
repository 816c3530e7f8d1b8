/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of the world: world.c (time, launcher), world_machine.c (machines and what
 * engines are handed), world_wake.c (which is due next), world_fault.c and world_ill.c (faults at
 * once, and for a time), world_net.c (faults on the way), world_rank.c (ranks), world_slots.c (the
 * slots that they map), world_read.c (ranks that read), world_table.c (their meeting),
 * world_options.c (options that change), world_return.c (machines that come back), world_check.c
 * (the model), world_look.c (its eyes) and world_heard.c (its ears). */
#ifndef WORLD_PARTS_H
#define WORLD_PARTS_H

#include "store_mem_parts.h"
#include "world.h"

/* The time that engines need to call a node lost, beyond dead_ms. */
#define NOTICED_MS 500u

struct machine {
    struct world *world;
    uint32_t index;
    struct hth_store *store; /* NULL: lost, and not replaced by a fresh one yet */
    struct hth_node *node;   /* NULL: no engine */
    uint32_t ends;           /* of its engines, so far */
    uint64_t due_ms;
    uint64_t seed;                 /* of its random numbers */
    uint32_t uses;                 /* times it was made fresh */
    uint32_t port;                 /* its number on the net */
    uint32_t first_rank;           /* of those that run here; UINT32_MAX: none do */
    int keep_next;                 /* its workers keep what they get next */
    int stopping;                  /* its workers take nothing any more */
    int stopped;                   /* as by SIGSTOP: it does nothing, and what it is asked waits */
    uint64_t stopped_ms, stood_ms; /* since when; for how long before that */
    int silent;
    int blocked; /* stopped in the middle of its work; what else runs on its machine goes on */
    uint32_t block_at; /* its clock's reading by its engine at which that begins; 0: none */
    uint64_t block_until_ms,
            ahead_ms; /* when it ends; its clock shows so much more for the rest of the work */
    uint64_t spoil;   /* by that a record of it changes before its next engine; 0: none does */
    int block_busy;   /* it uses the processor meanwhile ... */
    uint64_t busy_ms; /* ... that it has used in all */
    struct asked *asked, **asked_end;
    uint32_t rate;          /* of its clock, in thousandths of ours */
    int64_t wall_off_ms;    /* of its wall clock */
    uint64_t work_ready_ms; /* when its worker is through */
    uint32_t slow_ms;       /* more that its workers take for each piece of work */
    int dying; /* it has come to the point where it is killed: nothing gets out any more */
    /* A test is its ranks' meeting; NULL: world_table.c is. */
    const struct hth_node_meeting *meeting;
    struct comer *comers; /* ranks that wait for the ranks' table */
    uint32_t fetches;     /* the round of the table that its engine fetches; 0: none */
    uint32_t has_table;   /* ... that its engine has; 0: none */
};

struct asked { /* a request to a stopped engine; len 0: the client is gone */
    struct asked *next;
    uint32_t client;
    size_t len, attach_len;
    _Alignas(8) unsigned char bytes[]; /* then those attached */
};

struct world_work { /* in the workers' hands */
    struct hth_work *work;
    struct machine *machine;
    uint64_t done_ms;
    struct world_work *next;
};

enum rank_step {
    R_NONE,
    R_ATTACH,
    R_GATHER,
    R_JOIN,
    R_RECOVER,
    R_RUN,
    R_BEGUN,
    R_WAIT,
    R_CUT, /* its connection has ended, and it does not know so: it writes on until it is due */
    R_BACK,
    R_FAILED
};

#define RANK_MAPS 16u /* the last ones count */

struct rank_state {
    struct world *world;
    uint32_t rank, machine, client;
    enum rank_step step;
    uint64_t act_ms; /* does its next thing then */
    uint64_t lineage;
    uint64_t next;  /* step to save */
    uint64_t tried; /* step that was saved again already */
    int some;       /* its save is of some ranks */
    uint64_t somed; /* step that it has saved with some already */
    uint64_t token;
    uint64_t request;
    uint64_t begun;    /* the request whose slot it waits for */
    uint64_t began_ms; /* the save that it waits for */
    uint64_t asked_ms; /* the BEGIN whose slot it waits for was sent then */
    int waits;         /* until act_ms for what it asked */
    uint64_t tabling;  /* the request by which it receives the ranks' table; 0: none */
    unsigned tries;    /* such requests since it gathered; TABLE_DONE: it has the table */
    uint64_t stood_ms; /* its engine had stood still for so long then */
    int trick;         /* what it does otherwise with this save */
    int follows;       /* it has asked what became of its save: the next event of that is its own */
    int has_common;    /* its save has */
    struct {
        uint64_t slot, opened; /* the open file that it maps the slot by */
    } map[RANK_MAPS];
    uint32_t maps;
    uint64_t writes; /* the slot into which it writes for longer than a moment; 0: none */
    struct hth_local_lent lent; /* writing: the slot */
    int writing; /* R_BEGUN: a part of the object is written, the rest is when it is due */
    struct hth_save_id save;
    uint64_t hour;            /* hours: the turn in which it began last */
    struct hth_save_id heard; /* the newest that its engine has reported PROTECTED */
    struct hth_local_attached attached;
    struct hth_local_attached gathered; /* what it brought to the all-gather */
    uint64_t epoch, nonce;              /* as it joined; 0: not yet */
    int recovered;                      /* has had its answer */
    struct hth_save_id from;
    uint64_t from_lineage; /* of the bytes it resumed from */
    struct hearth_recovery info;
    struct hth_local_error error; /* the last from its engine; code 0: none */
};

struct letter { /* a reply on its way to a rank */
    struct letter *next;
    uint32_t machine, client;
    size_t len, attached;
    /* Of an error or event all of its struct; then what is attached to a BYTES. */
    _Alignas(8) unsigned char bytes[];
};

/* world_wake.c: machines first, then ranks, then those of stale machines */
struct world_wake *wake_open(uint32_t count);
void wake_at(struct world_wake *wake, uint32_t i, uint64_t ms);
uint64_t wake_first_ms(const struct world_wake *wake);
/* The first from `from` on that is due then; UINT32_MAX: none. */
uint32_t wake_next(const struct world_wake *wake, uint32_t from, uint64_t now_ms);
void wake_close(struct world_wake *wake);

/* world_block.c */
void machine_enter(struct machine *x);                       /* its engine's thread works ... */
void machine_leave(struct machine *x);                       /* ... and waits for the next event */
uint64_t block_clock_ms(struct machine *x, uint64_t its_ms); /* its engine reads its clock */
void block_forget(struct machine *x);                        /* its engine ends */
uint64_t block_used_ms(void);                                /* by the engine that runs */
uint32_t block_delay_ms(const struct world *w, uint32_t port); /* of what it sends now */

/* world_machine.c */
void machine_start(struct world *w, uint32_t m);
void machine_stop(struct world *w, uint32_t m);
void machine_still(struct machine *x, int on, int blocked); /* stopped, or blocked */
void machine_kill(struct world *w, uint32_t m); /* and what its workers have in hands is not done */
void machine_lose(struct world *w, uint32_t m);
void machine_touch(struct world *w, uint32_t m); /* it is due when its engine says */
uint64_t machine_stood_ms(const struct machine *x);
void machine_watch(const struct machine *x, int runs, int worker);
void machine_due(struct machine *x, uint64_t ms); /* by the world's clock; 0: at once */
void machine_ask(struct machine *x, uint32_t client, const void *bytes, size_t len,
        const void *attach, size_t attach_len); /* bytes NULL: it is gone */
void world_work_step(struct world *w, int *out_did);
uint64_t world_work_due_ms(const struct world *w);
uint64_t world_work_run(struct world *w, struct hth_work *work); /* how long it has taken, ms */
uint64_t world_slots_owed(const struct world *w); /* bytes of slots of a machine, at most */
uint64_t world_room(const struct world *w);       /* bytes of a memory; 0: without bound */

/* world.c */
void world_restart(struct world *w, uint64_t in_ms, const char *why);
uint32_t world_roll_of(uint64_t *dice, uint32_t sides);

/* world_net.c */
void net_open(struct world *w);

/* world_ill.c */
void ill_begin(struct world *w, enum world_kind kind); /* by fault_dice */
void ill_hours(struct world *w);                       /* few saves for long, and one of these */
int ill_is_for_hours(const struct world *w);
int ill_any(const struct world *w);   /* something lasts */
uint32_t ill_cut_ms(struct world *w); /* that a rank which is cut off does not notice */
void ill_act(struct world *w);
uint64_t ill_due_ms(const struct world *w);
void ill_end_all(struct world *w, int lasting); /* those too that last until a restart */
void ill_restarted(struct world *w);
int ill_any_lasts(const struct world *w); /* messages between some nodes are lost until a restart */
/* Large pulls between these two machines stall. */
int ill_stalls(const struct world *w, uint32_t puller, uint32_t owner);

/* world_fault.c */
void faults_plan(struct world *w);     /* the next one */
void faults_launched(struct world *w); /* the job has just been started */
void faults_act(struct world *w);      /* what is due */
uint64_t faults_due_ms(const struct world *w);
int fault_may_lose(struct world *w, uint32_t count); /* and then it is so */
void fault_ranks_kill(struct world *w, uint32_t m);
void fault_replace(struct world *w, uint32_t node); /* its engine and ranks end, its memory stays */
int fault_is_on(const struct world *w, enum world_kind kind);
uint32_t fault_roll(struct world *w, uint32_t sides);
uint32_t fault_machine(struct world *w); /* some member's, the coordinator's one of the likelier */
void faults_point(void *machine, const char *point);       /* its engine has come there */
int faults_keep(struct machine *m, struct hth_work *work); /* 1: kept until world_let_go() */

/* world_rank.c */
void rank_due(struct rank_state *r, uint64_t ms);
void rank_wait(struct rank_state *r, uint64_t ms); /* for an answer */
void rank_connect(struct rank_state *r);           /* by a connection of its own from here on */
struct rank_state *rank_of_client(struct world *w, uint32_t machine, uint32_t client); /* or NULL */
void rank_act(struct rank_state *r);
void rank_hear(struct rank_state *r, const struct letter *l);
/* ---- world_upgrade.c */
const struct hth_successor *upgrade_successor(void); /* of the same build */
void upgrade_begin(struct world *w);
void upgrade_act(struct world *w);
int upgrade_alone(const struct world *w); /* 1: it is all that happens in this world */
void upgrade_judge(struct world *w, uint32_t rank, const char *why); /* a save of it has failed */

void rank_leave(struct rank_state *r); /* its engine was killed */
void rank_back(struct rank_state *r);  /* and is there again */
/* The common object of a step, which every node keeps; returns its length. */
#define WORLD_COMMON     ".metadata"
#define WORLD_COMMON_MAX 1000u
uint64_t world_common(unsigned char out[WORLD_COMMON_MAX], uint64_t tag, uint64_t step);
void rank_kill(struct rank_state *r);
void rank_send(
        struct rank_state *r, const void *bytes, size_t len, const void *attach, size_t attach_len);
/* The first bytes of an object name its writer: the launch and the attempt, and whether that was a
 * save of some ranks. */
static inline uint64_t rank_tag(uint64_t lineage, uint32_t attempt)
{
    return (uint64_t)(attempt >> 31) << 63 | (uint64_t)(attempt & 0x7fff) << 48 | lineage;
}
static inline int rank_tag_some(uint64_t tag)
{
    return (int)(tag >> 63);
}
static inline uint64_t rank_tag_lineage(uint64_t tag)
{
    return tag & ((UINT64_C(1) << 48) - 1);
}
/* Steps that some ranks of a launch of so many save by themselves; all of them after that, or this
 * step not at all. */
int some_save(uint64_t lineage, uint64_t step, uint32_t ranks);
int some_and_all(uint64_t lineage, uint64_t step);
int some_have(uint64_t lineage, uint64_t step, uint32_t ranks, uint32_t rank);
size_t some_put(const struct rank_state *r, unsigned char *out); /* the set, as BEGIN has it */
uint32_t some_lowest(const struct rank_state *r);
int some_pass(struct rank_state *r); /* 1: it takes no part in the step that comes next */
/* The rank is through with the step, or with the part of it that it has saved with some. */
void some_next(struct rank_state *r);
/* A rank that saves alone waits for no other rank. Without faults its save must not fail by its
 * deadline. */
void some_failed(const struct rank_state *r, const char *text);
uint64_t rank_bytes(uint64_t lineage, uint64_t step, uint32_t rank, uint32_t max);
/* An object of so many bytes, as the judge expects it. */
void rank_write(struct hth_slot *slot, uint64_t len, uint64_t tag, uint64_t step, uint32_t rank);
void rank_fill(unsigned char *out, uint64_t len, uint64_t tag, uint64_t step, uint32_t rank);

/* world_slots.c */
void slots_map(struct rank_state *r, uint64_t slot);
void slots_unmap(struct rank_state *r, uint64_t slot);
void slots_unmap_all(struct rank_state *r);
int slots_elsewhere(void *machine, uint64_t slot, uint64_t opened);
void slots_cut(struct rank_state *r, uint64_t slot); /* while it has that one to write */
void slots_end(struct rank_state *r);                /* of what it wrote since */
void check_writers(struct machine *x, uint32_t client, uint64_t slot); /* is lent to that client */

struct slot *slots_find(const struct machine *x, uint64_t id); /* or NULL */

/* world_read.c */
struct world_reads *reads_open(void);
void reads_close(struct world_reads *reads);
void reads_begin(struct world *w); /* a rank reads from now on, by fault_dice */
void reads_act(struct world *w);
void reads_last(struct world *w); /* at rest: from some nodes what is PROTECTED is read */
uint64_t reads_due_ms(const struct world *w);
int reads_hear(struct rank_state *r, const struct letter *l); /* 0: no answer to a reader */
void reads_joined(const struct rank_state *r);                /* an epoch */
void reads_decided(struct world *w, const struct hth_save_id *keep, uint32_t saves); /* a record */
int reads_was_decided(const struct world *w, struct hth_save_id id);                 /* by one */
int reads_elsewhere(const struct machine *x, uint64_t slot); /* some reader has it mapped */
void reads_lent(struct machine *x, uint64_t slot);           /* to a rank, now */

/* world_table.c */
struct hth_node_meeting table_hands(struct machine *x);
void table_turn(struct machine *x);   /* its engine's thread is about to work */
void table_forget(struct machine *x); /* its engine ends */
/* 1: it asks its engine for the ranks' table before it joins. */
int table_ask(struct rank_state *r, const unsigned char *table);
/* 1: an answer to that. */
int table_heard(struct rank_state *r, const struct letter *l);

/* world_past.c: what engines remember of saves, beside what happened */
struct world_past *past_open(void);
void past_close(struct world_past *past);
/* Of notes, which grow with each save. */
size_t past_bytes(const struct world_past *past);
void past_asked(struct rank_state *r);       /* it sends BEGIN of r->next */
void past_begun(const struct rank_state *r); /* it has a slot for r->save */
void past_lost(const struct world *w);       /* beyond redundancy: earlier decisions are given up */
void past_decided(struct machine *x, const struct hth_save_id *keep, uint32_t saves);
void past_heard(const struct rank_state *r, const struct hth_local_event *e); /* of r->save */
void past_judge(struct machine *x); /* all that its engine remembers */

/* world_ask.c */
void asks_open(struct world *w);
void asks_act(struct world *w);
uint64_t asks_due_ms(const struct world *w); /* HTH_NEVER: never */

/* world_said.c: what engines say of themselves and of others */
struct world_said *said_open(uint64_t seed, uint32_t machines);
void said_close(struct world_said *s);
/* Likewise. */
size_t said_bytes(const struct world_said *s);
void said_changed(const struct machine *x); /* something of it that others may notice */
void said_muted(struct world *w, uint32_t from, uint32_t to, int on);
void said_noise(struct world *w, uint32_t from_port, uint32_t to_port);
void said_decided(struct world *w, const struct hth_save_id *keep, uint32_t saves); /* a record */
void said_act(struct world *w); /* asks, if it is time */

/* world_options.c */
void options_open(struct world *w);
void options_draw(struct world *w);   /* of the next launch, by fault_dice */
void options_launch(struct world *w); /* take effect */
/* Machines that hold each object of a save which that engine calls PROTECTED. */
uint32_t options_need(const struct world *w, const struct machine *x);
void options_decided(struct world *w, const struct machine *x, struct hth_save_id id, int again);
uint32_t options_tolerance(const struct world *w); /* machines that may be lost at once */
uint32_t options_keep(const struct machine *x);    /* saves that may lie beside a new one */

/* world_return.c */
void returns_begin(struct world *w); /* by fault_dice */
void returns_act(struct world *w);
void returns_end(struct world *w);
int returns_keep(const struct world *w, uint32_t m); /* it is put aside, and no spare */

/* world_look.c: decodes by itself, with sums and an order of its own */
int look_before(struct hth_save_id a, struct hth_save_id b);
int look_same(struct hth_save_id a, struct hth_save_id b);
struct look_object {
    struct hth_save_id save;
    uint32_t rank;
    uint64_t tag, len;
    const unsigned char *data;
};
/* The object of a save that lies in the slot; 0: there is none. */
int look_slot(const struct slot *slot, struct look_object *out);
/* Block, table and bytes are as they were written. */
int look_whole(const struct slot *slot, const struct look_object *o);
uint32_t look_ranks(const struct world *w, const struct look_object *o); /* of its launch */
/* That rank took part in its save. */
int look_part(const struct world *w, const struct look_object *o, uint32_t rank);
/* How many members hold each rank's object of the save whole, and what is common to them; the least
 * of these. 0 where no member has its manifest. Machine `without` is not looked at. */
uint32_t look_copies(struct world *w, struct hth_save_id save, uint32_t without);
/* The number of racks that hold each rank's object of the save whole; the least of these. */
uint32_t look_racks(struct world *w, struct hth_save_id save);
/* look_copies() of all machines, for a machine that was replaced alive goes on in its epoch.
 * *out_rank: the rank whose object has fewest copies; UINT32_MAX: the common object has. */
uint32_t look_anywhere(struct world *w, struct hth_save_id save, uint32_t *out_rank);
/* Of a keep record that was decided in this epoch: a bit for each save that is called DEGRADED;
 * else all. */
uint32_t look_degraded(const void *bytes, size_t len, uint64_t epoch);
/* The saves on a keep record, newest first. */
uint32_t look_keep(const void *bytes, size_t len, struct hth_save_id out[16]);

/* world_heard.c */
struct world_heard *heard_open(void);
void heard_close(struct world_heard *h);
void heard_word(struct world *w, uint32_t port, const void *bytes, size_t len); /* on its way */
int heard_first_map(const struct machine *x); /* 1: its recorded head has the first map */

/* world_check.c */

void check_recovered(struct world *w, struct rank_state *r);
void check_protected(struct world *w, struct rank_state *r, struct hth_save_id id, int degraded);
/* Machines are back; `before` was the newest save when they left. */
void check_gone(struct world *w, struct known_save before);
void check_beyond(struct world *w); /* more machines were lost than there are copies */
void check_lost(struct world *w, const struct rank_state *r, const char *text); /* HEARTH_ELOST */
void check_no_room(struct world *w, const char *text); /* why a recovery failed */
void check_always(struct world *w, const char *when);
void check_lent(struct machine *x, struct hth_save_id save); /* a slot, for this save */
int check_pool(struct world *w); /* 0: w->pool says what is not as it is owed */
void check_launched(struct world *w);
int check_home(struct world *w); /* after more than ten minutes without a fault */
void check_record(void *machine, const char *name, const void *bytes, size_t len); /* was written */
void check_freed(void *machine, const struct slot *slot);                          /* will be */

#endif
