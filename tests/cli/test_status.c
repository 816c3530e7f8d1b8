/* SPDX-License-Identifier: Apache-2.0 */
/* hearth status, nodes and saves: what they print of an engine's answers, and without one. */
#include "answering.h"

#include <jansson.h>

TestSuite(status, .init = make_root, .fini = remove_root);

#define WELL "\"health\": {\"state\": \"well\", \"checks\": []}"
#define RISK                                                                                       \
    "\"health\": {\"state\": \"at risk\", \"checks\": [{\"name\": \"node_lost\", \"level\": 1, "   \
    "\"text\": \"Node n2 is lost, which this engine has known for 14 s: its copies move to other " \
    "nodes\"}, {\"name\": \"copies_below\", \"level\": 1, \"text\": \"Step 5000 has "              \
    "fewer copies\"}]}"
#define BROKEN                                                                             \
    "\"health\": {\"state\": \"broken\", \"checks\": [{\"name\": \"coordinator_silent\", " \
    "\"level\": 2, \"text\": \"Nothing has come from the coordinator, node n0, for 40 s\"}]}"
#define REST(health)                                                                           \
    "{\"job\": \"" JOB "\", \"node\": \"n1\", \"coordinator\": \"n0\", \"as_of_ms\": 250, "    \
    "\"members\": 3, \"fabric\": \"tcp\", \"version\": \"0.1.0\", " health ", "                \
    "\"newest_protected\": {\"step\": 5000, \"state\": \"protected\", \"age_s\": 12.345, "     \
    "\"intervals\": 0.411}, \"interval_s\": 30.0, \"copies\": {\"asked\": 2, \"below\": 1, "   \
    "\"no_domain\": 0}, \"behind\": {\"saves\": 1, \"oldest_s\": 3, \"bytes\": 1048576}, "     \
    "\"room\": {\"kept\": 1048576, \"undecided\": 0, \"copies\": 2097152, \"free\": 4194304, " \
    "\"reserved\": 8388608, \"spare\": 1048576, \"max\": null, \"tmpfs_size\": 1073741824, "   \
    "\"tmpfs_free\": 536870912, \"cgroup_max\": null, \"cgroup_used\": null}}"
#define NODE(name, member, state)                                                                  \
    "{\"node\": \"" name "\", \"member\": " member ", \"address\": \"10.0.0.1:7000\", "            \
    "\"domains\": {\"machine\": \"" name "\", \"levels\": [\"000000ab\"]}, \"state\": " state ", " \
    "\"since_s\": 14, \"ranks\": 8, \"holds\": 16, \"owes\": null}"
#define NODES(third)                                                                        \
    "{\"node\": \"n1\", \"skip\": 0, \"members\": 3, \"as_of_ms\": 250, \"nodes\": [" NODE( \
            "n0", "0", "\"ok\"") ", " NODE("n1", "1", "\"ok\"") ", " NODE("n2", "2", third) "]}"

static pid_t answer(const char *status, const char *nodes)
{
    return answering_begin((const struct answering[]){
            { HTH_LOCAL_STATUS, status }, { HTH_LOCAL_NODES, nodes }, { 0, NULL } });
}

/* ---- status ---------------------------------------------------------------------------------- */

