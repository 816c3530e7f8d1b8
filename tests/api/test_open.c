/* SPDX-License-Identifier: Apache-2.0 */
#include "check.h"
#include "rank.h"
#include "tmp_root.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

static int gather_two(void *self, const void *mine, size_t len, void *all, struct hearth_error *err)
{
    (void)err;
    memcpy((char *)all, mine, len);
    memcpy((char *)all + len, mine, len);
    *(int *)self += 1;
    return 0;
}

/* One wrong value each: what to change, and what the sentence must contain. */
static void world_0(struct hearth_opts *o)
{
    o->world = 0;
}
static void rank_high(struct hearth_opts *o)
{
    o->rank = 1;
}
static void no_bootstrap(struct hearth_opts *o)
{
    o->world = 2;
}
static void root_null(struct hearth_opts *o)
{
    o->root = NULL;
}
static void root_relative(struct hearth_opts *o)
{
    o->root = "here";
}
static void root_missing(struct hearth_opts *o)
{
    o->root = "/dev/shm/there/is/none";
}
static void root_file(struct hearth_opts *o)
{
    o->root = "/proc/version";
}
static void root_disk(struct hearth_opts *o)
{
    o->root = "/";
}
static void job_null(struct hearth_opts *o)
{
    o->job = NULL;
}
static void job_dots(struct hearth_opts *o)
{
    o->job = "../job";
}
static void node_slash(struct hearth_opts *o)
{
    o->node = "a/b";
}
static void copies_many(struct hearth_opts *o)
{
    o->copies = 9;
}
static void min_over(struct hearth_opts *o)
{
    o->min_copies = 2;
}
static void keep_many(struct hearth_opts *o)
{
    o->keep = 99;
}
static void degraded_2(struct hearth_opts *o)
{
    o->allow_degraded = 2;
}
static void domain_empty(struct hearth_opts *o)
{
    static const char *const names[] = { "" };

    o->domains = names;
    o->domain_count = 1;
}
static void domains_many(struct hearth_opts *o)
{
    o->domain_count = 5;
}
static void objects_null(struct hearth_opts *o)
{
    o->object_count = 1;
}
static void objects_huge(struct hearth_opts *o)
{
    static const uint64_t bytes[] = { 1, UINT64_MAX };

    o->object_bytes = bytes;
    o->object_count = 2;
}
static void lease_huge(struct hearth_opts *o)
{
    o->lease_bytes = UINT64_MAX;
}
static void start_unknown(struct hearth_opts *o)
{
    o->start = 5;
}
static void transport_unknown(struct hearth_opts *o)
{
    o->transport = "carrier-pigeon";
}
static void bind_name(struct hearth_opts *o)
{
    o->bind = "localhost";
}
static void bind_open(struct hearth_opts *o)
{
    o->bind = "0.0.0.0";
}
static void bind_six(struct hearth_opts *o)
{
    o->bind = "fd00::1";
}
static void device_unknown(struct hearth_opts *o)
{
    o->device = "nosuch0";
}
static void key_missing(struct hearth_opts *o)
{
    o->key_file = "/nosuchkey";
}
static void port_high(struct hearth_opts *o)
{
    o->port = 65536;
}
static void open_long(struct hearth_opts *o)
{
    o->open_ms = 86400001;
}
static void dead_short(struct hearth_opts *o)
{
    o->dead_ms = 1500;
}
static void threads_many(struct hearth_opts *o)
{
    o->copy_threads = 65;
}
static void inflight_small(struct hearth_opts *o)
{
    o->inflight_mib = 1;
}
static void level_high(struct hearth_opts *o)
{
    o->log_level = 51;
}
static void slower_twice(struct hearth_opts *o)
{
    o->allow_slower = 2;
}
static void size_unset(struct hearth_opts *o)
{
    o->struct_size = 0;
}

