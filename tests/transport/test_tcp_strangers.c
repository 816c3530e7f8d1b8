/* SPDX-License-Identifier: Apache-2.0 */
/* The listener of the transport tcp, and whoever comes to it with no hello, half of one, or a false
 * one. */
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
    struct hth_seal_opts o = tcp_greeting(&side, HTH_PURPOSE_MESSAGES);
    unsigned char hello[HTH_SEAL_HELLO];
    int fd = tcp_dial(&side);

    tcp_hello(&o, hello);
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

Test(tcp_strangers, a_hello_without_a_proof_and_a_proof_without_its_other_half_end_in_time)
{
    struct hth_seal_opts o = tcp_greeting(&side, HTH_PURPOSE_MESSAGES);
    unsigned char hello[HTH_SEAL_HELLO];
    struct hth_seal *seal;
    int fd[2] = { tcp_dial(&side) };

    tcp_hello(&o, hello);
    tcp_say(fd[0], hello, sizeof(hello));
    cr_assert(tcp_hear(&side, fd[0], hello, sizeof(hello)));
    fd[1] = tcp_greet(&side, &o, &seal);
    cr_assert(ge(int, fd[1], 0));
    tcp_turns(&side, 10);
    cr_expect(zero(int, closed_of(fd, 2)));
    side.now_ms += HTH_TCP_PATIENCE;
    tcp_turns(&side, 10);
    cr_expect(eq(int, closed_of(fd, 2), 2));
    cr_expect(eq(int, side.conns + side.downs, 0));
    hth_seal_close(seal);
    close(fd[0]);
    close(fd[1]);
}

