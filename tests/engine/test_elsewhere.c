/* SPDX-License-Identifier: Apache-2.0 */
/* ELSEWHERE: an engine asks another member's, in virtual time, for a client before any attach. */
#include "reader.h"

#include "engine/job/elsewhere.h"
#include "engine/job/question.h"
#include "engine/state/history.h"
#include "transport/session/session_parts.h"

#include <jansson.h>

static char text[QUESTION_MAX + 1]; /* of the last answer */

static void hear_text(struct world *world, const struct letter *l)
{
    hear(world, l);
    if (l->client != OURS)
        return;
    memcpy(text, l->bytes + l->len, l->attached);
    text[l->attached] = '\0';
}

static void say_elsewhere(uint32_t at, uint32_t to, const char *name, uint32_t type, uint32_t what)
{
    struct hth_local_elsewhere m = { .node = to, .type = type, .what = what };

    memcpy(m.name, name, strlen(name));
    node = at;
    w.stranger = hear_text;
    say(&m, sizeof(m), HTH_LOCAL_ELSEWHERE);
}

static void elsewhere(uint32_t at, uint32_t to, enum hth_local_type answer)
{
    say_elsewhere(at, to, "", HTH_LOCAL_STATUS, 0);
    wait_for(answer);
}

static const char *answered_by(void)
{
    static char name[HTH_NAME_MAX + 1];
    json_t *json = json_loads(text, 0, NULL);

    snprintf(name, sizeof(name), "%.64s", json_string_value(json_object_get(json, "node")));
    json_decref(json);
    return name;
}

static void refused(int code, const char *sentence)
{
    cr_expect(eq(int, heard.error.code, code), "%s", heard.error.text);
    cr_expect(zero(int, strcmp(heard.error.text, sentence)), "%s", heard.error.text);
}

/* So many saves more in the memory of a node's engine, each with a long reason of its failure. */
static void remember(uint32_t at, uint64_t saves)
{
    struct history *h = (struct history *)(uintptr_t)hth_node_history(world_node(&w, at));
    char why[200];
    const struct hth_happened failed = {
        .what = HTH_MOMENT_ENDED, .code = HEARTH_EFAILED, .text = why
    };

    memset(why, '"', sizeof(why) - 1); /* each takes two bytes of an answer */
    why[sizeof(why) - 1] = '\0';
    for (uint64_t i = 0; i < saves; i++)
        (void)history_moment(
                h, (struct hth_save_id){ 9, 9, i, 1 }, &failed, NULL, w.now_ms, 1000000);
}

TestSuite(elsewhere, .init = start, .fini = end);

Test(elsewhere, each_node_gets_the_answer_of_each)
{
    char name[8];

    for (uint32_t at = 0; at < 3; at++)
        for (uint32_t to = 0; to < 3; to++) {
            elsewhere(at, to, HTH_LOCAL_BYTES);
            snprintf(name, sizeof(name), "m%u", to);
            cr_expect(zero(int, strcmp(answered_by(), name)), "%s", text);
        }
}

Test(elsewhere, a_node_is_found_by_its_name_and_the_coordinator_without_one)
{
    elsewhere(2, HTH_NODE_NONE, HTH_LOCAL_BYTES);
    cr_expect(zero(int, strcmp(answered_by(), "m0")));
    say_elsewhere(2, HTH_NODE_NONE, "m1", HTH_LOCAL_STATUS, 0);
    wait_for(HTH_LOCAL_BYTES);
    cr_expect(zero(int, strcmp(answered_by(), "m1")));
    say_elsewhere(2, HTH_NODE_NONE, "m9", HTH_LOCAL_STATUS, 0);
    wait_for(HTH_LOCAL_ERROR);
    refused(HEARTH_ENOENT, "the job has no node 'm9'");
    elsewhere(2, 3, HTH_LOCAL_ERROR);
    refused(HEARTH_ENOENT, "the job has no member 3");
}

/* The part of the answer that does not change as time passes. */
static const char *from_saves(void)
{
    const char *at = strstr(text, "\"saves\": [");

    cr_assert(ne(ptr, (void *)(uintptr_t)at, NULL));
    return at;
}

