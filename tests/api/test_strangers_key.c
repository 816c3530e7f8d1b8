/* SPDX-License-Identifier: Apache-2.0 */
/* The same where the ranks have a key, and whoever comes has another one or none. */
#include "strangers.h"

/* ---- with a key ----------------------------------------------------------------------------- */

Test(strangers, with_another_key_or_none_is_not_heard)
{
    static const unsigned char *const keys[] = { other_key, NULL };
    struct stranger s;
    char said[HEARTH_ERROR_TEXT];

    set_up(job_key);
    start(0, 1);
    for (int i = 0; i < 2; i++) {
        come_as(&s, 1, keys[i], 7);
        speak(&s, LEN);
        cr_assert(eq(int, hear(&s, said, sizeof(said)), 1));
        close(s.fd);
    }
    come_as(&s, 1, job_key, 7);
    memcpy(s.knows.job, "other", 6); /* the same key for another job */
    hth_greeting_make(&s.talk, &s.knows, &s.hello, &s.proving);
    speak(&s, LEN);
    cr_assert(eq(int, hear(&s, said, sizeof(said)), 1));
    close(s.fd);
    start(1, 4);
    join_up(0, 4);
    all_have_gathered(0);
}

Test(strangers, what_was_said_in_another_gather_is_not_heard_in_this_one)
{
    struct stranger first, s;
    char said[WORLD * LEN];

    set_up(job_key);
    ranks[0].deadline_ms = 1500;
    start(0, 1);
    come_as(&first, 1, job_key, 7);
    speak(&first, LEN);
    join_up(0, 1); /* no other rank came */
    cr_assert(eq(int, hear(&first, said, sizeof(said)), HEARTH_ETIMEOUT));
    close(first.fd);
    set_up(job_key);
    start(0, 1);
    come_as(&s, 1, NULL, 7);
    memcpy(s.talk.greeting, first.talk.greeting, HTH_GREETING);
    speak(&s, LEN);
    cr_assert(eq(int, hear(&s, said, sizeof(said)), 1));
    close(s.fd);
    start(1, 4);
    join_up(0, 4);
    all_have_gathered(0);
}

/* One bit of the greeting, of the row's frame, or of the row. */
static void speak_bent(struct stranger *s, size_t at)
{
    struct hth_meet_frame f = {
        .type = HTH_MEET_FRAME_ROW, .rank = s->rank, .len = sizeof(s->row)
    };
    unsigned char all[HTH_GREETING + HTH_MEET_FRAME + sizeof(s->row)], digest[HTH_DIGEST];

    hth_digest(digest, s->row, sizeof(s->row));
    memcpy(all, s->talk.greeting, HTH_GREETING);
    hth_meet_frame_make(all + HTH_GREETING, &s->proving, &f, digest);
    memcpy(all + HTH_GREETING + HTH_MEET_FRAME, s->row, sizeof(s->row));
    all[at] ^= 2;
    send(s->fd, all, sizeof(all), MSG_NOSIGNAL);
    shutdown(s->fd, SHUT_WR); /* a longer body would be waited for */
}

Test(strangers, each_byte_of_greeting_and_row_is_proved)
{
    struct stranger s;
    char said[HEARTH_ERROR_TEXT];

    set_up(job_key);
    start(0, 1);
    for (size_t at = 8; at < HTH_GREETING + HTH_MEET_FRAME + sizeof(s.row);
            at += at < HTH_GREETING + HTH_MEET_FRAME ? 1 : 37) {
        come_as(&s, 1, job_key, 7);
        speak_bent(&s, at);
        cr_assert(eq(int, hear(&s, said, sizeof(said)), 1), "byte %zu", at);
        close(s.fd);
    }
    start(1, 4);
    join_up(0, 4);
    all_have_gathered(0);
}

Test(strangers, a_rank_with_another_key_is_told_so_and_so_is_rank_0)
{
    set_up(job_key);
    for (int i = 0; i < WORLD; i++)
        ranks[i].deadline_ms = 3000;
    ranks[1].key = other_key;
    ranks[2].key = NULL;
    ranks[3].job = "another";
    start(0, 4);
    join_up(0, 4);
    cr_assert(ne(ptr, strstr(ranks[0].err.text, "came without proof of our key"), NULL), "%s",
            ranks[0].err.text);
    for (int i = 0; i < 4; i++) {
        cr_assert(eq(int, ranks[i].rc, HEARTH_EAUTH), "%s", ranks[i].err.text);
        cr_assert(
                ne(ptr, strstr(ranks[i].err.text, "same key_file"), NULL), "%s", ranks[i].err.text);
    }
}

