/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Many copies as one stream of bytes, cut into spans that threads take one after the other:
 *
 *     copies   | a | b |      c      | d |        e          |
 *     spans    |  0   |  1        |  2        |  3        |  4 |      SPAN bytes but the outer ones
 *
 * so a thousand small pieces and one large one share out alike. Where checksums are made, a span is
 * what a chunk of the object has of the stream, so the thread that takes it has the whole sum. The
 * caller copies too; helpers are started with the first copy that is worth it, with all signals
 * blocked, and sleep in between. All but small pieces are written past the caches: this process
 * does not read them again, and many pieces of middling size exceed the caches, as one large piece
 * does.
 */
#include "copy.h"

#include "core/base/crc.h"
#include "core/base/crc_copy.h"
#include "core/base/grow.h"
#include "core/format/chunk.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

#define SPAN       HTH_CHUNK
#define WORTH      (UINT64_C(8) << 20)  /* below, one thread is faster than waking another */
#define STREAM_MIN (UINT64_C(2) << 10)  /* below, the partial lines at both ends cost more */
#define CACHED     (UINT64_C(32) << 10) /* bytes that are summed up soon after they were written */

struct hth_crew {
    pthread_mutex_t busy; /* one list at a time; a caller that finds it taken copies alone */
    pthread_mutex_t lock; /* the fields below */
    pthread_cond_t work, done;
    const struct hth_copies *list;
    atomic_uint_fast64_t next; /* span */
    /* [want + 1] of each thread, the caller first: no earlier span is under way with it */
    atomic_uint_fast64_t *at;
    atomic_uint named;    /* helpers that have their place in it */
    uint64_t spans, lead; /* lead: bytes of the first span that lie before the stream */
    uint64_t round;
    uint32_t active, want, threads;
    int stop;
    uint32_t processors; /* that this process may run on */
    pthread_t *thread;
};

int hth_copies_head(struct hth_copies *list, const void *head, size_t len)
{
    unsigned char *more =
            hth_grow(list->heads, &list->heads_room, list->heads_len + len, 4096, sizeof(*more));

    if (!more)
        return HEARTH_ENOMEM;
    list->heads = more;
    memcpy(list->heads + list->heads_len, head, len);
    list->heads_len += len;
    list->head = len;
    return HEARTH_OK;
}

int hth_copies_add(struct hth_copies *list, void *dst, const void *src, uint64_t bytes,
        const struct hth_strided *strided)
{
    struct hth_strided *own = NULL;
    struct hth_copy *copy;

    if (!bytes && !list->head)
        return HEARTH_OK;
    copy = hth_grow(list->copy, &list->room, list->count + 1, 64, sizeof(*copy));
    if (!copy)
        return HEARTH_ENOMEM;
    list->copy = copy;
    if (strided && !(own = malloc(sizeof(*own))))
        return HEARTH_ENOMEM;
    if (own)
        *own = *strided;
    list->copy[list->count++] = (struct hth_copy){ .dst = dst,
        .src = src,
        .bytes = bytes,
        .start = list->bytes,
        .head_at = list->heads_len - list->head,
        .head = list->head,
        .strided = own };
    list->bytes += list->head + bytes;
    return HEARTH_OK;
}

void hth_copies_clear(struct hth_copies *list)
{
    for (size_t i = 0; i < list->count; i++)
        free(list->copy[i].strided);
    list->count = 0;
    list->bytes = 0;
    list->heads_len = list->head = 0;
}

void hth_copies_fini(struct hth_copies *list)
{
    hth_copies_clear(list);
    free(list->copy);
    free(list->heads);
    *list = (struct hth_copies){ 0 };
}

#ifdef __SSE2__
static void copy_stream(unsigned char *dst, const unsigned char *src, uint64_t n)
{
    uint64_t lead = -(uintptr_t)dst & 63;

    memcpy(dst, src, lead);
    dst += lead;
    src += lead;
    n -= lead;
    for (; n >= 64; n -= 64, dst += 64, src += 64) {
        const __m128i *s = (const void *)src;
        __m128i *d = (void *)dst;
        __m128i a = _mm_loadu_si128(s), b = _mm_loadu_si128(s + 1);
        __m128i c = _mm_loadu_si128(s + 2), e = _mm_loadu_si128(s + 3);

        _mm_stream_si128(d, a);
        _mm_stream_si128(d + 1, b);
        _mm_stream_si128(d + 2, c);
        _mm_stream_si128(d + 3, e);
    }
    memcpy(dst, src, n);
}

