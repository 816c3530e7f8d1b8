/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Recovery of one epoch, on a member (recover.c) and at the coordinator (choose.c).
 *
 *   IDLE ──start──► TOLD ──plan arrived──► PULLING ──all needed verified──► VOTED ──GO──► ENDED
 *                    │       ▲                 │ cannot: VOTE(no)             │
 *                    │       └──── next plan (an older save) ────────────────┘
 *                    └── deadline, EPOCH_FAILED, member lost ──► ENDED with a code
 */
#ifndef HEARTH_LOADER_RECOVER_STATE_H
#define HEARTH_LOADER_RECOVER_STATE_H

#include <hearth/internal/loader/recover.h>
#include <hearth/internal/replication/tree.h>

enum recover_state { IDLE, TOLD, PULLING, VOTED, ENDED };

struct gathered {        /* from one member */
    uint32_t parts, got; /* of its inventory */
    unsigned char **part;
    size_t *part_len;
    struct hth_inventory inventory;
    int complete;
    uint32_t voted; /* serial it said yes to */
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
};

struct coordinator {
    uint32_t nodes;
    struct gathered *from; /* [nodes] */
    uint32_t complete, votes;
    struct candidate *candidate; /* newest first */
    uint32_t candidates;
    struct hth_save_id watermark; /* newest that some keep list names */
    uint32_t serial;
    uint32_t beyond;
    int gone; /* GO was said */
    struct hth_save_id chosen;
    char lost_text[200];
};

struct hth_recover {
    struct hth_ctx *ctx;
    struct hth_recover_events events;
    enum recover_state state;
    uint64_t deadline_ms, repeat_ms;
    uint64_t t_start, t_plan, t_pull, t_verify, t_vote; /* when each phase ended; 0: not yet */
    unsigned char *inventory;                           /* ours, as it goes up */
    size_t inventory_len;
    struct hth_plan plan;
    int has_plan;
    int plan_waits;     /* to be carried out when the old epoch's last pull has ended */
    uint32_t waiting;   /* fetches and verifications under way for this plan */
    struct wait *later; /* could not begin yet; looked at again from later_ms on */
    uint64_t later_ms;
    uint32_t
            generation; /* of the plan, over all epochs: what began under an older one is not counted */
    int failed_code; /* of this plan on this node */
    char failed[200];
    uint64_t pulled_before;
    uint32_t digesting; /* foreign files: the inventory waits for them */
    char common[HTH_RECOVER_COMMON][HTH_NAME_MAX + 1]; /* foreign: names that every node needs */
    uint32_t commons;
    struct coordinator co;
};

/* choose.c */
void choose_inventory(
        struct hth_recover *r, uint32_t origin, const unsigned char *bytes, size_t len);
void choose_vote(struct hth_recover *r, uint32_t origin, const unsigned char *bytes, size_t len);
void choose_manifest(struct hth_recover *r, const struct hth_blob_id *id,
        const unsigned char *bytes, size_t len);
void choose_tick(struct hth_recover *r, uint64_t now_ms);
void choose_fail(struct hth_recover *r, int code, const char *text);
void choose_fini(struct hth_recover *r);

/* recover.c */
int recover_fetch(struct hth_recover *r, uint32_t index); /* of the plan's manifest */
void recover_inventory(struct hth_recover *r);            /* all that it waited for is there */

/* foreign.c: a member */
int foreign_listed(const struct hth_recover *r, const struct hth_held_save *s);
int foreign_digest(struct hth_recover *r); /* 1: recover_inventory() is called when it is done */
int foreign_see(const struct hth_held_save *s, struct hth_seen_save *out);
void foreign_needs(struct hth_recover *r, struct hth_held_save *s);
void foreign_end(struct hth_recover *r, struct hearth_recovery *info);

/* foreign_choose.c: the coordinator */
int foreign_candidates(struct hth_recover *r);
/* Is it whole? 0: not known yet. Else 1, with c->lost and a sentence where it is not. */
int foreign_look(struct hth_recover *r, struct candidate *c);

#endif