static const struct {
    void (*spoil)(struct hearth_opts *o);
    const char *says;
} wrong[] = { { world_0, "world is 0" }, { rank_high, "rank is 1 of a world of 1" },
    { no_bootstrap, "bootstrap is NULL" }, { root_null, "root is" }, { root_relative, "root is" },
    { root_missing, "mount a tmpfs" }, { root_file, "not a directory" },
    { root_disk, "not on a tmpfs" }, { job_null, "job is not set" }, { job_dots, "job" },
    { node_slash, "node" }, { copies_many, "copies is 9" }, { min_over, "min_copies is 2" },
    { keep_many, "keep is 99" }, { degraded_2, "allow_degraded is 2" },
    { domain_empty, "domains[0]" }, { domains_many, "domains[]" },
    { objects_null, "object_bytes[]" }, { objects_huge, "object_bytes[1]" },
    { lease_huge, "lease_bytes is" }, { start_unknown, "start is 5" },
    { transport_unknown, "carrier-pigeon" }, { bind_name, "numeric address" },
    { bind_open, "every address" }, { bind_six, "key_file" }, { device_unknown, "nosuch0" },
    { key_missing, "/nosuchkey" }, { port_high, "port is 65536" },
    { open_long, "open_ms is 86400001" }, { dead_short, "dead_ms is 1500" },
    { threads_many, "copy_threads is 65" }, { inflight_small, "inflight_mib is 1" },
    { level_high, "log_level is 51" }, { slower_twice, "allow_slower is 2" },
    { size_unset, "struct_size" } };

Test(open, every_wrong_option_is_a_sentence_that_names_it)
{
    struct rank r;

    rank_start(&r);
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        struct hearth_opts o = r.opts;
        struct hearth_error err = { 0 };
        struct hearth *h = NULL;

        wrong[i].spoil(&o);
        cr_assert(eq(int, hearth_open(&o, &h, &err), HEARTH_EINVAL), "%zu: %s", i, err.text);
        cr_assert(ne(ptr, strstr(err.text, wrong[i].says), NULL), "%zu: %s", i, err.text);
        cr_assert(eq(ptr, h, NULL));
    }
    cr_assert(eq(u32, fake_counts(r.fake).clients, 0), "no engine was asked");
    rank_end(&r);
}

Test(open, says_all_settings_once_to_the_sink)
{
    static const char *const domains[] = { "rack1", "feed2" };
    static const char *const want[] = { " keep 3,", " copies 1, min_copies 1,", " allow_degraded,",
        " domains rack1/feed2,", "1 objects of 4096 bytes,", " start never,", " open_ms 1001,",
        " recover_ms 1002,", " save_ms 1003,", " heartbeat_ms 104,", " dead_ms 1005,",
        " stall_ms 1006,", " linger_s 17,", " copy_threads 3,", " inflight_mib 9,",
        " lease_bytes 11,", " spare_bytes 12,", " log_level 30" };
    static const uint64_t bytes = 4096;
    struct rank r;
    char text[1024] = "";
    uint32_t level = 0;

    rank_start(&r);
    r.opts.keep = 3;
    r.opts.allow_degraded = 1;
    r.opts.domains = domains, r.opts.domain_count = 2;
    r.opts.object_bytes = &bytes, r.opts.object_count = 1;
    r.opts.start = HEARTH_START_NEVER;
    r.opts.open_ms = 1001, r.opts.recover_ms = 1002, r.opts.save_ms = 1003;
    r.opts.heartbeat_ms = 104, r.opts.dead_ms = 1005, r.opts.stall_ms = 1006;
    r.opts.linger_s = 17, r.opts.copy_threads = 3, r.opts.inflight_mib = 9;
    r.opts.lease_bytes = 11, r.opts.spare_bytes = 12;
    must(hearth_open(&r.opts, &r.h, NULL));
    cr_assert(eq(int, hearth_log_poll(r.h, &level, text, sizeof(text)), 1));
    cr_assert(eq(u32, level, HEARTH_LOG_INFO));
    for (size_t i = 0; i < sizeof(want) / sizeof(want[0]); i++)
        cr_assert(ne(ptr, strstr(text, want[i]), NULL), "%s is not in: %s", want[i], text);
    cr_assert(eq(int, hearth_log_poll(r.h, &level, text, sizeof(text)), 0), "%s", text);
    rank_end(&r);
}

Test(open, never_without_an_engine_fails_at_once)
{
    struct rank r;
    struct hearth_error err = { 0 };

    rank_start(&r);
    fake_stop(r.fake);
    r.fake = NULL;
    must_fail(hearth_open(&r.opts, &r.h, &err), HEARTH_EENGINE);
    cr_assert(ne(ptr, strstr(err.text, "hearthd"), NULL), "%s", err.text);
    rank_end(&r);
}

