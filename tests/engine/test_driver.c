/* SPDX-License-Identifier: Apache-2.0 */
/* hearthd as a program: its command line, its lock, how it ends; and the same as a module. */
#include "check.h"
#include "secret.h"

#include "core/local/engine_module.h"
#include "core/store/store_tmpfs.h"
#include "engine/driver/driver.h"
#include "engine/driver/hands.h"
#include "engine/driver/log.h"
#include "engine/driver/stop_point.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define ARGS 24

static char root[64], errors[80];

static void make_root(void)
{
    alarm(100);
    snprintf(root, sizeof(root), "/dev/shm/hearth-driver-XXXXXX");
    cr_assert(ne(ptr, mkdtemp(root), NULL));
    snprintf(errors, sizeof(errors), "%s.err", root);
}

static void remove_root(void)
{
    char command[256];

    snprintf(command, sizeof(command), "rm -rf %s %s", root, errors);
    cr_assert(zero(int, system(command)));
}

static void path_of(char *out, size_t len, const char *name)
{
    snprintf(out, len, "%s/job/.hearth/%s", root, name);
}

static void nap(void)
{
    nanosleep(&(struct timespec){ .tv_nsec = 20000000 }, NULL);
}

/* hearthd with more arguments; its stderr goes to `errors`. */
static pid_t start(const char *const *more)
{
    char program[512];
    char *argv[ARGS] = { program };
    posix_spawn_file_actions_t files;
    pid_t pid;
    int n = 1;

    snprintf(program, sizeof(program), "%s/hearthd", getenv("HEARTH_TEST_BIN"));
    while (*more && n < ARGS - 1)
        argv[n++] = (char *)(uintptr_t)*more++;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, 2, errors, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    cr_assert(zero(int, posix_spawn(&pid, program, &files, NULL, argv, environ)), "%s", program);
    posix_spawn_file_actions_destroy(&files);
    return pid;
}

static pid_t start_usual(const char *option, const char *value)
{
    return start((const char *const[]){
            "--root", root, "--job", "job", "--transport", "tcp", option, value, NULL });
}

/* libfabric's listener obeys any user of this machine. */
static pid_t start_ofi(const char *option, const char *value)
{
    return start((const char *const[]){ "--root", root, "--job", "job", "--transport", "ofi",
            "--network", "trusted", option, value, NULL });
}

/* Its exit status; 128 + signal. At most 20 s. */
static int status_of(pid_t pid)
{
    int status = 0;

    for (int i = 0; i < 1000; i++) {
        pid_t got = waitpid(pid, &status, WNOHANG);

        if (got == pid)
            return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
        nap();
    }
    kill(pid, SIGKILL);
    waitpid(pid, &status, 0);
    return -1;
}

static const char *read_text(const char *path)
{
    static char text[8192];
    FILE *f = fopen(path, "r");
    size_t n = f ? fread(text, 1, sizeof(text) - 1, f) : 0;

    text[n] = '\0';
    if (f)
        fclose(f);
    return text;
}

static int dial(void)
{
    struct sockaddr_un a = { .sun_family = AF_UNIX };
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

    path_of(a.sun_path, sizeof(a.sun_path), "sock");
    if (connect(fd, (struct sockaddr *)&a, sizeof(a))) {
        close(fd);
        return -1;
    }
    return fd;
}

/* The engine listens: 1 within 20 s. */
static int wait_ready(void)
{
    for (int i = 0; i < 1000; i++) {
        int fd = dial();

        if (fd >= 0) {
            close(fd);
            return 1;
        }
        nap();
    }
    return 0;
}

TestSuite(hearthd, .init = make_root, .fini = remove_root);

/* The port on record, if a process listens there; else 0. */
static unsigned port_heard(void)
{
    struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), heard;
    unsigned char bytes[2] = { 0 };
    char path[256];
    FILE *f;

    path_of(path, sizeof(path), "port");
    f = fopen(path, "r");
    cr_assert(ne(ptr, f, NULL));
    cr_assert(eq(sz, fread(bytes, 1, sizeof(bytes), f), sizeof(bytes)));
    fclose(f);
    a.sin_port = htons((uint16_t)(bytes[0] | bytes[1] << 8));
    heard = !connect(fd, (struct sockaddr *)&a, sizeof(a));
    close(fd);
    return heard ? ntohs(a.sin_port) : 0;
}

