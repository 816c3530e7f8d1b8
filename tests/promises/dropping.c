/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs that all ranks have closed with HEARTH_DROP: the memory comes back, files that are not
 * Hearth's stay, and the next job of that name begins. One case each. */
#include "party.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB         ((uint64_t)1 << 20)
#define MACHINE_MIB 96
#define END_MS      10000

static struct party p;
static const uint64_t room[] = { 2 * MIB };
static uint64_t empty[NODES_MAX]; /* free bytes of machines on which nothing has run */

static void start(uint32_t nodes, uint32_t ranks)
{
    party_open(&p, nodes, ranks, MACHINE_MIB);
    p.opts.object_bytes = room;
    p.opts.object_count = 1;
    for (uint32_t k = 0; k < nodes; k++)
        empty[k] = party_free_bytes(&p, k);
}

static void run_two_steps(void)
{
    party_start(&p);
    party_recover(&p, 0, 0);
    party_save(&p, 1, 1);
    party_save(&p, 2, 2);
}

static int is_there(uint32_t node, const char *rest)
{
    char path[256];

    party_path(&p, node, rest, path, sizeof(path));
    return access(path, F_OK) == 0;
}

static void wait_for_end(uint32_t node)
{
    uint64_t until = now_ms() + END_MS;

    while (party_engine(&p, node) && now_ms() < until)
        nap_ms(5);
    CHECK(!party_engine(&p, node), "the engine of n%u has not ended in %d ms", node, END_MS);
}

/* All that the job had, but for a page or two: what the engine had open is free when the processes
 * beside it have ended as well. */
static void must_be_empty(uint32_t node)
{
    uint64_t now, until = now_ms() + END_MS;

    if (empty[node] > MACHINE_MIB * MIB) /* no file system of its own: others use it too */
        return;
    while ((now = party_free_bytes(&p, node)) + 65536 < empty[node] && now_ms() < until)
        nap_ms(5);
    CHECK(now + 65536 >= empty[node], "n%u still has %llu bytes of the job", node,
            (unsigned long long)(empty[node] - now));
}

static void must_be_gone(uint32_t node)
{
    wait_for_end(node);
    must_be_empty(node);
    CHECK(!is_there(node, ""), "n%u still has the job's directory", node);
}

static void close_rank(uint32_t rank, enum hearth_leave leave)
{
    struct answer a = party_ask(&p, rank, do_close, leave, 0, 0);

    CHECK(a.rc == 0, "rank %u: %s", rank, a.err.text);
}

/* ---- all drop
 * ----------------------------------------------------------------------------------- */

static void memory_comes_back(void)
{
    start(2, 4);
    run_two_steps();
    for (uint32_t r = 0; r < p.ranks; r++) {
        CHECK(is_there(0, "step-2_ckpt") && is_there(1, "step-2_ckpt"),
                "%u of 4 ranks have closed, and a checkpoint is gone", r);
        nap_ms(50); /* each in its own time */
        close_rank(r, HEARTH_DROP);
    }
    must_be_gone(0);
    must_be_gone(1);
}

/* Saves are on their way to others, undecided, while the ranks close. */
static void memory_comes_back_in_mid_save(void)
{
    start(2, 4);
    run_two_steps();
    party_all(&p, do_save, 3, 3, 0);
    party_all(&p, do_close, HEARTH_DROP, 0, 0);
    must_be_gone(0);
    must_be_gone(1);
}

static void in_process(void)
{
    start(1, 1);
    p.opts.start = HEARTH_START_IN_PROCESS;
    run_two_steps();
    close_rank(0, HEARTH_DROP);
    must_be_gone(0);
}

/* ---- not all
 * ------------------------------------------------------------------------------------ */

static void one_that_keeps_keeps_all(void)
{
    start(2, 4);
    run_two_steps();
    for (uint32_t r = 0; r < p.ranks; r++)
        close_rank(r, r == 1 ? HEARTH_KEEP : HEARTH_DROP);
    nap_ms(3000);
    CHECK(party_engine(&p, 0) && party_engine(&p, 1), "an engine has ended");
    party_restart(&p);
    party_recover(&p, 2, 2);
}

/* The new job has other ranks: a close by the old ones does not count for it. */
static void one_that_died_keeps_all(void)
{
    start(2, 4);
    run_two_steps();
    for (uint32_t r = 1; r < p.ranks; r++)
        close_rank(r, HEARTH_DROP);
    party_kill_rank(&p, 0);
    party_restart(&p);
    party_recover(&p, 2, 2);
    close_rank(0, HEARTH_DROP);
    nap_ms(1000);
    CHECK(party_engine(&p, 0) && party_engine(&p, 1), "one rank has dropped, and an engine ended");
}

/* ---- the next job of that name
 * ------------------------------------------------------------------ */

static void the_next_job_comes_at_once(void)
{
    start(2, 4);
    run_two_steps();
    for (int i = 0; i < 6; i++) {
        party_all(&p, do_close, HEARTH_DROP, 0, 0);
        nap_ms((unsigned)i * 300); /* all that may be under way meanwhile */
        party_kill_ranks(&p);
        run_two_steps();
    }
    party_all(&p, do_close, HEARTH_DROP, 0, 0);
    must_be_gone(0);
    must_be_gone(1);
}

static const char *stop_at;
static uint32_t stop_node;

static void set_stop(const struct party *x, struct me *me)
{
    if (me->rank % x->nodes == stop_node)
        setenv("HEARTH_STOP_POINT", stop_at, 1);
}

