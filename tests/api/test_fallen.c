/* SPDX-License-Identifier: Apache-2.0 */
/* An engine that ends as soon as it serves is not started again and again. */
#include "check.h"
#include "engines.h"
#include "rank.h"
#include "tmp_root.h"

#include "client/link/fallen.h"
#include "core/store/store_tmpfs.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* ---- how often, with a clock of the test's --------------------------------------------------- */

static struct hth_fallen f;
static struct hearth_error err;
static uint64_t now = 1000;

static void engine_serves_and_ends_after(uint64_t ms)
{
    hth_fallen_serves(&f, -1, now);
    now += ms;
}

static int may_start(void)
{
    return hth_fallen_may_start(&f, now, "/root/job/.hearth", &err);
}

/* Milliseconds until one may be started. */
static uint64_t pause_ms(void)
{
    uint64_t from = now;

    while (!may_start())
        now += 10;
    return now - from;
}

Test(fallen, three_are_started_with_pauses_and_then_one_a_minute)
{
    f.pidfd = -1;
    cr_assert(eq(int, may_start(), 1), "the first one");
    engine_serves_and_ends_after(100);
    cr_assert(zero(u64, pause_ms()));
    engine_serves_and_ends_after(100);
    cr_assert(ge(u64, pause_ms(), 500));
    engine_serves_and_ends_after(100);
    cr_assert(ge(u64, pause_ms(), 1000));
    engine_serves_and_ends_after(100);
    must_fail(may_start(), HEARTH_EENGINE);
    cr_assert(ne(ptr, strstr(err.text, "ended 4 times in a row"), NULL), "%s", err.text);
    now += 59000;
    must_fail(may_start(), HEARTH_EENGINE);
    now += 1000;
    cr_assert(eq(int, may_start(), 1));
    engine_serves_and_ends_after(100);
    must_fail(may_start(), HEARTH_EENGINE);
}

Test(fallen, one_that_served_for_a_while_or_protected_a_save_is_replaced_at_once)
{
    f.pidfd = -1;
    for (int i = 0; i < 20; i++) {
        engine_serves_and_ends_after(i % 2 ? 100 : 5000);
        cr_assert(zero(u64, pause_ms()));
    }
    for (int i = 0; i < 20; i++) {
        engine_serves_and_ends_after(100);
        hth_fallen_forget(&f);
        cr_assert(zero(u64, pause_ms()));
    }
}

/* ---- a sandbox that kills hearthd at its first client ---------------------------------------- */

static struct rank r;

/* A process started from here is killed if it asks for a descriptor of this process, as an engine
 * does of each client. */
static void kill_engines_that_serve_us(void)
{
    struct sock_filter program[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_pidfd_open, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)getpid(), 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = { .len = sizeof(program) / sizeof(program[0]), .filter = program };

    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
            prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter))
        cr_skip_test("no seccomp here");
}

static void open_with_hearthd(void)
{
    static char hearthd[512];

    snprintf(hearthd, sizeof(hearthd), "%s/hearthd", getenv("HEARTH_TEST_BIN"));
    rank_start(&r);
    fake_stop(r.fake);
    r.fake = NULL;
    r.opts.start = HEARTH_START_AUTO;
    r.opts.transport = "tcp";
    r.opts.open_ms = 20000;
    r.opts.linger_s = 20;
    r.opts.engine = hearthd;
    rank_open(&r);
}

/* A child that has ended and waits to be waited for. */
static int there_is_a_zombie(void)
{
    siginfo_t i = { .si_pid = 0 };

    return !waitid(P_ALL, 0, &i, WEXITED | WNOHANG | WNOWAIT) && i.si_pid;
}

static void engine_kill(void)
{
    struct hth_lock_holder holder = { 0 };

    must(hth_store_locked(r.root, "job", &holder, NULL));
    cr_assert(gt(int, holder.pid, 1));
    cr_assert(zero(int, kill(holder.pid, SIGKILL)));
}