/* Peers know it by that address. */
Test(hearthd, listens_again_where_it_did_when_it_was_killed)
{
    static const char *const providers[] = { "tcp", "tcp;ofi_rxm" };

    for (int i = 0; i < 2; i++) {
        unsigned port[2];

        for (int life = 0; life < 2; life++) {
            pid_t pid = start_ofi("--provider", providers[i]);

            cr_assert(eq(int, wait_ready(), 1), "%s", read_text(errors));
            port[life] = port_heard();
            kill(pid, SIGKILL);
            cr_assert(eq(int, status_of(pid), 128 + SIGKILL));
        }
        cr_assert(gt(uint, port[0], 0), "%s", providers[i]);
        cr_assert(eq(uint, port[0], port[1]), "%s", providers[i]);
        remove_root();
        make_root();
    }
}

Test(hearthd, wrong_command_line_is_one_sentence_and_status_2)
{
    static const struct {
        const char *args[8];
        const char *says;
    } rows[] = {
        { { "--job", "job" }, "--root" },
        { { "--root", "relative", "--job", "job" }, "absolute path" },
        { { "--root", "/dev/shm" }, "--job" },
        { { "--root", "/dev/shm", "--job", "a/b" }, "a/b" },
        { { "--root", "/dev/shm", "--job", ".job" }, ".job" },
        { { "--root", "/dev/shm", "--job", "job", "--node", "no de" }, "no de" },
        { { "--root", "/dev/shm", "--job", "job", "--transport", "ib" }, "ofi or ucx" },
        { { "--root", "/dev/shm", "--job", "job", "--bind", "localhost" }, "numeric" },
        { { "--root", "/dev/shm", "--job", "job", "--bind", "0.0.0.0" }, "numeric" },
        { { "--root", "/dev/shm", "--job", "job", "--bind", "192.0.2.1" }, "--key-file" },
        { { "--root", "/dev/shm", "--job", "job", "--bind=::1", "--bind=192.0.2.1" }, "192.0.2.1" },
        { { "--root", "/dev/shm", "--job", "job", "--device", "nosuch0" }, "nosuch0" },
        { { "--root", "/dev/shm", "--job", "job", "--port", "65536" }, "65535" },
        { { "--root", "/dev/shm", "--job", "job", "--port", "7x" }, "--port" },
        { { "--root", "/dev/shm", "--job", "job", "--threads", "0" }, "from 1" },
        { { "--root", "/dev/shm", "--job", "job", "--linger" }, "needs a value" },
        { { "--root", "/dev/shm", "--job", "job", "--dead-ms", "1500" }, "two heartbeats" },
        { { "--root", "/dev/shm", "--job", "job", "--heartbeat-ms", "9" }, "from 10 to 600000" },
        { { "--root", "/dev/shm", "--job", "job", "--any-root=1" }, "no value" },
        { { "--root", "/dev/shm", "--job", "job", "--network", "open" }, "hostile or trusted" },
        { { "--root", "/dev/shm", "--job", "job", "--integrity", "weak" }, "crc32c or strong" },
        { { "--root", "/dev/shm", "--job", "job", "--log-level", "loud" }, "--log-level" },
        { { "--root", "/dev/shm", "--job", "job", "--key", "f" }, "no option" },
        { { "--root", "/dev/shm", "--job", "job", "--stop-point", "chunk" }, "no option" },
        { { "--root", "/dev/shm", "--job", "job", "stray" }, "stray" },
        { { "--root", "/nonexistent", "--job", "job" }, "/nonexistent" },
        { { "--root", "/proc", "--job", "job" }, "tmpfs" },
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        int status = status_of(start(rows[i].args));
        const char *text = read_text(errors);

        cr_assert(eq(int, status, 2), "row %zu: %s", i, text);
        cr_assert(ne(ptr, (void *)(uintptr_t)strstr(text, rows[i].says), NULL), "row %zu: %s", i,
                text);
        cr_assert(eq(ptr, (void *)(uintptr_t)strchr(text, '\n'),
                          (void *)(uintptr_t)(text + strlen(text) - 1)),
                "row %zu is not one line: %s", i, text);
    }
}

