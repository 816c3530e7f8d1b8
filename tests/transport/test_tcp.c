/* SPDX-License-Identifier: Apache-2.0 */
/* Members of the transport tcp that ask for bytes they may not have, send nonsense, or do not
 * read. */
#include "tcp_side.h"

#include "core/base/crc.h"
#include <arpa/inet.h>
#include <malloc.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#define ASKED (UINT64_C(4) << 20)

static struct tcp_side side;
static struct tcp_member m;

static void tcp_start(void)
{
    tcp_side_open(&side, "127.0.0.1");
    tcp_join(&side, &m);
}

static void tcp_stop(void)
{
    tcp_leave(&m);
    tcp_side_close(&side);
}

TestSuite(tcp, .init = tcp_start, .fini = tcp_stop, .timeout = 60);

static void granted(hth_conn conn, uint64_t off, uint64_t len, unsigned char out[HTH_TCP_DESC])
{
    unsigned char desc[HTH_DESC_MAX];
    uint32_t n;

    must(side.t->ops->grant(side.t, side.region, off, len, conn, desc, &n, NULL));
    cr_assert(eq(u32, n, HTH_TCP_DESC));
    memcpy(out, desc, HTH_TCP_DESC);
}

/* Its code; the bytes before its end in *out_bytes, all of them `value` or 0. */
static int pull_hear(uint64_t pull, uint64_t *out_bytes, unsigned char value)
{
    static unsigned char piece[HTH_TCP_PIECE];
    unsigned char head[HTH_TCP_HEAD];

    *out_bytes = 0;
    for (;;) {
        uint32_t len;

        tcp_hear_head(&side, &m, head);
        cr_assert(eq(u64, hth_get64(head + 8), pull));
        if (head[0] == HTH_TCP_END)
            return head[1];
        len = hth_get32(head + 4);
        cr_assert(le(u32, len, HTH_TCP_PIECE));
        cr_assert(tcp_hear(&side, m.bulk, piece, len));
        for (uint32_t i = 0; i < len; i++)
            cr_assert(piece[i] == value || piece[i] == 0, "byte %u is %u", i, piece[i]);
        *out_bytes += len;
    }
}

static void must_deny(const unsigned char desc[HTH_TCP_DESC], uint64_t off, uint64_t len)
{
    uint64_t bytes;

    tcp_ask(&m, 7, desc, off, len);
    cr_expect(eq(int, pull_hear(7, &bytes, 1), 1));
    cr_expect(zero(u64, bytes));
}

Test(tcp, what_is_outside_of_a_grant_is_denied_and_the_connection_stands)
{
    unsigned char desc[HTH_TCP_DESC], wrong[HTH_TCP_DESC];
    uint64_t bytes;

    granted(m.conn, 4096, 8192, desc);
    must_deny(desc, 0, 8193);
    must_deny(desc, 8192, 1);
    must_deny(desc, 8000, 4096);
    must_deny(desc, UINT64_MAX - 4095, 8192);
    must_deny(desc, 1, UINT64_MAX);
    memcpy(wrong, desc, sizeof(wrong));
    wrong[HTH_TCP_DESC - 1] ^= 1; /* the secret */
    must_deny(wrong, 0, 1);
    memcpy(wrong, desc, sizeof(wrong));
    wrong[8] ^= 2; /* the place */
    must_deny(wrong, 0, 1);
    tcp_ask(&m, 8, desc, 0, 8192);
    cr_expect(zero(int, pull_hear(8, &bytes, 1)));
    cr_expect(eq(u64, bytes, 8192));
    cr_expect(zero(int, side.downs));
}

Test(tcp, a_grant_is_no_good_on_another_connection)
{
    unsigned char desc[HTH_TCP_DESC];
    struct tcp_member other;

    tcp_join(&side, &other);
    granted(other.conn, 0, 4096, desc);
    must_deny(desc, 0, 4096);
    tcp_leave(&other);
}

Test(tcp, a_grant_ends_with_its_connection)
{
    unsigned char desc[HTH_TCP_DESC];
    struct tcp_member other;

    tcp_join(&side, &other);
    granted(other.conn, 0, 4096, desc);
    side.t->ops->drop(side.t, other.conn);
    side.t->ops->revoke(side.t, desc, sizeof(desc)); /* of nothing */
    tcp_turns(&side, 5);
    cr_expect(tcp_is_closed(other.bulk));
    must_deny(desc, 0, 4096);
    tcp_leave(&other);
}

