/* SPDX-License-Identifier: Apache-2.0 */
/* Bad input, from tables: each is one sentence that says what is wrong and what to do, and what was
 * protected before is there afterwards. */
#include "damage.h"
#include "party.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

static struct party p;

/* ---- options
 * --------------------------------------------------------------------------------------- */

static char root_of_all[128], file_everybody_reads[128], short_key[128], good_key[128],
        some_file[128];
static const uint64_t huge_object[] = { UINT64_C(1) << 45 };
static const char *const empty_domain[] = { "" };
static uint16_t taken_port;

static const struct wrong_option {
    const char *what;
    int code;
    const char *part, *part2;
} wrong_options[] = {
    { "root NULL", HEARTH_EINVAL, "root", "absolute path" },
    { "root relative", HEARTH_EINVAL, "root", "absolute path" },
    { "root missing", HEARTH_EINVAL, "No such file", "mount" },
    { "root is a file", HEARTH_EINVAL, "not a directory", NULL },
    { "root on a disk", HEARTH_EINVAL, "not on a tmpfs", "any_root" },
    { "job NULL", HEARTH_EINVAL, "job", "name" },
    { "job with a slash", HEARTH_EINVAL, "a/b", "A-Z a-z" },
    { "job ..", HEARTH_EINVAL, "..", "A-Z a-z" },
    { "world 0", HEARTH_EINVAL, "world is 0", "1 to" },
    { "rank 1 of 1", HEARTH_EINVAL, "rank is 1", "count from 0" },
    { "world 2 and no bootstrap", HEARTH_EINVAL, "bootstrap", "give one" },
    { "copies 99", HEARTH_EINVAL, "copies is 99", "1 to 8" },
    { "min_copies 2 of 1", HEARTH_EINVAL, "min_copies is 2", "more than" },
    { "keep 99", HEARTH_EINVAL, "keep is 99", "1 to 15" },
    { "start 3", HEARTH_EINVAL, "start is 3", "auto" },
    { "node a b", HEARTH_EINVAL, "a b", NULL },
    { "transport rdma", HEARTH_EINVAL, "transport is 'rdma'", "ofi" },
    { "provider nosuch", HEARTH_EENGINE, "nosuch", NULL },
    { "device nosuch0", HEARTH_EINVAL, "nosuch0", "ip link" },
    { "bind by name", HEARTH_EINVAL, "localhost", "numeric" },
    { "bind 0.0.0.0", HEARTH_EINVAL, "0.0.0.0", NULL },
    { "bind :: on a trusted network", HEARTH_EINVAL, "::", "address" },
    { "bind 10.9.8.7 without a key", HEARTH_EINVAL, "key_file", "network = trusted" },
    { "bind 10.9.8.7 that is not here", HEARTH_EENGINE, "10.9.8.7", NULL },
    { "bind 10.9.8.7, key, libfabric's tcp", HEARTH_EINVAL, "obeys whoever", "network = trusted" },
    { "bind 10.9.8.7, key, UCX", HEARTH_EINVAL, "obeys whoever", "network = trusted" },
    { "network 1", HEARTH_EINVAL, "network is 1", "hostile" },
    { "port in use", HEARTH_EENGINE, "port", NULL },
    { "key file missing", HEARTH_EINVAL, "key file", "No such file" },
    { "key file for all to read", HEARTH_EINVAL, "mode", "chmod 600" },
    { "key file short", HEARTH_EINVAL, "key file", "32 random" },
    { "engine missing", HEARTH_EENGINE, "/nowhere/hearthd", "name the hearthd" },
    { "dead_ms below heartbeat", HEARTH_EINVAL, "dead_ms", "heartbeat" },
    { "object larger than all", HEARTH_ENOSPC, "do not fit", "raise" },
    { "domain empty", HEARTH_EINVAL, "domains[0]", "name" },
    { "struct_size 0", HEARTH_EINVAL, "struct_size", NULL },
    { "allow_slower 2", HEARTH_EINVAL, "allow_slower", NULL },
    { "loopback, key, UCX", HEARTH_EINVAL, "every user of this machine", "network = trusted" },
    { "root that all may write to", HEARTH_EINVAL, "has mode 0777", "sticky" },
    { "log_level 99", HEARTH_EINVAL, "log_level is 99", "10 to 50" },
};