Test(open, an_engine_that_cannot_be_run_is_named)
{
    struct rank r;
    struct hearth_error err = { 0 };

    rank_start(&r);
    fake_stop(r.fake);
    r.fake = NULL;
    r.opts.start = HEARTH_START_AUTO;
    r.opts.engine = "/nosuch/hearthd";
    must_fail(hearth_open(&r.opts, &r.h, &err), HEARTH_EENGINE);
    cr_assert(ne(ptr, strstr(err.text, "/nosuch/hearthd"), NULL), "%s", err.text);
    r.opts.engine = "/bin/false";
    r.opts.open_ms = 20000;
    must_fail(hearth_open(&r.opts, &r.h, &err), HEARTH_EENGINE);
    cr_assert(ne(ptr, strstr(err.text, "ended as soon as"), NULL), "%s", err.text);
    rank_end(&r);
}

/* A program that says nothing, as where its file system stalls. */
Test(open, a_start_that_says_nothing_ends_by_the_deadline)
{
    struct rank r;
    struct hearth_error err = { 0 };
    char path[128];
    FILE *f;

    rank_start(&r);
    fake_stop(r.fake);
    r.fake = NULL;
    snprintf(path, sizeof(path), "%s/silent", r.root);
    f = fopen(path, "we");
    cr_assert(f && fchmod(fileno(f), 0700) == 0);
    fprintf(f, "#!/bin/sh\nexec sleep 100\n");
    cr_assert(zero(int, fclose(f)));
    alarm(20);
    r.opts.start = HEARTH_START_AUTO;
    r.opts.engine = path;
    r.opts.open_ms = 300;
    must_fail(hearth_open(&r.opts, &r.h, &err), HEARTH_EENGINE);
    cr_assert(ne(ptr, strstr(err.text, "did not go into the background"), NULL), "%s", err.text);
    rank_end(&r);
}

/* A fifo is where the log should be, and no process writes into it. */
Test(open, a_log_that_is_none_is_not_waited_for)
{
    struct rank r;
    struct hearth_error err = { 0 };
    char path[128];

    rank_start(&r);
    fake_stop(r.fake);
    r.fake = NULL;
    snprintf(path, sizeof(path), "%s/%s/.hearth/log", r.root, r.opts.job);
    unlink(path);
    cr_assert(zero(int, mkfifo(path, 0600)), "%s", path);
    r.opts.start = HEARTH_START_AUTO;
    r.opts.engine = "/bin/false";
    r.opts.open_ms = 20000;
    must_fail(hearth_open(&r.opts, &r.h, &err), HEARTH_EENGINE);
    cr_assert(ne(ptr, strstr(err.text, "it wrote no reason"), NULL), "%s", err.text);
    unlink(path);
    rank_end(&r);
}

/* A stopped or frozen engine never answers either: the kernel accepts connections for it. */
Test(open, a_silent_engine_is_a_timeout_that_names_it_and_its_log)
{
    struct rank r;
    struct hearth_error err = { 0 };
    char pid[64], log[128];

    rank_start(&r);
    r.opts.open_ms = 300;
    snprintf(pid, sizeof(pid), "(pid %ld) did not answer", (long)getpid());
    snprintf(log, sizeof(log), "%s/job/.hearth/log", r.root);
    for (int i = 0; i < 2; i++) {
        fake_silence(r.fake, i ? HTH_LOCAL_JOIN : HTH_LOCAL_ATTACH);
        must_fail(hearth_open(&r.opts, &r.h, &err), HEARTH_ETIMEOUT);
        cr_assert(ne(ptr, strstr(err.text, pid), NULL), "%s", err.text);
        cr_assert(ne(ptr, strstr(err.text, log), NULL), "%s", err.text);
    }
    rank_end(&r);
}