/* Bytes in the kernel are a copy; bytes that are not there yet are never read. */
Test(tcp, nothing_is_read_after_a_revoke_with_bytes_on_their_way)
{
    struct hth_tcp_conn *c = hth_tcp_conn_get(hth_tcp_of(side.t), m.conn);
    unsigned char desc[HTH_TCP_DESC];
    int room = 100000; /* not a whole piece */
    uint64_t bytes;

    cr_assert(zero(int, setsockopt(c->bulk[0]->fd, SOL_SOCKET, SO_SNDBUF, &room, sizeof(room))));
    granted(m.conn, 0, SIDE_BYTES, desc);
    tcp_ask(&m, 1, desc, 0, SIDE_BYTES);
    tcp_turns(&side, 50); /* the puller does not read: the socket is full */
    side.t->ops->revoke(side.t, desc, sizeof(desc));
    memset(side.bytes, 0xcc, SIDE_BYTES);
    cr_expect(eq(int, pull_hear(1, &bytes, 1), 1));
    cr_expect(lt(u64, bytes, SIDE_BYTES));
    cr_expect(zero(int, side.downs));
}

Test(tcp, a_region_goes_while_its_bytes_are_on_their_way)
{
    unsigned char desc[HTH_TCP_DESC];
    uint64_t bytes;

    granted(m.conn, 0, SIDE_BYTES, desc);
    tcp_ask(&m, 1, desc, 0, SIDE_BYTES);
    tcp_turns(&side, 50);
    must(side.t->ops->dereg(side.t, side.region));
    memset(side.bytes, 0xcc, SIDE_BYTES);
    cr_expect(eq(int, pull_hear(1, &bytes, 1), 1));
}

Test(tcp, a_source_that_is_cut_short_ends_its_pull_alone)
{
    int fd = memfd_create("source", MFD_CLOEXEC);
    unsigned char desc[HTH_DESC_MAX];
    struct hth_region *region;
    uint64_t bytes;
    uint32_t len;
    void *at;

    cr_assert(zero(int, ftruncate(fd, (off_t)ASKED)));
    at = mmap(NULL, ASKED, PROT_READ, MAP_SHARED, fd, 0);
    cr_assert(ne(ptr, at, MAP_FAILED));
    must(side.t->ops->reg(side.t, at, ASKED, &region, NULL));
    must(side.t->ops->grant(side.t, region, 0, ASKED, m.conn, desc, &len, NULL));
    cr_assert(zero(int, ftruncate(fd, (off_t)ASKED / 2)));
    tcp_ask(&m, 1, desc, 0, ASKED);
    cr_expect(eq(int, pull_hear(1, &bytes, 0), 1));
    must(side.t->ops->dereg(side.t, region));
    granted(m.conn, 0, 4096, desc);
    tcp_ask(&m, 2, desc, 0, 4096);
    cr_expect(zero(int, pull_hear(2, &bytes, 1)));
    munmap(at, ASKED);
    close(fd);
}