Test(hearthd, strong_integrity_without_libcrypto_is_refused_with_the_reason)
{
    const char *args[] = { "--root", root, "--job", "job", "--integrity", "strong", NULL };
    char path[128];
    const char *text;

    snprintf(path, sizeof(path), "%s/libcrypto.so.3", root);
    close(open(path, O_WRONLY | O_CREAT, 0600)); /* is found first, and is no library */
    setenv("LD_LIBRARY_PATH", root, 1);
    cr_assert(eq(int, status_of(start(args)), 2));
    text = read_text(errors);
    cr_assert(ne(ptr, (void *)(uintptr_t)strstr(text, "libcrypto.so.3 does not load"), NULL), "%s",
            text);
    cr_assert(ne(ptr, (void *)(uintptr_t)strstr(text, "install OpenSSL 3"), NULL), "%s", text);
}

/* A key in `root`. */
static const char *key_file(void)
{
    static char path[128];

    snprintf(path, sizeof(path), "%s/key", root);
    must(secret_write(path));
    return path;
}

Test(hearthd, no_root_that_another_user_may_exchange_is_taken)
{
    char link[160];
    const char *args[] = { "--root", link, "--job", "job", "--transport", "tcp", NULL };

    snprintf(link, sizeof(link), "%s", root);
    cr_assert(zero(int, chmod(root, 0777)));
    cr_assert(eq(int, status_of(start(args)), 2));
    cr_assert(ne(ptr, strstr((char *)(uintptr_t)read_text(errors), "has mode 0777"), NULL));
    cr_assert(zero(int, chmod(root, 0700)));
    if (geteuid() != 0)
        return; /* only root gives a link away */
    snprintf(link, sizeof(link), "%s/link", root);
    cr_assert(zero(int, symlink(root, link) | lchown(link, 65533, 65533)));
    cr_assert(eq(int, status_of(start(args)), 2));
    cr_assert(ne(ptr, strstr((char *)(uintptr_t)read_text(errors), "'link' of user 65533"), NULL));
    unlink(link);
}

Test(hearthd, off_loopback_a_key_does_not_make_up_for_a_library_that_listens)
{
    static const char *const transports[] = { "ofi", "ucx" };
    const char *key = key_file();

    for (size_t i = 0; i < 4; i++) {
        const char *args[] = { "--root", root, "--job", "job", "--bind", "192.0.2.1", "--transport",
            transports[i % 2], i < 2 ? "--key-file" : NULL, key, NULL };
        const char *text;

        cr_assert(eq(int, status_of(start(args)), 2), "%s", read_text(errors));
        text = read_text(errors);
        cr_assert(ne(ptr, (void *)(uintptr_t)strstr(text, "192.0.2.1"), NULL), "%s", text);
        cr_assert(ne(ptr, (void *)(uintptr_t)strstr(text, "--network trusted"), NULL), "%s", text);
        cr_assert(eq(int, strstr(text, "--key-file") != NULL, i >= 2), "%s", text);
    }
}

Test(hearthd, key_file_that_others_can_read_is_refused)
{
    const char *path = key_file();

    cr_assert(zero(int, chmod(path, 0644)));
    cr_assert(eq(int, status_of(start_usual("--key-file", path)), 2), "%s", read_text(errors));
    cr_assert(ne(ptr, (void *)(uintptr_t)strstr(read_text(errors), path), NULL), "%s",
            read_text(errors));
}

Test(hearthd, ends_on_a_signal_and_leaves_the_store)
{
    char path[128];
    struct stat st;
    pid_t pid = start_usual(NULL, NULL);

    cr_assert(eq(int, wait_ready(), 1), "%s", read_text(errors));
    kill(pid, SIGTERM);
    cr_assert(zero(int, status_of(pid)));
    path_of(path, sizeof(path), "sock");
    cr_assert(ne(int, stat(path, &st), 0), "the socket was left");
    path_of(path, sizeof(path), "store");
    cr_assert(zero(int, stat(path, &st)));
    path_of(path, sizeof(path), "log");
    cr_assert(ne(ptr, (void *)(uintptr_t)strstr(read_text(path), "engine-ready"), NULL));
    cr_assert(ne(ptr, (void *)(uintptr_t)strstr(read_text(path), "engine-ends"), NULL));
}

/* It listens a moment before that. 1 within 20 s. */
static int wait_handled(pid_t pid, int sig)
{
    char path[64];

    snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
    for (int i = 0; i < 1000; i++) {
        const char *line = strstr(read_text(path), "SigCgt:");

        if (line && (strtoull(line + 7, NULL, 16) >> (sig - 1) & 1))
            return 1;
        nap();
    }
    return 0;
}

