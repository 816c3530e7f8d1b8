/* SPDX-License-Identifier: Apache-2.0 */
/* The common part of all works on objects of this node: the object is pinned from begin to free. */
/* For this folder alone. */
#ifndef REPLICATION_JOBS_H
#define REPLICATION_JOBS_H

#include "seal.h"

/* The first member of the struct of each kind of work. */
struct hth_job {
    struct hth_ctx *ctx;
    struct hth_held_save *save; /* pinned with held */
    struct hth_held *held;
    int code;
    struct hearth_error err;
    hth_sealed_fn *done;
    void *self;
    void (*dispose)(struct hth_job *job); /* frees the kind's whole struct */
    struct hth_job *next;
};

/* ctx, done, self and dispose are set. */
void hth_job_begin(struct hth_job *job, struct hth_held_save *save, struct hth_held *held);
/* `done` gets the code, or HEARTH_ECANCELED if the object was dropped meanwhile. */
void hth_job_end(struct hth_job *job);
void hth_job_free(struct hth_job *job); /* after its end */

#endif