Test(status, the_state_is_the_exit_status_and_the_reasons_come_first)
{
    static const struct {
        const char *status, *nodes, *first, *says;
        int code;
    } rows[] = {
        { REST(WELL), NODES("\"ok\""), JOB ": well\nnewest ", "all well as far as node n1 knows",
                0 },
        { REST(RISK), NODES("\"lost\""), JOB ": at risk\n  node_lost     Node n2 is lost",
                "3: n2 lost for 14 s", 1 },
        { REST(BROKEN), NODES("null"), JOB ": broken\n  coordinator_silent  Nothing has come",
                "3; the state of 1 is not known", 2 },
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        pid_t pid = answer(rows[i].status, rows[i].nodes);

        cr_expect(eq(int, hearth("status", "--root", root, JOB), rows[i].code), "%s", err_text);
        cr_expect(zero(int, strncmp(out, rows[i].first, strlen(rows[i].first))), "%s", out);
        cr_expect(eq(int, has(out, rows[i].says), 1), "no '%s' in %s", rows[i].says, out);
        cr_expect(
                eq(int, has(out, "step 5000, protected, 12 s old: 0.4 save intervals of 30 s"), 1),
                "%s", out);
        cr_expect(eq(int, has(out, "2 asked for; 1 saves have fewer"), 1), "%s", out);
        cr_expect(eq(int, has(out, "1 saves, the oldest for 3 s; 1.0 MiB to be pulled"), 1), "%s",
                out);
        cr_expect(eq(int, has(out, "mount: 512.0 MiB of 1.0 GiB free"), 1), "%s", out);
        cr_expect(eq(int, has(out, "0.2 s ago, by the coordinator, node n0; asked on node n1"), 1),
                "%s", out);
        cr_expect(eq(int, hearth("status", "--root", root), rows[i].code), "%s", err_text);
        cr_expect(eq(int, has(out, JOB), 1), "%s", out);
        answering_end(pid);
    }
}

/* The engine writes it as a string, and metrics print its digits. */
Test(status, the_largest_step_is_printed_with_all_its_digits)
{
    char large[3000] = REST(WELL), *at = strstr(large, "\"step\": 5000"), rest[3000];
    pid_t pid;

    memcpy(rest, at + strlen("\"step\": 5000"), strlen(at + strlen("\"step\": 5000")) + 1);
    snprintf(
            at, sizeof(large) - (size_t)(at - large), "\"step\": \"18446744073709551613\"%s", rest);
    pid = answering_begin((const struct answering[]){ { HTH_LOCAL_STATUS, large },
            { HTH_LOCAL_NODES, NODES("\"ok\"") },
            { HTH_LOCAL_METRICS,
                    "{\"job\": \"" JOB
                    "\", \"node\": \"n1\", \"families\": [{\"name\": \"hearth_protected_step\", "
                    "\"type\": \"gauge\", \"help\": \"h\", \"samples\": "
                    "[[\"\", {}, \"18446744073709551613\"]]}]}" },
            { 0, NULL } });
    cr_expect(eq(int, hearth("status", "--root", root, JOB), 0), "%s", err_text);
    cr_expect(eq(int, has(out, "newest  step 18446744073709551613, protected"), 1), "%s", out);
    cr_expect(eq(int, hearth("status", "--root", root), 0), "%s", err_text);
    cr_expect(eq(int, has(out, "18446744073709551613"), 1), "%s", out);
    cr_expect(eq(int, hearth("metrics", "--root", root), 0), "%s", err_text);
    cr_expect(eq(int, has(out, "\"n1\"} 18446744073709551613\n"), 1), "%s", out);
    answering_end(pid);
}

/* Of an engine that does not say it, nothing is said to be well. */
Test(status, what_the_engine_does_not_say_is_not_known)
{
    pid_t pid = answer("{\"job\": \"" JOB "\", \"node\": \"n1\", \"members\": 2}", NULL);

    cr_expect(eq(int, hearth("status", "--root", root, JOB), 1), "%s", err_text);
    cr_expect(eq(int, has(out, JOB ": not known"), 1), "%s", out);
    cr_expect(zero(int, has(out, "well\n")), "%s", out);
    cr_expect(eq(int,
                      has(out, "newest  not known") && has(out, "copies  not known") &&
                              has(out, "which of them are well is not known") &&
                              has(out, "room    not known") && has(out, "an unknown time"),
                      1),
            "%s", out);
    answering_end(pid);
}