Test(hearthd, a_crash_is_told_in_the_log_with_where_it_stood)
{
    static const int faults[] = { SIGABRT, SIGSEGV, SIGBUS };
    char path[128];

    path_of(path, sizeof(path), "log");
    for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++) {
        pid_t pid = start_usual("--linger", "60");
        char name[32];
        const char *text;

        cr_assert(wait_handled(pid, SIGILL)); /* the last of them */
        kill(pid, faults[i]);
        cr_assert(eq(int, status_of(pid), 128 + faults[i]));
        text = read_text(path);
        snprintf(name, sizeof(name), "ends of SIG%s,", sigabbrev_np(faults[i]));
        text = strstr(text, name);
        cr_assert(ne(ptr, (void *)(uintptr_t)text, NULL), "%s: %s", name, read_text(path));
        cr_assert(ne(ptr, (void *)(uintptr_t)strstr(text, "hearthd(+0x"), NULL), "%s", text);
    }
}

Test(hearthd, what_libraries_print_goes_to_the_log)
{
    char path[128], link[64], to[256] = "";
    pid_t pid;

    if (geteuid())
        cr_skip_test("only root can look at a process that may not be dumped");
    pid = start_usual("--linger", "60");
    cr_assert(wait_handled(pid, SIGILL));
    path_of(path, sizeof(path), "log");
    for (int fd = 1; fd <= 2; fd++) {
        snprintf(link, sizeof(link), "/proc/%d/fd/%d", (int)pid, fd);
        for (int i = 0; i < 1000 && strcmp(to, path) != 0; i++) {
            memset(to, 0, sizeof(to));
            cr_assert(gt(long, (long)readlink(link, to, sizeof(to) - 1), 0));
            nap();
        }
        cr_assert(eq(str, to, path));
        to[0] = '\0';
    }
    kill(pid, SIGTERM);
    cr_assert(zero(int, status_of(pid)));
}

Test(hearthd, second_engine_is_kept_out_and_told_by_whom)
{
    char pid_text[32];
    pid_t first = start_usual(NULL, NULL), second;

    cr_assert(eq(int, wait_ready(), 1), "%s", read_text(errors));
    second = start_usual(NULL, NULL);
    cr_assert(eq(int, status_of(second), 3));
    snprintf(pid_text, sizeof(pid_text), "pid %ld", (long)first);
    cr_assert(ne(ptr, (void *)(uintptr_t)strstr(read_text(errors), pid_text), NULL), "%s",
            read_text(errors));
    cr_assert(eq(int, wait_ready(), 1), "the first one must go on");
    kill(first, SIGKILL);
    cr_assert(eq(int, status_of(first), 128 + SIGKILL));
    second = start_usual(NULL, NULL); /* over the socket that the first one left */
    cr_assert(eq(int, wait_ready(), 1), "%s", read_text(errors));
    kill(second, SIGTERM);
    cr_assert(zero(int, status_of(second)));
}

Test(hearthd, ends_when_nobody_comes)
{
    pid_t pid = start_usual("--linger", "1");

    cr_assert(zero(int, status_of(pid)), "%s", read_text(errors));
}

