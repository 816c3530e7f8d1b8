/* SPDX-License-Identifier: Apache-2.0 */
#include "check.h"
#include "port.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <hearth/hearth.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define WORLD 6
#define LEN   512

struct one {
    uint32_t rank, world, deadline_ms;
    uint16_t port;
    const char *file;
    int rounds, rc;
    int away; /* this rank misses round MISSED */
    struct hearth_error err;
};

#define MISSED 3 /* the round that one rank does not come to */
#define ROUNDS 8
static atomic_int met[ROUNDS]; /* how many ranks have the table of a round */
static pthread_barrier_t in_step;

static int open_one(struct one *o, struct hearth_bootstrap **out)
{
    if (o->file)
        return hearth_bootstrap_hostfile(o->file, o->rank, o->deadline_ms, out, &o->world, &o->err);
    return hearth_bootstrap_tcp(
            "127.0.0.1", o->port, o->rank, o->world, o->deadline_ms, out, &o->err);
}

static void *gather(void *arg)
{
    struct one *o = arg;
    struct hearth_bootstrap *b = NULL;
    unsigned char mine[LEN], *all = calloc(WORLD, LEN);

    o->rc = open_one(o, &b);
    for (int round = 0; round < o->rounds && !o->rc; round++) {
        memset(mine, (int)(o->rank * 16) + round, LEN);
        o->rc = b->allgather(b->self, mine, LEN, all, &o->err);
        for (uint32_t i = 0; i < o->world && !o->rc; i++)
            if (all[i * LEN] != i * 16 + (uint32_t)round || all[i * LEN + LEN - 1] != all[i * LEN])
                o->rc = -999;
    }
    hearth_bootstrap_close(b);
    free(all);
    return NULL;
}

/* One gather that begins on all ranks at once. Returns 1 if each rank has received the table. */
static int gather_in_step(struct one *o, struct hearth_bootstrap *b, int round)
{
    unsigned char mine[LEN], all[3 * LEN];
    int rc = HEARTH_ESTATE;

    pthread_barrier_wait(&in_step);
    memset(mine, (int)(o->rank * 16) + round, LEN);
    if (round != MISSED || !o->away)
        rc = b->allgather(b->self, mine, LEN, all, &o->err);
    for (uint32_t i = 0; i < 3 && !rc; i++)
        if (all[i * LEN] != i * 16 + (uint32_t)round)
            rc = -999;
    atomic_fetch_add(&met[round], !rc);
    pthread_barrier_wait(&in_step);
    return atomic_load(&met[round]) == 3;
}

/* A gather of all ranks, then one that a rank misses, then one of all again. On a machine so busy
 * that gathers end by their deadline, the first and the last are repeated a few times. */
static void *gather_again(void *arg)
{
    struct one *o = arg;
    struct hearth_bootstrap *b = NULL;
    int round = 0;

    o->rc = open_one(o, &b);
    while (round < MISSED && !gather_in_step(o, b, round))
        round++;
    gather_in_step(o, b, MISSED);
    for (round = MISSED + 1; round < ROUNDS && !gather_in_step(o, b, round); round++)
        continue;
    o->rc = round < ROUNDS ? 0 : HEARTH_ETIMEOUT;
    hearth_bootstrap_close(b);
    return NULL;
}

static void run(struct one *o, uint32_t count)
{
    pthread_t t[WORLD];

    alarm(60);
    for (uint32_t i = 0; i < count; i++)
        pthread_create(&t[i], NULL, gather, &o[i]);
    for (uint32_t i = 0; i < count; i++)
        pthread_join(t[i], NULL);
}

Test(tcp, gathers_round_after_round)
{
    struct one o[WORLD];
    uint16_t port = port_keep();

    for (uint32_t i = 0; i < WORLD; i++)
        o[i] = (struct one){
            .rank = i, .world = WORLD, .deadline_ms = 20000, .port = port, .rounds = 5
        };
    run(o, WORLD);
    for (uint32_t i = 0; i < WORLD; i++)
        cr_assert(eq(int, o[i].rc, 0), "rank %u: %s", i, o[i].err.text);
}

