/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Recovery of one epoch, on a member (recover.c, tell.c, carry.c) and at the coordinator (choose.c, give.c).
 *
 *   IDLE ──start──► TOLD ──plan arrived──► PULLING ──all needed verified──► VOTED ──GO──► ENDED
 *                    │       ▲                 │ cannot: VOTE(no)             │
 *                    │       └──── next plan (an older save) ────────────────┘
 *                    └── deadline, EPOCH_FAILED, member lost ──► ENDED with a code
 *   IDLE ──this node cannot take part──► REFUSED ──EPOCH_FAILED, deadline──► ENDED
 */
/* For this folder alone. */
#ifndef HEARTH_LOADER_RECOVER_STATE_H
#define HEARTH_LOADER_RECOVER_STATE_H

#include "core/foreign/foreign.h"
#include "recover.h"
#include "replication/held/seal.h"
#include "replication/tree/tree.h"
#include <hearth/metadata.h>

enum recover_state { IDLE, TOLD, PULLING, VOTED, REFUSED, ENDED };

struct gathered {        /* from one member */
    uint32_t parts, got; /* of its inventory */
    unsigned char **part;
    size_t *part_len;
    struct hth_inventory inventory;
    int complete;
    uint32_t voted; /* serial it said yes to */
};

struct names { /* of files, that a `.metadata` has; foreign_names.c */
    struct hth_recover *r;
    struct names *next; /* r->reading */
    struct hth_work work;
    int left;              /* nobody waits for it any more */
    int ended;             /* else all below is a worker's */
    struct hth_slot *slot; /* leased */
    size_t len;
    struct hth_manifest files;     /* a copy of the candidate's; what is listed was found by this */
    struct hth_foreign_look *look; /* [files.objects] a copy too */
    struct hearth_error unknown;   /* code 0: it was understood */
    int any;                       /* there is a name in it */
    const char *wrong;             /* followed by `name`; NULL: all files are there */
    char name[HTH_KEY_TEXT];
};

struct candidate {
    struct hth_save_id id;
    unsigned char digest[HTH_DIGEST]; /* of its manifest */
    uint32_t holder;                  /* a node that has the manifest; changes when it fails */
    int has_manifest;                 /* manifest below is here */
    int lost;                         /* looked at, and beyond redundancy or refused */
    int whole;                        /* looked at, every object is somewhere */
    struct hth_manifest manifest;
    unsigned char *bytes;
    size_t len;
    uint64_t asked_ms;
    uint32_t refused; /* plans for it that somebody could not carry out */
    int metadata;     /* foreign: 1 its `.metadata` is being fetched, negative: it cannot be had */
    struct hth_foreign_look *look; /* foreign: [manifest.objects] what is in them */
    struct names *names;           /* foreign: NULL: its `.metadata` is not being read yet */
};

struct coordinator {
    uint32_t nodes;
    struct gathered *from; /* [nodes] */
    uint32_t complete, votes;
    struct candidate *candidate; /* newest first */
    uint32_t candidates;
    struct hth_save_id watermark; /* newest that some keep list names */
    uint32_t serial;              /* of the plan; 0: none yet */
    uint32_t before;   /* serial of the last plan that an engine before us gave in this epoch */
    uint64_t asked_ms; /* the members were asked to say again what they hold */
    uint32_t beyond;
    int gone; /* GO was said */
    /* EPOCH_FAILED, as it was said; for whoever has not heard it. The first reason stays. */
    unsigned char failed[4 + HEARTH_ERROR_TEXT];
    size_t failed_len; /* 0: it was not */
    struct hth_save_id chosen;
    char lost_text[200];
};

struct hth_recover {
    struct hth_ctx *ctx;
    struct hth_recover_events events;
    enum recover_state state;
    uint64_t deadline_ms, repeat_ms;
    /* Asked; the plan came; pulling and verifying began; the last of each ended; all voted for. */
    uint64_t t_start, t_told, t_plan, t_pull, t_verify, t_vote;
    unsigned char *inventory; /* ours, as it goes up */
    size_t inventory_len;
    struct hth_plan plan;
    int has_plan;
    struct hth_blob_id early; /* a plan that came before we were asked to recover; epoch 0: none */
    uint32_t least;     /* plans up to this serial are void: who gave them has forgotten them */
    int plan_waits;     /* to be carried out when the old epoch's last pull has ended */
    uint32_t waiting;   /* fetches and verifications under way for this plan */
    struct wait *later; /* could not begin yet; looked at again from later_ms on */
    struct wait *raws;  /* raw objects on their way here */
    uint64_t later_ms;
    uint32_t
            generation; /* of the plan, over all epochs: what began under an older one is not counted */
    int failed_code; /* of this plan on this node */
    char failed[200];
    struct hearth_error refused; /* REFUSED: what is said upwards */
    uint64_t pulled_before;
    uint32_t digesting;    /* raw objects, foreign files: the inventory waits for them */
    struct names *reading; /* in the hands of workers, of this epoch and of those before */
    char common[HTH_RECOVER_COMMON][HTH_NAME_MAX + 1]; /* foreign: names that every node needs */
    uint32_t commons;
    int accept_loss; /* at the coordinator: begin with nothing where all is lost */
    struct coordinator co;
};