#else
static void copy_stream(unsigned char *dst, const unsigned char *src, uint64_t n)
{
    memcpy(dst, src, n);
}
#endif

/* Bytes [off, off + len) of one copy; a strided one moves the elements that begin there. */
static void copy_part(const struct hth_copy *c, uint64_t off, uint64_t len)
{
    if (c->strided) {
        uint64_t e = c->strided->elem, first = (off + e - 1) / e, end = (off + len + e - 1) / e;

        hth_strided_copy(c->strided, c->dst, c->src, first, end - first);
    } else if (len >= STREAM_MIN) {
        copy_stream((unsigned char *)c->dst + off, (const unsigned char *)c->src + off, len);
    } else {
        memcpy((unsigned char *)c->dst + off, (const unsigned char *)c->src + off, len);
    }
}

/* Bytes [off, off + len) of a strided copy into contiguous memory, and no byte of an element
 * beyond: another thread may be summing up those. */
static void copy_strided(const struct hth_copy *c, uint64_t off, uint64_t len)
{
    const struct hth_strided *s = c->strided;
    unsigned char *dst = c->dst;
    uint64_t in = off % s->elem, rest;

    if (in) {
        rest = s->elem - in < len ? s->elem - in : len;
        memcpy(dst + off, hth_strided_at(s, c->src, off / s->elem) + in, rest);
        off += rest;
        len -= rest;
    }
    hth_strided_copy(s, dst, c->src, off / s->elem, len / s->elem);
    off += len;
    rest = len % s->elem;
    if (rest)
        memcpy(dst + off - rest, hth_strided_at(s, c->src, off / s->elem), rest);
}

/* Bytes of a strided source that follow each other. */
static uint64_t copy_run(const struct hth_strided *s)
{
    uint32_t last = s->ndim - 1;

    return s->src[last] == s->elem ? (uint64_t)s->shape[last] * s->elem : s->elem;
}

/* Bytes [off, off + len) of a strided copy, each run in one pass. */
static void copy_runs(
        struct hth_crc_stream *out, const struct hth_copy *c, uint64_t off, uint64_t len)
{
    const struct hth_strided *s = c->strided;
    uint64_t run = copy_run(s);

    for (uint64_t n; len; len -= n, off += n) {
        const unsigned char *src = hth_strided_at(s, c->src, off / s->elem) + off % s->elem;

        n = run - off % run < len ? run - off % run : len;
        hth_crc_stream_put(out, src, n, NULL);
    }
}

/* Bytes [off, off + len) of a strided copy, element by element. */
static void copy_elements(
        struct hth_crc_stream *out, const struct hth_copy *c, uint64_t off, uint64_t len)
{
    unsigned char *dst = c->dst;
    uint32_t crc = hth_crc_stream_end(out);

    for (uint64_t n; len; len -= n, off += n) {
        n = len < CACHED ? len : CACHED;
        copy_strided(c, off, n);
        crc = hth_crc32c_more(crc, dst + off, n);
    }
    hth_crc_stream_begin(out, NULL, dst + off, crc);
}

/* Bytes [off, off + len) of one copy; `next` is the source of the copy behind it. */
static void copy_part_summed(struct hth_crc_stream *out, const struct hth_copy *c, uint64_t off,
        uint64_t len, const void *next)
{
    if (!c->strided)
        hth_crc_stream_put(out, (const unsigned char *)c->src + off, len, next);
    else if (copy_run(c->strided) >= STREAM_MIN)
        copy_runs(out, c, off, len);
    else
        copy_elements(out, c, off, len);
}

static size_t copy_at(const struct hth_copies *list, uint64_t byte)
{
    size_t low = 0, high = list->count;

    while (high - low > 1) {
        size_t mid = low + (high - low) / 2;

        if (list->copy[mid].start <= byte)
            low = mid;
        else
            high = mid;
    }
    return low;
}

/* The bytes of one copy that lie in a span. */
struct part {
    const unsigned char *head;
    uint64_t head_len; /* first these */
    uint64_t off, len; /* then these, without the head */
};

/* At most `most` bytes of a copy from byte `off` on, which is counted from its head. */
static struct part copy_part_of(
        const struct hth_copies *list, const struct hth_copy *c, uint64_t off, uint64_t most)
{
    uint64_t len = c->head + c->bytes - off, head = off < c->head ? c->head - off : 0;

    len = len < most ? len : most;
    head = head < len ? head : len;
    return (struct part){ .head = head ? list->heads + c->head_at + off : NULL,
        .head_len = head,
        .off = off + head > c->head ? off + head - c->head : 0,
        .len = len - head };
}

