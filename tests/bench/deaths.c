/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_deaths: when a transport reports a dead peer, and what each peer costs it. One transport,
 * the hub, connects to owners, each a process, and reads from each. The backends alternate, with a
 * process for each round. It measures:
 *
 *     killed, quiet     from SIGKILL of an owner until on_down(); the hub has nothing to do
 *     killed, reading   from SIGKILL until on_pull() of four pulls of 4 MiB
 *     silent, reading   an owner is stopped for 2 s; from drop() until on_pull()
 *     dead address      from connect() to an owner killed before until on_down(), and the longest
 *                       call meanwhile
 *     per peer          descriptors and resident memory of the hub
 */
#include "bench.h"
#include "side.h"

#include "transport/transport.h"
#include <dirent.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define BACKENDS_MAX 8
#define OWNERS       12u
#define REACHED      (OWNERS - 1) /* the last one is dialled when it is dead */
#define BYTES        (UINT64_C(16) << 20)
#define PIECE        (UINT64_C(4) << 20)
#define PATIENCE_S   6.0
#define SILENT_S     2.0
#define NEVER        (PATIENCE_S * 1e3)

enum figure { QUIET, READING, SILENT, DEAD, CALL, FDS, KIB, FIGURES };

static const char *const names[FIGURES] = { "killed, quiet, ms", "killed, reading, ms",
    "silent, reading, ms from drop()", "dead address, ms", "dead address, longest call, ms",
    "descriptors per peer", "KiB per peer" };

static struct {
    struct hth_transport *t;
    struct hth_region *region;
    hth_conn accepted;
    unsigned char desc[HTH_DESC_MAX];
    uint32_t desc_len;
    int up, grants, pulls;
    hth_conn down;
    double longest_s;
} hub;

struct owner {
    pid_t pid;
    unsigned char addr[HTH_ADDR_MAX];
    uint32_t len;
    hth_conn conn;
};

/* ---- a transport ---- */

static void accepted(void *self, hth_conn conn)
{
    (void)self;
    hub.accepted = conn;
}

static void up(void *self, hth_conn conn)
{
    (void)self, (void)conn;
    hub.up++;
}

static void down(void *self, hth_conn conn, int code, const char *detail)
{
    (void)self, (void)code, (void)detail;
    hub.down = conn;
}

/* An owner answers a question by a grant; the hub keeps the grant. */
static void message(void *self, hth_conn conn, const void *bytes, size_t len)
{
    struct hearth_error err = { 0 };

    (void)self;
    if (conn != hub.accepted) {
        memcpy(hub.desc, bytes, len);
        hub.desc_len = (uint32_t)len;
        hub.grants++;
        return;
    }
    if (hub.t->ops->grant(hub.t, hub.region, 0, BYTES, conn, hub.desc, &hub.desc_len, &err) ||
            hub.t->ops->send(hub.t, conn, hub.desc, hub.desc_len))
        die("no grant: %s", err.text);
}

static void writable(void *self, hth_conn conn)
{
    (void)self, (void)conn;
}

static void pulled(void *self, uint64_t cookie, int code)
{
    (void)self, (void)cookie, (void)code;
    hub.pulls--;
}

static void hub_open(const char *name, const char *bind)
{
    struct backend b = backend_of(name);
    struct hth_transport_opts o = {
        .bind = bind, .provider = b.provider, .trusted = 1, .clock = side_clock()
    };
    struct hth_transport_events e = { NULL, accepted, up, down, message, writable, pulled };
    struct hearth_error err = { 0 };

    memset(&hub, 0, sizeof(hub));
    if (hth_transport_open(b.transport, NULL, &o, &e, &hub.t, &err) ||
            hub.t->ops->reg(hub.t, memory(BYTES), BYTES, &hub.region, &err))
        die("%s: %s", name, err.text);
}

static void turn(void)
{
    struct pollfd p = { .fd = -1, .events = POLLIN };
    uint64_t due = UINT64_MAX, now;
    double begin = now_s(), took;
    int n = hub.t->ops->progress(hub.t), ms = 100;

    took = now_s() - begin;
    hub.longest_s = took > hub.longest_s ? took : hub.longest_s;
    if (n > 0 || !hub.t->ops->arm(hub.t, &p.fd, &due))
        return;
    now = side_ms(NULL);
    if (due < now + 100)
        ms = due > now ? (int)(due - now) : 0;
    poll(&p, 1, ms);
}