/* As in a pod whose first process is the trainer. */
Test(fallen, an_engine_that_ends_under_a_first_process_leaves_no_zombie, .timeout = 60)
{
    float x = 1;
    struct hearth_piece piece = rank_piece("x", &x, 0, NULL);

    cr_assert(zero(int, prctl(PR_SET_CHILD_SUBREAPER, 1)));
    open_with_hearthd();
    for (uint64_t step = 1; step <= 3; step++) {
        rank_save(r.h, step, &piece, 1, NULL, 0);
        cr_assert(zero(int, there_is_a_zombie()));
        engine_kill();
    }
    rank_save(r.h, 4, &piece, 1, NULL, 0);
    cr_assert(zero(int, there_is_a_zombie()));
    hearth_close(r.h, HEARTH_KEEP);
    engines_signal(r.root, NULL, SIGKILL);
    tmp_root_remove(r.root);
}

static char meta[16 << 20];

/* One float, and so many bytes of a common object. */
static struct hearth_handle *hand_over(uint64_t step, size_t common)
{
    float x = 1;
    struct hearth_piece piece = rank_piece("x", &x, 0, NULL);
    struct hearth_save *save;
    struct hearth_handle *handle;

    must(hearth_save_begin(r.h, step, hearth_save_bytes(&piece, 1, NULL, 0), NULL, &save, &err),
            err);
    must(hearth_save_add(save, &piece, 1, &err), err);
    if (common)
        must(hearth_save_put_common(save, ".metadata", meta, common, &err), err);
    must(hearth_save_commit(save, &handle, &err), err);
    return handle;
}

/* The rank waits for none of its saves, which are PROTECTED all the same. */
Test(fallen, one_that_protected_a_save_whose_handle_was_closed_is_replaced_at_once, .timeout = 60)
{
    struct hearth_kept kept = HEARTH_KEPT_INIT;
    size_t count;

    open_with_hearthd();
    for (uint64_t step = 1; step <= 5; step++) {
        hearth_handle_close(hand_over(step, 0));
        for (int i = 0; i < 10000 && kept.id.step != step; i++)
            must(hearth_keep_list(r.h, &kept, 1, &count, &err), err);
        cr_assert(eq(u64, kept.id.step, step));
        engine_kill();
    }
    must(hearth_keep_list(r.h, &kept, 1, &count, &err), err);
    hearth_close(r.h, HEARTH_KEEP);
    engines_signal(r.root, NULL, SIGKILL);
    tmp_root_remove(r.root);
}

/* Its common object takes longer than the rest, and the job has no other node to wait for. */
Test(fallen, a_save_whose_engine_ends_before_its_common_objects_are_whole_is_protected,
        .timeout = 100)
{
    struct hearth_kept kept = HEARTH_KEPT_INIT;
    struct hearth_handle *handle;
    size_t count;

    open_with_hearthd();
    for (uint64_t step = 1; step <= 8; step++) {
        handle = hand_over(step, sizeof(meta));
        nanosleep(&(struct timespec){ .tv_nsec = (long)step * 700000 }, NULL);
        engine_kill();
        cr_assert(zero(int, hearth_wait(handle, HEARTH_PROTECTED, 10000, &err)), "%s", err.text);
        hearth_handle_close(handle);
        must(hearth_keep_list(r.h, &kept, 1, &count, &err), err);
        cr_assert(eq(u64, kept.id.step, step));
    }
    hearth_close(r.h, HEARTH_KEEP);
    engines_signal(r.root, NULL, SIGKILL);
    tmp_root_remove(r.root);
}

