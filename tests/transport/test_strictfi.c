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
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
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

/* ---- what fabrics may answer ---- */

static struct side a, b;

static void both_open(void)
{
    struct side_card card;

    side_open(&a);
    side_open(&b);
    side_card(&b, &card);
    side_meet(&a, &card);
    side_card(&a, &card);
    side_meet(&b, &card);
}

static void both_close(void)
{
    side_close(&a);
    side_close(&b);
}

static struct side_slot *read_post(size_t len, uint64_t key)
{
    struct side_slot *slot = &a.slot[SIDE_SLOTS - 1];
    ssize_t rc;

    while ((rc = fi_read(a.ep, a.into, len, fi_mr_desc(a.mr), a.peer, a.base, key,
                    &slot->context)) == -FI_EAGAIN)
        side_poll(&a);
    cr_assert(zero(int, (int)rc));
    slot->kind = SIDE_READ;
    return slot;
}

/* Polls one side or both until the read is done; 0: it is not. */
static int read_ends(const struct side_slot *slot, int both)
{
    for (int i = 0; i < 3000 && slot->kind == SIDE_READ; i++) {
        side_poll(&a);
        if (both)
            side_poll(&b);
        if (i > 200)
            usleep(100);
    }
    return slot->kind != SIDE_READ;
}

static struct strictfi_stats *stats_open(void)
{
    static char path[] = "/tmp/strictfi-XXXXXX";
    int fd = mkstemp(path);
    void *map;

    cr_assert(zero(int, ftruncate(fd, 4096)));
    map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    setenv("STRICTFI_STATS", path, 1);
    close(fd);
    return map;
}

static void stats_close(void)
{
    unlink(getenv("STRICTFI_STATS"));
}

Test(strictfi, a_target_answers_when_it_progresses_or_by_itself, .timeout = 60)
{
    struct side_slot *slot;

    profile_choose("opx", "1");
    both_open();
    slot = read_post(4096, a.key);
    cr_expect(zero(int, read_ends(slot, 0)));
    cr_expect(eq(int, read_ends(slot, 1), 1));
    both_close();
}

Test(strictfi, an_automatic_target_needs_no_call, .timeout = 60)
{
    profile_choose("efa-direct", "1");
    both_open();
    cr_expect(eq(int, read_ends(read_post(4096, a.key), 0), 1));
    both_close();
}

Test(strictfi, a_forgiven_access_fails_as_on_hardware, .timeout = 60)
{
    profile_choose("efa", "1");
    setenv("STRICTFI_FORGIVE", "mr-closed,key", 1);
    both_open();
    cr_expect(eq(int, read_ends(read_post(4096, a.key ^ 1), 1), 1));
    cr_expect(eq(int, a.errors, 1));
    cr_expect(eq(int, a.last_error, FI_EACCES));
    both_close();
}

static uint64_t now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

/* All begin at once, arg being their barrier. */
static void *register_one(void *arg)
{
    struct fid_mr *mr;

    pthread_barrier_wait(arg);
    if (fi_mr_reg(a.domain, a.data, SIDE_DATA, FI_REMOTE_READ, 0, 0, 0, &mr, NULL) == 0)
        fi_close(&mr->fid);
    return NULL;
}

Test(strictfi, registrations_are_counted_by_thread_and_take_their_time, .timeout = 60)
{
    struct strictfi_stats *s = stats_open();
    pthread_barrier_t all;
    pthread_t thread[3];
    uint64_t began_ms;
    int threads = 0;

    profile_choose("efa", "1");
    both_open();
    setenv("STRICTFI_REG_MS_PER_GIB", "100000", 1); /* 293 ms */
    pthread_barrier_init(&all, NULL, 3);
    began_ms = now_ms();
    for (int i = 0; i < 3; i++)
        pthread_create(&thread[i], NULL, register_one, &all);
    for (int i = 0; i < 3; i++)
        pthread_join(thread[i], NULL);
    cr_expect(ge(u64, now_ms() - began_ms, 290));
    cr_expect(zero(u64, atomic_load(&s->registering)));
    pthread_barrier_destroy(&all);
    for (unsigned i = 0; i < STRICTFI_THREADS; i++)
        threads += atomic_load(&s->threads[i].registrations) != 0;
    cr_expect(eq(int, threads, 4)); /* this one registered both sides' memory */
    cr_expect(eq(u64, atomic_load(&s->registrations), 5));
    cr_expect(eq(u64, atomic_load(&s->registering_most), 3));
    cr_expect(eq(u64, atomic_load(&s->deregistrations), 3));
    both_close();
    stats_close();
}

