/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The coordinator's state in one epoch.
 *
 *   inventories of all ──► candidates, newest first ──► one is whole ──► plan ──all voted──► GO
 *                              ▲                                          │ a no
 *                              └──────────────────────────────────────────┘
 *   before GO: deadline, member lost or refused, beyond redundancy ──► EPOCH_FAILED
 */
/* For this folder alone. */
#ifndef HEARTH_LOADER_CHOICE_CHOICE_STATE_H
#define HEARTH_LOADER_CHOICE_CHOICE_STATE_H

#include "choice.h"
#include "core/foreign/foreign.h"
#include "loader/plan/plan.h"
#include "replication/tree/tree.h"
#include <hearth/metadata.h>

struct gathered {        /* from one member */
    struct parts *parts; /* of its inventory, until all have come; gather.c's own */
    struct hth_inventory inventory;
    int complete;
    uint32_t voted; /* the serial for which it voted yes */
};

struct names_found { /* in a `.metadata` */
    /* a copy of the candidate's, with marks on the files that `.metadata` names */
    struct hth_manifest files;
    struct hearth_error unknown; /* code 0: the `.metadata` was understood */
    int any;                     /* the `.metadata` has a name */
    const char *wrong;           /* followed by `name`; NULL: all files are there */
    char name[HTH_KEY_TEXT];
};

struct candidate {
    struct hth_save_id id;
    unsigned char digest[HTH_DIGEST]; /* of its manifest */
    uint32_t holder;                  /* a node that has the manifest; changes when it fails */
    int has_manifest;                 /* manifest below is here: bytes were decoded */
    int lost;  /* an object is on no node, or nodes have refused its plan too often */
    int whole; /* every object is on some node */
    struct hth_manifest manifest;
    unsigned char *bytes; /* of the manifest; NULL: they have not come */
    size_t len;
    /* [manifest.objects] the nodes that have each; NULL: not looked at */
    struct hth_sources *sources;
    uint64_t asked_ms;
    uint32_t refused; /* plans for it that a node could not carry out */
    int metadata;     /* foreign: 1 its `.metadata` is being fetched, negative: it cannot be had */
    struct hth_foreign_look *look; /* foreign: [manifest.objects] the items found in them */
    struct names *names;           /* foreign: NULL: its `.metadata` is not being read yet */
};

struct hth_choice {
    struct hth_ctx *ctx;
    struct hth_restore *restore;     /* the coordinator's node is a member too */
    struct names *reading;           /* being read by workers, for this epoch or an older one */
    struct background *backgrounds;  /* in workers' hands, for this epoch or an older one */
    struct background *background;   /* the one that the choice waits for; NULL: none */
    hth_choice_report_fn *on_report; /* NULL: there is no record */
    void *on_report_self;
    uint32_t epochs; /* how many were joined; what began in an older one does not count */

    /* of this epoch */
    int wants; /* only `wanted` is chosen */
    struct hth_save_id wanted;
    int accept_loss; /* begin with nothing if all saves are lost */
    uint32_t nodes;
    struct gathered *from; /* [nodes] */
    uint32_t complete, votes;
    struct candidate *candidate; /* newest first */
    uint32_t candidates;
    struct hth_save_id watermark; /* newest that some keep list names */
    uint32_t serial;              /* of the plan; 0: none yet */
    uint32_t
            before; /* serial of the last plan of this epoch that an earlier engine of this node gave */
    uint64_t asked_ms; /* the members are asked for their inventories again then at the earliest */
    uint32_t beyond, passed;
    int same_job; /* the ranks that recover have recovered before: no job has ended */
    uint32_t
            tries; /* jobs that ended, for which one of `passed` is marked bad; 0: none is for that */
    int gone;      /* GO was sent */
    /* EPOCH_FAILED as it was sent, for a member that missed it. The first reason stays. */
    unsigned char failed[4 + HEARTH_ERROR_TEXT];
    size_t failed_len; /* 0: it was not sent */
    struct hth_save_id chosen;
    char lost_text[200];
    char ruled_out[HTH_RULED_OUT]; /* lines, each with its end */
    int ruled_more;                /* there was no room for more lines */
};

/* serial.c: how many plans were given, kept across a restart of the coordinator's engine */
struct given {
    uint32_t serial;     /* of this epoch's last plan; 0: none */
    unsigned char *plan; /* the caller frees it; NULL: it is not known */
    size_t len;
};
/* Errors: HEARTH_EUNSUPPORTED: then the record is not written over, and no plan may be given, since
 * the record's plan may be of this epoch. */
int serial_read(const struct hth_ctx *ctx, struct given *out, struct hearth_error *err);
/* record[len]: as core/format/plans.h has it. If there is no room for it, the serial alone is
 * written. */
int serial_write(const struct hth_ctx *ctx, uint32_t serial, const void *record, size_t len,
        struct hearth_error *err);

/* plan_send.c: the coordinator gives the plan, and sends GO */
void send_plan(struct hth_choice *co, struct candidate *c); /* NULL: nothing to recover */
void send_plan_again(struct hth_choice *co, struct gathered *g, uint32_t node);
void send_ask(struct hth_choice *co, uint64_t now_ms);
void send_go(struct hth_choice *co, uint32_t node); /* HTH_NODE_NONE: to all */

