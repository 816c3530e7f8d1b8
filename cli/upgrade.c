/* SPDX-License-Identifier: Apache-2.0 */
/* upgrade: the program that lies where a running engine's was started from takes its place. */
#include "core/store/store_tmpfs.h"
#include "running.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LOOKS   1300 /* longer than the engine waits for the next one to serve */
#define LOOK_MS 50

static pid_t upgrade_pid(const char *root, const char *job)
{
    struct hth_lock_holder holder = { 0 };

    if (hth_store_locked(root, job, &holder, NULL) || !holder.held)
        return 0;
    return holder.pid;
}

static const char *upgrade_word(const json_t *status, const char *key)
{
    const char *text = json_string_value(json_object_get(status, key));

    return text ? text : "";
}

static int64_t upgrade_now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* The status of the engine that answers next; NULL: none does in time. */
static json_t *upgrade_await(const struct running *r)
{
    static const struct timespec nap = { .tv_nsec = LOOK_MS * 1000000L };

    for (int i = 0; i < LOOKS; i++) {
        char *text = engine_status(r->fd);
        json_t *status = text ? json_loads(text, 0, NULL) : NULL;

        free(text);
        if (json_is_object(status))
            return status;
        json_decref(status);
        nanosleep(&nap, NULL);
    }
    return NULL;
}

static enum status upgrade_say(
        const struct args *a, const struct running *r, pid_t before, int64_t since_ms)
{
    json_t *status = upgrade_await(r);
    pid_t now = upgrade_pid(a->root, r->name);
    double took_s = (double)(upgrade_now_ms() - since_ms) / 1000;
    struct hearth_error err;

    if (!status || now == before) {
        json_decref(status);
        hth_fail(&err, HEARTH_EENGINE, 0, "the new hearthd did not serve, and %s: %s",
                status ? "the engine that ran goes on" : "no engine answers now",
                "see the last lines of hearth events, or of the engine's log");
        return complain(&err);
    }
    if (a->json)
        return print_json(json_pack_ex(NULL, 0, "{s:o, s:s, s:s, s:i, s:i, s:f}", "node",
                json_incref(json_object_get(status, "node")), "was",
                upgrade_word(r->status, "version"), "version", upgrade_word(status, "version"),
                "was_pid", (int)before, "pid", (int)now, "took_s", took_s));
    say("node %s: hearthd %s, pid %ld, took the place of %s, pid %ld, in %.2f s\n",
            upgrade_word(status, "node"), upgrade_word(status, "version"), (long)now,
            upgrade_word(r->status, "version"), (long)before, took_s);
    json_decref(status);
    return STATUS_OK;
}

enum status run_upgrade(const struct args *a)
{
    struct running r = { .fd = -1 };
    struct hearth_error err = { 0 };
    enum status status;
    int64_t since_ms;
    pid_t before;
    int rc;

    if (!a->root)
        return complain_usage("upgrade: which root? give --root or HEARTH_ROOT");
    if (running_need(a->root, a->value[0], &r, &err))
        return complain(&err);
    before = upgrade_pid(a->root, r.name);
    rc = engine_upgrade(r.fd, &err);
    since_ms = upgrade_now_ms();
    status = rc ? complain(&err) : upgrade_say(a, &r, before, since_ms);
    running_free(&r);
    return status;
}
