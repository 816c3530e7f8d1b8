/* SPDX-License-Identifier: Apache-2.0 */
/* A rank whose engine is stopped, or dies: what each call may wait, and what is kept. With hearthd
 * itself. */
#include "check.h"
#include "engines.h"
#include "rank.h"
#include "tmp_root.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define ROOM (UINT64_C(1) << 20)

static struct rank r;
static struct hearth_error err;
static uint64_t object_bytes[1] = { ROOM };
static float x = 1.5f;
static int strong;

static void start(const char *stop_point)
{
    static char hearthd[512];
    const char *bin = getenv("HEARTH_TEST_BIN");

    rank_start(&r);
    fake_stop(r.fake);
    r.fake = NULL;
    r.opts.start = HEARTH_START_AUTO;
    r.opts.open_ms = 20000;
    r.opts.linger_s = 20;
    r.opts.integrity = strong ? HEARTH_INTEGRITY_STRONG : HEARTH_INTEGRITY_CRC32C;
    r.opts.object_bytes = object_bytes;
    r.opts.object_count = 1;
    if (bin) {
        snprintf(hearthd, sizeof(hearthd), "%s/hearthd", bin);
        r.opts.engine = hearthd;
    }
    if (stop_point)
        setenv("HEARTH_STOP_POINT", stop_point, 1);
    rank_open(&r);
    unsetenv("HEARTH_STOP_POINT"); /* the next one goes on */
}

static void signal_engine(int sig)
{
    cr_assert(ge(int, engines_signal(r.root, NULL, sig), 1));
}

static void end(void)
{
    hearth_close(r.h, HEARTH_KEEP);
    engines_signal(r.root, NULL, SIGCONT);
    cr_assert(ge(int, engines_signal(r.root, NULL, SIGKILL), 0));
    tmp_root_remove(r.root);
}

/* ---- how long a call took
 * ---------------------------------------------------------------------------------------------- */

static uint64_t now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static struct {
    const char *what;
    uint64_t since_ms;
} call;

static void before(const char *what)
{
    call.what = what;
    call.since_ms = now_ms();
}

static void waited_at_most(uint64_t ms)
{
    uint64_t took = now_ms() - call.since_ms;

    cr_assert(le(u64, took, ms), "%s took %llu ms", call.what, (unsigned long long)took);
}

static void waited_at_least(uint64_t ms)
{
    cr_assert(ge(u64, now_ms() - call.since_ms, ms), "%s", call.what);
}

static struct hearth_save *begin(uint64_t step)
{
    struct hearth_save *save = NULL;
    int rc = hearth_save_begin(r.h, step, 8192, NULL, &save, &err);

    cr_assert(eq(int, rc, 0), "%s", err.text);
    return save;
}

static void add(struct hearth_save *save)
{
    struct hearth_piece piece = rank_piece("x", &x, 0, NULL);

    cr_assert(zero(int, hearth_save_add(save, &piece, 1, &err)), "%s", err.text);
}

/* Waits until the slot lent ahead has come: the next begin then asks no engine. */
static void settle(void)
{
    cr_assert(zero(int, engines_settle(r.root, NULL)), "the engine does not come to rest");
}

static void save_whole(uint64_t step)
{
    struct hearth_handle *handle = NULL;
    struct hearth_save *save = begin(step);

    add(save);
    cr_assert(zero(int, hearth_save_commit(save, &handle, &err)), "%s", err.text);
    cr_assert(zero(int, hearth_wait(handle, HEARTH_PROTECTED, 20000, &err)), "%s", err.text);
    hearth_handle_close(handle);
}

static float loaded(struct hearth_checkpoint *c)
{
    float got = -1;
    struct hearth_piece piece = rank_piece("x", &got, 0, NULL);

    cr_assert(zero(int, hearth_load(c, &piece, 1, 0, NULL, &err)), "%s", err.text);
    return got;
}

