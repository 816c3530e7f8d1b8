/* SPDX-License-Identifier: Apache-2.0 */
/* hearth why without an answer (no job, no engine, arguments that cannot be), and what it prints of
 * a save that is undecided. */
#include "answering.h"

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

/* The coordinator's record already has the last of those that have reported: that one is well. */
Test(why, of_an_undecided_save_names_what_it_waits_for)
{
    char here[1000], there[1000], id[HTH_SAVE_TEXT];
    pid_t pid;

    hth_save_text(save_id(), id);
    snprintf(here, sizeof(here),
            "{\"node\": \"n1\", \"coordinator\": \"n0\", \"saves\": [{\"save\": \"%s\", "
            "\"since_ms\": 1, \"state\": \"undecided\", \"waits_for\": \"the decision of the "
            "coordinator, node n0\", \"phases\": []}]}",
            id);
    snprintf(there, sizeof(there),
            "{\"node\": \"n0\", \"coordinator\": \"n0\", \"saves\": [{\"save\": \"%s\", "
            "\"since_ms\": 1, \"state\": \"undecided\", \"waits_for\": \"the ranks of node n3 "
            "(lost)\", \"phases\": [], \"slowest\": {\"node\": \"n2\", \"report\": \"sealed\", "
            "\"lag_ms\": 1}}]}",
            id);
    pid = answering_begin((const struct answering[]){
            { HTH_LOCAL_HISTORY, here }, { HTH_LOCAL_ELSEWHERE, there }, { 0, NULL } });
    cr_expect(zero(int, hearth("why", "--root", root, JOB)), "%s", err_text);
    cr_expect(eq(int, has(out, "\nwaits for the ranks of node n3 (lost)\n"), 1), "%s", out);
    cr_expect(zero(int, has(out, "slowest")), "%s", out);
    cr_expect(zero(int, hearth("why", "--root", root, "--json", JOB)), "%s", err_text);
    cr_expect(eq(int, has(out, "\"waits_for\": \"the ranks of node n3 (lost)\""), 1), "%s", out);
    cr_expect(zero(int, has(out, "\"kind\"")), "%s", out);
    answering_end(pid);
    pid = answering_begin((const struct answering[]){ { HTH_LOCAL_HISTORY, here }, { 0, NULL } });
    cr_expect(zero(int, hearth("why", "--root", root, JOB)), "%s", err_text);
    cr_expect(eq(int, has(out, "\nwaits for the decision of the coordinator, node n0\n"), 1), "%s",
            out);
    answering_end(pid);
}

/* A record of node `node`: of the coordinator, n0, with the reports of all. */
static void put_record(char record[1000], const char *node, const char *rest)
{
    char id[HTH_SAVE_TEXT];

    hth_save_text(save_id(), id);
    snprintf(record, 1000,
            "{\"node\": \"%s\", \"coordinator\": \"n0\", \"saves\": [{\"save\": \"%s\", "
            "\"since_ms\": 1, \"state\": \"protected\", \"ms\": 1740, \"phases\": [{\"phase\": "
            "\"manifest\", \"from_ms\": 17, \"to_ms\": 1726}]%s}]}",
            node, id, rest);
}

#define N2_HELD_LATE   ", \"slowest\": {\"node\": \"n2\", \"report\": \"held\", \"lag_ms\": 1694}"
#define PULL(from, ms) ", \"pull\": {\"node\": \"" from "\", \"bytes\": 5242880, \"ms\": " ms "}"

/* hearth why on n2, which had the manifest last. */
static void says_of_held(const char *n2_pull, const char *n0_rest, const char *verdict)
{
    char here[1000], there[1000];
    pid_t pid;

    put_record(here, "n2", n2_pull);
    put_record(there, "n0", n0_rest);
    pid = answering_begin((const struct answering[]){
            { HTH_LOCAL_HISTORY, here }, { HTH_LOCAL_ELSEWHERE, there }, { 0, NULL } });
    cr_expect(zero(int, hearth("why", "--root", root, JOB)), "%s", err_text);
    cr_expect(eq(int, has(out, verdict), 1), "not '%s': %s", verdict, out);
    answering_end(pid);
}

/* A link that is slow to or from the node holds up its manifest, or its report, behind a copy. */
Test(why, a_manifest_behind_a_slow_copy_names_the_pair)
{
    says_of_held(PULL("n1", "1700"), N2_HELD_LATE,
            "\nslowest: n1 -> n2: copy of 5.0 MiB in 1700 ms (2.9 MiB/s); held 1694 ms after ");
    says_of_held("", N2_HELD_LATE PULL("n2", "1724"),
            "\nslowest: n2 -> n0: copy of 5.0 MiB in 1724 ms (2.9 MiB/s); held 1694 ms after ");
    says_of_held(PULL("n1", "20"), N2_HELD_LATE PULL("n1", "1724"),
            "\nslowest: node n2: manifest 1709 ms; held 1694 ms after ");
}

/* The memory of a slot was made slowly: the rank that waited for it is not to blame. */
Test(why, a_rank_that_waited_for_its_slot_is_not_called_late)
{
    char here[1000], there[1000];
    pid_t pid;

    put_record(here, "n2",
            ", \"written\": {\"count\": 1, \"due\": 1, \"median_ms\": 1, \"last\": {\"rank\": 2, "
            "\"ms\": 1}}, \"slot\": {\"rank\": 2, \"ms\": 690}");
    put_record(there, "n0",
            ", \"slowest\": {\"node\": \"n2\", \"report\": \"sealed\", \"lag_ms\": 691}");
    pid = answering_begin((const struct answering[]){
            { HTH_LOCAL_HISTORY, here }, { HTH_LOCAL_ELSEWHERE, there }, { 0, NULL } });
    cr_expect(zero(int, hearth("why", "--root", root, JOB)), "%s", err_text);
    cr_expect(eq(int, has(out, "\nslowest: node n2: slot 690 ms; sealed 691 ms after "), 1), "%s",
            out);
    answering_end(pid);
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
