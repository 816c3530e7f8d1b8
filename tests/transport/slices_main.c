/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slices --fabric NAME --first SEED --count N: so many slices, one after the other. The director makes the
 * processes, does to one of them what the seed says, and hears from the puller how it was.
 */
#include "slices_parts.h"

#include "strictfi/stats.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define WAIT_MS 40000

static const struct slices_fabric fabrics[] = { { "strict-efa", "strict", "efa" },
    { "strict-efa-direct", "strict", "efa-direct" }, { "strict-cxi", "strict", "cxi" },
    { "strict-opx", "strict", "opx" }, { "strict-worst", "strict", "worst" },
    { "tcp;ofi_rxm", "tcp;ofi_rxm", NULL } };
static const char *const kinds[SLICES_KINDS] = { "an owner is killed", "an owner stands still",
    "an owner is cut off", "an owner comes back elsewhere", "another puller is killed",
    "a connection is dropped and dialled again" };

struct slice {
    const struct slices_fabric *fabric;
    uint64_t seed, dice;
    enum slices_kind kind;
    pid_t owner[SLICES_OWNERS], puller, rival; /* 0: none */
    int offers[2], in[2], out[2], unheard[2], rival_in[2];
};

static char stats[64]; /* the folder of the counters */

/* ---- processes -------------------------------------------------------------------------------- */

static pid_t fork_role(const struct slice *s, const char *role)
{
    pid_t pid = fork();

    SLICES_MUST(pid >= 0);
    if (pid)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    alarm(60);
    snprintf(slices_what, sizeof(slices_what), "slice %llu, %s, %s, %s",
            (unsigned long long)s->seed, s->fabric->name, kinds[s->kind], role);
    return 0;
}

static void start_owner(struct slice *s, uint32_t i)
{
    s->owner[i] = fork_role(s, "owner");
    if (!s->owner[i])
        slices_owner(s->fabric, i, s->offers[1]);
}

static void end_process(pid_t *pid)
{
    if (*pid) {
        kill(*pid, SIGKILL);
        waitpid(*pid, NULL, 0);
    }
    *pid = 0;
}

static void read_all(const struct slice *s, int fd, void *out, size_t len)
{
    struct pollfd p = { fd, POLLIN, 0 };
    int status = 0;

    while (poll(&p, 1, 50) == 0)
        if (s->puller && waitpid(s->puller, &status, WNOHANG) == s->puller)
            slices_fail("the puller ended with status %#x", (unsigned)status);
    if (read(fd, out, len) != (ssize_t)len) {
        waitpid(s->puller, &status, 0);
        slices_fail("the puller ended with status %#x", (unsigned)status);
    }
}

/* What an owner says of itself goes to those who pull. */
static void pass_offer(const struct slice *s)
{
    struct slices_offer offer;

    read_all(s, s->offers[0], &offer, sizeof(offer));
    SLICES_MUST(write(s->in[1], &offer, sizeof(offer)) == (ssize_t)sizeof(offer));
    if (s->rival)
        SLICES_MUST(write(s->rival_in[1], &offer, sizeof(offer)) == (ssize_t)sizeof(offer));
}

static void start_all(struct slice *s)
{
    struct slices_task judge = { s->fabric, s->seed,
        s->kind == SLICES_RIVAL ? SLICES_OWNERS
                                : (uint32_t)(s->seed / SLICES_KINDS % SLICES_OWNERS),
        s->kind == SLICES_REDIAL, slices_random(&s->dice, 4) == 0, s->in[0], s->out[1] };
    struct slices_task rival = judge;

    for (uint32_t i = 0; i < SLICES_OWNERS; i++)
        start_owner(s, i);
    s->puller = fork_role(s, "puller");
    if (!s->puller) {
        close(s->out[0]);
        slices_puller(&judge);
    }
    close(s->out[1]);
    if (s->kind == SLICES_RIVAL) {
        rival.in = s->rival_in[0];
        rival.out = s->unheard[1];
        s->rival = fork_role(s, "rival");
        if (!s->rival)
            slices_puller(&rival);
    }
    for (uint32_t i = 0; i < SLICES_OWNERS; i++)
        pass_offer(s);
}

/* ---- what happens ----------------------------------------------------------------------------- */

static void nap_ms(uint64_t ms)
{
    usleep((useconds_t)ms * 1000);
}

static void hang(pid_t pid, uint32_t who)
{
    struct strictfi_stats *page;
    char path[96];
    int fd;

    snprintf(path, sizeof(path), "%s/%d", stats, (int)pid);
    fd = open(path, O_RDWR | O_CLOEXEC);
    page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    SLICES_MUST(page != MAP_FAILED);
    page->hang_endpoint = who;
    munmap(page, 4096);
}

static void happen(struct slice *s)
{
    uint32_t victim = (uint32_t)(s->seed / SLICES_KINDS % SLICES_OWNERS);
    uint64_t pause = slices_random(&s->dice, 600);

    nap_ms(slices_random(&s->dice, 80));
    switch (s->kind) {
    case SLICES_STOP:
        kill(s->owner[victim], SIGSTOP);
        nap_ms(pause);
        kill(s->owner[victim], SIGCONT);
        break;
    case SLICES_CUT:
        hang(s->owner[victim], STRICTFI_ALL);
        nap_ms(pause);
        hang(s->owner[victim], 0);
        break;
    case SLICES_KILL:
        end_process(&s->owner[victim]);
        break;
    case SLICES_MOVE:
        end_process(&s->owner[victim]);
        start_owner(s, victim);
        pass_offer(s);
        break;
    case SLICES_RIVAL:
        end_process(&s->rival);
        break;
    case SLICES_REDIAL:
    case SLICES_KINDS:
        break;
    }
    nap_ms(50 + slices_random(&s->dice, 150));
}

