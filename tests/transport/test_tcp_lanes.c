/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two transports tcp whose bulk sockets are on several lanes: a pair has a socket on each, and what
 * is cut short, changed, revoked or dropped meanwhile ends as it does on one thread. Memory that
 * may not be touched any more cannot be: a lane that still does ends the test.
 */
#ifdef HEARTH_POINTS /* else the machine decides how many lanes there are */
#include "tcp_side.h"

#include "core/base/crc.h"
#include "core/base/guard.h"

#include <dirent.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define OBJECT (UINT64_C(4) << 20)
#define PULLS  4

static struct tcp_side owner, puller;
static hth_conn conn; /* the puller's */

static const unsigned char key[HTH_KEY] = { 3, 1, 4 };

/* Of a test's own, since it is protected, or cut short. */
static struct memory {
    int fd;
    unsigned char *at;
    struct hth_region *region;
} source, target;

static void memory_open(struct memory *m, struct tcp_side *s, int value)
{
    m->fd = memfd_create("memory", MFD_CLOEXEC);
    cr_assert(zero(int, ftruncate(m->fd, (off_t)OBJECT)));
    m->at = mmap(NULL, OBJECT, PROT_READ | PROT_WRITE, MAP_SHARED, m->fd, 0);
    cr_assert(ne(ptr, m->at, MAP_FAILED));
    memset(m->at, value, OBJECT);
    must(s->t->ops->reg(s->t, m->at, OBJECT, &m->region, NULL));
}

static void memory_forbid(const struct memory *m)
{
    cr_assert(zero(int, mprotect(m->at, OBJECT, PROT_NONE)));
}

static void memory_close(struct memory *m)
{
    munmap(m->at, OBJECT);
    close(m->fd);
}

static void both_turn(void)
{
    tcp_turns(&owner, 1);
    tcp_turns(&puller, 1);
}

static struct hth_tcp_conn *conn_of(const struct tcp_side *s)
{
    return hth_tcp_conn_get(hth_tcp_of(s->t), s == &owner ? owner.conn[0] : conn);
}

static void sides_open(const char *owner_lanes, const char *puller_lanes, const unsigned char *with)
{
    unsigned char addr[HTH_ADDR_MAX];
    uint32_t len;

    setenv("HEARTH_TCP_LANES", owner_lanes, 1);
    tcp_side_open_keyed(&owner, "127.0.0.1", with);
    setenv("HEARTH_TCP_LANES", puller_lanes, 1);
    tcp_side_open_keyed(&puller, "127.0.0.1", with);
    memory_open(&source, &owner, 1);
    memory_open(&target, &puller, 0);
    must(owner.t->ops->address(owner.t, addr, &len, NULL));
    must(puller.t->ops->connect(puller.t, addr, len, &conn, NULL));
    for (int i = 0; i < 1000 && !(owner.conns && puller.ups); i++)
        both_turn();
    cr_assert(eq(int, puller.ups, 1));
}

static void lanes_start(void)
{
    sides_open("3", "3", key);
}

static void lanes_stop(void)
{
    tcp_side_close(&puller);
    tcp_side_close(&owner);
    memory_close(&target);
    memory_close(&source);
}

TestSuite(tcp_lanes, .init = lanes_start, .fini = lanes_stop, .timeout = 100);

static void granted(unsigned char out_desc[HTH_DESC_MAX], uint32_t *out_len)
{
    must(owner.t->ops->grant(
            owner.t, source.region, 0, OBJECT, owner.conn[0], out_desc, out_len, NULL));
}

/* `count` pulls, of equal parts. */
static void pulls_post(const unsigned char *desc, uint32_t len, unsigned count)
{
    uint64_t each = OBJECT / count;

    for (unsigned i = 0; i < count; i++)
        must(puller.t->ops->pull(
                puller.t, conn, desc, len, i * each, target.region, i * each, each, i));
}

static void pulls_end(int count)
{
    for (int i = 0; i < 20000 && puller.pulls < count; i++)
        both_turn();
    cr_assert(eq(int, puller.pulls, count));
}

/* ---- sockets ---- */