/* In the order of the table. */
static void set_wrong(struct me *me, size_t i)
{
    struct hearth_opts *o = &me->opts;

    /* clang-format off */
    switch (i) {
    case 0: o->root = NULL; break;
    case 1: o->root = "tmp"; break;
    case 2: o->root = "/nowhere/at/all"; break;
    case 3: o->root = some_file; break;
    case 4: o->root = "/tmp", o->any_root = 0; break;
    case 5: o->job = NULL; break;
    case 6: o->job = "a/b"; break;
    case 7: o->job = ".."; break;
    case 8: o->world = 0; break;
    case 9: o->rank = 1; break;
    case 10: o->world = 2; break;
    case 11: o->copies = 99; break;
    case 12: o->min_copies = 2; break;
    case 13: o->keep = 99; break;
    case 14: o->start = 3; break;
    case 15: o->node = "a b"; break;
    case 16: o->transport = "rdma"; break;
    case 17: o->provider = "nosuch"; break;
    case 18: o->device = "nosuch0"; break;
    case 19: o->bind = "localhost"; break;
    case 20: o->bind = "0.0.0.0"; break;
    case 21: o->bind = "::", o->network = HEARTH_NETWORK_TRUSTED; break;
    case 22: o->bind = "10.9.8.7"; break;
    case 23: o->bind = "10.9.8.7", o->network = HEARTH_NETWORK_TRUSTED; break;
    case 24: o->bind = "10.9.8.7", o->key_file = good_key, o->transport = "ofi"; break;
    case 25: o->bind = "10.9.8.7", o->key_file = good_key, o->transport = "ucx"; break;
    case 26: o->network = 1; break;
    case 27: o->port = taken_port; break;
    case 28: o->key_file = "/nowhere/key"; break;
    case 29: o->key_file = file_everybody_reads; break;
    case 30: o->key_file = short_key; break;
    case 31: o->engine = "/nowhere/hearthd"; break;
    case 32: o->dead_ms = 100, o->heartbeat_ms = 90; break;
    case 33: o->object_bytes = huge_object, o->object_count = 1; break;
    case 34: o->domains = empty_domain, o->domain_count = 1; break;
    case 35: o->struct_size = 0; break;
    case 36: o->allow_slower = 2; break;
    case 37: o->key_file = good_key, o->transport = "ucx"; break;
    case 38: o->root = root_of_all; break;
    default: o->log_level = 99; break;
    }
    /* clang-format on */
}

/* In a job of its own, so that an engine of the case before is not found. */
static void do_wrong_open(struct me *me, const uint64_t arg[3], struct answer *out)
{
    struct me copy = *me;
    char job[32];

    snprintf(job, sizeof(job), "wrong-%u", (unsigned)arg[0]);
    copy.opts.job = job;
    copy.opts.open_ms = 8000;
    set_wrong(&copy, arg[0]);
    out->rc = hearth_open(&copy.opts, &copy.h, &out->err);
    if (!out->rc)
        hearth_close(copy.h, HEARTH_DROP);
}

static int listen_somewhere(uint16_t *port)
{
    struct sockaddr_in a = { .sin_family = AF_INET };
    socklen_t len = sizeof(a);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    CHECK(!bind(fd, (struct sockaddr *)&a, sizeof(a)) && !listen(fd, 4) &&
                    !getsockname(fd, (struct sockaddr *)&a, &len),
            "%s", strerror(errno));
    *port = ntohs(a.sin_port);
    return fd;
}

