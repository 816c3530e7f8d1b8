/* SPDX-License-Identifier: Apache-2.0 */
/* Strangers at rank 0's port: the ranks of the job gather all the same. */
#include "strangers.h"

/* ---- without a key -------------------------------------------------------------------------- */

Test(strangers, a_seat_is_taken_once_and_who_comes_second_is_refused_by_name)
{
    struct stranger s;
    char said[HEARTH_ERROR_TEXT];

    set_up(NULL);
    start_seated(3);
    come_as(&s, 1, NULL, 7);
    speak(&s, LEN);
    cr_assert(eq(int, hear(&s, said, sizeof(said) - 1), HEARTH_EINVAL));
    cr_assert(eq(int, strncmp(said, "rank 1 has come from 127.0.0.1 port ", 36), 0), "%s", said);
    cr_assert(ne(ptr, strstr(said, "another process comes as rank 1 from 127.0.0.1 port "), NULL),
            "%s", said);
    start(3, 4);
    join_up(0, 4);
    all_have_gathered(0); /* with rank 1's own row */
    close(s.fd);
}

Test(strangers, the_last_who_was_refused_is_named_when_the_gather_fails)
{
    struct stranger s;
    char said[HEARTH_ERROR_TEXT];

    set_up(NULL);
    for (int i = 0; i < WORLD; i++)
        ranks[i].deadline_ms = 2000;
    start_seated(2);
    come_as(&s, 1, NULL, 7);
    speak(&s, LEN);
    cr_assert(eq(int, hear(&s, said, sizeof(said) - 1), HEARTH_EINVAL));
    close(s.fd);
    join_up(0, 2);
    cr_assert(eq(int, ranks[0].rc, HEARTH_ETIMEOUT));
    cr_assert(ne(ptr, strstr(ranks[0].err.text, "rank 1 has come from"), NULL), "%s",
            ranks[0].err.text);
}

Test(strangers, half_a_row_for_a_seated_rank_changes_nothing)
{
    struct stranger s;

    set_up(NULL);
    start_seated(3);
    come_as(&s, 1, NULL, 7);
    speak(&s, 100);
    quiet(0, 3);
    start(3, 4);
    join_up(0, 4);
    all_have_gathered(0);
    close(s.fd);
}

/* The host says why, and that it is not for good. */
static void counts_otherwise(struct stranger *s)
{
    char said[HEARTH_ERROR_TEXT] = "";
    struct hth_meet_frame f;

    cr_assert(zero(int, hear_frame(s, &f, said, sizeof(said) - 1)));
    cr_assert(eq(int, (int)f.type, (int)HTH_MEET_FRAME_NO));
    cr_assert(zero(int, f.code));
    cr_assert(ne(ptr, strstr(said, "and rank 0 counts 4"), NULL), "%s", said);
}

Test(strangers, lengths_ranks_and_worlds_that_do_not_fit_are_refused)
{
    static const struct {
        uint32_t rank, world, len;
    } wrong[] = { { 1, WORLD, UINT32_MAX }, { 1, WORLD, LEN + 1 }, { 1, WORLD, 0 },
        { WORLD, WORLD, LEN }, { UINT32_MAX, UINT32_MAX, LEN }, { UINT32_MAX, WORLD, LEN },
        { 1, WORLD + 1, LEN } };
    struct stranger s;
    char said[HEARTH_ERROR_TEXT];

    set_up(NULL);
    start(0, 1);
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        come_as(&s, wrong[i].rank, NULL, 7);
        hth_put32(s.talk.greeting + 8, wrong[i].world);
        hth_put32(s.talk.greeting + 12, wrong[i].len);
        speak(&s, LEN);
        if (wrong[i].world == WORLD && (wrong[i].len == LEN || !wrong[i].len))
            cr_assert(eq(int, hear(&s, said, sizeof(said)), 1), "%zu", i);
        else
            counts_otherwise(&s);
        close(s.fd);
    }
    start(1, 4);
    join_up(0, 4);
    all_have_gathered(0);
}