/* As one that the machine has found bad, which has its own place in the file. */
Test(tcp, a_page_that_cannot_be_read_denies_its_pull_wherever_it_lies)
{
    unsigned char desc[HTH_DESC_MAX];
    struct hth_region *region;
    uint64_t bytes;
    uint32_t len;
    void *at = mmap(NULL, ASKED, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    cr_assert(ne(ptr, at, MAP_FAILED));
    memset(at, 1, ASKED);
    cr_assert(zero(int, mprotect((char *)at + 65536, 4096, PROT_NONE)));
    must(side.t->ops->reg(side.t, at, ASKED, &region, NULL));
    must(side.t->ops->grant(side.t, region, 0, ASKED, m.conn, desc, &len, NULL));
    tcp_ask(&m, 1, desc, 0, ASKED);
    cr_expect(eq(int, pull_hear(1, &bytes, 1), 1));
    tcp_ask(&m, 2, desc, ASKED / 2, ASKED / 2);
    cr_expect(zero(int, pull_hear(2, &bytes, 1)));
    must(side.t->ops->dereg(side.t, region));
    munmap(at, ASKED);
}

/* The interface is gone: no connection is closed to make room for that, and peers are given up in
 * their time. */
Test(tcp, an_own_address_that_is_gone_is_no_want_of_room)
{
    unsigned char blob[HTH_ADDR_MAX];
    uint32_t len;
    hth_conn conn;

    must(side.t->ops->address(side.t, blob, &len, NULL));
    cr_assert(eq(
            int, inet_pton(AF_INET, "192.0.2.1", &hth_tcp_of(side.t)->self.at[0].in.sin_addr), 1));
    must(side.t->ops->connect(side.t, blob, len, &conn, NULL));
    tcp_turns(&side, 5);
    cr_expect(eq(int, side.downs, 1));
    cr_expect(eq(int, side.down_code, HEARTH_EPEER));
}

Test(tcp, a_short_pull_does_not_wait_for_a_long_one)
{
    static unsigned char piece[HTH_TCP_PIECE];
    unsigned char desc[HTH_TCP_DESC], head[HTH_TCP_HEAD];
    uint64_t before = 0;

    granted(m.conn, 0, SIDE_BYTES, desc);
    tcp_ask(&m, 1, desc, 0, SIDE_BYTES);
    tcp_ask(&m, 2, desc, 0, 64);
    for (;;) {
        tcp_hear_head(&side, &m, head);
        if (head[0] == HTH_TCP_END && hth_get64(head + 8) == 2)
            break;
        cr_assert(eq(int, head[0], HTH_TCP_DATA));
        cr_assert(tcp_hear(&side, m.bulk, piece, hth_get32(head + 4)));
        before += hth_get32(head + 4);
    }
    cr_expect(le(u64, before, 2 * HTH_TCP_PIECE + 64));
}

#define PULLERS 24

static uint64_t waiting_of(const struct tcp_member *who)
{
    int n = 0;

    cr_assert(zero(int, ioctl(who->bulk, FIONREAD, &n)));
    return (uint64_t)n;
}

/* Between two turns the engine's thread does its other work: pings, ranks. */
Test(tcp, a_turn_serves_few_pullers_and_the_next_one_the_others)
{
    static struct tcp_member puller[PULLERS];
    unsigned char desc[HTH_DESC_MAX];
    uint64_t sent = 0;
    int served = 0;
    uint32_t len;

    for (int i = 0; i < PULLERS; i++)
        tcp_join(&side, &puller[i]);
    for (int i = 0; i < PULLERS; i++) {
        must(side.t->ops->grant(
                side.t, side.region, 0, SIDE_BYTES, puller[i].conn, desc, &len, NULL));
        tcp_ask(&puller[i], 1, desc, 0, SIDE_BYTES);
    }
    side.t->ops->progress(side.t);
    for (int i = 0; i < PULLERS; i++) {
        served += waiting_of(&puller[i]) > 0;
        sent += waiting_of(&puller[i]);
    }
    cr_expect(gt(int, served, 0));
    cr_expect(le(int, served, 8));
    cr_expect(le(u64, sent, 9 * HTH_TCP_TURN));
    for (int turn = 1; turn < 2 * PULLERS / 8; turn++)
        side.t->ops->progress(side.t);
    for (int i = 0; i < PULLERS; i++) {
        cr_expect(gt(u64, waiting_of(&puller[i]), 0), "puller %d waits for others", i);
        tcp_leave(&puller[i]);
    }
}

Test(tcp, who_asks_for_more_at_once_than_he_may_is_gone)
{
    unsigned char desc[HTH_TCP_DESC];

    granted(m.conn, 0, SIDE_BYTES, desc);
    for (uint64_t i = 0; i < HTH_TCP_PULLS; i++)
        tcp_ask(&m, i, desc, 0, SIDE_BYTES);
    tcp_turns(&side, 20);
    cr_expect(zero(int, side.downs));
    for (uint64_t i = 0; i < 2; i++) /* one may be on its way out of the ring */
        tcp_ask(&m, 100 + i, desc, 0, SIDE_BYTES);
    tcp_must_cost(&side, &m);
}

/* Of no length, and never listens to the answers: what they cost is the kernel's buffer and 64
 * places. */
Test(tcp, requests_of_no_length_queue_nothing)
{
    unsigned char desc[HTH_TCP_DESC], asks[32][HTH_TCP_HEAD + HTH_TCP_REQUEST];
    size_t before = mallinfo2().uordblks, sent = 0;
    ssize_t n = 0;

    granted(m.conn, 0, 64, desc);
    for (int i = 0; i < 32; i++) {
        hth_tcp_head_put(asks[i], HTH_TCP_ASK, 0, HTH_TCP_REQUEST, (uint64_t)i);
        memcpy(asks[i] + HTH_TCP_HEAD, desc + 8, 24);
        memset(asks[i] + HTH_TCP_HEAD + 24, 0, 16);
    }
    for (int i = 0; i < 3000 && !side.downs; i++) {
        n = send(m.bulk, (char *)asks + sent % sizeof(asks), sizeof(asks) - sent % sizeof(asks),
                MSG_NOSIGNAL);
        sent += n > 0 ? (size_t)n : 0;
        side.t->ops->progress(side.t);
        cr_assert(lt(sz, mallinfo2().uordblks, before + (256 << 10)));
    }
    cr_expect(gt(sz, sent, sizeof(asks)));
}

Test(tcp, a_message_that_is_too_long_costs_the_connection)
{
    unsigned char head[4];

    hth_put32(head, HTH_MESSAGE_MAX + 1);
    tcp_say(m.messages, head, sizeof(head));
    tcp_must_cost(&side, &m);
    cr_expect(zero(int, side.messages));
}

Test(tcp, the_longest_message_comes_byte_by_byte)
{
    static unsigned char frame[4 + HTH_MESSAGE_MAX];

    hth_put32(frame, HTH_MESSAGE_MAX);
    for (size_t i = 0; i < sizeof(frame); i += 1024) {
        tcp_say(m.messages, frame + i, sizeof(frame) - i < 1024 ? sizeof(frame) - i : 1024);
        cr_expect(zero(int, side.messages));
        tcp_turns(&side, 2);
    }
    for (int i = 0; i < 1000 && !side.messages; i++)
        tcp_turns(&side, 1);
    cr_expect(eq(int, side.messages, 1));
}

Test(tcp, frames_that_make_no_sense_cost_the_connection)
{
    static const struct {
        enum hth_tcp_frame type;
        unsigned code;
        uint32_t len;
        uint64_t pull;
    } wrong[] = { { 0, 0, 0, 0 }, { 4, 0, 0, 0 }, { HTH_TCP_ASK, 0, HTH_TCP_REQUEST - 1, 1 },
        { HTH_TCP_ASK, 1, HTH_TCP_REQUEST, 1 }, { HTH_TCP_DATA, 0, 1, 1 },
        { HTH_TCP_DATA, 0, 1, UINT64_MAX }, { HTH_TCP_END, 0, 0, 0 }, { HTH_TCP_END, 2, 0, 0 } };

    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        unsigned char head[HTH_TCP_HEAD];

        hth_tcp_head_put(head, wrong[i].type, wrong[i].code, wrong[i].len, wrong[i].pull);
        tcp_say(m.bulk, head, sizeof(head));
        tcp_must_cost(&side, &m);
        tcp_leave(&m);
        side.downs = 0;
        tcp_join(&side, &m);
    }
}