static void options(void)
{
    unsigned char bytes[32];
    int listener;

    CHECK(getrandom(bytes, sizeof(bytes), 0) == sizeof(bytes), "no random bytes");
    party_open(&p, 1, 1, 128);
    snprintf(some_file, sizeof(some_file), "%s/file", p.root[0]);
    snprintf(short_key, sizeof(short_key), "%s/short", p.root[0]);
    snprintf(file_everybody_reads, sizeof(file_everybody_reads), "%s/open", p.root[0]);
    snprintf(root_of_all, sizeof(root_of_all), "%s/all", p.root[0]);
    CHECK(mkdir(root_of_all, 0700) == 0 && chmod(root_of_all, 0777) == 0, "%s", root_of_all);
    damage_put(some_file, bytes, 1);
    damage_put(short_key, bytes, 5);
    damage_put(file_everybody_reads, bytes, 32);
    snprintf(good_key, sizeof(good_key), "%s/key", p.root[0]);
    damage_put(good_key, bytes, 32);
    chmod(file_everybody_reads, 0644);
    listener = listen_somewhere(&taken_port);
    party_start(&p);
    party_recover(&p, 0, 0);
    party_save(&p, 1, 1);
    for (size_t i = 0; i < sizeof(wrong_options) / sizeof(wrong_options[0]); i++) {
        const struct wrong_option *w = &wrong_options[i];
        struct answer a = party_ask(&p, 0, do_wrong_open, i, 0, 0);

        printf("%-32s %s\n", w->what, a.err.text);
        fflush(stdout);
        CHECK(a.rc, "%s: it was opened", w->what);
        if (a.rc != w->code || !strstr(a.err.text, w->part))
            fprintf(stderr, "%s:\n", w->what);
        party_must_fail(&a, w->code, w->part, w->part2);
    }
    close(listener);
    party_restart(&p);
    party_recover(&p, 1, 1);
}

/* ---- roots
 * ------------------------------------------------------------------------------------------ */

static const uint64_t *want_bytes;

static void sized(const struct party *x, struct me *me)
{
    (void)x;
    me->opts.object_bytes = want_bytes;
    me->opts.object_count = want_bytes != NULL;
}

/* 64 MB, as /dev/shm of a container has them. */
static void small_mount(void)
{
    static const uint64_t too_much[] = { 100 << 20 };
    struct answer a;

    party_open(&p, 1, 1, 64);
    if (party_free_bytes(&p, 0) > (UINT64_C(65) << 20))
        party_skip("no right to mount a small tmpfs");
    p.adjust = sized;
    want_bytes = too_much;
    party_start_rank(&p, 0);
    a = party_ask(&p, 0, do_open, 0, 0, 0);
    party_must_fail(&a, HEARTH_ENOSPC, "do not fit", "lower keep or copies");
    party_kill_ranks(&p);
    want_bytes = NULL;
    party_kill_engine(&p, 0);
    p.bytes = 4 << 20;
    party_start(&p);
    party_recover(&p, 0, 0);
    party_save(&p, 1, 1);
    party_save(&p, 2, 2);
    party_kill_ranks(&p);
    p.bytes = 80 << 20; /* a save that has grown too large */
    party_start(&p);
    for (uint32_t i = 0; i < 2; i++) {
        a = party_ask(&p, 0, do_recover, 0, 0, 0);
        CHECK(a.rc == 0 && a.v[0] == 2, "%s", a.err.text);
        a = party_ask(&p, 0, do_begin, 3, 0, 0);
        party_must_fail(&a, HEARTH_ENOSPC, "do not fit", NULL);
    }
    party_kill_ranks(&p);
    p.bytes = 4 << 20;
    party_start(&p);
    party_recover(&p, 2, 2);
    party_save(&p, 3, 3);
}

static void do_nobody_opens(struct me *me, const uint64_t arg[3], struct answer *out)
{
    if (!geteuid() && setresuid(65534, 65534, 65534))
        out->rc = 1;
    do_open(me, arg, out);
}