/* The engine of a node is killed there, in the middle of a drop. */
static void killed_at(const char *point, uint32_t node)
{
    party_needs_points();
    start(2, 4);
    stop_at = point;
    stop_node = node;
    p.adjust = set_stop;
    run_two_steps();
    party_all(&p, do_close, HEARTH_DROP, 0, 0);
    party_wait_stopped(&p, node);
    party_kill_engine(&p, node);
    party_kill_ranks(&p);
    p.adjust = NULL;
}

static void killed_and_the_next_job_begins(const char *point, uint32_t node)
{
    killed_at(point, node);
    run_two_steps();
    party_all(&p, do_close, HEARTH_DROP, 0, 0);
    must_be_gone(0);
    must_be_gone(1);
}

static void killed_while_it_frees(void)
{
    killed_and_the_next_job_begins("drop", 1);
}

static void killed_while_it_frees_at_the_coordinator(void)
{
    killed_and_the_next_job_begins("drop", 0);
}

static void killed_while_it_erases(void)
{
    killed_and_the_next_job_begins("erase", 1);
}

/* The engine needs long to give its memory back, and no engine serves meanwhile. */
static void the_next_job_waits_for_the_memory(void)
{
    uint64_t port;
    pid_t engine;

    party_needs_points();
    start(1, 2);
    stop_at = "erase";
    stop_node = 0;
    p.adjust = set_stop;
    run_two_steps();
    engine = party_engine(&p, 0);
    party_all(&p, do_close, HEARTH_DROP, 0, 0);
    party_wait_stopped(&p, 0);
    party_kill_ranks(&p);
    p.adjust = NULL;
    port = port_keep();
    for (uint32_t r = 0; r < p.ranks; r++)
        party_start_rank(&p, r);
    for (uint32_t r = 0; r < p.ranks; r++)
        party_tell(&p, r, do_open, port, 0, 0);
    nap_ms(7000);
    CHECK(!party_heard(&p, 0, 0) && !party_heard(&p, 1, 0), "a rank did not wait: %s",
            party_hear(&p, party_heard(&p, 0, 0) ? 0 : 1, 0).err.text);
    CHECK(!kill(engine, SIGCONT), "the engine has ended");
    for (uint32_t r = 0; r < p.ranks; r++) {
        struct answer a = party_hear(&p, r, END_MS);

        CHECK(a.rc == 0, "rank %u: %s", r, a.err.text);
    }
    party_recover(&p, 0, 0);
    party_save(&p, 1, 1);
}

static void run(const char *const *argv)
{
    int status = 0;
    pid_t pid = fork();

    if (pid == 0) {
        execv(argv[0], (char *const *)(uintptr_t)argv);
        _exit(127);
    }
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        continue;
    CHECK(status == 0, "%s ended with %x", argv[0], (unsigned)status);
}

static void killed_and_another_engine_finishes(void)
{
    const char *argv[] = { p.opts.engine, "--root", NULL, "--job", "job", "--node", "n1",
        "--linger", "1", "--any-root", NULL };

    killed_at("erase", 1);
    wait_for_end(0);
    CHECK(is_there(1, ".hearth/pool"), "it was killed too late");
    argv[0] = p.opts.engine;
    argv[2] = p.root[1];
    run(argv);
    must_be_gone(1);
}

static void killed_and_clean_finishes(void)
{
    char hearth[512];
    const char *argv[] = { hearth, "clean", "--root", NULL, "job", NULL };

    killed_at("drop", 1);
    snprintf(hearth, sizeof(hearth), "%s/hearth",
            getenv("HEARTH_TEST_BIN") ? getenv("HEARTH_TEST_BIN") : "build/debug/bin");
    argv[3] = p.root[1];
    run(argv);
    must_be_gone(1);
    must_be_empty(1);
}

/* ---- not ours
 * ----------------------------------------------------------------------------------- */

static void make_foreign(uint32_t node)
{
    char path[256];
    int fd;

    party_path(&p, node, "step-1_ckpt", path, sizeof(path));
    CHECK(!mkdir(path, 0700), "%s: %s", path, strerror(errno));
    party_path(&p, node, "step-1_ckpt/__0_0.distcp", path, sizeof(path));
    fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    CHECK(fd >= 0 && write(fd, "somebody else's", 15) == 15, "%s: %s", path, strerror(errno));
    close(fd);
}

static void foreign_containers_stay(void)
{
    start(2, 4);
    run_two_steps();
    make_foreign(0);
    party_kill_engine(&p, 0); /* the next one finds it there */
    party_restart(&p);
    party_recover(&p, 2, 2);
    party_save(&p, 3, 3);
    party_all(&p, do_close, HEARTH_DROP, 0, 0);
    wait_for_end(0);
    must_be_gone(1);
    CHECK(is_there(0, "step-1_ckpt/__0_0.distcp"), "a foreign container is gone");
    CHECK(!is_there(0, ".hearth") && !is_there(0, "step-3_ckpt"), "Hearth's own are still there");
    must_be_empty(0);
}

#define CASE(name) { #name, name },

int main(int argc, char **argv)
{
    static const struct party_case cases[] = { /* clang-format off */
    CASE(memory_comes_back)
    CASE(memory_comes_back_in_mid_save)
    CASE(in_process)
    CASE(one_that_keeps_keeps_all)
    CASE(one_that_died_keeps_all)
    CASE(the_next_job_comes_at_once)
    CASE(killed_while_it_frees)
    CASE(killed_while_it_frees_at_the_coordinator)
    CASE(killed_while_it_erases)
    CASE(the_next_job_waits_for_the_memory)
    CASE(killed_and_another_engine_finishes)
    CASE(killed_and_clean_finishes)
    CASE(foreign_containers_stay)
        /* clang-format on */
        { NULL, NULL }
    };

    return party_main(argc, argv, cases);
}