static void bulks_are(uint32_t count)
{
    for (int i = 0; i < 1000 && (conn_of(&owner)->bulks < count || conn_of(&puller)->bulks < count);
            i++)
        both_turn();
    tcp_turns(&owner, 20);
    tcp_turns(&puller, 20);
    cr_assert(eq(u32, conn_of(&owner)->bulks, count));
    cr_assert(eq(u32, conn_of(&puller)->bulks, count));
}

static void pulls_are_right(int from, int count)
{
    unsigned char desc[HTH_DESC_MAX];
    uint32_t len;

    for (uint64_t i = 0; i < OBJECT; i++)
        source.at[i] = (unsigned char)(i * 2654435761u >> 13);
    memset(target.at, 0, OBJECT);
    granted(desc, &len);
    pulls_post(desc, len, (unsigned)count);
    pulls_end(from + count);
    cr_assert(zero(int, puller.pull_code));
    cr_assert(zero(int, memcmp(target.at, source.at, OBJECT)));
}

Test(tcp_lanes, a_pair_has_one_socket_until_it_pulls_and_then_one_for_each_lane)
{
    bulks_are(1);
    pulls_are_right(0, 1);
    bulks_are(3);
    for (uint32_t i = 0; i < 3; i++)
        for (uint32_t k = 0; k < i; k++)
            cr_expect(ne(ptr, conn_of(&puller)->bulk[i]->lane, conn_of(&puller)->bulk[k]->lane));
    pulls_are_right(1, 32);
    for (uint32_t i = 0; i < 3; i++) {
        cr_expect(gt(u64, atomic_load(&conn_of(&puller)->bulk[i]->pulled_ms), 0u));
        cr_expect(zero(u64, conn_of(&puller)->bulk[i]->load));
    }
}

static int threads(void)
{
    DIR *tasks = opendir("/proc/self/task");
    int n = 0;

    cr_assert(ne(ptr, tasks, NULL));
    while (readdir(tasks))
        n++;
    closedir(tasks);
    return n - 2; /* . and .. */
}

/* Threads that start so late are confined as the engine's thread is by then. */
Test(tcp_lanes, threads_start_with_the_first_pull_and_grant)
{
    int before = threads();

    tcp_turns(&owner, 5);
    tcp_turns(&puller, 5);
    cr_expect(eq(int, threads(), before));
    pulls_are_right(0, 1);
    cr_expect(eq(int, threads(), before + 6));
}

/* Processes and threads of the user: root has no such limit. */
static void threads_allow(rlim_t count)
{
    struct rlimit limit;

    cr_assert(zero(int, getrlimit(RLIMIT_NPROC, &limit)));
    limit.rlim_cur = count < limit.rlim_max ? count : limit.rlim_max;
    cr_assert(zero(int, setrlimit(RLIMIT_NPROC, &limit)));
}

Test(tcp_lanes, lanes_that_get_no_thread_take_their_turns)
{
    int before = threads();

    if (getuid())
        cr_skip("only root can be sure of the limit");
    cr_assert(zero(int, setuid(65534)));
    prctl(PR_SET_DUMPABLE, 1); /* a sanitizer looks at this process when it ends */
    threads_allow(0);
    pulls_are_right(0, 4);
    pulls_are_right(4, 32);
    cr_expect(eq(int, threads(), before));
    threads_allow(RLIM_INFINITY);
}

Test(tcp_lanes, the_side_that_dials_decides_how_many_sockets_there_are)
{
    static const char *const lanes[][2] = { { "1", "2" }, { "0", "3" }, { "2", "1" },
        { "3", "0" } };
    static const uint32_t sockets[] = { 2, 3, 1, 1 };

    for (int i = 0; i < 4; i++) {
        lanes_stop();
        sides_open(lanes[i][0], lanes[i][1], i % 2 ? key : NULL);
        pulls_are_right(0, 4);
        bulks_are(sockets[i]);
        pulls_are_right(4, 32);
    }
}

Test(tcp_lanes, a_pair_goes_on_without_the_sockets_that_are_refused)
{
    struct hth_tcp *t = hth_tcp_of(owner.t);

    t->extras = t->base.conns_max; /* as many as it may have */
    pulls_are_right(0, 1);
    for (int i = 0; i < 1000 && conn_of(&puller)->greeting; i++)
        both_turn();
    cr_expect(eq(ptr, conn_of(&puller)->greeting, NULL));
    pulls_are_right(1, 8);
    bulks_are(1);
    cr_expect(zero(int, owner.downs + puller.downs));
    t->extras = 0;
}

