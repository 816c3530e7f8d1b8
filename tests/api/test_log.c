/* SPDX-License-Identifier: Apache-2.0 */
#include "check.h"
#include "rank.h"

#include "core/base/options.h"
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
    for (size_t i = 0; i < HTH_OPTIONS; i++)
        if (hth_options[i].variable)
            unsetenv(hth_options[i].variable);
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

/* Each variable, a value that is not the default, and the field of its row. */
Test(env, each_variable_goes_to_its_option)
{
    for (size_t i = 0; i < HTH_OPTIONS; i++) {
        const struct hth_option *option = &hth_options[i];
        int number = hth_option_is_number(option);
        const char *value = option->words ? option->words[1].name : number ? "1" : "some";
        struct hearth_opts o = HEARTH_OPTS_INIT, none = HEARTH_OPTS_INIT;

        if (!option->variable)
            continue;
        clear();
        setenv(option->variable, value, 1);
        must(hearth_opts_from_env(&o, NULL));
        if (option->kind == HTH_OPTION_LIST) {
            must_say(o.domains[0], value);
        } else if (number) {
            cr_assert(eq(u64, hth_option_number(option, &o),
                              option->words ? option->words[1].value : 1),
                    "%s", option->name);
            hth_option_set_number(option, &o, 0);
            cr_assert(zero(int, memcmp(&o, &none, sizeof(o))), "%s sets more", option->variable);
        } else {
            must_say(hth_option_text(option, &o), value);
            hth_option_set_text(option, &o, NULL);
            cr_assert(zero(int, memcmp(&o, &none, sizeof(o))), "%s sets more", option->variable);
        }
    }
}

/* Lines of the event "environment" that wait, the last one in `last`. */
static int strays(struct rank *r, char *last, size_t len)
{
    char text[300];
    int n = 0;

    while (hearth_log_poll(r->h, NULL, text, sizeof(text)))
        if (!strncmp(text, "environment: ", 13)) {
            snprintf(last, len, "%s", text);
            n++;
        }
    return n;
}

Test(env, a_variable_that_nobody_reads_is_said_once_with_the_nearest)
{
    struct hearth_opts o = HEARTH_OPTS_INIT;
    struct rank r;
    char last[300] = "";

    clear();
    setenv("HEARTH_COPYS", "2", 1);
    setenv("HEARTH_LIBRARY", "/nosuch.so", 1); /* read by others */
    setenv("HEARTHSTONE", "1", 1);             /* not ours */
    rank_start(&r);
    rank_open(&r);
    cr_assert(zero(int, strays(&r, last, sizeof(last))), "it asked for no environment: %s", last);
    hearth_close(r.h, HEARTH_KEEP);
    must(hearth_opts_from_env(&o, NULL));
    rank_open(&r);
    cr_assert(eq(int, strays(&r, last, sizeof(last)), 1), "%s", last);
    cr_assert(ne(ptr, strstr(last, "HEARTH_COPYS"), NULL), "%s", last);
    cr_assert(ne(ptr, strstr(last, "HEARTH_COPIES"), NULL), "%s", last);
    hearth_close(r.h, HEARTH_KEEP);
    must(hearth_opts_from_env(&o, NULL));
    rank_open(&r);
    cr_assert(zero(int, strays(&r, last, sizeof(last))), "again: %s", last);
    rank_end(&r);
}

Test(env, of_many_variables_that_nobody_reads_some_are_said_and_the_others_counted)
{
    struct hearth_opts o = HEARTH_OPTS_INIT;
    struct rank r;
    char last[300] = "", name[80];

    clear();
    for (int i = 0; i < 11; i++) {
        snprintf(name, sizeof(name), "HEARTH_%0*d", i * 7, i);
        setenv(name, "", 1);
    }
    must(hearth_opts_from_env(&o, NULL));
    rank_start(&r);
    rank_open(&r);
    cr_assert(eq(int, strays(&r, last, sizeof(last)), 9));
    cr_assert(ne(ptr, strstr(last, " 3 more"), NULL), "%s", last);
    rank_end(&r);
}
