/* SPDX-License-Identifier: Apache-2.0 */
/* The local socket: what comes in, what goes out, and how a client is known to be gone. */
#include "check.h"

#include "engine/driver/attach.h"
#include "engine/driver/server.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

static struct {
    char dir[512];
    int epoll_fd, dir_fd;
    struct hth_server *server;
    unsigned requests, gones;
    uint32_t client;
    uint64_t numbers[64]; /* `request` of what came */
    char attach[64];
    size_t attach_len;
    int has_attach;
} w;

static void on_request(
        void *self, uint32_t client, const void *bytes, size_t len, struct hth_content *content)
{
    struct hth_local_head head;

    (void)self, (void)len;
    memcpy(&head, bytes, sizeof(head));
    w.numbers[w.requests++ % 64] = head.request;
    w.client = client;
    w.has_attach = content != NULL;
    w.attach_len = content ? content->len : 0;
    if (w.attach_len && w.attach_len <= sizeof(w.attach))
        must(content->read(content, 0, w.attach, w.attach_len));
    if (content)
        content->end(content);
}

static void on_gone(void *self, uint32_t client)
{
    (void)self;
    w.gones++;
    w.client = client;
}

static void open_world(const char *under)
{
    struct hth_server_events events = { .request = on_request, .gone = on_gone };
    struct hth_log log = { 0 };

    alarm(60);
    memset(&w, 0, sizeof(w));
    snprintf(w.dir, sizeof(w.dir), "/tmp/hearth-server-XXXXXX");
    cr_assert(ne(ptr, mkdtemp(w.dir), NULL));
    if (under) {
        strcat(w.dir, under);
        cr_assert(zero(int, mkdir(w.dir, 0700)));
    }
    w.epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    w.dir_fd = open(w.dir, O_PATH);
    must(hth_server_open(w.dir_fd, w.dir, 0, w.epoll_fd, &events, &log, &w.server, NULL));
}

static void plain_world(void)
{
    open_world(NULL);
}

static void close_world(void)
{
    hth_server_close(w.server);
    close(w.epoll_fd);
    close(w.dir_fd);
    cr_assert(zero(int, rmdir(w.dir)), "the socket was left in %s", w.dir);
    *strrchr(w.dir, '/') = '\0';
    if (strcmp(w.dir, "/tmp") != 0) /* a world `under` another folder */
        rmdir(w.dir);
}

/* Rounds until nothing happens for wait_ms. */
static void rounds(int wait_ms)
{
    struct epoll_event e;

    while (epoll_wait(w.epoll_fd, &e, 1, wait_ms) > 0) {
        cr_assert(eq(int, hth_server_event(w.server, e.data.u64, e.events), 1));
        hth_server_reap(w.server);
    }
    hth_server_reap(w.server);
}

static int dial(void)
{
    struct sockaddr_un a = { .sun_family = AF_UNIX };
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

    snprintf(a.sun_path, sizeof(a.sun_path), "/proc/self/fd/%d/sock", w.dir_fd);
    return connect(fd, (struct sockaddr *)&a, sizeof(a)) ? -1 : fd;
}

static void say(int fd, uint64_t request, uint32_t length, int pass)
{
    struct hth_local_head head = { .length = length, .type = 50, .request = request };
    struct iovec iov = { .iov_base = &head, .iov_len = sizeof(head) };
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(sizeof(int))];
    } control = { 0 };
    struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1 };

    if (pass >= 0) {
        m.msg_control = &control;
        m.msg_controllen = sizeof(control);
        control.head.cmsg_level = SOL_SOCKET;
        control.head.cmsg_type = SCM_RIGHTS;
        control.head.cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(&control.head), &pass, sizeof(pass));
    }
    if (sendmsg(fd, &m, MSG_NOSIGNAL) != (ssize_t)sizeof(head))
        _exit(99);
}

