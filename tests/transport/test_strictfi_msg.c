/* SPDX-License-Identifier: Apache-2.0 */
/* The strict provider's connected endpoints: as verbs has them, with all that may befall them. */
#include "check.h"

#include "fabric_side.h"
#include <arpa/inet.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static struct side a, b; /* b listens, a dials */

static void both_open(void)
{
    char path[4096];

    alarm(50);
    snprintf(path, sizeof(path), "%s/strictfi", getenv("HEARTH_TEST_LIB"));
    setenv("FI_PROVIDER_PATH", path, 1);
    setenv("FI_PROVIDER", "strict", 1); /* spares the start of all others */
    setenv("STRICTFI_PROFILE", "verbs", 1);
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
    side_open_objects(&b);
    side_listen(&b);
    side_open_endpoint(&a);
    cr_assert(zero(int, fi_enable(a.ep)));
    side_register(&a);
    side_post_receives(&a);
}

static void both_connect(void)
{
    struct side_card card;
    char data[64];

    both_open();
    side_connect(&a, &b, "hello");
    side_accept(&b, side_request(&b, "hello"), "welcome");
    cr_assert(eq(int, side_event(&b, data), FI_CONNECTED));
    cr_assert(eq(int, side_event(&a, data), FI_CONNECTED));
    must_say(data, "welcome");
    side_card(&b, &card);
    side_meet(&a, &card);
}

static void both_close(void)
{
    side_close(&a);
    side_close(&b);
}

Test(strictfi_msg, a_connection_carries_messages_and_reads)
{
    both_connect();
    for (size_t i = 0; i < SIDE_DATA; i++)
        b.data[i] = (unsigned char)(i * 13 + i / 4096);
    while (b.received < 60) {
        if (a.sent < 60)
            side_send(&a, a.sent);
        side_poll(&a);
        side_poll(&b);
    }
    cr_expect(eq(int, (int)b.received_sum, 59 * 60 / 2));
    cr_assert(zero(int, side_read(&a, 0, SIDE_DATA)));
    cr_expect(zero(int, memcmp(a.into, b.data, SIDE_DATA)));
    both_close();
}

Test(strictfi_msg, a_request_can_be_rejected_with_a_reason)
{
    struct fi_info *request;
    char data[64];

    both_open();
    side_connect(&a, &b, "let me in");
    request = side_request(&b, "let me in");
    cr_assert(ne(ptr, request, NULL));
    cr_assert(zero(int, fi_reject(b.pep, request->handle, "no", 2)));
    fi_freeinfo(request);
    cr_expect(eq(int, side_event(&a, data), -FI_ECONNREFUSED));
    must_say(data, "no");
    both_close();
}

Test(strictfi_msg, nobody_listens)
{
    char data[64];

    both_open();
    cr_assert(zero(int, fi_close(&b.pep->fid)));
    b.pep = NULL;
    cr_assert(zero(int,
            fi_connect(a.ep, &(struct { unsigned char in[16]; }){ { 2, 0, 0, 9, 127, 0, 0, 1 } },
                    NULL, 0)));
    cr_expect(eq(int, side_event(&a, data), -FI_ECONNREFUSED));
    both_close();
}

/* As verbs of libfabric up to 1.20. */
Test(strictfi_msg, an_address_where_nobody_listens_is_looked_for)
{
    struct sockaddr_in nobody = {
        .sin_family = AF_INET, .sin_port = htons(9), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)
    };
    struct fi_info *info;
    struct timespec begin, end;
    struct fid_ep *ep;
    int64_t ms;

    setenv("STRICTFI_RESOLVE_MS", "100", 1);
    both_open();
    info = fi_dupinfo(a.info);
    info->dest_addr = memcpy(malloc(sizeof(nobody)), &nobody, sizeof(nobody));
    info->dest_addrlen = sizeof(nobody);
    clock_gettime(CLOCK_MONOTONIC, &begin);
    cr_expect(eq(int, fi_endpoint(a.domain, info, &ep, NULL), -FI_ETIMEDOUT));
    clock_gettime(CLOCK_MONOTONIC, &end);
    ms = (end.tv_sec - begin.tv_sec) * 1000 + (end.tv_nsec - begin.tv_nsec) / 1000000;
    cr_expect(ge(i64, ms, 99));
    fi_freeinfo(info);
    both_close();
}