/* Three ranks: all meet, one of them misses the next meeting, and then all come again. */
static void all_meet_after_one_stayed_away(uint32_t which)
{
    struct one o[3];
    pthread_t t[3];
    uint16_t port = port_keep();

    alarm(60);
    pthread_barrier_init(&in_step, NULL, 3);
    for (uint32_t i = 0; i < 3; i++) {
        o[i] = (struct one){ .rank = i, .world = 3, .deadline_ms = 700, .port = port };
        o[i].away = i == which;
        pthread_create(&t[i], NULL, gather_again, &o[i]);
    }
    for (uint32_t i = 0; i < 3; i++) {
        pthread_join(t[i], NULL);
        cr_expect(eq(int, o[i].rc, 0), "rank %u: %s", i, o[i].err.text);
    }
}

Test(tcp, all_ranks_meet_after_one_rank_did_not_come_to_a_meeting)
{
    all_meet_after_one_stayed_away(2);
}

Test(tcp, all_ranks_meet_after_rank_0_did_not_come_to_a_meeting)
{
    all_meet_after_one_stayed_away(0);
}

Test(tcp, names_the_ranks_that_did_not_come_to_all_that_did)
{
    struct one o[WORLD];
    uint16_t port = port_keep();

    for (uint32_t i = 0; i < 3; i++)
        o[i] = (struct one){
            .rank = i == 2 ? 4 : i, .world = WORLD, .deadline_ms = 700, .port = port, .rounds = 1
        };
    run(o, 3);
    for (uint32_t i = 0; i < 3; i++) {
        cr_assert(eq(int, o[i].rc, HEARTH_ETIMEOUT), "%s", o[i].err.text);
        cr_assert(ne(ptr, strstr(o[i].err.text, "2-3, 5"), NULL), "%s", o[i].err.text);
    }
}

Test(tcp, without_rank_0_is_a_timeout_that_says_where)
{
    struct one o = { .rank = 1, .world = 2, .deadline_ms = 300, .port = port_keep(), .rounds = 1 };

    run(&o, 1);
    cr_assert(eq(int, o.rc, HEARTH_ETIMEOUT));
    cr_assert(ne(ptr, strstr(o.err.text, "127.0.0.1"), NULL), "%s", o.err.text);
}

static void *strangers(void *arg)
{
    struct one *o = arg;
    struct sockaddr_in a = {
        .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(o->port)
    };

    for (int i = 0; i < 40; i++) {
        int fd = socket(AF_INET, SOCK_STREAM, 0);

        if (!connect(fd, (struct sockaddr *)&a, sizeof(a)) && i % 2)
            o->rc += (int)send(
                    fd, "GET / HTTP/1.0\r\nHost: somebody else\r\n\r\n", 40, MSG_NOSIGNAL);
        usleep(5000);
        if (i % 4)
            close(fd); /* the others stay and say nothing */
    }
    return NULL;
}

Test(tcp, strangers_do_not_disturb)
{
    struct one o[WORLD], noise = { .port = port_keep() };
    pthread_t t;

    pthread_create(&t, NULL, strangers, &noise);
    for (uint32_t i = 0; i < WORLD; i++)
        o[i] = (struct one){
            .rank = i, .world = WORLD, .deadline_ms = 20000, .port = noise.port, .rounds = 3
        };
    run(o, WORLD);
    pthread_join(t, NULL);
    for (uint32_t i = 0; i < WORLD; i++)
        cr_assert(eq(int, o[i].rc, 0), "rank %u: %s", i, o[i].err.text);
}

