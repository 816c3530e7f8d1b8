/* SPDX-License-Identifier: Apache-2.0 */
/* What an engine and what it keeps weigh, as the kernel says it. */
#include "cluster.h"

#include <dirent.h>
#include <ftw.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static uint64_t status_kib(pid_t pid, const char *field)
{
    char path[64], line[256];
    uint64_t kib = 0;
    FILE *f;

    snprintf(path, sizeof(path), "/proc/%ld/status", (long)pid);
    f = fopen(path, "re");
    while (f && fgets(line, sizeof(line), f))
        if (!strncmp(line, field, strlen(field)))
            kib = strtoull(line + strlen(field), NULL, 10);
    if (f)
        fclose(f);
    return kib;
}

struct kind {
    char name[64]; /* without numbers */
    unsigned count;
};

/* The kind of a descriptor: "socket:", "/NAME", "anon_inode:[eventfd]". */
static void kind_of(int dir, const char *fd, char out[64])
{
    char path[300];
    ssize_t len = readlinkat(dir, fd, path, sizeof(path) - 1);
    const char *name = path;
    size_t n = 0;

    path[len < 0 ? 0 : len] = '\0';
    if (path[0] == '/' && strncmp(path, "/dev", 4) != 0)
        name = strrchr(path, '/');
    for (; *name && n < 63; name++)
        if (!strchr("0123456789", *name))
            out[n++] = *name;
    out[n] = '\0';
}

static unsigned open_files(pid_t pid, struct kind *kinds, unsigned max)
{
    char path[64], name[64];
    unsigned count = 0, i;
    struct dirent *e;
    DIR *d;

    snprintf(path, sizeof(path), "/proc/%ld/fd", (long)pid);
    d = opendir(path);
    while (d && (e = readdir(d))) {
        if (e->d_name[0] == '.')
            continue;
        count++;
        kind_of(dirfd(d), e->d_name, name);
        for (i = 0; i < max && kinds[i].count && strcmp(kinds[i].name, name) != 0;)
            i++;
        if (i == max)
            continue;
        memcpy(kinds[i].name, name, sizeof(name));
        kinds[i].count++;
    }
    if (d)
        closedir(d);
    return count;
}

/* Whom it has TCP connections with, in whatever state. */
static void connections_say(struct world *w, pid_t pid)
{
    unsigned char a[4];
    unsigned own, port, state;
    char path[64], line[256];
    FILE *f;

    snprintf(path, sizeof(path), "/proc/%ld/net/tcp", (long)pid);
    f = fopen(path, "re");
    while (f && fgets(line, sizeof(line), f))
        if (sscanf(line, " %*u: %*8x:%x %2hhx%2hhx%2hhx%2hhx:%x %x", &own, &a[3], &a[2], &a[1],
                    &a[0], &port, &state) == 7)
            note(w, "  TCP, port %u, with %u.%u.%u.%u:%u in state %x", own, a[0], a[1], a[2], a[3],
                    port, state);
    if (f)
        fclose(f);
}

void engine_files_say(struct world *w, uint32_t k)
{
    struct kind kinds[40] = { 0 };
    unsigned files = open_files(node_engine(w, k), kinds, 40);

    note(w, "engine of %s has %u files open:", w->node[k].name, files);
    for (unsigned i = 0; i < 40 && kinds[i].count; i++)
        note(w, "  %u %s", kinds[i].count, kinds[i].name);
    connections_say(w, node_engine(w, k));
}

static uint64_t blocks; /* nftw() has no argument of ours */

static int add_blocks(const char *path, const struct stat *st, int flag, struct FTW *at)
{
    const char *name = path + at->base;

    if (flag == FTW_F && strncmp(name, "log", 3) != 0) /* they grow up to a bound of their own */
        blocks += (uint64_t)st->st_blocks;
    return 0;
}

int engine_weigh(struct world *w, uint32_t k, struct weight *out)
{
    char dir[300];

    *out = (struct weight){ .pid = node_engine(w, k) };
    if (!out->pid)
        return lost(w, "machine %s has no engine to be weighed", w->node[k].name);
    memcpy(out->name, w->node[k].name, sizeof(out->name));
    out->kib = status_kib(out->pid, "RssAnon:");
    out->files = open_files(out->pid, NULL, 0);
    node_path(w, k, "", dir, sizeof(dir));
    blocks = 0;
    nftw(dir, add_blocks, 16, FTW_PHYS);
    out->store_kib = blocks / 2;
    return 0;
}
