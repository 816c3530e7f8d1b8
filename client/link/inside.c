/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An engine of our own, as a thread of this process: a module that is opened for the first handle
 * of a job in this process, and an engine that is stopped with the last one.
 */
#include "inside.h"

#include "command.h"
#include "core/base/own_dir.h"
#include "core/local/engine_module.h"
#include "link_parts.h"
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifndef HEARTH_MODULE_DIR
#define HEARTH_MODULE_DIR "/usr/lib/hearth"
#endif

struct hth_inside {
    struct hth_inside *next;
    char *records; /* whose */
    unsigned users;
    const struct hth_engine_module *module;
    void *engine;
};

static struct {
    pthread_mutex_t lock;
    struct hth_inside *all;
} inside = { .lock = PTHREAD_MUTEX_INITIALIZER };

static int inside_open_module(
        const struct hth_engine_module **out, char *dir, size_t len, struct hearth_error *err)
{
    char own[PATH_MAX], path[PATH_MAX + 64];
    const char *const places[] = { "", "/../lib", "/../lib/hearth", NULL };
    const struct hth_engine_module *m = NULL;
    void *so = NULL;

    if (hth_own_dir(own, sizeof(own)))
        own[0] = '\0';
    for (size_t i = 0; i < 4 && !so; i++) {
        if (places[i])
            snprintf(dir, len, "%s%s", own, places[i]);
        else
            snprintf(dir, len, "%s", HEARTH_MODULE_DIR);
        snprintf(path, sizeof(path), "%s/" HTH_ENGINE_MODULE_FILE, dir);
        if (access(path, R_OK) != 0)
            continue;
        so = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        if (!so) {
            hth_fail(err, HEARTH_EENGINE, 0, "%s: %s", path, dlerror());
            return HEARTH_EENGINE;
        }
    }
    if (so)
        m = dlsym(so, HTH_ENGINE_MODULE_SYMBOL);
    if (!m || m->abi != HTH_ENGINE_MODULE_ABI) {
        hth_fail(err, HEARTH_EENGINE, 0,
                "start = in_process needs " HTH_ENGINE_MODULE_FILE
                " of this library's version beside it or in " HEARTH_MODULE_DIR
                ": install it, or use start = auto");
        return HEARTH_EENGINE;
    }
    *out = m;
    return HEARTH_OK;
}

static int inside_start_locked(struct hearth *h, struct hth_inside *s, struct hearth_error *err)
{
    char dir[PATH_MAX + 32];
    struct hth_args args;
    int rc;

    if ((rc = inside_open_module(&s->module, dir, sizeof(dir), err)))
        return rc;
    hth_args_make(&args, h, "hearthd");
    hth_args_add(&args, "--module-dir", dir);
    return s->module->start(args.argc, args.argv, &s->engine, err);
}

static struct hth_inside *inside_find_locked(const struct hearth *h)
{
    struct hth_inside *s = inside.all;

    while (s && strcmp(s->records, h->records) != 0)
        s = s->next;
    return s;
}

void hth_inside_share(struct hearth *h)
{
    if (h->opts.start != HEARTH_START_IN_PROCESS || h->link->inside)
        return;
    pthread_mutex_lock(&inside.lock);
    h->link->inside = inside_find_locked(h);
    if (h->link->inside)
        h->link->inside->users++;
    pthread_mutex_unlock(&inside.lock);
}

int hth_inside_start(struct hearth *h, struct hearth_error *err)
{
    struct hth_inside *s;
    int rc = HEARTH_OK;

    if (h->link->inside)
        return HEARTH_OK;
    pthread_mutex_lock(&inside.lock);
    s = inside_find_locked(h);
    if (!s) {
        s = calloc(1, sizeof(*s));
        if (s)
            s->records = strdup(h->records);
        rc = s && s->records ? inside_start_locked(h, s, err)
                             : hth_fail(err, HEARTH_ENOMEM, 0, "no memory for an engine");
        if (rc && s) {
            free(s->records);
            free(s);
        } else if (s) {
            s->next = inside.all;
            inside.all = s;
        }
    }
    if (!rc && s) {
        s->users++;
        h->link->inside = s;
    }
    pthread_mutex_unlock(&inside.lock);
    return rc;
}

void hth_inside_stop(struct hearth *h)
{
    struct hth_inside *s = h->link->inside, **at = &inside.all;

    if (!s)
        return;
    h->link->inside = NULL;
    pthread_mutex_lock(&inside.lock);
    if (--s->users == 0) {
        while (*at != s)
            at = &(*at)->next;
        *at = s->next;
        s->module->stop(s->engine); /* the module itself stays: its threads may still unwind */
        free(s->records);
        free(s);
    }
    pthread_mutex_unlock(&inside.lock);
}
