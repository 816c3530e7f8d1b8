/* SPDX-License-Identifier: Apache-2.0 */
/* The library with hearthd itself, on one node: started, found, killed, in this process. */
#include "check.h"
#include "engines.h"
#include "rank.h"
#include "tmp_root.h"

#include "client/read/checkpoint.h"
#include "client/read/fetch.h"
#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <glob.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static struct rank r;

/* Engines are no children of the test: each test kills its own, whether it passes or fails. */
static void end_engine(void)
{
    cr_assert(ge(int, engines_signal(r.root, NULL, SIGKILL), 0));
}

static void start(void)
{
    static char hearthd[512];
    const char *bin = getenv("HEARTH_TEST_BIN");

    rank_start(&r);
    fake_stop(r.fake);
    r.fake = NULL;
    r.opts.start = HEARTH_START_AUTO;
    r.opts.transport = "tcp"; /* what auto would ask first takes time */
    r.opts.open_ms = 20000;
    r.opts.linger_s = 20; /* a test that is killed leaves no engine for long */
    if (bin) {
        snprintf(hearthd, sizeof(hearthd), "%s/hearthd", bin);
        r.opts.engine = hearthd;
    }
}

static void end(void)
{
    hearth_close(r.h, HEARTH_KEEP);
    end_engine();
    tmp_root_remove(r.root);
}

static pid_t find_engine(void)
{
    char text[1200] = "";
    const char *at = NULL;
    pid_t engine;

    while (!at && hearth_log_poll(r.h, NULL, text, sizeof(text)))
        at = strstr(text, "engine pid ");
    cr_assert(ne(ptr, (void *)(uintptr_t)at, NULL));
    engine = (pid_t)strtol(at + 11, NULL, 10);
    cr_assert(gt(int, (int)engine, 1)); /* kill(0) would be us */
    return engine;
}

static void save_float(uint64_t step, float x)
{
    struct hearth_piece piece = rank_piece("x", &x, 0, NULL);

    rank_save(r.h, step, &piece, 1, NULL, 0);
}

static float load_float(struct hearth_checkpoint *c)
{
    float x = -1;
    struct hearth_piece piece = rank_piece("x", &x, 0, NULL);
    struct hearth_error err = { 0 };

    cr_assert(eq(int, hearth_load(c, &piece, 1, 0, NULL, &err), 0), "%s", err.text);
    hearth_checkpoint_close(c);
    return x;
}

/* Beside the library, or in PATH. */
Test(real, an_engine_that_is_not_named_is_found)
{
    const char *bin = getenv("HEARTH_TEST_BIN"), *path = getenv("PATH");
    char both[4096];

    start();
    snprintf(both, sizeof(both), "%s:%s", bin ? bin : ".", path ? path : "");
    setenv("PATH", both, 1);
    r.opts.engine = NULL;
    rank_open(&r);
    save_float(1, 1);
    end();
}

Test(real, a_second_process_recovers_what_the_first_one_saved)
{
    int status;
    pid_t child;

    start();
    child = fork();
    if (child == 0) { /* ends after its save, and does not close */
        rank_open(&r);
        save_float(4, 2.5f);
        _exit(0);
    }
    waitpid(child, &status, 0);
    cr_assert(eq(int, status, 0));
    must(hearth_open(&r.opts, &r.h, NULL));
    cr_assert(epsilon_eq(flt, load_float(rank_recover(r.h, 4)), 2.5f, 0.0f));
    save_float(5, 3.5f);
    end();
}

