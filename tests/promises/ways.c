/* SPDX-License-Identifier: Apache-2.0 */
/* The ways to run a job: how many nodes, how its engine starts, how ranks find each other, and what
 * an engine inside another program's process must leave alone. One case each. */
#include "party.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static struct party p;

static void one(uint32_t nodes, uint32_t ranks)
{
    party_open(&p, nodes, ranks, 128);
}

static void run_steps(void)
{
    party_start(&p);
    party_recover(&p, 0, 0);
    party_save(&p, 1, 1);
    party_save(&p, 2, 2);
    party_restart(&p);
    party_recover(&p, 2, 2);
}

/* ---- nodes and steps
 * ---------------------------------------------------------------------------- */

static void one_node_job(void)
{
    struct answer a;

    one(1, 2);
    run_steps();
    party_save(&p, 3, 3);
    a = party_ask(&p, 0, do_test, 3, 0, 0);
    CHECK(a.rc == 0 && a.v[0] == HEARTH_PROTECTED && a.v[1] == 1, "one node, and not DEGRADED");
    party_kill_ranks(&p);
    party_kill_engine(&p, 0);
    p.opts.allow_degraded = 0;
    p.ranks = p.opts.world = 1;
    party_start_rank(&p, 0);
    a = party_ask(&p, 0, do_open, 0, 0, 0);
    party_must_fail(&a, HEARTH_EINVAL, "allow_degraded", NULL);
}

static void by_its_boot_id(const struct party *of, struct me *me)
{
    (void)of;
    me->opts.machine = NULL;
}

/* Two nodes with two names on the one machine of this test, which both would be lost with. */
static void pods_of_one_machine(void)
{
    struct answer a;
    uint16_t port = port_keep();

    one(2, 2);
    p.adjust = by_its_boot_id;
    for (uint32_t r = 0; r < p.ranks; r++)
        party_start_rank(&p, r);
    for (uint32_t r = 0; r < p.ranks; r++)
        party_tell(&p, r, do_open, port, 0, 0);
    for (uint32_t r = 0; r < p.ranks; r++) {
        a = party_hear(&p, r, 20000);
        party_must_fail(
                &a, HEARTH_EINVAL, "need 2 machines, the job's 2 nodes are on 1", "HEARTH_MACHINE");
    }
    party_kill_ranks(&p);
    p.opts.allow_degraded = 1;
    run_steps();
    party_save(&p, 3, 3);
    a = party_ask(&p, 0, do_test, 3, 0, 0);
    CHECK(a.rc == 0 && a.v[0] == HEARTH_PROTECTED && a.v[1] == 1, "not DEGRADED");
}

static void keep_two(void)
{
    char path[256];

    one(2, 2);
    p.opts.keep = 2;
    party_start(&p);
    party_recover(&p, 0, 0);
    for (uint64_t step = 1; step < 6; step++)
        party_save(&p, step, step);
    for (uint64_t step = 1; step < 6; step++) {
        uint64_t until = now_ms() + 5000;
        int want = step >= 4;

        snprintf(path, sizeof(path), "%s/job/step-%u_ckpt", p.root[1], (unsigned)step);
        while ((access(path, F_OK) == 0) != want && now_ms() < until)
            nap_ms(5);
        CHECK((access(path, F_OK) == 0) == want, "keep is 2, and %s is %s", path,
                want ? "gone" : "still there");
    }
}

static void begin_without_room(void)
{
    struct answer a;
    uint64_t from;
    pid_t engine;

    one(2, 2);
    p.opts.dead_ms = p.opts.stall_ms = 30000;
    party_start(&p);
    party_recover(&p, 0, 0);
    party_save(&p, 1, 1);
    engine = party_engine(&p, 1);
    kill(engine, SIGSTOP);
    a = party_ask(&p, 0, do_save, 2, 2, 0);
    CHECK(a.rc == 0, "%s", a.err.text);
    a = party_ask(&p, 0, do_begin, 3, 0, 0); /* at once */
    party_must_fail(&a, HEARTH_EBUSY, "step 2", "n1");
    from = now_ms();
    a = party_ask(&p, 0, do_begin, 3, 700, 0); /* wait_ms, in vain */
    party_must_fail(&a, HEARTH_EBUSY, "step 2", NULL);
    CHECK(now_ms() - from >= 650 && now_ms() - from < 5000, "wait_ms 700: it took %llu ms",
            (unsigned long long)(now_ms() - from));
    a = party_ask(&p, 0, do_wait, 2, HEARTH_SEALED, 5000);
    CHECK(a.rc == 0, "step 2 goes on: %s", a.err.text);
    a = party_ask(&p, 0, do_begin, 3, 5000, 1); /* cancel_old */
    CHECK(a.rc == 0, "%s", a.err.text);
    party_ask(&p, 0, do_abort, 0, 0, 0);
    a = party_ask(&p, 0, do_wait, 2, HEARTH_PROTECTED, 5000);
    party_must_fail(&a, HEARTH_EFAILED, "step 2", NULL);
    kill(engine, SIGCONT);
    party_save(&p, 4, 4);
    party_restart(&p);
    party_recover(&p, 4, 4);
}