#define AT_ONCE 500

Test(strangers, ten_thousand_who_say_nothing_keep_nobody_out, .timeout = 60)
{
    static int fd[AT_ONCE];

    set_up(NULL);
    start(0, 1);
    for (int i = 0; i < 10000; i++) { /* the oldest go where the process has no more descriptors */
        if (fd[i % AT_ONCE])
            close(fd[i % AT_ONCE]);
        fd[i % AT_ONCE] = dial();
        if (i == 5000)
            start(1, 3);
    }
    start(3, 4);
    join_up(0, 4);
    all_have_gathered(0);
    for (int i = 0; i < AT_ONCE; i++)
        close(fd[i]);
}

/* The strangers are another process's, and so are the other ranks: rank 0's has 24 descriptors. */
Test(strangers, who_says_nothing_goes_where_rank_0_has_no_more_descriptors, .timeout = 60)
{
    struct rlimit few = { 24, 24 };
    pid_t child, host;
    int status = -1;

    set_up(NULL);
    host = fork();
    if (!host) {
        setrlimit(RLIMIT_NOFILE, &few);
        run_one(&ranks[0]);
        _exit(ranks[0].rc != 0);
    }
    child = fork();
    if (!child) {
        for (int i = 0; i < 300; i++)
            dial();
        pause();
        _exit(0);
    }
    sleep_ms(500);
    start(1, 4);
    join_up(1, 4);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    waitpid(host, &status, 0);
    cr_assert(zero(int, status));
    all_have_gathered(1);
}

static atomic_int drip_ends;

/* As many as rank 0 has places for, and more; each says a byte now and then, and the whole
 * never. */
static void *drip(void *arg)
{
    enum { SLOW = 400 };
    static struct stranger s[SLOW];

    (void)arg;
    for (int i = 0; i < SLOW; i++) {
        s[i].fd = dial();
        hth_greeting_make(&s[i].talk, &s[i].knows,
                &(struct hth_greeting){ .world = WORLD, .round = 1, .len = LEN }, &s[i].proving);
    }
    for (size_t at = 0; !atomic_load(&drip_ends); at++) {
        for (int i = 0; i < SLOW; i++)
            if (at < HTH_GREETING)
                send(s[i].fd, s[i].talk.greeting + at, 1, MSG_NOSIGNAL);
        sleep_ms(20);
    }
    for (int i = 0; i < SLOW; i++)
        close(s[i].fd);
    return NULL;
}

Test(strangers, those_who_speak_a_byte_at_a_time_keep_nobody_out, .timeout = 60)
{
    pthread_t t;

    set_up(NULL);
    start(0, 1);
    pthread_create(&t, NULL, drip, NULL);
    sleep_ms(300);
    start(1, 4);
    join_up(0, 4);
    atomic_store(&drip_ends, 1);
    pthread_join(t, NULL);
    all_have_gathered(0);
}

Test(strangers, who_says_nothing_is_hung_up_on_after_five_seconds, .timeout = 60)
{
    struct stranger s;
    char byte;

    set_up(NULL);
    ranks[0].deadline_ms = 8000;
    start(0, 1);
    come_as(&s, 1, NULL, 7);
    cr_assert(eq(int, (int)recv(s.fd, &byte, 1, 0), 0)); /* not a time-out of ours, of 10 s */
    close(s.fd);
    join_up(0, 1);
    cr_assert(eq(int, ranks[0].rc, HEARTH_ETIMEOUT));
}

