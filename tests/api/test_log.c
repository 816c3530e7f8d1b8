/* SPDX-License-Identifier: Apache-2.0 */
#include "check.h"
#include "rank.h"

#include "client/opts/env.h"
#include <stdio.h>
#include <stdlib.h>

struct sink {
    int lines;
    char last[700];
};

static void take(void *arg, enum hearth_log_level level, const char *event, const char *text)
{
    struct sink *s = arg;

    s->lines++;
    snprintf(s->last, sizeof(s->last), "%d %s %s", (int)level, event, text);
}

Test(log, lines_go_to_the_sink_and_not_to_the_poll)
{
    struct rank r;
    struct sink s = { 0 };
    char text[100];

    rank_start(&r);
    r.opts.log = take;
    r.opts.log_arg = &s;
    must(hearth_open(&r.opts, &r.h, NULL));
    cr_assert(eq(int, s.lines, 1));
    cr_assert(ne(ptr, strstr(s.last, "30 open job job rank 0/1"), NULL), "%s", s.last);
    cr_assert(eq(int, hearth_log_poll(r.h, NULL, text, sizeof(text)), 0));
    rank_end(&r);
}

Test(log, level_keeps_lines_out)
{
    struct rank r;
    char text[100];

    rank_start(&r);
    r.opts.log_level = HEARTH_LOG_ERROR;
    must(hearth_open(&r.opts, &r.h, NULL));
    cr_assert(eq(int, hearth_log_poll(r.h, NULL, text, sizeof(text)), 0));
    rank_end(&r);
}

Test(log, the_last_256_lines_wait)
{
    struct rank r;
    struct hearth_checkpoint *c;
    char text[100], first[100] = "";
    int n = 0;

    rank_start(&r);
    rank_open(&r);
    for (int i = 0; i < 300; i++)
        must(hearth_recover(r.h, NULL, &c, NULL));
    while (hearth_log_poll(r.h, NULL, text, sizeof(text)))
        if (!n++)
            strcpy(first, text);
    cr_assert(eq(int, n, 256));
    cr_assert(zero(int, strncmp(first, "recover:", 8)), "%s", first);
    rank_end(&r);
}

static void clear(void)
{
    const struct hth_env_row *rows;
    size_t n;

    rows = hth_env_rows(&n);
    for (size_t i = 0; i < n; i++)
        unsetenv(rows[i].name);
}

Test(env, fills_what_is_not_set)
{
    struct hearth_opts o = HEARTH_OPTS_INIT;

    clear();
    setenv("HEARTH_ROOT", "/mnt/a", 1);
    setenv("HEARTH_JOB", "from-env", 1);
    setenv("HEARTH_WORLD", "8", 1);
    setenv("HEARTH_COPIES", "2", 1);
    setenv("HEARTH_START", "never", 1);
    setenv("HEARTH_DOMAINS", "rack7,feed2", 1);
    setenv("HEARTH_LEASE_BYTES", "68719476736", 1);
    setenv("HEARTH_OFF", "1", 1);
    setenv("HEARTH_NETWORK", "trusted", 1);
    o.root = "/mnt/own";
    must(hearth_opts_from_env(&o, NULL));
    must_say(o.root, "/mnt/own");
    must_say(o.job, "from-env");
    cr_assert(eq(u32, o.world, 8));
    cr_assert(eq(u32, o.copies, 2));
    cr_assert(eq(u32, o.start, HEARTH_START_NEVER));
    cr_assert(eq(sz, o.domain_count, 2));
    must_say(o.domains[1], "feed2");
    cr_assert(eq(u64, o.lease_bytes, UINT64_C(68719476736)));
    cr_assert(eq(u32, o.off, 1));
    cr_assert(eq(u32, o.network, HEARTH_NETWORK_TRUSTED));
}

Test(env, wrong_values_name_their_variable)
{
    static const char *const wrong[][2] = { { "HEARTH_WORLD", "many" }, { "HEARTH_KEEP", "-1" },
        { "HEARTH_COPIES", "4294967296" }, { "HEARTH_OFF", "2" }, { "HEARTH_START", "later" },
        { "HEARTH_NETWORK", "open" }, { "HEARTH_DOMAINS", "a,b,c,d,e" },
        { "HEARTH_SPARE_BYTES", "1G" } };
    struct hearth_error err = { 0 };

    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        struct hearth_opts o = HEARTH_OPTS_INIT;

        clear();
        setenv(wrong[i][0], wrong[i][1], 1);
        must_fail(hearth_opts_from_env(&o, &err), HEARTH_EINVAL);
        cr_assert(ne(ptr, strstr(err.text, wrong[i][0]), NULL), "%s", err.text);
    }
}

Test(env, every_option_has_one_row_with_help)
{
    const struct hth_env_row *rows;
    size_t n;

    rows = hth_env_rows(&n);
    cr_assert(ge(sz, n, 30));
    for (size_t i = 0; i < n; i++) {
        cr_assert(zero(int, strncmp(rows[i].name, "HEARTH_", 7)));
        cr_assert(ne(sz, strlen(rows[i].help), 0), "%s", rows[i].name);
        for (size_t j = 0; j < i; j++)
            cr_assert(ne(sz, rows[j].at, rows[i].at), "%s", rows[i].name);
    }
}