/* Bytes [at, end) of the stream, from byte `off` of copy `i` on. */
static void copy_span_plain(
        const struct hth_copies *list, size_t i, uint64_t off, uint64_t at, uint64_t end)
{
    for (; at < end; i++, off = 0) {
        const struct hth_copy *c = &list->copy[i];
        struct part p = copy_part_of(list, c, off, end - at);

        if (p.head_len)
            memcpy((unsigned char *)c->dst - c->head + off, p.head, p.head_len);
        if (p.len)
            copy_part(c, p.off, p.len);
        at += p.head_len + p.len;
    }
}

/* The same into an object, all of one chunk. */
static void copy_span_summed(
        const struct hth_copies *list, size_t i, uint64_t off, uint64_t at, uint64_t end)
{
    uint32_t *sum = &list->crc[(list->at + at) / SPAN];
    struct hth_crc_stream out;

    hth_crc_stream_begin(
            &out, NULL, (unsigned char *)list->copy[i].dst - list->copy[i].head + off, *sum);
    for (; at < end; i++, off = 0) {
        const struct hth_copy *c = &list->copy[i];
        struct part p = copy_part_of(list, c, off, end - at);

        if (p.head_len)
            hth_crc_stream_put(&out, p.head, p.head_len, c->src);
        copy_part_summed(&out, c, p.off, p.len, i + 1 < list->count ? c[1].src : NULL);
        at += p.head_len + p.len;
    }
    *sum = hth_crc_stream_end(&out);
}

static void copy_span(
        const struct hth_copies *list, size_t i, uint64_t off, uint64_t at, uint64_t end)
{
    if (list->crc)
        copy_span_summed(list, i, off, at, end);
    else
        copy_span_plain(list, i, off, at, end);
}

/* The first span that is not copied, or an earlier one. A thread that takes a span below `next` as
 * it is read here has entered that span, or an earlier one, before. */
static uint64_t crew_first(struct hth_crew *crew)
{
    uint64_t first = atomic_load(&crew->next), at;

    for (uint32_t i = 1; i <= crew->want; i++) {
        at = atomic_load(&crew->at[i]);
        first = at < first ? at : first;
    }
    return first;
}

/* Returns the bytes that were told. */
static uint64_t copies_tell(const struct hth_copies *list, uint64_t told, uint64_t bytes)
{
    if (!list->progress || bytes < told + HTH_COPIES_TOLD || bytes >= list->bytes)
        return told;
    list->progress(list->self, bytes);
    return bytes;
}

/* `list` by argument: crew->list is taken back while helpers still end their last span. me: 0, the
 * caller. */
static void copy_spans(struct hth_crew *crew, const struct hth_copies *list, uint32_t me)
{
    uint64_t span, first, told = 0;

    for (;;) {
        atomic_store(&crew->at[me], atomic_load(&crew->next));
        span = atomic_fetch_add(&crew->next, 1);
        if (span >= crew->spans)
            break;

        uint64_t at = span ? span * SPAN - crew->lead : 0, end = (span + 1) * SPAN - crew->lead;
        size_t i = copy_at(list, at);

        end = end < list->bytes ? end : list->bytes;
        copy_span(list, i, at - list->copy[i].start, at, end);
        if (!list->progress)
            continue;
        hth_crc32c_copied(); /* before at[] says so */
        first = me ? 0 : crew_first(crew);
        if (first)
            told = copies_tell(list, told, first * SPAN - crew->lead);
    }
    hth_crc32c_copied();
    atomic_store(&crew->at[me], UINT64_MAX);
}

static void *crew_help(void *arg)
{
    struct hth_crew *crew = arg;
    const struct hth_copies *list;
    uint32_t me = atomic_fetch_add(&crew->named, 1) + 1;
    uint64_t seen = 0;

    pthread_mutex_lock(&crew->lock);
    while (!crew->stop) {
        if (crew->round == seen || !crew->list) {
            seen = crew->list ? seen : crew->round;
            pthread_cond_wait(&crew->work, &crew->lock);
            continue;
        }
        list = crew->list;
        seen = crew->round;
        crew->active++;
        pthread_mutex_unlock(&crew->lock);
        copy_spans(crew, list, me);
        pthread_mutex_lock(&crew->lock);
        if (--crew->active == 0)
            pthread_cond_signal(&crew->done);
    }
    pthread_mutex_unlock(&crew->lock);
    return NULL;
}