/* ---- owners ---- */

static void owner_start(struct owner *o, const char *backend)
{
    int out[2];

    if (pipe(out))
        die("no pipe");
    o->pid = peers_fork();
    if (!o->pid) {
        struct hearth_error err = { 0 };

        hub_open(backend, "127.0.0.1");
        if (hub.t->ops->address(hub.t, o->addr, &o->len, &err) ||
                write(out[1], o->addr, o->len) != (ssize_t)o->len)
            die("%s: %s", backend, err.text);
        for (;;)
            turn();
    }
    close(out[1]);
    o->len = (uint32_t)read(out[0], o->addr, sizeof(o->addr));
    close(out[0]);
}

static void owner_dial(struct owner *o)
{
    struct hearth_error err = { 0 };
    double begin = now_s(), took;
    int rc = hub.t->ops->connect(hub.t, o->addr, o->len, &o->conn, &err);

    took = now_s() - begin;
    hub.longest_s = took > hub.longest_s ? took : hub.longest_s;
    if (rc)
        die("no dial: %s", err.text);
}

/* Asks for a grant until one of this connection has come: a grant is a connection's. */
static void owner_ask(const struct owner *o)
{
    int want = hub.grants + 1;

    while (hub.t->ops->send(hub.t, o->conn, "?", 1) == HEARTH_EBUSY)
        turn();
    while (hub.grants < want)
        turn();
}

/* Under the grant that came last, which is this owner's. */
static void owner_pull(const struct owner *o, uint64_t count, uint64_t len)
{
    for (uint64_t i = 0; i < count; i++)
        if (!hub.t->ops->pull(
                    hub.t, o->conn, hub.desc, hub.desc_len, i * len, hub.region, i * len, len, i))
            hub.pulls++;
}

static void owner_reach(struct owner *o)
{
    int want = hub.up + 1;

    owner_dial(o);
    while (hub.up < want)
        turn();
    owner_ask(o);
    owner_pull(o, 1, 4096);
    while (hub.pulls)
        turn();
}

static void owner_kill(struct owner *o)
{
    kill(o->pid, SIGKILL);
    waitpid(o->pid, NULL, 0);
    o->pid = 0;
}

static int is_down(const struct owner *o)
{
    return hub.down == o->conn;
}

static int is_pulled(const struct owner *o)
{
    (void)o;
    return !hub.pulls;
}

/* Milliseconds, or NEVER. */
static double until(int (*is)(const struct owner *o), const struct owner *o)
{
    double begin = now_s();

    while (!is(o)) {
        if (now_s() - begin > PATIENCE_S)
            return NEVER;
        turn();
    }
    return (now_s() - begin) * 1e3;
}

static void turn_for(double seconds)
{
    for (double stop = now_s() + seconds; now_s() < stop;)
        turn();
}

/* ---- one round: a process ---- */

static unsigned descriptors(void)
{
    DIR *d = opendir("/proc/self/fd");
    unsigned n = 0;

    while (d && readdir(d))
        n++;
    if (d)
        closedir(d);
    return n;
}

static double resident_kib(void)
{
    unsigned long pages = 0;
    FILE *f = fopen("/proc/self/statm", "re");

    if (!f || fscanf(f, "%*u %lu", &pages) != 1)
        die("no /proc/self/statm");
    fclose(f);
    return (double)pages * (double)sysconf(_SC_PAGESIZE) / 1024;
}

/* The first peer is not counted: with it the library makes what all peers share. */
static void cost(struct owner *o, double out[FIGURES])
{
    unsigned fds;
    double kib;

    owner_reach(&o[0]);
    fds = descriptors();
    kib = resident_kib();
    for (unsigned i = 1; i < REACHED; i++)
        owner_reach(&o[i]);
    out[FDS] = (descriptors() - fds) / (double)(REACHED - 1);
    out[KIB] = (resident_kib() - kib) / (double)(REACHED - 1);
}

