/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A confined engine can run no program, and a program that it ran would be confined as it is. So
 * hearthd forks a process before it confines itself, which does two things for it and no other:
 *
 *     hearthd ── "trial", a pipe ─────────► hearthd-next ── fork ── hearthd ... --trial ──► pipe
 *        │   ── lock, socket, "take over" ─►     └─ becomes hearthd, the next engine
 *        ◄──────────────────────── "serves" ─────────┘
 *
 * The program is the file that hearthd was started from, by its path: another file lies there after
 * an upgrade. It has the same arguments. In a request the process uses no text.
 *
 * The engine before keeps its own descriptors of lock and socket until the next one serves. If that
 * one ends first, it opens again.
 */
#include "successor.h"
#include "title.h"

#include "core/base/open.h"
#include "core/local/ends.h"
#include "core/local/packet.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define NAME     "hearthd-next"
#define GIVEN    "HEARTHD_GIVEN" /* "lock socket end": descriptors of the next engine */
#define TRIAL_MS 10000
#define SERVE_MS 60000
#define ARGS     256

enum order { ORDER_TRIAL = 1, ORDER_LOCK, ORDER_SOCKET, ORDER_TAKE_OVER, ORDER_SERVES };

struct succession {
    struct hth_successor offer;
    int sock; /* this process's end */
    pid_t pid;
};

static struct succession own = { .sock = -1 };
static int given = -1; /* to the engine before this one; -1: there was none */

static int order_put(int sock, enum order order, int fd)
{
    struct hth_local_head head = { .length = sizeof(head), .type = order };

    return hth_packet_put(sock, &head, sizeof(head), fd);
}

/* HTH_PACKET_GOT with *out_order, or what else there is. */
static enum hth_packet order_get(int sock, enum order *out_order, int *out_fd)
{
    _Alignas(8) unsigned char packet[HTH_LOCAL_MAX];
    struct hth_local_head head;
    size_t len;
    enum hth_packet got = hth_packet_receive(sock, packet, &len, out_fd);

    if (got == HTH_PACKET_GOT) {
        memcpy(&head, packet, sizeof(head));
        *out_order = (enum order)head.type;
    }
    return got;
}

/* ---- the process beside the engine ----------------------------------------------------------- */

/* The next engine, which this process becomes: argv has copies. */
struct next {
    int sock, lock, listens;
    char program[PATH_MAX];
    char *argv[ARGS + 2];
    int argc;
};

static int next_prepare(struct next *n, int sock, int argc, char *const *argv)
{
    ssize_t len;

    *n = (struct next){ .sock = sock, .lock = -1, .listens = -1, .argc = argc };
    len = readlink("/proc/self/exe", n->program, sizeof(n->program) - 1);
    if (len <= 0 || argc > ARGS)
        return -1;
    for (int i = 0; i < argc; i++)
        if (!(n->argv[i] = strdup(argv[i])))
            return -1;
    return 0;
}

/* Closes all descriptors above standard error but these two; -1: there is no second. */
static void next_close_others(int one, int two)
{
    int low = two < 0 || one < two ? one : two, high = two < one ? one : two;

    for (int fd = STDERR_FILENO + 1; fd < low; fd++)
        close(fd);
    for (int fd = low + 1; fd < high; fd++)
        close(fd);
    closefrom(high + 1);
}

static _Noreturn void next_run(const struct next *n)
{
    sigset_t none;

    sigemptyset(&none);
    signal(SIGCHLD, SIG_DFL);
    sigprocmask(SIG_SETMASK, &none, NULL);
    execv(n->program, n->argv);
    dprintf(STDOUT_FILENO, "%s cannot be run: %s\n", n->program, strerrordesc_np(errno));
    _exit(HTH_END_REFUSED);
}

static void next_trial(struct next *n, int out)
{
    static char trial[] = "--trial";

    if (out < 0 || fork() != 0)
        return;
    dup2(out, STDOUT_FILENO);
    dup2(out, STDERR_FILENO);
    n->argv[n->argc++] = trial;
    next_run(n);
}

static void next_keep_fd(int *to, int fd)
{
    if (*to >= 0)
        close(*to);
    *to = fd;
}

static void next_take_over(const struct next *n)
{
    char text[64];

    if (n->lock < 0 || n->listens < 0)
        return;
    snprintf(text, sizeof(text), "%d %d %d", n->lock, n->listens, n->sock);
    if (setenv(GIVEN, text, 1) || fcntl(n->lock, F_SETFD, 0) || fcntl(n->listens, F_SETFD, 0) ||
            fcntl(n->sock, F_SETFD, 0))
        return;
    next_run(n);
}

/* Until the engine ends, or hands over. */
static void next_serve(struct next *n)
{
    struct pollfd p = { .fd = n->sock, .events = POLLIN };
    enum hth_packet got = HTH_PACKET_NONE;
    enum order order;
    int fd;

    while (got == HTH_PACKET_NONE || got == HTH_PACKET_GOT) {
        poll(&p, 1, -1);
        got = order_get(n->sock, &order, &fd);
        if (got != HTH_PACKET_GOT)
            continue;
        if (order == ORDER_LOCK)
            next_keep_fd(&n->lock, fd);
        else if (order == ORDER_SOCKET)
            next_keep_fd(&n->listens, fd);
        else if (order == ORDER_TRIAL)
            next_trial(n, fd);
        if (order == ORDER_TAKE_OVER)
            break;
        if (order == ORDER_TRIAL && fd >= 0)
            close(fd);
    }
    if (got == HTH_PACKET_GOT)
        next_take_over(n);
}

