/* SPDX-License-Identifier: Apache-2.0 */
/*
 * No call waits for this node's engine but those of the table in docs/api.md: all are made while it
 * is stopped, while its socket is full, and when it is gone. That a call waited is known from the
 * kernel, which counts how often a thread slept, in whatever system call or for whatever lock; that
 * it did not spin from the thread's time on the processor.
 */
#include "calls.h"

#include "check.h"
#include "engines.h"
#include "tmp_root.h"

#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define STOPPED_MS 100u
#define LATE_MS    2500u /* more than is waited for an engine by those that were not told to */
#define SPIN_MS    100   /* of processor time; the longest call of these takes 2 */

static const struct call *const lists[] = { calls_plain, calls_own, calls_waiting, calls_far,
    calls_others };
#define LISTS (sizeof(lists) / sizeof(lists[0]))

/* ---- the table is whole
 * -------------------------------------------------------------------------- */

static char *text_of(const char *rest)
{
    const char *data = getenv("HEARTH_TEST_DATA");
    static char text[200000];
    char path[512];
    size_t n;
    FILE *f;

    snprintf(path, sizeof(path), "%s/../../%s", data ? data : "tests/data", rest);
    f = fopen(path, "re");
    cr_assert(ne(ptr, f, NULL), "no %s", path);
    n = fread(text, 1, sizeof(text) - 1, f);
    cr_assert(lt(sz, n, sizeof(text) - 1));
    text[n] = '\0';
    fclose(f);
    return text;
}

static const struct call *find(const char *name, size_t len, int waits)
{
    for (size_t i = 0; i < LISTS; i++)
        for (const struct call *c = lists[i]; c->name; c++)
            if (strlen(c->name) == len && !strncmp(c->name, name, len) &&
                    (!waits || c->until != NULL))
                return c;
    return NULL;
}

/* The next "hearth_name(" of at; NULL: there is none before `end`. */
static char *next_call(char *at, const char *end, size_t *out_len)
{
    while ((at = strstr(at, "hearth_")) && (!end || at < end)) {
        *out_len = strspn(at, "abcdefghijklmnopqrstuvwxyz_0123456789");
        if (at[*out_len] == '(')
            return at;
        at += *out_len;
    }
    return NULL;
}

static unsigned check_header(const char *name)
{
    unsigned count = 0;
    char path[300], *at;
    size_t len;

    snprintf(path, sizeof(path), "include/hearth/%.200s", name);
    for (at = text_of(path); (at = strstr(at, "\nHEARTH_API ")); count++) {
        at = next_call(at, NULL, &len);
        cr_assert(ne(ptr, at, NULL));
        cr_expect(ne(ptr, (void *)(uintptr_t)find(at, len, 0), NULL),
                "%s has %.*s(), and the table has not", name, (int)len, at);
    }
    return count;
}

Test(waits, the_table_has_every_call_of_the_headers)
{
    char path[512];
    const char *data = getenv("HEARTH_TEST_DATA");
    unsigned count = 0;
    struct dirent *e;
    DIR *d;

    snprintf(path, sizeof(path), "%s/../../include/hearth", data ? data : "tests/data");
    d = opendir(path);
    cr_assert(ne(ptr, d, NULL), "no %s", path);
    while ((e = readdir(d)))
        if (strstr(e->d_name, ".h"))
            count += check_header(e->d_name);
    closedir(d);
    cr_assert(ge(u32, count, 80), "%u calls were found", count);
}

/* One line of the document: its calls wait here, too, and as long. */
static unsigned check_row(char *line, char *end)
{
    char *last = end, *at = line;
    unsigned count = 0;
    size_t len;

    *end = '\0';
    while (last > line && (*last == '\0' || *last == ' ' || *last == '|'))
        last--;
    while (last > line && *last != '|')
        last--; /* the last cell */
    for (; (at = next_call(at, last, &len)); at += len, count++) {
        const struct call *c = find(at, len, 1);

        cr_expect(ne(ptr, (void *)(uintptr_t)c, NULL), "docs/api.md says that %.*s() may wait",
                (int)len, at);
        cr_expect(eq(int, c && !strstr(last, c->until), 0),
                "of %.*s() the document says '%s', and the table %s", (int)len, at, last,
                c ? c->until : "");
    }
    return count;
}