static void unwritable_root(void)
{
    struct answer a;

    party_open(&p, 1, 1, 64);
    chmod(p.base, 0755);
    chmod(p.root[0], 0555);
    party_start_rank(&p, 0);
    a = party_ask(&p, 0, do_nobody_opens, 0, 0, 0);
    party_must_fail(&a, HEARTH_EINVAL, "cannot be written by user", "Permission denied");
}

/* ---- peers
 * ------------------------------------------------------------------------------------------ */

static int misfit;
static char keys[2][128];

static void misfitting(const struct party *x, struct me *me)
{
    (void)x;
    me->opts.open_ms = me->opts.recover_ms = 5000;
    if (misfit == 0 && me->rank == 1)
        me->opts.job = "other";
    else if (misfit == 1)
        me->opts.key_file = keys[me->rank];
    else if (misfit == 2 && me->rank == 1)
        me->opts.copies = 2;
    else if (misfit == 3)
        me->opts.key_file = me->rank ? keys[0] : NULL;
    else if (misfit == 4)
        me->opts.network = HEARTH_NETWORK_TRUSTED, me->opts.transport = me->rank ? "ucx" : "tcp";
    else if (misfit == 5 && me->rank == 1)
        me->opts.keep = 2;
    else if (misfit == 6 && me->rank == 1)
        me->opts.allow_degraded = 1;
    else if (misfit == 7 && me->rank == 1)
        me->opts.dead_ms = 4000;
    else if (misfit == 8 && me->rank == 1)
        me->opts.heartbeat_ms = 500;
    else if (misfit == 9 && me->rank == 1)
        me->opts.network = HEARTH_NETWORK_TRUSTED;
    else if (misfit == 11 && me->rank == 1)
        me->opts.integrity = HEARTH_INTEGRITY_STRONG;
    else if (misfit == 10)
        me->opts.copies = 2, me->opts.min_copies = 1 + me->rank;
}

/* In the order of misfitting(). */
static const struct {
    const char *what;
    int code;
    const char *part, *part2; /* each rank's error has both */
} misfits[] = {
    { "job", HEARTH_EINVAL, "rank 0 and rank 1", "'job' and 'other'" },
    { "key", HEARTH_EAUTH, "proof", "have all ranks the same key_file" },
    { "copies", HEARTH_EINVAL, "rank 0 and rank 1 disagree", "copies: 1 and 2" },
    { "key on one side", HEARTH_EAUTH, "job key and we have", "all ranks the same key_file" },
    { "transport", HEARTH_EINVAL, "rank 0 (node 'n0') and rank 1 (node 'n1') disagree",
            "'tcp' and 'ucx'" },
    { "keep", HEARTH_EINVAL, "rank 0 and rank 1 disagree", "keep: 1 and 2" },
    { "allow_degraded", HEARTH_EINVAL, "rank 0 and rank 1 disagree", "allow_degraded: 0 and 1" },
    { "dead_ms", HEARTH_EINVAL, "rank 0 and rank 1 disagree", "and 4000" },
    { "heartbeat_ms", HEARTH_EINVAL, "rank 0 and rank 1 disagree", "and 500" },
    { "network", HEARTH_EINVAL, "rank 0 and rank 1 disagree", "network: hostile and trusted" },
    { "min_copies", HEARTH_EINVAL, "rank 0 and rank 1 disagree", "min_copies: 1 and 2" },
    { "integrity", HEARTH_EINVAL, "rank 0 and rank 1 disagree", "integrity: crc32c and strong" },
};

static void try_together(struct answer a[2])
{
    uint16_t port = port_keep();

    for (uint32_t r = 0; r < 2; r++)
        party_start_rank(&p, r);
    for (uint32_t r = 0; r < 2; r++)
        party_tell(&p, r, do_open, port, 0, 0);
    for (uint32_t r = 0; r < 2; r++)
        a[r] = party_hear(&p, r, 15000);
}

/* Both ranks get the reason: at once, or with a key that rank 0 does not believe at the
 * deadline. */
