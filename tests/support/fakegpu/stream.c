/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Streams: a thread each, which does one operation after the other, and events between them. Each
 * operation begins after a random time, so streams overtake each other wherever no event orders
 * them. A broken context's streams drop what they have.
 */
#include "inside.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum op_kind { OP_COPY, OP_FILL, OP_MARK, OP_AFTER };

/* What an event was recorded as; a later record makes another one. */
struct mark {
    int done, users;
};

struct op {
    enum op_kind kind;
    struct op *next;
    struct fgpu_box *boxes; /* OP_COPY */
    size_t count, bytes;
    struct fgpu_range host;
    int pattern;       /* destinations get it when the operation begins */
    unsigned char *at; /* OP_FILL */
    int value;
    struct mark *mark; /* OP_MARK, OP_AFTER */
    int *out_done;     /* the call that waits for it */
};

struct fgpu_stream {
    struct fgpu_context *context;
    struct op *first, **last;
    struct op *doing;
    int closing, capturing; /* capturing: CUDA's number of it */
    pthread_t captured_by;
    uint64_t random;
    struct fgpu_stream *next;
};

struct fgpu_event {
    struct fgpu_context *context;
    struct mark *mark; /* NULL: not recorded */
};

pthread_mutex_t fgpu_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static struct fgpu_stream *streams;

/* ---- operations ---- */

static void mark_put_locked(struct mark *m)
{
    if (m && --m->users == 0)
        free(m);
}

static void op_free_locked(struct op *op)
{
    mark_put_locked(op->mark);
    free(op->boxes);
    free(op);
}

static unsigned char *line_at(const struct fgpu_box *b, size_t plane, size_t row)
{
    return b->dst + plane * b->dst_plane + row * b->dst_row;
}

static void boxes_pattern(const struct fgpu_box *boxes, size_t count)
{
    for (size_t i = 0; i < count; i++)
        for (size_t p = 0; p < boxes[i].planes; p++)
            for (size_t r = 0; r < boxes[i].rows; r++)
                memset(line_at(&boxes[i], p, r), FAKEGPU_PATTERN, boxes[i].width);
}

static void box_copy(const struct fgpu_box *b)
{
    for (size_t p = 0; p < b->planes; p++)
        for (size_t r = 0; r < b->rows; r++)
            memcpy(line_at(b, p, r), b->src + p * b->src_plane + r * b->src_row, b->width);
}

static uint64_t stream_random(struct fgpu_stream *s)
{
    s->random ^= s->random << 13;
    s->random ^= s->random >> 7;
    s->random ^= s->random << 17;
    return s->random;
}

static void sleep_us(uint64_t us)
{
    struct timespec ts = { .tv_sec = (time_t)(us / 1000000),
        .tv_nsec = (long)(us % 1000000) * 1000 };

    if (us)
        nanosleep(&ts, NULL);
}

/* Without the lock. Copies of one call have no order: they begin anywhere. */
static void op_do(struct fgpu_stream *s, const struct op *op)
{
    struct fakegpu *page = fakegpu();
    uint64_t below = page->delay_us, rate = page->rate_mib_s;
    size_t first = op->count ? (size_t)(stream_random(s) % op->count) : 0;

    sleep_us(below ? stream_random(s) % below : 0);
    if (op->kind == OP_FILL)
        memset(op->at, op->value, op->bytes);
    if (op->kind != OP_COPY)
        return;
    if (op->pattern)
        boxes_pattern(op->boxes, op->count);
    sleep_us(rate ? op->bytes * 1000000 / (rate << 20) : 0);
    for (size_t i = 0; i < op->count && page->light < 2; i++)
        box_copy(&op->boxes[(first + i) % op->count]);
    page->copies += op->count;
    page->copied_bytes += op->bytes;
}

/* ---- the thread of a stream ---- */

static int stream_may_begin(const struct fgpu_stream *s)
{
    if (!s->first || fakegpu()->hold)
        return 0;
    return s->first->kind != OP_AFTER || !s->first->mark || s->first->mark->done;
}

