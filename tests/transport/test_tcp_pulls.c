/* SPDX-License-Identifier: Apache-2.0 */
/* Pulls of the transport tcp's own: what it asks for and when, and an owner who sends something
 * else. */
#include "tcp_side.h"

#include "core/base/crc.h"

#include <string.h>
#include <unistd.h>

#define PART    ((uint64_t)HTH_TCP_PART)
#define WAITING (UINT64_C(2) << 20) /* bytes that are asked for at once on the shortest way */
#define MOST    (UINT64_C(16) << 20)

static struct tcp_side side;
static struct tcp_member m;
static struct hth_tcp_bulk *bulk;
static uint64_t began; /* bytes that it would ask for at once */

static void pulls_start(void)
{
    tcp_side_open(&side, "127.0.0.1");
    tcp_join(&side, &m);
    bulk = hth_tcp_conn_get(hth_tcp_of(side.t), m.conn)->bulk[0];
    began = bulk->ahead;
    bulk->ahead = WAITING; /* whatever the loopback took for the hello */
}

static void pulls_stop(void)
{
    tcp_leave(&m);
    tcp_side_close(&side);
}

TestSuite(tcp_pulls, .init = pulls_start, .fini = pulls_stop, .timeout = 60);

static const unsigned char desc[HTH_TCP_DESC] = { 1 };

/* Of that much, into the same place of our region as it has in the owner's. */
static void pull(uint64_t off, uint64_t len)
{
    must(side.t->ops->pull(side.t, m.conn, desc, sizeof(desc), off, side.region, off, len, 5));
}

struct request {
    uint64_t pull, off, len;
};

static struct request hear(void)
{
    unsigned char out[HTH_TCP_HEAD + HTH_TCP_REQUEST];

    cr_assert(tcp_hear(&side, m.bulk, out, sizeof(out)));
    cr_assert(eq(int, out[0], HTH_TCP_ASK));
    cr_assert(zero(int, memcmp(out + HTH_TCP_HEAD, desc + 8, 24)));
    return (struct request){ .pull = hth_get64(out + 8),
        .off = hth_get64(out + HTH_TCP_HEAD + 24),
        .len = hth_get64(out + HTH_TCP_HEAD + 32) };
}

static void hear_part(uint64_t off, uint64_t len, struct request *out)
{
    *out = hear();
    cr_expect(eq(u64, out->off, off));
    cr_expect(eq(u64, out->len, len));
}

static void must_ask_no_more(void)
{
    tcp_turns(&side, 20);
    cr_expect(tcp_is_quiet(m.bulk));
}

static unsigned char byte_at(uint64_t off)
{
    return (unsigned char)(off * UINT64_C(2654435761) >> 13);
}

/* Frames of that request: `len` bytes of it, in pieces of `piece`. */
static void say_data(const struct request *r, uint64_t len, uint64_t piece)
{
    static unsigned char frame[HTH_TCP_HEAD + HTH_TCP_PIECE];

    for (uint64_t at = 0, n; at < len; at += n) {
        n = len - at < piece ? len - at : piece;
        hth_tcp_head_put(frame, HTH_TCP_DATA, 0, (uint32_t)n, r->pull);
        for (uint64_t i = 0; i < n; i++)
            frame[HTH_TCP_HEAD + i] = byte_at(r->off + at + i);
        tcp_say_all(&side, m.bulk, frame, HTH_TCP_HEAD + n);
    }
}

static void say_end(const struct request *r, unsigned code)
{
    unsigned char head[HTH_TCP_HEAD];

    hth_tcp_head_put(head, HTH_TCP_END, code, 0, r->pull);
    tcp_say(m.bulk, head, sizeof(head));
    tcp_turns(&side, 5);
}

static void say_part(const struct request *r)
{
    say_data(r, r->len, HTH_TCP_PIECE);
    say_end(r, 0);
}

static void must_have_pulled(int pulls, int code)
{
    for (int i = 0; i < 1000 && side.pulls < pulls; i++)
        tcp_turns(&side, 1);
    cr_assert(eq(int, side.pulls, pulls));
    cr_assert(eq(int, side.pull_code, code));
}

static void must_be_there(uint64_t off, uint64_t len)
{
    for (uint64_t i = off; i < off + len; i++)
        cr_assert(eq(int, side.bytes[i], byte_at(i)), "byte %" PRIu64, i);
}

/* ---- what is asked for ---- */