static unsigned waiting(void)
{
    unsigned count = 0;

    for (size_t i = 0; i < LISTS; i++)
        for (const struct call *c = lists[i]; c->name; c++)
            count += find(c->name, strlen(c->name), 1) == c; /* the first of two */
    return count;
}

Test(waits, the_document_has_the_same_table)
{
    char *at = strstr(text_of("docs/api.md"), "\n## What may wait"), *end, *line;
    unsigned count = 0;

    cr_assert(ne(ptr, at, NULL));
    end = strstr(at + 4, "\n## ");
    cr_assert(ne(ptr, end, NULL));
    *end = '\0';
    for (line = strstr(at, "\n| `hearth_"); line; line = at ? strstr(at, "\n| `hearth_") : NULL) {
        end = strchr(line + 1, '\n');
        at = end;
        if (!end)
            break;
        at = end + 1;
        count += check_row(line + 1, end);
        at--;
        *at = '\n';
    }
    cr_assert(eq(u32, count, waiting()));
}

/* ---- how often a call slept
 * ------------------------------------------------------------------------ */

static struct rusage mine(void)
{
    struct rusage u;

    must(getrusage(RUSAGE_THREAD, &u));
    return u;
}

static int64_t ms_of(struct timeval t)
{
    return (int64_t)t.tv_sec * 1000 + t.tv_usec / 1000;
}

/* A page of the program that is read from the disk first is no call's doing. */
static long slept_between(const struct rusage *a, const struct rusage *b)
{
    return b->ru_nvcsw - a->ru_nvcsw - (b->ru_majflt - a->ru_majflt);
}

static void walk(const struct call *c, const char *when)
{
    for (; c->name; c++) {
        struct rusage before = mine(), after;
        int rc = c->make();

        after = mine();
        cr_expect(zero(int, rc), "%s, %s: %s", c->name, when, calls_err.text);
        cr_expect(le(i64, slept_between(&before, &after), 0), "%s slept %ld times, %s", c->name,
                slept_between(&before, &after), when);
        cr_expect(lt(i64,
                          ms_of(after.ru_utime) + ms_of(after.ru_stime) - ms_of(before.ru_utime) -
                                  ms_of(before.ru_stime),
                          SPIN_MS),
                "%s spun, %s", c->name, when);
    }
}

/* ---- with hearthd
 * ---------------------------------------------------------------------------------- */

/* Until a slot lent ahead has come, and nothing is unanswered. */
static void settle(void)
{
    cr_assert(zero(int, engines_settle(scene.r.root, NULL)), "the engine does not come to rest");
}

static void signal_engine(int sig)
{
    cr_assert(ge(int, engines_signal(scene.r.root, NULL, sig), 1));
}

static void start(void)
{
    static char hearthd[512];
    static uint64_t object_bytes[1] = { 1 << 20 };
    const char *bin = getenv("HEARTH_TEST_BIN");

    rank_start(&scene.r);
    fake_stop(scene.r.fake);
    scene.r.fake = NULL;
    scene.r.opts.start = HEARTH_START_AUTO;
    scene.r.opts.open_ms = 20000;
    scene.r.opts.linger_s = 20;
    scene.r.opts.keep = 2;
    scene.r.opts.object_bytes = object_bytes;
    scene.r.opts.object_count = 1;
    scene.r.opts.lease_bytes = UINT64_C(8) << 20;
    if (bin) {
        snprintf(hearthd, sizeof(hearthd), "%s/hearthd", bin);
        scene.r.opts.engine = hearthd;
    }
    rank_open(&scene.r);
    scene_save();
}

static void end(void)
{
    hearth_close(scene.r.h, HEARTH_KEEP);
    engines_signal(scene.r.root, NULL, SIGCONT);
    cr_assert(ge(int, engines_signal(scene.r.root, NULL, SIGKILL), 0));
    tmp_root_remove(scene.r.root);
}