Test(elsewhere, an_answer_of_many_parts_is_the_one_that_the_node_itself_gives)
{
    struct hth_local_history m = { .what = HTH_HISTORY_SAVES };
    static char own[sizeof(text)];

    remember(0, 40);
    node = 0;
    w.stranger = hear_text;
    ask(&m, sizeof(m), HTH_LOCAL_HISTORY, HTH_LOCAL_BYTES);
    memcpy(own, from_saves(), strlen(from_saves()) + 1);
    cr_assert(gt(sz, strlen(own), 2 * HTH_BODY_MAX));
    say_elsewhere(1, 0, "", HTH_LOCAL_HISTORY, HTH_HISTORY_SAVES);
    wait_for(HTH_LOCAL_BYTES);
    cr_expect(zero(int, strcmp(from_saves(), own)));
}

Test(elsewhere, what_the_other_engine_refuses_is_refused_with_its_name)
{
    say_elsewhere(1, 2, "", HTH_LOCAL_HISTORY, 7);
    wait_for(HTH_LOCAL_ERROR);
    refused(HEARTH_EPROTO, "node m2 refuses to answer: a history of an unknown kind: use one "
                           "version of Hearth");
    say_elsewhere(1, 2, "", HTH_LOCAL_CLOSE, 0);
    wait_for(HTH_LOCAL_ERROR);
    cr_expect(eq(int, heard.error.code, HEARTH_EPROTO));
}

Test(elsewhere, a_silent_node_is_named_within_two_seconds)
{
    uint64_t from_ms = w.now_ms;

    world_silence(&w, w.member[2], 1);
    elsewhere(1, 2, HTH_LOCAL_ERROR);
    cr_expect(eq(int, !strncmp(heard.error.text, "node m2 ", 8), 1), "%s", heard.error.text);
    cr_expect(le(u64, w.now_ms - from_ms, ELSEWHERE_MS + 5));
}

Test(elsewhere, a_node_that_the_map_calls_lost_is_not_waited_for)
{
    uint64_t from_ms;

    world_crash(&w, w.member[2]);
    for (uint64_t until = w.now_ms + 20000; w.now_ms < until;) {
        const uint32_t *lost = hth_node_ctx(world_node(&w, 1))->lost;

        if (lost && lost[2])
            break;
        world_advance(&w, w.now_ms + 1);
    }
    from_ms = w.now_ms;
    elsewhere(1, 2, HTH_LOCAL_ERROR);
    refused(HEARTH_EPEER, "node m2 is lost");
    cr_expect(le(u64, w.now_ms - from_ms, 2));
}

Test(elsewhere, a_question_that_is_lost_with_its_connection_is_asked_again)
{
    say_elsewhere(1, 2, "", HTH_LOCAL_STATUS, 0);
    hth_session_drop(hth_node_ctx(world_node(&w, 1))->session, 2);
    machine_touch(&w, 1);
    wait_for(HTH_LOCAL_BYTES);
    cr_expect(zero(int, strcmp(answered_by(), "m2")));
}

Test(elsewhere, a_node_that_dies_in_the_middle_of_its_answer_is_named)
{
    uint64_t from_ms = w.now_ms;

    remember(2, 256);
    say_elsewhere(1, 2, "", HTH_LOCAL_HISTORY, HTH_HISTORY_SAVES);
    world_advance(&w, w.now_ms + 2); /* some parts */
    cr_assert(zero(u32, heard.head.type));
    world_crash(&w, w.member[2]);
    wait_for(HTH_LOCAL_ERROR);
    cr_expect(eq(int, !strncmp(heard.error.text, "node m2 ", 8), 1), "%s", heard.error.text);
    cr_expect(le(u64, w.now_ms - from_ms, ELSEWHERE_MS + 5));
}