/* hearthd handles all signals until it hands over. */
static _Noreturn void next_main(int sock, int key, const char *job, int argc, char *const *argv)
{
    static struct next n;
    sigset_t all;

    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    signal(SIGCHLD, SIG_IGN); /* trials are not waited for */
    if (next_prepare(&n, sock, argc, argv))
        _exit(1);
    title_set(NAME, "becomes the next engine", job, argc, argv);
    next_close_others(sock, key);
    next_serve(&n);
    _exit(0);
}

/* ---- hearthd --------------------------------------------------------------------------------- */

/* Reads until the other end is closed. 0, or ETIMEDOUT. */
static int trial_read(int from, char *out, size_t size)
{
    struct pollfd p = { .fd = from, .events = POLLIN };
    size_t n = 0;
    ssize_t got = 1;

    while (got > 0) {
        if (poll(&p, 1, TRIAL_MS) == 0)
            return ETIMEDOUT;
        got = read(from, out + n, size - 1 - n);
        n += got > 0 ? (size_t)got : 0;
    }
    out[n] = '\0';
    return 0;
}

static int successor_trial(void *self, char *out, size_t size, struct hearth_error *err)
{
    const struct succession *s = self;
    int ends[2], e;

    if (s->sock < 0)
        return hth_fail(err, HEARTH_EENGINE, 0,
                "this engine cannot be upgraded: hearthd-next, the process that starts the next "
                "one, has ended. End the engine (SIGTERM) when no save is under way, and its ranks "
                "start the new program");
    if (pipe2(ends, O_CLOEXEC))
        return hth_fail(err, HEARTH_EENGINE, errno, "a trial of the new hearthd: %s",
                strerrordesc_np(errno));
    e = order_put(s->sock, ORDER_TRIAL, ends[1]);
    close(ends[1]);
    e = e ? e : trial_read(ends[0], out, size);
    close(ends[0]);
    if (e)
        return hth_fail(
                err, HEARTH_EENGINE, e, "a trial of the new hearthd: %s", strerrordesc_np(e));
    return HEARTH_OK;
}

void successor_prepare(struct hth_config *config, int argc, char *const *argv)
{
    int ends[2], key = hth_key_fd(config->key_file);

    own.offer = (struct hth_successor){ .trial = successor_trial, .self = &own };
    config->successor = &own.offer;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends))
        return;
    fflush(NULL);
    own.pid = fork();
    if (own.pid == 0)
        next_main(ends[1], key, config->job, argc, argv);
    close(ends[1]);
    own.sock = ends[0];
    if (own.pid < 0) {
        close(own.sock);
        own.sock = -1;
    }
}

/* 1: the next engine serves. */
static int successor_hear(void)
{
    struct pollfd p = { .fd = own.sock, .events = POLLIN };
    enum order order = 0;
    int fd = -1;

    if (poll(&p, 1, SERVE_MS) <= 0 || order_get(own.sock, &order, &fd) != HTH_PACKET_GOT)
        order = 0;
    if (fd >= 0)
        close(fd);
    return order == ORDER_SERVES;
}

int successor_take_over(const struct hth_config *config)
{
    int serves = !order_put(own.sock, ORDER_LOCK, config->lock_fd) &&
                 !order_put(own.sock, ORDER_SOCKET, config->sock_fd) &&
                 !order_put(own.sock, ORDER_TAKE_OVER, -1) && successor_hear();

    if (serves)
        return 1;
    kill(own.pid, SIGKILL);
    waitpid(own.pid, NULL, 0);
    close(own.sock);
    own.sock = -1;
    return 0;
}

int successor_await_end(int stop_fd)
{
    struct pollfd p = { .fd = stop_fd, .events = POLLIN };
    struct signalfd_siginfo signal_of;
    int status = 0;
    pid_t pid;

    while ((pid = waitpid(own.pid, &status, WNOHANG)) == 0) {
        if (poll(&p, 1, 1000) > 0 && read(stop_fd, &signal_of, sizeof(signal_of)) > 0)
            kill(own.pid, SIGTERM);
    }
    return pid > 0 && WIFEXITED(status) ? WEXITSTATUS(status) : HTH_END_FAILED;
}

/* ---- the next engine ------------------------------------------------------------------------- */

int successor_is(struct hth_config *config)
{
    char *text = getenv(GIVEN);
    int fd[3], valid = text != NULL;

    for (int i = 0; i < 3 && valid; i++) {
        fd[i] = (int)strtol(text, &text, 10);
        valid = fd[i] > STDERR_FILENO && !fcntl(fd[i], F_SETFD, FD_CLOEXEC);
    }
    unsetenv(GIVEN);
    if (!valid)
        return 0;
    config->lock_fd = fd[0];
    config->sock_fd = fd[1];
    given = fd[2];
    return 1;
}

void successor_serves(void)
{
    if (given < 0)
        return;
    order_put(given, ORDER_SERVES, -1);
    close(given);
    given = -1;
}
