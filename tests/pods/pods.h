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
    struct hearth_opts opts; /* of its rank */
    pid_t pods;              /* the program's pid, outside */
    char skip[200];          /* why the condition cannot be made on this system */
};

struct condition {
    const char *name;
    /* As root, before the trainer is there; 0, or -1 with a reason in skip. NULL: nothing. */
    int (*plant)(struct pod *p);
    /* In the trainer's process, last: its rights and limits. NULL: none. */
    int (*enter)(struct pod *p);
    /* In the trainer's process, before each of its two opens, turn 0 and 1, and before each of its
     * saves: what happens to the pod. Not 0: wrong, with a reason in err. NULL: nothing. */
    int (*opens)(struct pod *p, unsigned turn, struct hearth_error *err);
    int (*saves)(struct pod *p, struct hearth *h, uint64_t step, struct hearth_error *err);
    unsigned ranks;           /* 2: two pods, each with a rank and a root of its own; 0: one */
    const char *mount;        /* options of the root's tmpfs; NULL: size=64m,mode=1777 */
    const char *cause, *cure; /* of the refusal, in its words; NULL: the job works */
    const char *arg;
    int is_first; /* the trainer is the pod's process 1 */
};

extern const struct condition conditions[];
extern const unsigned condition_count;

/* In the trainer: two saves, a second open that recovers the newer one byte for byte, the end. 0;
 * or -1 and the error in `said`. */
int pod_job(struct pod *p, char *said, size_t len);

/* One save, which has to be PROTECTED within ms. */
int pod_save(struct hearth *h, uint64_t step, int ms, struct hearth_error *err);

/* What happens meanwhile (meanwhile.c). plant: skips where the system lacks the right. */
int plant_freezer_v1(struct pod *p);
int plant_freezer_v2(struct pod *p);
int engine_is_frozen(struct pod *p, struct hearth *h, uint64_t step, struct hearth_error *err);
int trainer_is_frozen(struct pod *p, struct hearth *h, uint64_t step, struct hearth_error *err);
int second_pod_has_a_group(struct pod *p, unsigned turn, struct hearth_error *err);
int second_pod_is_frozen(struct pod *p, struct hearth *h, uint64_t step, struct hearth_error *err);
void freezer_end(pid_t pods, const struct condition *c); /* outside: what a pod has left */
int host_name_is_new(struct pod *p, unsigned turn, struct hearth_error *err);
int plant_clock(struct pod *p);
int clock_is_apart(struct pod *p, unsigned turn, struct hearth_error *err);
int clock_jumps_ahead(struct pod *p, struct hearth *h, uint64_t step, struct hearth_error *err);
int clock_jumps_back(struct pod *p, struct hearth *h, uint64_t step, struct hearth_error *err);

/* -1, with the reason in p->skip. */
int pod_skip(struct pod *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