Test(tcp_strangers, garbage_is_closed_without_a_word)
{
    static const struct {
        uint32_t at;
        unsigned char flip;
    } wrong[] = { { 0, 1 }, { 3, 1 }, { 6, 1 }, { 6, 3 }, { 7, 4 }, { 96, 1 }, { 100, 1 } };
    struct hth_seal_opts o = tcp_greeting(&side, HTH_PURPOSE_MESSAGES);
    unsigned char hello[HTH_SEAL_HELLO], byte;

    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        int fd = tcp_dial(&side);

        tcp_hello(&o, hello);
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

Test(tcp_strangers, a_flood_does_not_drive_out_who_has_proved_the_key)
{
    struct hth_seal_opts o = tcp_greeting(&side, HTH_PURPOSE_MESSAGES);
    struct hth_seal *seal;
    int fd[2 * HTH_TCP_STRANGERS], half = tcp_greet(&side, &o, &seal);

    cr_assert(ge(int, half, 0));
    for (int i = 0; i < 2 * (int)HTH_TCP_STRANGERS; i++)
        fd[i] = tcp_dial(&side);
    tcp_turns(&side, 50);
    cr_expect(not(tcp_is_closed(half)));
    cr_expect(tcp_is_closed(fd[0]));
    for (int i = 0; i < 2 * (int)HTH_TCP_STRANGERS; i++)
        close(fd[i]);
    hth_seal_close(seal);
    close(half);
}

Test(tcp_strangers, one_turn_accepts_no_more_than_its_share)
{
    int fd[100];

    for (int i = 0; i < 100; i++) {
        fd[i] = tcp_dial(&side);
        tcp_say(fd[i], "x", 1);
    }
    usleep(10000); /* all of them wait */
    cr_expect(zero(
            int, side.t->ops->progress(side.t))); /* what is done for strangers does not count */
    tcp_turns(&side, 10);
    cr_expect(eq(int, closed_of(fd, 100), 100));
    for (int i = 0; i < 100; i++)
        close(fd[i]);
}

static int bulk_joins(const struct hth_seal_bond *bond)
{
    struct hth_seal_opts o = tcp_greeting(&side, HTH_PURPOSE_BULK);
    struct hth_seal *seal;
    int fd;

    o.bond = bond;
    fd = tcp_greet(&side, &o, &seal);
    if (fd < 0)
        return 0;
    hth_seal_close(seal);
    close(fd);
    return 1;
}

Test(tcp_strangers, bulk_joins_its_own_connection_and_once)
{
    struct hth_seal_opts o = tcp_greeting(&side, HTH_PURPOSE_MESSAGES);
    struct hth_seal_bond bond[2], wrong;
    struct hth_seal *seal[2];
    int fd[2];

    for (int i = 0; i < 2; i++) {
        fd[i] = tcp_greet(&side, &o, &seal[i]);
        cr_assert(ge(int, fd[i], 0));
        hth_seal_bond(seal[i], &bond[i]);
        hth_seal_close(seal[i]);
    }
    wrong = bond[0];
    memcpy(wrong.secret, bond[1].secret, sizeof(wrong.secret)); /* that of another connection */
    cr_expect(not(bulk_joins(&wrong)));
    wrong = bond[0];
    wrong.id[0] ^= 1;
    cr_expect(not(bulk_joins(&wrong)));
    cr_expect(zero(int, side.conns));
    cr_expect(bulk_joins(&bond[0]));
    cr_expect(eq(int, side.conns, 1));
    cr_expect(not(bulk_joins(&bond[0])));
    cr_expect(eq(int, side.conns, 1));
    close(fd[0]);
    close(fd[1]);
}

static const unsigned char key[HTH_KEY] = { 1, 2, 3 }, other_key[HTH_KEY] = { 1, 2, 4 };

/* 1: its messages half was admitted. */
static int enters(struct tcp_side *s, const unsigned char *with, uint32_t suites)
{
    struct hth_seal_opts o = tcp_greeting(s, HTH_PURPOSE_MESSAGES);
    struct hth_seal *seal;
    int fd;

    o.key = with;
    o.suites = suites ? suites : o.suites;
    fd = tcp_greet(s, &o, &seal);
    if (fd < 0)
        return 0;
    hth_seal_close(seal);
    close(fd);
    return 1;
}

/* The stranger gets no answer; the log has one line for as many as come. */
Test(tcp_strangers, who_is_refused_is_in_the_log)
{
    struct tcp_side keyed;

    tcp_side_open_keyed(&keyed, "127.0.0.1", key);
    for (int i = 0; i < 3; i++)
        cr_expect(not(enters(&keyed, other_key, 0)));
    cr_expect(eq(int, keyed.refusals, 1));
    cr_expect(strstr(keyed.refused, "127.0.0.1:") && strstr(keyed.refused, "prove the job key: ") &&
                      strstr(keyed.refused, "the same key file; 1 in all"),
            "%s", keyed.refused);
    keyed.now_ms += 10000;
    cr_expect(not(enters(&keyed, key, HTH_SUITE_PROOF)));
    cr_expect(eq(int, keyed.refusals, 2));
    cr_expect(strstr(keyed.refused, "no cipher in common") && strstr(keyed.refused, "; 3 in all"),
            "%s", keyed.refused);
    tcp_side_close(&keyed);
}

Test(tcp_strangers, both_keys_are_taken_while_the_key_is_changed_and_no_other)
{
    struct tcp_side keyed;

    tcp_side_open_keyed(&keyed, "127.0.0.1", key);
    cr_assert(eq(int, enters(&keyed, key, 0), 1));
    cr_assert(zero(int, enters(&keyed, other_key, 0)));
    cr_assert(zero(int, enters(&keyed, other_key, 0)));
    keyed.job_key.other = other_key;
    keyed.job_key.other_id = hth_key_id(other_key);
    cr_assert(eq(int, enters(&keyed, key, 0), 1));
    cr_assert(eq(int, enters(&keyed, other_key, 0), 1));
    keyed.job_key = (struct hth_key){ .bytes = other_key, .id = hth_key_id(other_key) };
    cr_assert(eq(int, enters(&keyed, other_key, 0), 1));
    cr_assert(zero(int, enters(&keyed, key, 0)), "the key that was dropped still opens");
    tcp_side_close(&keyed);
}

Test(tcp_strangers, who_has_another_key_or_would_not_seal_is_not_let_in)
{
    static const unsigned char none[HTH_KEY];
    struct tcp_side keyed;

    tcp_side_open_keyed(&keyed, "127.0.0.1", key);
    cr_expect(enters(&keyed, key, 0));
    cr_expect(not(enters(&keyed, other_key, 0)));
    cr_expect(not(enters(&keyed, none, 0)));
    cr_expect(not(enters(&keyed, key, HTH_SUITE_PROOF)));
    cr_expect(not(enters(&side, key, 0))); /* nor the reverse: no key here */
    cr_expect(zero(int, keyed.conns));
    tcp_side_close(&keyed);
}

/* Bytes of the hello that say who made it: nothing in it comes from the key but the mac. */
Test(tcp_strangers, whose_hello_no_job_key_made_hears_nothing_and_costs_a_hash)
{
    struct hth_seal_opts o;
    unsigned char hello[HTH_SEAL_HELLO], byte;
    struct tcp_side keyed;

    tcp_side_open_keyed(&keyed, "127.0.0.1", key);
    o = tcp_greeting(&keyed, HTH_PURPOSE_MESSAGES);
    o.key = other_key;
    tcp_hello(&o, hello);
    for (int older = 0; older < 2; older++) {
        int fd = tcp_dial(&keyed);

        hello[4] = hello[5] = older ? 1 : hello[5];
        keyed.now_ms += 10000;
        tcp_say(fd, hello, sizeof(hello));
        cr_expect(not(tcp_hear(&keyed, fd, &byte, 1)));
        cr_expect(
                ne(ptr, strstr(keyed.refused, older ? "of an older version" : "the same key file"),
                        NULL),
                "%s", keyed.refused);
        close(fd);
    }
    for (int i = 12; i < 16; i++)
        cr_expect(zero(u8, hello[i]), "the hello names its key");
    tcp_side_close(&keyed);
}

/* A recording of a member's hello is answered; nothing is had by it. */
Test(tcp_strangers, who_says_a_recorded_hello_proves_nothing)
{
    struct hth_seal_opts o;
    unsigned char hello[HTH_SEAL_HELLO], answer[HTH_SEAL_HELLO];
    struct tcp_side keyed;

    tcp_side_open_keyed(&keyed, "127.0.0.1", key);
    o = tcp_greeting(&keyed, HTH_PURPOSE_MESSAGES);
    tcp_hello(&o, hello);
    for (int i = 0; i < 3; i++) {
        int fd = tcp_dial(&keyed);

        tcp_say(fd, hello, sizeof(hello));
        cr_assert(tcp_hear(&keyed, fd, answer, sizeof(answer)));
        tcp_say(fd, i ? answer : hello, HTH_SEAL_PROOF);
        cr_expect(not(tcp_hear(&keyed, fd, answer, 1)));
        close(fd);
    }
    cr_expect(zero(int, keyed.conns));
    tcp_side_close(&keyed);
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