static ssize_t hear(int fd, void *bytes, size_t len, int *out_fd)
{
    struct iovec iov = { .iov_base = bytes, .iov_len = len };
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(sizeof(int))];
    } control = { 0 };
    struct msghdr m = {
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)
    };
    ssize_t n = recvmsg(fd, &m, MSG_DONTWAIT);

    *out_fd = -1;
    if (n > 0 && m.msg_controllen >= CMSG_LEN(sizeof(int)))
        memcpy(out_fd, CMSG_DATA(&control.head), sizeof(*out_fd));
    return n;
}

static int memfd_of(const char *text)
{
    int fd = memfd_create("test", MFD_CLOEXEC);

    cr_assert(eq(long, (long)write(fd, text, strlen(text)), (long)strlen(text)));
    return fd;
}

TestSuite(server, .init = plain_world, .fini = close_world);

Test(server, packet_arrives_whole_with_the_content_of_its_descriptor)
{
    int fd = dial(), memfd = memfd_of("all ranks");

    say(fd, 7, sizeof(struct hth_local_head), memfd);
    rounds(50);
    cr_assert(eq(u32, w.requests, 1));
    cr_assert(eq(u64, w.numbers[0], 7));
    cr_assert(eq(sz, w.attach_len, 9));
    cr_assert(zero(int, memcmp(w.attach, "all ranks", 9)));
    say(fd, 8, sizeof(struct hth_local_head), -1);
    rounds(50);
    cr_assert(eq(u32, w.requests, 2));
    cr_assert(zero(int, w.has_attach));
    cr_assert(zero(int, w.gones));
    close(memfd);
    close(fd);
    rounds(50);
    cr_assert(eq(u32, w.gones, 1));
    cr_assert(zero(u32, hth_server_clients(w.server)));
}

Test(server, answer_carries_a_descriptor_or_sealed_content)
{
    int fd = dial(), memfd = memfd_of("slot"), made = -1, got;
    struct hth_local_head head = { .length = sizeof(head), .type = 2, .request = 1 };
    char text[16] = "";

    say(fd, 1, sizeof(head), -1);
    rounds(50);
    hth_server_reply(w.server, w.client, &head, sizeof(head), memfd);
    cr_assert(eq(long, (long)hear(fd, &head, sizeof(head), &got), (long)sizeof(head)));
    cr_assert(eq(long, (long)pread(got, text, sizeof(text), 0), 4));
    must_say(text, "slot");
    close(got);
    must(hth_attach_put(&made, "mani", 0, 4, 0));
    must(hth_attach_put(&made, "fest", 4, 4, 1));
    hth_server_reply(w.server, w.client, &head, sizeof(head), made);
    close(made);
    cr_assert(eq(long, (long)hear(fd, &head, sizeof(head), &got), (long)sizeof(head)));
    cr_assert(eq(long, (long)pread(got, text, sizeof(text), 0), 8));
    must_say(text, "manifest");
    cr_assert(ne(int, ftruncate(got, 0), 0), "what is mapped must not shrink");
    close(got);
    hth_server_reply(w.server, w.client + 1, &head, sizeof(head), -1); /* there is no such client */
    close(memfd);
    close(fd);
}

Test(server, rank_that_dies_is_gone_though_its_child_keeps_the_socket)
{
    int ends[2], status;
    pid_t rank;

    cr_assert(zero(int, pipe(ends)));
    rank = fork();
    if (rank == 0) {
        int fd = dial();

        if (fork() == 0) {
            char c;

            close(ends[1]);
            (void)!read(ends[0], &c, 1); /* until the test is over */
            close(fd);
            _exit(0);
        }
        for (uint64_t i = 1; i <= 40; i++)
            say(fd, i, sizeof(struct hth_local_head), -1);
        _exit(0);
    }
    close(ends[0]);
    waitpid(rank, &status, 0);
    cr_assert(zero(int, status));
    rounds(200);
    cr_assert(eq(u32, w.requests, 40), "what it said before it died counts");
    cr_assert(eq(u64, w.numbers[39], 40));
    cr_assert(eq(u32, w.gones, 1));
    close(ends[1]);
}