/* What the coordinator said long ago is no news. */
Test(status, old_news_is_in_the_past_tense)
{
    char old[3000] = REST(BROKEN), *at = strstr(old, "\"as_of_ms\": 250");
    pid_t pid;

    memcpy(at, "\"as_of_ms\":9250", 15);
    pid = answer(old, NODES("null"));
    cr_expect(eq(int, hearth("status", "--root", root, JOB), 2), "%s", err_text);
    cr_expect(eq(int, has(out, "2 asked for; 1 saves had fewer 9 s ago"), 1), "%s", out);
    answering_end(pid);
}

/* A liveness probe that fails ends the engine, and with it the copies of a broken job. */
Test(status, an_engine_that_stands_still_is_not_alive_and_one_of_a_broken_job_is)
{
    pid_t pid = answer(REST(BROKEN), NODES("null"));

    cr_expect(zero(int, hearth("status", "--alive", "--root", root, JOB)), "%s", err_text);
    cr_assert(zero(int, kill(pid, SIGSTOP)));
    cr_expect(eq(int, hearth("status", "--alive", "--root", root, JOB), 5), "%s", out);
    cr_assert(zero(int, kill(pid, SIGCONT)));
    cr_expect(zero(int, hearth("status", "--alive", "--root", root, JOB)), "%s", err_text);
    answering_end(pid);
}

Test(status, an_engine_that_died_is_broken_and_one_that_ended_is_not_found)
{
    pid_t pid = answer(REST(WELL), NODES("\"ok\""));
    json_t *got;

    answering_end(pid); /* its socket stays */
    cr_expect(eq(int, hearth("status", "--root", root, JOB), 2), "%s%s", out, err_text);
    cr_expect(eq(int, has(out, JOB ": broken\n  engine_gone  No engine runs"), 1), "%s", out);
    cr_expect(eq(int, hearth("status", "--root", root), 2), "%s%s", out, err_text);
    cr_expect(eq(int, has(out, "engine_gone"), 1), "%s", out);
    cr_expect(eq(int, hearth("status", "--alive", "--root", root, JOB), 5), "%s", out);
    cr_expect(eq(int, has(err_text, "No engine runs"), 1), "%s", err_text);
    cr_expect(eq(int, hearth("status", "--root", root, JOB, "--json"), 2), "%s", err_text);
    got = json_loads(out, 0, NULL);
    cr_expect(eq(int, json_is_null(json_object_get(got, "status")), 1), "%s", out);
    json_decref(got);
    cr_assert(zero(int, unlink(in_job(".hearth/sock"))));
    cr_expect(eq(int, hearth("status", "--root", root, JOB), 3), "%s", out);
    cr_expect(eq(int, has(err_text, "ended in order"), 1), "%s", err_text);
    cr_expect(eq(int, hearth("status", "--alive", "--root", root, JOB), 3), "%s", out);
    cr_expect(eq(int, hearth("status", "--alive", "--root", root), 2), "%s", out);
    cr_expect(eq(int, hearth("status", "--root", root), 3), "%s", out);
    cr_expect(eq(int, hearth("status", "--root", root, "trainn"), 3), "%s", out);
    cr_expect(eq(int,
                      has(err_text, "there is no job 'trainn'") &&
                              has(err_text, "did you mean '" JOB),
                      1),
            "%s", err_text);
    for (size_t i = 0; i < 3; i++) {
        static const char *const others[] = { "ls", "keep", "why" };

        cr_expect(eq(int, hearth(others[i], "--root", root, "trainn"), 3), "%s", out);
        cr_expect(eq(int, has(err_text, "did you mean '" JOB "'?"), 1), "%s", err_text);
    }
    cr_expect(eq(int, hearth("nodes", "--root", root, JOB), 3), "%s", out);
    cr_expect(eq(int, hearth("saves", "--root", root, JOB), 3), "%s", out);
    cr_expect(eq(int, hearth("status", "--root", "/nonexistent"), 3), "%s", out);
}

