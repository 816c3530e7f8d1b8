/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that gather in threads, and a stranger that speaks to their host byte by byte. */
#ifndef HEARTH_TESTS_STRANGERS_H
#define HEARTH_TESTS_STRANGERS_H

#include "check.h"
#include "port.h"

#include "client/bootstrap/tcp.h"
#include "core/base/bytes.h"
#include "core/format/rows.h"
#include "meeting/wire.h"
#include <arpa/inet.h>
#include <errno.h>
#include <hearth/hearth.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define WORLD 4
#define LEN   512

static const unsigned char job_key[HTH_KEY] = "the job's", other_key[HTH_KEY] = "another's";

struct one {
    uint32_t rank, world, deadline_ms;
    uint16_t port;
    const unsigned char *key, *second; /* NULL: none */
    const char *job;
    int rounds, late_ms, rc;
    _Atomic pid_t tid; /* of its thread; 0: it has ended */
    atomic_int begun;
    unsigned char all[WORLD * LEN];
    struct hearth_error err;
};

static inline void sleep_ms(int ms)
{
    struct timespec t = { .tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000 };

    nanosleep(&t, NULL);
}

static inline void tell(struct hearth_bootstrap *b, const char *job, const unsigned char *key,
        const unsigned char *second, int trusted)
{
    struct hth_meeting_keys k = { .told = 1, .trusted = trusted };

    snprintf(k.job, sizeof(k.job), "%s", job);
    k.keyed = (key != NULL) + (second != NULL);
    if (key)
        memcpy(k.key[0], key, HTH_KEY);
    if (second)
        memcpy(k.key[1], second, HTH_KEY);
    hth_bootstrap_tell(b, &k);
}

static inline void *run_one(void *arg)
{
    struct one *o = arg;
    struct hearth_bootstrap *b = NULL;
    unsigned char mine[LEN];

    atomic_store(&o->tid, gettid());
    atomic_store(&o->begun, 1);
    sleep_ms(o->late_ms);
    o->rc = hearth_bootstrap_tcp(
            "127.0.0.1", o->port, o->rank, o->world, o->deadline_ms, &b, &o->err);
    if (!o->rc)
        tell(b, o->job, o->key, o->second, 0);
    for (int round = 0; round < o->rounds && !o->rc; round++) {
        memset(mine, (int)(o->rank * 16) + round, LEN);
        o->rc = b->allgather(b->self, mine, LEN, o->all, &o->err);
        for (uint32_t i = 0; i < o->world && !o->rc; i++)
            if (o->all[i * LEN] != i * 16 + (uint32_t)round ||
                    o->all[i * LEN + LEN - 1] != o->all[i * LEN])
                o->rc = -999;
    }
    hearth_bootstrap_close(b);
    atomic_store(&o->tid, 0);
    return NULL;
}

static struct one ranks[WORLD];
static pthread_t threads[WORLD];

static inline void set_up(const unsigned char *key)
{
    uint16_t port = port_keep();

    alarm(60);
    must(hth_auth_init(NULL));
    for (uint32_t i = 0; i < WORLD; i++)
        ranks[i] = (struct one){ .rank = i,
            .world = WORLD,
            .deadline_ms = 40000,
            .port = port,
            .rounds = 1,
            .job = "job",
            .key = key };
}

static inline void start(uint32_t from, uint32_t to)
{
    for (uint32_t i = from; i < to; i++)
        pthread_create(&threads[i], NULL, run_one, &ranks[i]);
}

/* 1: it has begun, and sleeps, or it has ended. */
static inline int one_sleeps(struct one *o)
{
    char path[64], stat[512] = "";
    FILE *f;

    snprintf(path, sizeof(path), "/proc/self/task/%d/stat", (int)atomic_load(&o->tid));
    f = fopen(path, "re");
    if (!f)
        return atomic_load(&o->begun);
    if (!fgets(stat, sizeof(stat), f))
        stat[0] = '\0';
    fclose(f);
    return strrchr(stat, ')') && strncmp(strrchr(stat, ')'), ") S", 3) == 0;
}

/* Until ranks [from, to) have read all that was sent to them, however busy the machine is: they
 * sleep, all at once. */
static inline void quiet(uint32_t from, uint32_t to)
{
    int looks = 0;

    for (int i = 0; looks < 5; i++) {
        int sleeping = 1;

        cr_assert(lt(int, i, 10000), "somebody is always awake");
        for (uint32_t r = from; r < to; r++)
            sleeping &= one_sleeps(&ranks[r]);
        looks = sleeping ? looks + 1 : 0;
        sleep_ms(3);
    }
}

/* Starts ranks [0, to), and waits until rank 0 has read what all of them sent. */
static inline void start_seated(uint32_t to)
{
    start(0, 1);
    quiet(0, 1); /* it listens, so that no rank has to come again */
    start(1, to);
    quiet(0, to);
}