Test(strictfi_msg, an_end_flushes_what_is_under_way)
{
    char data[64];

    both_connect();
    cr_assert(zero(int, fi_shutdown(a.ep, 0)));
    cr_expect(eq(int, side_event(&a, data), FI_SHUTDOWN));
    cr_expect(eq(int, side_event(&b, data), FI_SHUTDOWN));
    for (int i = 0; i < 2000 && (a.errors < (int)SIDE_RECVS || b.errors < (int)SIDE_RECVS); i++) {
        side_poll(&a);
        side_poll(&b);
        usleep(100);
    }
    cr_expect(eq(int, a.errors, SIDE_RECVS));
    cr_expect(eq(int, b.errors, SIDE_RECVS));
    cr_expect(eq(int, b.last_error, FI_ECANCELED));
    both_close();
}

Test(strictfi_msg, a_forgiven_access_costs_the_connection)
{
    char data[64];

    setenv("STRICTFI_FORGIVE", "key", 1);
    both_connect();
    a.key ^= 1;
    cr_expect(eq(int, side_read(&a, 0, 64), -FI_EACCES));
    cr_expect(eq(int, side_event(&a, data), FI_SHUTDOWN));
    cr_expect(eq(int, side_event(&b, data), FI_SHUTDOWN));
    both_close();
}

/* The dialling process dies; only its socket shows it. */
Test(strictfi_msg, the_death_of_a_process_is_the_end_of_its_connections)
{
    struct side_card card;
    char data[64];
    int fds[2];
    pid_t pid;

    cr_assert(zero(int, pipe(fds)));
    pid = fork();
    if (pid == 0) {
        unsigned char addr[64];

        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (read(fds[0], addr, sizeof(addr)) != sizeof(addr))
            _exit(4);
        both_open();
        fi_connect(a.ep, addr, "hello", 5);
        pause();
    }
    both_open();
    memset(&card, 0, sizeof(card));
    card.addr_len = sizeof(card.addr);
    cr_assert(zero(int, fi_getname(&b.pep->fid, card.addr, &card.addr_len)));
    cr_assert(eq(int, (int)write(fds[1], card.addr, sizeof(card.addr)), (int)sizeof(card.addr)));
    side_accept(&b, side_request(&b, "hello"), "welcome");
    cr_assert(eq(int, side_event(&b, data), FI_CONNECTED));
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    cr_expect(eq(int, side_event(&b, data), FI_SHUTDOWN));
    both_close();
}

/* ---- sins ---- */

static void must_sin(void (*fn)(void), const char *rule)
{
    char text[1024] = "", want[64];
    int fds[2], status, said;
    pid_t pid;

    cr_assert(zero(int, pipe(fds)));
    pid = fork();
    if (pid == 0) {
        dup2(fds[1], STDERR_FILENO);
        fn();
        _exit(0);
    }
    close(fds[1]);
    cr_assert(ge(int, (int)read(fds[0], text, sizeof(text) - 1), 0));
    close(fds[0]);
    waitpid(pid, &status, 0);
    snprintf(want, sizeof(want), "STRICTFI %s: ", rule);
    said = strstr(text, want) == text && WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
    cr_expect(eq(int, said, 1), "%s: status 0x%x, it said: %s", rule, status, text);
}

static void sin_send_unconnected(void)
{
    both_open();
    side_send(&a, 0);
}

static void sin_connect_twice(void)
{
    both_connect();
    side_connect(&a, &b, "again");
}

static void sin_long_private_data(void)
{
    char data[58];

    memset(data, 'x', sizeof(data) - 1);
    data[57] = 0;
    both_open();
    side_connect(&a, &b, data);
}

static void sin_request_twice(void)
{
    struct fi_info *request;

    both_open();
    side_connect(&a, &b, "hello");
    request = side_request(&b, "hello");
    fi_reject(b.pep, request->handle, NULL, 0);
    side_accept(&b, request, "welcome");
}

static void sin_queue_too_small(void)
{
    struct fi_cq_attr attr = { .format = FI_CQ_FORMAT_MSG, .size = SIDE_RECVS - 1 };

    both_open();
    if (fi_close(&a.ep->fid) || fi_close(&a.cq->fid) || fi_cq_open(a.domain, &attr, &a.cq, NULL))
        _exit(3);
    for (unsigned i = 0; i < SIDE_SLOTS; i++)
        a.slot[i].kind = SIDE_FREE;
    side_endpoint(&a, a.info);
    fi_enable(a.ep);
    side_post_receives(&a);
}

static void sin_close_event_queue(void)
{
    both_open();
    fi_close(&a.eq->fid);
}

Test(strictfi_msg, rules_of_connections_abort)
{
    must_sin(sin_send_unconnected, "connect");
    must_sin(sin_connect_twice, "connect");
    must_sin(sin_long_private_data, "size");
    must_sin(sin_request_twice, "connect");
    must_sin(sin_queue_too_small, "cq-overrun");
    must_sin(sin_close_event_queue, "children");
}
