/* SPDX-License-Identifier: Apache-2.0 */
/* Memory over the transport ucx: a grant that is revoked while it is read, registration beside
 * progress(). */
#include "check.h"

#include "transport/transport.h"

#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define BYTES  (UINT64_C(16) << 20)
#define PIECE  (UINT64_C(4) << 20)
#define LIMIT  20000u /* ms, for what must come */
#define THREAD 4
#define TIMES  50
#define MANY   66000 /* regions, more than the 65,536 keys of living ones that a peer keeps */

struct side {
    struct hth_transport *t;
    hth_conn conn;
    int up, down, done;
    int code[BYTES / PIECE];
    struct hth_region *region;
    unsigned char *bytes;
    unsigned char desc[HTH_DESC_MAX]; /* that the other side has sent */
    uint32_t desc_len;
};

static uint64_t clock_ms(void *self)
{
    struct timespec now;

    (void)self;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static void on_up(void *self, hth_conn conn)
{
    struct side *s = self;

    s->conn = conn;
    s->up = 1;
}

static void on_down(void *self, hth_conn conn, int code, const char *detail)
{
    struct side *s = self;

    (void)conn, (void)code, (void)detail;
    s->down = 1;
}

static void on_message(void *self, hth_conn conn, const void *bytes, size_t len)
{
    struct side *s = self;

    (void)conn;
    cr_assert(le(sz, len, sizeof(s->desc)));
    memcpy(s->desc, bytes, len);
    s->desc_len = (uint32_t)len;
}

static void on_writable(void *self, hth_conn conn)
{
    (void)self, (void)conn;
}

static void on_pull(void *self, uint64_t cookie, int code)
{
    struct side *s = self;

    s->code[cookie] = code;
    s->done++;
}

static void side_open(struct side *s)
{
    struct hth_transport_events events = { s, on_up, on_up, on_down, on_message, on_writable,
        on_pull };
    struct hth_transport_opts opts = {
        .bind = "127.0.0.1",
        .provider = "tcp",
        .trusted = 1,
        .library = getenv("HEARTH_UCX_LIBRARY"),
        .clock = { clock_ms, clock_ms, NULL },
    };
    struct hearth_error err = { 0 };
    int rc = hth_transport_open("ucx", getenv("HEARTH_TEST_LIB"), &opts, &events, &s->t, &err);

    if (rc == HEARTH_ENOENT)
        cr_skip_test("%s", err.text);
    cr_assert(eq(int, rc, 0), "%s", err.text);
    s->bytes = malloc(BYTES);
    cr_assert(ne(ptr, s->bytes, NULL));
    memset(s->bytes, 1, BYTES);
    must(s->t->ops->reg(s->t, s->bytes, BYTES, &s->region, &err), err);
}

static void side_close(struct side *s)
{
    s->t->ops->close(s->t);
    free(s->bytes);
}

static void pair_progress(struct side pair[2])
{
    for (int i = 0; i < 2; i++)
        pair[i].t->ops->progress(pair[i].t);
}

static void pair_open(struct side pair[2])
{
    unsigned char addr[HTH_ADDR_MAX];
    struct hearth_error err = { 0 };
    uint64_t end = clock_ms(NULL) + LIMIT;
    uint32_t len;

    side_open(&pair[0]);
    side_open(&pair[1]);
    must(pair[0].t->ops->address(pair[0].t, addr, &len, &err), err);
    must(pair[1].t->ops->connect(pair[1].t, addr, len, &pair[1].conn, &err), err);
    while (!(pair[0].up && pair[1].up) && clock_ms(NULL) < end)
        pair_progress(pair);
    cr_assert(eq(int, pair[0].up + pair[1].up, 2));
}

/* The first bytes are here, so the owner's library reads. Then the owner takes the grant back and
 * writes there at once. */
static int revoke_amid(struct side pair[2])
{
    unsigned char desc[HTH_DESC_MAX];
    uint64_t end = clock_ms(NULL) + LIMIT;
    int denied = 0;
    uint32_t len;

    memset(pair[0].bytes, 1, BYTES);
    memset(pair[1].bytes, 0, BYTES);
    pair[1].done = 0;
    must(pair[0].t->ops->grant(
            pair[0].t, pair[0].region, 0, BYTES, pair[0].conn, desc, &len, NULL));
    for (uint64_t off = 0; off < BYTES; off += PIECE)
        must(pair[1].t->ops->pull(
                pair[1].t, pair[1].conn, desc, len, off, pair[1].region, off, PIECE, off / PIECE));
    while (!pair[1].bytes[0] && clock_ms(NULL) < end)
        pair_progress(pair);
    pair[0].t->ops->revoke(pair[0].t, desc, len);
    memset(pair[0].bytes, 2, BYTES);
    while ((uint64_t)pair[1].done < BYTES / PIECE && clock_ms(NULL) < end)
        pair_progress(pair);
    cr_assert(eq(u64, (uint64_t)pair[1].done, BYTES / PIECE));
    for (uint64_t i = 0; i < BYTES / PIECE; i++) {
        cr_assert(pair[1].code[i] == 0 || pair[1].code[i] == HEARTH_EDENIED);
        denied += pair[1].code[i] != 0;
        if (!pair[1].code[i])
            cr_assert(eq(ptr, memchr(pair[1].bytes + i * PIECE, 2, PIECE), NULL),
                    "a pull that succeeded has bytes that were written after the revoke()");
    }
    cr_assert(eq(int, pair[0].down + pair[1].down, 0));
    return denied;
}

Test(ucx_memory, what_is_read_after_a_revoke_counts_for_nothing)
{
    struct side pair[2] = { 0 };
    int denied = 0;

    pair_open(pair);
    cr_assert(ne(int, (int)(pair[0].t->ops->caps(pair[0].t) & HTH_CAP_REVOKES), 0));
    for (int i = 0; i < 10; i++)
        denied += revoke_amid(pair);
    cr_assert(gt(int, denied, 0), "none of ten was in time");
    side_close(&pair[1]);
    side_close(&pair[0]);
}

struct worker {
    struct hth_transport *t;
    struct hth_region *region[TIMES];
    unsigned char bytes[4096 * TIMES];
    int failed;
};

static void *worker_run(void *arg)
{
    struct worker *w = arg;

    for (size_t i = 0; i < TIMES; i++)
        w->failed += w->t->ops->reg(w->t, w->bytes + 4096 * i, 4096, &w->region[i], NULL) != 0;
    return NULL;
}

Test(ucx_memory, any_thread_registers_beside_progress)
{
    static struct worker worker[THREAD];
    struct side pair[2] = { 0 };
    pthread_t thread[THREAD];

    pair_open(pair);
    for (int i = 0; i < THREAD; i++) {
        worker[i].t = pair[0].t;
        cr_assert(eq(int, pthread_create(&thread[i], NULL, worker_run, &worker[i]), 0));
    }
    for (int i = 0; i < 1000; i++)
        pair[i % 2].t->ops->progress(pair[i % 2].t);
    for (int i = 0; i < THREAD; i++) {
        pthread_join(thread[i], NULL);
        cr_assert(eq(int, worker[i].failed, 0));
        for (size_t k = 0; k < TIMES; k++)
            must(pair[0].t->ops->dereg(pair[0].t, worker[i].region[k]));
    }
    side_close(&pair[1]);
    side_close(&pair[0]);
}

/* The owner grants the region and sends the descriptor; returns its length. */
static uint32_t side_tell(struct side *s, struct hth_region *region)
{
    unsigned char desc[HTH_DESC_MAX];
    uint32_t len;

    must(s->t->ops->grant(s->t, region, 0, 4096, s->conn, desc, &len, NULL));
    must(s->t->ops->send(s->t, s->conn, desc, len));
    return len;
}

static void pair_wait_told(struct side pair[2], uint32_t len)
{
    uint64_t end = clock_ms(NULL) + LIMIT;

    while (pair[1].desc_len != len && !pair[1].down && clock_ms(NULL) < end)
        pair_progress(pair);
    cr_assert(eq(u32, pair[1].desc_len, len));
}

static int pull_code(struct side pair[2], const unsigned char *desc, uint32_t len)
{
    uint64_t end = clock_ms(NULL) + LIMIT;

    pair[1].done = 0;
    must(pair[1].t->ops->pull(pair[1].t, pair[1].conn, desc, len, 0, pair[1].region, 0, 4096, 0));
    while (!pair[1].done && clock_ms(NULL) < end)
        pair_progress(pair);
    cr_assert(eq(int, pair[1].done, 1));
    return pair[1].code[0];
}

/* A job registers regions for as long as it lives; its peer keeps the keys of those that are
 * registered. */
Test(ucx_memory, keys_of_regions_that_are_over_take_no_room)
{
    struct side pair[2] = { 0 };
    struct hth_region *region;

    setenv("HEARTH_UCX_GETS", "1", 1);
    pair_open(pair);
    for (int i = 0; i < MANY; i++) {
        unsigned char desc[HTH_DESC_MAX];
        uint32_t len;

        must(pair[0].t->ops->reg(pair[0].t, pair[0].bytes, 4096, &region, NULL));
        must(pair[0].t->ops->grant(pair[0].t, region, 0, 4096, pair[0].conn, desc, &len, NULL));
        must(pair[0].t->ops->dereg(pair[0].t, region));
        if (i % 64 == 0)
            pair_progress(pair);
    }
    pair_wait_told(pair, side_tell(&pair[0], pair[0].region));
    cr_assert(eq(int, pull_code(pair, pair[1].desc, pair[1].desc_len), 0));
    cr_assert(eq(int, pair[0].down + pair[1].down, 0));
    side_close(&pair[1]);
    side_close(&pair[0]);
}

/* The puller knows that the region is over, and keeps the descriptor. */
Test(ucx_memory, a_region_that_is_over_is_denied_whether_or_not_it_was_pulled_from)
{
    struct side pair[2] = { 0 };

    setenv("HEARTH_UCX_GETS", "1", 1);
    pair_open(pair);
    for (int pulls = 0; pulls < 2; pulls++) {
        unsigned char desc[HTH_DESC_MAX];
        struct hth_region *region;
        uint32_t len;

        must(pair[0].t->ops->reg(pair[0].t, pair[0].bytes, 4096, &region, NULL));
        len = side_tell(&pair[0], region);
        pair_wait_told(pair, len);
        memcpy(desc, pair[1].desc, sizeof(desc));
        for (int i = 0; i < pulls; i++)
            cr_assert(eq(int, pull_code(pair, desc, len), 0));
        must(pair[0].t->ops->dereg(pair[0].t, region));
        must(pair[0].t->ops->send(pair[0].t, pair[0].conn, "over", 4));
        pair_wait_told(pair, 4);
        cr_assert(eq(int, pull_code(pair, desc, len), HEARTH_EDENIED));
    }
    side_close(&pair[1]);
    side_close(&pair[0]);
}