static inline void join_up(uint32_t from, uint32_t to)
{
    for (uint32_t i = from; i < to; i++)
        pthread_join(threads[i], NULL);
}

static inline void all_have_gathered(uint32_t from)
{
    for (uint32_t i = from; i < WORLD; i++)
        cr_assert(eq(int, ranks[i].rc, 0), "rank %u: %d %s", i, ranks[i].rc, ranks[i].err.text);
}

/* ---- a stranger's words --------------------------------------------------------------------- */

static inline int dial(void)
{
    struct sockaddr_in a = { .sin_family = AF_INET,
        .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
        .sin_port = htons(ranks[0].port) };
    struct timeval t = { .tv_sec = 10 };
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof(t));
    for (int i = 0; i < 200; i++) {
        if (connect(fd, (struct sockaddr *)&a, sizeof(a)) == 0)
            return fd;
        sleep_ms(10);
    }
    cr_assert(eq(int, -1, fd), "nobody listens");
    return -1;
}

struct stranger {
    int fd;
    uint32_t rank;
    struct hth_meeting_keys knows;
    struct hth_greeting hello;
    struct hth_talk talk;
    struct hth_proving proving;
    unsigned char row[HTH_MEETING_TOKEN + LEN]; /* behind the process's token */
};

/* A stranger that knows all of the job but perhaps its key; its row is of 0x66. */
static inline void come_as(struct stranger *s, uint32_t rank, const unsigned char *key, int token)
{
    *s = (struct stranger){ .fd = dial(),
        .rank = rank,
        .knows = { .keyed = key != NULL, .job = "job" },
        .hello = { .world = WORLD, .round = 1, .len = LEN } };
    if (key)
        memcpy(s->knows.key[0], key, HTH_KEY);
    memset(s->hello.token, token, HTH_MEETING_TOKEN);
    memset(s->row, token, HTH_MEETING_TOKEN);
    memset(s->row + HTH_MEETING_TOKEN, 0x66, LEN);
    cr_assert(eq(int, (int)recv(s->fd, s->talk.challenge, HTH_CHALLENGE, MSG_WAITALL),
            (int)HTH_CHALLENGE));
    hth_greeting_make(&s->talk, &s->knows, &s->hello, &s->proving);
}

static inline void say(
        struct stranger *s, const struct hth_meet_frame *f, const void *body, size_t len)
{
    unsigned char head[HTH_MEET_FRAME], digest[HTH_DIGEST];

    hth_digest(digest, body, (size_t)f->len);
    hth_meet_frame_make(head, &s->proving, f, digest);
    send(s->fd, head, sizeof(head), MSG_NOSIGNAL);
    send(s->fd, body, len, MSG_NOSIGNAL);
}

/* The greeting, and so many bytes of the row. */
static inline void speak(struct stranger *s, size_t row)
{
    const struct hth_meet_frame f = {
        .type = HTH_MEET_FRAME_ROW, .rank = s->rank, .len = sizeof(s->row)
    };

    send(s->fd, s->talk.greeting, HTH_GREETING, MSG_NOSIGNAL);
    say(s, &f, s->row, HTH_MEETING_TOKEN + row);
}

/* 1: the connection ended, 2: nothing came. */
static inline int hear_frame(struct stranger *s, struct hth_meet_frame *f, void *body, size_t most)
{
    unsigned char head[HTH_MEET_FRAME], digest[HTH_DIGEST];
    ssize_t n = recv(s->fd, head, sizeof(head), MSG_WAITALL);

    if (n != sizeof(head))
        return n < 0 && errno == EAGAIN ? 2 : 1;
    must(hth_meet_frame_decode(f, head));
    cr_assert(le(u64, f->len, most));
    cr_assert(eq(int, (int)recv(s->fd, body, f->len, MSG_WAITALL), (int)f->len));
    hth_digest(digest, body, f->len);
    cr_assert(hth_meet_frame_holds(head, &s->proving, digest));
    return 0;
}

/* What rank 0 says: its code, 1 where it hangs up, or 2: nothing. With code 0 the table. */
static inline int hear(struct stranger *s, char *said, size_t len)
{
    const struct hth_meet_frame none = { .type = HTH_MEET_FRAME_HAS };
    unsigned char body[WORLD * (LEN + 8)];
    struct hth_meet_frame f, has = none;
    int is = hear_frame(s, &f, body, sizeof(body));

    if (is)
        return is;
    memset(said, 0, len);
    if (f.type == HTH_MEET_FRAME_NO) {
        memcpy(said, body, f.len < len ? f.len : len);
        return f.code;
    }
    cr_assert(eq(int, (int)f.type, (int)HTH_MEET_FRAME_TABLE));
    if (len == (size_t)WORLD * LEN)
        must(hth_rows_unpack((unsigned char *)said, LEN, WORLD, body, f.len));
    has.round = f.round;
    say(s, &has, "", 0);
    return 0;
}

#endif