Test(tcp, messages_are_heard_although_bulk_has_ended)
{
    static unsigned char frame[4 + HTH_MESSAGE_MAX];

    hth_put32(frame, HTH_MESSAGE_MAX);
    for (int i = 0; i < 30; i++) /* more than is read at once */
        tcp_say(m.messages, frame, sizeof(frame));
    close(m.bulk);
    usleep(10000); /* it is all there */
    for (int i = 0; i < 1000 && !side.downs; i++)
        tcp_turns(&side, 1);
    cr_expect(eq(int, side.downs, 1));
    cr_expect(eq(int, side.down_code, HEARTH_EPEER));
    cr_expect(eq(int, side.messages, 30));
    m.bulk = dup(m.messages);
}

/* ---- sealed ---- */

static const unsigned char key[HTH_KEY] = { 1, 2, 3 };

static void sealed_start(void)
{
    tcp_side_open_keyed(&side, "127.0.0.1", key);
    tcp_join(&side, &m);
}

TestSuite(tcp_sealed, .init = sealed_start, .fini = tcp_stop, .timeout = 60);

static void sealed_say(int fd, struct hth_seal *seal, const void *bytes, size_t len, int flip)
{
    unsigned char record[256];

    must(hth_seal_put(seal, record, bytes, len));
    record[HTH_SEAL_HEAD] ^= (unsigned char)flip;
    tcp_say(fd, record, HTH_SEAL_MORE + len);
}

Test(tcp_sealed, a_message_that_was_changed_on_its_way_is_not_heard)
{
    sealed_say(m.messages, m.messages_seal, "hello", 5, 0);
    for (int i = 0; i < 1000 && !side.messages; i++)
        tcp_turns(&side, 1);
    cr_expect(eq(int, side.messages, 1));
    sealed_say(m.messages, m.messages_seal, "hello", 5, 1);
    tcp_must_cost(&side, &m);
    cr_expect(eq(int, side.messages, 1));
}