static void one_misfit(void)
{
    const char *what = misfits[misfit].what;
    struct answer a[2];

    try_together(a);
    for (uint32_t r = 0; r < 2; r++) {
        printf("%s, rank %u: %s\n", what, r, a[r].err.text);
        CHECK(a[r].rc, "%s: rank %u goes on", what, r);
        party_must_fail(&a[r], misfits[misfit].code, misfits[misfit].part, misfits[misfit].part2);
    }
    party_kill_ranks(&p);
    party_kill_engine(&p, 0);
    party_kill_engine(&p, 1);
}

static void peers(void)
{
    unsigned char key[32];

    party_open(&p, 2, 2, 64);
    for (int k = 0; k < 2; k++) {
        snprintf(keys[k], sizeof(keys[k]), "%s/key%d", p.root[k], k);
        CHECK(getrandom(key, sizeof(key), 0) == sizeof(key), "no random bytes");
        damage_put(keys[k], key, sizeof(key));
    }
    p.adjust = misfitting;
    for (misfit = 0; misfit < (int)(sizeof(misfits) / sizeof(misfits[0])); misfit++)
        one_misfit();
}

/* ---- files
 * ------------------------------------------------------------------------------------------ */

static char found_path[512];

struct wanted {
    const char *begins, *ends;
};

static void match(const char *path, void *arg)
{
    const struct wanted *w = arg;
    const char *name = strrchr(path, '/') + 1;
    size_t len = strlen(name), end = strlen(w->ends);

    if (!strncmp(name, w->begins, strlen(w->begins)) && len >= end &&
            !strcmp(name + len - end, w->ends))
        snprintf(found_path, sizeof(found_path), "%s", path);
}

/* A bit flipped, and cut to nothing; on node `k`. */
static void spoil(uint32_t k, struct wanted w, int cut)
{
    char dir[256];
    struct stat st;

    party_path(&p, k, ".hearth", dir, sizeof(dir));
    found_path[0] = '\0';
    party_find(dir, match, &w);
    CHECK(found_path[0] && !stat(found_path, &st), "there is no %s*%s", w.begins, w.ends);
    if (cut)
        CHECK(!truncate(found_path, 0), "%s: %s", found_path, strerror(errno));
    else
        damage_flip(found_path, st.st_size / 2);
}

/* The job of that memory can no longer be determined: open reports it, and the node is a fresh one
 * afterwards. */
static void say_damaged_store(uint32_t k)
{
    uint16_t port = port_keep();
    struct answer a;

    p.opts.open_ms = 5000;
    for (uint32_t r = 0; r < 2; r++)
        party_start_rank(&p, r);
    for (uint32_t r = 0; r < 2; r++)
        party_tell(&p, r, do_open, port, 0, 0);
    a = party_hear(&p, k, 15000);
    party_must_fail(&a, HEARTH_EENGINE, "store is damaged", "hearth clean");
    party_kill_ranks(&p);
    p.opts.open_ms = 20000;
    party_lose_node(&p, k);
}

/* Copies are brought back: each node has the step with both objects and its manifest again. */
static void wait_protected(uint64_t step)
{
    char path[256], line[64];
    uint64_t until = now_ms() + 10000;

    snprintf(line, sizeof(line), "keep");
    for (uint32_t k = 0; k < 2; k++)
        for (uint32_t r = 0; r < 2; r++) {
            snprintf(path, sizeof(path), "%s/job/step-%u_ckpt/__%u__0_src%u.distcp", p.root[k],
                    (unsigned)step, r, r);
            damage_wait_whole(path, p.bytes);
        }
    for (uint32_t k = 0; k < 2; k++)
        for (found_path[0] = '\0'; !found_path[0] && now_ms() < until; nap_ms(5)) {
            party_path(&p, k, ".hearth", path, sizeof(path));
            party_find(path, match, &(struct wanted){ line, "" });
        }
}

