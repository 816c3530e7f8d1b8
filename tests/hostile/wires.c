/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A session by a real backend, and a peer with the job's key that sends it anything: before the
 * hello, in its place, and after it. The victim goes on serving a third, healthy one, whose pulls
 * are right; it ends when it is asked to, it is no larger than before but for a bound, and its log
 * names the peer.
 */
#include "wires.h"

#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define GROWS_KIB 16384u /* of the victim's own memory, whatever is sent */
#define GAP_MS    10000u /* between two pulls of the healthy peer */

#if defined(__SANITIZE_ADDRESS__)
#define BOUND_HOLDS 0 /* what is freed is kept for a while, by the sanitizer */
#else
#define BOUND_HOLDS 1
#endif

static const struct backend backends[] = {
    { "tcp", "tcp", "tcp", 1, 1, 0 }, { "ofi-tcp", "ofi", "tcp", 0, 0, 0 },
    { "ofi-rdm", "ofi", RDM_PROVIDER, 0, 0, 0 },
    { "ucx-tcp", "ucx", "tcp", 0, 0, 1 }, /* UCX 1.13.1: one connection of some 250,000 */
};

/* See conformance.c: LeakSanitizer misjudges libucs. */
const char *__lsan_default_options(void);
__attribute__((visibility("default"))) const char *__lsan_default_options(void)
{
    return "use_tls=0";
}

static void victim_run(struct side *s)
{
    struct shared *shared = s->shared;
    uint64_t next = 0;

    while (!atomic_load(&shared->stop)) {
        side_wait(s, 50);
        if (side_now_ms() < next)
            continue;
        next = side_now_ms() + 200;
        if (atomic_load(&shared->pulls) > 2 && !atomic_load(&shared->kib_before))
            atomic_store(&shared->kib_before, own_kib());
        if (own_kib() > atomic_load(&shared->kib_most))
            atomic_store(&shared->kib_most, own_kib());
    }
}

static struct side *the_side;

static void healthy_pulled(struct hth_session_pull *pull, int code)
{
    (void)pull;
    the_side->pulling = 0;
    the_side->pull_code = code;
}

/* One pull, looked at. 1: it was had. */
static int healthy_pull(struct side *s)
{
    uint64_t offers = s->offers, until = side_now_ms() + 3000;

    (void)hth_session_send(s->session, VICTIM, HTH_MSG_WANT, NULL, 0);
    while (s->offers == offers && side_now_ms() < until && !atomic_load(&s->shared->stop))
        side_wait(s, 20);
    if (s->offers == offers)
        return 0;
    memset(s->bytes, 0, PULLED);
    s->pull = (struct hth_session_pull){ .done = healthy_pulled };
    if (hth_session_pull(
                s->session, VICTIM, &s->grant[VICTIM], 4096, s->region, 0, PULLED, &s->pull))
        return 0;
    for (s->pulling = 1; s->pulling;)
        side_wait(s, 20);
    if (s->pull_code)
        return 0;
    for (uint64_t i = 0; i < PULLED; i++)
        if (s->bytes[i] != 0x5a) {
            atomic_fetch_add(&s->shared->wrong, 1);
            break;
        }
    return 1;
}

static void healthy_run(struct side *s)
{
    struct shared *shared = s->shared;
    uint64_t last = side_now_ms();

    the_side = s;
    while (!atomic_load(&shared->stop)) {
        int had = healthy_pull(s);
        uint64_t gap = side_now_ms() - last;

        if (gap > atomic_load(&shared->gap_ms))
            atomic_store(&shared->gap_ms, gap);
        if (had) {
            last = side_now_ms();
            atomic_fetch_add(&shared->pulls, 1);
        }
        for (uint64_t until = side_now_ms() + 5; side_now_ms() < until;)
            side_wait(s, 5);
    }
}

static pid_t side_start(
        const struct backend *b, struct shared *shared, uint32_t self, const struct hostile_opts *o)
{
    static struct side s;
    pid_t pid;

    fflush(NULL);
    pid = fork();
    CHECK(pid >= 0, "no process");
    if (pid)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    side_open(&s, b, shared, self);
    if (self == VICTIM)
        victim_run(&s);
    else if (self == HEALTHY)
        healthy_run(&s);
    else
        enemy_run(&s, o);
    side_close(&s);
    fflush(NULL);
    if (self != VICTIM)
        _exit(0); /* leaks of their library are not judged */
    exit(0);
}

