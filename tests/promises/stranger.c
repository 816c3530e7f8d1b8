/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A stranger without the key gets nothing and spoils nothing: noise at the engine's port, an engine
 * that knows all of the job but the key, and an object whose pickle would run a program.
 */
#include "damage.h"
#include "party.h"

#include <arpa/inet.h>
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define GATHER 512 /* bytes of a rank in the bootstrap's table */
#define PROOF  496 /* where in them the proof of the key stands */

static struct party p;
static unsigned char (*table)[GATHER]; /* shared: what the ranks have gathered */
static uint16_t port[2];
static struct hearth_bootstrap *inner;
static char key[128];

void stranger_gets_nothing(void);

static int gather(void *self, const void *mine, size_t len, void *all, struct hearth_error *err)
{
    int rc = inner->allgather(inner->self, mine, len, all, err);

    (void)self;
    if (!rc)
        memcpy(table, all, 2 * len);
    return rc;
}

/* The same table, but rank 1 is the stranger: epoch and nonce, which are rank 0's, are the job's.
 * His own library would not believe it: he has no key to look at the proof with. */
static int pretend(void *self, const void *mine, size_t len, void *all, struct hearth_error *err)
{
    unsigned char *to = all;

    (void)self, (void)err;
    memcpy(to, table, 2 * len);
    memset(to + PROOF, 0, len - PROOF);
    memcpy(to + len, mine, len);
    return 0;
}

static void do_listen_in(struct me *me, const uint64_t arg[3], struct answer *out)
{
    static struct hearth_bootstrap outer = { .struct_size = sizeof(outer), .allgather = gather };

    out->rc = hearth_bootstrap_tcp(
            "127.0.0.1", (uint16_t)arg[0], me->rank, me->world, 10000, &inner, &out->err);
    me->opts.bootstrap = &outer;
    if (!out->rc)
        do_open(me, arg, out);
}

static void with_key(const struct party *q, struct me *me)
{
    (void)q;
    me->opts.key_file = key;
    me->opts.port = port[me->rank % 2];
}

static void make_key(void)
{
    unsigned char bytes[32];

    snprintf(key, sizeof(key), "%s/key", p.root[2]);
    CHECK(getrandom(bytes, sizeof(bytes), 0) == sizeof(bytes), "no random bytes");
    damage_put(key, bytes, sizeof(bytes));
}

static void do_pretend(struct me *me, const uint64_t arg[3], struct answer *out)
{
    static struct hearth_bootstrap liar = { .struct_size = sizeof(liar), .allgather = pretend };

    me->opts.root = p.root[2];
    me->opts.node = me->opts.machine = "n1";
    me->rank = me->opts.rank = 1;
    me->opts.key_file = NULL;
    me->opts.port = 0;
    me->opts.bootstrap = &liar;
    do_open(me, arg, out);
    if (!out->rc)
        do_recover(me, arg, out);
}

/* The engine may refuse the bytes half way; it must not answer with bytes of a checkpoint. */
static void make_noise(uint16_t to, const void *bytes, size_t len)
{
    struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons(to) };
    struct timeval t = { .tv_usec = 200000 };
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    char got[65536];
    ssize_t n = 0, all = 0;

    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    CHECK(fd >= 0 && !connect(fd, (struct sockaddr *)&a, sizeof(a)), "port %u: %s", to,
            strerror(errno));
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof(t));
    if (send(fd, bytes, len, MSG_NOSIGNAL) > 0)
        while (all < (ssize_t)sizeof(got) && (n = recv(fd, got, sizeof(got), 0)) > 0)
            all += n;
    CHECK(all < 4096, "the engine gave %zd bytes to a stranger", all);
    close(fd);
}

static void noise(void)
{
    static unsigned char bytes[100000];
    static const char http[] = "GET /step-1_ckpt/__0__0_src0.distcp HTTP/1.0\r\n\r\n";

    for (int round = 0; round < 4; round++)
        for (int k = 0; k < 2; k++) {
            CHECK(getrandom(bytes, sizeof(bytes), 0) > 0, "no random bytes");
            make_noise(port[k], bytes, round == 0 ? 1 : round == 1 ? 100 : sizeof(bytes));
            make_noise(port[k], http, sizeof(http) - 1);
            make_noise(port[k], "", 0);
        }
}