/* Stopped, and as many wait for it as the system lets wait. */
Test(open, an_engine_that_accepts_nobody_is_a_timeout)
{
    struct sockaddr_un a = { .sun_family = AF_UNIX };
    int listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0), waits[8], last = 0, n = 0;
    struct hearth_error err = { 0 };
    struct rank r;

    rank_start(&r);
    fake_stop(r.fake);
    r.fake = NULL;
    r.opts.open_ms = 300;
    snprintf(a.sun_path, sizeof(a.sun_path), "%s/job/.hearth/sock", r.root);
    unlink(a.sun_path);
    must(bind(listener, (struct sockaddr *)&a, sizeof(a)));
    must(listen(listener, 0));
    while (!last && n < 8) {
        waits[n] = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        last = connect(waits[n++], (struct sockaddr *)&a, sizeof(a));
    }
    cr_assert(eq(int, last, -1));
    alarm(20);
    for (int i = 0; i < 2; i++) {
        r.opts.start = i ? HEARTH_START_AUTO : HEARTH_START_NEVER;
        r.opts.engine = "/nosuch/hearthd"; /* one that is there is not started once more */
        must_fail(hearth_open(&r.opts, &r.h, &err), HEARTH_EENGINE);
        cr_assert(ne(ptr, strstr(err.text, "no engine answers"), NULL), "%s", err.text);
    }
    while (n)
        close(waits[--n]);
    close(listener);
    rank_end(&r);
}

/* It came before its rank had recovered, as it does when both are started at once. */
Test(open, a_helper_that_came_early_need_not_come_again)
{
    struct rank r;
    struct hearth_opts o;
    struct hearth *helper = NULL;
    struct hearth_error err = { 0 };
    struct hearth_checkpoint *ckpt = NULL;

    rank_start(&r);
    must(hearth_open(&r.opts, &r.h, &err), err);
    o = r.opts;
    o.helper = 1;
    must(hearth_open(&o, &helper, &err), err);
    must_fail(hearth_recover(helper, NULL, &ckpt, &err), HEARTH_ESTATE);
    cr_assert(ne(ptr, strstr(err.text, "recovers first"), NULL), "%s", err.text);
    must(hearth_recover(r.h, NULL, &ckpt, &err), err);
    cr_assert(eq(int, hearth_recover(helper, NULL, &ckpt, &err), 0), "%s", err.text);
    hearth_close(helper, HEARTH_KEEP);
    rank_end(&r);
}

struct absent {
    int absent;
    struct hearth_opts *opts;
    char why[HTH_WHY_MAX + 1], node[HTH_NAME_MAX + 1];
};

/* Rank 1 brings what rank 0 does, but for its number. */
static int gather_absent(
        void *self, const void *mine, size_t len, void *all, struct hearth_error *err)
{
    struct absent *seen = self;
    struct hth_gather g;

    (void)err;
    must(hth_gather_decode(&g, mine, NULL));
    seen->absent = (g.flags & HTH_GATHER_ABSENT) != 0;
    snprintf(seen->why, sizeof(seen->why), "%s", g.why);
    snprintf(seen->node, sizeof(seen->node), "%s", g.node);
    memcpy(all, mine, len);
    g.rank = 1;
    hth_gather_encode(&g, (unsigned char *)all + len);
    return 0;
}

Test(open, a_rank_without_an_engine_tells_the_others_why_and_hears_of_them)
{
    struct absent seen = { 0 };
    struct hearth_bootstrap two = {
        .struct_size = sizeof(two), .allgather = gather_absent, .self = &seen
    };
    struct hearth_error err = { 0 };
    struct rank r;

    rank_start(&r);
    r.opts.world = 2;
    r.opts.bootstrap = &two;
    r.opts.node = NULL; /* the host's name */
    r.opts.job = "another-job";
    must_fail(hearth_open(&r.opts, &r.h, &err), HEARTH_EENGINE);
    cr_assert(
            ne(ptr, strstr(err.text, "no engine serves job 'another-job'"), NULL), "%s", err.text);
    cr_assert(eq(int, seen.absent, 1));
    cr_assert(
            ne(ptr, strstr(seen.why, "no engine serves job 'another-job'"), NULL), "%s", seen.why);
    cr_assert(ne(int, seen.node[0], '\0'));
    rank_end(&r);
}

/* Rank 1 says that it cannot. */
static int gather_other_absent(
        void *self, const void *mine, size_t len, void *all, struct hearth_error *err)
{
    struct hth_gather g, absent = { .flags = HTH_GATHER_ABSENT,
        .code = HEARTH_EENGINE,
        .rank = 1,
        .world = 2,
        .why = "no memory" };

    (void)self;
    (void)err;
    must(hth_gather_decode(&g, mine, NULL));
    memcpy(absent.job, g.job, sizeof(g.job));
    strcpy(absent.node, "n1");
    memcpy(all, mine, len);
    hth_gather_encode(&absent, (unsigned char *)all + len);
    return 0;
}