Test(tcp_lanes, a_socket_that_is_not_answered_is_given_up_and_the_pair_goes_on)
{
    unsigned char desc[HTH_DESC_MAX];
    uint32_t len;

    granted(desc, &len);
    pulls_post(desc, len, 1); /* it dials one more: the owner takes no turn, its lanes do */
    for (int i = 0; i < 20000 && !puller.pulls; i++)
        tcp_turns(&puller, 1);
    cr_assert(eq(int, puller.pulls, 1));
    cr_assert(ne(ptr, conn_of(&puller)->greeting, NULL));
    puller.now_ms += 6000;
    tcp_turns(&puller, 3);
    cr_expect(eq(ptr, conn_of(&puller)->greeting, NULL));
    cr_expect(zero(int, puller.downs));
    pulls_are_right(1, 4);
}

static void both_end(void)
{
    for (int i = 0; i < 20000 && !(owner.downs && puller.downs); i++)
        both_turn();
    cr_expect(eq(int, owner.downs, 1));
    cr_expect(eq(int, puller.downs, 1));
}

Test(tcp_lanes, a_socket_that_breaks_retires_alone_and_its_pulls_go_on)
{
    unsigned char desc[HTH_DESC_MAX];
    uint32_t len;

    pulls_are_right(0, 1);
    for (int round = 0; round < 20; round++) {
        int before = puller.pulls;

        bulks_are(3);
        memset(target.at, 0, OBJECT);
        granted(desc, &len);
        pulls_post(desc, len, 16);
        usleep((unsigned)round * 50);
        shutdown(conn_of(round % 2 ? &owner : &puller)->bulk[round % 3]->fd, SHUT_RDWR);
        pulls_end(before + 16);
        cr_assert(zero(int, puller.pull_code));
        cr_assert(zero(int, memcmp(target.at, source.at, OBJECT)), "round %d", round);
        for (int i = 0; i < 1000 && (conn_of(&owner)->bulks > 2 || conn_of(&puller)->bulks > 2);
                i++)
            both_turn();
        cr_assert(eq(u32, conn_of(&puller)->bulks, 2));
        cr_assert(eq(u32, hth_tcp_of(owner.t)->extras, 1));
        puller.now_ms += 60000; /* it dials again */
    }
    cr_expect(zero(int, owner.downs + puller.downs));
    must(puller.t->ops->dereg(puller.t, target.region));
    memory_forbid(&target); /* no lane writes into it any more */
    usleep(20000);
}

Test(tcp_lanes, the_last_socket_that_breaks_ends_the_pair_and_all_its_pulls)
{
    unsigned char desc[HTH_DESC_MAX];
    uint32_t len;

    pulls_are_right(0, 1);
    bulks_are(3);
    granted(desc, &len);
    pulls_post(desc, len, 16);
    for (int i = 0; i < 3; i++)
        shutdown(conn_of(&owner)->bulk[i]->fd, SHUT_RDWR);
    pulls_end(17);
    both_end();
    cr_expect(zero(u32, hth_tcp_of(owner.t)->extras));
    cr_expect(zero(u32, hth_tcp_of(puller.t)->extras));
    must(puller.t->ops->dereg(puller.t, target.region));
    memory_forbid(&target); /* no lane writes into it any more */
    usleep(20000);
}

/* One more connection of the two; its id at the puller's end. */
static hth_conn connect_again(void)
{
    unsigned char addr[HTH_ADDR_MAX];
    uint32_t len;
    hth_conn other;
    int ups = puller.ups, conns = owner.conns;

    must(owner.t->ops->address(owner.t, addr, &len, NULL));
    must(puller.t->ops->connect(puller.t, addr, len, &other, NULL));
    for (int i = 0; i < 1000 && !(puller.ups > ups && owner.conns > conns); i++)
        both_turn();
    cr_assert(gt(int, puller.ups, ups));
    return other;
}

/* The side that dialled dials more sockets when it grants memory. */
static void widen(hth_conn which)
{
    unsigned char desc[HTH_DESC_MAX];
    uint32_t len;

    must(puller.t->ops->grant(puller.t, target.region, 0, OBJECT, which, desc, &len, NULL));
}