/* The numbers of messages as they come in: the sum of how far each is from its place. */
static uint32_t messages_disorder(void)
{
    uint32_t disorder = 0;

    both_open();
    while (b.received < MESSAGES) {
        uint32_t had = b.received;

        if (a.sent < MESSAGES)
            side_send(&a, a.sent);
        side_poll(&a);
        side_poll(&b);
        if (b.received == had + 1)
            disorder += b.last_number != had;
    }
    both_close();
    return disorder;
}

Test(strictfi, completions_come_in_no_order_where_none_is_promised, .timeout = 60)
{
    profile_choose("efa-direct", "1");
    cr_expect(gt(u32, messages_disorder(), 0));
}

Test(strictfi, completions_come_in_order_where_that_is_promised, .timeout = 60)
{
    profile_choose("shm", "1");
    cr_expect(zero(u32, messages_disorder()));
}

/* A forked child has our sockets; what comes to them is ours alone. */
Test(strictfi, a_forked_child_takes_nothing_of_its_parents, .timeout = 60)
{
    static struct side own;
    struct side_slot *slot;
    pid_t pid[4];
    int status;

    profile_choose("efa-direct", "1");
    both_open();
    for (int i = 0; i < 4; i++) {
        pid[i] = fork();
        if (pid[i] == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            alarm(20);
            side_open(&own);
            usleep(300000);
            side_close(&own);
            _exit(0);
        }
    }
    for (int i = 1; i <= 200; i++) {
        memset(b.data, i, 4096);
        slot = read_post(4096, a.key);
        cr_assert(eq(int, read_ends(slot, 0), 1));
        cr_assert(eq(int, a.into[4095], i));
    }
    for (int i = 0; i < 4; i++) {
        waitpid(pid[i], &status, 0);
        cr_expect(zero(int, status));
    }
    both_close();
}

/* ---- peers that die ---- */

/* The peer is killed before the read that it would have to answer. */
static struct side_slot *read_from_the_dead(void)
{
    struct side_card card;
    int fds[2], status;
    pid_t pid;

    cr_assert(zero(int, pipe(fds)));
    pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        side_open(&b);
        side_card(&b, &card);
        if (write(fds[1], &card, sizeof(card)) != sizeof(card))
            _exit(4);
        pause();
    }
    cr_assert(eq(int, (int)read(fds[0], &card, sizeof(card)), (int)sizeof(card)));
    side_open(&a);
    side_meet(&a, &card);
    kill(pid, SIGKILL);
    waitpid(pid, &status, 0);
    return read_post(64, a.key);
}

Test(strictfi, a_dead_peer_shows_as_an_error, .timeout = 60)
{
    profile_choose("cxi", "1");
    cr_expect(eq(int, read_ends(read_from_the_dead(), 0), 1));
    cr_expect(eq(int, a.last_error, FI_EHOSTUNREACH));
    side_close(&a);
}

Test(strictfi, or_never_where_the_fabric_says_so, .timeout = 60)
{
    profile_choose("efa", "1");
    cr_expect(zero(int, read_ends(read_from_the_dead(), 0)));
    side_close(&a);
}

/* ---- who is offered what ---- */

static int offered_data(uint64_t mode, int mr_mode, enum fi_ep_type type, size_t data_size)
{
    struct fi_info *hints = fi_allocinfo(), *found = NULL;
    int rc;

    hints->caps = FI_MSG | FI_RMA;
    hints->mode = mode;
    hints->domain_attr->mr_mode = mr_mode;
    hints->domain_attr->cq_data_size = data_size;
    hints->ep_attr->type = type;
    hints->fabric_attr->prov_name = strdup("strict");
    rc = fi_getinfo(FI_VERSION(1, 15), NULL, NULL, 0, hints, &found);
    fi_freeinfo(hints);
    if (!rc)
        fi_freeinfo(found);
    return rc == 0;
}

static int offered(uint64_t mode, int mr_mode, enum fi_ep_type type)
{
    return offered_data(mode, mr_mode, type, 0);
}

