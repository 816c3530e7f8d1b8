/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hearthd without the process: the same command line, the same loop, on a thread of whoever
 * opened this module. The thread does everything from the transport's open to its close.
 */
#include "config.h"
#include "core/local/engine_module.h"
#include "driver.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

struct inside {
    pthread_t thread;
    pthread_mutex_t lock; /* guards rc, err, told, stopping, driver */
    pthread_cond_t changed;
    struct hth_config config;
    struct hth_driver *driver; /* the thread's; others: hth_driver_stop(); NULL: none runs */
    struct hearth_error err;
    int rc, told, stopping;
};

/* 1: it runs, and others may stop it. */
static int inside_open(struct inside *in)
{
    struct hth_driver *d = NULL;
    int rc = hth_driver_open(&in->config, -1, &d, &in->err);

    pthread_mutex_lock(&in->lock);
    in->rc = rc;
    in->driver = d;
    in->told = 1;
    if (d && in->stopping) /* while it came back */
        hth_driver_stop(d);
    pthread_cond_signal(&in->changed);
    pthread_mutex_unlock(&in->lock);
    return d != NULL;
}

static void *inside_run(void *arg)
{
    struct inside *in = arg;
    int again = 1;

    while (again && inside_open(in)) {
        struct hth_driver *d = in->driver;

        hth_driver_run(d, NULL);
        again = hth_driver_comes_back(d);
        pthread_mutex_lock(&in->lock);
        in->driver = NULL; /* nobody may wake it any more */
        pthread_mutex_unlock(&in->lock);
        hth_driver_close(d);
    }
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
    in->stopping = 1;
    if (in->driver)
        hth_driver_stop(in->driver);
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