/* All descriptors that the limit leaves; how many. */
static int take_descriptors(int fd[64])
{
    struct rlimit few;
    int n = 0;

    must(getrlimit(RLIMIT_NOFILE, &few));
    few.rlim_cur = 64;
    must(setrlimit(RLIMIT_NOFILE, &few));
    while (n < 64 && (fd[n] = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0)
        n++;
    return n;
}

static void save_two(uint64_t step, int again)
{
    float x = 1.5f, y = 2.5f;
    struct hearth_piece a = rank_piece("x", &x, 0, NULL), b = rank_piece("y", &y, 0, NULL);
    struct hearth_handle *handle = NULL;
    struct hearth_save *save;
    struct hearth_error err = { 0 };
    int fd[64], n;

    must(hearth_save_begin(r.h, step, 8192, NULL, &save, &err), err);
    must(hearth_save_add(save, &a, 1, &err), err);
    n = take_descriptors(fd);
    must_fail(hearth_save_next_object(save, "second", 8192, &err), HEARTH_EPROTO);
    cr_assert(ne(ptr, strstr(err.text, "no descriptor"), NULL), "%s", err.text);
    while (n)
        close(fd[--n]);
    if (again) {
        must(hearth_save_next_object(save, "second", 8192, &err), err);
        must(hearth_save_add(save, &b, 1, &err), err);
    }
    cr_assert(eq(int, hearth_save_commit(save, &handle, &err), 0), "%s", err.text);
    cr_assert(eq(int, hearth_wait(handle, HEARTH_PROTECTED, 20000, &err), 0), "%s", err.text);
    hearth_handle_close(handle);
}

Test(real, a_further_object_that_has_not_come_may_be_asked_for_again_or_left_out)
{
    struct hearth_checkpoint *c;
    float y = 0;
    struct hearth_piece piece = rank_piece("y", &y, 0, NULL);

    start();
    rank_open(&r);
    save_two(4, 0);
    save_two(5, 1);
    c = rank_recover(r.h, 5);
    must(hearth_load(c, &piece, 1, 0, NULL, NULL));
    cr_assert(epsilon_eq(flt, y, 2.5f, 0.0f));
    hearth_checkpoint_close(c);
    end();
}

/* Of the objects that this process has open: all only to be read; how many. */
static int open_objects(void)
{
    DIR *dir = opendir("/proc/self/fd");
    struct dirent *entry;
    int count = 0;

    while ((entry = readdir(dir))) {
        char path[300] = "";
        int fd = atoi(entry->d_name);

        if (readlinkat(dirfd(dir), entry->d_name, path, sizeof(path) - 1) < 0 ||
                !strstr(path, ".distcp"))
            continue;
        count++;
        cr_assert(eq(int, fcntl(fd, F_GETFL) & O_ACCMODE, O_RDONLY), "%s can be written", path);
    }
    closedir(dir);
    return count;
}

Test(real, what_a_rank_reads_it_is_given_to_read_only)
{
    struct hearth_checkpoint *c;
    float x = 0;
    struct hearth_piece piece = rank_piece("x", &x, 0, NULL);

    start();
    rank_open(&r);
    save_float(4, 2.5f);
    c = rank_recover(r.h, 4);
    must(hearth_load(c, &piece, 1, 0, NULL, NULL));
    cr_assert(gt(int, open_objects(), 0));
    hearth_checkpoint_close(c);
    end();
}

/* Nanoseconds that its threads had a processor: all of them, or its engine's thread alone. */
static uint64_t cpu_ns(pid_t engine, int all)
{
    char path[64], line[128];
    uint64_t ns = 0;
    struct dirent *e;
    DIR *dir;

    snprintf(path, sizeof(path), "/proc/%d/task", (int)engine);
    dir = opendir(path);
    cr_assert(ne(ptr, dir, NULL));
    while ((e = readdir(dir))) {
        FILE *f;

        if (e->d_name[0] == '.' || (!all && atoi(e->d_name) != (int)engine))
            continue;
        snprintf(path, sizeof(path), "/proc/%d/task/%.20s/schedstat", (int)engine, e->d_name);
        f = fopen(path, "re");
        cr_assert(ne(ptr, f, NULL), "%s", path);
        cr_assert(ne(ptr, fgets(line, sizeof(line), f), NULL));
        ns += strtoull(line, NULL, 10);
        fclose(f);
    }
    closedir(dir);
    return ns;
}

/* That thread also says to the peers that this node lives. */
Test(real, the_engines_thread_copies_no_long_answer)
{
    int64_t shape = 16 * 1024 * 1024;
    float *x = calloc((size_t)shape, sizeof(*x)), got = 0;
    struct hearth_piece piece = rank_piece("x", x, 1, &shape);
    uint64_t len = (uint64_t)shape * sizeof(*x), all, own;
    struct hth_local_bytes a;
    struct hearth_checkpoint *c;
    pid_t pid;
    int fd;

    start();
    rank_open(&r);
    pid = find_engine();
    x[shape - 1] = 2.5f;
    rank_save(r.h, 4, &piece, 1, NULL, 0);
    c = rank_recover(r.h, 4);
    cr_assert(zero(int, engines_settle(r.root, NULL)), "the engine does not come to rest");
    all = cpu_ns(pid, 1);
    own = cpu_ns(pid, 0);
    must(hth_range(r.h, c->save, c->source[0].object->id,
            c->source[0].object->data_len + HTH_BLOCK - len, len, &a, &fd, NULL));
    cr_assert(eq(int, (int)pread(fd, &got, sizeof(got), (off_t)(len - sizeof(got))), 4));
    cr_assert(epsilon_eq(flt, got, 2.5f, 0.0f));
    close(fd);
    own = cpu_ns(pid, 0) - own;
    all = cpu_ns(pid, 1) - all;
    cr_assert(lt(u64, own * 4, all), "%llu of %llu us are the engine's thread's",
            (unsigned long long)own / 1000, (unsigned long long)all / 1000);
    hearth_checkpoint_close(c);
    free(x);
    end();
}

static void count_pool(char out[64])
{
    char line[256] = "";
    FILE *f;

    snprintf(line, sizeof(line),
            "find %s/job/.hearth/pool -size +33000k -printf '%%k\\n' | awk "
            "'$1 >= 33000 { n++ } END { print n + 0 }'",
            r.root);
    f = popen(line, "re");
    cr_assert(ne(ptr, f, NULL));
    cr_assert(ne(ptr, fgets(out, 64, f), NULL));
    pclose(f);
}

/* Until it says that, or for 10 s. */
static void wait_pool(char out[64], const char *wanted)
{
    count_pool(out);
    for (int i = 0; i < 1000 && strcmp(out, wanted) != 0; i++) {
        usleep(10000);
        count_pool(out);
    }
}

/* A rank that did not say how large its saves are has said it with the first one. */
Test(real, the_slot_of_the_second_save_is_made_when_the_first_one_is_handed_over)
{
    int64_t shape = 8 * 1024 * 1024;
    float *x = calloc((size_t)shape, sizeof(*x));
    struct hearth_piece piece = rank_piece("x", x, 1, &shape);
    char count[64] = "";

    start();
    r.opts.object_count = 0;
    rank_open(&r);
    rank_save(r.h, 1, &piece, 1, NULL, 0);
    wait_pool(count, "1\n");
    must_say(count, "1\n"); /* with memory behind it, and no more than the promise needs */
    for (uint64_t step = 2; step < 5; step++)
        rank_save(r.h, step, &piece, 1, NULL, 0);
    cr_assert(zero(int, engines_settle(r.root, NULL)), "the engine does not come to rest");
    wait_pool(count, "1\n");
    must_say(count, "1\n");
    free(x);
    end();
}

/* Not in a session of its own: Linux may schedule each session as one, and lets that of an engine
 * wait. */
Test(real, the_engine_is_nobodys_child_and_in_a_process_group_of_its_own)
{
    pid_t pid;

    start();
    rank_open(&r);
    pid = find_engine();
    cr_assert(lt(int, (int)waitpid(-1, NULL, WNOHANG), 0));
    cr_assert(eq(int, (int)getsid(pid), (int)getsid(0)));
    cr_assert(ne(int, (int)getpgid(pid), (int)getpgrp()));
    end();
}

Test(real, a_session_that_ends_does_not_end_its_engine)
{
    char exe[32];
    pid_t pid;

    start();
    rank_open(&r);
    pid = find_engine();
    cr_assert(eq(int, kill(pid, SIGHUP), 0));
    save_float(1, 1);
    snprintf(exe, sizeof(exe), "/proc/%d/exe", (int)pid);
    cr_assert(
            eq(int, access(exe, F_OK), 0), "the engine is gone"); /* of a zombie it leads nowhere */
    cr_assert(epsilon_eq(flt, load_float(rank_recover(r.h, 1)), 1.0f, 0.0f));
    end();
}

Test(real, more_than_one_object_bytes_and_common_come_back)
{
    struct hearth_error err = { 0 };
    char data[] = "rng";
    float x = 1, y = 2;
    struct hearth_piece px = rank_piece("x", &x, 0, NULL), py = rank_piece("y", &y, 0, NULL);
    struct hearth_bytes b = {
        .struct_size = sizeof(b), .key = "b", .key_len = 1, .data = data, .len = sizeof(data)
    };
    struct hearth_item item = { .struct_size = sizeof(item) };
    struct hearth_view view = { .struct_size = sizeof(view) };
    struct hearth_checkpoint *c;
    struct hearth_handle *handle;
    struct hearth_save *save;
    char got[4] = "";
    void *meta = NULL;
    size_t len = 0;

    start();
    rank_open(&r);
    must(hearth_save_begin(r.h, HEARTH_STEP_LATER, 8192, NULL, &save, &err), err);
    must(hearth_save_add(save, &px, 1, &err), err);
    must(hearth_save_add_bytes(save, &b, 1, &err), err);
    must(hearth_save_put_common(save, ".metadata", "meta", 4, &err), err);
    must(hearth_save_next_object(save, "second", 8192, &err), err);
    must(hearth_save_add(save, &py, 1, &err), err);
    must(hearth_save_set_step(save, 9, &err), err);
    cr_assert(eq(int, hearth_save_commit(save, &handle, &err), 0), "%s", err.text);
    cr_assert(eq(int, hearth_wait(handle, HEARTH_PROTECTED, 20000, &err), 0), "%s", err.text);
    hearth_handle_close(handle);
    c = rank_recover(r.h, 9);
    must(hearth_item_find(c, "b", 1, &item, 1, &len, &err), err);
    must(hearth_read_bytes(c, &item, 0, got, 4, &err), err);
    must_say(got, "rng");
    must(hearth_item_find(c, "y", 1, &item, 1, &len, &err), err);
    must(hearth_view_open(c, &item, &view, &err), err);
    cr_assert(eq(int, hearth_read_common(c, ".metadata", &meta, &len, &err), 0), "%s", err.text);
    cr_assert(zero(int, memcmp(meta, "meta", 4)));
    hearth_free(meta);
    hearth_checkpoint_close(c);
    for (uint64_t step = 10; step < 16; step++) /* the view stays what it is */
        save_float(step, (float)step);
    cr_assert(zero(int, memcmp(view.data, &y, sizeof(y))));
    hearth_view_close(r.h, &view);
    end();
}

static uint64_t bytes_found;

static int add_bytes(const char *path, const struct stat *st, int type, struct FTW *at)
{
    (void)path, (void)at;
    if (type == FTW_F)
        bytes_found += (uint64_t)st->st_size;
    return 0;
}

/* The lengths of all files under a directory. */
static uint64_t bytes_under(const char *path)
{
    bytes_found = 0;
    cr_assert(zero(int, nftw(path, add_bytes, 16, FTW_PHYS)));
    return bytes_found;
}

#define LARGE (UINT64_C(30) << 20)

/* A job of one node that has declared its object of LARGE bytes. The tensor is the caller's. */
static float *start_large(struct hearth_piece *out_piece, int64_t *n)
{
    static const uint64_t bytes[] = { LARGE };
    float *x;

    *n = (LARGE - 65536) / (int64_t)sizeof(*x);
    x = calloc((size_t)*n, sizeof(*x));
    cr_assert(ne(ptr, x, NULL));
    *out_piece = rank_piece("x", x, 1, n);
    start();
    r.opts.object_bytes = bytes;
    r.opts.object_count = 1;
    rank_open(&r);
    return x;
}

/* keep is 1: two slots of 17/16 of it, and records. No other node's copy can move here. */
Test(real, object_bytes_at_open_make_the_memory_of_keep_and_one_saves_and_no_more)
{
    struct hearth_piece piece;
    int64_t n;
    float *x = start_large(&piece, &n);

    cr_assert(ge(u64, bytes_under(r.root), 2 * LARGE));
    for (uint64_t step = 1; step < 6; step++) {
        rank_fill(x, (size_t)n, (float)step);
        rank_save(r.h, step, &piece, 1, NULL, 0);
    }
    cr_assert(le(u64, bytes_under(r.root), 2 * LARGE + LARGE / 5));
    free(x);
    end();
}

/* Where there is room a slot is made for the next save. */
Test(real, a_reader_that_keeps_an_older_save_does_not_stop_saves)
{
    struct hearth_view view = { .struct_size = sizeof(view) };
    struct hearth_piece piece;
    struct hearth_checkpoint *c;
    struct hearth_item item = { .struct_size = sizeof(item) };
    struct hearth_error err = { 0 };
    size_t count;
    int64_t n;
    float *x = start_large(&piece, &n);

    rank_save(r.h, 1, &piece, 1, NULL, 0);
    c = rank_recover(r.h, 1);
    must(hearth_item_find(c, "x", 1, &item, 1, &count, &err), err);
    must(hearth_view_open(c, &item, &view, &err), err);
    for (uint64_t step = 2; step < 6; step++)
        rank_save(r.h, step, &piece, 1, NULL, 0);
    cr_assert(le(u64, bytes_under(r.root), 4 * LARGE + LARGE / 3));
    hearth_view_close(r.h, &view);
    hearth_checkpoint_close(c);
    free(x);
    end();
}

/* Steps 2 to 5, each begun without a wait or as one whose step comes later. */
static void four_more_saves(const struct hearth_piece *piece, int staged)
{
    struct hearth_begin_opts o = { .struct_size = sizeof(o), .wait_ms = 5000 };
    struct hearth_error err = { 0 };
    struct hearth_handle *handle;
    struct hearth_save *save;

    for (uint64_t step = 2; step < 6; step++) {
        must(hearth_save_begin(r.h, staged ? HEARTH_STEP_LATER : step,
                     hearth_save_bytes(piece, 1, NULL, 0), &o, &save, &err),
                err);
        must(hearth_save_add(save, piece, 1, &err), err);
        if (staged)
            must(hearth_save_set_step(save, step, &err), err);
        must(hearth_save_commit(save, &handle, &err), err);
        must(hearth_wait(handle, HEARTH_PROTECTED, 20000, &err), err);
        hearth_handle_close(handle);
    }
}

static void saves_go_on_beside_a_view(const struct hearth_piece *piece, int staged)
{
    struct hearth_view view = { .struct_size = sizeof(view) };
    struct hearth_item item = { .struct_size = sizeof(item) };
    struct hearth_checkpoint *c = rank_recover(r.h, 1);
    struct hearth_error err = { 0 };
    size_t count;

    must(hearth_item_find(c, "x", 1, &item, 1, &count, &err), err);
    must(hearth_view_open(c, &item, &view, &err), err);
    four_more_saves(piece, staged);
    hearth_view_close(r.h, &view);
    hearth_checkpoint_close(c);
}

Test(real, a_reader_does_not_stop_staged_saves)
{
    struct hearth_piece piece;
    int64_t n;
    float *x = start_large(&piece, &n);

    rank_save(r.h, 1, &piece, 1, NULL, 0);
    saves_go_on_beside_a_view(&piece, 1);
    free(x);
    end();
}

Test(real, a_reader_does_not_stop_saves_whose_sizes_the_epoch_before_declared)
{
    struct hearth_piece piece;
    int64_t n;
    float *x = start_large(&piece, &n);

    rank_save(r.h, 1, &piece, 1, NULL, 0);
    hearth_close(r.h, HEARTH_KEEP);
    r.opts.object_bytes = NULL;
    r.opts.object_count = 0;
    must(hearth_open(&r.opts, &r.h, NULL));
    saves_go_on_beside_a_view(&piece, 0);
    free(x);
    end();
}

/* As cp or rsync, which have no lease. */
Test(real, a_program_that_has_a_file_of_an_older_save_open_does_not_stop_saves)
{
    struct hearth_piece piece;
    char pattern[600];
    int64_t n;
    float *x = start_large(&piece, &n);
    glob_t files;
    int fd;

    rank_save(r.h, 1, &piece, 1, NULL, 0);
    snprintf(pattern, sizeof(pattern), "%s/*/step-1_ckpt/*.distcp", r.root);
    cr_assert(zero(int, glob(pattern, 0, NULL, &files)));
    fd = open(files.gl_pathv[0], O_RDONLY | O_CLOEXEC);
    cr_assert(ge(int, fd, 0));
    globfree(&files);
    four_more_saves(&piece, 0);
    close(fd);
    free(x);
    end();
}

Test(real, an_engine_that_cannot_start_says_why)
{
    struct hearth_error err = { 0 };

    start();
    r.opts.provider = "no-such-provider";
    must_fail(hearth_open(&r.opts, &r.h, &err), HEARTH_EENGINE);
    cr_assert(ne(ptr, strstr(err.text, "no-such-provider"), NULL), "%s", err.text);
    r.h = NULL;
    end();
}

static uint64_t now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

/* Open waits 3 s for another rank's engine where the reason may pass. */
Test(real, an_engine_that_is_refused_for_good_is_an_error_at_once)
{
    static const char *const says[] = { "cannot listen on 192.0.2.1", "has mode 770",
        "is damaged" };
    char job[128], path[200];

    start();
    snprintf(job, sizeof(job), "%s/%s/.hearth", r.root, r.opts.job);
    for (int i = 0; i < 3; i++) {
        struct hearth_error err = { 0 };
        uint64_t from = now_ms();

        r.opts.bind = i == 0 ? "192.0.2.1" : NULL;
        r.opts.network = i == 0 ? HEARTH_NETWORK_TRUSTED : HEARTH_NETWORK_HOSTILE;
        cr_assert(zero(int, chmod(job, i == 1 ? 0770 : 0700)));
        snprintf(path, sizeof(path), "%s/store", job);
        cr_assert(zero(int, i == 2 ? truncate(path, 1) : 0), "%s", path);
        must_fail(hearth_open(&r.opts, &r.h, &err), HEARTH_EENGINE);
        cr_assert(ne(ptr, strstr(err.text, says[i]), NULL), "%s", err.text);
        cr_assert(lt(u64, now_ms() - from, 3000), "%s", err.text);
        r.h = NULL;
    }
    end();
}

/* As where several ranks start one each, and threads are short. */
Test(real, an_engine_that_failed_for_now_leaves_time_for_another_ranks)
{
    struct hearth_error err = { 0 };
    char path[128];
    FILE *f;

    start();
    snprintf(path, sizeof(path), "%s/engine.sh", r.root);
    f = fopen(path, "we");
    cr_assert(f && fchmod(fileno(f), 0700) == 0);
    fprintf(f,
            "#!/bin/sh\n(sleep 0.5; exec '%s' \"$@\") >/dev/null 2>&1 &\n"
            "echo 'hearthd ended with status 1: cannot start 2 worker threads' >&2\nexit 1\n",
            r.opts.engine);
    cr_assert(zero(int, fclose(f)));
    r.opts.engine = path;
    cr_assert(zero(int, hearth_open(&r.opts, &r.h, &err)), "%s", err.text);
    end();
}

/* Open fails where the engine does not prove the rank's key. */
Test(real, an_engine_is_given_the_key_by_descriptor_and_can_gain_no_rights)
{
    int fd = memfd_create("key", MFD_CLOEXEC);
    struct hearth_error err = { 0 };
    char name[64], line[128], secret[32];
    int bound = 0;
    FILE *f;

    start();
    cr_assert(eq(long, (long)getrandom(secret, sizeof(secret), 0), 32L));
    cr_assert(eq(long, (long)write(fd, secret, sizeof(secret)), 32L));
    snprintf(name, sizeof(name), "fd:%d", fd);
    r.opts.key_file = name;
    cr_assert(zero(int, hearth_open(&r.opts, &r.h, &err)), "%s", err.text);
    snprintf(line, sizeof(line), "/proc/%ld/status", (long)find_engine());
    f = fopen(line, "re");
    while (f && fgets(line, sizeof(line), f))
        bound |= !strncmp(line, "NoNewPrivs:\t1", 13);
    cr_assert(f && bound);
    fclose(f);
    close(fd);
    end();
}

/* A signal that is meant for the engine before may hit the next one too, before that reports
 * anything. */
Test(real, an_engine_that_is_killed_at_its_start_is_started_again)
{
    char path[128];
    FILE *f;
    struct hearth_error err = { 0 };

    start();
    snprintf(path, sizeof(path), "%s/engine.sh", r.root);
    f = fopen(path, "we");
    cr_assert(f && fchmod(fileno(f), 0700) == 0);
    fprintf(f, "#!/bin/sh\n[ -e '%s/once' ] && exec '%s' \"$@\"\n: >'%s/once'\nkill -9 $$\n",
            r.root, r.opts.engine, r.root);
    cr_assert(zero(int, fclose(f)));
    r.opts.engine = path;
    cr_assert(zero(int, hearth_open(&r.opts, &r.h, &err)), "%s", err.text);
    snprintf(path, sizeof(path), "%s/once", r.root);
    cr_assert(zero(int, access(path, F_OK)), "the first one was not killed");
    end();
}

/* As in an image without one, or where it does not answer. */
Test(real, no_shell_is_needed_to_start_an_engine)
{
    struct hearth_error err = { 0 };
    char shell[128];

    if (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL))
        cr_skip_test("no right to mount");
    start();
    cr_assert(ne(ptr, realpath("/bin/sh", shell), NULL));
    cr_assert(zero(int, mount("/dev/null", shell, NULL, MS_BIND, NULL)));
    cr_assert(zero(int, hearth_open(&r.opts, &r.h, &err)), "%s", err.text);
    cr_assert(zero(int, umount(shell))); /* the world is removed by one */
    end();
}