Test(strictfi, verbs_asks_for_its_mode_where_completions_carry_data)
{
    int mr = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;

    profile_choose("verbs", "1");
    cr_expect(eq(int, offered_data(0, mr, FI_EP_MSG, 0), 1));
    cr_expect(zero(int, offered_data(0, mr, FI_EP_MSG, 4)));
    cr_expect(eq(int, offered_data(FI_RX_CQ_DATA, mr, FI_EP_MSG, 4), 1));
}

Test(strictfi, only_programs_that_meet_the_demands_are_offered_it)
{
    int mr = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;

    profile_choose("efa-direct", "1");
    cr_expect(eq(int, offered(FI_CONTEXT2, mr, FI_EP_RDM), 1));
    cr_expect(zero(int, offered(FI_CONTEXT2, mr, FI_EP_MSG)));
    cr_expect(zero(int, offered(0, mr, FI_EP_RDM)));
    for (int bit = 0; bit < 12; bit++)
        if (mr & 1 << bit)
            cr_expect(zero(int, offered(FI_CONTEXT2, mr & ~(1 << bit), FI_EP_RDM)));
}

Test(strictfi, it_may_carry_the_name_of_a_fabric)
{
    struct fi_info *info;

    profile_choose("efa", "1");
    setenv("STRICTFI_AS", "efa", 1);
    setenv("FI_PROVIDER", "efa", 1);
    setenv("STRICTFI_NICS", "2", 1);
    info = side_info();
    cr_assert(ne(ptr, info, NULL));
    must_say(info->fabric_attr->prov_name, "efa");
    cr_assert(ne(ptr, info->next, NULL));
    must_say(info->next->domain_attr->name, "strict1");
    fi_freeinfo(info);
}

Test(strictfi, queues_have_a_descriptor_where_the_fabric_has_one)
{
    struct fi_cq_attr attr = { .format = FI_CQ_FORMAT_MSG, .wait_obj = FI_WAIT_FD };
    struct strictfi_stats *s = stats_open();
    struct fid_cq *cq;
    struct fid *fid;
    int fd = -1;

    profile_choose("cxi", "1");
    side_open(&a);
    cr_assert(zero(int, fi_cq_open(a.domain, &attr, &cq, NULL)));
    cr_assert(zero(int, fi_control(&cq->fid, FI_GETWAIT, &fd)));
    cr_expect(ge(int, fd, 0));
    fid = &cq->fid;
    for (int i = 0; i < 100; i++)
        cr_assert(zero(int, fi_trywait(a.fabric, &fid, 1)));
    cr_expect(gt(u64, atomic_load(&s->lost_wakes), 0));
    cr_expect(lt(u64, atomic_load(&s->lost_wakes), 100));
    fi_close(&cq->fid);
    side_close(&a);
    stats_close();
}

Test(strictfi, and_none_where_it_has_none)
{
    struct fi_cq_attr attr = { .format = FI_CQ_FORMAT_MSG, .wait_obj = FI_WAIT_FD };
    struct fid_cq *cq;

    profile_choose("efa", "1");
    side_open(&a);
    cr_expect(eq(int, fi_cq_open(a.domain, &attr, &cq, NULL), -FI_ENOSYS));
    side_close(&a);
}

/* ---- closing with completions unread ---- */

static void close_unread(const char *profile)
{
    struct fi_cq_msg_entry e;
    struct fi_cq_err_entry err = { 0 };
    ssize_t n;

    profile_choose(profile, "1");
    both_open();
    for (uint32_t i = 0; i < SIDE_SENDS; i++)
        while (!side_send(&a, i))
            side_poll(&a);
    for (unsigned i = 0; i < SIDE_RECVS; i++)
        fi_cancel(&a.ep->fid, &a.slot[i].context);
    usleep(20000); /* progress in a thread */
    cr_assert(zero(int, fi_close(&a.ep->fid)));
    cr_assert(zero(int, fi_close(&a.mr->fid)));
    a.ep = NULL;
    a.mr = NULL;
    memset(a.slot, 0, sizeof(a.slot));
    for (int i = 0; i < 100; i++) {
        n = fi_cq_read(a.cq, &e, 1);
        if (n == -FI_EAVAIL)
            fi_cq_readerr(a.cq, &err, 0);
    }
    both_close();
}

Test(strictfi, what_an_endpoint_completed_is_the_programs_once_it_is_closed, .timeout = 60)
{
    close_unread("efa");
}

Test(strictfi, and_so_it_is_with_a_context, .timeout = 60)
{
    close_unread("efa-direct");
}
