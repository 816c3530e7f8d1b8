/* SPDX-License-Identifier: Apache-2.0 */
/* What world.c (time, machines, launcher), world_fault.c (what goes wrong), world_rank.c (ranks) and
 * world_check.c (the model) share. */
#ifndef WORLD_PARTS_H
#define WORLD_PARTS_H

#include "store_mem.h"
#include "world.h"

struct machine {
    struct world *world;
    uint32_t index;
    struct hth_store *store; /* NULL: lost, and not replaced by a fresh one yet */
    struct hth_node *node;   /* NULL: no engine */
    uint64_t due_ms;
    uint64_t seed; /* of its random numbers */
    uint32_t uses; /* times it was made fresh */
    uint32_t port; /* its number on the net */
    int keep_next; /* its workers keep what they get next */
    int stopping;  /* its workers take nothing any more */
    int dying;     /* it has come to the point where it is killed: nothing gets out any more */
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
    R_BACK,
    R_FAILED
};

struct rank_state {
    struct world *world;
    uint32_t rank, machine, client;
    enum rank_step step;
    uint64_t act_ms; /* does its next thing then */
    uint64_t lineage;
    uint64_t next;  /* step to save */
    uint64_t tried; /* step that was saved again already */
    uint64_t token;
    uint64_t request;
    struct hth_save_id save;
    struct hth_local_attached attached;
    struct hth_local_attached gathered; /* what it brought to the all-gather */
    uint64_t epoch, nonce;              /* as it joined; 0: not yet */
    int recovered;                      /* has had its answer */
    struct hth_save_id from;
    uint64_t from_lineage; /* of the bytes it resumed from */
    struct hearth_recovery info;
    struct hth_local_error error; /* the last that it heard; code 0: none */
};

struct letter { /* a reply on its way to a rank */
    struct letter *next;
    uint32_t machine, client;
    size_t len;
    _Alignas(8) unsigned char bytes[HTH_LOCAL_MAX];
};

/* world.c */
void machine_start(struct world *w, uint32_t m);
void machine_stop(struct world *w, uint32_t m);
void machine_lose(struct world *w, uint32_t m);
void machine_touch(struct world *w, uint32_t m);
void world_restart(struct world *w, uint64_t in_ms, const char *why);
uint64_t world_work_run(struct world *w, struct hth_work *work); /* how long it has taken, ms */

/* world_fault.c */
void faults_plan(struct world *w);                         /* the next one */
void faults_launched(struct world *w);                     /* the job has just been started */
void faults_act(struct world *w);                          /* what is due */
void faults_point(void *machine, const char *point);       /* its engine has come there */
int faults_keep(struct machine *m, struct hth_work *work); /* 1: kept until world_let_go() */

/* world_rank.c */
void rank_act(struct rank_state *r);
void rank_hear(struct rank_state *r, const struct letter *l);
/* What every node gets with a step; its length. */
#define WORLD_COMMON     ".metadata"
#define WORLD_COMMON_MAX 1000u
uint64_t world_common(unsigned char out[WORLD_COMMON_MAX], uint64_t lineage, uint64_t step);
void rank_kill(struct rank_state *r);
void rank_send(
        struct rank_state *r, const void *bytes, size_t len, const void *attach, size_t attach_len);
uint64_t rank_bytes(uint64_t lineage, uint64_t step, uint32_t rank, uint32_t max);
void rank_fill(unsigned char *out, uint64_t len, uint64_t lineage, uint64_t step, uint32_t rank);

/* world_check.c */
int check_whole(struct world *w, struct hth_save_id id, uint32_t copies, uint32_t without);
void check_decisions(struct world *w);
int check_recoverable(struct world *w, uint32_t without);
void check_recovered(struct world *w, struct rank_state *r);
void check_protected(struct world *w, struct rank_state *r, struct hth_save_id id);
void check_always(struct world *w, const char *when);

#endif