/* Each pair of steps that stand side by side, and rank 0 at the earlier and at the later one. */
Test(strangers, ranks_of_both_keys_meet_while_the_key_is_changed)
{
    static const struct {
        const unsigned char *first, *second;
    } steps[] = { { job_key, NULL }, { job_key, other_key }, { other_key, job_key },
        { other_key, NULL } };

    for (int step = 0; step < 3; step++)
        for (int later = 0; later < 2; later++) {
            set_up(NULL);
            for (int i = 0; i < WORLD; i++) {
                ranks[i].key = steps[step + ((i + later) & 1)].first;
                ranks[i].second = steps[step + ((i + later) & 1)].second;
            }
            start(0, 4);
            join_up(0, 4);
            all_have_gathered(0);
        }
}

Test(strangers, ranks_that_count_differently_and_one_with_a_key_where_there_is_none_are_named)
{
    set_up(NULL);
    for (int i = 0; i < WORLD; i++)
        ranks[i].deadline_ms = 3000;
    ranks[1].key = job_key;
    ranks[2].world = WORLD + 1;
    start(0, 3);
    join_up(0, 3);
    for (int i = 0; i < 2; i++) {
        cr_assert(eq(int, ranks[i].rc, HEARTH_EAUTH), "%s", ranks[i].err.text);
        cr_assert(
                ne(ptr, strstr(ranks[i].err.text, "same key_file"), NULL), "%s", ranks[i].err.text);
    }
    cr_assert(ne(ptr, strstr(ranks[0].err.text, "comes a rank of 5, and rank 0 counts 4"), NULL),
            "%s", ranks[0].err.text);
}

/* A stranger has the port, and gives each rank a table of his own. */
static void *pretend_to_be_rank_0(void *arg)
{
    static unsigned char table[WORLD * LEN];
    struct stranger s = { .knows = { .keyed = 1, .job = "job" }, .proving = { .is_host = 1 } };
    struct hth_meet_frame f = { .type = HTH_MEET_FRAME_TABLE, .round = 1, .len = sizeof(table) };
    int fd = accept(*(int *)arg, NULL, NULL);

    s.fd = fd;
    hth_challenge_make(s.talk.challenge, &s.knows);
    send(fd, s.talk.challenge, HTH_CHALLENGE, MSG_NOSIGNAL);
    recv(fd, s.talk.greeting, HTH_GREETING, MSG_WAITALL);
    recv(fd, s.row, LEN, MSG_WAITALL);
    say(&s, &f, table, sizeof(table));
    recv(fd, s.row, LEN, MSG_WAITALL); /* until the rank ends it */
    close(fd);
    return NULL;
}

Test(strangers, who_gives_a_table_without_proof_is_not_rank_0)
{
    struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    int listener = socket(AF_INET, SOCK_STREAM, 0), yes = 1;
    pthread_t t;

    set_up(job_key);
    a.sin_port = htons(ranks[1].port);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
    cr_assert(eq(int, bind(listener, (struct sockaddr *)&a, sizeof(a)), 0));
    listen(listener, 4);
    pthread_create(&t, NULL, pretend_to_be_rank_0, &listener);
    start(1, 2);
    join_up(1, 2);
    pthread_join(t, NULL);
    close(listener);
    cr_assert(eq(int, ranks[1].rc, HEARTH_EAUTH), "%s", ranks[1].err.text);
    cr_assert(ne(ptr, strstr(ranks[1].err.text, "does not prove the job key"), NULL), "%s",
            ranks[1].err.text);
}

Test(strangers, off_loopback_the_ranks_meet_with_a_key_or_where_that_was_allowed)
{
    struct hearth_bootstrap *b;
    struct hearth_error err = { 0 };
    unsigned char mine[LEN] = { 0 }, all[2 * LEN];

    alarm(60);
    must(hearth_bootstrap_tcp("0.0.0.0", port_keep(), 0, 2, 200, &b, &err), err);
    tell(b, "job", NULL, NULL, 0);
    must_fail(b->allgather(b->self, mine, LEN, all, &err), HEARTH_EINVAL);
    cr_assert(ne(ptr, strstr(err.text, "without a key they meet on loopback only"), NULL), "%s",
            err.text);
    tell(b, "job", NULL, NULL, 1);
    must_fail(b->allgather(b->self, mine, LEN, all, &err), HEARTH_ETIMEOUT);
    tell(b, "job", job_key, NULL, 0);
    must_fail(b->allgather(b->self, mine, LEN, all, &err), HEARTH_ETIMEOUT);
    hearth_bootstrap_close(b);
}