Test(tcp_lanes, each_of_several_pairs_has_a_socket_on_each_lane)
{
    hth_conn all[3] = { conn };

    for (int i = 1; i < 3; i++)
        all[i] = connect_again();
    for (int i = 0; i < 3; i++)
        widen(all[i]);
    for (int i = 0; i < 300; i++)
        both_turn();
    for (int i = 0; i < 3; i++) {
        const struct hth_tcp_conn *c = hth_tcp_conn_get(hth_tcp_of(puller.t), all[i]);
        unsigned lanes = 0;

        cr_assert(eq(u32, c->bulks, 3));
        for (uint32_t k = 0; k < 3; k++)
            lanes |= 1u << (c->bulk[k]->lane - hth_tcp_of(puller.t)->lane);
        cr_expect(eq(uint, lanes, 7u), "connection %d", i);
    }
}

Test(tcp_lanes, two_pairs_that_want_the_last_socket_both_go_on)
{
    struct hth_tcp *t = hth_tcp_of(owner.t);
    hth_conn other = connect_again();

    t->extras = t->base.conns_max - 1;
    widen(conn);
    widen(other);
    cr_expect(eq(u32, hth_tcp_of(puller.t)->extras, 2), "counted when they are dialled");
    for (int i = 0; i < 300; i++)
        both_turn();
    cr_expect(zero(int, owner.downs + puller.downs));
    cr_expect(eq(u32, t->extras, t->base.conns_max));
    cr_expect(eq(u32, hth_tcp_of(puller.t)->extras, 1));
    pulls_are_right(0, 8);
    t->extras = 1;
}

Test(tcp_lanes, a_socket_whose_proof_is_out_is_waited_for)
{
    struct hth_tcp *t = hth_tcp_of(owner.t);

    widen(conn);
    for (int i = 0; i < 2000 && !(t->newest && t->newest->stage == HTH_TCP_ADMITS); i++)
        both_turn();
    for (int i = 0; i < 2000 && conn_of(&puller)->greeting->stage != HTH_TCP_FINISHES; i++)
        tcp_turns(&puller, 1);
    puller.now_ms += 6000; /* the owner stands still for longer than it is waited for */
    tcp_turns(&puller, 3);
    bulks_are(3);
    cr_expect(zero(int, owner.downs + puller.downs));
    pulls_are_right(0, 8);
}

Test(tcp_lanes, a_socket_that_breaks_before_the_first_pull_is_noticed)
{
    cr_expect(eq(ptr, conn_of(&owner)->bulk[0]->sealed, NULL), "a buffer before the first bytes");
    shutdown(conn_of(&owner)->bulk[0]->fd, SHUT_RDWR);
    both_end();
}

/* As a data loader's worker of a trainer that has an engine in its process. */
Test(tcp_lanes, a_child_that_has_the_sockets_does_not_matter)
{
    pid_t child;

    pulls_are_right(0, 1);
    bulks_are(3);
    child = fork();
    if (!child) {
        for (uint32_t i = 0; i < 3; i++)
            close(conn_of(&owner)->bulk[i]->fd); /* of another machine */
        close(conn_of(&owner)->messages.fd);
        sleep(20);
        _exit(0);
    }
    owner.t->ops->drop(owner.t, owner.conn[0]);
    for (int i = 0; i < 300; i++)
        both_turn();
    cr_expect(eq(int, owner.downs, 1));
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    puller.t->ops->drop(puller.t, conn); /* its own sockets stood in the child as well */
    both_end();
}

/* ---- several threads ---- */

static atomic_uint stopped; /* threads that have come upon what was cut off */
static atomic_int alone, over, too_late;
static long late_ns; /* how long each stays there */

/* The first waits for a second one, which comes only if another thread works at the same time. */
static void on_bus(int sig, siginfo_t *info, void *context)
{
    const struct timespec moment = { .tv_nsec = 1000000 }, late = { .tv_nsec = late_ns };

    (void)sig, (void)context;
    atomic_fetch_add(&stopped, 1);
    for (int ms = 0; atomic_load(&stopped) < 2 && ms < 20000; ms++)
        nanosleep(&moment, NULL);
    if (atomic_load(&stopped) < 2)
        atomic_store(&alone, 1);
    nanosleep(&late, NULL);
    if (atomic_load(&over))
        atomic_store(&too_late, 1);
    if (!hth_guard_patch(info->si_addr))
        _exit(99);
}