static unsigned long cpu_ticks(pid_t pid)
{
    unsigned long user = 0, system = 0;
    char path[64];
    const char *text;

    snprintf(path, sizeof(path), "/proc/%ld/stat", (long)pid);
    text = strrchr(read_text(path), ')');
    cr_assert(ne(ptr, (void *)(uintptr_t)text, NULL));
    cr_assert(eq(int,
            sscanf(text, ") %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user, &system),
            2));
    return user + system;
}

Test(hearthd, ends_when_its_directory_is_removed)
{
    pid_t pid = start_usual(NULL, NULL);
    char command[256];

    cr_assert(eq(int, wait_ready(), 1), "%s", read_text(errors));
    snprintf(command, sizeof(command), "rm -rf %s/job", root);
    cr_assert(zero(int, system(command)));
    cr_assert(eq(int, status_of(pid), 1));
    cr_assert(strstr(read_text(errors), "was removed under its engine") != NULL, "%s",
            read_text(errors));
    pid = start_usual(NULL, NULL); /* a new one finds nothing in its way */
    cr_assert(eq(int, wait_ready(), 1), "%s", read_text(errors));
    kill(pid, SIGTERM);
    cr_assert(zero(int, status_of(pid)));
}

/* Is an engine on the job, by its lock? */
static int is_locked(void)
{
    struct hth_lock_holder holder = { 0 };

    return !hth_store_locked(root, "job", &holder, NULL) && holder.held;
}

Test(hearthd, a_lock_that_is_removed_under_it_is_made_anew)
{
    pid_t pid = start_usual(NULL, NULL);
    char path[256];

    cr_assert(eq(int, wait_ready(), 1), "%s", read_text(errors));
    cr_assert(eq(int, is_locked(), 1));
    snprintf(path, sizeof(path), "%s/job/.hearth/lock", root);
    cr_assert(zero(int, unlink(path)));
    for (int i = 0; i < 300 && !is_locked(); i++) /* 6 s */
        nap();
    cr_assert(eq(int, is_locked(), 1), "%s", read_text(errors));
    cr_assert(zero(int, kill(pid, 0)), "the engine has ended");
    kill(pid, SIGTERM);
    cr_assert(zero(int, status_of(pid)));
}

Test(hearthd, gives_way_where_another_engine_has_taken_a_lock_that_was_removed)
{
    pid_t pid = start_usual(NULL, NULL);
    int records, fd;
    char path[256];

    cr_assert(eq(int, wait_ready(), 1), "%s", read_text(errors));
    snprintf(path, sizeof(path), "%s/job/.hearth/lock", root);
    cr_assert(zero(int, unlink(path)));
    fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    cr_assert(ge(int, fd, 0));
    close(fd);
    must(hth_store_records(root, "job", &records, NULL));
    must(hth_store_lock(records, "job", &fd, NULL));
    cr_assert(eq(int, status_of(pid), 1));
    cr_assert(strstr(read_text(errors), "another engine has the job now") != NULL, "%s",
            read_text(errors));
    close(fd);
    close(records);
}

Test(hearthd, idle_costs_nothing_and_a_pinned_starter_does_not_pin_it)
{
    cpu_set_t one, before, its;
    unsigned long ticks;
    pid_t pid;

    CPU_ZERO(&one);
    cr_assert(zero(int, sched_getaffinity(0, sizeof(before), &before)));
    for (int i = 0; i < CPU_SETSIZE && !CPU_COUNT(&one); i++)
        if (CPU_ISSET(i, &before))
            CPU_SET(i, &one);
    cr_assert(zero(int, sched_setaffinity(0, sizeof(one), &one)));
    pid = start_usual(NULL, NULL);
    cr_assert(zero(int, sched_setaffinity(0, sizeof(before), &before)));
    cr_assert(eq(int, wait_ready(), 1), "%s", read_text(errors));
    cr_assert(zero(int, sched_getaffinity(pid, sizeof(its), &its)));
    cr_assert(ge(int, CPU_COUNT(&its), CPU_COUNT(&before)));
    nap();
    ticks = cpu_ticks(pid);
    for (int i = 0; i < 75; i++) /* 1.5 s */
        nap();
    cr_assert(le(ulong, cpu_ticks(pid) - ticks, 2));
    kill(pid, SIGTERM);
    cr_assert(zero(int, status_of(pid)));
}

/* libfabric would: 11 MB here. */
Test(hearthd, does_not_read_all_of_the_kernels_symbols)
{
    unsigned long long bytes = 0;
    char path[64];
    const char *text;
    pid_t pid;

    if (geteuid())
        cr_skip_test("only root can look at a process that may not be dumped");
    pid = start_ofi(NULL, NULL);
    cr_assert(eq(int, wait_ready(), 1), "%s", read_text(errors));
    snprintf(path, sizeof(path), "/proc/%d/io", (int)pid);
    text = strstr(read_text(path), "rchar: ");
    cr_assert(ne(ptr, (void *)(uintptr_t)text, NULL));
    cr_assert(eq(int, sscanf(text, "rchar: %llu", &bytes), 1));
    cr_assert(lt(u64, bytes, 2000000));
    kill(pid, SIGTERM);
    cr_assert(zero(int, status_of(pid)));
}

#ifdef HEARTH_POINTS /* what follows is asked by environment, of engines that listen */
Test(hearthd, store_failure_at_start_is_said_in_the_sentence)
{
    for (unsigned n = 1; n < 8; n++) {
        char text[16];
        pid_t pid;

        snprintf(text, sizeof(text), "%u", n);
        setenv("HEARTH_FAIL_AT", text, 1);
        pid = start_usual(NULL, NULL);
        if (n == 1) {
            cr_assert(eq(int, status_of(pid), 1), "%s", read_text(errors));
            continue;
        }
        kill(pid, SIGTERM);
        status_of(pid); /* any status: it must end, and leave no lock behind */
    }
}

Test(stop_point, stops_at_the_count_and_says_so, .init = make_root, .fini = remove_root)
{
    struct hth_stop_point point = { 0 };
    struct hth_points hook;
    char path[128], text[64];
    int status;
    pid_t pid;

    must(hth_stop_point_parse(&point, "chunk:3", NULL));
    snprintf(point.root, sizeof(point.root), "%s", root);
    snprintf(point.dir, sizeof(point.dir), ".");
    hook = hth_stop_point_hook(&point);
    pid = fork();
    if (pid == 0) {
        for (int i = 0; i < 3; i++) {
            hook.reached(hook.self, "seal");
            hook.reached(hook.self, "chunk");
        }
        _exit(7);
    }
    cr_assert(eq(int, waitpid(pid, &status, WUNTRACED), pid));
    cr_assert(eq(int, WIFSTOPPED(status) ? WSTOPSIG(status) : 0, SIGSTOP));
    snprintf(path, sizeof(path), "%s/stopped", root);
    snprintf(text, sizeof(text), "chunk %ld\n", (long)pid);
    must_say(read_text(path), text);
    kill(pid, SIGKILL);
    waitpid(pid, &status, 0);
    must_fail(hth_stop_point_parse(&point, "chunk:", NULL), HEARTH_EINVAL);
    must_fail(hth_stop_point_parse(&point, ":1", NULL), HEARTH_EINVAL);
    must_fail(hth_stop_point_parse(&point, "chunk:2x", NULL), HEARTH_EINVAL);
}

Test(stop_point, a_wrong_one_is_a_sentence_with_its_variable, .init = make_root,
        .fini = remove_root)
{
    setenv("HEARTH_STOP_POINT", "chunk:0", 1);
    cr_assert(eq(int, status_of(start_usual(NULL, NULL)), 2));
    cr_assert(ne(ptr, strstr(read_text(errors), "HEARTH_STOP_POINT: 'chunk:0'"), NULL));
    unsetenv("HEARTH_STOP_POINT");
    setenv("HEARTH_FAIL_AT", "x", 1);
    cr_assert(eq(int, status_of(start_usual(NULL, NULL)), 2));
    cr_assert(ne(ptr, strstr(read_text(errors), "HEARTH_FAIL_AT is 'x'"), NULL));
}
#else
Test(hearthd, heeds_no_test_in_its_environment)
{
    pid_t pid;

    setenv("HEARTH_STOP_POINT", ":0", 1);
    setenv("HEARTH_FAIL_AT", "x", 1);
    pid = start_usual(NULL, NULL);
    cr_assert(eq(int, wait_ready(), 1), "%s", read_text(errors));
    kill(pid, SIGTERM);
    cr_assert(zero(int, status_of(pid)));
}
#endif

static void make_log(struct hth_logs **out)
{
    struct hth_logs_opts opts = { .to = "file",
        .level = HEARTH_LOG_INFO,
        .job = "job",
        .node = "n0",
        .clock = hth_system_clock() };

    must(hth_logs_make(out, &opts, NULL));
}

Test(log_file, is_bounded_and_keeps_what_was_said_early, .init = make_root, .fini = remove_root)
{
    struct hth_logs *file;
    char path[128], line[1000];
    struct stat st;
    struct hth_log log;
    int dir = open(root, O_PATH | O_DIRECTORY);

    make_log(&file);
    log = hth_logs_sink(file);
    hth_say(&log, HEARTH_LOG_INFO, "early", "said before\nthe folder");
    hth_say(&log, HEARTH_LOG_DEBUG, "quiet", "not at this level");
    must(hth_logs_open(file, dir, root, NULL));
    close(dir);
    snprintf(path, sizeof(path), "%s/log", root);
    cr_assert(ne(ptr,
                      (void *)(uintptr_t)strstr(
                              read_text(path), "info early said before the folder\n"),
                      NULL),
            "%s", read_text(path));
    cr_assert(eq(ptr, (void *)(uintptr_t)strstr(read_text(path), "quiet"), NULL));
    memset(line, 'x', sizeof(line) - 1);
    line[sizeof(line) - 1] = '\0';
    for (int i = 0; i < 10000; i++)
        hth_say(&log, HEARTH_LOG_WARN, "much", "%s", line);
    cr_assert(zero(int, stat(path, &st)));
    cr_assert(le(long, (long)st.st_size, 4L << 20));
    strcat(path, ".1");
    cr_assert(zero(int, stat(path, &st)));
    cr_assert(le(long, (long)st.st_size, 4L << 20));
    hth_logs_close(file);
}

/* What lies there as `log`, and is none. */
static void make_other(const char *path, int kind, const char *target)
{
    if (kind == 0)
        cr_assert(zero(int, mkfifo(path, 0600)));
    else if (kind == 1)
        cr_assert(zero(int, symlink(target, path)));
    else if (kind == 2)
        cr_assert(zero(int, mkdir(path, 0700)));
    else
        cr_assert(zero(int, link(target, path)));
}

Test(log_file, what_is_no_file_of_its_own_is_not_waited_for_nor_written_to, .init = make_root,
        .fini = remove_root)
{
    char path[128], target[128];
    struct hth_logs *file;
    struct hearth_error err;
    struct hth_log log;
    struct stat st;
    int dir = open(root, O_PATH | O_DIRECTORY);

    snprintf(path, sizeof(path), "%s/log", root);
    snprintf(target, sizeof(target), "%s/precious", root);
    close(open(target, O_CREAT | O_WRONLY, 0600));
    make_log(&file);
    log = hth_logs_sink(file);
    hth_say(&log, HEARTH_LOG_INFO, "early", "waits");
    for (int kind = 0; kind < 4; kind++) {
        make_other(path, kind, target);
        must_fail(hth_logs_open(file, dir, root, &err), HEARTH_EIO);
        cr_assert(ne(ptr, (void *)(uintptr_t)strstr(err.text, "remove it"), NULL), "%s", err.text);
        cr_assert(zero(int, stat(target, &st)));
        cr_assert(zero(long, (long)st.st_size));
        cr_assert(zero(int, remove(path)));
    }
    must(hth_logs_open(file, dir, root, NULL));
    cr_assert(ne(ptr, (void *)(uintptr_t)strstr(read_text(path), "waits"), NULL));
    hth_logs_close(file);
    close(dir);
}

/* Threads of this process, beside the first, that a signal of the host's may come to. While one is
 * made or ends, and in the first while system() starts a shell, all signals are blocked, the two of
 * the C library's own among them. */
static int threads_that_take_signals(void)
{
    const char *count = "cd /proc/%d/task && exit $(cat $(ls | grep -vx %d | sed 's,$,/status,') "
                        "2>/dev/null | "
                        "awk '/^SigBlk:/ && $2 !~ /^fffffff[ef]/ {n++} END {print n + 0}')";
    char command[256];

    snprintf(command, sizeof(command), count, (int)getpid(), (int)getpid());
    return WEXITSTATUS(system(command));
}

Test(module, runs_the_same_engine_on_a_thread, .init = make_root, .fini = remove_root)
{
    const char *argv[] = { "hearthd", "--root", root, "--job", "job", "--transport", "tcp",
        "--module-dir", getenv("HEARTH_TEST_LIB") };
    const struct hth_engine_module *m;
    struct hearth_error err;
    char path[512];
    void *so, *engine, *other;

    snprintf(path, sizeof(path), "%s/" HTH_ENGINE_MODULE_FILE, getenv("HEARTH_TEST_LIB"));
    so = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    cr_assert(ne(ptr, so, NULL), "%s", path);
    m = dlsym(so, HTH_ENGINE_MODULE_SYMBOL);
    cr_assert(eq(u32, m->abi, HTH_ENGINE_MODULE_ABI));
    must(m->start(9, argv, &engine, &err), err);
    cr_assert(eq(int, wait_ready(), 1));
    cr_assert(eq(int, threads_that_take_signals(), 0));
    must_fail(m->start(9, argv, &other, &err), HEARTH_ELOCKED);
    cr_assert(eq(int, status_of(start_usual(NULL, NULL)), 3));
    m->stop(engine);
    cr_assert(eq(int, dial(), -1));
    must(m->start(9, argv, &engine, &err), err);
    m->stop(engine);
    must_fail(m->start(1, argv, &engine, &err), HEARTH_EINVAL);
}