/* Drops what is left, without having done it. */
static void stream_drop_locked(struct fgpu_stream *s)
{
    while (s->first) {
        struct op *op = s->first;

        s->first = op->next;
        if (op->out_done)
            *op->out_done = -1;
        op_free_locked(op);
    }
    s->last = &s->first;
    pthread_cond_broadcast(&changed);
}

static void stream_turn_locked(struct fgpu_stream *s)
{
    struct op *op = s->first;

    s->first = op->next;
    if (!s->first)
        s->last = &s->first;
    s->doing = op;
    pthread_mutex_unlock(&fgpu_lock);
    op_do(s, op);
    pthread_mutex_lock(&fgpu_lock);
    s->doing = NULL;
    if (op->kind == OP_MARK && !s->context->broken)
        op->mark->done = 1;
    if (op->out_done)
        *op->out_done = s->context->broken ? -1 : 1;
    op_free_locked(op);
    pthread_cond_broadcast(&changed);
}

/* A test that lets go of streams wakes none of them. */
static void stream_sleep_locked(const struct fgpu_stream *s)
{
    struct timespec until;

    if (!s->first || !fakegpu()->hold) {
        pthread_cond_wait(&changed, &fgpu_lock);
        return;
    }
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += 1000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_nsec -= 1000000000;
        until.tv_sec++;
    }
    pthread_cond_timedwait(&changed, &fgpu_lock, &until);
}

static void *stream_run(void *arg)
{
    struct fgpu_stream *s = arg, **p = &streams;

    pthread_mutex_lock(&fgpu_lock);
    while (s->first || !s->closing) {
        if (s->context->broken && s->first)
            stream_drop_locked(s);
        else if (stream_may_begin(s))
            stream_turn_locked(s);
        else
            stream_sleep_locked(s);
    }
    while (*p != s)
        p = &(*p)->next;
    *p = s->next;
    pthread_mutex_unlock(&fgpu_lock);
    free(s);
    return NULL;
}

void fgpu_streams_rest_locked(int device)
{
    struct fgpu_stream *s = streams;

    while (s)
        if (s->doing && s->context->device == device) {
            pthread_cond_wait(&changed, &fgpu_lock);
            s = streams;
        } else {
            s = s->next;
        }
}

void fgpu_streams_drop_locked(void)
{
    for (struct fgpu_stream *s = streams; s; s = s->next)
        if (s->context->broken)
            stream_drop_locked(s);
}

int fgpu_stream_new(struct fgpu_context *context, struct fgpu_stream **out)
{
    struct fgpu_stream *s = calloc(1, sizeof(*s));
    static uint64_t seed;
    pthread_attr_t attr;
    pthread_t thread;
    int failed;

    if (!s)
        return CU_OUT_OF_MEMORY;
    s->context = context;
    s->last = &s->first;
    pthread_mutex_lock(&fgpu_lock);
    s->random = (fgpu_setting("FAKEGPU_SEED", 1) + ++seed) * UINT64_C(0x9e3779b97f4a7c15) | 1;
    s->next = streams;
    streams = s;
    pthread_mutex_unlock(&fgpu_lock);
    pthread_attr_init(&attr);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    failed = pthread_create(&thread, &attr, stream_run, s);
    pthread_attr_destroy(&attr);
    if (failed)
        abort();
    *out = s;
    return CU_OK;
}

/* What is enqueued is done still. */
int fgpu_stream_end(void *stream)
{
    struct fgpu_stream *s;
    int rc = fgpu_stream_of(stream, &s);

    if (rc || !stream)
        return rc ? rc : CU_INVALID_HANDLE;
    pthread_mutex_lock(&fgpu_lock);
    s->closing = 1;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&fgpu_lock);
    return CU_OK;
}

