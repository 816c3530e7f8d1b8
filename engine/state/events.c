/* SPDX-License-Identifier: Apache-2.0 */
/* A ring behind a lock: a line is copied in, and then goes on to the log itself. */
#include "events.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

struct events {
    pthread_mutex_t lock; /* of the two below */
    uint64_t count;       /* how many ever; gives the next place in the ring */
    struct event event[EVENTS_MOST];
    struct hth_clock clock;
    struct hth_log log; /* where the lines go on to */
};

struct events *events_open(const struct hth_clock *clock)
{
    struct events *e = calloc(1, sizeof(*e));

    if (!e)
        return NULL;
    pthread_mutex_init(&e->lock, NULL);
    e->clock = *clock;
    return e;
}

void events_close(struct events *e)
{
    if (!e)
        return;
    pthread_mutex_destroy(&e->lock);
    free(e);
}

static void events_emit(
        void *self, enum hearth_log_level level, const char *event, const char *text)
{
    struct events *e = self;
    struct event *to;

    if (level <= HEARTH_LOG_INFO) {
        pthread_mutex_lock(&e->lock);
        to = &e->event[e->count++ % EVENTS_MOST];
        to->wall_ms = e->clock.wall_ms(e->clock.self);
        to->level = level;
        snprintf(to->event, sizeof(to->event), "%s", event);
        snprintf(to->text, sizeof(to->text), "%s", text);
        pthread_mutex_unlock(&e->lock);
    }
    if (e->log.emit)
        e->log.emit(e->log.self, level, event, text);
}

static void events_log_state(void *self, struct hth_log_state *out)
{
    const struct events *e = self;

    hth_log_state(&e->log, out);
}

static void events_log_set_level(void *self, enum hearth_log_level level)
{
    const struct events *e = self;

    e->log.set_level(e->log.self, level);
}

struct hth_log events_log(struct events *e, const struct hth_log *log)
{
    e->log = *log;
    return (struct hth_log){ .emit = events_emit,
        .self = e,
        .state = events_log_state,
        .set_level = log->set_level ? events_log_set_level : NULL };
}

uint64_t events_count(struct events *e)
{
    uint64_t count;

    pthread_mutex_lock(&e->lock);
    count = e->count;
    pthread_mutex_unlock(&e->lock);
    return count;
}

int events_at(struct events *e, uint32_t at, struct event *out)
{
    int is_there;

    pthread_mutex_lock(&e->lock);
    is_there = at < e->count && at < EVENTS_MOST;
    if (is_there)
        *out = e->event[(e->count - 1 - at) % EVENTS_MOST];
    pthread_mutex_unlock(&e->lock);
    return is_there;
}
