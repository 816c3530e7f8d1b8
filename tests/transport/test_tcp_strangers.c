/* SPDX-License-Identifier: Apache-2.0 */
/* The listener of the transport tcp, and whoever comes to it with no hello, half of one, or a false one. */
#include "tcp_side.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>
#include <unistd.h>

#define FLOOD 500

static struct tcp_side side;

static void strangers_start(void)
{
    tcp_side_open(&side, "127.0.0.1");
}

static void strangers_stop(void)
{
    tcp_side_close(&side);
}

TestSuite(tcp_strangers, .init = strangers_start, .fini = strangers_stop, .timeout = 60);

static int closed_of(const int *fd, int count)
{
    int n = 0;

    for (int i = 0; i < count; i++)
        n += tcp_is_closed(fd[i]);
    return n;
}

Test(tcp_strangers, who_says_nothing_is_closed_when_his_time_is_over_and_not_before)
{
    int fd[10];

    for (int i = 0; i < 10; i++)
        fd[i] = tcp_dial(&side);
    tcp_turns(&side, 10);
    side.now_ms += HTH_TCP_PATIENCE - 1;
    tcp_turns(&side, 10);
    cr_expect(eq(int, closed_of(fd, 10), 0));
    side.now_ms += 1;
    tcp_turns(&side, 10);
    cr_expect(eq(int, closed_of(fd, 10), 10));
    for (int i = 0; i < 10; i++)
        close(fd[i]);
}

Test(tcp_strangers, half_a_hello_is_not_answered_and_buys_no_time)
{
    unsigned char hello[HTH_TCP_HELLO];
    int fd = tcp_dial(&side);

    tcp_hello(hello, HTH_TCP_KIND_MESSAGES, NULL);
    tcp_say(fd, hello, sizeof(hello) / 2);
    tcp_turns(&side, 10);
    side.now_ms += HTH_TCP_PATIENCE - 1;
    tcp_say(fd, hello + sizeof(hello) / 2, 1);
    tcp_turns(&side, 10);
    cr_expect(tcp_is_quiet(fd));
    side.now_ms += 1;
    tcp_turns(&side, 10);
    cr_expect(tcp_is_closed(fd));
    close(fd);
}

Test(tcp_strangers, a_whole_hello_without_its_other_half_ends_in_time_too)
{
    unsigned char hello[HTH_TCP_HELLO];
    int fd = tcp_dial(&side);

    tcp_hello(hello, HTH_TCP_KIND_MESSAGES, NULL);
    tcp_say(fd, hello, sizeof(hello));
    cr_assert(tcp_hear(&side, fd, hello, sizeof(hello)));
    side.now_ms += HTH_TCP_PATIENCE;
    tcp_turns(&side, 10);
    cr_expect(tcp_is_closed(fd));
    cr_expect(eq(int, side.conns + side.downs, 0));
    close(fd);
}

Test(tcp_strangers, garbage_is_closed_without_a_word)
{
    static const struct {
        uint32_t at;
        unsigned char flip;
    } wrong[] = { { 0, 1 }, { 7, 1 }, { 8, 1 }, { 9, 1 }, { 10, 7 }, { 10, 2 } };
    unsigned char hello[HTH_TCP_HELLO], byte;

    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        int fd = tcp_dial(&side);

        tcp_hello(hello, HTH_TCP_KIND_MESSAGES, NULL);
        hello[wrong[i].at] ^= wrong[i].flip;
        tcp_say(fd, hello, sizeof(hello));
        cr_expect(not(tcp_hear(&side, fd, &byte, 1)), "byte %u", wrong[i].at);
        close(fd);
    }
}

Test(tcp_strangers, of_a_flood_the_oldest_go_and_a_member_gets_in)
{
    struct rlimit files = { 4096, 4096 };
    struct tcp_member m;
    static int fd[FLOOD];

    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    for (int i = 0; i < FLOOD; i++)
        fd[i] = tcp_dial(&side);
    tcp_turns(&side, 50);
    cr_expect(eq(int, closed_of(fd, FLOOD), FLOOD - (int)HTH_TCP_STRANGERS));
    cr_expect(
            eq(int, closed_of(fd, FLOOD - (int)HTH_TCP_STRANGERS), FLOOD - (int)HTH_TCP_STRANGERS));
    tcp_join(&side, &m);
    tcp_leave(&m);
    for (int i = 0; i < FLOOD; i++)
        close(fd[i]);
}