int fgpu_stream_of(void *stream, struct fgpu_stream **out)
{
    struct fgpu_context *now = fgpu_context_now();
    struct fgpu_stream *s;

    if (!now)
        return CU_INVALID_CONTEXT;
    if ((uintptr_t)stream <= 2) {
        if (!now->null && fgpu_stream_new(now, &now->null))
            return CU_OUT_OF_MEMORY;
        *out = now->null;
        return CU_OK;
    }
    pthread_mutex_lock(&fgpu_lock);
    for (s = streams; s && s != stream; s = s->next)
        ;
    pthread_mutex_unlock(&fgpu_lock);
    if (!s || s->closing || s->context != now)
        return CU_INVALID_HANDLE;
    *out = s;
    return CU_OK;
}

struct fgpu_context *fgpu_stream_context(const struct fgpu_stream *stream)
{
    return stream->context;
}

int fgpu_capture_of(const struct fgpu_stream *s)
{
    int status;

    pthread_mutex_lock(&fgpu_lock);
    status = s->capturing;
    pthread_mutex_unlock(&fgpu_lock);
    return status;
}

int fgpu_capture_set(struct fgpu_stream *s, int status)
{
    int before;

    pthread_mutex_lock(&fgpu_lock);
    before = s->capturing;
    s->capturing = status;
    s->captured_by = pthread_self();
    pthread_mutex_unlock(&fgpu_lock);
    return before;
}

static _Thread_local int capture_mode;

int fgpu_capture_mode(int *mode)
{
    int before = capture_mode;

    capture_mode = *mode;
    *mode = before;
    return CU_OK;
}

int fgpu_capture_disturb(void)
{
    int any = 0;

    if (capture_mode >= fgpu_capture_apart)
        return CU_OK;
    pthread_mutex_lock(&fgpu_lock);
    for (struct fgpu_stream *s = streams; s && fakegpu()->global; s = s->next)
        if (s->capturing && !pthread_equal(s->captured_by, pthread_self())) {
            s->capturing = 2;
            any = 1;
        }
    pthread_mutex_unlock(&fgpu_lock);
    return any ? CU_CAPTURE_UNSUPPORTED : CU_OK;
}

int fgpu_captures(const struct fgpu_context *context)
{
    int any = 0;

    pthread_mutex_lock(&fgpu_lock);
    for (struct fgpu_stream *s = streams; s; s = s->next)
        any |= s->context == context && s->capturing;
    pthread_mutex_unlock(&fgpu_lock);
    return any;
}

/* ---- what is enqueued ---- */

static int busy_locked(struct fgpu_range host)
{
    for (struct fgpu_stream *s = streams; s; s = s->next) {
        const struct op *op = s->doing;

        if (op && op->kind == OP_COPY && host.from < op->host.to && op->host.from < host.to)
            return 1;
        for (op = s->first; op; op = op->next)
            if (op->kind == OP_COPY && host.from < op->host.to && op->host.from < host.to)
                return 1;
    }
    return 0;
}

int fgpu_stream_busy(struct fgpu_range host)
{
    int busy;

    pthread_mutex_lock(&fgpu_lock);
    busy = busy_locked(host);
    pthread_mutex_unlock(&fgpu_lock);
    return busy;
}

static void stream_put_locked(struct fgpu_stream *s, struct op *op)
{
    *s->last = op;
    s->last = &op->next;
    pthread_cond_broadcast(&changed);
}

static int op_wait_locked(struct fgpu_stream *s, struct op *op)
{
    int done = 0;

    op->out_done = &done;
    stream_put_locked(s, op);
    while (!done)
        pthread_cond_wait(&changed, &fgpu_lock);
    return done > 0 ? CU_OK : s->context->broken;
}

/* Another operation that has to do with the same bytes of the host keeps them as they are until
 * this one begins. */
int fgpu_stream_copy(struct fgpu_stream *s, struct fgpu_box *boxes, size_t count,
        struct fgpu_range host, int pattern, int wait)
{
    struct op *op = calloc(1, sizeof(*op));
    int rc = CU_OK;