static void records(void)
{
    static const struct wanted kinds[] = { { "store", "" }, { "epoch", "" }, { "keep", "" },
        { "running", "" }, { "head", "" }, { "life", "" }, { "", ".manifest" }, { "", ".dir" } };
    enum { KINDS = sizeof(kinds) / sizeof(kinds[0]) };

    party_open(&p, 2, 2, 128);
    party_start(&p);
    party_recover(&p, 0, 0);
    party_save(&p, 2, 2);
    for (int i = 0; i < 2 * KINDS; i++) {
        party_kill_ranks(&p);
        party_kill_engine(&p, 0);
        party_kill_engine(&p, 1);
        printf("%s%s, %s\n", kinds[i / 2].begins, kinds[i / 2].ends,
                i % 2 ? "cut" : "a bit flipped");
        fflush(stdout);
        spoil((uint32_t)i % 2, kinds[i / 2], i % 2);
        if (i < 2)
            say_damaged_store((uint32_t)i);
        party_start(&p);
        party_recover(&p, 2, 2);
        wait_protected(2);
    }
    party_save(&p, 3, 3);
}

/* ---- noise
 * ------------------------------------------------------------------------------------------ */

static void send_noise(const char *path, unsigned round, int with_fd)
{
    static unsigned char bytes[70000];
    struct sockaddr_un a = { .sun_family = AF_UNIX };
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(sizeof(int))];
    } control = { 0 };
    struct iovec v = { bytes, round % 9 == 0 ? 0 : (size_t)1 << (round % 17) };
    struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1 };
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0), null = open("/dev/null", O_RDONLY);

    CHECK(getrandom(bytes, sizeof(bytes), 0) > 0, "no random bytes");
    if (round % 3 == 0) { /* a head that says its true length, of any type */
        uint32_t len = (uint32_t)v.iov_len, type = round % 40;

        memcpy(bytes, &len, 4);
        memcpy(bytes + 4, &type, 4);
    }
    snprintf(a.sun_path, sizeof(a.sun_path), "%.100s", path);
    CHECK(!connect(fd, (struct sockaddr *)&a, sizeof(a)), "%s: %s", path, strerror(errno));
    if (with_fd) {
        m.msg_control = &control;
        m.msg_controllen = sizeof(control.room);
        control.head = (struct cmsghdr){
            .cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS
        };
        memcpy(CMSG_DATA(&control.head), &null, sizeof(null));
    }
    (void)!sendmsg(fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
    close(fd);
    close(null);
}

static void noise_on_the_local_socket(void)
{
    char path[256];
    pid_t engine;

    party_open(&p, 1, 1, 64);
    party_start(&p);
    party_recover(&p, 0, 0);
    party_save(&p, 1, 1);
    engine = party_engine(&p, 0);
    party_path(&p, 0, ".hearth/sock", path, sizeof(path));
    for (unsigned round = 0; round < 400; round++)
        send_noise(path, round, round % 5 == 0);
    party_save(&p, 2, 2);
    CHECK(party_engine(&p, 0) == engine, "the engine has died of it");
    party_restart(&p);
    party_recover(&p, 2, 2);
}

/* ---- a stranger at the rendezvous
 * ------------------------------------------------------------------ */

#define GATHER  512
#define HIGHEST 152 /* where in a row the highest epoch stands */

static unsigned char (*rows)[GATHER]; /* shared: what the ranks have gathered */
static struct hearth_bootstrap *met;

static int keep_rows(void *self, const void *mine, size_t len, void *all, struct hearth_error *err)
{
    int rc = met->allgather(met->self, mine, len, all, err);

    (void)self;
    if (!rc && len == GATHER)
        memcpy(rows, all, 2 * len);
    return rc;
}

static void do_meet(struct me *me, const uint64_t arg[3], struct answer *out)
{
    static struct hearth_bootstrap outer = { .struct_size = sizeof(outer), .allgather = keep_rows };

    out->rc = hearth_bootstrap_tcp(
            "127.0.0.1", (uint16_t)arg[0], me->rank, me->world, 10000, &met, &out->err);
    me->opts.bootstrap = &outer;
    if (!out->rc)
        do_open(me, arg, out);
}