/* With its items, and their tables. */
static void open_old(void)
{
    size_t count;

    must(hearth_checkpoint_open(scene.r.h, HEARTH_STEP_NEWEST, &scene.old, &calls_err), calls_err);
    scene.item = (struct hearth_item)HEARTH_ITEM_INIT;
    scene.text = (struct hearth_item)HEARTH_ITEM_INIT;
    must(hearth_item_at(scene.old, 1, 0, &scene.item, &calls_err), calls_err);
    must(hearth_item_find(scene.old, "text", 4, &scene.text, 1, &count, &calls_err), calls_err);
}

/* All that calls_own needs; each slot was mapped once. */
static void make_scene(void)
{
    struct hearth_opts o = scene.r.opts;
    struct hearth_begin_opts patient = HEARTH_BEGIN_OPTS_INIT;
    struct hearth_report *report = NULL;
    struct hearth_piece p = rank_piece("x", &scene.x, 0, NULL);

    for (int i = 0; i < 4; i++)
        scene_save();
    open_old();
    scene.view = (struct hearth_view)HEARTH_VIEW_INIT;
    must(hearth_view_open(scene.old, &scene.item, &scene.view, &calls_err), calls_err);
    must(hearth_load(scene.old, &p, 1, 0, &report, &calls_err), calls_err);
    hearth_report_close(report);
    o.helper = 1;
    must(hearth_open(&o, &scene.helper, &calls_err), calls_err);
    patient.wait_ms = 10000;
    must(hearth_save_begin(
                 scene.helper, HEARTH_STEP_LATER, 65536, &patient, &scene.spare, &calls_err),
            calls_err);
    settle();
}

Test(waits, no_other_call_does_for_an_engine_that_is_stopped, .timeout = 60)
{
    start();
    make_scene();
    signal_engine(SIGSTOP);
    walk(calls_plain, "stopped");
    walk(calls_own, "stopped");
    signal_engine(SIGCONT);
    end();
}

/* The socket takes no more: requests have to wait, and no call waits with them. */
static void fill_socket(void)
{
    struct hearth_save *none = NULL;
    int full = 0;

    for (int i = 0; i < 5000 && !full; i++) {
        int rc = hearth_save_begin(scene.r.h, scene.step + 1, 65536, NULL, &none, &calls_err);

        cr_assert(eq(int, rc, HEARTH_EBUSY), "%s", calls_err.text);
        full = strstr(calls_err.text, "takes no requests") != NULL;
    }
    cr_assert(full, "%s", calls_err.text);
}

Test(waits, nor_when_its_socket_is_full, .timeout = 60)
{
    start();
    make_scene();
    signal_engine(SIGSTOP);
    cr_assert(zero(int, calls_own[0].make()), "%s", calls_err.text); /* of the slot lent ahead */
    fill_socket();
    walk(calls_own, "full");
    signal_engine(SIGCONT);
    settle();
    scene_save();
    end();
}

Test(waits, nor_when_it_is_gone, .timeout = 60)
{
    start();
    make_scene();
    cr_assert(zero(int, calls_own[0].make()), "%s", calls_err.text);
    signal_engine(SIGKILL);
    walk(calls_own, "gone");
    scene_save();
    end();
}

/* ---- those that wait
 * ------------------------------------------------------------------------------- */

static void nap_ms(unsigned ms)
{
    struct timespec t = { .tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000 };

    nanosleep(&t, NULL);
}

static uint64_t now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static void *go_on(void *arg)
{
    (void)arg;
    nap_ms(STOPPED_MS);
    signal_engine(SIGCONT);
    return NULL;
}

static void *go_on_late(void *arg)
{
    (void)arg;
    nap_ms(LATE_MS);
    signal_engine(SIGCONT);
    return NULL;
}

static void *come_back(void *arg)
{
    (void)arg;
    nap_ms(STOPPED_MS);
    fake_silence(scene.r.fake, 0);
    fake_crash(scene.r.fake);
    fake_back(scene.r.fake);
    return NULL;
}

