/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The nodes that have each object of a manifest, as runs of neighbours that the same nodes have: in
 * memory and in a plan. All objects of a node's ranks lie on the same nodes, so a run is mostly all
 * that a node owns. Layout: runs.c.
 */
#ifndef HEARTH_LOADER_PLAN_RUNS_H
#define HEARTH_LOADER_PLAN_RUNS_H

#include "core/base/bytes.h"
#include "core/base/fail.h"

#define HTH_PLAN_SOURCES 8u /* holders of one object that a plan names */

/* The holders of one object, best first. */
struct hth_sources {
    uint32_t count;
    uint32_t node[HTH_PLAN_SOURCES];
};

struct hth_run {
    uint32_t first; /* object; the run ends where the next one begins */
    uint32_t count;
    uint32_t node[HTH_PLAN_SOURCES]; /* each once */
};

struct hth_runs {
    uint32_t objects; /* of the manifest */
    uint32_t runs;
    struct hth_run *run; /* [runs]; hth_runs_fini() frees both */
    uint8_t *best;       /* [objects] which of its run's nodes is asked first */
};

/* Errors: HEARTH_ENOMEM. */
int hth_runs_make(struct hth_runs *out, const struct hth_sources *sources, uint32_t objects,
        struct hearth_error *err);
void hth_runs_write(struct hth_writer *w, const struct hth_runs *r);
/* Reads all up to the reader's end; the bytes may be hostile. Errors: HEARTH_EPROTO,
 * HEARTH_ENOMEM. */
int hth_runs_read(
        struct hth_reader *in, uint32_t objects, struct hth_runs *out, struct hearth_error *err);
/* The holders of an object; none if there is no such object. */
void hth_runs_get(const struct hth_runs *r, uint32_t object, struct hth_sources *out);
void hth_runs_fini(struct hth_runs *r);

#endif
