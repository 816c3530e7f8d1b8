/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_latency: how long a message of 64 bytes is under way between two sleeping processes, from
 * send() to the receiver's callback, after the two have been quiet for 0, 10 and 1000 ms; and what
 * processors the two take when nothing is to be done. A socket does the same beside: the time that
 * the machine itself needs to wake a process.
 *
 *     idle 0, 10 ms     one backend after the other, in rounds
 *     idle 1 s, nothing all at the same time
 */
#include "bench.h"
#include "side.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define BACKENDS_MAX 8
#define SAMPLES_MAX  8192u
#define QUIET_S      10

struct talk { /* an order: so many messages, each after a pause */
    unsigned count, pause_ms;
};

struct said_us {
    unsigned count;
    float us[SAMPLES_MAX];
};

struct candidate {
    const char *backend;
    struct peers peers;
    struct said_us said[3];
    float first_ms;
};

struct message {
    double sent_s, took_s; /* an answer: how long the question took */
    char rest[48];
};

static const unsigned pauses_ms[] = { 0, 10, 1000 };
static struct side side;
static struct message answer;
static int answered;

static void asked(struct side *s, hth_conn conn, const void *bytes, size_t len)
{
    struct message m;

    if (len != sizeof(m))
        die("%s: a message of %zu bytes", s->backend, len);
    memcpy(&m, bytes, sizeof(m));
    m.took_s = now_s() - m.sent_s;
    side_send(s, conn, &m, sizeof(m));
}

static void told(struct side *s, hth_conn conn, const void *bytes, size_t len)
{
    (void)s, (void)conn;
    if (len != sizeof(answer))
        die("%s: a message of %zu bytes", s->backend, len);
    memcpy(&answer, bytes, sizeof(answer));
    answered = 1;
}

static void owner_run(const void *arg, int out)
{
    side.on_message = asked;
    side_open(&side, arg, "127.0.0.1");
    side_serve(&side, out);
}

/* Returns the milliseconds until the first message is answered. */
static float first_message(int address)
{
    struct message m = { 0 };

    answered = 0;
    side_dial(&side, address);
    side_send(&side, side.conn, &m, sizeof(m));
    while (!answered)
        side_turn(&side, -1, 0);
    return (float)((now_s() - side.dialled_s) * 1e3);
}

static double one_message(unsigned pause_ms)
{
    struct message m = { 0 };
    double until = now_s() + pause_ms * 1e-3;

    while (pause_ms && now_s() < until)
        side_turn(&side, -1, until);
    answered = 0;
    m.sent_s = now_s();
    side_send(&side, side.conn, &m, sizeof(m));
    while (!answered)
        side_turn(&side, -1, 0);
    return answer.took_s * 1e6;
}

static void dialler_run(const void *arg, int address, int in, int out)
{
    struct talk talk;
    float ms;

    side.on_message = told;
    side_open(&side, arg, "127.0.0.2");
    ms = first_message(address);
    if (write(out, &ms, sizeof(ms)) != sizeof(ms))
        _exit(1);
    for (;;) {
        while (!side_turn(&side, in, 0))
            continue;
        if (read(in, &talk, sizeof(talk)) != sizeof(talk))
            _exit(0);
        for (unsigned i = 0; i < talk.count; i++) {
            float us = (float)one_message(talk.pause_ms);

            if (write(out, &us, sizeof(us)) != sizeof(us))
                _exit(1);
        }
    }
}

static void ask(struct candidate *c, unsigned count, unsigned pause)
{
    struct talk talk = { .count = count, .pause_ms = pauses_ms[pause] };

    peers_order(&c->peers, &talk, sizeof(talk));
}

static void hear(struct candidate *c, unsigned count, unsigned pause)
{
    struct said_us *said = &c->said[pause];

    for (unsigned i = 0; i < count; i++) {
        float us;

        peers_answer(&c->peers, &us, sizeof(us));
        if (said->count < SAMPLES_MAX)
            said->us[said->count++] = us;
    }
}

static int by_value(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;

    return (x > y) - (x < y);
}

static double part_of(const struct said_us *s, double part)
{
    unsigned at = (unsigned)(part * s->count);

    return s->us[at < s->count ? at : s->count - 1];
}

static int candidate_say(struct candidate *c, double idle_percent)
{
    printf("%-20s %5.0f ms %5.2f %%", c->backend, (double)c->first_ms, idle_percent);
    for (unsigned i = 0; i < 3; i++) {
        struct said_us *s = &c->said[i];

        qsort(s->us, s->count, sizeof(*s->us), by_value);
        printf("  | %6.0f %6.0f %7.0f", part_of(s, 0.5), part_of(s, 0.99), s->us[s->count - 1]);
    }
    printf("%s\n", idle_percent > 1 ? "  LOW" : "");
    return idle_percent > 1;
}

/* ---- a socket, beside ---- */

