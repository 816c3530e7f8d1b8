/* SPDX-License-Identifier: Apache-2.0 */
/* Hearth's reports about itself are true: on every node, after a loss, after a restart; and nothing
 * bad is reported of a job that is well. */
#include "party.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

static struct party p;
static char sink[128]; /* a file: complaints of the ranks' library */

/* ---- complaints
 * ------------------------------------------------------------------------------- */

static void on_line(void *arg, enum hearth_log_level level, const char *event, const char *text)
{
    char line[1024];
    int fd, len;

    (void)arg;
    if (level > HEARTH_LOG_WARN)
        return;
    len = snprintf(line, sizeof(line), "%s: %s\n", event, text);
    fd = open(sink, O_WRONLY | O_CREAT | O_APPEND, 0600);
    if (fd < 0 || write(fd, line, (size_t)len) < len)
        _exit(9);
    close(fd);
}

/* Of the machine, where no cgroups are mounted, as in a chroot: not of the job. */
#define OF_THE_MACHINE " limit-unseen "

static void print_complaints(const char *path, const char *a, const char *b, unsigned *out_count)
{
    char line[2048];
    FILE *f = fopen(path, "re");

    while (f && fgets(line, sizeof(line), f))
        if ((strstr(line, a) || strstr(line, b)) && !strstr(line, OF_THE_MACHINE)) {
            printf("%s", line);
            ++*out_count;
        }
    if (f)
        fclose(f);
}

/* Four ranks on each of two nodes, all of which look for their node's engine at once. */
static void a_healthy_job_complains_of_nothing(void)
{
    unsigned count = 0;
    char path[256];

    party_open(&p, 2, 8, 256);
    snprintf(sink, sizeof(sink), "%s/sink", p.base);
    p.opts.log = on_line;
    party_start(&p);
    party_recover(&p, 0, 0);
    for (uint64_t step = 1; step < 4; step++)
        party_save(&p, step, step);
    party_all(&p, do_close, HEARTH_KEEP, 0, 0);
    party_restart(&p);
    party_recover(&p, 3, 3);
    party_save(&p, 4, 4);
    party_all(&p, do_close, HEARTH_KEEP, 0, 0);
    for (uint32_t k = 0; k < 2; k++) {
        party_path(&p, k, ".hearth/log", path, sizeof(path));
        print_complaints(path, " error ", " warn ", &count);
    }
    print_complaints(sink, "", "", &count);
    CHECK(count == 0, "a job that is well complains %u times", count);
}

/* ---- what is kept
 * ------------------------------------------------------------------------------ */

/* The output of `hearth ls --json` for the job on a node; static. */
static const char *told(uint32_t node)
{
    static char text[65536];
    char command[1024];
    size_t len;
    FILE *f;

    snprintf(command, sizeof(command), "%s/hearth ls --root %s job --json",
            getenv("HEARTH_TEST_BIN"), p.root[node]);
    f = popen(command, "r");
    CHECK(f, "%s: %s", command, strerror(errno));
    len = fread(text, 1, sizeof(text) - 1, f);
    text[len] = '\0';
    pclose(f);
    return text;
}

static void wait_told(uint32_t node, const char *part)
{
    uint64_t until = now_ms() + 15000;

    while (!strstr(told(node), part) && now_ms() < until)
        nap_ms(50);
    CHECK(strstr(told(node), part), "node %u does not say %s but: %s", node, part, told(node));
}

static unsigned age_told(uint32_t node)
{
    const char *at = strstr(told(node), "\"age_s\": ");
    unsigned age = 0;

    CHECK(at && sscanf(at, "\"age_s\": %u", &age) == 1, "node %u tells no age: %s", node,
            told(node));
    return age;
}