Test(real, in_process_runs_the_same_engine)
{
    start();
    r.opts.start = HEARTH_START_IN_PROCESS;
    rank_open(&r);
    save_float(3, 1.25f);
    hearth_close(r.h, HEARTH_KEEP);
    must(hearth_open(&r.opts, &r.h, NULL));
    cr_assert(epsilon_eq(flt, load_float(rank_recover(r.h, 3)), 1.25f, 0.0f));
    hearth_close(r.h, HEARTH_KEEP);
    tmp_root_remove(r.root);
}

/* Other processes ask the libraries, and this one loads what it takes. */
Test(real, one_in_process_chooses_its_fabric_and_says_which)
{
    char text[1200];
    int said = 0;

    start();
    r.opts.start = HEARTH_START_IN_PROCESS;
    r.opts.transport = NULL;
    rank_open(&r);
    while (hearth_log_poll(r.h, NULL, text, sizeof(text)))
        said += strstr(text, ": tcp is the best that any node has, and all have it") != NULL;
    cr_assert(eq(int, said, 1));
    save_float(3, 1.25f);
    hearth_close(r.h, HEARTH_KEEP);
    tmp_root_remove(r.root);
}

Test(real, without_enough_nodes_open_says_what_to_do)
{
    struct hearth_error err = { 0 };

    start();
    r.opts.allow_degraded = 0;
    cr_assert(ne(int, hearth_open(&r.opts, &r.h, &err), 0));
    cr_assert(ne(ptr, strstr(err.text, "allow_degraded"), NULL), "%s", err.text);
    r.h = NULL;
    end();
}