Test(tcp_sealed, messages_and_pieces_leave_as_records)
{
    unsigned char desc[HTH_TCP_DESC], frame[HTH_TCP_HEAD + HTH_TCP_REQUEST], in[256], out[256];
    size_t len;

    must(side.t->ops->send(side.t, m.conn, "in the clear?", 13));
    cr_assert(tcp_hear(&side, m.messages, in, HTH_SEAL_MORE + 13));
    must(hth_seal_take(m.messages_seal, out, in, in + HTH_SEAL_HEAD, in + HTH_SEAL_HEAD + 13));
    cr_expect(zero(int, memcmp(out, "in the clear?", 13)));
    memset(side.bytes, 7, SIDE_BYTES);
    granted(m.conn, 0, 64, desc);
    hth_tcp_head_put(frame, HTH_TCP_ASK, 0, HTH_TCP_REQUEST, 3);
    memcpy(frame + HTH_TCP_HEAD, desc + 8, 24);
    hth_put64(frame + HTH_TCP_HEAD + 24, 0);
    hth_put64(frame + HTH_TCP_HEAD + 32, 64);
    sealed_say(m.bulk, m.bulk_seal, frame, sizeof(frame), 0);
    for (int i = 0; i < 3; i++) { /* header, bytes, end */
        cr_assert(tcp_hear(&side, m.bulk, in, HTH_SEAL_HEAD));
        must(hth_seal_length(in, &len));
        cr_assert(eq(sz, len, i == 1 ? 64 : HTH_TCP_HEAD));
        cr_assert(tcp_hear(&side, m.bulk, in + HTH_SEAL_HEAD, len + HTH_SEAL_TAG));
        cr_expect(eq(ptr, memmem(in, sizeof(in), "\7\7\7\7\7\7\7\7", 8), NULL));
        must(hth_seal_take(m.bulk_seal, out, in, in + HTH_SEAL_HEAD, in + HTH_SEAL_HEAD + len));
    }
    cr_expect(eq(int, out[0], HTH_TCP_END));
    cr_expect(zero(int, out[1]));
}

static uint64_t side_pull; /* its name for what it pulls */

/* We pull 64 bytes, and the other end has said that they come. */
static void pull_and_answer_head(void)
{
    unsigned char desc[HTH_TCP_DESC] = { 1 }, in[256], head[HTH_TCP_HEAD];
    unsigned char out[HTH_TCP_HEAD + HTH_TCP_REQUEST];
    size_t len = sizeof(out);

    must(side.t->ops->pull(side.t, m.conn, desc, sizeof(desc), 0, side.region, 0, 64, 5));
    cr_assert(tcp_hear(&side, m.bulk, in, HTH_SEAL_MORE + len));
    must(hth_seal_take(m.bulk_seal, out, in, in + HTH_SEAL_HEAD, in + HTH_SEAL_HEAD + len));
    side_pull = hth_get64(out + 8);
    hth_tcp_head_put(head, HTH_TCP_DATA, 0, 64, side_pull);
    sealed_say(m.bulk, m.bulk_seal, head, sizeof(head), 0);
}

Test(tcp_sealed, bytes_of_a_pull_that_were_changed_on_their_way_are_no_success)
{
    unsigned char bytes[64] = { 0 };

    pull_and_answer_head();
    sealed_say(m.bulk, m.bulk_seal, bytes, sizeof(bytes), 1);
    tcp_must_cost(&side, &m);
    cr_expect(eq(int, side.pulls, 1));
    cr_expect(eq(int, side.pull_code, HEARTH_EPROTO));
}

Test(tcp_sealed, a_record_longer_than_its_piece_is_not_written)
{
    unsigned char bytes[128] = { 0 };

    pull_and_answer_head();
    sealed_say(m.bulk, m.bulk_seal, bytes, sizeof(bytes), 0);
    tcp_must_cost(&side, &m);
    for (int i = 0; i < 128; i++)
        cr_expect(eq(int, side.bytes[i], i < 64 ? 0 : 1));
}

/* The part of a record that has come lies where it will stay, before its seal is checked: not for
 * long. */