/* serial.c: how many plans were given, kept across a restart of the coordinator's engine */
/* Of this epoch's last plan; 0: none. *out_plan: the plan, malloc'ed; nothing where it is not known. */
uint32_t serial_read(const struct hth_ctx *ctx, unsigned char **out_plan, size_t *out_len);
int serial_write(const struct hth_ctx *ctx, uint32_t serial, const void *plan, size_t len,
        struct hearth_error *err);

/* choose.c: the coordinator gathers and chooses */
int choose_ready(struct hth_recover *r); /* 0: no memory */
void choose_inventory(
        struct hth_recover *r, uint32_t origin, const unsigned char *bytes, size_t len);
void choose_manifest(struct hth_recover *r, const struct hth_blob_id *id,
        const unsigned char *bytes, size_t len);
struct candidate *choose_find(struct hth_recover *r, struct hth_save_id id);
void choose(struct hth_recover *r, uint64_t now_ms);
void choose_tick(struct hth_recover *r, uint64_t now_ms);
void choose_fail(struct hth_recover *r, int code, const char *text);
int choose_failed(struct hth_recover *r, uint32_t node); /* 1: so, and the node is told again */
void choose_fini(struct hth_recover *r);

/* give.c: the coordinator gives the plan and counts votes */
void give_plan(struct hth_recover *r, const struct candidate *c); /* NULL: nothing to recover */
void give_again(struct hth_recover *r, struct gathered *g, uint32_t node);
void give_ask(struct hth_recover *r, uint64_t now_ms);
void give_vote(struct hth_recover *r, uint32_t origin, const unsigned char *bytes, size_t len);
void give_resume(struct hth_recover *r); /* GO was said before this process began */

/* recover.c */
void recover_end(struct hth_recover *r, int code, const struct hearth_error *err);
struct hth_blob_id recover_plan_id(const struct hth_recover *r, uint32_t serial);
void recover_go(struct hth_recover *r, const unsigned char *bytes, size_t len);

/* tell.c: what a member holds */
int tell_look(struct hth_recover *r); /* 1: the inventory is told when all was looked at */
int tell_make(struct hth_recover *r, struct hearth_error *err); /* r->inventory */
/* The digest of a raw object or a foreign file, that the inventory waits for; what is not right is given up. */
int tell_digest(struct hth_recover *r, struct hth_held_save *s, struct hth_held *h,
        struct hearth_error *err);
void tell_inventory(struct hth_recover *r); /* up, as it was made */
/* The coordinator asks: its engine is a new one and knows nothing of the plan that we may have. */
void tell_again(struct hth_recover *r, const unsigned char *bytes, size_t len);

/* carry.c: a member and the plan */
void carry_out(struct hth_recover *r);
void carry_vote(struct hth_recover *r);                          /* up, as it was made */
int carry_fetch(struct hth_recover *r, uint32_t index);          /* of the plan's manifest */
uint32_t carry_index(const struct hth_manifest *m, uint64_t id); /* UINT32_MAX: not in it */
void carry_fetch_later(struct hth_recover *r);                   /* what could not begin */
/* A raw object is here, or cannot be written. */
void carry_raw(struct hth_recover *r, const struct hth_blob_id *id, const struct hearth_error *err);
void carry_close(struct hth_recover *r);

/* foreign.c: a member */
int foreign_listed(const struct hth_recover *r, const struct hth_held_save *s);
void foreign_digest(struct hth_recover *r); /* what the inventory waits for */
int foreign_see(const struct hth_held_save *s, struct hth_seen_save *out);
void foreign_needs(struct hth_recover *r, struct hth_held_save *s);
void foreign_end(struct hth_recover *r, struct hearth_recovery *info);

/* foreign_choose.c: the coordinator */
int foreign_candidates(struct hth_recover *r);
/* Is it whole? 0: not known yet. Else 1, with c->lost and a sentence where it is not. */
int foreign_look(struct hth_recover *r, struct candidate *c);
/* 1: the choice waits for a `.metadata`; which, and what happens to it. */
int foreign_waits(const struct hth_recover *r, char *out, size_t len);

/* foreign_copies.c: of each file of c->id one copy, into c->manifest and c->look */
int foreign_copies(const struct hth_recover *r, struct candidate *c);

/* foreign_match.c, on a worker. *out_file: one whose items are not what md says, or UINT32_MAX. */
int names_match(struct hearth_metadata *md, const struct hth_manifest *files,
        const struct hth_foreign_look *look, uint32_t *out_file);

/* foreign_names.c: the coordinator's workers read a `.metadata`, which is held here */
/* 0 or HEARTH_ENOMEM; ends in choose_tick() */
int names_start(struct hth_recover *r, struct candidate *c, const struct hth_held *held);
void names_leave(struct names *n);       /* nobody waits for it any more; NULL: nothing */
void names_close(struct hth_recover *r); /* the workers have ended */
const struct hth_object *names_find(const struct hth_manifest *files, const char *name);

#endif