static void wires_judge(
        const struct backend *b, const struct shared *s, const struct hostile_opts *o)
{
    uint64_t most = atomic_load(&s->kib_most), before = atomic_load(&s->kib_before), sent = 0;

    for (int i = 0; i < 4; i++)
        sent += atomic_load(&s->sent[i / 2][i % 2]);
    printf("%s: frames sent: %llu random and %llu changed before the hello, %llu and %llu after; %llu connections cut, %llu messages heard; the victim has %llu KiB of "
           "its own, %llu before; %llu lines name the enemy; the healthy peer had %llu pulls, the "
           "longest wait %llu ms\n",
            b->name, atomic_load(&s->sent[!UP][RANDOM]), atomic_load(&s->sent[!UP][!RANDOM]),
            atomic_load(&s->sent[UP][RANDOM]), atomic_load(&s->sent[UP][!RANDOM]),
            atomic_load(&s->cut), atomic_load(&s->heard), (unsigned long long)most,
            (unsigned long long)before, atomic_load(&s->named), atomic_load(&s->pulls),
            atomic_load(&s->gap_ms));
    CHECK(atomic_load(&s->pulls) > 2, "the healthy peer gets nothing");
    CHECK(!atomic_load(&s->wrong), "the healthy peer had other bytes");
    CHECK(!atomic_load(&s->downs), "the healthy peer was called lost");
    CHECK(atomic_load(&s->gap_ms) < GAP_MS, "the healthy peer had to wait");
    CHECK(o->dials || atomic_load(&s->named) > sent / 400, "the enemy is named too seldom");
    CHECK(!BOUND_HOLDS || most < before + GROWS_KIB, "the victim has grown");
}

/* A process has ended. 1: the enemy, by its own library. */
static int wires_ended(const struct backend *b, struct shared *shared, uint32_t who, int status)
{
    static const char *const name[] = { "the victim", "the healthy peer", "the enemy" };
    int itself = b->ends && who == ENEMY && WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;

    hostile_slice = atomic_load(&shared->slice);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
        exit(77);
    CHECK(itself || !status, "%s has ended with %x", name[who], (unsigned)status);
    CHECK(who == ENEMY || atomic_load(&shared->stop), "%s has ended", name[who]);
    return itself;
}

/* 1: the enemy was ended by its own library, in hostile_slice, and the others have lived on. */
static int wires_run(const struct backend *b, struct shared *shared, const struct hostile_opts *o)
{
    pid_t pid[SIDES];
    int by_itself = 0;

    atomic_store(&shared->here, 0);
    atomic_store(&shared->stop, 0);
    for (uint32_t i = 0; i < SIDES; i++)
        pid[i] = side_start(b, shared, i, o);
    for (uint32_t left = SIDES; left; left--) {
        int status;
        pid_t ended = waitpid(-1, &status, 0);
        uint32_t who = ended == pid[VICTIM] ? VICTIM : ended == pid[HEALTHY] ? HEALTHY : ENEMY;

        if (wires_ended(b, shared, who, status)) {
            by_itself = 1;
            sleep(1); /* the others see it go */
        }
        atomic_store(&shared->stop, 1);
    }
    return by_itself;
}

void hostile_wires(const struct hostile_opts *o)
{
    struct shared *shared =
            mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    const struct backend *b = NULL;
    struct hostile_opts rest = *o;
    unsigned ended = 0;

    CHECK(shared != MAP_FAILED, "no memory");
    for (size_t i = 0; i < sizeof(backends) / sizeof(backends[0]); i++)
        if (strcmp(backends[i].name, o->backend) == 0)
            b = &backends[i];
    CHECK(b, "there is no backend %s: liar, tcp, ofi-tcp, ofi-rdm, ucx-tcp", o->backend);
    while (rest.frames && wires_run(b, shared, &rest)) {
        uint64_t next = (hostile_slice + 1) * SLICE, end = rest.first + rest.frames;

        printf("%s: the enemy's own library has ended it in slice %llu\n", b->name,
                (unsigned long long)hostile_slice);
        CHECK(++ended <= 1 + o->frames / 100000, "the enemy ends too often");
        rest.frames = end > next ? end - next : 0;
        rest.first = next;
    }
    wires_judge(b, shared, o);
}
