/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The end of large files. The last munmap() or close() of an unlinked file frees its pages, which
 * takes a tenth of a second for each half GiB: where there are workers, one of them does it.
 */
#include "tmpfs.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#define AT_ONCE (UINT64_C(8) << 20) /* bytes that may be freed on the engine's thread */

struct tmpfs_release {
    struct hth_work work; /* first */
    struct tmpfs_release *next;
    struct hth_tmpfs *store;
    void *base; /* [len], or NULL */
    uint64_t len;
    int fd; /* or -1 */
};

#define release_of(work_at) ((struct tmpfs_release *)(void *)(work_at))

static void release_now(void *base, uint64_t len, int fd)
{
    if (base)
        hth_sys_unmap(base, len);
    if (fd >= 0)
        close(fd);
}

static void release_run(struct hth_work *work)
{
    struct tmpfs_release *r = release_of(work);

    release_now(r->base, r->len, r->fd);
    r->base = NULL;
    r->fd = -1;
}

static void release_done(struct hth_work *work)
{
    struct tmpfs_release *r = release_of(work), **at = &r->store->releases;

    while (*at && *at != r)
        at = &(*at)->next;
    if (*at)
        *at = r->next;
    free(r);
}

void hth_release(struct hth_tmpfs *t, void *base, uint64_t len, int fd)
{
    struct tmpfs_release *r =
            t->opts.workers.submit && len >= AT_ONCE ? calloc(1, sizeof(*r)) : NULL;

    if (!r) {
        release_now(base, len, fd);
        return;
    }
    *r = (struct tmpfs_release){ .work = { .run = release_run, .done = release_done },
        .next = t->releases,
        .store = t,
        .base = base,
        .len = len,
        .fd = fd };
    t->releases = r;
    t->opts.workers.submit(t->opts.workers.self, &r->work);
}

void hth_release_name(struct hth_tmpfs *t, int dir, const char *name)
{
    uint64_t len = 0;
    struct stat st;
    int fd = -1;

    if (!fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) && S_ISREG(st.st_mode) &&
            (uint64_t)st.st_size >= AT_ONCE) {
        len = (uint64_t)st.st_size;
        fd = hth_sys_open_file(dir, name, O_RDONLY); /* so that unlinking is not what frees it */
    }
    unlinkat(dir, name, 0);
    if (fd >= 0)
        hth_release(t, NULL, len, fd);
}

void hth_releases_end(struct hth_tmpfs *t)
{
    struct tmpfs_release *r;

    while ((r = t->releases)) {
        t->releases = r->next;
        release_now(r->base, r->len, r->fd);
        free(r);
    }
}
