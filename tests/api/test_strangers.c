/* SPDX-License-Identifier: Apache-2.0 */
/* Whoever comes to rank 0's port that is no rank of this job: the ranks gather all the same. */
#include "check.h"
#include "port.h"

#include "client/bootstrap/rendezvous.h"
#include "core/base/bytes.h"
#include "core/format/rows.h"
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

static void sleep_ms(int ms)
{
    struct timespec t = { .tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000 };

    nanosleep(&t, NULL);
}

static void one_tell(const struct one *o, struct hearth_bootstrap *b)
{
    unsigned char keys[2][HTH_KEY] = { { 0 } };

    if (o->key)
        memcpy(keys[0], o->key, HTH_KEY);
    if (o->second)
        memcpy(keys[1], o->second, HTH_KEY);
    hth_bootstrap_tell(b, o->job, (const unsigned char(*)[HTH_KEY])keys,
            (o->key != NULL) + (o->second != NULL), 0);
}

static void *run_one(void *arg)
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
        one_tell(o, b);
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

static void set_up(const unsigned char *key)
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

static void start(uint32_t from, uint32_t to)
{
    for (uint32_t i = from; i < to; i++)
        pthread_create(&threads[i], NULL, run_one, &ranks[i]);
}

/* 1: it has begun, and sleeps, or it has ended. */
static int one_sleeps(struct one *o)
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

/* Until ranks [from, to) have heard all that was said to them, however busy the machine is: they sleep, all at once. */
static void quiet(uint32_t from, uint32_t to)
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

/* Ranks [0, to), all of them heard. */
static void start_seated(uint32_t to)
{
    start(0, 1);
    quiet(0, 1); /* it listens, so that nobody has to come again */
    start(1, to);
    quiet(0, to);
}

static void join_up(uint32_t from, uint32_t to)
{
    for (uint32_t i = from; i < to; i++)
        pthread_join(threads[i], NULL);
}

static void all_have_gathered(uint32_t from)
{
    for (uint32_t i = from; i < WORLD; i++)
        cr_assert(eq(int, ranks[i].rc, 0), "rank %u: %d %s", i, ranks[i].rc, ranks[i].err.text);
}

/* ---- a stranger's words --------------------------------------------------------------------- */

static int dial(void)
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
    struct hth_knows knows;
    struct hth_greeting hello;
    struct hth_talk talk;
    unsigned char row[LEN];
};

/* He knows all of the job but perhaps its key; his row is of 0x66. */
static void come_as(struct stranger *s, uint32_t rank, const unsigned char *key, int token)
{
    *s = (struct stranger){ .fd = dial(),
        .knows = { .keyed = key != NULL, .job = "job" },
        .hello = { .rank = rank, .world = WORLD, .round = 1, .len = LEN } };
    if (key)
        memcpy(s->knows.key[0], key, HTH_KEY);
    memset(s->hello.token, token, HTH_TOKEN);
    memset(s->row, 0x66, LEN);
    cr_assert(eq(int, (int)recv(s->fd, s->talk.challenge, HTH_CHALLENGE, MSG_WAITALL),
            (int)HTH_CHALLENGE));
    hth_greeting_make(&s->talk, &s->knows, &s->hello, s->row);
}

static void speak(struct stranger *s, size_t row)
{
    send(s->fd, s->talk.greeting, HTH_GREETING, MSG_NOSIGNAL);
    send(s->fd, s->row, row, MSG_NOSIGNAL);
}

/* What rank 0 says: its code, 1 where it hangs up, or 2: nothing. With code 0 the table. */
static int hear(struct stranger *s, char *said, size_t len)
{
    unsigned char head[HTH_ANSWER], body[WORLD * (LEN + 8)];
    struct hth_answer a;
    ssize_t n = recv(s->fd, head, sizeof(head), MSG_WAITALL);

    if (n != sizeof(head))
        return n < 0 && errno == EAGAIN ? 2 : 1;
    must(hth_answer_decode(&a, head));
    memset(said, 0, len);
    cr_assert(le(u64, a.len, sizeof(body)));
    cr_assert(eq(int, (int)recv(s->fd, body, a.len, MSG_WAITALL), (int)a.len));
    if (a.code)
        memcpy(said, body, a.len < len ? a.len : len);
    else if (len == (size_t)WORLD * LEN)
        must(hth_rows_unpack((unsigned char *)said, LEN, WORLD, body, a.len));
    return a.code;
}