/* tests/api/test_waits.c has the calls that do not wait for it. */
Test(stopped, calls_that_bring_something_back_end_in_their_time, .timeout = 60)
{
    struct hearth_begin_opts patient = { .struct_size = sizeof(patient), .wait_ms = 300 };
    struct hearth_status st = { .struct_size = sizeof(st) };
    struct hearth_handle *handle = NULL;
    struct hearth_save *save, *none = NULL;

    start(NULL);
    save_whole(1);
    settle();
    signal_engine(SIGSTOP);
    save = begin(2); /* the slot that was lent ahead */
    add(save);
    must(hearth_save_commit(save, &handle, &err), err);
    before("wait");
    must_fail(hearth_wait(handle, HEARTH_PROTECTED, 300, &err), HEARTH_ETIMEOUT);
    waited_at_most(800);
    must(hearth_test(handle, &st, &err), err);
    cr_assert(zero(int, st.code), "%s", st.text);
    before("begin without a slot");
    must_fail(hearth_save_begin(r.h, 3, 8192, NULL, &none, &err), HEARTH_EBUSY);
    waited_at_least(5000); /* it may be making the slot */
    waited_at_most(7000);
    before("the next begin");
    must_fail(hearth_save_begin(r.h, 3, 8192, NULL, &none, &err), HEARTH_EBUSY);
    waited_at_most(200);
    before("begin with wait_ms");
    must_fail(hearth_save_begin(r.h, 3, 8192, &patient, &none, &err), HEARTH_ETIMEOUT);
    waited_at_most(800);
    hearth_handle_close(handle);
    before("close");
    hearth_close(r.h, HEARTH_KEEP);
    waited_at_most(1000); /* the copying threads end */
    r.h = NULL;
    end();
}

/* The engine receives all messages when it goes on: the save that was committed meanwhile is a save
 * like any other. */
Test(stopped, an_engine_that_goes_on_hears_all_that_was_said, .timeout = 60)
{
    struct hearth_handle *handle = NULL;
    struct hearth_checkpoint *ckpt;
    struct hearth_save *save;

    start(NULL);
    save_whole(1);
    settle();
    signal_engine(SIGSTOP);
    x = 2.5f;
    save = begin(2);
    add(save);
    must(hearth_save_put_common(save, ".metadata", "m", 1, &err), err);
    must(hearth_save_commit(save, &handle, &err), err);
    signal_engine(SIGCONT);
    cr_assert(zero(int, hearth_wait(handle, HEARTH_PROTECTED, 20000, &err)), "%s", err.text);
    hearth_handle_close(handle);
    ckpt = rank_recover(r.h, 2);
    cr_assert(epsilon_eq(flt, loaded(ckpt), 2.5f, 0.0f));
    hearth_checkpoint_close(ckpt);
    end();
}

/* Slots that lie in the pool with memory behind them, and nowhere else. */
static int pool_slots(void)
{
    char line[256], count[32] = "";
    FILE *f;

    snprintf(line, sizeof(line), "ls %s/job/.hearth/pool | wc -l", r.root);
    f = popen(line, "re");
    cr_assert(f && fgets(count, sizeof(count), f));
    pclose(f);
    return atoi(count);
}

/* The i-th call that asks for a slot, and gives up: by turns at once, a little later, without a
 * step, and for one more object of the save that is being written. */
static int give_up(struct hearth_save *save, int i)
{
    struct hearth_begin_opts patient = { .struct_size = sizeof(patient), .wait_ms = 1 };
    struct hearth_save *none = NULL;

    if (i % 4 == 3)
        return hearth_save_next_object(save, "more", 8192, &err);
    return hearth_save_begin(r.h, i % 4 == 2 ? HEARTH_STEP_LATER : 3, 8192,
            i % 4 == 1 ? &patient : NULL, &none, &err);
}

/* The save that they were made beside is given up, or goes on. */
static void a_hundred_give_up(int commit)
{
    struct hearth_handle *handle = NULL;
    struct hearth_save *save;
    int slots;

    start(NULL);
    save_whole(1);
    settle();
    slots = pool_slots();
    signal_engine(SIGSTOP);
    save = begin(2); /* the one that was lent ahead */
    add(save);
    for (int i = 0; i < 100; i++)
        cr_assert(ne(int, give_up(save, i), 0));
    if (commit)
        cr_assert(zero(int, hearth_save_commit(save, &handle, &err)), "%s", err.text);
    else
        hearth_save_abort(save);
    signal_engine(SIGCONT);
    if (commit)
        cr_assert(zero(int, hearth_wait(handle, HEARTH_PROTECTED, 20000, &err)), "%s", err.text);
    hearth_handle_close(handle);
    settle();                   /* the engine reads all hundred */
    for (int i = 0; i < 6; i++) /* more than there are slots */
        save_whole((uint64_t)i + 4);
    settle();
    /* keep + 1 slots for "more" may have been made, and stay: the rank has mapped them */
    cr_assert(le(int, pool_slots(), slots + 2));
    slots = pool_slots();
    for (int i = 0; i < 12; i++)
        save_whole((uint64_t)i + 10);
    settle();
    cr_assert(eq(int, pool_slots(), slots));
    end();
}

Test(stopped, after_a_hundred_who_gave_up_the_pool_is_whole, .timeout = 60)
{
    a_hundred_give_up(0);
}

Test(stopped, and_so_is_the_save_that_was_written_meanwhile, .timeout = 60)
{
    a_hundred_give_up(1);
}

/* ---- an engine that dies
 * --------------------------------------------------------------------------- */