/* ---- one slice -------------------------------------------------------------------------------- */

static void pipes(struct slice *s, int open_them)
{
    int *all[] = { s->offers, s->in, s->out, s->unheard, s->rival_in };

    for (unsigned i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        if (open_them) {
            SLICES_MUST(pipe2(all[i], O_CLOEXEC) == 0);
        } else {
            close(all[i][0]);
            if (all[i] != s->out)
                close(all[i][1]);
        }
}

static void set_environment(const struct slice *s)
{
    char text[32];

    if (!s->fabric->profile)
        return;
    snprintf(text, sizeof(text), "%llu", (unsigned long long)(1 + s->seed % 4));
    setenv("STRICTFI_SEED", text, 1);
}

static void slice_run(const struct slices_fabric *fabric, uint64_t seed, struct slices_result *out)
{
    struct slice s = { .fabric = fabric, .seed = seed, .dice = seed ^ 0x5eed };
    struct slices_offer end = { .owner = UINT32_MAX };
    int status = 0;

    s.kind = (enum slices_kind)(seed % SLICES_KINDS);
    if (s.kind == SLICES_CUT && !fabric->profile)
        s.kind = SLICES_STOP; /* that network cannot be cut here */
    snprintf(slices_what, sizeof(slices_what), "slice %llu, %s, %s", (unsigned long long)seed,
            fabric->name, kinds[s.kind]);
    alarm(WAIT_MS / 1000 + 20);
    set_environment(&s);
    pipes(&s, 1);
    start_all(&s);
    read_all(&s, s.out[0], out, sizeof(*out)); /* it pulls from all of them */
    happen(&s);
    SLICES_MUST(write(s.in[1], &end, sizeof(end)) == (ssize_t)sizeof(end));
    read_all(&s, s.out[0], out, sizeof(*out));
    if (waitpid(s.puller, &status, 0) != s.puller || status)
        slices_fail("the puller ended with status %#x", (unsigned)status);
    for (uint32_t i = 0; i < SLICES_OWNERS; i++)
        if (s.owner[i] && waitpid(s.owner[i], &status, WNOHANG) != 0)
            slices_fail("an owner ended by itself, with status %#x", (unsigned)status);
    for (uint32_t i = 0; i < SLICES_OWNERS; i++)
        end_process(&s.owner[i]);
    end_process(&s.rival);
    pipes(&s, 0);
}

static void stats_open(const struct slices_fabric *fabric)
{
    char name[80];

    snprintf(stats, sizeof(stats), "/tmp/hearth-slices.XXXXXX");
    SLICES_MUST(mkdtemp(stats) != NULL);
    snprintf(name, sizeof(name), "%s/%%p", stats);
    if (!fabric->profile)
        return;
    setenv("FI_PROVIDER", "strict", 1);
    setenv("STRICTFI_PROFILE", fabric->profile, 1);
    setenv("STRICTFI_STATS", name, 1);
}

static void stats_close(void)
{
    char command[100];

    snprintf(command, sizeof(command), "rm -rf %s", stats);
    if (system(command))
        fprintf(stderr, "%s is left\n", stats);
}

static void add(struct slices_result *sum, const struct slices_result *one)
{
    sum->pulls += one->pulls;
    sum->failed += one->failed;
    sum->dropped += one->dropped;
    sum->halt_ms = one->halt_ms > sum->halt_ms ? one->halt_ms : sum->halt_ms;
    sum->end_ms = one->end_ms > sum->end_ms ? one->end_ms : sum->end_ms;
}

int main(int argc, char **argv)
{
    const struct slices_fabric *fabric = NULL;
    struct slices_result sum = { 0 }, one;
    uint64_t first = 1, count = 1;

    for (int i = 1; i + 1 < argc; i += 2) {
        for (size_t f = 0; f < sizeof(fabrics) / sizeof(*fabrics); f++)
            if (!strcmp(argv[i], "--fabric") && !strcmp(argv[i + 1], fabrics[f].name))
                fabric = &fabrics[f];
        if (!strcmp(argv[i], "--first"))
            first = strtoull(argv[i + 1], NULL, 10);
        if (!strcmp(argv[i], "--count"))
            count = strtoull(argv[i + 1], NULL, 10);
    }
    if (!fabric) {
        fprintf(stderr, "usage: %s --fabric strict-PROFILE|'tcp;ofi_rxm' --first SEED --count N\n",
                argv[0]);
        return 2;
    }
    signal(SIGPIPE, SIG_IGN);
    stats_open(fabric);
    atexit(stats_close);
    for (uint64_t seed = first; seed < first + count; seed++) {
        slice_run(fabric, seed, &one);
        add(&sum, &one);
    }
    printf("slices: %s: %llu from seed %llu: %llu pulls, %llu of them failed, %llu connections cut; "
           "the longest halt of others %llu ms, from a cut to its end %llu ms\n",
            fabric->name, (unsigned long long)count, (unsigned long long)first,
            (unsigned long long)sum.pulls, (unsigned long long)sum.failed,
            (unsigned long long)sum.dropped, (unsigned long long)sum.halt_ms,
            (unsigned long long)sum.end_ms);
    return 0;
}
