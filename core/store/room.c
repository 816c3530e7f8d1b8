/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The room that is left. A tmpfs of 1 TiB in a cgroup of 256 GiB on a machine with 128 GiB
 * available has room for 128 GiB; asking it for more ends in the OOM killer, not in an error. So
 * the mount, every cgroup up to the top, and the machine are asked before the first byte.
 */
#include "room.h"

#include "core/base/open.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#define PATH_BYTES 4096
#define TEXT_BYTES 262144
#define UNLIMITED  (UINT64_C(1) << 62) /* cgroup v1 says "none" with about 2^63 */

/* A small file of /proc or a cgroup, NUL-terminated; NULL when it cannot be read. The caller frees
 * it. Text beyond TEXT_BYTES is cut. */
static char *room_text_of(const char *path)
{
    char *text = malloc(TEXT_BYTES);
    int fd = hth_open_kernel(path, O_RDONLY);
    size_t len = 0;
    ssize_t n = 0;

    if (!text || fd < 0) {
        free(text);
        if (fd >= 0)
            close(fd);
        return NULL;
    }
    while (len < TEXT_BYTES - 1) {
        n = read(fd, text + len, TEXT_BYTES - 1 - len);
        if (n <= 0)
            break;
        len += (size_t)n;
    }
    close(fd);
    text[len] = '\0';
    return text;
}

/* The number after `key` at the front of a line ("" for the whole file), or `none`. */
static uint64_t number_in(const char *text, const char *key, uint64_t none)
{
    size_t len = strlen(key);

    for (const char *line = text; line && *line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (!strncmp(line, key, len)) {
            const char *p = line + len;
            p += strspn(p, ": \t");
            return *p >= '0' && *p <= '9' ? strtoull(p, NULL, 10) : none;
        }
    }
    return none;
}

static uint64_t room_number_at(
        const char *dir, size_t dir_len, const char *file, const char *key, uint64_t none)
{
    char path[PATH_BYTES];
    char *text;
    uint64_t v;

    snprintf(path, sizeof(path), "%.*s/%s", (int)dir_len, dir, file);
    text = room_text_of(path);
    if (!text)
        return none;
    v = number_in(text, key, none);
    free(text);
    return v;
}

/* The files of the two versions. */
struct version {
    const char *fstype;
    const char *limit, *usage;
    const char *high; /* from here on the kernel stalls those that make pages; NULL: none */
    const char *inactive, *active; /* lines of memory.stat: page cache, which the kernel can drop */
    const char *tmpfs;             /* line for pages of tmpfs and shared memory */
};

static const struct version versions[] = {
    { "cgroup2", "memory.max", "memory.current", "memory.high", "inactive_file ", "active_file ",
            "shmem " },
    { "cgroup", "memory.limit_in_bytes", "memory.usage_in_bytes", NULL, "total_inactive_file ",
            "total_active_file ", "total_shmem " },
};

/* *out_file: the file that has it. */
static uint64_t cgroup_limit(
        const struct version *v, const char *path, size_t len, const char **out_file)
{
    uint64_t max = room_number_at(path, len, v->limit, "", HTH_ROOM_NONE);
    uint64_t high = v->high ? room_number_at(path, len, v->high, "", HTH_ROOM_NONE) : HTH_ROOM_NONE;

    *out_file = high < max ? v->high : v->limit;
    return high < max ? high : max;
}

/* Bytes that count against a limit of the cgroup: page cache makes way for others. */
static uint64_t cgroup_used(const struct version *v, const char *path, size_t len)
{
    uint64_t used = room_number_at(path, len, v->usage, "", 0);
    uint64_t cache = room_number_at(path, len, "memory.stat", v->inactive, 0) +
                     room_number_at(path, len, "memory.stat", v->active, 0);

    return used - (cache < used ? cache : used);
}

/* The limit with the least room, of `path` and the directories above it, down to its first `top`
 * bytes. */
static void cgroup_least(
        const struct version *v, const char *path, size_t top, struct hth_limit *least)
{
    size_t len = strlen(path);

    while (len >= top && len > 0) {
        const char *file;
        uint64_t limit = cgroup_limit(v, path, len, &file);
        uint64_t used = limit < UNLIMITED ? cgroup_used(v, path, len) : 0;
        uint64_t left = limit >= UNLIMITED ? HTH_ROOM_NONE : used < limit ? limit - used : 0;

        if (left < least->room) {
            least->room = left;
            least->bytes = limit;
            least->used = used;
            snprintf(least->file, sizeof(least->file), "%.*s/%s", (int)len, path, file);
        }
        if (len == top)
            break;
        do
            len--;
        while (len > top && path[len] != '/');
    }
}