static void a_loss_is_told_on_every_node(void)
{
    party_open(&p, 3, 3, 128);
    p.opts.copies = 2; /* no node is left for the place of a third */
    party_start(&p);
    party_recover(&p, 0, 0);
    party_save(&p, 1, 1);
    for (uint32_t k = 0; k < 3; k++)
        wait_told(k, "\"state\": \"protected\"");
    party_kill_rank(&p, 2);
    party_kill_engine(&p, 2);
    for (uint32_t k = 0; k < 2; k++)
        wait_told(k, "\"state\": \"degraded\"");
    wait_told(2, "\"state\": \"kept\""); /* no engine runs there */
    for (uint32_t k = 0; k < 2; k++) {   /* the next life of an engine has it on record */
        party_kill_engine(&p, k);
        wait_told(k, "\"engine_pid\": null");
        wait_told(k, "\"state\": \"degraded\"");
    }
    party_kill_ranks(&p);
    party_start(&p);
    party_recover(&p, 1, 1);
    for (uint32_t k = 0; k < 3; k++)
        wait_told(k, "\"state\": \"protected\"");
    party_save(&p, 2, 2);
    for (uint32_t k = 0; k < 3; k++)
        wait_told(k, "\"state\": \"protected\"");
}

/* N of the first "N s ago" that a node tells. */
static unsigned ago_told(uint32_t node)
{
    const char *at = strstr(told(node), " s ago");
    unsigned ago = 0;

    while (at && at[-1] >= '0' && at[-1] <= '9')
        at--;
    CHECK(at && sscanf(at, "%u s ago", &ago) == 1, "node %u tells no age: %s", node, told(node));
    return ago;
}

/* Of what was protected between two times: whole seconds, from clocks of whole ms, to when it was
 * asked. */
static void age_must_fit(uint32_t node, uint64_t before, uint64_t after)
{
    uint64_t least = (now_ms() - after - 2) / 1000, most;
    unsigned ago = ago_told(node), age = age_told(node);

    most = (now_ms() - before + 2) / 1000;
    CHECK(ago >= least && ago <= most, "node %u: not %llu to %llu s ago: %s", node,
            (unsigned long long)least, (unsigned long long)most, told(node));
    CHECK(age >= least && age <= most + 1, "node %u: not %llu to %llu s and a part of one old: %s",
            node, (unsigned long long)least, (unsigned long long)most, told(node));
}

static void an_age_outlives_engines_and_recoveries(void)
{
    uint64_t before, after;

    party_open(&p, 2, 2, 128);
    party_start(&p);
    party_recover(&p, 0, 0);
    before = now_ms();
    party_save(&p, 1, 1);
    after = now_ms();
    nap_ms(2100);
    for (uint32_t k = 0; k < 2; k++)
        age_must_fit(k, before, after);
    party_kill_engine(&p, 0);
    CHECK(age_told(0) >= 2, "without an engine: %s", told(0));
    party_kill_ranks(&p);
    party_kill_engine(&p, 1);
    party_start(&p);
    party_recover(&p, 1, 1);
    for (uint32_t k = 0; k < 2; k++) {
        wait_told(k, "\"state\": \"protected\"");
        age_must_fit(k, before, after);
    }
    party_lose_node(&p, 1);
    party_kill_ranks(&p);
    party_start(&p);
    party_recover(&p, 1, 1);
    wait_told(1, "\"state\": \"protected\"");
    CHECK(age_told(1) >= 2, "a fresh node: %s", told(1));
    before = now_ms();
    party_save(&p, 2, 2);
    after = now_ms();
    wait_told(1, "newest protected: step 2");
    age_must_fit(1, before, after);
}

int main(int argc, char **argv)
{
    static const struct party_case cases[] = {
#define CASE(name) { #name, name },
        /* clang-format off */
    CASE(a_healthy_job_complains_of_nothing)
    CASE(a_loss_is_told_on_every_node)
    CASE(an_age_outlives_engines_and_recoveries)
        /* clang-format on */
        { NULL, NULL }
    };

    return party_main(argc, argv, cases);
}