/* A thread that touches the memory stops there, once. */
static void memory_cut(const struct memory *m)
{
    struct sigaction action = { .sa_sigaction = on_bus, .sa_flags = SA_SIGINFO };

    cr_assert(zero(int, sigaction(SIGBUS, &action, NULL)));
    hth_guard_add(m->at, OBJECT);
    cr_assert(zero(int, ftruncate(m->fd, 0)));
}

Test(tcp_lanes, lanes_seal_at_the_same_time_and_none_ends_of_a_source_that_is_cut_short)
{
    unsigned char desc[HTH_DESC_MAX];
    uint32_t len;

    pulls_are_right(0, 1);
    bulks_are(3);
    memset(target.at, 7, OBJECT);
    granted(desc, &len);
    memory_cut(&source);
    pulls_post(desc, len, PULLS);
    pulls_end(1 + PULLS);
    cr_expect(ge(uint, atomic_load(&stopped), 2u));
    cr_expect(zero(int, atomic_load(&alone)), "one lane did it all by itself");
    cr_expect(zero(int, owner.downs + puller.downs));
    cr_expect(zero(int, puller.pull_code));
    for (uint64_t i = 0; i < OBJECT; i++) /* as the session's checksum will see */
        cr_assert(zero(int, target.at[i]), "byte %" PRIu64, i);
}

Test(tcp_lanes, a_target_that_is_cut_short_costs_the_connection)
{
    unsigned char desc[HTH_DESC_MAX];
    uint32_t len;

    granted(desc, &len);
    cr_assert(zero(int, ftruncate(target.fd, 0)));
    pulls_post(desc, len, PULLS);
    pulls_end(PULLS);
    cr_expect(eq(int, puller.pull_code, HEARTH_EPROTO));
    cr_expect(eq(int, puller.downs, 1));
}

Test(tcp_lanes, what_lanes_have_pulled_is_what_was_granted_and_so_is_its_checksum)
{
    unsigned char desc[HTH_DESC_MAX];
    uint32_t len;
    int count = 0;

    for (uint64_t i = 0; i < OBJECT; i++)
        source.at[i] = (unsigned char)(i * 2654435761u >> 13);
    granted(desc, &len);
    for (uint64_t size = 1; size < OBJECT / 2; size = size * 3 + 1) {
        unsigned char *at = target.at + OBJECT - size;

        must(puller.t->ops->pull(
                puller.t, conn, desc, len, size, target.region, OBJECT - size, size, 1));
        pulls_end(++count);
        cr_assert(zero(int, puller.pull_code));
        cr_assert(zero(int, memcmp(at, source.at + size, size)));
        cr_assert(eq(int, puller.has_crc, 1));
        cr_assert(eq(u32, puller.crc, hth_crc32c(at, size)), "%" PRIu64 " bytes", size);
    }
}

/* ---- ends ---- */

/* Each lane stays in the source for a while. */
static void lanes_read_slowly(void)
{
    unsigned char desc[HTH_DESC_MAX];
    uint32_t len;

    pulls_are_right(0, 1);
    bulks_are(3);
    granted(desc, &len);
    memory_cut(&source);
    late_ns = 200000000;
    pulls_post(desc, len, PULLS);
    for (int i = 0; i < 20000 && atomic_load(&stopped) < 2; i++)
        both_turn();
    cr_assert(ge(uint, atomic_load(&stopped), 2u));
}

static void nothing_reads(void)
{
    const struct timespec long_enough = { .tv_nsec = 300000000 };

    atomic_store(&over, 1);
    memory_forbid(&source);
    nanosleep(&long_enough, NULL);
    pulls_end(1 + PULLS);
    cr_expect(zero(int, atomic_load(&too_late)));
}

Test(tcp_lanes, nothing_is_read_after_a_revoke)
{
    pulls_are_right(0, 1);
    bulks_are(3);
    for (int round = 0; round < 50; round++) {
        unsigned char desc[HTH_DESC_MAX];
        uint32_t len;

        granted(desc, &len);
        pulls_post(desc, len, PULLS);
        usleep((unsigned)round * 20);
        owner.t->ops->revoke(owner.t, desc, len);
        memory_forbid(&source);
        pulls_end(1 + (round + 1) * PULLS);
        cr_assert(puller.pull_code == 0 || puller.pull_code == HEARTH_EDENIED);
        cr_assert(zero(int, mprotect(source.at, OBJECT, PROT_READ | PROT_WRITE)));
    }
    cr_expect(zero(int, owner.downs + puller.downs));
}