static void begin_waits_for_room(void)
{
    struct answer a;
    pid_t engine;

    one(2, 2);
    p.opts.dead_ms = p.opts.stall_ms = 30000;
    party_start(&p);
    party_recover(&p, 0, 0);
    party_save(&p, 1, 1);
    party_tell(&p, 1, do_save, 2, 2, 0);
    party_hear(&p, 1, 10000);
    engine = party_engine(&p, 1);
    kill(engine, SIGSTOP);
    a = party_ask(&p, 0, do_save, 2, 2, 0);
    CHECK(a.rc == 0, "%s", a.err.text);
    party_tell(&p, 0, do_begin, 3, 15000, 0);
    CHECK(!party_heard(&p, 0, 300), "there is no room, and begin did not wait");
    kill(engine, SIGCONT); /* step 2 becomes PROTECTED, and step 1 makes room */
    a = party_hear(&p, 0, 15000);
    CHECK(a.rc == 0, "%s", a.err.text);
}

/* ---- more than one
 * ------------------------------------------------------------------------------ */

static struct party q;

static void two_jobs_on_a_node(void)
{
    one(1, 1);
    party_start(&p);
    party_recover(&p, 0, 0);
    q = p;
    q.opts.job = "other";
    q.seat[0] = (struct seat){ 0 };
    party_start(&q);
    party_recover(&q, 0, 0);
    for (uint64_t step = 1; step < 4; step++) {
        party_save(&p, step, 1);
        party_save(&q, step, 2);
    }
    party_all(&q, do_close, HEARTH_DROP, 0, 0);
    party_kill_ranks(&q);
    party_restart(&p);
    party_recover(&p, 3, 1);
    party_start(&q);
    party_recover(&q, 0, 0); /* what was dropped is gone */
}

static void do_open_helper(struct me *me, const uint64_t arg[3], struct answer *out)
{
    me->opts.helper = 1;
    me->opts.bootstrap = NULL;
    out->rc = hearth_open(&me->opts, &me->h, &out->err);
    (void)arg;
}

/* A second process of rank 0: it saves for its rank. */
static void helper_of_a_rank(void)
{
    struct answer a;

    one(1, 1);
    party_start_rank(&p, 0);
    q = p;
    q.seat[0] = (struct seat){ 0 };
    party_start_rank(&q, 0);
    a = party_ask(&q, 0, do_open_helper, 0, 0, 0);
    CHECK(a.rc != 0 && strstr(a.err.text, "rank 0"), "%d: %s", a.rc, a.err.text);
    party_all(&p, do_open, 0, 0, 0);
    party_recover(&p, 0, 0);
    a = party_ask(&q, 0, do_open_helper, 0, 0, 0);
    CHECK(a.rc == 0, "%s", a.err.text);
    party_save(&q, 5, 5);
    party_recover(&p, 5, 5);
    party_recover(&q, 5, 5); /* what its rank has recovered */
    party_all(&q, do_close, HEARTH_KEEP, 0, 0);
    party_save(&p, 6, 6);
    party_restart(&p);
    party_recover(&p, 6, 6);
}

/* ---- how the engine starts
 * ---------------------------------------------------------------------- */

static void start_auto(void)
{
    pid_t first;

    one(1, 2);
    run_steps();
    first = party_engine(&p, 0);
    CHECK(first, "no engine after the ranks were killed");
    party_restart(&p);
    CHECK(party_engine(&p, 0) == first, "another engine, though one was there");
}

static void start_hearthd(void)
{
    pid_t pid = fork();

    if (pid)
        return;
    execl(p.opts.engine, "hearthd", "--root", p.root[0], "--job", "job", "--node", "n0",
            "--transport", p.opts.transport, p.opts.any_root ? "--any-root" : "--linger=30",
            (char *)NULL);
    _exit(127);
}

