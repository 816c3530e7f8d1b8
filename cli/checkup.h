/* SPDX-License-Identifier: Apache-2.0 */
/* The checks of `hearth doctor`: what they look at, and what they find. */
/* For this folder alone. */
#ifndef CLI_CHECKUP_H
#define CLI_CHECKUP_H

#include "doctor.h"

#include "core/store/room.h"
#include "core/store/store_tmpfs.h"
#include <sys/stat.h>
#include <sys/vfs.h>

enum state {
    STATE_OK,
    STATE_UNKNOWN, /* cannot be seen from here: no finding, and no "ok" either */
    STATE_RISK,
    STATE_BROKEN,
};

struct finding {
    const char *check; /* its name in the table of checkup.c */
    enum state state;
    char text[700];
    char remedy[500]; /* commands, or a line of configuration; "": none is known */
};

/* A job of the root. */
struct patient {
    char name[256];
    int fd;
    struct stat st;
    struct hth_lock_holder engine;
    json_t *status; /* the engine's; NULL: none runs, or it does not answer */
};

struct checkup {
    const char *root; /* NULL: none is named */
    char shown[4200]; /* the root as a shell takes it, and the mount that it lies on */
    char mount[1100];
    const char *job; /* this one alone; NULL: all */
    struct hearth_error root_err, env_err;
    int root_fd; /* -1: root_err says why */
    struct stat at;
    struct hth_room room; /* of the root, if root_fd >= 0 */
    struct hth_pages pages;
    struct doctor net;
    struct patient *patient; /* [patients] */
    unsigned patients;
    unsigned closed;   /* jobs that this user may not look into: another user's */
    const char *check; /* that runs now */
    struct finding *found;
    unsigned count;
};

/* ---- finding.c ---- */

/* One more finding of the check that runs. */
void found(struct checkup *c, enum state state, const char *fmt, ...) HTH_PRINTF(3, 4);
/* Its remedy: lines of commands that a shell takes as they are, or that say how. A line that is too
 * long is left out, since half a command may be another command. */
void remedy(struct checkup *c, const char *fmt, ...) HTH_PRINTF(2, 3);
/* A name or path as one word of a shell, "'?'" if it is too long; returns out. */
const char *shell_word(const char *name, char *out, size_t len);
/* A line "NAME   SOFT   HARD" of /proc/WHO/limits; UINT64_MAX: no limit. 0; -1: it cannot be
 * read. */
int limit_of(const char *who, const char *name, uint64_t *out_soft, uint64_t *out_hard);

/* ---- see_root.c: the tmpfs ---- */
void see_root(struct checkup *c);
void see_use(struct checkup *c);
void see_size(struct checkup *c);
void see_need(struct checkup *c);
void see_inodes(struct checkup *c);
void see_huge(struct checkup *c);
void see_swap(struct checkup *c);
void see_owners(struct checkup *c);

/* ---- see_limits.c: what this process and the container may take ---- */
void see_cgroup(struct checkup *c);
void see_memlock(struct checkup *c);
void see_files(struct checkup *c);
void see_file_size(struct checkup *c);
void see_threads(struct checkup *c);
void see_shm(struct checkup *c);
void see_clock(struct checkup *c);

/* ---- see_network.c ---- */
void see_settings(struct checkup *c);
void see_interface(struct checkup *c);
void see_listening(struct checkup *c);
void see_port(struct checkup *c);
void see_tcp(struct checkup *c);

/* ---- see_jobs.c ---- */
void see_engines(struct checkup *c);
void see_versions(struct checkup *c);
void see_logs(struct checkup *c);
void see_mtu(struct checkup *c);

/* ---- pairs.c: doctor --pairs ---- */
enum status doctor_pairs(const struct args *a);

#endif