static void wire_owner(const void *arg, int out)
{
    struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t len = sizeof(a);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), conn, on = 1;
    struct message m;

    (void)arg;
    if (fd < 0 || bind(fd, (void *)&a, len) || listen(fd, 1) || getsockname(fd, (void *)&a, &len) ||
            write(out, &a, sizeof(a)) != sizeof(a))
        die("no socket: %s", strerror(errno));
    conn = accept(fd, NULL, NULL);
    setsockopt(conn, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    while (recv(conn, &m, sizeof(m), MSG_WAITALL) == sizeof(m)) {
        m.took_s = now_s() - m.sent_s;
        if (send(conn, &m, sizeof(m), MSG_NOSIGNAL) != sizeof(m))
            break;
    }
}

static void wire_dialler(const void *arg, int address, int in, int out)
{
    struct sockaddr_in a;
    struct message m = { 0 };
    struct talk talk;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
    double begin;
    float ms;

    (void)arg;
    if (read(address, &a, sizeof(a)) != sizeof(a))
        return;
    begin = now_s();
    if (connect(fd, (void *)&a, sizeof(a)) ||
            setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) ||
            send(fd, &m, sizeof(m), MSG_NOSIGNAL) != sizeof(m) ||
            recv(fd, &m, sizeof(m), MSG_WAITALL) != sizeof(m))
        die("no connection: %s", strerror(errno));
    ms = (float)((now_s() - begin) * 1e3);
    if (write(out, &ms, sizeof(ms)) != sizeof(ms))
        return;
    while (read(in, &talk, sizeof(talk)) == sizeof(talk))
        for (unsigned i = 0; i < talk.count; i++) {
            float us;

            nap_ms(talk.pause_ms);
            m.sent_s = now_s();
            if (send(fd, &m, sizeof(m), MSG_NOSIGNAL) != sizeof(m) ||
                    recv(fd, &m, sizeof(m), MSG_WAITALL) != sizeof(m))
                die("the socket broke");
            us = (float)(m.took_s * 1e6);
            if (write(out, &us, sizeof(us)) != sizeof(us))
                return;
        }
}

/* ---- the parent ---- */

static struct {
    unsigned rounds, count;
    struct candidate candidate[BACKENDS_MAX + 1];
} arg = { .rounds = 10, .count = 1, .candidate = { { .backend = "socket" } } };

static void add_backend(const char *name)
{
    if (arg.count > BACKENDS_MAX)
        die("--backend at most %d times", BACKENDS_MAX);
    arg.candidate[arg.count++].backend = name;
}

static void take_args(int argc, char **argv)
{
    static const struct flag known[] = { { "--backend", .take = add_backend },
        { "--rounds", .count = &arg.rounds }, { 0 } };

    flags_take(known, argc, argv);
    if (arg.count < 2 || !arg.rounds || arg.rounds > ROUNDS_MAX)
        die("usage: bench_latency --backend TRANSPORT[:PROVIDER]... (up to %d) [--rounds 1..%d]",
                BACKENDS_MAX, ROUNDS_MAX);
}

static void talk_in_turn(unsigned pause, unsigned count)
{
    for (unsigned round = 0; round < arg.rounds; round++)
        for (unsigned i = 0; i < arg.count; i++) {
            ask(&arg.candidate[i], count, pause);
            hear(&arg.candidate[i], count, pause);
        }
}

static void talk_at_once(unsigned pause, unsigned count)
{
    for (unsigned i = 0; i < arg.count; i++) {
        nap_ms(pauses_ms[pause] / arg.count); /* each at its own part of the pause */
        ask(&arg.candidate[i], count, pause);
    }
    for (unsigned i = 0; i < arg.count; i++)
        hear(&arg.candidate[i], count, pause);
}

/* Of the busier one of each two, in percent of a core. */
static void be_quiet(double percent[])
{
    double owner[BACKENDS_MAX + 1], dialler[BACKENDS_MAX + 1];

    nap_ms(2000);
    for (unsigned i = 0; i < arg.count; i++) {
        owner[i] = cpu_of(arg.candidate[i].peers.owner);
        dialler[i] = cpu_of(arg.candidate[i].peers.dialler);
    }
    nap_ms(1000 * QUIET_S);
    for (unsigned i = 0; i < arg.count; i++) {
        double a = cpu_of(arg.candidate[i].peers.owner) - owner[i];
        double b = cpu_of(arg.candidate[i].peers.dialler) - dialler[i];

        percent[i] = 100 * (a > b ? a : b) / QUIET_S;
    }
}

int main(int argc, char **argv)
{
    double percent[BACKENDS_MAX + 1];
    int low = 0;

    take_args(argc, argv);
    for (unsigned i = 0; i < arg.count; i++) {
        peers_start(&arg.candidate[i].peers, i ? owner_run : wire_owner,
                i ? dialler_run : wire_dialler, arg.candidate[i].backend);
        peers_answer(&arg.candidate[i].peers, &arg.candidate[i].first_ms, sizeof(float));
    }
    be_quiet(percent);
    talk_in_turn(0, 200);
    talk_in_turn(1, 40);
    talk_at_once(2, 4 * arg.rounds);
    printf("%-20s %8s %7s  | %-22s | %-22s | %-22s\n", "p50, p99, max in us", "first", "quiet",
            "after 0 ms", "after 10 ms", "after 1000 ms");
    for (unsigned i = 0; i < arg.count; i++) {
        low |= candidate_say(&arg.candidate[i], percent[i]);
        peers_end(&arg.candidate[i].peers);
    }
    return low ? 3 : 0;
}