/* The port that the last engine listened on. A second listener there, until it is closed. */
static int take_port_of_last_engine(void)
{
    struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    unsigned char port[2] = { 0 };
    char path[256];
    FILE *record;

    snprintf(path, sizeof(path), "%s/job/.hearth/port", r.root);
    record = fopen(path, "re");
    cr_assert(ne(ptr, record, NULL));
    cr_assert(eq(sz, fread(port, 1, sizeof(port), record), sizeof(port)));
    cr_assert(zero(int, fclose(record)));
    a.sin_port = htons((uint16_t)(port[0] | port[1] << 8));
    cr_assert(zero(int, bind(fd, (struct sockaddr *)&a, sizeof(a))), "%s", strerror(errno));
    cr_assert(zero(int, listen(fd, 1)));
    return fd;
}

/* Between two engines the kernel may give their port to any process of the machine. */
Test(fallen, a_job_of_one_node_goes_on_when_another_process_has_the_port_of_its_engine,
        .timeout = 60)
{
    struct hearth_handle *handle;
    int fd;

    open_with_hearthd();
    rank_protect(hand_over(1, 0));
    cr_assert(zero(int, engines_settle(r.root, NULL))); /* it has lent a slot ahead */
    cr_assert(eq(int, engines_signal(r.root, NULL, SIGSTOP), 1));
    handle = hand_over(2, 0);
    cr_assert(eq(int, engines_signal(r.root, NULL, SIGKILL), 1));
    fd = take_port_of_last_engine();
    cr_assert(zero(int, hearth_wait(handle, HEARTH_PROTECTED, 10000, &err)), "%s", err.text);
    hearth_handle_close(handle);
    engine_kill();
    rank_protect(hand_over(3, 0));
    close(fd);
    hearth_close(r.h, HEARTH_KEEP);
    engines_signal(r.root, NULL, SIGKILL);
    tmp_root_remove(r.root);
}

static int engines_started(void)
{
    char path[256], line[4096];
    int count = 0;
    FILE *log;

    snprintf(path, sizeof(path), "%s/job/.hearth/log", r.root);
    log = fopen(path, "re");
    while (log && fgets(line, sizeof(line), log))
        count += strstr(line, " engine-ready ") != NULL;
    if (log)
        fclose(log);
    return count;
}

/* The kernel says how a process ended that is no child: Linux 6.15. */
static int ends_are_known(void)
{
    unsigned major = 0, minor = 0;
    struct utsname u;

    return !uname(&u) && sscanf(u.release, "%u.%u", &major, &minor) == 2 &&
           (major > 6 || (major == 6 && minor >= 15));
}

Test(fallen, a_rank_hears_how_its_engines_ended_and_starts_no_more, .timeout = 60)
{
    struct hearth_save *save;

    open_with_hearthd();
    cr_assert(ge(int, engines_signal(r.root, NULL, SIGKILL), 0));
    kill_engines_that_serve_us();
    err.text[0] = '\0';
    for (int i = 0; i < 10 && !strstr(err.text, "times in a row"); i++)
        must_fail(hearth_save_begin(r.h, 1, 8192, NULL, &save, &err), HEARTH_EENGINE);
    cr_assert(
            ne(ptr, strstr(err.text, "times in a row as soon as it served"), NULL), "%s", err.text);
    for (int i = 0; i < 200 && ends_are_known() && !strstr(err.text, "by signal 31"); i++) {
        nanosleep(&(struct timespec){ .tv_nsec = 50000000 }, NULL); /* init takes its time */
        must_fail(hearth_save_begin(r.h, 1, 8192, NULL, &save, &err), HEARTH_EENGINE);
    }
    if (ends_are_known())
        cr_assert(
                ne(ptr, strstr(err.text, "by signal 31 (Bad system call)"), NULL), "%s", err.text);
    for (int i = 0; i < 20; i++)
        must_fail(hearth_save_begin(r.h, 1, 8192, NULL, &save, &err), HEARTH_EENGINE);
    cr_assert(le(int, engines_started(), 1 + 4), "%d engines", engines_started());
    hearth_close(r.h, HEARTH_KEEP);
    engines_signal(r.root, NULL, SIGKILL);
    tmp_root_remove(r.root);
}
