/* SPDX-License-Identifier: Apache-2.0 */
/* How much memory a file on a tmpfs may still take: three limits, none of which knows the
 * others. */
#ifndef HEARTH_CORE_STORE_ROOM_H
#define HEARTH_CORE_STORE_ROOM_H

#include "core/base/fail.h"

#define HTH_ROOM_NONE UINT64_MAX /* no limit of this kind, or none that can be read */

struct hth_room {
    uint64_t mount;  /* bytes free in the file system */
    uint64_t size;   /* of the file system */
    uint64_t cgroup; /* least headroom to memory.max or memory.high of a cgroup above */
    uint64_t cgroup_max, cgroup_used; /* of that cgroup: its limit, and what counts against it */
    const char *unseen; /* why a cgroup's limit may hold that was not seen, a clause; NULL */
    /* Bytes of tmpfs charged to the widest cgroup that can be seen, if cgroups above it cannot be
     * seen: memory of this job beyond that is charged above. NONE: all cgroups can be seen */
    uint64_t charged;
    uint64_t memory; /* MemAvailable */
    uint64_t others; /* bytes that were taken off these, as promised to other engines */
    uint64_t
            taken; /* of the margin, by files that it is for: the mount keeps no more free for those */
    const char *whose; /* a clause that names the job which takes the room; NULL */
    int tmpfs;         /* cgroup and memory count only there */
};

/* Look at the file system of `dir_fd`, and at <proc>/self/cgroup, <proc>/self/mountinfo and
 * <proc>/meminfo; proc NULL: /proc. Cgroups of both versions, each from ours up to the top of
 * what is mounted; page cache that can be dropped counts as room, as the kernel does it.
 * Errors: HEARTH_EIO when the file system does not answer. */
int hth_room_look(int dir_fd, const char *proc, struct hth_room *out, struct hearth_error *err);

/* The memory limit that leaves a process the least: of its cgroup, or of one above. */
struct hth_limit {
    uint64_t room;   /* bytes left below it, which also pages of a tmpfs take; NONE: no limit */
    uint64_t bytes;  /* the limit */
    uint64_t used;   /* what counts against it */
    char file[1024]; /* that has it: "/sys/fs/cgroup/a/memory.max" */
};
/* Of the process `who`: "self", or a pid. proc as above. Returns NULL, or why a limit may hold that
 * was not seen, a clause. */
const char *hth_room_limit(const char *proc, const char *who, struct hth_limit *out);

/* The least of the three, less `margin`. */
uint64_t hth_room_least(const struct hth_room *room, uint64_t margin);

/* HEARTH_OK when `bytes` fit, else HEARTH_ENOSPC with the three numbers and what to do; `where`
 * is the directory's name for the sentence. */
int hth_room_fits(const struct hth_room *room, uint64_t bytes, uint64_t margin, const char *where,
        struct hearth_error *err);

#endif
