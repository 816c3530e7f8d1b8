/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bytes of an object. An object on this node is mapped already. From other nodes whole chunks
 * are fetched and checked against the table, or a slice: bytes that are much less than their
 * chunks, which are checked against the checksum that comes with them. The last ones fetched are
 * kept. A reader of slices that lie next to each other gets whole chunks from the fifth slice on at
 * the latest, so that a box read row by row moves each chunk about once. The next ones can be
 * prefetched.
 */
#include "window.h"

#include "client/slots/shared.h"
#include "core/base/crc.h"
#include "fetch.h"
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define AHEAD_MAX    (UINT64_C(64) << 20)  /* of one object */
#define AHEAD_COUNT  64u                   /* prefetches of a checkpoint, each with a descriptor; */
#define AHEAD_FIRST  32u                   /* so many may begin with an object's first bytes */
#define AHEAD_SLICES 32u                   /* of one object */
#define AHEAD_ALL    (UINT64_C(512) << 20) /* bytes of all prefetches: counted here alone */
#define READ_MAX     (UINT64_C(32) << 20)  /* of a remote object at once */
#define SLICE_SAVES  (UINT64_C(16) << 10)  /* bytes that a slice does not move, at least */
#define SLICES_ROW   4u                    /* slices, each next to the one before */
#define ROW_GAP      (HTH_CHUNK / 64)      /* between these: headers lie between items */

struct ahead { /* a prefetch on its way */
    struct hth_asked asked;
    struct hth_local_bytes answer;
    uint64_t off, len;
    struct ahead *next;
};

struct hth_window {
    void *map; /* NULL: nothing */
    uint64_t map_len;
    uint64_t off, len;   /* of the object's data: whole chunks, or a slice */
    uint64_t next;       /* where the last slice ended */
    uint32_t row;        /* slices that began there, or nearly so */
    int chunks;          /* a slice came without a checksum, so its chunks were moved for it */
    int sums;            /* the last slice came with one */
    struct ahead *ahead; /* oldest first */
    uint32_t aheads;
    uint64_t ahead_bytes;
};

/* NULL: no memory. */
static struct hth_window *window_of(struct hth_source *s)
{
    if (!s->window)
        s->window = calloc(1, sizeof(*s->window));
    return s->window;
}

static void window_drop(struct hth_window *w)
{
    if (w->map)
        munmap(w->map, w->map_len);
    w->map = NULL;
}

int hth_ahead_room(const struct hearth_checkpoint *c)
{
    return c->aheads < AHEAD_FIRST && c->ahead_bytes < AHEAD_ALL;
}

/* Ends a prefetch: its bytes are there, or are not wanted. Returns the one after it. */
static struct ahead **ahead_end(
        struct hearth_checkpoint *c, struct hth_window *w, struct ahead **at)
{
    struct ahead *a = *at;

    hth_ask_drop(c->h, &a->asked);
    c->aheads--;
    w->aheads--;
    c->ahead_bytes -= a->len;
    w->ahead_bytes -= a->len;
    *at = a->next;
    free(a);
    return at;
}

void hth_source_forget_ahead(struct hearth_checkpoint *c, struct hth_source *s)
{
    while (s->window && s->window->ahead)
        ahead_end(c, s->window, &s->window->ahead);
}

void hth_window_close(struct hearth_checkpoint *c, struct hth_source *s)
{
    if (!s->window)
        return;
    hth_source_forget_ahead(c, s);
    window_drop(s->window);
    free(s->window);
}

static int window_has(const struct hth_window *w, uint64_t off, uint64_t len)
{
    return w->map && off >= w->off && off + len <= w->off + w->len;
}

/* Whole chunks around [off, off + len), or a slice as it is. */
static void window_widen(const struct hth_source *s, uint64_t *off, uint64_t *len)
{
    uint64_t end = *off + *len, was_off = *off, was_len = *len;

    end = HTH_CHUNKS(end) * HTH_CHUNK;
    end = end < s->table.data_len ? end : s->table.data_len;
    *off = *off / HTH_CHUNK * HTH_CHUNK;
    *len = end - *off;
    if (s->table.strong || was_len > HTH_SLICE_MAX || *len - was_len < SLICE_SAVES ||
            s->window->row >= SLICES_ROW || s->window->chunks)
        return;
    *off = was_off;
    *len = was_len;
}

/* Counts the slices that are read in a row. */
static void window_read(struct hth_window *w, uint64_t off, uint64_t len)
{
    int near = off <= w->next + ROW_GAP && w->next <= off + ROW_GAP;

    w->row = near ? w->row + 1 : 0;
    w->next = off + len;
}

