/* SPDX-License-Identifier: Apache-2.0 */
/* Places before the listener of the transport tcp: those of the epoch's addresses, and those that
 * strangers share. */
#include "tcp_side.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

#define FLOOD      600
#define CROWD      340 /* addresses that all want their places at once */
#define MEMBER     "127.0.0.2"
#define SHARED     ((int)HTH_TCP_STRANGERS)
#define PLACES     ((int)HTH_TCP_KEPT)
#define PLACES_ALL ((int)HTH_TCP_KEPT_ALL)

static struct tcp_side side;
static int fd[PLACES_ALL + 2 * FLOOD], fds; /* of whoever floods */

static void places_start(void)
{
    struct rlimit files;

    cr_assert(zero(int, getrlimit(RLIMIT_NOFILE, &files)));
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    tcp_side_open(&side, "127.0.0.1");
    fds = 0;
}

static void places_stop(void)
{
    while (fds)
        close(fd[--fds]);
    tcp_side_close(&side);
}

TestSuite(tcp_places, .init = places_start, .fini = places_stop, .timeout = 60);

/* Its listener's port is of no interest. */
static void member_at(struct hth_member *m, const char *ip)
{
    *m = (struct hth_member){ .addr = { 1, 4, 1, 1 }, .addr_len = 8 };
    cr_assert(eq(int, inet_pton(AF_INET, ip, m->addr + 4), 1));
}

static void name(const char *ip)
{
    struct hth_member m;

    member_at(&m, ip);
    side.t->ops->members(side.t, &m, 1);
}

/* `count` more, from there: each asks for an answer, and never proves anything. */
static void flood(const char *ip, int count)
{
    struct hth_seal_opts o = tcp_greeting(&side, HTH_PURPOSE_MESSAGES);
    unsigned char hello[HTH_SEAL_HELLO];

    tcp_hello(&o, hello);
    for (int i = 0; i < count; i++) {
        fd[fds] = tcp_dial_from(&side, ip);
        tcp_say(fd[fds++], hello, sizeof(hello));
        if (i % 64 == 63)
            tcp_turns(&side, 4);
    }
    tcp_turns(&side, 20);
}

static int open_of(int first, int count)
{
    int n = 0;

    for (int i = first; i < first + count; i++)
        n += !tcp_is_closed(fd[i]);
    return n;
}

/* Half a hello from there, others at the door, and then the rest of it. 1: it is answered. */
static int gets_in_through_a_flood(const char *ip)
{
    struct hth_seal_opts o = tcp_greeting(&side, HTH_PURPOSE_MESSAGES);
    unsigned char hello[HTH_SEAL_HELLO];
    int own = tcp_dial_from(&side, ip), answered;

    tcp_hello(&o, hello);
    tcp_say(own, hello, 60);
    tcp_turns(&side, 5);
    flood("127.0.0.1", FLOOD);
    answered = send(own, hello + 60, sizeof(hello) - 60, MSG_NOSIGNAL) > 0 &&
               tcp_hear(&side, own, hello, sizeof(hello));
    close(own);
    return answered;
}

Test(tcp_places, whom_the_table_names_gets_in_through_a_flood_from_elsewhere)
{
    name(MEMBER);
    cr_expect(gets_in_through_a_flood(MEMBER));
    cr_expect(eq(int, open_of(0, FLOOD), SHARED));
}

Test(tcp_places, whom_it_does_not_name_any_more_is_a_stranger)
{
    cr_expect(not(gets_in_through_a_flood(MEMBER)));
    name(MEMBER);
    cr_expect(gets_in_through_a_flood(MEMBER));
    name("127.0.0.3");
    cr_expect(not(gets_in_through_a_flood(MEMBER)));
}

Test(tcp_places, who_greets_while_the_table_changes_is_counted_anew)
{
    flood(MEMBER, 10);
    name(MEMBER);
    flood("127.0.0.1", FLOOD);
    cr_expect(eq(int, open_of(0, 10), PLACES)); /* more than its own share with strangers */
    cr_expect(eq(int, open_of(10, FLOOD), SHARED));
    side.now_ms += HTH_TCP_PATIENCE;
    tcp_turns(&side, 20);
    cr_expect(zero(int, open_of(0, fds)));
    flood(MEMBER, FLOOD); /* nothing was counted twice */
    cr_expect(eq(int, open_of(10 + FLOOD, FLOOD), SHARED + PLACES));
}

Test(tcp_places, two_members_at_one_address_have_twice_the_places)
{
    struct hth_member m[2];

    member_at(&m[0], MEMBER);
    member_at(&m[1], MEMBER);
    side.t->ops->members(side.t, m, 2);
    flood(MEMBER, SHARED + 3 * PLACES);
    cr_expect(eq(int, open_of(0, fds), SHARED + 2 * PLACES));
}

Test(tcp_places, what_members_hold_all_together_is_bounded_too)
{
    struct hth_member m[CROWD];
    struct rlimit files;
    char ip[16];

    cr_assert(zero(int, getrlimit(RLIMIT_NOFILE, &files)));
    if (files.rlim_cur < 2 * CROWD * PLACES + 100)
        cr_skip_test("this process may not open so many sockets");
    for (int i = 0; i < CROWD; i++) {
        snprintf(ip, sizeof(ip), "127.0.%d.%d", 1 + i / 200, 1 + i % 200);
        member_at(&m[i], ip);
    }
    side.t->ops->members(side.t, m, CROWD);
    for (int i = 0; i < CROWD; i++) {
        snprintf(ip, sizeof(ip), "127.0.%d.%d", 1 + i / 200, 1 + i % 200);
        for (int k = 0; k < PLACES; k++)
            fd[fds++] = tcp_dial_from(&side, ip);
        tcp_turns(&side, 1);
    }
    tcp_turns(&side, 50);
    cr_expect(eq(int, open_of(0, fds), SHARED + PLACES_ALL));
    cr_expect(zero(int, open_of(0, fds - SHARED - PLACES_ALL))); /* the oldest went */
}