Test(elsewhere, at_most_32_questions_wait_at_once)
{
    world_silence(&w, w.member[2], 1);
    for (uint32_t i = 0; i < ELSEWHERE_MOST; i++)
        say_elsewhere(1, 2, "", HTH_LOCAL_STATUS, 0);
    cr_assert(zero(u32, heard.head.type));
    elsewhere(1, 2, HTH_LOCAL_ERROR);
    cr_expect(eq(int, heard.error.code, HEARTH_EBUSY));
    answers = 0;
    hth_node_client_gone(world_node(&w, 1), OURS);
    world_advance(&w, w.now_ms + 3000);
    cr_expect(zero(u32, answers));
}

/* ---- A peer that asks without end ------------------------------------------------------------ */

static uint32_t outcomes[4];

static void count_answers(
        void *self, uint32_t from, uint16_t type, const unsigned char *body, size_t len)
{
    (void)self;
    (void)from;
    if (type == HTH_MSG_ANSWER && len >= 24 && hth_get32(body + 8) < 4)
        outcomes[hth_get32(body + 8)]++;
}

static void ask_raw(uint64_t number, uint32_t type, uint32_t off)
{
    unsigned char body[24] = { 0 };

    hth_put64(body, number);
    hth_put32(body + 8, type);
    hth_put32(body + 20, off);
    (void)hth_session_send(
            hth_node_ctx(world_node(&w, 1))->session, 0, HTH_MSG_ASK, body, sizeof(body));
    world_advance(&w, w.now_ms + (number % 16 == 0));
}

static void play_peer(void)
{
    hth_node_ctx(world_node(&w, 1))->session->events.on_message = count_answers;
}

Test(elsewhere, a_peer_that_asks_ten_thousand_times_has_few_answers_made)
{
    uint64_t from_ms = w.now_ms, seconds;

    play_peer();
    for (uint64_t i = 1; i <= 10000; i++)
        ask_raw(i, HTH_LOCAL_STATUS, 0);
    world_advance(&w, w.now_ms + 50);
    seconds = w.now_ms / 1000 - from_ms / 1000 + 1;
    cr_expect(gt(u32, outcomes[0], 0));
    cr_expect(le(u64, outcomes[0], 64 * seconds));
    cr_expect(gt(u32, outcomes[2], 1000));                         /* BUSY */
    elsewhere(2, 0, w.now_ms ? HTH_LOCAL_BYTES : HTH_LOCAL_ERROR); /* others are answered */
}

Test(elsewhere, of_a_peer_that_takes_no_second_part_four_answers_are_kept_for_two_seconds)
{
    play_peer();
    remember(0, 256);
    for (uint64_t i = 1; i <= 40; i++)
        ask_raw(i, HTH_LOCAL_HISTORY, 0);
    world_advance(&w, w.now_ms + 50);
    cr_expect(eq(u32, outcomes[0], 4));
    cr_expect(eq(u32, outcomes[2], 36));
    ask_raw(1, HTH_LOCAL_HISTORY, 8000);
    world_advance(&w, w.now_ms + 50);
    cr_expect(eq(u32, outcomes[0], 5));
    world_advance(&w, w.now_ms + ELSEWHERE_MS + 50);
    ask_raw(2, HTH_LOCAL_HISTORY, 8000);
    world_advance(&w, w.now_ms + 50);
    cr_expect(eq(u32, outcomes[3], 1)); /* GONE */
}

/* ---- An older engine ------------------------------------------------------------------------- */

static void third_is_older(uint32_t machine, struct hth_session_opts *session)
{
    if (machine != 2)
        return;
    session->version_low = HTH_VERSION_LOW;
    session->version_high = HTH_VERSION_ASK - 1;
}

static void start_older(void)
{
    adjusted = third_is_older;
    start();
}

TestSuite(elsewhere_older, .init = start_older, .fini = end);

Test(elsewhere_older, an_engine_of_a_version_before_is_named)
{
    elsewhere(1, 2, HTH_LOCAL_ERROR);
    refused(HEARTH_EUNSUPPORTED, "node m2 runs a version of Hearth that does not answer this");
    elsewhere(2, 1, HTH_LOCAL_ERROR);
    refused(HEARTH_EUNSUPPORTED, "node m1 runs a version of Hearth that does not answer this");
    elsewhere(1, 0, HTH_LOCAL_BYTES);
}