/* It is in the table for a reason: it waits, and succeeds when the engine is there. */
static void waits(const struct call *c, void *(*later)(void *))
{
    struct rusage before, after;
    uint64_t began, took;
    pthread_t thread;
    int rc;

    must(pthread_create(&thread, NULL, later, NULL));
    began = now_ms();
    before = mine();
    rc = c->make();
    after = mine();
    took = now_ms() - began;
    must(pthread_join(thread, NULL));
    cr_expect(zero(int, rc), "%s: %s", c->name, calls_err.text);
    cr_expect(gt(i64, slept_between(&before, &after), 0), "%s never slept", c->name);
    cr_expect(ge(u64, took, STOPPED_MS / 2), "%s took %llu ms", c->name, (unsigned long long)took);
}

Test(waits, those_that_may_come_back_with_it, .timeout = 60)
{
    start();
    scene_save();
    for (const struct call *c = calls_waiting; c->name; c++) {
        if (c->ready)
            cr_assert(zero(int, c->ready()), "%s: %s", c->name, calls_err.text);
        signal_engine(SIGSTOP);
        waits(c, go_on);
    }
    for (const struct call *c = calls_others; c->name; c++)
        cr_assert(zero(int, c->make()), "%s", c->name);
    end();
}

/* It was begun with a long wait_ms. */
Test(waits, a_save_passes_on_as_patiently_as_it_was_begun, .timeout = 60)
{
    static const char *const parts[] = { "hearth_save_set_step", "hearth_save_give",
        "hearth_save_take" };

    start();
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        const struct call *c = calls_waiting;

        while (strcmp(c->name, parts[i]) != 0)
            c++;
        cr_assert(zero(int, c->ready()), "%s: %s", c->name, calls_err.text);
        signal_engine(SIGSTOP);
        waits(c, go_on_late);
    }
    end();
}

/* When the engine goes on, it reads the requests whose calls have failed, and begins the save that
 * no call waits for any more. */
Test(waits, a_step_that_was_set_in_vain_is_set_again, .timeout = 60)
{
    struct hearth_piece p = rank_piece("x", &scene.x, 0, NULL);
    struct hearth_handle *handle;
    struct hearth_save_id id;
    struct hearth_save *save;
    uint64_t step;

    start();
    step = scene.step + 1;
    must(hearth_save_begin(scene.r.h, HEARTH_STEP_LATER, 65536, NULL, &save, &calls_err),
            calls_err);
    must(hearth_save_add(save, &p, 1, &calls_err), calls_err);
    settle();
    signal_engine(SIGSTOP);
    for (int i = 0; i < 2; i++)
        must_fail(hearth_save_set_step(save, step, &calls_err), HEARTH_EBUSY);
    signal_engine(SIGCONT);
    must_fail(hearth_save_set_step(save, step + 1, &calls_err), HEARTH_ESTATE);
    cr_assert(ne(ptr, strstr(calls_err.text, "attempt 1"), NULL), "%s", calls_err.text);
    cr_assert(zero(int, hearth_save_set_step(save, step, &calls_err)), "%s", calls_err.text);
    must(hearth_save_commit(save, &handle, &calls_err), calls_err);
    cr_assert(zero(int, hearth_wait(handle, HEARTH_PROTECTED, 10000, &calls_err)), "%s",
            calls_err.text);
    must(hearth_handle_id(handle, &id, &calls_err), calls_err);
    cr_assert(eq(u64, id.step, step));
    cr_assert(eq(u32, id.attempt, 1));
    hearth_handle_close(handle);
    end();
}

Test(waits, reads_of_what_lies_elsewhere_come_back_with_it_and_prefetches_do_not_wait,
        .timeout = 60)
{
    rank_start(&scene.r);
    rank_open(&scene.r);
    scene_save();
    fake_remote(scene.r.fake, 1);
    for (const struct call *c = calls_far; c->name; c++) {
        open_old();
        fake_silence(scene.r.fake, HTH_LOCAL_RANGE);
        waits(c, come_back);
        hearth_checkpoint_close(scene.old);
    }
    open_old();
    for (const struct call *c = calls_own; c->name; c++)
        if (!strcmp(c->name, "hearth_prefetch") || !strcmp(c->name, "hearth_prefetch_boxes")) {
            const struct call row[2] = { *c };

            fake_crash(scene.r.fake);
            walk(row, "gone");
        }
    fake_back(scene.r.fake);
    hearth_checkpoint_close(scene.old);
    rank_end(&scene.r);
}