Test(tcp_lanes, a_dereg_waits_for_lanes_that_read)
{
    lanes_read_slowly();
    must(owner.t->ops->dereg(owner.t, source.region));
    nothing_reads();
    cr_expect(eq(int, puller.pull_code, HEARTH_EDENIED));
    cr_expect(zero(int, owner.downs + puller.downs));
}

Test(tcp_lanes, nothing_is_read_after_a_drop)
{
    lanes_read_slowly();
    owner.t->ops->drop(owner.t, owner.conn[0]);
    must(owner.t->ops->dereg(owner.t, source.region));
    nothing_reads();
    both_end();
    cr_expect(lt(int, puller.pull_code, 0));
}

/* ---- one that was changed ---- */

#define RECORDS (HTH_TCP_PART / HTH_SEAL_PLAIN)

static struct tcp_member m;

static unsigned char *record_add(unsigned char *at, const void *plain, size_t len, int flip)
{
    must(hth_seal_put(m.bulk_seal, at, plain, len));
    at[HTH_SEAL_HEAD + len / 2] ^= (unsigned char)flip;
    return at + HTH_SEAL_MORE + len;
}

/* A part of the target's start, all of it 5, whose record `bad` is changed; and an end that calls
 * it whole. */
static void part_say(int bad)
{
    static unsigned char out[(RECORDS + 2) * (HTH_SEAL_PLAIN + HTH_SEAL_MORE)];
    static unsigned char plain[HTH_SEAL_PLAIN];
    unsigned char desc[HTH_TCP_DESC] = { 1 }, head[HTH_TCP_HEAD], *at = out;
    unsigned char in[128], ask[HTH_TCP_HEAD + HTH_TCP_REQUEST];

    must(puller.t->ops->pull(
            puller.t, m.conn, desc, sizeof(desc), 0, target.region, 0, HTH_TCP_PART, 5));
    cr_assert(tcp_hear(&puller, m.bulk, in, HTH_SEAL_MORE + sizeof(ask)));
    must(hth_seal_take(m.bulk_seal, ask, in, in + HTH_SEAL_HEAD, in + HTH_SEAL_HEAD + sizeof(ask)));
    memset(plain, 5, sizeof(plain));
    hth_tcp_head_put(head, HTH_TCP_DATA, 0, HTH_TCP_PART, hth_get64(ask + 8));
    at = record_add(at, head, sizeof(head), 0);
    for (int i = 0; i < (int)RECORDS; i++)
        at = record_add(at, plain, sizeof(plain), i == bad);
    hth_tcp_head_put(head, HTH_TCP_END, 0, 0, hth_get64(ask + 8));
    at = record_add(at, head, sizeof(head), 0);
    tcp_say_all(&puller, m.bulk, out, (size_t)(at - out));
    tcp_turns(&puller, 20);
}

Test(tcp_lanes, one_changed_record_among_many_ends_the_connection_and_no_pull_is_whole)
{
    for (int bad = 0; bad < (int)RECORDS; bad++) {
        int pulls = puller.pulls, downs = puller.downs;

        tcp_join(&puller, &m);
        part_say(-1);
        cr_assert(eq(int, puller.pulls, pulls + 1));
        cr_assert(zero(int, puller.pull_code));
        memset(target.at, 0, OBJECT);
        part_say(bad);
        cr_assert(eq(int, puller.pulls, pulls + 2), "record %d", bad);
        cr_assert(eq(int, puller.pull_code, HEARTH_EPROTO));
        cr_assert(eq(int, puller.downs, downs + 1));
        cr_assert(eq(int, puller.down_code, HEARTH_EPROTO));
        for (uint64_t i = 0; i < HTH_TCP_PART; i++)
            cr_assert(target.at[i] == 0 || (target.at[i] == 5 && (int)(i / HTH_SEAL_PLAIN) != bad),
                    "record %d, byte %" PRIu64, bad, i);
        tcp_leave(&m);
    }
}

#endif