Test(strangers, a_rank_that_does_not_read_its_table_keeps_it_from_no_other)
{
    struct stranger s;

    set_up(NULL);
    ranks[0].deadline_ms = 3000;
    start(0, 1);
    come_as(&s, 1, NULL, 7);
    speak(&s, LEN);
    quiet(0, 1);
    for (int i = 2; i < 4; i++)
        ranks[i].rounds = 0;
    start(2, 4);
    join_up(2, 4);
    {
        struct stranger two, three;
        char said[WORLD * LEN];

        come_as(&two, 2, NULL, 2);
        speak(&two, LEN);
        come_as(&three, 3, NULL, 3);
        speak(&three, LEN);
        cr_assert(eq(int, hear(&two, said, sizeof(said)), 0));
        cr_assert(eq(int, hear(&three, said, sizeof(said)), 0));
        close(two.fd);
        close(three.fd);
    }
    join_up(0, 1); /* it waits for rank 1 to have it, and names the ranks that have not */
    cr_assert(eq(int, ranks[0].rc, HEARTH_EPEER));
    cr_assert(ne(ptr, strstr(ranks[0].err.text, "rank 1 left before it had the table"), NULL), "%s",
            ranks[0].err.text);
    close(s.fd);
}

/* ---- who comes again ------------------------------------------------------------------------ */

Test(strangers, a_rank_whose_connection_broke_comes_again_while_others_are_waited_for)
{
    struct stranger s, again;
    char said[WORLD * LEN];

    set_up(NULL);
    start(0, 1);
    come_as(&s, 1, NULL, 7);
    speak(&s, LEN);
    quiet(0, 1);
    come_as(&again, 1, NULL, 7); /* before rank 0 knows that the first is broken */
    speak(&again, LEN);
    quiet(0, 1);
    close(s.fd);
    come_as(&s, 2, NULL, 2);
    speak(&s, LEN);
    close(s.fd); /* gone before all are here: another process may take its place */
    quiet(0, 1);
    come_as(&s, 2, NULL, 9);
    speak(&s, LEN);
    start(3, 4);
    cr_assert(eq(int, hear(&again, said, sizeof(said)), 0));
    cr_assert(eq(int, said[2 * LEN], 0x66));
    close(again.fd);
    cr_assert(eq(int, hear(&s, said, sizeof(said)), 0));
    close(s.fd);
    join_up(3, 4);
    join_up(0, 1);
}