/* Our path in the hierarchy of this version: `0::/a/b`, or `4:memory:/a/b`. */
static int path_in(const char *cgroups, const struct version *v, char out[PATH_BYTES])
{
    int second = v == &versions[0];

    for (const char *line = cgroups; line && *line; line = strchr(line, '\n')) {
        const char *list, *path;
        size_t len;

        line += *line == '\n';
        list = strchr(line, ':');
        path = list ? strchr(list + 1, ':') : NULL;
        if (!path)
            continue;
        len = (size_t)(path - list - 1);
        if (second ? len != 0 : !memmem(list + 1, len, "memory", 6))
            continue;
        path++;
        len = strcspn(path, "\n");
        if (len >= PATH_BYTES)
            continue;
        memcpy(out, path, len);
        out[len] = '\0';
        return 1;
    }
    return 0;
}

/* One line of mountinfo: `id parent major:minor ROOT MOUNT options ... - FSTYPE source OPTIONS`. */
static int mount_line(
        const char *line, const struct version *v, char root[PATH_BYTES], char mount[PATH_BYTES])
{
    char fstype[64], options[1024] = "";
    const char *dash;

    if (sscanf(line, "%*s %*s %*s %4095s %4095s", root, mount) != 2)
        return 0;
    dash = strstr(line, " - ");
    if (!dash || sscanf(dash, " - %63s %*s %1023[^\n]", fstype, options) < 1)
        return 0;
    if (strcmp(fstype, v->fstype) != 0)
        return 0;
    return v == &versions[0] || strstr(options, "memory") != NULL;
}

/* *out_seen: 1 if this version is mounted. *out_charged: bytes of tmpfs of the widest cgroup, if a
 * limit of this version is the least. */
static void cgroup_look(const char *cgroups, const char *mounts, const struct version *v,
        struct hth_limit *least, int *out_seen, uint64_t *out_charged)
{
    char ours[PATH_BYTES], root[PATH_BYTES], mount[PATH_BYTES], path[2 * PATH_BYTES];

    if (!path_in(cgroups, v, ours))
        return;
    for (const char *line = mounts; line && *line; line = strchr(line, '\n')) {
        size_t root_len;
        uint64_t was;

        line += *line == '\n';
        if (!mount_line(line, v, root, mount))
            continue;
        /* A container sees its part of the hierarchy mounted; what lies outside is not ours. */
        *out_seen = 1;
        root_len = strcmp(root, "/") != 0 ? strlen(root) : 0;
        if (!strncmp(ours, root, root_len) && !strstr(ours, "/.."))
            snprintf(path, sizeof(path), "%s%s", mount, ours + root_len);
        else
            snprintf(path, sizeof(path), "%s", mount);
        while (path[0] && path[strlen(path) - 1] == '/')
            path[strlen(path) - 1] = '\0';
        was = least->room;
        cgroup_least(v, path, strlen(mount), least);
        if (least->room < was)
            *out_charged =
                    room_number_at(mount, strlen(mount), "memory.stat", v->tmpfs, HTH_ROOM_NONE);
        return;
    }
}

/* The first cgroup namespace of a machine has this number. */
#define FIRST_NAMESPACE 0xEFFFFFFBu

static int in_namespace(const char *proc)
{
    char path[PATH_BYTES];
    struct stat st;
    int fd, is;

    snprintf(path, sizeof(path), "%s/self/ns/cgroup", proc);
    fd = hth_open_kernel(path, O_RDONLY);
    is = fd >= 0 && !fstat(fd, &st) && st.st_ino != FIRST_NAMESPACE;
    if (fd >= 0)
        close(fd);
    return is;
}

static char *room_proc_text(const char *proc, const char *who, const char *file)
{
    char path[PATH_BYTES];

    snprintf(path, sizeof(path), "%s/%s/%s", proc, who, file);
    return room_text_of(path);
}

