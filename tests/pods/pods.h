/* SPDX-License-Identifier: Apache-2.0 */
/* What containers and pods do to a job: each condition is planted, and the job
 * works or is refused. */
#ifndef PODS_H
#define PODS_H

#include <hearth/hearth.h>
#include <sys/types.h>

#define POD_ROOT "/mnt/h" /* of each pod: a mount of its own */
#define POD_JOB  POD_ROOT "/k"
#define POD_KEY  "/mnt/key" /* beside the root, on another tmpfs */

/* A pod as its conditions see it: mount, network, host name and process namespaces of its own. */
struct pod {
    const struct condition *condition;
    struct hearth_opts opts; /* of its only rank */
    char skip[200];          /* why the condition cannot be made on this system */
};

struct condition {
    const char *name;
    /* As root, before the trainer is there; 0, or -1 with a reason in skip. NULL: nothing. */
    int (*plant)(struct pod *p);
    /* In the trainer's process, last: its rights and limits. NULL: none. */
    int (*enter)(struct pod *p);
    const char *mount;        /* options of the root's tmpfs; NULL: size=64m,mode=1777 */
    const char *cause, *cure; /* of the refusal, in its words; NULL: the job works */
    const char *arg;
    int is_first; /* the trainer is the pod's process 1 */
};

extern const struct condition conditions[];
extern const unsigned condition_count;

/* In the trainer: two saves, a second open that recovers the newer one byte for byte, the end.
 * 0; or -1 and what was said. */
int pod_job(struct pod *p, char *said, size_t len);

/* -1, with the reason in p->skip. */
int pod_skip(struct pod *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