static void look_for_step(const char *path, void *arg)
{
    *(int *)arg |= strstr(path, "_ckpt") != NULL || strstr(path, ".distcp") != NULL;
}

/* ---- an object that would run a program
 * ------------------------------------------------------- */

static void plant(const char *mark)
{
    static unsigned char object[8192];
    char dir[200], path[256], pickle[256];
    uint32_t len = (uint32_t)snprintf(
            pickle, sizeof(pickle), "cposix\nsystem\n(S'touch %.100s'\ntR.", mark);
    uint64_t data = 4u + len + 64;

    memcpy(object, &data, sizeof(data));
    memcpy(object + 8, "MLF_TENS", 8);
    memcpy(object + 4096, &len, sizeof(len));
    memcpy(object + 4100, pickle, len);
    party_path(&p, 0, "step-5_ckpt", dir, sizeof(dir));
    CHECK(!mkdir(dir, 0700), "%s: %s", dir, strerror(errno));
    snprintf(path, sizeof(path), "%.200s/__0__0_src0.distcp", dir);
    damage_put(path, object, 4096 + (size_t)data);
    snprintf(path, sizeof(path), "%.200s/.metadata", dir);
    damage_put(path, pickle, len);
}

static void do_read_all(struct me *me, const uint64_t arg[3], struct answer *out)
{
    struct hearth_item item = { .struct_size = sizeof(item) };

    (void)arg;
    if (!me->ckpt)
        return;
    out->rc = hearth_item_at(me->ckpt, 1, 0, &item, &out->err);
}

static void hostile_object(void)
{
    struct answer a;
    char path[256];

    party_open(&p, 1, 1, 64);
    party_start(&p);
    party_kill_ranks(&p);
    party_kill_engine(&p, 0);
    snprintf(path, sizeof(path), "%s/pwned", p.base);
    plant(path);
    party_start(&p);
    a = party_ask(&p, 0, do_recover, 0, 0, 0);
    if (!a.rc && a.v[0])
        a = party_ask(&p, 0, do_read_all, 0, 0, 0);
    CHECK(a.rc || !a.v[0], "the hostile object was taken for a tensor");
    if (a.rc)
        party_must_fail(&a, a.rc, NULL, NULL);
    CHECK(access(path, F_OK), "the pickle has run a program");
    party_path(&p, 0, "step-5_ckpt/.metadata", path, sizeof(path));
    CHECK(!access(path, F_OK), "%s is not ours to remove", path);
    if (!a.rc)
        party_save(&p, 6, 6);
}

void stranger_gets_nothing(void)
{
    struct answer a;
    int found = 0;

    party_open(&p, 3, 2, 64);
    table = mmap(
            NULL, sizeof(table[0]) * 2, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    make_key();
    port[0] = port_keep();
    port[1] = port_keep();
    p.adjust = with_key;
    p.launches++;
    a.v[0] = port_keep();
    for (uint32_t r = 0; r < 2; r++)
        party_start_rank(&p, r);
    party_all(&p, do_listen_in, a.v[0], 0, 0);
    party_recover(&p, 0, 0);
    party_save(&p, 1, 1);
    noise();
    party_save(&p, 2, 2);
    p.ranks = 3; /* one more process, which is no rank of the job */
    p.seat[2].node = 2;
    p.opts.world = 2;
    party_start_rank(&p, 2);
    a = party_ask(&p, 2, do_pretend, 5000, 0, 0);
    CHECK(a.rc == HEARTH_EAUTH || a.rc == HEARTH_EPEER || a.rc == HEARTH_ETIMEOUT, "%d: %s", a.rc,
            a.err.text);
    party_must_fail(&a, a.rc, "n0", NULL);
    party_kill_rank(&p, 2);
    p.ranks = 2;
    party_find(p.root[2], look_for_step, &found);
    CHECK(!found, "the stranger has got objects");
    party_save(&p, 3, 3);
    party_lose_node(&p, 0);
    party_restart(&p);
    party_recover(&p, 3, 3);
    p.adjust = NULL;
    hostile_object();
}