static void start_never(void)
{
    uint64_t until;
    struct answer a;

    one(1, 1);
    CHECK(p.opts.engine, "HEARTH_TEST_BIN is not set");
    p.opts.start = HEARTH_START_NEVER;
    party_start_rank(&p, 0);
    a = party_ask(&p, 0, do_open, 0, 0, 0);
    party_must_fail(&a, HEARTH_EENGINE, "start hearthd", "auto");
    party_kill_ranks(&p);
    start_hearthd();
    for (until = now_ms() + 10000; !party_log_has(&p, 0, "engine-ready") && now_ms() < until;)
        nap_ms(5);
    run_steps();
}

static void start_in_process(void)
{
    one(1, 1);
    p.opts.start = HEARTH_START_IN_PROCESS;
    run_steps();
    CHECK(!party_engine(&p, 0), "there is a process, too");
}

/* As an engine that is ending holds it; it goes with the descriptor, which children share. */
static int take_lock(void)
{
    struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
    char path[128];
    int fd;

    party_path(&p, 0, ".hearth/lock", path, sizeof(path));
    fd = open(path, O_RDWR | O_CLOEXEC);
    CHECK(fd >= 0 && fcntl(fd, F_OFD_SETLK, &lock) == 0, "%s: %s", path, strerror(errno));
    return fd;
}

/* An engine that was dropped, or killed, keeps its lock a little longer than it listens. */
static void in_process_waits_for_the_engine_before(void)
{
    struct answer a;
    int fd;

    one(1, 1);
    p.opts.start = HEARTH_START_IN_PROCESS;
    party_start(&p);
    party_recover(&p, 0, 0);
    party_save(&p, 1, 1);
    party_kill_ranks(&p);
    party_start_rank(&p, 0);
    fd = take_lock();
    party_tell(&p, 0, do_open, 0, 0, 0);
    CHECK(!party_heard(&p, 0, 500), "the lock is taken, and open did not wait");
    close(fd);
    a = party_hear(&p, 0, 15000);
    CHECK(a.rc == 0, "%s", a.err.text);
    party_recover(&p, 1, 1);
    party_kill_ranks(&p);
    p.opts.open_ms = 700;
    party_start_rank(&p, 0);
    fd = take_lock();
    a = party_ask(&p, 0, do_open, 0, 0, 0);
    party_must_fail(&a, HEARTH_ELOCKED, "neither serves nor ends", "end that one first");
    close(fd);
}

/* ---- finding each other
 * ------------------------------------------------------------------------- */

static void on_ipv6(const struct party *x, struct me *me)
{
    (void)x;
    me->opts.bind = "::1";
}

static void ipv6(void)
{
    char route[256] = "";
    FILE *f = fopen("/proc/net/if_inet6", "re");

    if (!f || !fgets(route, sizeof(route), f))
        party_skip("no IPv6 here");
    fclose(f);
    one(2, 2);
    p.adjust = on_ipv6;
    run_steps();
    party_lose_node(&p, 1);
    party_restart(&p);
    party_recover(&p, 2, 2);
}

static char hosts[96];

static void do_open_hostfile(struct me *me, const uint64_t arg[3], struct answer *out)
{
    uint32_t world = 0;

    out->rc = hearth_bootstrap_hostfile(hosts, me->rank, 10000, &me->boot, &world, &out->err);
    CHECK(out->rc || world == me->world, "the file names %u ranks", world);
    if (!out->rc)
        me->opts.bootstrap = me->boot;
    if (!out->rc)
        do_open(me, arg, out);
}

static void host_file(void)
{
    FILE *f;

    one(2, 2);
    snprintf(hosts, sizeof(hosts), "%s/hosts", p.base);
    f = fopen(hosts, "we");
    fprintf(f, "# two ranks\n127.0.0.1 %u\n\n127.0.0.1 1 # the other\n", port_keep());
    fclose(f);
    for (uint32_t r = 0; r < 2; r++)
        party_start_rank(&p, r);
    party_all(&p, do_open_hostfile, 0, 0, 0);
    party_recover(&p, 0, 0);
    party_save(&p, 1, 1);
}

/* ---- whose process it is
 * ------------------------------------------------------------------------ */

static void become_nobody(void)
{
    if (geteuid())
        return;
    CHECK(!setgroups(0, NULL) && !setresgid(65534, 65534, 65534) && !setresuid(65534, 65534, 65534),
            "setuid: %s", strerror(errno));
}

static void do_become_nobody(struct me *me, const uint64_t arg[3], struct answer *out)
{
    (void)me, (void)arg, (void)out;
    become_nobody();
}

