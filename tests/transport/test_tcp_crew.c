/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two transports tcp, sealed, whose ciphers run on several threads: that they do, and that what is
 * cut short, changed, revoked or dropped meanwhile ends as it does on one thread. Memory that may
 * not be touched any more cannot be: a thread that still does ends the test.
 */
#ifdef HEARTH_POINTS /* else a machine has a crew or has none */
#include "tcp_side.h"

#include "core/base/crc.h"
#include "core/base/guard.h"

#include <dirent.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
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

static void crew_start(void)
{
    unsigned char addr[HTH_ADDR_MAX];
    uint32_t len;

    setenv("HEARTH_TCP_CREW", "3", 1);
    tcp_side_open_keyed(&owner, "127.0.0.1", key);
    tcp_side_open_keyed(&puller, "127.0.0.1", key);
    memory_open(&source, &owner, 1);
    memory_open(&target, &puller, 0);
    must(owner.t->ops->address(owner.t, addr, &len, NULL));
    must(puller.t->ops->connect(puller.t, addr, len, &conn, NULL));
    for (int i = 0; i < 1000 && !(owner.conns && puller.ups); i++)
        both_turn();
    cr_assert(eq(int, puller.ups, 1));
}

static void crew_stop(void)
{
    tcp_side_close(&puller);
    tcp_side_close(&owner);
    memory_close(&target);
    memory_close(&source);
}

TestSuite(tcp_crew, .init = crew_start, .fini = crew_stop, .timeout = 100);

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

/* ---- several threads ---- */

static atomic_uint stopped; /* threads that have come upon what was cut off */
static atomic_int alone, over, too_late;
static pid_t engine;
static long late_ns; /* how long the others than the engine's thread stay there */

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
    if (gettid() != engine)
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

    engine = gettid();
    cr_assert(zero(int, sigaction(SIGBUS, &action, NULL)));
    hth_guard_add(m->at, OBJECT);
    cr_assert(zero(int, ftruncate(m->fd, 0)));
}

Test(tcp_crew, threads_seal_at_the_same_time_and_none_ends_of_a_source_that_is_cut_short)
{
    unsigned char desc[HTH_DESC_MAX];
    uint32_t len;

    memset(target.at, 7, OBJECT);
    granted(desc, &len);
    memory_cut(&source);
    pulls_post(desc, len, 1);
    pulls_end(1);
    cr_expect(ge(uint, atomic_load(&stopped), 2u));
    cr_expect(zero(int, atomic_load(&alone)), "one thread did it all by itself");
    cr_expect(zero(int, owner.downs + puller.downs));
    cr_expect(zero(int, puller.pull_code));
    for (uint64_t i = 0; i < OBJECT; i++) /* as the session's checksum will see */
        cr_assert(zero(int, target.at[i]), "byte %" PRIu64, i);
}

Test(tcp_crew, a_target_that_is_cut_short_costs_the_connection)
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

Test(tcp_crew, what_several_threads_have_opened_is_what_was_granted_and_so_is_its_checksum)
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

Test(tcp_crew, its_threads_are_there_when_there_is_much_to_do_and_not_before)
{
    unsigned char desc[HTH_DESC_MAX];
    uint32_t len;
    int before = threads();

    granted(desc, &len);
    for (int i = 0; i < 20; i++) { /* a header, a record and an end each */
        must(puller.t->ops->pull(puller.t, conn, desc, len, 0, target.region, 0, 60000, 1));
        pulls_end(i + 1);
    }
    cr_expect(eq(int, threads(), before));
    pulls_post(desc, len, 1);
    pulls_end(21);
    cr_expect(eq(int, threads(), before + 6));
}

/* ---- ends ---- */

Test(tcp_crew, nothing_is_read_after_a_revoke)
{
    struct hth_tcp_conn *c = hth_tcp_conn_get(hth_tcp_of(owner.t), owner.conn[0]);
    unsigned char desc[HTH_DESC_MAX];
    int room = 100000; /* not all that is sealed at once */
    uint32_t len;

    cr_assert(zero(int, setsockopt(c->bulk.fd, SOL_SOCKET, SO_SNDBUF, &room, sizeof(room))));
    granted(desc, &len);
    pulls_post(desc, len, 4);
    for (int i = 0; i < 50; i++) {
        if (i < 3)
            tcp_turns(&puller, 1);
        tcp_turns(&owner, 1); /* then the puller does not read: the socket is full */
    }
    cr_assert(zero(int, puller.pulls));
    owner.t->ops->revoke(owner.t, desc, len);
    memory_forbid(&source);
    pulls_end(4);
    cr_expect(eq(int, puller.pull_code, HEARTH_EDENIED));
    cr_expect(zero(int, owner.downs + puller.downs));
}

/* A thread of the crew stays in the source for a while: until then drop() has not come back. */
Test(tcp_crew, nothing_is_read_after_a_drop)
{
    const struct timespec long_enough = { .tv_nsec = 300000000 };
    unsigned char desc[HTH_DESC_MAX];
    uint32_t len;

    granted(desc, &len);
    memory_cut(&source);
    late_ns = 200000000;
    pulls_post(desc, len, PULLS); /* of several records each */
    for (int i = 0; i < 20000 && !atomic_load(&stopped); i++)
        both_turn();
    cr_assert(ge(uint, atomic_load(&stopped), 2u));
    owner.t->ops->drop(owner.t, owner.conn[0]);
    atomic_store(&over, 1);
    must(owner.t->ops->dereg(owner.t, source.region));
    memory_forbid(&source);
    nanosleep(&long_enough, NULL);
    pulls_end(PULLS);
    tcp_turns(&owner, 10);
    cr_expect(eq(int, owner.downs, 1));
    cr_expect(eq(int, puller.downs, 1));
    cr_expect(zero(int, atomic_load(&too_late)));
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

Test(tcp_crew, one_changed_record_among_many_ends_the_connection_and_no_pull_is_whole)
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
