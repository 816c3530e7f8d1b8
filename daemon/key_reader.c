/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A rule of Landlock holds for the file that has the name when it is made. A key file is replaced
 * by another with its name (hearth key, rename()), and a rule for its folder would open all that
 * lies beside it. So a confined engine does not open it; this process does:
 *
 *     hearthd ── confined ── "open" ──► hearthd-key ── opens that one name, to read
 *        ◄──────────── descriptor, or an errno ──┘
 *
 * The reader uses nothing of a request but a number, which it sends back. It can read files and
 * nothing else: no writing, no listing, no program, no TCP. It has no key, and ends with hearthd.
 */
#include "key_reader.h"
#include "ruleset.h"
#include "title.h"

#include "core/base/open.h"
#include "core/local/local.h"
#include "core/local/packet.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/landlock.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#define NAME      "hearthd-key"
#define ANSWER_MS 1000
#define START_MS  10000

/* ---- the reader ------------------------------------------------------------------------------ */

/* Its folder may be replaced as well, by a link that leads elsewhere: so reading is allowed
 * wherever the name leads. 0 or an errno. */
static int reader_confine(void)
{
    int version = ruleset_version(), set = ruleset_make(version, 1), e;

    if (set < 0 || ruleset_allow(set, "/", LANDLOCK_ACCESS_FS_READ_FILE))
        return errno;
    e = ruleset_bind(set);
    close(set);
    return e;
}

/* Closes all of hearthd's descriptors but the socket, which becomes descriptor 3. */
static int reader_close_others(int sock)
{
    int null = hth_open_kernel("/dev/null", O_RDWR);

    for (int fd = 0; fd <= STDERR_FILENO; fd++)
        if (null < 0 || dup2(null, fd) < 0)
            return errno;
    if (dup2(sock, STDERR_FILENO + 1) < 0)
        return errno;
    closefrom(STDERR_FILENO + 2);
    return 0;
}

static int reader_answer(int sock, uint64_t turn, int fd, int why)
{
    struct hth_local_head head = {
        .length = sizeof(head), .request = turn, .token = (unsigned)why
    };
    int e = hth_packet_put(sock, &head, sizeof(head), fd);

    if (fd >= 0)
        close(fd);
    return e;
}

static void reader_serve(int sock, const char *path)
{
    struct pollfd p = { .fd = sock, .events = POLLIN };
    _Alignas(8) unsigned char packet[HTH_LOCAL_MAX];
    struct hth_local_head head;
    size_t len;
    int fd;

    for (;;) {
        poll(&p, 1, -1);
        switch (hth_packet_receive(sock, packet, &len, &fd)) {
        case HTH_PACKET_NONE:
            continue;
        case HTH_PACKET_GOT:
            break;
        default:
            return;
        }
        if (fd >= 0)
            close(fd);
        memcpy(&head, packet, sizeof(head));
        fd = hth_open_named(path, O_RDONLY | O_NOFOLLOW);
        if (reader_answer(sock, head.request, fd, fd < 0 ? errno : 0))
            return;
    }
}

/* The reader blocks all signals: hearthd handles them, and the reader ends with hearthd. */
static _Noreturn void reader_run(int sock, const char *path, pid_t parent)
{
    sigset_t all;
    int e;

    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(0);
    e = reader_close_others(sock);
    e = e ? e : reader_confine();
    sock = STDERR_FILENO + 1;
    if (!reader_answer(sock, 0, -1, e) && !e)
        reader_serve(sock, path);
    _exit(e != 0);
}

/* ---- hearthd --------------------------------------------------------------------------------- */

/* The answer to this turn: 0, with *out_fd, or an errno. A late answer is left out. */
static int reader_hear(struct key_reader *r, uint64_t turn, int wait_ms, int *out_fd)
{
    struct pollfd p = { .fd = r->sock, .events = POLLIN };
    _Alignas(8) unsigned char packet[HTH_LOCAL_MAX];
    struct hth_local_head head = { .request = turn + 1 };
    enum hth_packet got;
    size_t len;

    *out_fd = -1;
    do {
        if (*out_fd >= 0)
            close(*out_fd);
        *out_fd = -1;
        if (poll(&p, 1, wait_ms) == 0)
            return ETIMEDOUT;
        got = hth_packet_receive(r->sock, packet, &len, out_fd);
        if (got == HTH_PACKET_GOT)
            memcpy(&head, packet, sizeof(head));
        else if (got != HTH_PACKET_NONE)
            return EPIPE;
    } while (got != HTH_PACKET_GOT || head.request != turn);
    if (head.token)
        return (int)head.token;
    return 0;
}

int key_reader_start(
        const char *path, const char *job, int argc, char *const *argv, struct key_reader *out)
{
    struct key_reader r = { .sock = -1 };
    pid_t parent = getpid();
    int ends[2], fd, e;

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends))
        return errno;
    fflush(NULL);
    r.pid = fork();
    if (r.pid == 0) {
        title_set(NAME, "opens the key file", job, argc, argv);
        reader_run(ends[1], path, parent);
    }
    e = r.pid < 0 ? errno : 0;
    close(ends[1]);
    r.sock = ends[0];
    e = e ? e : reader_hear(&r, 0, START_MS, &fd);
    if (e)
        close(r.sock);
    else
        *out = r;
    return e;
}

int key_reader_open(struct key_reader *r)
{
    struct hth_local_head head = { .length = sizeof(head), .request = ++r->turn };
    int fd = -1, e = hth_packet_put(r->sock, &head, sizeof(head), -1);

    e = e ? e : reader_hear(r, head.request, ANSWER_MS, &fd);
    if (!e && fd < 0)
        e = EMFILE; /* it was sent one, and this process may have no more */
    if (!e)
        return fd;
    errno = e == EAGAIN ? ETIMEDOUT : e;
    return -1;
}
