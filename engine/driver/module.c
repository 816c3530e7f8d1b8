/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hearthd without the process: the same command line, the same loop, on a thread of whoever
 * opened this module. The thread does everything from the transport's open to its close.
 *
 * It has a table of descriptors of its own, which the threads that it starts share: a child that
 * the caller forks gets none of them, no lock and no connection, and none of the caller's stays
 * open here. So whoever ends the engine asks a thread of its own to wake it.
 */
#include "config.h"
#include "core/local/engine_module.h"
#include "driver.h"

#include <errno.h>
#include <linux/close_range.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

struct inside {
    pthread_t thread;
    pthread_t waker;
    pthread_mutex_t lock; /* guards rc, err, told, stop, over */
    pthread_cond_t changed;
    struct hth_config config;
    struct hth_driver *driver; /* the thread's; the waker's: hth_driver_stop() while it runs */
    struct hearth_error err;
    int rc, told;
    int stop; /* the caller has asked the engine to end */
    int over; /* the loop has ended */
};

/* If the kernel has no such call, all descriptors are shared, and a child inherits them. */
static void inside_own_files(void)
{
#ifndef __SANITIZE_THREAD__ /* it takes equal numbers in two tables for one file, and that for a race */
    (void)syscall(SYS_close_range, 3u, ~0u, CLOSE_RANGE_UNSHARE);
#endif
}

static void *inside_wake(void *arg)
{
    struct inside *in = arg;

    pthread_mutex_lock(&in->lock);
    while (!in->stop && !in->over)
        pthread_cond_wait(&in->changed, &in->lock);
    if (!in->over)
        hth_driver_stop(in->driver);
    pthread_mutex_unlock(&in->lock);
    return NULL;
}

static int inside_open(struct inside *in, struct hth_driver **out)
{
    int e, rc = hth_driver_open(&in->config, -1, out, &in->err);

    if (rc)
        return rc;
    in->driver = *out;
    in->over = 0;
    if (!(e = pthread_create(&in->waker, NULL, inside_wake, in)))
        return HEARTH_OK;
    hth_driver_close(*out);
    return hth_fail(
            &in->err, HEARTH_EIO, e, "cannot start the engine's thread: %s", strerrordesc_np(e));
}

/* 1: the engine is to be opened again, on another fabric. */
static int inside_life(struct inside *in)
{
    struct hth_driver *d = NULL;
    int rc = inside_open(in, &d), again;

    pthread_mutex_lock(&in->lock);
    in->rc = rc;
    in->told = 1;
    pthread_cond_broadcast(&in->changed);
    pthread_mutex_unlock(&in->lock);
    if (rc)
        return 0;
    hth_driver_run(d, NULL);
    pthread_mutex_lock(&in->lock);
    in->over = 1; /* no thread may wake it any more */
    again = !in->stop && hth_driver_comes_back(d);
    pthread_cond_broadcast(&in->changed);
    pthread_mutex_unlock(&in->lock);
    pthread_join(in->waker, NULL);
    hth_driver_close(d);
    return again;
}

static void *inside_run(void *arg)
{
    inside_own_files();
    while (inside_life(arg))
        continue;
    return NULL;
}

static void inside_free(struct inside *in)
{
    pthread_cond_destroy(&in->changed);
    pthread_mutex_destroy(&in->lock);
    free(in);
}

static int inside_start(struct inside *in, struct hearth_error *err)
{
    sigset_t all, old;
    int e;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    e = pthread_create(&in->thread, NULL, inside_run, in);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (e)
        return hth_fail(
                err, HEARTH_EIO, e, "cannot start the engine's thread: %s", strerrordesc_np(e));
    pthread_mutex_lock(&in->lock);
    while (!in->told)
        pthread_cond_wait(&in->changed, &in->lock);
    pthread_mutex_unlock(&in->lock);
    if (in->rc) {
        pthread_join(in->thread, NULL);
        if (err)
            *err = in->err;
    }
    return in->rc;
}

static int module_start(
        int argc, const char *const *argv, void **out_engine, struct hearth_error *err)
{
    struct inside *in = calloc(1, sizeof(*in));
    int rc;

    if (!in)
        return hth_fail(err, HEARTH_ENOMEM, 0, "no memory for an engine");
    pthread_mutex_init(&in->lock, NULL);
    pthread_cond_init(&in->changed, NULL);
    rc = hth_config_parse(&in->config, argc, argv, err);
    if (!rc && (in->config.help || in->config.version))
        rc = hth_fail(err, HEARTH_EINVAL, 0, "--help and --version are for hearthd");
    rc = rc ? rc : inside_start(in, err);
    if (rc) {
        inside_free(in);
        return rc;
    }
    *out_engine = in;
    return HEARTH_OK;
}

static void module_stop(void *engine)
{
    struct inside *in = engine;

    if (!in)
        return;
    pthread_mutex_lock(&in->lock);
    in->stop = 1;
    pthread_cond_broadcast(&in->changed);
    pthread_mutex_unlock(&in->lock);
    pthread_join(in->thread, NULL);
    inside_free(in);
}

extern const struct hth_engine_module hth_engine_module;
__attribute__((visibility("default"))) const struct hth_engine_module hth_engine_module = {
    .abi = HTH_ENGINE_MODULE_ABI,
    .start = module_start,
    .stop = module_stop,
};
