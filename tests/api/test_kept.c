/* SPDX-License-Identifier: Apache-2.0 */
/* Kept saves, with hearthd itself on one node: listed, opened after a restart, pinned, given up. */
#include "check.h"
#include "engines.h"
#include "rank.h"
#include "tmp_root.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define KEEP 3u

static struct rank r;

static void start(void)
{
    static char hearthd[512];
    const char *bin = getenv("HEARTH_TEST_BIN");

    alarm(120);
    rank_start(&r);
    fake_stop(r.fake);
    r.fake = NULL;
    r.opts.start = HEARTH_START_AUTO;
    r.opts.open_ms = 20000;
    r.opts.linger_s = 20;
    r.opts.keep = KEEP;
    if (bin) {
        snprintf(hearthd, sizeof(hearthd), "%s/hearthd", bin);
        r.opts.engine = hearthd;
    }
    rank_open(&r);
    for (uint64_t step = 1; step <= KEEP + 1; step++) {
        float x = (float)step;
        struct hearth_piece piece = rank_piece("x", &x, 0, NULL);

        rank_save(r.h, step, &piece, 1, NULL, 0);
    }
}

static void end(void)
{
    hearth_close(r.h, HEARTH_KEEP);
    cr_assert(ge(int, engines_signal(r.root, NULL, SIGKILL), 0));
    tmp_root_remove(r.root);
}

TestSuite(kept, .init = start, .fini = end);

static struct hearth_kept row[KEEP + 1];

static size_t list(void)
{
    size_t count = 0;

    row[0] = hearth_kept_init();
    must(hearth_keep_list(r.h, row, KEEP + 1, &count, NULL));
    return count;
}

static struct hearth_save_id of_step(uint64_t step)
{
    return (struct hearth_save_id){ .step = step };
}

static void load(uint64_t step, float want)
{
    struct hearth_checkpoint *c = NULL;
    struct hearth_error err = { 0 };
    float x = -1;
    struct hearth_piece piece = rank_piece("x", &x, 0, NULL);

    cr_assert(eq(int, hearth_checkpoint_open(r.h, step, &c, &err), 0), "%s", err.text);
    must(hearth_load(c, &piece, 1, 0, NULL, NULL));
    hearth_checkpoint_close(c);
    cr_assert(epsilon_eq(flt, x, want, 0.0f));
}

Test(kept, the_list_says_which_and_each_is_read_after_a_restart)
{
    cr_assert(eq(sz, list(), KEEP));
    for (uint32_t i = 0; i < KEEP; i++) {
        cr_assert(eq(u64, row[i].id.step, KEEP + 1 - i));
        cr_assert(eq(u32, row[i].level, HEARTH_PROTECTED));
        cr_assert(eq(u32, row[i].confirmed, 1));
        cr_assert(gt(u64, row[i].since_ms, UINT64_C(1600000000000)));
    }
    hearth_close(r.h, HEARTH_KEEP);
    cr_assert(eq(int, engines_signal(r.root, NULL, SIGKILL), 1));
    must(hearth_open(&r.opts, &r.h, NULL));
    hearth_checkpoint_close(rank_recover(r.h, KEEP + 1));
    for (uint64_t step = 2; step <= KEEP + 1; step++)
        load(step, (float)step);
}

Test(kept, pinned_released_marked_and_gone_back_to)
{
    struct hearth_recover_opts o = HEARTH_RECOVER_OPTS_INIT;
    struct hearth_save_id id = of_step(2);
    struct hearth_checkpoint *c = NULL;
    struct hearth_error err = { 0 };
    struct hearth_recovery info = HEARTH_RECOVERY_INIT;

    must(hearth_keep_pin(r.h, &id, NULL));
    must(hearth_keep_mark_bad(r.h, &id, NULL));
    cr_assert(eq(sz, list(), KEEP));
    cr_assert(eq(u32, row[2].pinned, 1));
    cr_assert(eq(u32, row[2].bad, 1));
    must(hearth_keep_unmark_bad(r.h, &row[2].id, NULL));
    id = of_step(3);
    must(hearth_keep_release(r.h, &id, NULL));
    must_fail(hearth_keep_release(r.h, &id, &err), HEARTH_ENOENT);
    must_say(err.text, "release step 3: step 3 is not kept; there is: 4, 2");
    id = of_step(4);
    must_fail(hearth_keep_release(r.h, &id, &err), HEARTH_ESTATE);
    cr_assert(eq(sz, list(), 2));
    id = of_step(3);
    o.save = &id;
    must_fail(hearth_recover(r.h, &o, &c, &err), HEARTH_ENOENT);
    must_say(err.text, "recover: step 3 is asked for and cannot be had; there is: 4 2");
    id = of_step(2);
    must(hearth_recover(r.h, &o, &c, NULL));
    must(hearth_checkpoint_info(c, &info, NULL));
    cr_assert(eq(u64, info.step, 2));
    hearth_checkpoint_close(c);
    load(2, 2);
}

/* The output of `hearth` with these arguments; exit status in *out_status. */
static const char *command(const char *arguments, int *out_status)
{
    static char out[4096];
    const char *bin = getenv("HEARTH_TEST_BIN");
    char line[1024];
    size_t len;
    FILE *f;

    snprintf(line, sizeof(line), "%s/hearth %s --root %s 2>&1", bin ? bin : "build/debug/bin",
            arguments, r.root);
    f = popen(line, "re");
    cr_assert(ne(ptr, f, NULL));
    len = fread(out, 1, sizeof(out) - 1, f);
    out[len] = '\0';
    *out_status = WEXITSTATUS(pclose(f));
    return out;
}

/* It is done and says that, or (status) fails and says why. */
static void command_says(const char *arguments, const char *want, int want_status)
{
    int status = -1;
    const char *said = command(arguments, &status);

    cr_assert(ne(ptr, (void *)(uintptr_t)strstr(said, want), NULL), "%s: %s", arguments, said);
    cr_assert(eq(int, status, want_status), "%s: %s", arguments, said);
}

Test(kept, the_command_line_shows_and_changes_it)
{
    command_says("keep job", "step 4, try 1  degraded", 0);             /* one node has no peers */
    command_says("ls job", "as of   0.0 s ago, by the coordinator", 0); /* which this node is */
    command_says("keep job pin 2", "", 0);
    command_says("keep job", "pinned", 0);
    command_says("keep job release 4", "step 4 is the newest that is PROTECTED", 1);
    command_says("keep job release 3", "", 0);
    command_says("keep job --json", "\"pinned\": true", 0);
    cr_assert(eq(sz, list(), 2));
    command_says("keep job bad", "pin, unpin, release, bad, good and a step", 2);
    command_says("keep job bad x", "'x' is not a step", 2);
    command_says("keep nobody", "there is no", 3);
}
