/* SPDX-License-Identifier: Apache-2.0 */
/* hearth why without an answer: no job, no engine, arguments that cannot be. */
#include "command.h"

#include <sys/stat.h>

TestSuite(why, .init = make_root, .fini = remove_root);

static void make_job(void)
{
    char path[128];

    snprintf(path, sizeof(path), "%s/train", root);
    cr_assert(zero(int, mkdir(path, 0700)));
    snprintf(path, sizeof(path), "%s/train/.hearth", root);
    cr_assert(zero(int, mkdir(path, 0700)));
}

Test(why, is_status_3_without_a_job_or_an_engine)
{
    make_job();
    cr_assert(eq(int, hearth("why", "--root", root, "other"), 3), "%s", err_text);
    cr_assert(eq(int, hearth("why", "--root", root, "train"), 3), "%s", err_text);
    cr_assert(eq(int, has(err_text, "no engine runs"), 1), "%s", err_text);
    cr_assert(eq(int, hearth("why", "--root", root, "--recovery", "train"), 3), "%s", err_text);
}

Test(why, a_step_that_is_none_is_refused)
{
    make_job();
    cr_assert(eq(int, hearth("why", "--root", root, "train", "x"), 2), "%s", err_text);
    cr_assert(
            eq(int, hearth("why", "--root", root, "--recovery", "train", "7"), 2), "%s", err_text);
    cr_assert(eq(int, hearth("why", "train"), 2), "%s", err_text);
}

Test(why, trace_events_and_top_teach_and_need_a_job_and_an_engine)
{
    static const char *const commands[] = { "trace", "events", "top" };

    make_job();
    for (size_t i = 0; i < 3; i++) {
        cr_assert(zero(int, hearth(commands[i], "--help")));
        cr_assert(eq(int, has(out, "usage: hearth"), 1));
        cr_assert(eq(int, hearth(commands[i]), 2), "%s", err_text);
    }
    cr_assert(eq(int, hearth("trace", "--root", root, "--save", "4", "other"), 3), "%s", err_text);
    cr_assert(eq(int, hearth("trace", "--root", root, "--save", "4", "train"), 3), "%s", err_text);
    cr_assert(eq(int, hearth("trace", "--root", root, "--save", "x", "train"), 2), "%s", err_text);
    cr_assert(eq(int, hearth("trace", "--root", root, "train"), 2), "%s", err_text);
    cr_assert(eq(int, hearth("events", "--root", root, "train"), 3), "%s", err_text);
    cr_assert(eq(int, hearth("events", "--root", root, "--all", "train"), 3), "%s", err_text);
    cr_assert(eq(int, hearth("events", "--root", root, "--all", "--node", "n", "train"), 2), "%s",
            err_text);
}
