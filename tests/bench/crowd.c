/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_crowd: the part of its rate that a member keeps while strangers come to the listener of the
 * node that serves it, against the same strangers, with the same part of a processor, at a listener
 * that only accepts and closes.
 *
 *     puller ◄── the shard ── owner ◄┐
 *                                    ├── one or the other, in turn ── strangers
 *                             dumb ◄─┘
 *
 * tcp with a key: a session receives nothing from a stranger without it. Four kinds of strangers
 * come one after the other: a whole hello, for which the owner has to compute; half a hello; noise;
 * and a connection that sends nothing.
 */
#include "bench.h"

#include "transport/tcp/seal.h"

#include <arpa/inet.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define WANT   0.8
#define OPEN   128u /* strangers that stay for a while: the oldest goes when another comes */
#define WARM_S 0.5  /* of strangers, before a pull is measured */

enum kind { HELLO, HALF, NOISE, SILENT, KINDS };

static struct {
    const char *base, *json, *memory;
    uint64_t mib;
    unsigned rounds, percent;
} arg = { .mib = 1024, .rounds = 5, .percent = 25 };

/* Shared with the strangers. */
struct crowd {
    pid_t pid;
    uint64_t *came; /* so far */
};

static struct sockaddr_in loopback(uint16_t port)
{
    struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons(port) };

    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return a;
}

/* One that is bound and listens, at any port. */
static int listen_any(uint16_t *out_port)
{
    struct sockaddr_in a = loopback(0);
    socklen_t len = sizeof(a);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0 || bind(fd, (struct sockaddr *)&a, sizeof(a)) || listen(fd, 1024) ||
            getsockname(fd, (struct sockaddr *)&a, &len))
        die("a socket: %s", strerror(errno));
    *out_port = ntohs(a.sin_port);
    return fd;
}

/* Takes whoever comes and lets him go. */
static pid_t dumb_start(uint16_t *out_port)
{
    int fd = listen_any(out_port);
    pid_t pid = peers_fork();

    while (!pid) {
        int conn = accept4(fd, NULL, NULL, SOCK_CLOEXEC);

        if (conn >= 0)
            close(conn);
    }
    close(fd);
    return pid;
}

/* ---- strangers
 * ------------------------------------------------------------------------------------ */