Test(tcp_pulls, a_long_one_is_asked_for_in_parts_and_ends_once)
{
    const uint64_t len = 5 * PART + 4711;
    struct request r[4];

    pull(64, len);
    for (uint64_t i = 0; i < 4; i++)
        hear_part(64 + i * PART, PART, &r[i]);
    for (uint64_t i = 0; i < 6; i++) {
        cr_assert(zero(int, side.pulls));
        say_data(&r[i % 4], r[i % 4].len, 100000);
        say_end(&r[i % 4], 0);
        if (i < 2)
            hear_part(64 + (4 + i) * PART, i ? 4711 : PART, &r[i]);
    }
    must_have_pulled(1, HEARTH_OK);
    must_be_there(64, len);
    cr_expect(eq(int, side.bytes[63], 1));
    cr_expect(eq(int, side.bytes[64 + len], 1));
    cr_expect(eq(int, side.has_crc, 1));
    cr_expect(eq(u32, side.crc, hth_crc32c(side.bytes + 64, len)));
    must_ask_no_more();
    must(side.t->ops->dereg(side.t, side.region));
}

Test(tcp_pulls, each_piece_that_comes_is_progress)
{
    struct request r;

    cr_expect(zero(u64, side.t->ops->pulled_ms(side.t, m.conn)));
    pull(0, PART);
    hear_part(0, PART, &r);
    cr_expect(zero(u64, side.t->ops->pulled_ms(side.t, m.conn)));
    for (int i = 0; i < 3; i++) {
        side.now_ms += 700;
        say_data(&r, 1000, 1000);
        for (int k = 0; k < 100 && side.t->ops->pulled_ms(side.t, m.conn) != side.now_ms; k++)
            tcp_turns(&side, 1);
        cr_expect(eq(u64, side.t->ops->pulled_ms(side.t, m.conn), side.now_ms));
    }
    cr_expect(zero(int, side.pulls));
}

Test(tcp_pulls, no_more_is_asked_for_than_may_wait_here)
{
    struct request r[4], next;

    pull(0, SIDE_BYTES);
    for (uint64_t i = 0; i < WAITING / PART; i++)
        hear_part(i * PART, PART, &r[i]);
    must_ask_no_more();
    say_data(&r[0], PART, HTH_TCP_PIECE);
    must_ask_no_more();
    say_end(&r[0], 0);
    hear_part(WAITING, PART, &next);
    must_ask_no_more();
}

/* Bytes on their way are no more in the cache here than bytes that were not requested. */
Test(tcp_pulls, more_is_asked_for_where_the_way_is_long)
{
    struct request r;

    bulk->ahead = WAITING + 3 * PART;
    pull(0, SIDE_BYTES);
    for (uint64_t i = 0; i < WAITING / PART + 3; i++)
        hear_part(i * PART, PART, &r);
    must_ask_no_more();
}

static uint64_t ahead_by(int family)
{
    struct hth_tcp_bulk b = { .fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0) };

    cr_assert(ge(int, b.fd, 0));
    hth_tcp_pulls_begin(&b);
    close(b.fd);
    return b.ahead;
}

Test(tcp_pulls, what_may_wait_is_bounded_on_any_way)
{
    cr_expect(gt(u64, began, WAITING), "the kernel measures each way, a microsecond at least");
    cr_expect(le(u64, began, MOST));
    cr_expect(eq(u64, ahead_by(AF_INET), MOST),
            "the bytes ahead on a path that has not been measured");
    cr_expect(eq(u64, ahead_by(AF_UNIX), WAITING), "of one that cannot be");
}

Test(tcp_pulls, a_short_one_does_not_wait_until_a_long_one_has_been_asked_for)
{
    struct request first, r;

    pull(0, SIDE_BYTES - 64);
    first = hear();
    for (int i = 1; i < 4; i++)
        r = hear();
    pull(SIDE_BYTES - 64, 64);
    must_ask_no_more();
    say_part(&first);
    hear_part(SIDE_BYTES - 64, 64, &r);
    say_data(&r, 64, 64);
    must_ask_no_more(); /* behind what was asked for before it */
}

Test(tcp_pulls, sixty_four_requests_are_the_most_at_once)
{
    struct request r, first = { 0 };

    for (uint64_t i = 0; i < HTH_TCP_PULLS - 1; i++)
        pull(i * 64, 64);
    pull(PART, 2 * PART);
    must_fail(side.t->ops->pull(side.t, m.conn, desc, sizeof(desc), 0, side.region, 0, 64, 5),
            HEARTH_EBUSY);
    for (uint64_t i = 0; i < HTH_TCP_PULLS; i++) {
        hear_part(i < HTH_TCP_PULLS - 1 ? i * 64 : PART, i < HTH_TCP_PULLS - 1 ? 64 : PART, &r);
        first = i ? first : r;
    }
    must_ask_no_more();
    say_part(&first);
    hear_part(2 * PART, PART, &r);
}

