/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A rank's membership: open, close, and what fork does to it.
 *
 *     open: options -> engine found or started -> attached -> gathered -> joined
 *     fork: the child closes the socket and is refused everything; the parent notices nothing
 *     off:  none of it; every call succeeds at level OFF and nothing is kept
 */
#include "client.h"

#include "core/base/auth.h"
#include "env.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static struct {
    pthread_once_t once;
    pthread_mutex_t lock;
    struct hearth *all;
} here = { .once = PTHREAD_ONCE_INIT, .lock = PTHREAD_MUTEX_INITIALIZER };

static void before_fork(void)
{
    pthread_mutex_lock(&here.lock);
}

static void after_fork_parent(void)
{
    pthread_mutex_unlock(&here.lock);
}

/* Other threads may have held h->lock: nothing here may need it. */
static void after_fork_child(void)
{
    for (struct hearth *h = here.all; h; h = h->next) {
        atomic_store(&h->forked, 1);
        if (h->fd >= 0)
            close(h->fd);
        h->fd = -1;
    }
    pthread_mutex_unlock(&here.lock);
}

static void watch_forks(void)
{
    pthread_atfork(before_fork, after_fork_parent, after_fork_child);
}

int hth_enter(const struct hearth *h, struct hearth_error *err)
{
    if (!h)
        return hth_fail(err, HEARTH_EINVAL, 0, "the job is NULL: hearth_open() gives one");
    if (atomic_load(&h->forked))
        return hth_fail(err, HEARTH_EFORK, 0,
                "this process was forked from rank %u after hearth_open(): it may read the views it "
                "inherited, and nothing else",
                h->opts.rank);
    return HEARTH_OK;
}

static void enlist(struct hearth *h)
{
    pthread_once(&here.once, watch_forks);
    pthread_mutex_lock(&here.lock);
    h->next = here.all;
    here.all = h;
    pthread_mutex_unlock(&here.lock);
}

static void delist(struct hearth *h)
{
    struct hearth **at = &here.all;

    pthread_mutex_lock(&here.lock);
    while (*at && *at != h)
        at = &(*at)->next;
    if (*at)
        *at = h->next;
    pthread_mutex_unlock(&here.lock);
}

static void dispose(struct hearth *h)
{
    delist(h);
    if (h->fd >= 0)
        close(h->fd);
    hth_inside_stop(h);
    hth_crew_close(h->crew);
    hth_slots_fini(h);
    if (h->table_fd >= 0)
        close(h->table_fd);
    hth_lines_fini(&h->lines);
    pthread_cond_destroy(&h->changed);
    pthread_mutex_destroy(&h->lock);
    hth_opts_drop(h);
    hth_wipe(h->key, sizeof(h->key));
    free(h->packet);
    free(h->records);
    free(h);
}

static int make(const struct hearth_opts *opts, struct hearth **out, struct hearth_error *err)
{
    struct hearth *h = calloc(1, sizeof(*h));
    pthread_condattr_t attr;
    int rc;

    if (!h)
        return hth_fail(err, HEARTH_ENOMEM, 0, "no memory to open a job");
    h->fd = h->table_fd = -1;
    pthread_mutex_init(&h->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&h->changed, &attr);
    pthread_condattr_destroy(&attr);
    rc = hth_opts_take(h, opts, err);
    if (!rc &&
            (hth_lines_init(&h->lines, &h->opts) || !(h->packet = malloc(HTH_LOCAL_MAX)) ||
                    asprintf(&h->records, "%s/%s/" HTH_RECORDS_DIR, h->opts.root, h->opts.job) < 0))
        rc = hth_fail(err, HEARTH_ENOMEM, 0, "no memory to open a job");
    if (!rc && !h->opts.off && !(h->crew = hth_crew_open(h->opts.copy_threads)))
        rc = hth_fail(err, HEARTH_ENOMEM, 0, "no memory for the copying threads");
    enlist(h);
    if (rc)
        dispose(h);
    else
        *out = h;
    return rc;
}

/* A helper takes part in what its rank has joined. */
static int join_as_helper(struct hearth *h, struct hearth_error *err)
{
    if (!h->attached.epoch)
        return hth_fail(err, HEARTH_ESTATE, 0,
                "a helper of rank %u came before rank %u itself has joined: open there first",
                h->opts.rank, h->opts.rank);
    h->epoch = h->attached.epoch;
    h->nonce = h->attached.nonce;
    h->recovered = (int)h->attached.recovered;
    h->joined = h->attached.opts;
    return HEARTH_OK;
}

static int join(struct hearth *h, struct hearth_error *err)
{
    int rc;

    if ((rc = hth_auth_init(err)))
        return rc;
    pthread_mutex_lock(&h->lock);
    rc = hth_connected_locked(h, hth_until_ms(h->opts.open_ms), err);
    pthread_mutex_unlock(&h->lock);
    if (rc)
        return rc;
    return h->opts.helper ? join_as_helper(h, err) : hth_join(h, err);
}

static void say_strays(struct hearth *h)
{
    char text[HTH_STRAYS][HTH_STRAY_TEXT];
    unsigned count = hth_strays(text);

    for (unsigned i = 0; i < count && i < HTH_STRAYS; i++)
        hth_line_add(&h->lines, HEARTH_LOG_WARN, "environment", "%s", text[i]);
    if (count > HTH_STRAYS)
        hth_line_add(&h->lines, HEARTH_LOG_WARN, "environment",
                "nothing reads %u more variables that begin with HEARTH_", count - HTH_STRAYS);
}

int hearth_open(const struct hearth_opts *opts, struct hearth **out_h, struct hearth_error *err)
{
    struct hearth *h = NULL;
    int rc;

    if (!out_h)
        return hth_fail(err, HEARTH_EINVAL, 0, "out_h is NULL: there is no place for the result");
    rc = make(opts, &h, err);
    if (!h)
        return hth_while(err, rc, "open");
    say_strays(h);
    if (h->opts.off)
        hth_line_add(&h->lines, HEARTH_LOG_WARN, "off",
                "job %s rank %u: Hearth is switched off (off = 1): nothing is saved or recovered",
                h->opts.job, h->opts.rank);
    else if (!(rc = join(h, err)))
        hth_settings_say(h);
    hth_lines_drain(&h->lines);
    if (rc) {
        hth_while(err, rc, "open job '%s' as rank %u", h->opts.job, h->opts.rank);
        dispose(h);
        return rc;
    }
    *out_h = h;
    return HEARTH_OK;
}

void hearth_close(struct hearth *h, enum hearth_leave leave)
{
    struct hth_local_close m = { .leave = (uint32_t)leave };
    struct hth_local_head a;
    struct hth_ask ask = { .msg = &m,
        .len = sizeof(m),
        .type = HTH_LOCAL_CLOSE,
        .want = HTH_LOCAL_OK,
        .fd = -1,
        .answer = &a,
        .answer_len = sizeof(a),
        .wait_ms = 10000,
        .what = "close" };

    if (!h || hth_enter(h, NULL))
        return;
    if (h->fd >= 0)
        hth_ask(h, &ask, NULL);
    dispose(h);
}
