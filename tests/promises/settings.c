/* SPDX-License-Identifier: Apache-2.0 */
/* An engine that is found running has the settings that it was started with: ranks that ask for
 * others are refused by name, and the line at open says what it has. One case each. */
#include "party.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define KEY_HEX "e1c8a39b7446550c9f13d2a8b7e6315a2cfe0190847763d5b2194e3fa86d1f"

static struct party p;
static char key_path[2][96];

static void make_key(int i, const char *end)
{
    char text[80];
    int fd, n = snprintf(text, sizeof(text), KEY_HEX "%s\n", end);

    snprintf(key_path[i], sizeof(key_path[i]), "%s/key%d", p.base, i);
    fd = open(key_path[i], O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    CHECK(fd >= 0 && write(fd, text, (size_t)n) == n, "%s: %s", key_path[i], strerror(errno));
    close(fd);
}

static void start(void)
{
    party_open(&p, 1, 1, 64);
    make_key(0, "f0");
    make_key(1, "0f");
}

/* arg[0]: a text; v[0]: whether the line at open has it; the line is in err. */
static void do_line(struct me *me, const uint64_t arg[3], struct answer *out)
{
    char text[1500];

    while (hearth_log_poll(me->h, NULL, text, sizeof(text))) {
        if (!strstr(text, "engine pid"))
            continue;
        out->v[0] = strstr(text, (const char *)(uintptr_t)arg[0]) != NULL;
        snprintf(out->err.text, sizeof(out->err.text), "%.511s", text);
    }
}

/* A job is opened with these options, after another one whose engine is still there. */
static struct answer open_with(const struct hearth_opts *o)
{
    struct hearth_opts usual = p.opts;
    struct answer a;

    party_kill_ranks(&p);
    p.opts = *o;
    party_start_rank(&p, 0);
    a = party_ask(&p, 0, do_open, 0, 0, 0);
    p.opts = usual;
    return a;
}

static void must_open(const struct hearth_opts *o, const char *line)
{
    struct answer a = open_with(o);

    CHECK(a.rc == 0, "%s", a.err.text);
    a = party_ask(&p, 0, do_line, (uint64_t)(uintptr_t)line, 0, 0);
    CHECK(a.v[0], "'%s' is not in: %s", line, a.err.text);
}

static void must_refuse(
        const struct hearth_opts *o, const char *name, const char *asked, const char *has)
{
    pid_t engine = party_engine(&p, 0);
    struct answer a = open_with(o);
    char pid[32];

    snprintf(pid, sizeof(pid), "kill %ld", (long)engine);
    party_must_fail(&a, HEARTH_EINVAL, name, pid);
    party_must_fail(&a, HEARTH_EINVAL, asked, has);
    CHECK(!strstr(a.err.text, "e1c8"), "it tells the key: %s", a.err.text);
    CHECK(engine && party_engine(&p, 0) == engine, "the engine was changed");
}

/* ---- network
 * -------------------------------------------------------------------------------------- */

static void another_transport(void)
{
    struct hearth_opts o;

    start();
    p.opts.network = HEARTH_NETWORK_TRUSTED; /* ucx is refused before anything is compared */
    o = p.opts;
    must_open(&o, "transport tcp, provider tcp, bind 127.0.0.1,");
    o.transport = "ucx";
    must_refuse(&o, "transport", "'ucx'", "'tcp'");
    o.transport = "tcp";
    must_open(&o, "transport tcp, provider tcp,");
}

static void another_provider(void)
{
    struct hearth_opts o;

    start();
    o = p.opts;
    must_open(&o, "transport tcp, provider tcp,");
    o.provider = "verbs";
    must_refuse(&o, "provider", "'verbs'", "'tcp'");
    o.provider = "tcp"; /* what it has without being told */
    must_open(&o, "transport tcp, provider tcp,");
}

static void another_address(void)
{
    struct hearth_opts o;

    start();
    o = p.opts;
    o.bind = "127.0.0.2";
    must_open(&o, "bind 127.0.0.2,");
    o.bind = "127.0.0.1";
    must_refuse(&o, "bind", "'127.0.0.1'", "'127.0.0.2'");
    o.bind = NULL; /* no opinion */
    must_open(&o, "bind 127.0.0.2,");
    o.port = 1;
    must_refuse(&o, "port", "1", "pid");
}

static void one_address_in_two_ways(void)
{
    struct hearth_opts o;

    if (access("/proc/net/if_inet6", R_OK))
        party_skip("no IPv6 here");
    start();
    o = p.opts;
    o.bind = "::1";
    must_open(&o, "bind ::1,");
    o.bind = "0:0:0:0:0:0:0:1";
    must_open(&o, "bind ::1,");
}

static void several_addresses(void)
{
    struct hearth_opts o;

    start();
    o = p.opts;
    o.bind = "127.0.0.2,127.0.0.3";
    must_open(&o, "bind 127.0.0.2,127.0.0.3,");
    o.bind = "127.0.0.2";
    must_refuse(&o, "bind", "'127.0.0.2'", "'127.0.0.2,127.0.0.3'");
    o.bind = "127.0.0.3,127.0.0.2";
    must_refuse(&o, "bind", "'127.0.0.3,127.0.0.2'", "'127.0.0.2,127.0.0.3'");
}

static void another_node(void)
{
    struct answer a;

    start();
    must_open(&p.opts, "node n0,");
    party_kill_ranks(&p);
    memcpy(p.name[0], "x0", 3);
    party_start_rank(&p, 0);
    a = party_ask(&p, 0, do_open, 0, 0, 0);
    party_must_fail(&a, HEARTH_EINVAL, "node is 'x0'", "'n0'");
}

/* ---- the key
 * -------------------------------------------------------------------------------------- */

static void another_key(void)
{
    struct hearth_opts o;

    start();
    o = p.opts;
    o.key_file = key_path[0];
    must_open(&o, "key_file /");
    o.key_file = key_path[1];
    must_refuse(&o, "key_file", "another key", NULL);
    o.key_file = NULL; /* no opinion, and it is demanded of peers all the same */
    must_open(&o, "key_file the engine's,");
    make_key(1, "f0"); /* the same in another file */
    o.key_file = key_path[1];
    must_open(&o, "key_file /");
}

static void a_key_where_the_engine_has_none(void)
{
    struct hearth_opts o;

    start();
    o = p.opts;
    must_open(&o, "key_file none,");
    o.key_file = key_path[0];
    must_refuse(&o, "key_file", "without a key", NULL);
}

/* ---- times
 * ---------------------------------------------------------------------------------------- */

static void start_hearthd(void)
{
    pid_t pid = fork();

    if (pid == 0) {
        execl(p.opts.engine, "hearthd", "--root", p.root[0], "--job", "job", "--node", "n0",
                "--any-root", "--transport", p.opts.transport, "--dead-ms", "3333", "--linger",
                "77", (char *)NULL);
        _exit(127);
    }
    for (uint64_t until = now_ms() + 10000;
            !party_log_has(&p, 0, "engine-ready") && now_ms() < until;)
        nap_ms(5);
}

static void what_the_command_line_says(void)
{
    struct hearth_opts o;

    start();
    start_hearthd();
    o = p.opts;
    o.start = HEARTH_START_NEVER;
    o.dead_ms = o.linger_s = 0;
    must_open(&o, "dead_ms 3333,");
    must_open(&o, "linger_s 77,");
    o.dead_ms = 2000;
    must_refuse(&o, "dead_ms", "2000", "3333");
    o.dead_ms = 3333;
    must_open(&o, "dead_ms 3333,");
}

/* This setting is not the engine's own: the value of the last job counts. */
static void another_linger(void)
{
    struct hearth_opts o;
    uint64_t until;

    start();
    o = p.opts;
    must_open(&o, "linger_s 30,");
    o.linger_s = 1;
    must_open(&o, "linger_s 1,");
    party_kill_ranks(&p);
    for (until = now_ms() + 10000; party_engine(&p, 0) && now_ms() < until;)
        nap_ms(20);
    CHECK(!party_engine(&p, 0), "linger is 1 s, and the engine is there after 10");
}

static void do_help(struct me *me, const uint64_t arg[3], struct answer *out)
{
    me->opts.helper = 1;
    me->opts.copies = 3;
    do_open(me, arg, out);
}

static void a_helper_says_what_is_so(void)
{
    struct party helper;
    struct answer a;

    start();
    must_open(&p.opts, "copies 1,");
    helper = p;
    helper.seat[0] = (struct seat){ 0 };
    party_start_rank(&helper, 0);
    a = party_ask(&helper, 0, do_help, 0, 0, 0);
    CHECK(a.rc == 0, "%s", a.err.text);
    a = party_ask(&helper, 0, do_line, (uint64_t)(uintptr_t) " copies 1,", 0, 0);
    CHECK(a.v[0], "%s", a.err.text);
}

#define CASE(name) { #name, name },

int main(int argc, char **argv)
{
    static const struct party_case cases[] = { /* clang-format off */
    CASE(another_transport)
    CASE(another_provider)
    CASE(another_address)
    CASE(one_address_in_two_ways) CASE(several_addresses)
    CASE(another_node)
    CASE(another_key)
    CASE(a_key_where_the_engine_has_none)
    CASE(what_the_command_line_says)
    CASE(another_linger)
    CASE(a_helper_says_what_is_so)
        /* clang-format on */
        { NULL, NULL }
    };

    return party_main(argc, argv, cases);
}
