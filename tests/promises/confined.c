/* SPDX-License-Identifier: Apache-2.0 */
/* An engine of its own process on tcp: what it does it can do with the files of its root, and it can open no other. */
#include "damage.h"
#include "party.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

#define OTHER "/etc/passwd"

static struct party p;
static char key[128];
static const char *unconfined, *opens;

/* The first engine of node 0 stops as it checksums, on a worker, and has tried to read a file by then. */
static void stop_and_try(const struct party *q, struct me *me)
{
    me->opts.key_file = key;
    me->opts.stall_ms = me->opts.dead_ms = 20000;
    setenv("HEARTH_UNCONFINED", unconfined, 1);
    if (q->launches == 1 && me->rank == 0) {
        setenv("HEARTH_STOP_POINT", "chunk", 1);
        setenv("HEARTH_STOP_OPENS", opens, 1);
    }
}

/* What came of it: an errno. The engine goes on. */
static int heard_at_the_point(void)
{
    char path[160], text[64] = "";
    int why = -1;
    long pid = 0;
    FILE *f;

    party_path(&p, 0, ".hearth/stopped", path, sizeof(path));
    party_wait_stopped(&p, 0);
    f = fopen(path, "re");
    CHECK(f && fgets(text, sizeof(text), f) && sscanf(text, "chunk %ld %d", &pid, &why) == 2, "%s",
            text);
    fclose(f);
    kill((pid_t)pid, SIGCONT);
    return why;
}

/* A save of two nodes, in which an engine tries to open this: the errno. */
static int try_in_a_job(const char *switched, const char *path)
{
    unsigned char bytes[32];
    int why;

    party_needs_points();
    unconfined = switched;
    opens = path;
    party_open(&p, 2, 2, 128);
    p.opts.transport = "tcp";
    snprintf(key, sizeof(key), "%s/key", p.base);
    CHECK(getrandom(bytes, sizeof(bytes), 0) == sizeof(bytes), "no random bytes");
    damage_put(key, bytes, sizeof(bytes));
    p.adjust = stop_and_try;
    party_start(&p);
    party_recover(&p, 0, 0);
    for (uint32_t r = 0; r < 2; r++)
        party_tell(&p, r, do_save, 1, 1, 0);
    why = heard_at_the_point();
    for (uint32_t r = 0; r < 2; r++) {
        struct answer a = party_hear(&p, r, 20000);

        CHECK(!a.rc, "rank %u: %s", r, a.err.text);
    }
    party_all(&p, do_wait, 1, HEARTH_PROTECTED, 15000);
    return why;
}

static void needs_landlock(void)
{
    if (syscall(SYS_landlock_create_ruleset, NULL, 0, 1) < 2)
        party_skip("this kernel has no Landlock of version 2");
}

/* All that a job does: saves, an engine that is killed and adopts, a machine that is lost, another epoch, the end. */
static void engine_opens_nothing_else(void)
{
    int why;

    needs_landlock();
    why = try_in_a_job("0", OTHER);
    CHECK(why == EACCES, OTHER ": %s", strerror(why));
    CHECK(party_log_has(&p, 0, " confined ") && party_log_has(&p, 0, "nothing but its root"),
            "the log does not say it");
    party_restart(&p);
    party_recover(&p, 1, 1);
    party_save(&p, 2, 2);
    party_kill_ranks(&p);
    party_kill_engine(&p, 0);
    party_restart(&p);
    party_recover(&p, 2, 2);
    party_save(&p, 3, 3);
    party_kill_ranks(&p);
    party_lose_node(&p, 1);
    party_restart(&p);
    party_recover(&p, 3, 3);
    party_save(&p, 4, 4);
    party_all(&p, do_close, HEARTH_DROP, 0, 0);
}

/* Without these it would take room for endless, or serve nobody where descriptors are short. */
static void engine_reads_what_it_needs(void)
{
    static const struct row {
        const char *path;
        int why;
    } rows[] = { { "/proc/self/cgroup", 0 }, { "/proc/self/mountinfo", 0 }, { "/proc/meminfo", 0 },
        { "/sys/kernel", 0 }, { "/dev/null", 0 }, { "/dev/zero", EACCES }, { "/tmp", EACCES },
        { "/proc/1/../../etc/passwd", EACCES }, { key, 0 } };

    needs_landlock();
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        int why = try_in_a_job("0", rows[i].path);

        CHECK(why == rows[i].why, "%s: %s", rows[i].path, strerror(why));
    }
}

/* The same file, where it is switched off: it is there, and could be read. */
static void engine_is_left_alone_where_that_is_asked_for(void)
{
    int why = try_in_a_job("1", OTHER);

    CHECK(why == 0, OTHER ": %s", strerror(why));
    CHECK(!party_log_has(&p, 0, " confined "), "the log says that it is confined");
}

#define CASE(name) { #name, name },

int main(int argc, char **argv)
{
    static const struct party_case cases[] = { /* clang-format off */
    CASE(engine_opens_nothing_else)
    CASE(engine_reads_what_it_needs)
    CASE(engine_is_left_alone_where_that_is_asked_for)
        /* clang-format on */
        { NULL, NULL }
    };

    return party_main(argc, argv, cases);
}