Test(tcp_strangers, one_turn_accepts_no_more_than_its_share)
{
    int fd[100];

    for (int i = 0; i < 100; i++) {
        fd[i] = tcp_dial(&side);
        tcp_say(fd[i], "x", 1);
    }
    usleep(10000); /* all of them wait */
    cr_expect(eq(int, side.t->ops->progress(side.t), 64));
    tcp_turns(&side, 10);
    cr_expect(eq(int, closed_of(fd, 100), 100));
    for (int i = 0; i < 100; i++)
        close(fd[i]);
}

static int bulk_hello(const unsigned char welcome[HTH_TCP_HELLO])
{
    unsigned char hello[HTH_TCP_HELLO];
    int fd = tcp_dial(&side), got;

    tcp_hello(hello, HTH_TCP_KIND_BULK, welcome);
    tcp_say(fd, hello, sizeof(hello));
    got = tcp_hear(&side, fd, hello, sizeof(hello));
    close(fd);
    return got;
}

Test(tcp_strangers, a_token_joins_its_own_connection_and_once)
{
    unsigned char hello[HTH_TCP_HELLO], other[HTH_TCP_HELLO], wrong[HTH_TCP_HELLO];
    int a = tcp_dial(&side), b = tcp_dial(&side);

    tcp_hello(hello, HTH_TCP_KIND_MESSAGES, NULL);
    tcp_say(a, hello, sizeof(hello));
    tcp_say(b, hello, sizeof(hello));
    cr_assert(tcp_hear(&side, a, hello, sizeof(hello)));
    cr_assert(tcp_hear(&side, b, other, sizeof(other)));
    memcpy(wrong, hello, sizeof(wrong));
    memcpy(wrong + 24, other + 24, HTH_TCP_TOKEN); /* that of another connection */
    cr_expect(not(bulk_hello(wrong)));
    memcpy(wrong, hello, sizeof(wrong));
    wrong[HTH_TCP_HELLO - 1] ^= 1;
    cr_expect(not(bulk_hello(wrong)));
    cr_expect(zero(int, side.conns));
    cr_expect(bulk_hello(hello));
    cr_expect(eq(int, side.conns, 1));
    cr_expect(not(bulk_hello(hello)));
    cr_expect(eq(int, side.conns, 1));
    close(a);
    close(b);
}

Test(tcp_strangers, a_stranger_who_was_given_no_token_is_joined_by_nobody)
{
    unsigned char hello[HTH_TCP_HELLO];
    int known = tcp_dial(&side), silent;

    tcp_hello(hello, HTH_TCP_KIND_MESSAGES, NULL);
    tcp_say(known, hello, sizeof(hello));
    cr_assert(tcp_hear(&side, known, hello, sizeof(hello)));
    silent = tcp_dial(&side);
    tcp_turns(&side, 5);
    hth_put64(hello + 16, hth_get64(hello + 16) + 1); /* the next place */
    memset(hello + 24, 0, HTH_TCP_TOKEN);
    cr_expect(not(bulk_hello(hello)));
    cr_expect(zero(int, side.conns));
    close(known);
    close(silent);
}

static int lowest_free(void)
{
    int fd = dup(0);

    close(fd);
    return fd;
}

Test(tcp_strangers, without_descriptors_the_listener_rests_and_nobody_spins)
{
    struct rlimit all, few;
    uint64_t due;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), epoll_fd;

    cr_assert(zero(int, getrlimit(RLIMIT_NOFILE, &all)));
    few = (struct rlimit){ (rlim_t)lowest_free(), all.rlim_max };
    cr_assert(zero(int, setrlimit(RLIMIT_NOFILE, &few)));
    cr_assert(zero(int, connect(fd, &side.addr.sa, sizeof(side.addr.in))));
    cr_assert(zero(int, fcntl(fd, F_SETFL, O_NONBLOCK)));
    tcp_turns(&side, 20);
    cr_expect(eq(int, side.warned, 1));
    cr_assert(eq(int, side.t->ops->arm(side.t, &epoll_fd, &due), 1));
    cr_expect(tcp_is_quiet(epoll_fd));
    cr_expect(eq(u64, due, side.now_ms + 100));
    cr_assert(zero(int, setrlimit(RLIMIT_NOFILE, &all)));
    side.now_ms = due;
    tcp_say(fd, "x", 1);
    tcp_turns(&side, 20);
    cr_expect(tcp_is_closed(fd)); /* accepted, and no hello */
    close(fd);
}