Test(tcp, a_port_in_use_and_bad_arguments_are_sentences)
{
    uint16_t port = port_keep();
    struct sockaddr_in a = {
        .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(port)
    };
    int other = socket(AF_INET, SOCK_STREAM, 0), yes = 1;
    unsigned char mine[LEN] = { 0 }, all[2 * LEN];
    struct hearth_bootstrap *b = NULL;
    struct hearth_error err = { 0 };

    setsockopt(other, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
    cr_assert(zero(int, bind(other, (struct sockaddr *)&a, sizeof(a))));
    cr_assert(zero(int, listen(other, 1)));
    must(hearth_bootstrap_tcp("127.0.0.1", port, 0, 2, 300, &b, &err), err);
    must_fail(b->allgather(b->self, mine, LEN, all, &err), HEARTH_EINVAL);
    cr_assert(ne(ptr, strstr(err.text, "in use"), NULL), "%s", err.text);
    hearth_bootstrap_close(b);
    close(other);
    must_fail(hearth_bootstrap_tcp("127.0.0.1", port, 2, 2, 1000, &b, &err), HEARTH_EINVAL);
    must_fail(hearth_bootstrap_tcp("127.0.0.1", port, 0, 2, 0, &b, &err), HEARTH_EINVAL);
    must_fail(hearth_bootstrap_tcp("", port, 0, 2, 10, &b, &err), HEARTH_EINVAL);
    must_fail(hearth_bootstrap_tcp("127.0.0.1", 0, 0, 2, 10, &b, &err), HEARTH_EINVAL);
}

Test(tcp, from_env_takes_torchruns_variables)
{
    struct hearth_bootstrap *b = NULL;
    struct hearth_error err = { 0 };
    uint32_t rank = 9, world = 9;
    char port[8];

    unsetenv("MASTER_ADDR");
    must_fail(hearth_bootstrap_tcp_from_env(1000, &b, &rank, &world, &err), HEARTH_EINVAL);
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    snprintf(port, sizeof(port), "%u", port_keep());
    setenv("MASTER_PORT", port, 1);
    setenv("RANK", "0", 1);
    unsetenv("WORLD_SIZE");
    must_fail(hearth_bootstrap_tcp_from_env(1000, &b, &rank, &world, &err), HEARTH_EINVAL);
    cr_assert(ne(ptr, strstr(err.text, "WORLD_SIZE"), NULL), "%s", err.text);
    setenv("WORLD_SIZE", "2x", 1);
    must_fail(hearth_bootstrap_tcp_from_env(1000, &b, &rank, &world, &err), HEARTH_EINVAL);
    setenv("WORLD_SIZE", "2", 1);
    must(hearth_bootstrap_tcp_from_env(1000, &b, &rank, &world, &err), err);
    cr_assert(eq(u32, rank, 0));
    cr_assert(eq(u32, world, 2));
    hearth_bootstrap_close(b);
}

/* ---- descriptors ---------------------------------------------------------------------------- */

#define CROWD 96

static unsigned open_files(void)
{
    unsigned n = 0;

    for (int fd = 0; fd < 4096; fd++)
        n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

struct guests {
    struct one one[CROWD];
    pthread_t thread[CROWD];
};

static void *guest(void *arg)
{
    struct one *o = arg;
    struct hearth_bootstrap *b = NULL;
    unsigned char mine[LEN] = { (unsigned char)o->rank }, *all = calloc(o->world, LEN);

    o->rc = open_one(o, &b);
    if (!o->rc)
        o->rc = b->allgather(b->self, mine, LEN, all, &o->err);
    hearth_bootstrap_close(b);
    free(all);
    return NULL;
}

/* Ranks from 1 on, in a process that has enough descriptors. Its exit status is the number of ranks
 * whose call did not end with `code` and `part`. */
static pid_t others(uint16_t port, int code, const char *part)
{
    static struct guests g;
    int wrong = 0;
    pid_t pid = fork();

    if (pid)
        return pid;
    for (uint32_t i = 1; i < CROWD; i++) {
        g.one[i] = (struct one){ .rank = i, .world = CROWD, .deadline_ms = 30000, .port = port };
        pthread_create(&g.thread[i], NULL, guest, &g.one[i]);
    }
    for (uint32_t i = 1; i < CROWD; i++) {
        pthread_join(g.thread[i], NULL);
        wrong += g.one[i].rc != code || !strstr(g.one[i].err.text, part);
    }
    _exit(wrong);
}

/* Rank 0 may have 48 descriptors more than are open. */
Test(tcp, all_ranks_hear_that_rank_0_has_too_few_descriptors)
{
    struct one o = {
        .rank = 0, .world = CROWD, .deadline_ms = 30000, .port = port_keep(), .rounds = 1
    };
    pid_t pid = others(o.port, HEARTH_EINVAL, "hard limit where rank 0 runs");
    rlim_t most = open_files() + 48;
    const struct rlimit few = { most, most };
    int status = -1;

    alarm(60);
    cr_assert(gt(int, pid, 0));
    cr_assert(zero(int, setrlimit(RLIMIT_NOFILE, &few)));
    guest(&o);
    cr_assert(eq(int, waitpid(pid, &status, 0), pid));
    cr_expect(zero(int, status), "%d ranks; rank 0: %s", status >> 8, o.err.text);
    cr_assert(eq(int, o.rc, HEARTH_EINVAL), "%s", o.err.text);
    cr_assert(ne(ptr, strstr(o.err.text, "ulimit -Hn"), NULL), "%s", o.err.text);
}

static void write_file(const char *path, const char *text)
{
    FILE *f = fopen(path, "we");

    fputs(text, f);
    fclose(f);
}

Test(hostfile, gathers)
{
    char path[] = "/tmp/hearth-hosts-XXXXXX", text[300];
    struct one o[3];

    close(mkstemp(path));
    snprintf(text, sizeof(text),
            "# three ranks\n127.0.0.1 %u\n\n127.0.0.1 1 # second\n127.0.0.1 2\n", port_keep());
    write_file(path, text);
    for (uint32_t i = 0; i < 3; i++)
        o[i] = (struct one){ .rank = i, .deadline_ms = 20000, .file = path, .rounds = 2 };
    run(o, 3);
    for (uint32_t i = 0; i < 3; i++) {
        cr_assert(eq(int, o[i].rc, 0), "rank %u: %s", i, o[i].err.text);
        cr_assert(eq(u32, o[i].world, 3));
    }
    unlink(path);
}

Test(hostfile, wrong_lines_are_named_by_number)
{
    char path[] = "/tmp/hearth-hosts-XXXXXX";
    static const char *const wrong[] = { "", "# none\n", "a\n", "a b\n", "a 0\n", "a 70000\n",
        "a 1 2\n" };
    struct hearth_bootstrap *b = NULL;
    struct hearth_error err = { 0 };
    uint32_t world;

    close(mkstemp(path));
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        write_file(path, wrong[i]);
        must_fail(hearth_bootstrap_hostfile(path, 0, 100, &b, &world, &err), HEARTH_EINVAL);
        cr_assert(i < 2 || strstr(err.text, "line 1"), "%s", err.text);
    }
    write_file(path, "127.0.0.1 9\n");
    must_fail(hearth_bootstrap_hostfile(path, 1, 100, &b, &world, &err), HEARTH_EINVAL);
    unlink(path);
    must_fail(hearth_bootstrap_hostfile(path, 0, 100, &b, &world, &err), HEARTH_EINVAL);
}

/* The 511th byte of a comment begins what would be a host. */
Test(hostfile, a_line_that_is_too_long_is_named_and_is_not_two)
{
    char path[] = "/tmp/hearth-hosts-XXXXXX";
    FILE *f = fdopen(mkstemp(path), "w");
    struct hearth_bootstrap *b;
    struct hearth_error err;
    uint32_t world = 0;

    fprintf(f, "127.0.0.1 29901\n# %0509dnode9 29903\n", 0);
    cr_assert(zero(int, fclose(f)));
    must_fail(hearth_bootstrap_hostfile(path, 0, 100, &b, &world, &err), HEARTH_EINVAL);
    cr_assert(ne(ptr, strstr(err.text, "line 2 is longer"), NULL), "%s", err.text);
    unlink(path);
}

Test(hostfile, what_is_no_file_is_refused_and_not_waited_for)
{
    char path[] = "/tmp/hearth-hosts-XXXXXX";
    struct hearth_bootstrap *b = NULL;
    struct hearth_error err = { 0 };
    uint32_t world;

    cr_assert(ne(ptr, mkdtemp(path), NULL));
    must_fail(hearth_bootstrap_hostfile(path, 0, 100, &b, &world, &err), HEARTH_EINVAL);
    cr_assert(strstr(err.text, "not a regular file") != NULL, "%s", err.text);
    rmdir(path);
    cr_assert(zero(int, mkfifo(path, 0600)));
    must_fail(hearth_bootstrap_hostfile(path, 0, 100, &b, &world, &err), HEARTH_EINVAL);
    cr_assert(strstr(err.text, "not a regular file") != NULL, "%s", err.text);
    unlink(path);
}

/* libpmix keeps a few bytes of an initialisation that failed. There only under a leak checker. */
void __lsan_disable(void) __attribute__((weak));
void __lsan_enable(void) __attribute__((weak));

Test(pmix, without_a_server_is_unsupported_and_says_what_to_do)
{
    struct hearth_bootstrap *b = NULL;
    struct hearth_error err = { 0 };
    uint32_t rank, world;

    alarm(60);
    if (__lsan_disable)
        __lsan_disable();
    must_fail(hearth_bootstrap_pmix(1000, &b, &rank, &world, &err), HEARTH_EUNSUPPORTED);
    if (__lsan_enable)
        __lsan_enable();
    cr_assert(ne(ptr, strstr(err.text, "bootstrap"), NULL), "%s", err.text);
}