Test(server, nonsense_ends_its_own_connection_only)
{
    int good = dial(), bad[4], pass[4];
    char big[64];

    for (int i = 0; i < 4; i++)
        bad[i] = dial();
    cr_assert(eq(long, (long)send(bad[0], big, 5, 0), 5)); /* shorter than a head */
    say(bad[1], 1, sizeof(struct hth_local_head) + 1, -1); /* a wrong length */
    cr_assert(zero(int, pipe(pass)));
    say(bad[2], 1, sizeof(struct hth_local_head), pass[0]); /* a pipe */
    pass[2] = memfd_create("large", MFD_CLOEXEC);
    cr_assert(zero(int, ftruncate(pass[2], (off_t)HTH_ATTACH_MAX + 1)));
    say(bad[3], 1, sizeof(struct hth_local_head), pass[2]); /* too much */
    say(good, 5, sizeof(struct hth_local_head), -1);
    rounds(50);
    cr_assert(eq(u32, w.gones, 4));
    cr_assert(eq(u32, w.requests, 1));
    cr_assert(eq(u64, w.numbers[0], 5));
    cr_assert(eq(u32, hth_server_clients(w.server), 1));
    for (int i = 0; i < 4; i++)
        close(bad[i]);
    close(good);
}

Test(server, empty_descriptor_is_empty_content)
{
    int fd = dial(), memfd = memfd_of("");

    say(fd, 1, sizeof(struct hth_local_head), memfd);
    rounds(50);
    cr_assert(eq(u32, w.requests, 1));
    cr_assert(zero(sz, w.attach_len));
    close(memfd);
    close(fd);
}

/* Answers until the client is lost or `most` are queued. */
static unsigned answer_many(uint32_t client, unsigned most)
{
    static _Alignas(8) unsigned char packet[HTH_LOCAL_MAX];
    struct hth_local_head head = { .length = sizeof(packet), .type = 49 };
    unsigned n = 0;

    while (n < most) {
        head.request = ++n;
        memcpy(packet, &head, sizeof(head));
        hth_server_reply(w.server, client, packet, sizeof(packet), -1);
    }
    return n;
}

Test(server, slow_reader_gets_all_answers_in_order)
{
    static _Alignas(8) unsigned char packet[HTH_LOCAL_MAX];
    unsigned want = HTH_QUEUE_MAX, got = 0;
    int fd = dial(), none;
    struct hth_local_head head;

    say(fd, 1, sizeof(head), -1);
    rounds(50);
    answer_many(w.client, want);
    for (int idle = 0; idle < 20 && got < want;) {
        ssize_t n = hear(fd, packet, sizeof(packet), &none);

        if (n <= 0) {
            rounds(5);
            idle++;
            continue;
        }
        memcpy(&head, packet, sizeof(head));
        cr_assert(eq(u64, head.request, ++got));
        idle = 0;
    }
    cr_assert(eq(u32, got, want));
    cr_assert(zero(u32, w.gones));
    close(fd);
}

Test(server, client_that_never_reads_is_dropped_alone)
{
    int slow = dial(), good = dial(), none;
    struct hth_local_head head = { .length = sizeof(head), .type = 2, .request = 3 };
    uint32_t slow_id, good_id;

    say(slow, 1, sizeof(head), -1);
    rounds(50);
    slow_id = w.client;
    say(good, 2, sizeof(head), -1);
    rounds(50);
    good_id = w.client;
    answer_many(slow_id, 2 * HTH_QUEUE_MAX);
    rounds(20);
    cr_assert(eq(u32, w.gones, 1));
    cr_assert(eq(u32, w.client, slow_id));
    hth_server_reply(w.server, good_id, &head, sizeof(head), -1);
    cr_assert(eq(long, (long)hear(good, &head, sizeof(head), &none), (long)sizeof(head)));
    close(slow);
    close(good);
}

