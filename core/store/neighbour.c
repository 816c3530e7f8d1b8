/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A job that is over keeps its memory until `hearth clean`. If each run has a new job name, the
 * root fills up. A job's memory is the blocks of its files: <job>/<save or .hearth>/<file>, and
 * <job>/.hearth/pool/<file>.
 */
#include "neighbour.h"

#include "store_tmpfs.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define ENTRIES  8192u /* that one look reads at most */
#define AGAIN_S  10
#define LEAST    (UINT64_C(1) << 20) /* smaller jobs are not named */
#define DEEPEST  3u                  /* directories of a job below the root */
#define OF_BLOCK UINT64_C(512)

struct count {
    int dir;
    unsigned depth;
    unsigned *left; /* entries that may still be read */
    uint64_t bytes;
};

static void count_entry(void *arg, const char *name);

static uint64_t count_below(int dir, const char *name, unsigned depth, unsigned *left)
{
    struct count c = { .dir = hth_sys_open_dir(dir, name), .depth = depth, .left = left };

    if (c.dir < 0)
        return 0;
    hth_sys_each(c.dir, count_entry, &c);
    close(c.dir);
    return c.bytes;
}

static void count_entry(void *arg, const char *name)
{
    struct count *c = arg;
    struct stat st;

    if (!*c->left || fstatat(c->dir, name, &st, AT_SYMLINK_NOFOLLOW))
        return;
    --*c->left;
    if (S_ISREG(st.st_mode))
        c->bytes += (uint64_t)st.st_blocks * OF_BLOCK;
    else if (S_ISDIR(st.st_mode) && c->depth < DEEPEST)
        c->bytes += count_below(c->dir, name, c->depth + 1, c->left);
}

struct most {
    const struct hth_tmpfs *t;
    unsigned left;
    uint64_t bytes;
    char job[HTH_NAME_MAX + 1];
};

static void most_job(void *arg, const char *name)
{
    struct most *m = arg;
    char records[HTH_NAME_MAX + sizeof("/" HTH_RECORDS_DIR)];
    struct stat st;
    uint64_t bytes;

    if (!m->left || !strcmp(name, m->t->job) || hth_job_check(name, NULL))
        return;
    m->left--;
    snprintf(records, sizeof(records), "%s/" HTH_RECORDS_DIR, name);
    if (fstatat(m->t->root_fd, records, &st, AT_SYMLINK_NOFOLLOW) || !S_ISDIR(st.st_mode))
        return;
    bytes = count_below(m->t->root_fd, name, 1, &m->left);
    if (bytes <= m->bytes)
        return;
    m->bytes = bytes;
    snprintf(m->job, sizeof(m->job), "%s", name);
}

static void most_text(const struct hth_tmpfs *t, const struct most *m, char *out, size_t len)
{
    struct hth_lock_holder holder = { 0 };
    char root[4096];

    snprintf(root, sizeof(root), "%.*s", (int)(strlen(t->path) - strlen(t->job) - 1), t->path);
    if (!hth_store_locked(root, m->job, &holder, NULL) && !holder.held)
        snprintf(out, len,
                "; job '%s' takes %" PRIu64 " bytes of it, and no engine serves it: `hearth clean` "
                "it if it is over",
                m->job, m->bytes);
    else
        snprintf(out, len, "; job '%s' takes %" PRIu64 " bytes of it", m->job, m->bytes);
}

const char *hth_neighbour(struct hth_tmpfs *t)
{
    struct most m = { .t = t, .left = ENTRIES };
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    if (t->neighbour_s && now.tv_sec < t->neighbour_s + AGAIN_S)
        return t->neighbour;
    t->neighbour_s = now.tv_sec;
    t->neighbour[0] = '\0';
    hth_sys_each(t->root_fd, most_job, &m);
    if (m.bytes >= LEAST)
        most_text(t, &m, t->neighbour, sizeof(t->neighbour));
    return t->neighbour;
}