/* At most as many as a cpu_set_t has. */
static uint32_t crew_processors(void)
{
    cpu_set_t set;

    return sched_getaffinity(0, sizeof(set), &set) ? CPU_SETSIZE : (uint32_t)CPU_COUNT(&set);
}

int hth_crew_spares(const struct hth_crew *crew, uint32_t ranks)
{
    return crew && crew->processors / 2 / (crew->want + 1) >= ranks;
}

struct hth_crew *hth_crew_open(uint32_t threads)
{
    struct hth_crew *crew = calloc(1, sizeof(*crew));

    if (!crew)
        return NULL;
    crew->processors = crew_processors();
    crew->want = threads > 1 ? threads - 1 : 0;
    crew->thread = calloc(crew->want + 1, sizeof(*crew->thread));
    crew->at = calloc(crew->want + 1, sizeof(*crew->at));
    for (uint32_t i = 0; crew->at && i <= crew->want; i++)
        atomic_init(&crew->at[i], UINT64_MAX);
    pthread_mutex_init(&crew->busy, NULL);
    pthread_mutex_init(&crew->lock, NULL);
    pthread_cond_init(&crew->work, NULL);
    pthread_cond_init(&crew->done, NULL);
    if (crew->thread && crew->at)
        return crew;
    hth_crew_close(crew);
    return NULL;
}

void hth_crew_close(struct hth_crew *crew)
{
    if (!crew)
        return;
    pthread_mutex_lock(&crew->lock);
    crew->stop = 1;
    pthread_cond_broadcast(&crew->work);
    pthread_mutex_unlock(&crew->lock);
    for (uint32_t i = 0; i < crew->threads; i++)
        pthread_join(crew->thread[i], NULL);
    pthread_cond_destroy(&crew->work);
    pthread_cond_destroy(&crew->done);
    pthread_mutex_destroy(&crew->lock);
    pthread_mutex_destroy(&crew->busy);
    free(crew->thread);
    free(crew->at);
    free(crew);
}

/* As many helpers as there may be; fewer are no error. */
static void crew_hire(struct hth_crew *crew)
{
    sigset_t all, old;

    if (crew->threads == crew->want)
        return;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    while (crew->threads < crew->want &&
            !pthread_create(&crew->thread[crew->threads], NULL, crew_help, crew))
        crew->threads++;
    pthread_sigmask(SIG_SETMASK, &old, NULL);
}

static void copy_alone(const struct hth_copies *list)
{
    uint64_t at = 0, off = 0, told = 0;
    size_t i = 0;

    while (at < list->bytes) {
        uint64_t end = at + SPAN - (list->at + at) % SPAN;

        end = end < list->bytes ? end : list->bytes;
        copy_span(list, i, off, at, end);
        for (off += end - at, at = end;
                i < list->count && off >= list->copy[i].head + list->copy[i].bytes; i++)
            off -= list->copy[i].head + list->copy[i].bytes;
        if (list->progress)
            hth_crc32c_copied();
        told = copies_tell(list, told, at);
    }
    hth_crc32c_copied();
}

static void crew_together(struct hth_crew *crew, const struct hth_copies *list)
{
    pthread_mutex_lock(&crew->lock);
    crew->list = list;
    crew->lead = list->at % SPAN;
    crew->spans = (crew->lead + list->bytes + SPAN - 1) / SPAN;
    atomic_store(&crew->next, 0);
    crew->round++;
    pthread_cond_broadcast(&crew->work);
    pthread_mutex_unlock(&crew->lock);

    copy_spans(crew, list, 0);

    pthread_mutex_lock(&crew->lock);
    crew->list = NULL; /* a helper that wakes up late finds nothing to do */
    while (crew->active)
        pthread_cond_wait(&crew->done, &crew->lock);
    pthread_mutex_unlock(&crew->lock);
}

void hth_crew_run(struct hth_crew *crew, const struct hth_copies *list)
{
    if (!crew || !crew->want || list->bytes < WORTH || pthread_mutex_trylock(&crew->busy) != 0) {
        copy_alone(list);
        return;
    }
    crew_hire(crew);
    crew_together(crew, list);
    pthread_mutex_unlock(&crew->busy);
}