static int window_is_slice(const struct hth_source *s, uint64_t off, uint64_t len)
{
    return off % HTH_CHUNK || (len % HTH_CHUNK && off + len < s->table.data_len);
}

/* If a chunk is wrong: HEARTH_ECORRUPT, and its number in *out_chunk. */
static int window_check(const struct hth_source *s, const unsigned char *bytes, uint64_t off,
        const struct hth_local_bytes *a, uint64_t *out_chunk, struct hearth_error *err)
{
    int slice = window_is_slice(s, off, a->len);

    for (uint64_t at = 0; at < a->len; at += slice ? a->len : HTH_CHUNK) {
        uint32_t chunk = (uint32_t)((off + at) / HTH_CHUNK);

        if (slice ? !a->summed || hth_crc32c(bytes, a->len) == a->sum
                  : hth_chunk_is(&s->table.proofs, chunk, bytes + at))
            continue;
        *out_chunk = chunk;
        return hth_fail(err, HEARTH_ECORRUPT, 0,
                "object '%s' of rank %u: chunk %" PRIu32 " is wrong as this node's engine gave it",
                s->object->name, s->object->owner, chunk);
    }
    return HEARTH_OK;
}

/* Takes bytes that have come, and reports a wrong chunk to the engine. */
static int window_take(struct hearth_checkpoint *c, struct hth_source *s, int fd, uint64_t off,
        const struct hth_local_bytes *a, struct hearth_error *err)
{
    struct hth_window *w = s->window;
    uint64_t chunk = 0;
    void *bytes = NULL;
    int rc;

    window_drop(w);
    if ((rc = hth_map_answer(fd, a->len, &bytes, err)))
        return rc;
    madvise(bytes, a->len, MADV_DONTFORK); /* a child reads nothing, and would keep its pages */
    w->map = bytes;
    w->map_len = w->len = a->len;
    w->off = off;
    if (window_is_slice(s, off, a->len)) {
        w->chunks |= !a->summed;
        w->sums = a->summed != 0;
    }
    if (!(rc = window_check(s, bytes, off, a, &chunk, err)))
        return HEARTH_OK;
    window_drop(w);
    hth_tell_bad(c->h, c->save, s->object->id, chunk);
    return rc;
}

static int window_fetch(struct hearth_checkpoint *c, struct hth_source *s, uint64_t off,
        uint64_t len, struct hearth_error *err)
{
    struct hth_local_bytes a;
    int fd, rc = HEARTH_ECORRUPT;

    for (int tries = 0; tries < 2 && rc == HEARTH_ECORRUPT; tries++) {
        rc = hth_range(c->h, c->save, s->object->id, HTH_BLOCK + off, len, &a, &fd, err);
        if (!rc)
            rc = window_take(c, s, fd, off, &a, err);
    }
    return rc;
}

static int ahead_has(const struct ahead *a, uint64_t off, uint64_t len)
{
    return off >= a->off && off + len <= a->off + a->len;
}

/* The prefetch that has [off, off + len), or the end of the list. Those that the reader has passed
 * are ended, and one that is alone: the reader reads elsewhere. */
static struct ahead **ahead_find(
        struct hearth_checkpoint *c, struct hth_window *w, uint64_t off, uint64_t len)
{
    struct ahead **at = &w->ahead;

    while (*at && !ahead_has(*at, off, len))
        at = (*at)->off + (*at)->len <= off || w->aheads == 1 ? ahead_end(c, w, at) : &(*at)->next;
    return at;
}

/* Takes the bytes of a prefetch, if there is one that has [off, off + len). */
static int window_take_ahead(
        struct hearth_checkpoint *c, struct hth_source *s, uint64_t off, uint64_t len)
{
    struct hth_window *w = s->window;
    struct ahead **at = ahead_find(c, w, off, len), *a = *at;
    struct hth_local_bytes answer;
    uint64_t from;
    int fd = -1;

    if (!a)
        return HEARTH_ENOENT;
    if (!hth_ask_wait(c->h, &a->asked, HTH_REQUEST_MS, "prefetch", NULL) &&
            a->answer.len == a->len) {
        fd = a->asked.fd;
        a->asked.fd = -1;
    }
    from = a->off;
    answer = a->answer;
    ahead_end(c, w, at);
    return fd < 0 ? HEARTH_ENOENT : window_take(c, s, fd, from, &answer, NULL);
}

/* Another program may have cut its file: bytes behind the end have no page, and to read them would
 * end this process. */