/* ---- without a key -------------------------------------------------------------------------- */

Test(strangers, a_seat_is_taken_once_and_who_comes_second_is_refused_by_name)
{
    struct stranger s;
    char said[HEARTH_ERROR_TEXT];

    set_up(NULL);
    start_seated(3);
    come_as(&s, 1, NULL, 7);
    speak(&s, LEN);
    cr_assert(eq(int, hear(&s, said, sizeof(said) - 1), HEARTH_EINVAL));
    cr_assert(eq(int, strncmp(said, "rank 1 has come from 127.0.0.1 port ", 36), 0), "%s", said);
    cr_assert(ne(ptr, strstr(said, "somebody else says from 127.0.0.1 port "), NULL), "%s", said);
    start(3, 4);
    join_up(0, 4);
    all_have_gathered(0); /* with rank 1's own row */
    close(s.fd);
}

Test(strangers, the_last_who_was_refused_is_named_when_the_gather_fails)
{
    struct stranger s;
    char said[HEARTH_ERROR_TEXT];

    set_up(NULL);
    for (int i = 0; i < WORLD; i++)
        ranks[i].deadline_ms = 2000;
    start_seated(2);
    come_as(&s, 1, NULL, 7);
    speak(&s, LEN);
    cr_assert(eq(int, hear(&s, said, sizeof(said) - 1), HEARTH_EINVAL));
    close(s.fd);
    join_up(0, 2);
    cr_assert(eq(int, ranks[0].rc, HEARTH_ETIMEOUT));
    cr_assert(ne(ptr, strstr(ranks[0].err.text, "rank 1 has come from"), NULL), "%s",
            ranks[0].err.text);
}

Test(strangers, half_a_row_for_a_seated_rank_changes_nothing)
{
    struct stranger s;

    set_up(NULL);
    start_seated(3);
    come_as(&s, 1, NULL, 7);
    speak(&s, 100);
    quiet(0, 3);
    start(3, 4);
    join_up(0, 4);
    all_have_gathered(0);
    close(s.fd);
}

Test(strangers, lengths_ranks_and_worlds_that_do_not_fit_are_hung_up_on)
{
    static const struct hth_greeting wrong[] = { { .rank = 1, .world = WORLD, .len = UINT32_MAX },
        { .rank = 1, .world = WORLD, .len = LEN + 1 }, { .rank = 1, .world = WORLD, .len = 0 },
        { .rank = 0, .world = WORLD, .len = LEN }, { .rank = 4, .world = WORLD, .len = LEN },
        { .rank = UINT32_MAX, .world = UINT32_MAX, .len = LEN },
        { .rank = 1, .world = WORLD + 1, .len = LEN } };
    struct stranger s;
    char said[HEARTH_ERROR_TEXT];

    set_up(NULL);
    start(0, 1);
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        come_as(&s, 1, NULL, 7);
        hth_put32(s.talk.greeting + 8, wrong[i].rank);
        hth_put32(s.talk.greeting + 12, wrong[i].world);
        hth_put32(s.talk.greeting + 20, wrong[i].len);
        speak(&s, LEN);
        cr_assert(eq(int, hear(&s, said, sizeof(said)), 1), "%zu", i);
        close(s.fd);
    }
    start(1, 4);
    join_up(0, 4);
    all_have_gathered(0);
}

#define AT_ONCE 500

Test(strangers, ten_thousand_who_say_nothing_keep_nobody_out, .timeout = 60)
{
    static int fd[AT_ONCE];

    set_up(NULL);
    start(0, 1);
    for (int i = 0; i < 10000; i++) { /* the oldest go where the process has no more descriptors */
        if (fd[i % AT_ONCE])
            close(fd[i % AT_ONCE]);
        fd[i % AT_ONCE] = dial();
        if (i == 5000)
            start(1, 3);
    }
    start(3, 4);
    join_up(0, 4);
    all_have_gathered(0);
    for (int i = 0; i < AT_ONCE; i++)
        close(fd[i]);
}

