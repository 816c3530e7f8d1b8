/* SPDX-License-Identifier: Apache-2.0 */
/* A job and its engine, as commands about a running job begin. */
/* For this folder alone. */
#ifndef HEARTH_CLI_RUNNING_H
#define HEARTH_CLI_RUNNING_H

#include "cli.h"
#include "core/local/local.h"

struct running {
    int fd; /* the job's directory */
    char name[256];
    json_t *status; /* the engine's answer to STATUS; NULL: there is none */
    char why[300];  /* NULL: the job should have an engine that answers, in a sentence; "": none
                     * runs, and the last one ended in order */
    int is_others;  /* 1: the engine is another user's, and answers to that user and to root */
};

/* The job, and its engine's status if one answers. Errors: HEARTH_ENOENT: there is no such job;
 * HEARTH_EINVAL, HEARTH_EIO. */
int running_open(const char *root, const char *name, struct running *out, struct hearth_error *err);
/* The same; it is an error if no engine answers. HEARTH_ENOENT: none runs; HEARTH_EENGINE. */
int running_need(const char *root, const char *name, struct running *out, struct hearth_error *err);
void running_free(struct running *r);

/* The names in a root that may be jobs; as names_in(). */
char **running_names(const char *root, struct hearth_error *err);

/* A page of its engine's NODES; NULL: err says why. */
json_t *engine_members(int job, uint32_t skip, struct hearth_error *err);

#endif