Test(tcp_pulls, one_of_nothing_is_asked_for_and_ends)
{
    struct request r;

    pull(64, 0);
    hear_part(64, 0, &r);
    cr_assert(zero(int, side.pulls));
    say_end(&r, 0);
    must_have_pulled(1, HEARTH_OK);
    must_ask_no_more();
}

/* ---- what is answered ---- */

Test(tcp_pulls, one_is_denied_when_all_that_was_asked_for_has_ended)
{
    struct request r[4], next;

    pull(0, SIDE_BYTES);
    for (int i = 0; i < 4; i++)
        r[i] = hear();
    say_data(&r[0], 1000, 1000);
    say_end(&r[0], 1);
    must_ask_no_more();
    say_part(&r[1]);
    say_end(&r[2], 1);
    cr_expect(zero(int, side.pulls), "the owner still writes into it");
    must_fail(side.t->ops->dereg(side.t, side.region), HEARTH_EBUSY);
    say_part(&r[3]);
    must_have_pulled(1, HEARTH_EDENIED);
    cr_expect(zero(int, side.has_crc));
    must_be_there(0, 1000);
    must_be_there(PART, PART);
    must_be_there(3 * PART, PART); /* where they belong, though it is nothing */
    cr_expect(eq(int, side.bytes[1000], 1));
    cr_expect(eq(int, side.bytes[2 * PART], 1));
    cr_expect(zero(int, side.downs));
    pull(0, 64);
    hear_part(0, 64, &next);
    cr_expect(ne(u64, next.pull, r[0].pull));
    say_part(&next);
    must_have_pulled(2, HEARTH_OK);
    must(side.t->ops->dereg(side.t, side.region));
}

Test(tcp_pulls, the_last_part_denied_denies_all_of_it)
{
    struct request r[2];

    pull(0, 2 * PART);
    for (int i = 0; i < 2; i++)
        r[i] = hear();
    say_part(&r[0]);
    say_end(&r[1], 1);
    must_have_pulled(1, HEARTH_EDENIED);
}

Test(tcp_pulls, an_answer_that_is_too_long_costs_the_connection_and_is_not_written)
{
    struct request r;

    pull(0, 32);
    r = hear();
    say_data(&r, 33, 64);
    tcp_must_cost(&side, &m);
    must_have_pulled(1, HEARTH_EPROTO);
    for (int i = 0; i < 64; i++)
        cr_expect(eq(int, side.bytes[i], 1));
}

/* Of it more is under way, but it is an answer to this request. */
Test(tcp_pulls, a_part_that_is_too_long_costs_the_connection_and_is_not_written)
{
    struct request r;

    pull(0, 2 * PART);
    r = hear();
    say_data(&r, PART - 1, PART);
    say_data(&r, 2, 2);
    tcp_must_cost(&side, &m);
    must_have_pulled(1, HEARTH_EPROTO);
    cr_expect(eq(int, side.bytes[PART - 1], 1));
}

static void end_early(uint64_t len, uint64_t came)
{
    struct request r;

    pull(0, len);
    r = hear();
    say_data(&r, came, PART);
    say_end(&r, 0);
    tcp_must_cost(&side, &m);
    must_have_pulled(1, HEARTH_EPROTO);
}

Test(tcp_pulls, an_end_before_all_bytes_is_no_success)
{
    end_early(32, 31);
}

Test(tcp_pulls, an_end_before_all_bytes_of_its_part_is_no_success)
{
    end_early(2 * PART, PART - 1);
}

Test(tcp_pulls, an_end_too_many_costs_the_connection)
{
    struct request r;

    pull(0, 2 * PART);
    r = hear();
    for (int i = 0; i < 2; i++)
        say_end(&r, 1);
    must_have_pulled(1, HEARTH_EDENIED);
    say_end(&r, 1);
    tcp_must_cost(&side, &m);
    must_have_pulled(1, HEARTH_EDENIED);
}

Test(tcp_pulls, an_answer_to_one_that_is_over_finds_none)
{
    struct request r;

    pull(0, 32);
    r = hear();
    say_part(&r);
    must_have_pulled(1, HEARTH_OK);
    must_be_there(0, 32);
    pull(0, 32); /* in the same place */
    hear();
    say_data(&r, 32, 32);
    tcp_must_cost(&side, &m);
}