static void without_root(void)
{
    one(2, 2);
    if (p.opts.engine && !geteuid()) {
        pid_t pid = fork();
        int status = 0;

        if (!pid) {
            become_nobody();
            _exit(access(p.opts.engine, X_OK) != 0);
        }
        waitpid(pid, &status, 0);
        if (status)
            party_skip("the build cannot be read by others than root");
    }
    chmod(p.base, 0755);
    for (uint32_t k = 0; k < 2 && !geteuid(); k++)
        CHECK(!chown(p.root[k], 65534, 65534), "chown: %s", strerror(errno));
    for (int launch = 0; launch < 2; launch++) {
        uint16_t port = port_keep();

        for (uint32_t r = 0; r < 2; r++)
            party_start_rank(&p, r);
        party_all(&p, do_become_nobody, 0, 0, 0);
        party_all(&p, do_open, port, 0, 0);
        party_recover(&p, launch ? 2 : 0, launch ? 2 : 0);
        if (!launch) {
            party_save(&p, 1, 1);
            party_save(&p, 2, 2);
        }
        party_kill_ranks(&p);
    }
}

static void do_guest(struct me *me, const uint64_t arg[3], struct answer *out)
{
    struct sigaction before[65], after;
    cpu_set_t cpu, now;
    sigset_t mask, mask_now;

    CPU_ZERO(&cpu);
    CPU_SET(sched_getcpu(), &cpu);
    sched_setaffinity(0, sizeof(cpu), &cpu); /* as mpirun pins a rank */
    sigemptyset(&mask);
    sigaddset(&mask, SIGUSR2);
    sigprocmask(SIG_SETMASK, &mask, NULL);
    for (int s = 1; s < 65; s++)
        sigaction(s, NULL, &before[s]);
    do_open(me, arg, out);
    if (!out->rc)
        do_recover(me, (uint64_t[3]){ 0 }, out);
    if (!out->rc)
        do_save(me, (uint64_t[3]){ 1, 1, 0 }, out);
    if (!out->rc)
        do_wait(me, (uint64_t[3]){ 1, HEARTH_PROTECTED, 10000 }, out);
    out->v[0] = 0; /* do_wait() has left its time there */
    for (int s = 1; s < 65; s++)
        if (!sigaction(s, NULL, &after) && after.sa_handler != before[s].sa_handler)
            out->v[0] = (uint64_t)s;
    sigprocmask(SIG_SETMASK, NULL, &mask_now);
    out->v[1] = memcmp(&mask, &mask_now, sizeof(mask)) != 0;
    sched_getaffinity(0, sizeof(now), &now);
    out->v[2] = !CPU_EQUAL(&cpu, &now);
    out->v[3] = waitpid(-1, NULL, WNOHANG) >= 0 || errno != ECHILD;
}

static void guest_touches_nothing(void)
{
    cpu_set_t engine, all;
    struct answer a;

    one(1, 1);
    sched_getaffinity(0, sizeof(all), &all);
    party_start_rank(&p, 0);
    a = party_ask(&p, 0, do_guest, 0, 0, 0);
    CHECK(a.rc == 0, "%s", a.err.text);
    CHECK(!a.v[0], "signal %d has another handler", (int)a.v[0]);
    CHECK(!a.v[1], "the signal mask has changed");
    CHECK(!a.v[2], "the affinity has changed");
    CHECK(!a.v[3], "the engine is the rank's child");
    CHECK(!sched_getaffinity(party_engine(&p, 0), sizeof(engine), &engine) &&
                    CPU_COUNT(&engine) >= CPU_COUNT(&all),
            "the engine is pinned like the rank that started it");
}

/* ---- PMIx
 * --------------------------------------------------------------------------------------- */

/* A second bootstrap of the process: what the first one has gathered is not gathered again. */
static void gather_anew(struct answer *a)
{
    struct hearth_bootstrap *second;
    unsigned char mine[16], all[2][16];
    uint32_t rank, world;

    a->rc = hearth_bootstrap_pmix(20000, &second, &rank, &world, &a->err);
    if (a->rc)
        return;
    memset(mine, (int)(7 + rank), sizeof(mine));
    a->rc = second->allgather(second->self, mine, sizeof(mine), all, &a->err);
    for (uint32_t r = 0; r < world && !a->rc; r++)
        if (all[r][0] != 7 + r)
            a->rc = HEARTH_EPROTO;
    hearth_bootstrap_close(second);
}

