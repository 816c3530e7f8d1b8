/* SPDX-License-Identifier: Apache-2.0 */
/* Packets: whole or not at all, and no descriptor is left over, whatever the other side sends. */
#include "check.h"

#include "core/local/local.h"
#include "core/local/packet.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define MANY 16

static int end[2]; /* what goes into one comes out of the other */
static _Alignas(8) unsigned char packet[HTH_LOCAL_MAX];

static void setup(void)
{
    alarm(30);
    must(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, end));
}

static int open_files(void)
{
    DIR *d = opendir("/proc/self/fd");
    int n = 0;

    while (readdir(d))
        n++;
    closedir(d);
    return n;
}

/* A packet of `sent` bytes whose header gives `says` as its length, with the first `fds` of
 * fd[]. */
static void send_raw(size_t sent, size_t says, const int *fd, size_t fds)
{
    static _Alignas(8) unsigned char bytes[HTH_LOCAL_MAX + 1];
    struct hth_local_head head = { .length = (uint32_t)says, .type = 50, .request = 7 };
    struct iovec iov = { .iov_base = bytes, .iov_len = sent };
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(MANY * sizeof(int))];
    } control = { 0 };
    struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1 };

    memcpy(bytes, &head, sizeof(head));
    if (fds) {
        m.msg_control = &control;
        m.msg_controllen = CMSG_SPACE(fds * sizeof(int));
        control.head.cmsg_level = SOL_SOCKET;
        control.head.cmsg_type = SCM_RIGHTS;
        control.head.cmsg_len = CMSG_LEN(fds * sizeof(int));
        memcpy(CMSG_DATA(&control.head), fd, fds * sizeof(int));
    }
    cr_assert(eq(long, (long)sendmsg(end[0], &m, MSG_NOSIGNAL), (long)sent));
}

static enum hth_packet receive(size_t *out_len, int *out_fd)
{
    return hth_packet_receive(end[1], packet, out_len, out_fd);
}

static int same_file(int a, int b)
{
    struct stat x, y;

    return !fstat(a, &x) && !fstat(b, &y) && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

Test(packet, comes_whole_with_its_descriptor, .init = setup)
{
    struct hth_local_error m = { .head = { .length = sizeof(m), .request = 9 }, .code = -5 }, got;
    int file = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC), fd;
    size_t len;

    cr_assert(eq(int, (int)receive(&len, &fd), HTH_PACKET_NONE));
    cr_assert(eq(int, fd, -1));
    must(hth_packet_put(end[0], &m, sizeof(m), file));
    cr_assert(eq(int, (int)receive(&len, &fd), HTH_PACKET_GOT));
    cr_assert(eq(sz, len, sizeof(m)));
    memcpy(&got, packet, sizeof(got));
    cr_assert(eq(int, got.code, -5));
    cr_assert(ne(int, fd, file));
    cr_assert(same_file(fd, file));
    cr_assert(ne(int, fcntl(fd, F_GETFD) & FD_CLOEXEC, 0));
    must(hth_packet_put(end[0], &m, sizeof(m), -1));
    cr_assert(eq(int, (int)receive(&len, &fd), HTH_PACKET_GOT));
    cr_assert(eq(int, fd, -1));
    close(end[0]);
    cr_assert(eq(int, (int)receive(&len, &fd), HTH_PACKET_END));
    cr_assert(eq(int, hth_packet_put(end[1], &m, sizeof(m), file), EPIPE));
}

Test(packet, that_lies_about_its_length_is_bad_and_leaves_nothing, .init = setup)
{
    static const size_t lengths[][2] = { { 1, 1 }, { 23, 23 }, { 24, 25 }, { 25, 24 }, { 24, 0 },
        { HTH_LOCAL_MAX + 1, HTH_LOCAL_MAX + 1 }, { HTH_LOCAL_MAX + 1, HTH_LOCAL_MAX } };
    int before = open_files(), fd;
    size_t len;

    for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
        send_raw(lengths[i][0], lengths[i][1], end, 1);
        cr_assert(eq(int, (int)receive(&len, &fd), HTH_PACKET_BAD), "%zu", i);
        cr_assert(eq(int, fd, -1));
        cr_assert(eq(int, open_files(), before));
    }
    send_raw(HTH_LOCAL_MAX, HTH_LOCAL_MAX, NULL, 0);
    cr_assert(eq(int, (int)receive(&len, &fd), HTH_PACKET_GOT));
    cr_assert(eq(sz, len, HTH_LOCAL_MAX));
}