/* The engine holds the lock, and nothing listens. */
Test(status, an_engine_that_does_not_answer_is_broken)
{
    struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
    int fd;

    cr_assert(zero(int, mkdir(in_job(""), 0700) | mkdir(in_job(".hearth"), 0700)));
    fd = open(in_job(".hearth/lock"), O_CREAT | O_RDWR, 0600);
    cr_assert(eq(i64, pwrite(fd, "77                      ", 24, 0), 24));
    cr_assert(zero(int, fcntl(fd, F_OFD_SETLK, &lock)));
    cr_expect(eq(int, hearth("status", "--root", root, JOB), 2), "%s", err_text);
    cr_expect(eq(int, has(out, "does not answer within 2 s"), 1), "%s", out);
    close(fd);
}

/* That it does not answer this user says nothing about the job. */
Test(status, an_engine_of_another_user_is_not_called_broken)
{
    pid_t pid = answer(NULL, NULL);

    if (geteuid() != 0)
        cr_skip_test("there is no other user");
    cr_assert(zero(
            int, chmod(root, 0755) | chmod(in_job(""), 0755) | chmod(in_job(".hearth"), 0755)));
    cr_expect(eq(int, hearth_user("status", "--root", root, JOB), 1), "%s%s", out, err_text);
    cr_expect(eq(int, has(out, JOB ": not known") && has(out, "another user's"), 1), "%s", out);
    answering_end(pid);
}

/* Nor does it say that there is no job, or that no engine runs. */
Test(status, jobs_that_this_user_may_not_look_into_are_told_from_no_jobs)
{
    if (geteuid() != 0)
        cr_skip_test("there is no other user");
    answering_end(answer(NULL, NULL));
    cr_assert(zero(int, chmod(root, 0755)));
    cr_expect(eq(int, hearth_user("status", "--root", root), 5), "%s%s", out, err_text);
    cr_expect(eq(int, has(err_text, "1 jobs of") && !has(err_text, "no engine runs"), 1), "%s",
            err_text);
    hearth_user("doctor", "--root", root);
    cr_expect(eq(int, has(out, "1 jobs of other users are here"), 1), "%s", out);
    cr_expect(eq(int, hearth_user("doctor", "--root", root, JOB), 5), "%s%s", out, err_text);
    cr_expect(eq(int, has(err_text, "is another user's"), 1), "%s", err_text);
}

/* ---- nodes ----------------------------------------------------------------------------------- */

Test(status, nodes_are_listed_the_worst_first_with_what_they_answer)
{
    pid_t pid = answering_begin((const struct answering[]){ { HTH_LOCAL_STATUS, REST(RISK) },
            { HTH_LOCAL_NODES, NODES("\"lost\"") }, { HTH_LOCAL_ELSEWHERE, REST(WELL) },
            { 0, NULL } });
    json_t *got, *row;

    cr_expect(eq(int, hearth("nodes", "--root", root, JOB), 1), "a node is lost: %s", err_text);
    cr_expect(lt(ptr, strstr(out, "n2"), strstr(out, "n0")), "%s", out);
    cr_expect(eq(int, has(out, "n2    lost    14 s"), 1), "%s", out);
    cr_expect(eq(int,
                      has(out, "5.0 MiB") && has(out, "tcp") && has(out, "0.1.0") &&
                              has(out, "n0/000000ab") && has(out, "10.0.0.1:7000"),
                      1),
            "%s", out);
    setenv("COLUMNS", "60", 1);
    cr_expect(eq(int, hearth("nodes", "--root", root, JOB), 1), "%s", err_text);
    cr_expect(zero(int, has(out, "ADDRESS")), "%s", out);
    cr_expect(eq(int, has(out, "OWES"), 1), "%s", out);
    unsetenv("COLUMNS");
    cr_expect(eq(int, hearth("nodes", "--root", root, JOB, "--json"), 1), "%s", err_text);
    got = json_loads(out, 0, NULL);
    row = json_array_get(json_object_get(got, "nodes"), 2);
    cr_expect(eq(str, (char *)(uintptr_t)json_string_value(json_object_get(row, "state")),
            (char *)(uintptr_t) "lost"));
    cr_expect(eq(int, json_is_null(json_object_get(row, "owes")), 1), "%s", out);
    json_decref(got);
    answering_end(pid);
    pid = answer(REST(WELL), NODES("\"ok\"")); /* to ELSEWHERE an error */
    cr_expect(zero(int, hearth("nodes", "--root", root, JOB)), "%s", err_text);
    cr_expect(zero(int, has(out, "0.1.0")), "%s", out);
    cr_expect(zero(int, hearth("nodes", "--root", root, JOB, "--json")), "%s", err_text);
    cr_expect(eq(int, has(out, "\"unanswered\": \"node n2 has not answered\""), 1), "%s", out);
    answering_end(pid);
}