Test(tcp_sealed, half_a_record_does_not_stay)
{
    unsigned char bytes[64], record[HTH_SEAL_MORE + 64];

    memset(bytes, 9, sizeof(bytes));
    pull_and_answer_head();
    must(hth_seal_put(m.bulk_seal, record, bytes, sizeof(bytes)));
    tcp_say(m.bulk, record, HTH_SEAL_HEAD + 60);
    tcp_turns(&side, 20);
    cr_assert(zero(int, memcmp(side.bytes, record + HTH_SEAL_HEAD, 60)), "it comes elsewhere now");
    side.t->ops->drop(side.t, m.conn);
    for (int i = 0; i < 1000 && !side.downs; i++)
        tcp_turns(&side, 1);
    cr_expect(eq(int, side.pulls, 1));
    for (int i = 0; i < 128; i++)
        cr_expect(eq(int, side.bytes[i], i < 64 ? 0 : 1));
}

Test(tcp_sealed, a_record_may_come_byte_by_byte)
{
    unsigned char bytes[64], record[HTH_SEAL_MORE + 64], tail[HTH_TCP_HEAD];
    unsigned char end[HTH_SEAL_MORE + HTH_TCP_HEAD];

    memset(bytes, 9, sizeof(bytes));
    pull_and_answer_head();
    must(hth_seal_put(m.bulk_seal, record, bytes, sizeof(bytes)));
    hth_tcp_head_put(tail, HTH_TCP_END, 0, 0, side_pull);
    must(hth_seal_put(m.bulk_seal, end, tail, sizeof(tail)));
    for (size_t i = 0; i < sizeof(record) + sizeof(end); i++) {
        cr_assert(zero(int, side.pulls), "after %zu bytes", i);
        tcp_say(m.bulk, i < sizeof(record) ? record + i : end + i - sizeof(record), 1);
        tcp_turns(&side, 2);
    }
    for (int i = 0; i < 1000 && !side.pulls; i++)
        tcp_turns(&side, 1);
    cr_expect(eq(int, side.pulls, 1));
    cr_expect(zero(int, side.pull_code));
    cr_expect(zero(int, memcmp(side.bytes, bytes, sizeof(bytes))));
}

Test(tcp_sealed, records_that_are_no_frames_cost_the_connection)
{
    static const size_t lens[] = { 0, 1, HTH_TCP_HEAD - 1, HTH_TCP_HEAD + 1, 57 };
    unsigned char bytes[64] = { HTH_TCP_ASK };

    for (size_t i = 0; i < sizeof(lens) / sizeof(lens[0]); i++) {
        sealed_say(m.bulk, m.bulk_seal, bytes, lens[i], 0);
        tcp_must_cost(&side, &m);
        tcp_leave(&m);
        side.downs = 0;
        tcp_join(&side, &m);
    }
    hth_put32(bytes, HTH_SEAL_PLAIN + 1);
    tcp_say(m.bulk, bytes, 32);
    tcp_must_cost(&side, &m);
}

/* By IPv6, both ends ours. */
Test(tcp, pulls_over_ipv6)
{
    struct tcp_side six[2];
    unsigned char addr[HTH_ADDR_MAX], desc[HTH_DESC_MAX];
    uint32_t len;
    hth_conn conn;
    int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in6 loopback = { .sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT };

    if (fd < 0 || bind(fd, (struct sockaddr *)(void *)&loopback, sizeof(loopback)))
        cr_skip_test("this machine has no ::1");
    close(fd);
    tcp_side_open(&six[0], "::1");
    tcp_side_open(&six[1], "::1");
    memset(six[1].bytes, 9, SIDE_BYTES);
    must(six[0].t->ops->address(six[0].t, addr, &len, NULL));
    must(six[1].t->ops->connect(six[1].t, addr, len, &conn, NULL));
    for (int i = 0; i < 1000 && !(six[0].conns && six[1].ups); i++)
        tcp_turns(&six[i % 2], 1);
    must(six[0].t->ops->grant(
            six[0].t, six[0].region, 0, SIDE_BYTES, six[0].conn[0], desc, &len, NULL));
    must(six[1].t->ops->pull(six[1].t, conn, desc, len, 0, six[1].region, 0, SIDE_BYTES, 1));
    for (int i = 0; i < 10000 && !six[1].pulls; i++)
        tcp_turns(&six[i % 2], 1);
    cr_expect(eq(int, six[1].pulls, 1));
    cr_expect(zero(int, six[1].pull_code));
    cr_expect(eq(int, six[1].has_crc, 1));
    cr_expect(eq(u32, six[1].crc, hth_crc32c(six[1].bytes, SIDE_BYTES)));
    cr_expect(zero(int, memcmp(six[0].bytes, six[1].bytes, SIDE_BYTES)));
    tcp_side_close(&six[1]);
    tcp_side_close(&six[0]);
}