Test(packet, with_more_descriptors_than_one_leaves_at_most_one, .init = setup)
{
    int before = open_files(), fds[MANY], fd;
    size_t len;

    for (size_t n = 2; n <= MANY; n++) {
        enum hth_packet got;

        for (size_t i = 0; i < n; i++)
            fds[i] = end[i % 2];
        send_raw(24, 24, fds, n);
        got = receive(&len, &fd);
        cr_assert(eq(int, (int)got, n > 8 ? HTH_PACKET_BAD : HTH_PACKET_GOT), "%zu", n);
        cr_assert(eq(int, open_files(), before + (fd >= 0)));
        if (fd >= 0) {
            cr_assert(same_file(fd, end[0]));
            close(fd);
        }
    }
}

Test(packet, that_nobody_takes_is_refused_without_waiting, .init = setup)
{
    struct hth_local_head m = { .length = sizeof(m) };
    int rc = 0;

    for (int i = 0; i < 100000 && !rc; i++)
        rc = hth_packet_put(end[0], &m, sizeof(m), -1);
    cr_assert(eq(int, rc, EAGAIN));
}

/* A process that has no number left for a descriptor still receives the message. */
Test(packet, without_room_for_its_descriptor_comes_nevertheless, .init = setup)
{
    struct hth_local_head m = { .length = sizeof(m), .type = 50, .request = 3 }, got;
    int file = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC), fd = 7, before;
    struct rlimit old, none;
    size_t len = 0;

    must(getrlimit(RLIMIT_NOFILE, &old));
    none = old;
    none.rlim_cur = 0;
    must(hth_packet_put(end[0], &m, sizeof(m), file));
    before = open_files();
    must(setrlimit(RLIMIT_NOFILE, &none));
    cr_expect(eq(int, (int)receive(&len, &fd), HTH_PACKET_GOT));
    must(setrlimit(RLIMIT_NOFILE, &old));
    cr_assert(eq(int, fd, -1));
    cr_assert(eq(sz, len, sizeof(m)));
    memcpy(&got, packet, sizeof(got));
    cr_assert(eq(u64, got.request, 3));
    cr_assert(eq(int, open_files(), before));
}

/* Which resets the connection. */
Test(packet, that_was_sent_before_a_close_with_unread_answers_is_heard, .init = setup)
{
    struct hth_local_head m = { .length = sizeof(m) };
    size_t len = 0;
    int fd = -1;

    must(hth_packet_put(end[0], &m, sizeof(m), -1));
    must(hth_packet_put(end[0], &m, sizeof(m), -1));
    must(hth_packet_put(end[1], &m, sizeof(m), -1)); /* is never read */
    close(end[0]);
    cr_assert(eq(int, (int)receive(&len, &fd), HTH_PACKET_GOT));
    cr_assert(eq(int, (int)receive(&len, &fd), HTH_PACKET_GOT));
    cr_assert(eq(int, (int)receive(&len, &fd), HTH_PACKET_END));
}

/* ---- the way to the engine
 * --------------------------------------------------------------------- */

Test(packet, the_engine_is_found_where_its_socket_is_and_by_no_link)
{
    char at[] = "/tmp/hearth-packet-XXXXXX";
    struct sockaddr_un a = { .sun_family = AF_UNIX };
    int dir, sock = -1, listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0), before;

    alarm(30);
    cr_assert(ne(ptr, mkdtemp(at), NULL));
    dir = open(at, O_PATH | O_DIRECTORY | O_CLOEXEC);
    before = open_files();
    cr_assert(eq(int, hth_packet_dial(dir, &sock), ENOENT));
    snprintf(a.sun_path, sizeof(a.sun_path), "%s/other", at);
    must(bind(listener, (const struct sockaddr *)&a, sizeof(a)));
    must(listen(listener, 1));
    must(symlinkat("other", dir, "sock"));
    cr_assert(eq(int, hth_packet_dial(dir, &sock), ECONNREFUSED));
    must(unlinkat(dir, "sock", 0));
    must(mkfifoat(dir, "sock", 0600));
    cr_assert(eq(int, hth_packet_dial(dir, &sock), ECONNREFUSED));
    cr_assert(eq(int, open_files(), before));
    must(unlinkat(dir, "sock", 0));
    must(renameat(dir, "other", dir, "sock"));
    must(hth_packet_dial(dir, &sock));
    cr_assert(ne(int, fcntl(sock, F_GETFL) & O_NONBLOCK, 0));
    close(sock);
    close(listener);
    cr_assert(eq(int, hth_packet_dial(dir, &sock), ECONNREFUSED), "it is dead");
    must(unlinkat(dir, "sock", 0));
    rmdir(at);
    close(dir);
}
