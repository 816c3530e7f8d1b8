/* SPDX-License-Identifier: Apache-2.0 */
/* What an engine and what it keeps weigh, as the kernel says it. */
#include "cluster.h"

#include <dirent.h>
#include <ftw.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

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

static unsigned open_files(pid_t pid)
{
    char path[64];
    unsigned count = 0;
    struct dirent *e;
    DIR *d;

    snprintf(path, sizeof(path), "/proc/%ld/fd", (long)pid);
    d = opendir(path);
    while (d && (e = readdir(d)))
        count += e->d_name[0] != '.';
    if (d)
        closedir(d);
    return count;
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
    out->files = open_files(out->pid);
    node_path(w, k, "", dir, sizeof(dir));
    blocks = 0;
    nftw(dir, add_blocks, 16, FTW_PHYS);
    out->store_kib = blocks / 2;
    return 0;
}