/* ---- No descriptor is left ------------------------------------------------------------------- */

/* From now on every new one is refused; the limit as it was. */
static struct rlimit use_all_descriptors(void)
{
    struct rlimit was, none;
    int lowest = dup(w.dir_fd);

    close(lowest);
    cr_assert(zero(int, getrlimit(RLIMIT_NOFILE, &was)));
    none = was;
    none.rlim_cur = (rlim_t)lowest;
    cr_assert(zero(int, setrlimit(RLIMIT_NOFILE, &none)));
    return was;
}

static void give_descriptors_back(struct rlimit was)
{
    cr_assert(zero(int, setrlimit(RLIMIT_NOFILE, &was)));
}

/* A client that waited to be accepted would wake the engine without end. */
Test(server, who_comes_when_no_descriptor_is_left_is_turned_away_and_the_others_are_served)
{
    struct hth_local_head head = { .length = sizeof(head) };
    int there = dial(), late[2] = { dial(), -1 }, none;
    struct rlimit was;

    rounds(50);
    late[1] = dial();
    close(late[0]);
    /* Two, so that the engine needs for the second the descriptor by which it turned the first
     * away. */
    late[0] = dial();
    was = use_all_descriptors();
    rounds(50);
    say(there, 1, sizeof(head), -1);
    rounds(50);
    give_descriptors_back(was);
    for (int i = 0; i < 2; i++)
        cr_assert(zero(long, (long)hear(late[i], &head, sizeof(head), &none)), "number %d", i);
    cr_assert(eq(u32, w.requests, 1));
    close(late[0]);
    late[0] = dial();
    say(late[0], 2, sizeof(head), -1);
    rounds(50);
    cr_assert(eq(u32, w.requests, 2));
    for (int i = 0; i < 2; i++)
        close(late[i]);
    close(there);
}

Test(server, a_descriptor_that_cannot_be_made_or_filled_is_refused_with_the_reason)
{
    int made = -1, full;
    struct rlimit was = use_all_descriptors();

    cr_assert(eq(int, hth_attach_put(&made, "manifest", 0, 8, 1), -1));
    cr_assert(eq(int, errno, EMFILE));
    give_descriptors_back(was);
    full = open("/dev/full", O_WRONLY | O_CLOEXEC);
    cr_assert(eq(int, hth_attach_put(&full, "manifest", 0, 8, 1), -1));
    cr_assert(eq(int, errno, ENOSPC));
    close(full);
}

/* The answer waits in the queue with a descriptor of its own. Without one, its client would receive
 * the other answers and not this one. */
Test(server, a_client_whose_answer_cannot_wait_loses_its_connection)
{
    struct hth_local_head head = { .length = sizeof(head), .type = 2 };
    int fd = dial(), slot = memfd_of("slot");
    struct rlimit was;

    say(fd, 1, sizeof(head), -1);
    rounds(50);
    answer_many(w.client, HTH_QUEUE_MAX / 2);
    was = use_all_descriptors();
    hth_server_reply(w.server, w.client, &head, sizeof(head), slot);
    give_descriptors_back(was);
    rounds(50);
    cr_assert(eq(u32, w.gones, 1));
    close(slot);
    close(fd);
}

/* The kernel counts descriptors on their way in sockets for all processes of the user, up to the
 * limit of open files: those of a trainer's own sockets count, too. The client receives the answers
 * that went out; then its connection ends, and the library makes another. */