Test(open, a_rank_that_cannot_take_part_ends_the_joining_by_name)
{
    struct hearth_bootstrap two = { .struct_size = sizeof(two), .allgather = gather_other_absent };
    struct hearth_error err = { 0 };
    struct rank r;

    rank_start(&r);
    r.opts.world = 2;
    r.opts.bootstrap = &two;
    must_fail(hearth_open(&r.opts, &r.h, &err), HEARTH_EENGINE);
    cr_assert(ne(ptr, strstr(err.text, "rank 1 (node 'n1') cannot take part: no memory"), NULL),
            "%s", err.text);
    rank_end(&r);
}

Test(open, hands_on_what_the_engine_refuses)
{
    struct rank r;
    struct hearth_error err = { 0 };

    rank_start(&r);
    fake_refuse(r.fake, HTH_LOCAL_JOIN, HEARTH_ENOSPC, "there is room for 1 save, not for 2");
    must_fail(hearth_open(&r.opts, &r.h, &err), HEARTH_ENOSPC);
    cr_assert(ne(ptr, strstr(err.text, "room for 1 save"), NULL), "%s", err.text);
    rank_end(&r);
}

Test(open, two_ranks_that_are_one_are_found_out)
{
    struct rank r;
    struct hearth_error err = { 0 };
    int rounds = 0;
    struct hearth_bootstrap two = {
        .struct_size = sizeof(two), .allgather = gather_two, .self = &rounds
    };

    rank_start(&r);
    r.opts.world = 2;
    r.opts.bootstrap = &two;
    must_fail(hearth_open(&r.opts, &r.h, &err), HEARTH_EINVAL);
    cr_assert(ne(ptr, strstr(err.text, "place 1 of the table has what rank 0"), NULL), "%s",
            err.text);
    cr_assert(eq(int, rounds, 1));
    rank_end(&r);
}

/* Rank 1 is of the same node. */
static int gather_pair(
        void *self, const void *mine, size_t len, void *all, struct hearth_error *err)
{
    struct hth_gather g;

    (void)self;
    (void)err;
    must(hth_gather_decode(&g, mine, NULL));
    g.rank = 1;
    memcpy(all, mine, len);
    hth_gather_encode(&g, (unsigned char *)all + len);
    return 0;
}

/* Its handle is closed, and the engine has not said that all of it is sealed: what is kept of it
 * goes here. */
Test(open, close_frees_a_save_of_some_ranks_that_is_not_sealed)
{
    static const uint32_t me[] = { 0 };
    struct hearth_bootstrap two = { .struct_size = sizeof(two), .allgather = gather_pair };
    struct hearth_begin_opts o = HEARTH_BEGIN_OPTS_INIT;
    struct hearth_handle *handle;
    struct hearth_save *save;
    struct rank r;

    rank_start(&r);
    r.opts.world = 2;
    r.opts.bootstrap = &two;
    rank_open(&r);
    o.ranks = me;
    o.rank_count = 1;
    fake_hold(r.fake, HEARTH_WRITTEN);
    must(hearth_save_begin(r.h, 1, 8, &o, &save, NULL));
    must(hearth_save_commit(save, &handle, NULL));
    hearth_handle_close(handle);
    rank_end(&r);
}

static int proved;

/* Rank 1 brings what rank 0 does, with a proof or without. */
static int gather_other(
        void *self, const void *mine, size_t len, void *all, struct hearth_error *err)
{
    unsigned char *row = (unsigned char *)all + len, sub[HTH_KEY];
    struct hth_gather g;
    struct hth_key key;

    (void)err;
    memcpy(all, mine, len);
    must(hth_gather_decode(&g, mine, NULL));
    g.rank = 1;
    memset(g.proof, 0, sizeof(g.proof));
    hth_gather_encode(&g, row);
    if (!proved)
        return 0;
    must(hth_key_open(self, &key, NULL));
    hth_subkey(sub, key.bytes, HTH_GATHER_PURPOSE);
    hth_key_close(&key);
    hth_gather_prove(row, sub);
    return 0;
}

