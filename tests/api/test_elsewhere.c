/* SPDX-License-Identifier: Apache-2.0 */
/* The node's engine runs in another pod: what a rank says of it names no pid of the rank's. */
#include "check.h"
#include "pod.h"
#include "rank.h"
#include "tmp_root.h"

#include "core/local/packet.h"
#include "core/store/store_tmpfs.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static struct rank r;
static pid_t pod; /* of the process that keeps it */

/* The first process of a pod, and its last. */
static void be_a_pod(void)
{
    char program[512];

    snprintf(program, sizeof(program), "%s/hearthd", getenv("HEARTH_TEST_BIN"));
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) || unshare(CLONE_NEWNS | CLONE_NEWUTS) ||
            sethostname("pod-b", 5) || mount(NULL, "/proc", NULL, MS_REC | MS_PRIVATE, NULL) ||
            mount("proc", "/proc", "proc", 0, NULL))
        _exit(126);
    execl(program, "hearthd", "--root", r.root, "--job", "job", "--transport", "tcp", "--linger",
            "20", (char *)NULL);
    _exit(127);
}

/* Whose end is the pod's. */
static void keep_a_pod(void)
{
    pid_t first = prctl(PR_SET_PDEATHSIG, SIGKILL) ? -1 : pod_fork();

    if (!first)
        be_a_pod();
    waitpid(first, NULL, 0);
    _exit(0);
}

static int engine_serves(void)
{
    int records, sock, serves;

    if (hth_store_records(r.root, "job", &records, NULL))
        return 0;
    serves = !hth_packet_dial(records, &sock);
    if (serves)
        close(sock);
    close(records);
    return serves;
}

/* Returns 1 if the engine's log has these words within about a second. */
static int engine_logs(const char *words)
{
    char path[300], command[500];
    int has = 0;

    snprintf(path, sizeof(path), "%s/job/.hearth/log", r.root);
    snprintf(command, sizeof(command), "grep -qF '%s' %s", words, path);
    for (int i = 0; i < 50 && !(has = !system(command)); i++)
        nanosleep(&(struct timespec){ .tv_nsec = 20000000 }, NULL);
    return has;
}

static void start(void)
{
    if (geteuid())
        cr_skip_test("only root makes a namespace of pids");
    rank_start(&r);
    fake_stop(r.fake);
    r.fake = NULL;
    pod = fork();
    if (!pod)
        keep_a_pod();
    for (int i = 0; i < 500 && !engine_serves(); i++)
        nanosleep(&(struct timespec){ .tv_nsec = 20000000 }, NULL);
    cr_assert(eq(int, engine_serves(), 1), "hearthd does not start");
    r.opts.start = HEARTH_START_NEVER;
}

/* In a pod of its own, which sees no process of the other. */
static void open_and_tell(int code, int to)
{
    struct hearth_error err = { 0 };
    struct hearth *h = NULL;
    int rc = hearth_open(&r.opts, &h, &err);

    if (write(to, err.text, strlen(err.text) + 1) < 0)
        _exit(2);
    _exit(rc == code ? 0 : 1);
}

/* The error's text for a rank there, whose open must fail with `code`. */
static const char *told_in_a_third_pod(int code)
{
    static char said[HEARTH_ERROR_TEXT];
    int ends[2], status = 0;
    pid_t rank;

    cr_assert(zero(int, pipe2(ends, O_CLOEXEC)));
    rank = pod_fork();
    if (!rank)
        open_and_tell(code, ends[1]);
    close(ends[1]);
    cr_assert(gt(long, read(ends[0], said, sizeof(said) - 1), 0));
    cr_assert(eq(int, waitpid(rank, &status, 0), rank));
    cr_assert(zero(int, status), "%s", said);
    close(ends[0]);
    return said;
}

static void end(void)
{
    cr_assert(zero(int, kill(pod, SIGKILL)));
    cr_assert(eq(int, waitpid(pod, NULL, 0), pod));
    tmp_root_remove(r.root);
}

Test(elsewhere, a_setting_that_differs_is_told_with_the_host_and_never_with_kill_0, .timeout = 60)
{
    const char *said;

    start();
    said = told_in_a_third_pod(HEARTH_EINVAL);
    cr_assert(eq(ptr, strstr(said, "pid 0"), NULL), "%s", said);
    cr_assert(eq(ptr, strstr(said, "`kill"), NULL), "%s", said);
    cr_assert(ne(ptr, strstr(said, "host pod-b, pid 1 there"), NULL), "%s", said);
    end();
}

Test(elsewhere, a_rank_that_is_open_in_one_pod_is_told_to_another_without_its_pid, .timeout = 60)
{
    char host[65] = "", where[160];
    const char *said;

    start();
    r.opts.node = "pod-b";
    rank_open(&r);
    said = told_in_a_third_pod(HEARTH_EEXIST);
    cr_assert(eq(ptr, strstr(said, "in process"), NULL), "%s", said);
    gethostname(host, sizeof(host) - 1);
    snprintf(where, sizeof(where),
            "open in a process of another pod or container, host %s, already", host);
    cr_assert(ne(ptr, strstr(said, where), NULL), "%s", said);
    hearth_close(r.h, HEARTH_KEEP);
    cr_assert(eq(int, engine_logs("(in another pod or container): it closed"), 1));
    end();
}