/* They are another process's, which has more descriptors than rank 0. */
Test(strangers, who_says_nothing_goes_where_rank_0_has_no_more_descriptors, .timeout = 60)
{
    struct rlimit few = { 48, 48 };
    pid_t child;

    set_up(NULL);
    child = fork();
    if (!child) {
        for (int i = 0; i < 300; i++)
            dial();
        pause();
        _exit(0);
    }
    setrlimit(RLIMIT_NOFILE, &few);
    start(0, 1);
    sleep_ms(500);
    start(1, 4);
    join_up(0, 4);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    all_have_gathered(0);
}

static atomic_int drip_ends;

/* As many as rank 0 has places for, and more; each says a byte now and then, and the whole never. */
static void *drip(void *arg)
{
    enum { SLOW = 400 };
    static struct stranger s[SLOW];

    (void)arg;
    for (int i = 0; i < SLOW; i++) {
        s[i].fd = dial();
        hth_greeting_make(&s[i].talk, &s[i].knows,
                &(struct hth_greeting){ .rank = 1, .world = WORLD, .round = 1, .len = LEN },
                s[i].row);
    }
    for (size_t at = 0; !atomic_load(&drip_ends); at++) {
        for (int i = 0; i < SLOW; i++)
            if (at < HTH_GREETING)
                send(s[i].fd, s[i].talk.greeting + at, 1, MSG_NOSIGNAL);
        sleep_ms(20);
    }
    for (int i = 0; i < SLOW; i++)
        close(s[i].fd);
    return NULL;
}

Test(strangers, those_who_speak_a_byte_at_a_time_keep_nobody_out, .timeout = 60)
{
    pthread_t t;

    set_up(NULL);
    start(0, 1);
    pthread_create(&t, NULL, drip, NULL);
    sleep_ms(300);
    start(1, 4);
    join_up(0, 4);
    atomic_store(&drip_ends, 1);
    pthread_join(t, NULL);
    all_have_gathered(0);
}

Test(strangers, who_says_nothing_is_hung_up_on_after_five_seconds, .timeout = 60)
{
    struct stranger s;
    char byte;

    set_up(NULL);
    ranks[0].deadline_ms = 8000;
    start(0, 1);
    come_as(&s, 1, NULL, 7);
    cr_assert(eq(int, (int)recv(s.fd, &byte, 1, 0), 0)); /* not a time-out of ours, of 10 s */
    close(s.fd);
    join_up(0, 1);
    cr_assert(eq(int, ranks[0].rc, HEARTH_ETIMEOUT));
}

Test(strangers, a_rank_that_does_not_read_its_table_keeps_it_from_no_other)
{
    struct stranger s;

    set_up(NULL);
    ranks[0].deadline_ms = 3000;
    start(0, 1);
    come_as(&s, 1, NULL, 7);
    speak(&s, LEN);
    quiet(0, 1);
    for (int i = 2; i < 4; i++)
        ranks[i].rounds = 0;
    start(2, 4);
    join_up(2, 4);
    {
        struct stranger two, three;
        char said[WORLD * LEN];

        come_as(&two, 2, NULL, 2);
        speak(&two, LEN);
        come_as(&three, 3, NULL, 3);
        speak(&three, LEN);
        cr_assert(eq(int, hear(&two, said, sizeof(said)), 0));
        cr_assert(eq(int, hear(&three, said, sizeof(said)), 0));
        close(two.fd);
        close(three.fd);
    }
    join_up(0, 1); /* who waits for rank 1 to have it, and says who has not */
    cr_assert(eq(int, ranks[0].rc, HEARTH_EPEER));
    cr_assert(ne(ptr, strstr(ranks[0].err.text, "rank 1 left before it had the table"), NULL), "%s",
            ranks[0].err.text);
    close(s.fd);
}

/* ---- who comes again ------------------------------------------------------------------------ */