static double used_s(void)
{
    struct timespec t;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Whose nonce and public key are anything. */
static size_t stranger_words(enum kind kind, unsigned char out[HTH_SEAL_HELLO])
{
    static const unsigned char head[] = { 'H', 'T', 'C', 'P', 2, 2, 1, 1, 7 };

    if (kind == SILENT)
        return 0;
    if (getrandom(out, HTH_SEAL_HELLO, 0) != HTH_SEAL_HELLO)
        _exit(1);
    if (kind == NOISE)
        return HTH_SEAL_HELLO;
    memset(out, 0, 32);
    memcpy(out, head, sizeof(head));
    return kind == HELLO ? HTH_SEAL_HELLO : HTH_SEAL_HELLO / 2;
}

static void stranger_comes(uint16_t port, uint64_t number)
{
    static int place[OPEN];
    struct sockaddr_in a = loopback(port);
    unsigned char words[HTH_SEAL_HELLO];
    size_t len = stranger_words((enum kind)(number % KINDS), words);
    int *fd = &place[number % OPEN];

    if (*fd > 0)
        close(*fd);
    *fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (*fd < 0)
        _exit(1);
    if (connect(*fd, (struct sockaddr *)&a, sizeof(a)) && errno != EINPROGRESS)
        return;
    if (len)
        (void)!send(*fd, words, len, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* As many as its part of a processor lets come. */
static void crowd_start(struct crowd *c, uint16_t port)
{
    double began, used, part = arg.percent / 100.0;

    *c->came = 0;
    if ((c->pid = peers_fork()) > 0)
        return;
    began = now_s();
    used = used_s();
    for (uint64_t n = 0;; n++) {
        while (used_s() - used > (now_s() - began) * part)
            nap_ms(1);
        stranger_comes(port, n);
        *c->came = n + 1;
    }
}

static void crowd_end(struct crowd *c)
{
    kill(c->pid, SIGKILL);
    waitpid(c->pid, NULL, 0);
}

/* ---- rounds
 * ---------------------------------------------------------------------------------------- */

struct side_of {
    const char *name;
    uint16_t port; /* 0: there is no crowd */
    struct series rate, came, cpu;
};

static void round_of(const struct peers *p, struct crowd *c, struct side_of *s)
{
    double bytes = (double)(arg.mib << 20), began;
    struct took took;
    uint64_t before;

    if (s->port)
        crowd_start(c, s->port);
    nap_ms((unsigned)(WARM_S * 1000));
    before = s->port ? *c->came : 0;
    began = now_s();
    took = peers_pull(p);
    series_add(&s->rate, bytes / took.s / 1e9);
    series_add(&s->cpu, took.cpu_s / (bytes / 1e9));
    if (s->port) {
        series_add(&s->came, (double)(*c->came - before) / (now_s() - began));
        crowd_end(c);
    }
}

static int say(const struct side_of *at_owner, const struct side_of *at_dumb)
{
    return row_say(&(struct row){ .name = "pull, strangers at the owner's listener",
            .limit_name = at_dumb->name,
            .rate = &at_owner->rate,
            .limit = &at_dumb->rate,
            .cpu = &at_owner->cpu,
            .limit_cpu = &at_dumb->cpu,
            .unit = "GB/s",
            .want = at_dumb->port ? WANT : 0 });
}

static void take_args(int argc, char **argv)
{
    static const struct flag known[] = { { "--base", .text = &arg.base },
        { "--mib", .number = &arg.mib }, { "--rounds", .count = &arg.rounds },
        { "--percent", .count = &arg.percent }, { "--json", .text = &arg.json },
        { "--memory", .text = &arg.memory }, { 0 } };

    flags_take(known, argc, argv);
    if (!arg.base || arg.mib < 16 || !arg.rounds || arg.rounds > ROUNDS_MAX || !arg.percent ||
            arg.percent > 100)
        die("usage: bench_crowd --base TMPFS [--mib N] [--rounds 1..%d] [--percent 1..100, of a "
            "processor, for the strangers] [--json LINES] [--memory WORD]",
                ROUNDS_MAX);
}

int main(int argc, char **argv)
{
    struct side_of owner = { .name = "the owner" }, dumb = { .name = "strangers at a dumb one" },
                   none = { .name = "nobody comes" };
    struct pull_job job = { .backend = "tcp+key" };
    struct crowd crowd = { 0 };
    struct peers peers;
    pid_t listener;
    int low;

    take_args(argc, argv);
    signal(SIGPIPE, SIG_IGN);
    rows_open(arg.json, arg.memory, arg.mib << 20);
    crowd.came = mmap(
            NULL, sizeof(*crowd.came), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (crowd.came == MAP_FAILED)
        die("no memory");
    job.base = arg.base;
    job.bytes = arg.mib << 20;
    close(listen_any(&job.port)); /* free a moment ago */
    owner.port = job.port;
    raw_start(&peers, &job);
    listener = dumb_start(&dumb.port);
    for (unsigned i = 0; i < arg.rounds; i++) {
        round_of(&peers, &crowd, &none);
        round_of(&peers, &crowd, &owner);
        round_of(&peers, &crowd, &dumb);
    }
    low = say(&owner, &dumb);
    say(&owner, &none);
    printf("strangers a second, with %u %% of a processor: %.0f at the owner, %.0f at the dumb one\n",
            arg.percent, series_median(&owner.came), series_median(&dumb.came));
    kill(listener, SIGKILL);
    waitpid(listener, NULL, 0);
    peers_end(&peers);
    return low ? 3 : 0;
}