/* row 10: the checksums have not begun, or not ended, and perhaps the engine has read no
 * message. */
static void killed_after_commit(const char *stop_point)
{
    struct hearth_handle *handle = NULL;
    struct hearth_checkpoint *ckpt;
    struct hearth_save *save;
    uint64_t room;
    void *at;

    start(stop_point);
    if (!stop_point)
        settle();
    if (!stop_point)
        signal_engine(SIGSTOP);
    x = 7.5f;
    save = begin(5);
    add(save);
    must(hearth_save_data(save, &at, &room, &err), err); /* so the engine makes the checksums */
    must(hearth_save_put_common(save, ".metadata", "meta", 4, &err), err);
    must(hearth_save_commit(save, &handle, &err), err);
    signal_engine(SIGKILL);
    cr_assert(zero(int, hearth_wait(handle, HEARTH_PROTECTED, 20000, &err)), "%s", err.text);
    hearth_handle_close(handle);
    ckpt = rank_recover(r.h, 5);
    cr_assert(epsilon_eq(flt, loaded(ckpt), 7.5f, 0.0f));
    hearth_checkpoint_close(ckpt);
    end();
}

Test(killed, a_save_that_was_committed_to_a_stopped_engine_is_protected_by_the_next, .timeout = 60)
{
    killed_after_commit(NULL);
}

Test(killed, a_handle_that_is_only_polled_learns_that_it_died, .timeout = 60)
{
    struct hearth_status st = { .struct_size = sizeof(st) };
    struct hearth_handle *handle = NULL;
    struct hearth_save *save;

    start(NULL);
    settle();
    signal_engine(SIGSTOP);
    save = begin(5);
    add(save);
    must(hearth_save_commit(save, &handle, &err), err);
    signal_engine(SIGKILL);
    for (int i = 0; i < 100 && !st.code; i++, usleep(10000))
        must(hearth_test(handle, &st, &err), err);
    cr_assert(eq(int, st.code, HEARTH_EUNKNOWN));
    cr_assert(ne(ptr, strstr(st.text, "is gone"), NULL), "%s", st.text);
    must(hearth_wait(handle, HEARTH_PROTECTED, 20000, &err), err); /* waiting looks for it */
    must(hearth_test(handle, &st, &err), err);
    cr_assert(zero(int, st.code));
    hearth_handle_close(handle);
    end();
}

#ifdef HEARTH_POINTS
Test(killed, a_save_that_was_committed_is_protected_though_nothing_was_summed, .timeout = 60)
{
    killed_after_commit("chunk");
}

Test(killed, nor_does_it_matter_that_all_was_summed, .timeout = 60)
{
    killed_after_commit("seal");
}

/* Changes a bit of the first item in each slot that is not sealed. */
static void pool_flip(void)
{
    char path[600];
    const struct dirent *e;
    unsigned char byte;
    DIR *pool;
    int fd;

    snprintf(path, sizeof(path), "%s/job/.hearth/pool", r.root);
    pool = opendir(path);
    cr_assert(ne(ptr, pool, NULL));
    while ((e = readdir(pool))) {
        if (e->d_name[0] == '.')
            continue;
        fd = openat(dirfd(pool), e->d_name, O_RDWR | O_CLOEXEC);
        cr_assert(ge(int, fd, 0));
        cr_assert(eq(i64, pread(fd, &byte, 1, 4096), 1));
        byte ^= 1;
        cr_assert(eq(i64, pwrite(fd, &byte, 1, 4096), 1));
        close(fd);
    }
    closedir(pool);
}

/* The rank made the checksums when it copied. The next engine would make others, of wrong bytes. */
Test(killed, a_bit_that_changes_before_the_next_engine_seals_fails_the_save, .timeout = 60)
{
    struct hearth_handle *handle = NULL;
    struct hearth_save *save;
    char path[600];

    strong = 1;
    start("seal");
    settle();
    save = begin(5);
    add(save);
    signal_engine(SIGSTOP);
    must(hearth_save_commit(save, &handle, &err), err);
    signal_engine(SIGCONT); /* SEAL and COMMIT have come */
    snprintf(path, sizeof(path), "%s/job/.hearth/handed", r.root);
    for (int i = 0; i < 200 && access(path, F_OK); i++)
        usleep(10000);
    signal_engine(SIGKILL);
    pool_flip();
    must_fail(hearth_wait(handle, HEARTH_PROTECTED, 20000, &err), HEARTH_EFAILED);
    cr_assert(
            ne(ptr, strstr(err.text, "chunk 0 is not as rank 0 of this node has copied it"), NULL),
            "%s", err.text);
    hearth_handle_close(handle);
    save_whole(6);
    end();
}
#endif