Test(open, with_a_key_a_row_that_is_not_proved_is_not_heard_over_the_callers_own_bootstrap)
{
    char path[] = "/tmp/hearth-key-XXXXXX";
    unsigned char bytes[HTH_KEY];
    struct hearth_bootstrap other = {
        .struct_size = sizeof(other), .allgather = gather_other, .self = path
    };
    struct hearth_error err = { 0 };
    int fd = mkstemp(path);
    struct rank r;

    cr_assert(eq(int, (int)getrandom(bytes, sizeof(bytes), 0), (int)sizeof(bytes)));
    cr_assert(eq(int, (int)write(fd, bytes, sizeof(bytes)), (int)sizeof(bytes)));
    close(fd);
    rank_start(&r);
    r.opts.world = 2;
    r.opts.bootstrap = &other;
    r.opts.key_file = path;
    fake_key(r.fake, bytes);
    must_fail(hearth_open(&r.opts, &r.h, &err), HEARTH_EAUTH);
    cr_assert(ne(ptr, strstr(err.text, "rank 1 (node 'fake') brings no proof"), NULL), "%s",
            err.text);
    proved = 1;
    cr_assert(eq(int, hearth_open(&r.opts, &r.h, &err), 0), "%s", err.text);
    hearth_close(r.h, HEARTH_KEEP);
    r.opts.key_file = NULL; /* the other has one */
    must_fail(hearth_open(&r.opts, &r.h, &err), HEARTH_EAUTH);
    cr_assert(
            ne(ptr, strstr(err.text, "rank 1 (node 'fake') has a job key and we have none"), NULL),
            "%s", err.text);
    r.h = NULL;
    unlink(path);
    rank_end(&r);
}

static uint64_t highest[4]; /* that the row of each round says its rank has seen */
static uint32_t rounds;

static int gather_noted(
        void *self, const void *mine, size_t len, void *all, struct hearth_error *err)
{
    struct hth_gather g;

    must(hth_gather_decode(&g, mine, NULL));
    highest[rounds++] = g.highest_epoch;
    return gather_other(self, mine, len, all, err);
}

Test(open, who_joins_again_brings_the_number_of_the_epoch_it_was_in)
{
    struct hearth_bootstrap other = { .struct_size = sizeof(other), .allgather = gather_noted };
    struct hearth_checkpoint *none;
    struct rank r;

    rank_start(&r);
    r.opts.world = 2;
    r.opts.bootstrap = &other;
    must(hearth_open(&r.opts, &r.h, NULL));
    for (int i = 0; i < 3; i++)
        must(hearth_recover(r.h, NULL, &none, NULL));
    cr_assert(eq(u32, rounds, 3)); /* the first recovery is of the epoch that open joined */
    cr_assert(lt(u64, highest[0], highest[1]));
    cr_assert(lt(u64, highest[1], highest[2]));
    rank_end(&r);
}

Test(open, a_socket_path_longer_than_sun_path_works)
{
    struct rank r;
    char deep[300];

    rank_start(&r);
    fake_stop(r.fake);
    snprintf(deep, sizeof(deep), "%s/%0120d", r.root, 7);
    cr_assert(eq(int, mkdir(deep, 0700), 0));
    r.fake = fake_start(deep, "job");
    r.opts.root = deep;
    rank_open(&r);
    rank_end(&r);
}

Test(open, two_jobs_live_in_one_process)
{
    struct rank r;
    struct fake_engine *other;
    struct hearth_opts o;
    struct hearth *h;
    float a = 1, b = 2;
    struct hearth_piece pa = rank_piece("x", &a, 0, NULL), pb = rank_piece("x", &b, 0, NULL);
    struct hearth_checkpoint *ckpt;

    rank_start(&r);
    rank_open(&r);
    other = fake_start(r.root, "other");
    o = r.opts;
    o.job = "other";
    must(hearth_open(&o, &h, NULL));
    must(hearth_recover(h, NULL, &ckpt, NULL));
    rank_save(r.h, 1, &pa, 1, NULL, 0);
    rank_save(h, 1, &pb, 1, NULL, 0);
    ckpt = rank_recover(r.h, 1);
    a = 0;
    must(hearth_load(ckpt, &pa, 1, 0, NULL, NULL));
    cr_assert(epsilon_eq(flt, a, 1.0f, 0.0f));
    hearth_checkpoint_close(ckpt);
    hearth_close(h, HEARTH_DROP);
    cr_assert(eq(u32, fake_counts(other).drops, 1));
    cr_assert(eq(u32, fake_counts(r.fake).closes, 0));
    fake_stop(other);
    rank_end(&r);
}