    if (!op)
        return CU_OUT_OF_MEMORY;
    pattern = pattern && !fakegpu()->light;
    op->kind = OP_COPY;
    op->boxes = boxes;
    op->count = count;
    op->host = host;
    for (size_t i = 0; i < count; i++)
        op->bytes += boxes[i].width * boxes[i].rows * boxes[i].planes;
    if (wait)
        fgpu_pause();
    pthread_mutex_lock(&fgpu_lock);
    op->pattern = pattern && busy_locked(host);
    if (pattern && !op->pattern)
        boxes_pattern(boxes, count);
    if (wait)
        rc = op_wait_locked(s, op);
    else
        stream_put_locked(s, op);
    pthread_mutex_unlock(&fgpu_lock);
    if (wait)
        fgpu_resume();
    return rc;
}

int fgpu_stream_fill(struct fgpu_stream *s, unsigned char *at, int value, size_t bytes)
{
    struct op *op = calloc(1, sizeof(*op));

    if (!op)
        return CU_OUT_OF_MEMORY;
    op->kind = OP_FILL;
    op->at = at;
    op->value = value;
    op->bytes = bytes;
    pthread_mutex_lock(&fgpu_lock);
    stream_put_locked(s, op);
    pthread_mutex_unlock(&fgpu_lock);
    return CU_OK;
}

int fgpu_stream_wait(struct fgpu_stream *s)
{
    struct op *op = calloc(1, sizeof(*op));
    int rc;

    if (!op)
        return CU_OUT_OF_MEMORY;
    op->kind = OP_AFTER;
    pthread_mutex_lock(&fgpu_lock);
    rc = op_wait_locked(s, op);
    pthread_mutex_unlock(&fgpu_lock);
    return rc;
}

/* ---- events ---- */

int fgpu_event_new(void **out)
{
    struct fgpu_event *e = calloc(1, sizeof(*e));

    if (!e)
        return CU_OUT_OF_MEMORY;
    e->context = fgpu_context_now();
    *out = e;
    return CU_OK;
}

int fgpu_event_end(void *event)
{
    struct fgpu_event *e = event;

    pthread_mutex_lock(&fgpu_lock);
    mark_put_locked(e->mark);
    pthread_mutex_unlock(&fgpu_lock);
    free(e);
    return CU_OK;
}

int fgpu_event_record(void *event, void *stream)
{
    struct fgpu_event *e = event;
    struct fgpu_stream *s;
    int rc = fgpu_stream_of(stream, &s);
    struct mark *m;
    struct op *op;

    if (rc)
        return rc;
    if (e->context != s->context)
        return CU_INVALID_HANDLE;
    m = calloc(1, sizeof(*m));
    op = calloc(1, sizeof(*op));
    if (!m || !op)
        abort();
    m->users = 2;
    op->kind = OP_MARK;
    op->mark = m;
    pthread_mutex_lock(&fgpu_lock);
    mark_put_locked(e->mark);
    e->mark = m;
    stream_put_locked(s, op);
    pthread_mutex_unlock(&fgpu_lock);
    return CU_OK;
}

int fgpu_event_query(void *event)
{
    struct fgpu_event *e = event;
    int rc = fgpu_capture_disturb();

    if (rc)
        return rc;
    pthread_mutex_lock(&fgpu_lock);
    rc = !e->mark || e->mark->done ? CU_OK : CU_NOT_READY;
    if (e->context->broken)
        rc = e->context->broken;
    pthread_mutex_unlock(&fgpu_lock);
    return rc;
}

/* Of another device, too. An event that was never recorded is waited for by nothing. */
int fgpu_stream_after(void *stream, void *event)
{
    struct fgpu_event *e = event;
    struct fgpu_stream *s;
    int rc = fgpu_stream_of(stream, &s);
    struct op *op;

    if (rc)
        return rc;
    op = calloc(1, sizeof(*op));
    if (!op)
        return CU_OUT_OF_MEMORY;
    op->kind = OP_AFTER;
    pthread_mutex_lock(&fgpu_lock);
    op->mark = e->mark;
    if (op->mark)
        op->mark->users++;
    stream_put_locked(s, op);
    pthread_mutex_unlock(&fgpu_lock);
    return CU_OK;
}
