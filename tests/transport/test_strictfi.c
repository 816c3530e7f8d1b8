/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The strict provider does what it says: a program that heeds each fabric's demands gets its
 * messages and reads through, and one that sins against a rule ends with that rule's name.
 */
#include "check.h"

#include "fabric_side.h"
#include "support/strictfi/stats.h"
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define MESSAGES 60u

static void profile_choose(const char *name, const char *seed)
{
    char path[4096];

    snprintf(path, sizeof(path), "%s/strictfi", getenv("HEARTH_TEST_LIB"));
    setenv("FI_PROVIDER_PATH", path, 1);
    setenv("FI_PROVIDER", "strict", 1); /* spares the start of all others */
    setenv("STRICTFI_PROFILE", name, 1);
    setenv("STRICTFI_SEED", seed, 1);
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
}

/* ---- two processes that behave ---- */

static unsigned char data_byte(size_t at, int who)
{
    return (unsigned char)(at * 7 + at / 4096 + (size_t)who);
}

static void cards_exchange(struct side *s, int fd)
{
    struct side_card mine, other;

    side_card(s, &mine);
    if (write(fd, &mine, sizeof(mine)) != sizeof(mine) ||
            read(fd, &other, sizeof(other)) != sizeof(other))
        exit(4);
    side_meet(s, &other);
    if (write(fd, "k", 1) != 1 ||
            read(fd, &other, 1) != 1) /* both have met before the first read */
        exit(4);
}

/* The peer may need our progress until it says that it is done. */
static void goodbye(struct side *s, int fd)
{
    char byte = 'd';
    struct pollfd p = { fd, POLLIN, 0 };

    if (write(fd, &byte, 1) != 1)
        exit(4);
    while (poll(&p, 1, 0) == 0)
        side_poll(s);
}

/* 0: all went well. */
static int exchange(int fd, int who)
{
    size_t most, off = 0;
    struct side s;

    side_open(&s);
    for (size_t i = 0; i < SIDE_DATA; i++)
        s.data[i] = data_byte(i, who);
    cards_exchange(&s, fd);
    while (s.sent < MESSAGES || s.received < MESSAGES) {
        if (s.sent < MESSAGES)
            side_send(&s, s.sent);
        side_poll(&s);
    }
    if (s.received_sum != MESSAGES * (MESSAGES - 1) / 2)
        return 5;
    for (most = side_read_most(&s); off < SIDE_DATA; off += most)
        if (side_read(&s, off, SIDE_DATA - off < most ? SIDE_DATA - off : most))
            return 6;
    for (size_t i = 0; i < SIDE_DATA; i++)
        if (s.into[i] != data_byte(i, !who))
            return 7;
    goodbye(&s, fd);
    side_close(&s);
    return s.errors ? 8 : 0;
}

static void exchange_must_do(const char *profile, const char *seed)
{
    int fds[2], status;
    pid_t pid[2];

    alarm(60);
    profile_choose(profile, seed);
    cr_assert(zero(int, socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds)));
    for (int i = 0; i < 2; i++) {
        pid[i] = fork();
        if (pid[i] == 0) {
            alarm(50);
            _exit(exchange(fds[i], i));
        }
    }
    for (int i = 0; i < 2; i++) {
        cr_assert(eq(int, waitpid(pid[i], &status, 0), pid[i]));
        cr_expect(zero(int, status), "%s, seed %s: status 0x%x", profile, seed, status);
    }
}

Test(strictfi, efa_carries_messages_and_reads)
{
    exchange_must_do("efa", "1");
}

Test(strictfi, efa_direct_carries_messages_and_reads)
{
    exchange_must_do("efa-direct", "1");
}

Test(strictfi, cxi_carries_messages_and_reads)
{
    exchange_must_do("cxi", "1");
}

Test(strictfi, opx_carries_messages_and_reads)
{
    exchange_must_do("opx", "1");
}

Test(strictfi, shm_carries_messages_and_reads)
{
    exchange_must_do("shm", "1");
}

Test(strictfi, worst_carries_messages_and_reads)
{
    exchange_must_do("worst", "1");
    exchange_must_do("worst", "2");
    exchange_must_do("worst", "3");
    exchange_must_do("worst", "4");
}