Test(strangers, a_rank_whose_connection_broke_comes_again_while_others_are_waited_for)
{
    struct stranger s, again;
    char said[WORLD * LEN];

    set_up(NULL);
    start(0, 1);
    come_as(&s, 1, NULL, 7);
    speak(&s, LEN);
    quiet(0, 1);
    come_as(&again, 1, NULL, 7); /* before rank 0 knows that the first is broken */
    speak(&again, LEN);
    quiet(0, 1);
    close(s.fd);
    come_as(&s, 2, NULL, 2);
    speak(&s, LEN);
    close(s.fd); /* gone before all are here: another process may take its place */
    quiet(0, 1);
    come_as(&s, 2, NULL, 9);
    speak(&s, LEN);
    start(3, 4);
    cr_assert(eq(int, hear(&again, said, sizeof(said)), 0));
    cr_assert(eq(int, said[2 * LEN], 0x66));
    close(again.fd);
    cr_assert(eq(int, hear(&s, said, sizeof(said)), 0));
    close(s.fd);
    join_up(3, 4);
    join_up(0, 1);
}

Test(strangers, a_rank_whose_connection_broke_with_the_table_on_its_way_gets_it_again)
{
    struct linger reset = { .l_onoff = 1 };
    struct stranger s[WORLD];
    char said[WORLD * LEN];

    set_up(NULL);
    ranks[0].deadline_ms = 5000;
    start(0, 1);
    for (uint32_t i = 1; i < WORLD; i++) {
        come_as(&s[i], i, NULL, (int)i);
        speak(&s[i], LEN);
    }
    quiet(0, 1);
    setsockopt(s[1].fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
    close(s[1].fd); /* unread: a reset */
    quiet(0, 1);
    come_as(&s[1], 1, NULL, 99); /* another's token: not now */
    speak(&s[1], LEN);
    cr_assert(eq(int, hear(&s[1], said, sizeof(said)), 1));
    close(s[1].fd);
    come_as(&s[1], 1, NULL, 1);
    speak(&s[1], LEN);
    for (uint32_t i = 1; i < WORLD; i++) {
        cr_assert(eq(int, hear(&s[i], said, sizeof(said)), 0), "rank %u", i);
        close(s[i].fd);
    }
    join_up(0, 1);
}

/* A reset reaches rank 0 in place of the end of the connection. */
Test(strangers, a_rank_that_proves_that_it_has_the_table_is_waited_for_no_longer)
{
    struct linger reset = { .l_onoff = 1 };
    struct stranger s[WORLD];
    char said[WORLD * LEN];
    struct hth_answer a;
    unsigned char head[HTH_ANSWER];

    set_up(job_key);
    start(0, 1);
    for (uint32_t i = 1; i < WORLD; i++) {
        come_as(&s[i], i, job_key, (int)i);
        speak(&s[i], LEN);
    }
    cr_assert(eq(int, (int)recv(s[1].fd, head, sizeof(head), MSG_WAITALL), (int)sizeof(head)));
    must(hth_answer_decode(&a, head));
    quiet(0, 1);
    setsockopt(s[1].fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
    close(s[1].fd); /* unread: a reset */
    quiet(0, 1);
    come_as(&s[1], 1, job_key, 1);
    s[1].hello.round = a.round;
    hth_greeting_make(&s[1].talk, &s[1].knows, &s[1].hello, s[1].row);
    speak(&s[1], LEN);
    cr_assert(eq(int, hear(&s[1], said, sizeof(said)), 1));
    for (uint32_t i = 2; i < WORLD; i++)
        cr_assert(eq(int, hear(&s[i], said, sizeof(said)), 0), "rank %u", i);
    for (uint32_t i = 1; i < WORLD; i++)
        close(s[i].fd);
    join_up(0, 1);
    cr_assert(eq(int, ranks[0].rc, -999), "%s", ranks[0].err.text); /* it has the rows of 0x66 */
}

Test(strangers, ranks_that_come_before_rank_0_or_to_one_that_ends_are_served_by_the_next)
{
    struct hearth_bootstrap *old;
    struct hearth_error err;

    set_up(job_key);
    must(hearth_bootstrap_tcp("127.0.0.1", ranks[0].port, 0, WORLD, 1000, &old, &err));
    start(1, 4); /* they wait in the queue of one that never hears them */
    sleep_ms(300);
    ranks[0].late_ms = 0;
    start(0, 1); /* the port is still the other's */
    sleep_ms(300);
    hearth_bootstrap_close(old);
    join_up(0, 4);
    all_have_gathered(0);
}

Test(strangers, many_gathers_follow_each_other_with_a_rank_that_is_late)
{
    set_up(job_key);
    for (int i = 0; i < WORLD; i++)
        ranks[i].rounds = 12;
    ranks[0].late_ms = 200;
    ranks[3].late_ms = 400;
    start(0, 4);
    join_up(0, 4);
    all_have_gathered(0);
}

/* ---- with a key ----------------------------------------------------------------------------- */

Test(strangers, with_another_key_or_none_is_not_heard)
{
    static const unsigned char *const keys[] = { other_key, NULL };
    struct stranger s;
    char said[HEARTH_ERROR_TEXT];

    set_up(job_key);
    start(0, 1);
    for (int i = 0; i < 2; i++) {
        come_as(&s, 1, keys[i], 7);
        speak(&s, LEN);
        cr_assert(eq(int, hear(&s, said, sizeof(said)), 1));
        close(s.fd);
    }
    come_as(&s, 1, job_key, 7);
    memcpy(s.knows.job, "other", 6); /* the same key for another job */
    hth_greeting_make(&s.talk, &s.knows, &s.hello, s.row);
    speak(&s, LEN);
    cr_assert(eq(int, hear(&s, said, sizeof(said)), 1));
    close(s.fd);
    start(1, 4);
    join_up(0, 4);
    all_have_gathered(0);
}

Test(strangers, what_was_said_in_another_gather_is_not_heard_in_this_one)
{
    struct stranger first, s;
    char said[WORLD * LEN];

    set_up(job_key);
    ranks[0].deadline_ms = 1500;
    start(0, 1);
    come_as(&first, 1, job_key, 7);
    speak(&first, LEN);
    join_up(0, 1); /* nobody else came */
    cr_assert(eq(int, hear(&first, said, sizeof(said)), HEARTH_ETIMEOUT));
    close(first.fd);
    set_up(job_key);
    start(0, 1);
    come_as(&s, 1, NULL, 7);
    memcpy(s.talk.greeting, first.talk.greeting, HTH_GREETING);
    speak(&s, LEN);
    cr_assert(eq(int, hear(&s, said, sizeof(said)), 1));
    close(s.fd);
    start(1, 4);
    join_up(0, 4);
    all_have_gathered(0);
}

Test(strangers, each_byte_of_greeting_and_row_is_proved)
{
    struct stranger s;
    char said[HEARTH_ERROR_TEXT];

    set_up(job_key);
    start(0, 1);
    for (size_t at = 8; at < HTH_GREETING + LEN; at += at < HTH_GREETING ? 1 : 37) {
        come_as(&s, 1, job_key, 7);
        if (at < HTH_GREETING)
            s.talk.greeting[at] ^= 2;
        else
            s.row[at - HTH_GREETING] ^= 1;
        speak(&s, LEN);
        cr_assert(eq(int, hear(&s, said, sizeof(said)), 1), "byte %zu", at);
        close(s.fd);
    }
    start(1, 4);
    join_up(0, 4);
    all_have_gathered(0);
}

Test(strangers, a_rank_with_another_key_is_told_so_and_so_is_rank_0)
{
    set_up(job_key);
    for (int i = 0; i < WORLD; i++)
        ranks[i].deadline_ms = 3000;
    ranks[1].key = other_key;
    ranks[2].key = NULL;
    ranks[3].job = "another";
    start(0, 4);
    join_up(0, 4);
    cr_assert(ne(ptr, strstr(ranks[0].err.text, "came without proof of our key"), NULL), "%s",
            ranks[0].err.text);
    for (int i = 0; i < 4; i++) {
        cr_assert(eq(int, ranks[i].rc, HEARTH_EAUTH), "%s", ranks[i].err.text);
        cr_assert(
                ne(ptr, strstr(ranks[i].err.text, "same key_file"), NULL), "%s", ranks[i].err.text);
    }
}

/* Each pair of steps that stand side by side, and rank 0 at the earlier and at the later one. */
Test(strangers, ranks_of_both_keys_meet_while_the_key_is_changed)
{
    static const struct {
        const unsigned char *first, *second;
    } steps[] = { { job_key, NULL }, { job_key, other_key }, { other_key, job_key },
        { other_key, NULL } };

    for (int step = 0; step < 3; step++)
        for (int later = 0; later < 2; later++) {
            set_up(NULL);
            for (int i = 0; i < WORLD; i++) {
                ranks[i].key = steps[step + ((i + later) & 1)].first;
                ranks[i].second = steps[step + ((i + later) & 1)].second;
            }
            start(0, 4);
            join_up(0, 4);
            all_have_gathered(0);
        }
}

Test(strangers, ranks_that_count_differently_and_one_with_a_key_where_there_is_none_are_named)
{
    set_up(NULL);
    for (int i = 0; i < WORLD; i++)
        ranks[i].deadline_ms = 3000;
    ranks[1].key = job_key;
    ranks[2].world = WORLD + 1;
    start(0, 3);
    join_up(0, 3);
    for (int i = 0; i < 2; i++) {
        cr_assert(eq(int, ranks[i].rc, HEARTH_EAUTH), "%s", ranks[i].err.text);
        cr_assert(
                ne(ptr, strstr(ranks[i].err.text, "same key_file"), NULL), "%s", ranks[i].err.text);
    }
    cr_assert(ne(ptr, strstr(ranks[0].err.text, "he is rank 2 of 5, and we count 4"), NULL), "%s",
            ranks[0].err.text);
}

/* A stranger has the port, and gives each rank a table of his own. */
static void *pretend_to_be_rank_0(void *arg)
{
    static unsigned char table[WORLD * LEN];
    struct stranger s = { .knows = { .keyed = 1, .job = "job" } };
    struct hth_answer a = { .round = 1, .len = sizeof(table) };
    unsigned char head[HTH_ANSWER], digest[HTH_DIGEST];
    int fd = accept(*(int *)arg, NULL, NULL);

    hth_challenge_make(s.talk.challenge, &s.knows);
    send(fd, s.talk.challenge, HTH_CHALLENGE, MSG_NOSIGNAL);
    recv(fd, s.talk.greeting, HTH_GREETING, MSG_WAITALL);
    recv(fd, s.row, LEN, MSG_WAITALL);
    hth_digest(digest, table, sizeof(table));
    hth_answer_make(head, &s.talk, &s.knows, &a, digest);
    send(fd, head, sizeof(head), MSG_NOSIGNAL);
    send(fd, table, sizeof(table), MSG_NOSIGNAL);
    close(fd);
    return NULL;
}

Test(strangers, who_gives_a_table_without_proof_is_not_rank_0)
{
    struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    int listener = socket(AF_INET, SOCK_STREAM, 0), yes = 1;
    pthread_t t;

    set_up(job_key);
    a.sin_port = htons(ranks[1].port);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
    cr_assert(eq(int, bind(listener, (struct sockaddr *)&a, sizeof(a)), 0));
    listen(listener, 4);
    pthread_create(&t, NULL, pretend_to_be_rank_0, &listener);
    start(1, 2);
    join_up(1, 2);
    pthread_join(t, NULL);
    close(listener);
    cr_assert(eq(int, ranks[1].rc, HEARTH_EAUTH), "%s", ranks[1].err.text);
    cr_assert(ne(ptr, strstr(ranks[1].err.text, "does not prove the job key"), NULL), "%s",
            ranks[1].err.text);
}

Test(strangers, off_loopback_the_ranks_meet_with_a_key_or_where_that_was_allowed)
{
    struct hearth_bootstrap *b;
    struct hearth_error err = { 0 };
    unsigned char mine[LEN] = { 0 }, all[2 * LEN];

    alarm(60);
    must(hearth_bootstrap_tcp("0.0.0.0", port_keep(), 0, 2, 200, &b, &err));
    hth_bootstrap_tell(b, "job", NULL, 0, 0);
    must_fail(b->allgather(b->self, mine, LEN, all, &err), HEARTH_EINVAL);
    cr_assert(ne(ptr, strstr(err.text, "without a key they meet on loopback only"), NULL), "%s",
            err.text);
    hth_bootstrap_tell(b, "job", NULL, 0, 1);
    must_fail(b->allgather(b->self, mine, LEN, all, &err), HEARTH_ETIMEOUT);
    hth_bootstrap_tell(b, "job", &job_key, 1, 0);
    must_fail(b->allgather(b->self, mine, LEN, all, &err), HEARTH_ETIMEOUT);
    hearth_bootstrap_close(b);
}