/* ---- saves ----------------------------------------------------------------------------------- */

Test(status, saves_have_one_word_their_marks_and_the_time_they_took)
{
    char status[1500], history[2000], id[4][HTH_SAVE_TEXT];
    struct hth_save_id save = save_id();
    pid_t pid;

    for (int i = 0; i < 4; i++) {
        save.step = 10 * ((uint64_t)i + 1);
        hth_save_text(save, id[i]);
    }
    snprintf(status, sizeof(status),
            "{\"node\": \"n1\", \"copies\": {\"asked\": 2}, \"kept\": [{\"save\": "
            "\"%s\", \"state\": "
            "\"degraded\", \"pinned\": true, \"bad\": false, \"tries\": 0, \"age_s\": "
            "5}, {\"save\": "
            "\"%s\", \"state\": \"protected\", \"pinned\": false, \"bad\": true, \"tries\": 2, "
            "\"age_s\": 60}]}",
            id[2], id[1]);
    snprintf(history, sizeof(history),
            "{\"node\": \"n1\", \"saves\": [{\"save\": \"%s\", \"since_ms\": 1, \"state\": "
            "\"failed\", \"ms\": 9, \"reason\": \"no room on n2\"}, {\"save\": \"%s\", "
            "\"since_ms\": "
            "1, \"state\": \"protected\", \"ms\": 612}, {\"save\": \"%s\", \"since_ms\": 1, "
            "\"state\": \"protected\", \"ms\": 500}]}",
            id[3], id[2], id[0]);
    pid = answering_begin((const struct answering[]){
            { HTH_LOCAL_STATUS, status }, { HTH_LOCAL_HISTORY, history }, { 0, NULL } });
    cr_expect(zero(int, hearth("saves", "--root", root, JOB)), "%s", err_text);
    cr_expect(lt(ptr, strstr(out, "  40"), strstr(out, "  30")), "newest first: %s", out);
    cr_expect(eq(int, has(out, "40  failed") && has(out, "no room on n2"), 1), "%s", out);
    cr_expect(eq(int, has(out, "30  degraded  below 2      5 s  612 ms") && has(out, "pinned"), 1),
            "%s", out);
    cr_expect(eq(int, has(out, "20  bad") && has(out, "recovered by 2 jobs"), 1), "%s", out);
    cr_expect(eq(int, has(out, "10  freed"), 1), "%s", out);
    cr_expect(zero(int, hearth("saves", "--root", root, JOB, "--json")), "%s", err_text);
    cr_expect(eq(int, has(out, "\"ms\": 612") && has(out, "\"state\": \"bad\""), 1), "%s", out);
    /* ls and keep have the same words */
    cr_expect(zero(int, hearth("keep", "--root", root, JOB)), "%s", err_text);
    cr_expect(eq(int, has(out, "degraded") && has(out, "bad") && !has(out, "protected"), 1), "%s",
            out);
    answering_end(pid);
}
