/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The end of a job's memory: all that is Hearth's in its directory goes, under the lock, by
 * descriptors and through no link. Files that are not Hearth's stay, and so does the directory that
 * they are in. The lock file goes last; an engine that waited for the lock sees that its file was
 * removed, and opens the store anew (store_tmpfs.c).
 */
#include "tmpfs.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#define DEPTH 8 /* of folders below .hearth; a save's has none */

struct sweep {
    int dir, depth;
    const char *spared; /* NULL: none */
};

static void sweep_dir(int dir, int depth, const char *spared);

static void sweep_entry(void *arg, const char *name)
{
    const struct sweep *s = arg;
    int fd;

    if ((s->spared && !strcmp(name, s->spared)) || !unlinkat(s->dir, name, 0))
        return;
    fd = hth_sys_open_dir(s->dir, name);
    if (fd < 0)
        return;
    if (s->depth)
        sweep_dir(fd, s->depth - 1, NULL);
    close(fd);
    unlinkat(s->dir, name, AT_REMOVEDIR);
}

static void sweep_dir(int dir, int depth, const char *spared)
{
    struct sweep s = { dir, depth, spared };

    hth_sys_each(dir, sweep_entry, &s);
}

void hth_store_tmpfs_erase(struct hth_store *s, int keep_records)
{
    struct hth_tmpfs *t = hth_tmpfs_of(s);

    hth_point(&t->opts.points, "erase");
    sweep_dir(t->pool_fd, DEPTH, NULL);
    sweep_dir(t->evidence_fd, DEPTH, NULL);
    if (keep_records)
        return;
    sweep_dir(t->own_fd, DEPTH, "lock");
    unlinkat(t->own_fd, "lock", 0);
    unlinkat(t->job_fd, HTH_RECORDS_DIR, AT_REMOVEDIR);
    unlinkat(t->root_fd, t->job, AT_REMOVEDIR);
}