/* Rank 1 misses a meeting, so it fails on rank 0. Then both come to the next one. */
static void gather_after_one_stayed_away(const char *root, struct answer *a)
{
    static const struct timespec nap = { .tv_nsec = 5000000 };
    struct hearth_bootstrap *b;
    unsigned char mine[16], all[2][16];
    uint32_t rank, world;
    char failed[200];

    snprintf(failed, sizeof(failed), "%s/failed", root);
    a->rc = hearth_bootstrap_pmix(1000, &b, &rank, &world, &a->err);
    if (a->rc)
        return;
    for (int round = 0; round < 3 && !a->rc; round++) {
        memset(mine, (int)(3 * round + rank), sizeof(mine));
        if (round == 1 && rank == 1) {
            for (int i = 0; i < 4000 && access(failed, F_OK); i++)
                nanosleep(&nap, NULL);
            continue;
        }
        a->rc = b->allgather(b->self, mine, sizeof(mine), all, &a->err);
        if (round == 1) {
            a->rc = a->rc == HEARTH_ETIMEOUT ? 0 : HEARTH_EPROTO;
            close(open(failed, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
        }
        for (uint32_t r = 0; r < world && round != 1 && !a->rc; r++)
            if (all[r][0] != 3 * round + (int)r) {
                snprintf(a->err.text, sizeof(a->err.text), "round %d: %d of rank %u", round,
                        all[r][0], r);
                a->rc = a->err.code = HEARTH_EPROTO;
            }
    }
    hearth_bootstrap_close(b);
}

/* Not a case by itself: what mpirun starts. */
static int be_pmix_rank(const char *root)
{
    struct answer a = { 0 };
    static struct me me;

    me.opts = (struct hearth_opts)HEARTH_OPTS_INIT;
    a.rc = hearth_bootstrap_pmix(20000, &me.boot, &me.rank, &me.world, &a.err);
    if (a.rc == HEARTH_EUNSUPPORTED)
        return 77;
    me.opts.root = root, me.opts.job = "job", me.opts.node = "n0", me.opts.any_root = 1;
    me.opts.transport = "tcp";
    me.opts.engine = getenv("PARTY_ENGINE");
    me.opts.linger_s = 30;
    me.opts.allow_degraded = 1, me.opts.rank = me.rank, me.opts.world = me.world;
    me.opts.bootstrap = me.boot;
    me.bytes = 1 << 16;
    me.data = calloc(1, me.bytes);
    if (!a.rc)
        do_open(&me, (uint64_t[3]){ 0 }, &a);
    if (!a.rc)
        do_recover(&me, (uint64_t[3]){ 0 }, &a);
    if (!a.rc)
        do_save(&me, (uint64_t[3]){ 3, 3, 0 }, &a);
    if (!a.rc)
        do_wait(&me, (uint64_t[3]){ 3, HEARTH_PROTECTED, 10000 }, &a);
    if (!a.rc)
        gather_anew(&a);
    if (!a.rc)
        gather_after_one_stayed_away(root, &a);
    if (!a.rc)
        do_close(&me, (uint64_t[3]){ HEARTH_DROP }, &a);
    if (a.rc)
        fprintf(stderr, "rank %u: %s\n", me.rank, a.err.text);
    return a.rc ? 1 : 0;
}

static void pmix(void)
{
    char self[256] = "", root[128];
    int status = 0;
    pid_t pid;

    one(1, 2);
    snprintf(self, sizeof(self), "%s/promises_ways",
            getenv("HEARTH_TEST_BIN") ? getenv("HEARTH_TEST_BIN") : "build/debug/bin");
    snprintf(root, sizeof(root), "%s", p.root[0]);
    if (p.opts.engine)
        setenv("PARTY_ENGINE", p.opts.engine, 1);
    setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
    setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
    pid = fork();
    if (pid == 0) {
        execlp("mpirun", "mpirun", "--oversubscribe", "-n", "2", self, "--pmix-rank", root,
                (char *)NULL);
        _exit(77);
    }
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        continue;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
        party_skip("no mpirun here, or Hearth was built without PMIx");
    CHECK(status == 0, "mpirun ended with %d", status);
}

#define CASE(name) { #name, name },

int main(int argc, char **argv)
{
    static const struct party_case cases[] = { /* clang-format off */
    CASE(one_node_job)
    CASE(pods_of_one_machine)
    CASE(keep_two)
    CASE(begin_without_room)
    CASE(begin_waits_for_room)
    CASE(two_jobs_on_a_node)
    CASE(helper_of_a_rank)
    CASE(start_auto)
    CASE(start_never)
    CASE(start_in_process)
    CASE(in_process_waits_for_the_engine_before)
    CASE(ipv6)
    CASE(host_file)
    CASE(without_root)
    CASE(guest_touches_nothing)
    CASE(pmix)
        /* clang-format on */
        { NULL, NULL }
    };

    if (argc == 3 && !strcmp(argv[1], "--pmix-rank"))
        return be_pmix_rank(argv[2]);
    return party_main(argc, argv, cases);
}