static int source_reaches(const struct hth_source *s, uint64_t end, struct hearth_error *err)
{
    struct stat st;

    if (fstat(s->shared->fd, &st) || (uint64_t)st.st_size >= s->data_at + end)
        return HEARTH_OK;
    return hth_fail(err, HEARTH_ELOST, 0,
            "object '%s': the file is shorter than it was when it was recovered: recover again",
            s->object->name);
}

int hth_source_at(struct hearth_checkpoint *c, struct hth_source *s, uint64_t off, uint64_t len,
        const unsigned char **out, struct hearth_error *err)
{
    uint64_t wide_off = off, wide_len = len;
    int rc;

    if (s->theirs && (rc = source_reaches(s, off + len, err)))
        return rc;
    if (s->local) {
        s->unsure = s->theirs;
        c->unsure |= s->theirs;
        *out = s->shared->map + s->data_at + off;
        return HEARTH_OK;
    }
    if (!window_of(s))
        return hth_fail(err, HEARTH_ENOMEM, 0, "no memory to read from another node");
    window_read(s->window, off, len);
    if (!window_has(s->window, off, len)) {
        window_widen(s, &wide_off, &wide_len);
        rc = window_take_ahead(c, s, off, len);
        if (rc && (rc = window_fetch(c, s, wide_off, wide_len, err)))
            return hth_while(
                    err, rc, "read object '%s' of rank %u", s->object->name, s->object->owner);
    }
    *out = (const unsigned char *)s->window->map + (off - s->window->off);
    return HEARTH_OK;
}

int hth_source_holds(const struct hth_source *s, uint64_t off, uint64_t len)
{
    return s->local || !s->window || !s->window->map || window_has(s->window, off, len);
}

int hth_read_data(struct hearth_checkpoint *c, struct hth_source *s, uint64_t off, void *dst,
        uint64_t len, struct hearth_error *err)
{
    const unsigned char *src;
    int rc;

    for (uint64_t done = 0, n; done < len; done += n) {
        n = len - done < READ_MAX ? len - done : READ_MAX;
        if ((rc = hth_source_at(c, s, off + done, n, &src, err)))
            return rc;
        memcpy((char *)dst + done, src, n);
    }
    return HEARTH_OK;
}

/* Asks for the bytes of a prefetch, which comes last in the list. */
static void ahead_begin(struct hearth_checkpoint *c, struct hth_source *s, struct ahead *a)
{
    struct hth_window *w = s->window;
    struct ahead **end = &w->ahead;
    struct hth_local_map m = { .save = hth_local_save_of(c->save),
        .object = s->object->id,
        .off = HTH_BLOCK + a->off,
        .len = a->len };
    struct hth_ask ask = hth_range_ask(&m, &a->answer, NULL);

    if (hth_ask_try(c->h, &ask, &a->asked)) {
        free(a);
        return;
    }
    while (*end)
        end = &(*end)->next;
    *end = a;
    c->aheads++;
    w->aheads++;
    c->ahead_bytes += a->len;
    w->ahead_bytes += a->len;
}

void hth_source_ahead(struct hearth_checkpoint *c, struct hth_source *s, uint64_t off, uint64_t len)
{
    struct hth_window *w;
    struct ahead *a;

    if (s->local || !len || !(w = window_of(s)))
        return;
    len = len < AHEAD_MAX ? len : AHEAD_MAX;
    if (window_has(w, off, len))
        return;
    for (a = w->ahead; a; a = a->next)
        if (ahead_has(a, off, len))
            return;
    if (!(a = malloc(sizeof(*a))))
        return;
    window_widen(s, &off, &len);
    *a = (struct ahead){ .asked = { .fd = -1 }, .off = off, .len = len };
    ahead_begin(c, s, a);
}

int hth_source_has_ahead(const struct hth_source *s)
{
    return s->window && s->window->ahead;
}

/* A holder that has no checksums of slices moves a chunk for each. */
static uint32_t source_most(const struct hth_source *s)
{
    return s->window && s->window->sums ? AHEAD_SLICES : 1;
}

int hth_source_room(const struct hearth_checkpoint *c, const struct hth_source *s)
{
    const struct hth_window *w = s->window;

    return c->aheads < AHEAD_COUNT && c->ahead_bytes < AHEAD_ALL &&
           (!w || (w->aheads < source_most(s) && w->ahead_bytes < AHEAD_MAX));
}

int hth_source_lacks(const struct hth_source *s)
{
    return !s->window || 2 * s->window->aheads <= source_most(s);
}