/* candidate.c */
struct candidate *candidate_find(struct hth_choice *co, struct hth_save_id id);
struct candidate *candidate_add(struct hth_choice *co, struct hth_save_id id); /* NULL: no memory */
/* Adds all saves of Hearth of which an inventory has the manifest. 0 or HEARTH_ENOMEM. */
int candidates_find(struct hth_choice *co);
void candidates_sort(struct hth_choice *co); /* newest first */
/* Writes the keep list that was taken over to the record. Errors: the store's. */
int candidates_keep(const struct hth_choice *co, struct hearth_error *err);
/* A manifest has come; 1: it is a candidate's that lacked it. */
int candidate_manifest(struct hth_choice *co, const struct hth_blob_id *id,
        const unsigned char *bytes, size_t len);
/* 1: the bytes of its manifest are here; 0: they have been requested. */
int candidate_has_manifest(struct hth_choice *co, struct candidate *c, uint64_t now_ms);
/* At GO: saves that the plan has not kept leave this node's list. This node keeps the manifests of
 * the saves on the list, for members that lack them. */
void candidates_leave(struct hth_choice *co);
void candidates_free(struct candidate *c, uint32_t count);

/* tries.c */
int tries_pass_over(const struct hth_choice *co, struct hth_save_id save);
void tries_mark(struct hth_choice *co, const struct candidate *chosen); /* NULL: none is whole */
void tries_go(struct hth_choice *co);                                   /* before GO is on record */

/* manifest_mismatch.c: 1: a node's manifest of a candidate differs from the manifest that counts,
 * so its runs mean nothing. The node is asked for lists, its inventory is not complete any more,
 * and there are no candidates. */
int manifests_mismatch(struct hth_choice *co);

/* gather.c */
int gather_ready(struct hth_choice *co); /* 0: no memory */
/* 1: the part is new, and may be the last. */
int gather_part(struct hth_choice *co, uint32_t origin, uint32_t part, uint32_t parts, uint32_t crc,
        const unsigned char *bytes, size_t len);
void gather_free(struct gathered *from, uint32_t nodes);

/* ruled_out.c: a step is not chosen: logged, and stored for ruled_out_tell() */
void rule_out(struct hth_choice *co, const char *event, const char *fmt, ...)
        __attribute__((format(printf, 3, 4)));
void ruled_out_tell(struct hth_choice *co, uint32_t node); /* HTH_NODE_NONE: to all */

/* fail.c: 1: the epoch has failed, and EPOCH_FAILED is sent to the node again */
int fail_again(struct hth_choice *co, uint32_t node);

/* background.c: what a worker does. One at a time: while co->background is set the choice waits. */
typedef void background_done_fn(struct hth_choice *co);
/* A worker finds whether the candidate is whole or lost. `done` runs when that is known, or if its
 * manifest is damaged. */
void background_check(struct hth_choice *co, struct candidate *c, background_done_fn *done);
struct made { /* a plan; `done` may take parts of it over, and leaves NULL or zeros there */
    struct hth_plan plan;
    unsigned char *bytes; /* as it goes down */
    size_t len;
    unsigned char digest[HTH_DIGEST]; /* of them */
    unsigned char *record;            /* as it goes on record */
    size_t record_len;
};
typedef void made_fn(struct hth_choice *co, struct made *made);
/* `plan` has everything but the nodes that have the objects, which come from c. NULL: no save is
 * chosen. */
void background_plan(
        struct hth_choice *co, const struct hth_plan *plan, struct candidate *c, made_fn *done);
void background_abandon(
        struct hth_choice *co); /* a worker keeps inventories and candidates that it reads */
void background_close(struct hth_choice *co); /* the workers have ended */

/* The `.metadata` of a foreign candidate has been fetched or read, or cannot be had. */
typedef void foreign_done_fn(struct hth_choice *co);

/* foreign_whole.c: the coordinator */
/* Finds whether the foreign step is whole. 0: not known yet, `done` runs when it may be. 1: known;
 * if it is not whole, c->lost is set, with a sentence. */
int foreign_look(struct hth_choice *co, struct candidate *c, foreign_done_fn *done);
/* 1: the choice waits for a `.metadata`; `out` names it, and whether it is fetched or read. */
int foreign_waits(const struct hth_choice *co, char *out, size_t len);

/* foreign_names.c: a worker reads a `.metadata` that is held here, into c->names. 0 or
 * HEARTH_ENOMEM. */
int names_start(struct hth_choice *co, struct candidate *c, const struct hth_held *held,
        foreign_done_fn *done);
const struct names_found *names_found(const struct names *n); /* NULL: it is still being read */
void names_leave(struct names *n);       /* the choice does not wait any more; NULL: nothing */
void names_close(struct hth_choice *co); /* the workers have ended */

/* foreign_match.c, on a worker. *out_file: a file whose items differ from md, or UINT32_MAX. */
int names_match(struct hearth_metadata *md, const struct hth_manifest *files,
        const struct hth_foreign_look *look, uint32_t *out_file);

/* foreign_files.c: of each foreign step a candidate, with a manifest and a look */
int foreign_candidates(struct hth_choice *co); /* 0 or HEARTH_ENOMEM */
int foreign_encode(struct candidate *c);       /* c->manifest into c->bytes */
const struct hth_object *foreign_file_find(const struct hth_manifest *files, const char *name);

#endif