static int answers_beyond_the_limit(uint32_t client, int fd, int slot)
{
    struct rlimit few = { 64, 64 };
    struct hth_local_head head = { .length = sizeof(head), .type = 2 };
    int heard = 0, none;

    if (setrlimit(RLIMIT_NOFILE, &few) || (!geteuid() && setresuid(65534, 65534, 65534)))
        return 1;
    for (int i = 0; i < 100; i++)
        hth_server_reply(w.server, client, &head, sizeof(head), slot);
    hth_server_reap(w.server);
    if (w.gones != 1)
        return 2;
    for (; hear(fd, &head, sizeof(head), &none) == (ssize_t)sizeof(head); heard++)
        close(none);
    return heard == 0 || heard == 100 ? 3 : 0;
}

Test(server, a_client_whose_answer_cannot_be_sent_loses_its_connection)
{
    int fd = dial(), slot = memfd_of("slot"), status = 0;
    pid_t child;

    say(fd, 1, sizeof(struct hth_local_head), -1);
    rounds(50);
    child = fork();
    if (child == 0)
        _exit(answers_beyond_the_limit(w.client, fd, slot));
    cr_assert(eq(int, waitpid(child, &status, 0), child));
    cr_assert(eq(int, WEXITSTATUS(status), 0));
    cr_assert(zero(int, WTERMSIG(status)));
    close(slot);
    close(fd);
}

/* ---- Where it listens ------------------------------------------------------------------------ */

Test(server, what_a_client_said_before_it_closed_is_heard_though_no_answer_reaches_it)
{
    struct hth_local_head head = { .length = sizeof(head), .type = 2 };
    int fd = dial();

    say(fd, 1, sizeof(head), -1);
    rounds(50);
    say(fd, 2, sizeof(head), -1);
    say(fd, 3, sizeof(head), -1);
    close(fd);
    for (int i = 0; i < 2; i++)
        hth_server_reply(w.server, w.client, &head, sizeof(head), -1);
    rounds(50);
    cr_assert(eq(u32, w.requests, 3));
    cr_assert(eq(u32, w.gones, 1));
}

Test(server, socket_is_ours_alone_whatever_the_umask)
{
    struct stat st;
    mode_t old = umask(0);

    close_world();
    plain_world();
    umask(old);
    cr_assert(zero(int, fstatat(w.dir_fd, "sock", &st, 0)));
    cr_assert(eq(u32, st.st_mode & 0777, 0600));
}

Test(long_path, of_more_than_107_bytes_is_listened_on, .fini = close_world)
{
    char name[160] = "/";
    int fd;

    memset(name + 1, 'n', 140);
    open_world(name);
    fd = dial();
    cr_assert(ge(int, fd, 0));
    say(fd, 4, sizeof(struct hth_local_head), -1);
    rounds(50);
    cr_assert(eq(u32, w.requests, 1));
    close(fd);
}

/* Another job's folder, say, was put there after this one's was opened. */
Test(elsewhere, the_folder_that_is_open_gets_the_socket_wherever_its_path_leads)
{
    struct hth_server_events events = { .request = on_request, .gone = on_gone };
    struct hth_log log = { 0 };
    char ours[] = "/tmp/hearth-server-XXXXXX", other[] = "/tmp/hearth-server-XXXXXX", sock[64];
    int epoll_fd = epoll_create1(EPOLL_CLOEXEC), dir_fd;
    struct hth_server *server;
    struct hearth_error err;

    cr_assert(mkdtemp(ours) && mkdtemp(other));
    dir_fd = open(ours, O_PATH);
    must(hth_server_open(dir_fd, other, 0, epoll_fd, &events, &log, &server, &err), err);
    snprintf(sock, sizeof(sock), "%s/sock", ours);
    cr_assert(zero(int, access(sock, F_OK)));
    cr_assert(zero(int, rmdir(other)), "something lies in the other one");
    hth_server_close(server);
    cr_assert(zero(int, rmdir(ours)), "the socket stays");
    must_fail(
            hth_server_open(dir_fd, other, 0, epoll_fd, &events, &log, &server, &err), HEARTH_EIO);
    cr_assert(eq(int, err.native, ENOENT), "%s", err.text);
    close(dir_fd);
    close(epoll_fd);
}