Test(strangers, a_rank_whose_connection_broke_with_the_table_on_its_way_gets_it_again)
{
    struct linger reset = { .l_onoff = 1 };
    struct stranger s[WORLD];
    char said[WORLD * LEN];

    set_up(NULL);
    ranks[0].deadline_ms = 5000;
    start(0, 1);
    for (uint32_t i = 1; i < WORLD; i++) {
        come_as(&s[i], i, NULL, (int)i);
        speak(&s[i], LEN);
    }
    quiet(0, 1);
    setsockopt(s[1].fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
    close(s[1].fd); /* unread: a reset */
    quiet(0, 1);
    come_as(&s[1], 1, NULL, 99); /* another's token: not now */
    speak(&s[1], LEN);
    cr_assert(eq(int, hear(&s[1], said, sizeof(said)), 1));
    close(s[1].fd);
    come_as(&s[1], 1, NULL, 1);
    speak(&s[1], LEN);
    for (uint32_t i = 1; i < WORLD; i++) {
        cr_assert(eq(int, hear(&s[i], said, sizeof(said)), 0), "rank %u", i);
        close(s[i].fd);
    }
    join_up(0, 1);
}

/* A reset reaches rank 0 in place of the word that the table is here. */
Test(strangers, a_rank_that_proves_that_it_has_the_table_is_waited_for_no_longer)
{
    struct linger reset = { .l_onoff = 1 };
    struct stranger s[WORLD];
    char said[WORLD * LEN];
    struct hth_meet_frame table;

    set_up(job_key);
    start(0, 1);
    for (uint32_t i = 1; i < WORLD; i++) {
        come_as(&s[i], i, job_key, (int)i);
        speak(&s[i], LEN);
    }
    cr_assert(zero(int, hear_frame(&s[1], &table, said, sizeof(said))));
    quiet(0, 1);
    setsockopt(s[1].fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
    close(s[1].fd);
    quiet(0, 1);
    come_as(&s[1], 1, job_key, 1);
    s[1].hello.round = table.round;
    hth_greeting_make(&s[1].talk, &s[1].knows, &s[1].hello, &s[1].proving);
    speak(&s[1], LEN);
    cr_assert(eq(int, hear(&s[1], said, sizeof(said)), 1));
    for (uint32_t i = 2; i < WORLD; i++)
        cr_assert(eq(int, hear(&s[i], said, sizeof(said)), 0), "rank %u", i);
    for (uint32_t i = 1; i < WORLD; i++)
        close(s[i].fd);
    join_up(0, 1);
    cr_assert(eq(int, ranks[0].rc, -999), "%s", ranks[0].err.text); /* it has the rows of 0x66 */
}

/* A socket that listens at rank 0's place. */
static int listen_there(void)
{
    struct sockaddr_in a = { .sin_family = AF_INET,
        .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
        .sin_port = htons(ranks[0].port) };
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), yes = 1;

    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
    cr_assert(zero(int, bind(fd, (struct sockaddr *)&a, sizeof(a))));
    cr_assert(zero(int, listen(fd, 16)));
    return fd;
}

Test(strangers, ranks_that_come_before_rank_0_or_to_one_that_ends_are_served_by_the_next)
{
    int old;

    set_up(job_key);
    old = listen_there();
    start(1, 4); /* they wait in the queue of a socket that never accepts them */
    sleep_ms(300);
    start(0, 1); /* the port is still the other's */
    sleep_ms(300);
    close(old);
    join_up(0, 4);
    all_have_gathered(0);
}

Test(strangers, many_gathers_follow_each_other_with_a_rank_that_is_late)
{
    set_up(job_key);
    for (int i = 0; i < WORLD; i++)
        ranks[i].rounds = 12;
    ranks[0].late_ms = 200;
    ranks[3].late_ms = 400;
    start(0, 4);
    join_up(0, 4);
    all_have_gathered(0);
}

static void bring(struct stranger *s, uint32_t rank)
{
    const struct hth_meet_frame f = {
        .type = HTH_MEET_FRAME_ROW, .rank = rank, .len = sizeof(s->row)
    };

    say(s, &f, s->row, sizeof(s->row));
}

/* The connection broke on the node's side alone, and the host does not know. */
Test(strangers, a_connection_takes_the_place_of_the_one_that_its_node_had_before)
{
    struct stranger old, s;
    char said[WORLD * LEN];

    set_up(NULL);
    start(0, 1);
    come_as(&old, 1, NULL, 7);
    speak(&old, LEN);
    bring(&old, 2);
    come_as(&s, 3, NULL, 7);
    speak(&s, LEN); /* a row of each rank has been here, and the table is not final */
    cr_assert(eq(int, hear(&old, said, sizeof(said)), 1));
    close(old.fd);
    quiet(0, 1);
    bring(&s, 2);
    bring(&s, 1);
    cr_assert(eq(int, hear(&s, said, sizeof(said)), 0));
    for (int i = 1; i < WORLD; i++)
        cr_assert(eq(int, said[i * LEN], 0x66));
    join_up(0, 1);
    cr_assert(eq(int, ranks[0].rc, -999), "%s", ranks[0].err.text); /* it has the rows of 0x66 */
    close(s.fd);
}

Test(strangers, a_port_scanner_is_no_rank_with_another_key)
{
    char noise[200] = "GET / HTTP/1.0\r\n";
    int fd;

    set_up(job_key);
    ranks[0].deadline_ms = 1000;
    start(0, 1);
    fd = dial();
    send(fd, noise, sizeof(noise), MSG_NOSIGNAL);
    join_up(0, 1);
    close(fd);
    cr_assert(eq(int, ranks[0].rc, HEARTH_ETIMEOUT), "%s", ranks[0].err.text);
    cr_assert(zero(ptr, strstr(ranks[0].err.text, "key_file")), "%s", ranks[0].err.text);
}