/* He has seen a row of rank 1's, and brings it with another number in its place. */
static void come_as_rank_1(uint16_t port, uint64_t highest)
{
    struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons(port) };
    unsigned char challenge[48], said[96 + 40 + 16 + GATHER] = "HTHMEET5", head[40];
    unsigned char table[2 * GATHER], *frame = said + 96, *row = frame + 40 + 16;
    const uint32_t world[] = { 2, GATHER }, rank = 1; /* and the length of a row */
    const uint16_t types[] = { 1, 3 };                /* ROW, HAS */
    uint64_t len = 16 + GATHER;
    int fd = -1;

    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    for (int i = 0; i < 500 && fd < 0; i++) {
        fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (connect(fd, (struct sockaddr *)&a, sizeof(a)) == 0)
            break;
        close(fd);
        fd = -1;
        nap_ms(10);
    }
    memcpy(said + 8, world, sizeof(world));
    memcpy(frame, &types[0], sizeof(types[0]));
    memcpy(frame + 4, &rank, sizeof(rank));
    memcpy(frame + 16, &len, sizeof(len));
    memcpy(row, rows[1], GATHER);
    memcpy(row + HIGHEST, &highest, sizeof(highest));
    CHECK(recv(fd, challenge, sizeof(challenge), MSG_WAITALL) == sizeof(challenge), "no challenge");
    CHECK(send(fd, said, sizeof(said), MSG_NOSIGNAL) == sizeof(said), "he is not heard");
    CHECK(recv(fd, head, sizeof(head), MSG_WAITALL) == sizeof(head), "he has got no answer");
    memcpy(&len, head + 16, sizeof(len));
    CHECK(len && len <= sizeof(table), "the answer has no packed table");
    CHECK(recv(fd, table, len, MSG_WAITALL) == (ssize_t)len, "he has got no table");
    memset(frame, 0, 40);
    memcpy(frame, &types[1], sizeof(types[1]));
    memcpy(frame + 8, head + 8, 4); /* the round */
    CHECK(send(fd, frame, 40, MSG_NOSIGNAL) == 40, "he is not heard at the end");
    close(fd);
}

/* Without a key, the first process that comes for a rank has its place. A stranger's row may end
 * this launch, and no more. */
static void stranger_at_the_rendezvous(void)
{
    static const uint64_t numbers[] = { UINT64_MAX, INT64_MAX, UINT64_C(1) << 62 };
    struct answer a;
    uint64_t step = 1;

    party_open(&p, 2, 2, 64);
    rows = mmap(
            NULL, sizeof(rows[0]) * 2, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    for (uint32_t r = 0; r < 2; r++)
        party_start_rank(&p, r);
    p.launches++;
    party_all(&p, do_meet, port_keep(), 0, 0);
    party_recover(&p, 0, 0);
    party_save(&p, step, step);
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        uint16_t port = port_keep();

        party_kill_ranks(&p);
        party_start_rank(&p, 0);
        party_tell(&p, 0, do_open, port, 0, 0);
        come_as_rank_1(port, numbers[i]);
        a = party_hear(&p, 0, 15000);
        printf("epoch %llu: %d %s\n", (unsigned long long)numbers[i], a.rc, a.err.text);
        if (numbers[i] > UINT64_C(1) << 62)
            party_must_fail(&a, HEARTH_EINVAL, "rank 1 (node 'n1')", "no job has reached");
        party_restart(&p);
        party_recover(&p, step, step);
        step++;
        party_save(&p, step, step);
    }
    party_restart(&p);
    party_recover(&p, step, step);
}

#define CASE(name) { #name, name },

int main(int argc, char **argv)
{
    static const struct party_case cases[] = { /* clang-format off */
    CASE(options)
    CASE(small_mount)
    CASE(unwritable_root)
    CASE(peers)
    CASE(records)
    CASE(noise_on_the_local_socket)
    CASE(stranger_at_the_rendezvous)
        /* clang-format on */
        { NULL, NULL }
    };

    return party_main(argc, argv, cases);
}