static const char *least_cgroup(
        const char *proc, const char *who, struct hth_limit *least, uint64_t *out_charged)
{
    char *cgroups = room_proc_text(proc, who, "cgroup");
    char *mounts = room_proc_text(proc, "self", "mountinfo");
    uint64_t charged = HTH_ROOM_NONE;
    int seen = 0, within = in_namespace(proc);

    *least = (struct hth_limit){
        .room = HTH_ROOM_NONE, .bytes = HTH_ROOM_NONE, .used = HTH_ROOM_NONE
    };
    for (size_t i = 0; cgroups && mounts && i < sizeof(versions) / sizeof(versions[0]); i++)
        cgroup_look(cgroups, mounts, &versions[i], least, &seen, &charged);
    *out_charged = within ? charged : HTH_ROOM_NONE;
    free(cgroups);
    free(mounts);
    if (!seen)
        return "no cgroups are mounted here (/sys/fs/cgroup)";
    return least->room == HTH_ROOM_NONE && within
                   ? "this container's own cgroup has none, and those above it cannot be seen from "
                     "here"
                   : NULL;
}

const char *hth_room_limit(const char *proc, const char *who, struct hth_limit *out)
{
    uint64_t charged;

    return least_cgroup(proc ? proc : "/proc", who, out, &charged);
}

int hth_room_look(int dir_fd, const char *proc, struct hth_room *out, struct hearth_error *err)
{
    struct hth_limit limit;
    struct statfs fs;
    uint64_t kib;

    if (fstatfs(dir_fd, &fs))
        return hth_fail(err, HEARTH_EIO, errno,
                "the file system does not report how full it is: %s", strerrordesc_np(errno));
    proc = proc ? proc : "/proc";
    out->tmpfs = fs.f_type == TMPFS_MAGIC;
    out->size = (uint64_t)fs.f_blocks * (uint64_t)fs.f_bsize;
    out->mount = (uint64_t)fs.f_bavail * (uint64_t)fs.f_bsize;
    out->cgroup = out->memory = out->charged = HTH_ROOM_NONE;
    out->cgroup_max = out->cgroup_used = HTH_ROOM_NONE;
    out->taken = out->others = 0;
    out->unseen = out->whose = NULL;
    if (!out->tmpfs)
        return 0;
    if (!out->size) /* mounted with size=0: no limit */
        out->size = out->mount = HTH_ROOM_NONE;
    out->unseen = least_cgroup(proc, "self", &limit, &out->charged);
    out->cgroup = limit.room;
    out->cgroup_max = limit.bytes;
    out->cgroup_used = limit.used;
    kib = room_number_at(proc, strlen(proc), "meminfo", "MemAvailable:", HTH_ROOM_NONE);
    if (kib != HTH_ROOM_NONE)
        out->memory = kib * 1024;
    return 0;
}

static uint64_t room_less(uint64_t bytes, uint64_t margin)
{
    return bytes > margin ? bytes - margin : 0;
}

/* *out_whose: the limit that it comes from. */
static uint64_t room_least_of(const struct hth_room *room, uint64_t margin, const char **out_whose)
{
    uint64_t least = room_less(room->mount, margin > room->taken ? margin - room->taken : 0);

    *out_whose = "its file system";
    if (room_less(room->cgroup, margin) < least) {
        least = room_less(room->cgroup, margin);
        *out_whose = "its cgroup";
    }
    if (room_less(room->memory, margin) < least) {
        least = room_less(room->memory, margin);
        *out_whose = "the machine's memory";
    }
    return least;
}

uint64_t hth_room_least(const struct hth_room *room, uint64_t margin)
{
    const char *whose;

    return room_least_of(room, margin, &whose);
}

/* "12345 bytes", or "no limit". */
static const char *room_shown(uint64_t bytes, char out[40])
{
    if (bytes == HTH_ROOM_NONE)
        return "no limit";
    snprintf(out, 40, "%" PRIu64 " bytes", bytes);
    return out;
}

int hth_room_fits(const struct hth_room *room, uint64_t bytes, uint64_t margin, const char *where,
        struct hearth_error *err)
{
    char mount[40], cgroup[40], memory[40], others[100] = "";
    const char *whose;
    uint64_t least = room_least_of(room, margin, &whose);

    if (bytes <= least)
        return 0;
    if (room->others)
        snprintf(others, sizeof(others), " (less %" PRIu64 " bytes promised to other engines here)",
                room->others);
    /* Other nodes receive the first half only: a sentence between nodes has 190 bytes. */
    return hth_fail(err, HEARTH_ENOSPC, 0,
            "%" PRIu64 " bytes do not fit: %s has room for %" PRIu64
            "; raise that, or lower keep or copies if above 1%s (in %.100s: free in its file "
            "system %s, up to the cgroup's limit %s, available memory %s%s, of which %" PRIu64
            " stay free)",
            bytes, whose, least, room->whose ? room->whose : "", where,
            room_shown(room->mount, mount), room_shown(room->cgroup, cgroup),
            room_shown(room->memory, memory), others, margin);
}