/* A stopped owner serves nothing, so all pulls are under way when it is killed or dropped. */
static void reading(struct owner *killed, struct owner *silent, double out[FIGURES])
{
    owner_ask(killed);
    kill(killed->pid, SIGSTOP);
    owner_pull(killed, 4, PIECE);
    turn_for(0.2);
    owner_kill(killed);
    out[READING] = until(is_pulled, killed);
    hub.pulls = 0;
    owner_ask(silent);
    kill(silent->pid, SIGSTOP);
    owner_pull(silent, 4, PIECE);
    turn_for(SILENT_S);
    hub.t->ops->drop(hub.t, silent->conn);
    out[SILENT] = until(is_pulled, silent);
    kill(silent->pid, SIGCONT);
}

static void round_run(const char *backend, int to)
{
    struct owner o[OWNERS] = { { 0 } }, *dead = &o[OWNERS - 1];
    double out[FIGURES] = { 0 };

    for (unsigned i = 0; i < OWNERS; i++)
        owner_start(&o[i], backend);
    hub_open(backend, "127.0.0.1");
    cost(o, out);
    owner_kill(&o[0]);
    out[QUIET] = until(is_down, &o[0]);
    reading(&o[1], &o[2], out);
    owner_kill(dead);
    hub.longest_s = 0;
    owner_dial(dead);
    out[DEAD] = until(is_down, dead);
    out[CALL] = hub.longest_s * 1e3;
    if (write(to, out, sizeof(out)) != sizeof(out))
        _exit(1);
    for (unsigned i = 0; i < OWNERS; i++)
        if (o[i].pid)
            owner_kill(&o[i]);
    _exit(0);
}

/* ---- the parent ---- */

static struct {
    unsigned rounds, count;
    const char *backend[BACKENDS_MAX];
    struct series said[BACKENDS_MAX][FIGURES];
} arg = { .rounds = 5 };

static void add_backend(const char *name)
{
    if (arg.count == BACKENDS_MAX)
        die("--backend at most %d times", BACKENDS_MAX);
    arg.backend[arg.count++] = name;
}

static void take_args(int argc, char **argv)
{
    static const struct flag known[] = { { "--backend", .take = add_backend },
        { "--rounds", .count = &arg.rounds }, { 0 } };

    flags_take(known, argc, argv);
    if (!arg.count || !arg.rounds || arg.rounds > ROUNDS_MAX)
        die("usage: bench_deaths --backend TRANSPORT[:PROVIDER]... (up to %d) [--rounds 1..%d]",
                BACKENDS_MAX, ROUNDS_MAX);
}

static void one_round(unsigned which)
{
    double out[FIGURES];
    int p[2];
    pid_t pid;

    if (pipe(p))
        die("no pipe");
    pid = peers_fork();
    if (!pid)
        round_run(arg.backend[which], p[1]);
    close(p[1]);
    if (read(p[0], out, sizeof(out)) != sizeof(out))
        die("%s: the hub's process ended", arg.backend[which]);
    close(p[0]);
    waitpid(pid, NULL, 0);
    for (int f = 0; f < FIGURES; f++)
        series_add(&arg.said[which][f], out[f]);
}

static void figure_say(int f)
{
    printf("%-34s", names[f]);
    for (unsigned i = 0; i < arg.count; i++) {
        double value = series_median(&arg.said[i][f]);

        if (f < FDS && value >= NEVER)
            printf(" %18s", "never");
        else
            printf(" %18.1f", value);
    }
    printf("\n");
}

int main(int argc, char **argv)
{
    take_args(argc, argv);
    for (unsigned round = 0; round < arg.rounds; round++)
        for (unsigned i = 0; i < arg.count; i++)
            one_round(i);
    printf("%-34s", "median of the rounds");
    for (unsigned i = 0; i < arg.count; i++)
        printf(" %18s", arg.backend[i]);
    printf("\n");
    for (int f = 0; f < FIGURES; f++)
        figure_say(f);
    printf("never: not within %.0f s\n", PATIENCE_S);
    return 0;
}