Test(open, a_helper_joins_nothing_and_comes_second)
{
    struct rank r;
    struct hearth_opts o;
    struct hearth *helper = NULL;
    struct hearth_error err = { 0 };
    struct hearth_checkpoint *ckpt = NULL;
    float x = 4;
    struct hearth_piece piece = rank_piece("x", &x, 0, NULL);

    rank_start(&r);
    o = r.opts;
    o.helper = 1;
    must_fail(hearth_open(&o, &helper, &err), HEARTH_ESTATE);
    rank_open(&r);
    rank_save(r.h, 3, &piece, 1, NULL, 0);
    must(hearth_open(&o, &helper, &err), err);
    must(hearth_recover(helper, NULL, &ckpt, &err), err);
    x = 0;
    must(hearth_load(ckpt, &piece, 1, 0, NULL, &err), err);
    cr_assert(epsilon_eq(flt, x, 4.0f, 0.0f));
    hearth_checkpoint_close(ckpt);
    hearth_close(helper, HEARTH_KEEP);
    rank_end(&r);
}

Test(open, off_makes_every_call_a_cheap_success_that_says_so)
{
    struct rank r;
    struct hearth_save *save;
    struct hearth_handle *handle;
    struct hearth_checkpoint *ckpt = (void *)1;
    struct hearth_status st = { .struct_size = sizeof(st) };
    char text[300] = "";
    uint32_t level;
    void *place = NULL;
    float x[16] = { 0 };
    int64_t n = 16;
    struct hearth_piece piece = rank_piece("x", x, 1, &n);

    rank_start(&r);
    fake_stop(r.fake);
    r.fake = NULL;
    r.opts.off = 1;
    r.opts.root = "/nosuchroot";
    must(hearth_open(&r.opts, &r.h, NULL));
    must(hearth_recover(r.h, NULL, &ckpt, NULL));
    cr_assert(eq(ptr, ckpt, NULL));
    must(hearth_save_begin(r.h, 1, 1 << 20, NULL, &save, NULL));
    must(hearth_save_add(save, &piece, 1, NULL));
    must(hearth_save_reserve(save, &piece, 1, &place, NULL));
    memset(place, 7, sizeof(x));
    must(hearth_save_put_common(save, ".metadata", "m", 1, NULL));
    must(hearth_save_next_object(save, NULL, 1 << 20, NULL));
    must(hearth_save_commit(save, &handle, NULL));
    must(hearth_wait(handle, HEARTH_PROTECTED, 1, NULL));
    must(hearth_test(handle, &st, NULL));
    cr_assert(eq(u32, st.level, HEARTH_OFF));
    must(hearth_cancel(handle, NULL));
    hearth_handle_close(handle);
    cr_assert(eq(int, hearth_log_poll(r.h, &level, text, sizeof(text)), 1));
    cr_assert(eq(u32, level, HEARTH_LOG_WARN));
    cr_assert(eq(int, hearth_log_poll(r.h, &level, text, sizeof(text)), 0));
    rank_end(&r);
}

Test(open, null_arguments_are_refused)
{
    must_fail(hearth_open(NULL, NULL, NULL), HEARTH_EINVAL);
    must_fail(hearth_recover(NULL, NULL, NULL, NULL), HEARTH_EINVAL);
    must_fail(hearth_save_begin(NULL, 1, 1, NULL, NULL, NULL), HEARTH_EINVAL);
    must_fail(hearth_save_commit(NULL, NULL, NULL), HEARTH_EINVAL);
    must_fail(hearth_wait(NULL, HEARTH_SEALED, 1, NULL), HEARTH_EINVAL);
    must_fail(hearth_load(NULL, NULL, 0, 0, NULL, NULL), HEARTH_EINVAL);
    must_fail(hearth_item_at(NULL, 0, 0, NULL, NULL), HEARTH_EINVAL);
    hearth_close(NULL, HEARTH_KEEP);
    hearth_save_abort(NULL);
    hearth_handle_close(NULL);
    hearth_checkpoint_close(NULL);
    hearth_view_close(NULL, NULL);
    hearth_report_close(NULL);
    hearth_bootstrap_close(NULL);
}
