/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Nodes with several addresses on the transport tcp: a listener on each, dials in turn, bulk
 * sockets over all.
 */
#include "tcp_side.h"

#include "core/base/crc.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static struct tcp_side owner, puller;
static hth_conn conn; /* the puller's */

static void both_turn(void)
{
    tcp_turns(&owner, 1);
    tcp_turns(&puller, 1);
}

static void sides_open(const char *owner_bind, const char *puller_bind)
{
    tcp_side_open(&owner, owner_bind);
    tcp_side_open(&puller, puller_bind);
    for (uint64_t i = 0; i < SIDE_BYTES; i++)
        owner.bytes[i] = (unsigned char)(i * 2654435761u >> 13);
}

static void sides_close(void)
{
    tcp_side_close(&puller);
    tcp_side_close(&owner);
}

TestSuite(tcp_addresses, .timeout = 100);

static uint16_t port_of(const struct tcp_side *s)
{
    return ntohs(s->addr.in.sin_port);
}

/* A blob of these addresses, with the owner's port. */
static uint32_t blob_of(const char *list, unsigned char out[HTH_ADDR_MAX])
{
    struct hth_addrs all = { .count = 0 };
    char copy[256], *rest = copy;

    snprintf(copy, sizeof(copy), "%s", list);
    for (const char *one = strsep(&rest, ","); one; one = strsep(&rest, ",")) {
        struct sockaddr_in *in = &all.at[all.count++].in;

        in->sin_family = AF_INET;
        cr_assert(eq(int, inet_pton(AF_INET, one, &in->sin_addr), 1));
    }
    hth_addrs_set_port(&all, port_of(&owner));
    return hth_addrs_pack(&all, out);
}

static const struct hth_tcp_conn *conn_of(const struct tcp_side *s)
{
    return hth_tcp_conn_get(hth_tcp_of(s->t), s == &owner ? owner.conn[0] : conn);
}

static void dial(const char *list)
{
    unsigned char blob[HTH_ADDR_MAX];
    int ups = puller.ups, downs = puller.downs;

    must(puller.t->ops->connect(puller.t, blob, blob_of(list, blob), &conn, NULL));
    for (int i = 0; i < 1000 && puller.ups == ups && puller.downs == downs; i++)
        both_turn();
}

static void pull_all(int count)
{
    unsigned char desc[HTH_DESC_MAX];
    uint64_t each = SIDE_BYTES / (unsigned)count;
    int before = puller.pulls;
    uint32_t len;

    memset(puller.bytes, 0, SIDE_BYTES);
    must(owner.t->ops->grant(
            owner.t, owner.region, 0, SIDE_BYTES, owner.conn[owner.conns - 1], desc, &len, NULL));
    for (int i = 0; i < count; i++)
        must(puller.t->ops->pull(puller.t, conn, desc, len, (unsigned)i * each, puller.region,
                (unsigned)i * each, each, (uint64_t)i));
    for (int i = 0; i < 20000 && puller.pulls < before + count; i++)
        both_turn();
    cr_assert(eq(int, puller.pulls, before + count));
    cr_assert(zero(int, puller.pull_code));
    cr_assert(zero(int, memcmp(owner.bytes, puller.bytes, SIDE_BYTES)));
}

/* ---- blobs ---- */

/* The blob that engines of protocol 7 write and read. */
Test(tcp_addresses, one_address_is_the_blob_of_old)
{
    static const unsigned char old[] = { 1, 4, 0x67, 0x12, 10, 0, 0, 7 };
    struct hth_addrs all, self = { .count = 1 };
    unsigned char blob[HTH_ADDR_MAX];

    self.at[0].in.sin_family = AF_INET;
    must(hth_addrs_unpack(old, sizeof(old), &self, &all, NULL));
    cr_assert(eq(u32, all.count, 1));
    cr_assert(eq(u32, hth_addrs_pack(&all, blob), sizeof(old)));
    cr_assert(zero(int, memcmp(blob, old, sizeof(old))));
    tcp_side_open(&owner, "127.0.0.1");
    must(owner.t->ops->address(owner.t, blob, &all.count, NULL));
    cr_expect(eq(u32, all.count, 8));
    cr_expect(eq(int, blob[0], 1));
    tcp_side_close(&owner);
}

Test(tcp_addresses, several_are_one_blob_and_what_no_node_writes_is_refused)
{
    static const struct {
        unsigned char bytes[80];
        uint32_t len;
        int ok;
    } rows[] = {
        { { 2, 4, 1, 0, 10, 0, 0, 1, 10, 0, 0, 2 }, 12, 1 },
        { { 2, 4, 1, 0, 10, 0, 0, 1, 10, 0, 0, 2, 10, 0, 0, 3, 10, 0, 0, 4 }, 20, 1 },
        { { 2, 4, 1, 0, 10, 0, 0, 1, 10, 0, 0, 2, 10, 0, 0, 3, 10, 0, 0, 4, 10, 0, 0, 5 }, 24, 0 },
        { { 2, 4, 1, 0, 10, 0, 0, 1, 10, 0, 0, 1 }, 12, 0 }, /* twice the same */
        { { 2, 4, 1, 0, 10, 0, 0, 1 }, 8, 0 },               /* one is of version 1 */
        { { 1, 4, 1, 0, 10, 0, 0, 1, 10, 0, 0, 2 }, 12, 0 },
        { { 2, 4, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2 }, 12, 0 }, /* no port */
        { { 2, 4, 1, 0, 10, 0, 0, 1, 0, 0, 0, 0 }, 12, 0 },  /* a wildcard */
        { { 2, 4, 1, 0, 10, 0, 0, 1, 10, 0, 0 }, 11, 0 },
        { { 2, 6, 1, 0, 10, 0, 0, 1, 10, 0, 0, 2 }, 12, 0 },
        { { 3, 4, 1, 0, 10, 0, 0, 1, 10, 0, 0, 2 }, 12, 0 },
    };
    struct hth_addrs all, self = { .count = 1 };
    unsigned char blob[HTH_ADDR_MAX];

    self.at[0].in.sin_family = AF_INET;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        int rc = hth_addrs_unpack(rows[i].bytes, rows[i].len, &self, &all, NULL);

        cr_assert(eq(int, rc, rows[i].ok ? 0 : HEARTH_EINVAL), "row %zu", i);
        if (rows[i].ok)
            cr_assert(hth_addrs_pack(&all, blob) == rows[i].len &&
                      !memcmp(blob, rows[i].bytes, rows[i].len));
    }
}

/* ---- listeners ---- */

Test(tcp_addresses, a_node_listens_on_each_of_its_addresses_on_one_port)
{
    unsigned char blob[HTH_ADDR_MAX];
    uint32_t len;
    int fd[3];

    tcp_side_open(&owner, "127.0.0.1,127.0.0.2,127.0.0.3");
    must(owner.t->ops->address(owner.t, blob, &len, NULL));
    cr_expect(eq(u32, len, 16));
    cr_expect(eq(int, blob[0], 2));
    for (uint32_t i = 1; i <= 3; i++) {
        owner.addr.in.sin_addr.s_addr = htonl(INADDR_LOOPBACK - 1 + i);
        fd[i - 1] = tcp_dial(&owner);
        tcp_turns(&owner, 5);
        cr_expect(eq(u32, hth_tcp_of(owner.t)->strangers, i));
        cr_expect(tcp_is_quiet(fd[i - 1]));
    }
    for (int i = 0; i < 3; i++)
        close(fd[i]);
    tcp_side_close(&owner);
}

static int open_on(const char *bind, uint16_t port, struct hearth_error *err)
{
    struct hth_transport_events events = { 0 };
    struct hth_transport_opts o = {
        .bind = bind, .port = port, .clock = hth_tcp_of(owner.t)->clock
    };
    struct hth_transport *t;
    int rc = hth_transport_open("tcp", getenv("HEARTH_TEST_LIB"), &o, &events, &t, err);

    if (!rc)
        t->ops->close(t);
    return rc;
}

Test(tcp_addresses, a_port_that_one_address_lacks_is_refused_with_that_address)
{
    struct hearth_error err = { 0 };
    char says[64];

    tcp_side_open(&owner, "127.0.0.72");
    must_fail(open_on("127.0.0.71,127.0.0.72", port_of(&owner), &err), HEARTH_EEXIST);
    snprintf(says, sizeof(says), "listens on 127.0.0.72:%u already", port_of(&owner));
    cr_expect(ne(ptr, strstr(err.text, says), NULL), "%s", err.text);
    must(open_on("127.0.0.71,127.0.0.72", 0, &err));
    must(open_on("127.0.0.71,127.0.0.73", port_of(&owner), &err));
    must_fail(open_on("127.0.0.1,127.0.0.1", 0, &err), HEARTH_EINVAL);
    must_fail(open_on("127.0.0.1,::1", 0, &err), HEARTH_EINVAL);
    tcp_side_close(&owner);
}

/* ---- dials ---- */

Test(tcp_addresses, an_address_that_refuses_costs_a_dial_of_the_next)
{
    sides_open("127.0.0.1", "127.0.0.1");
    dial("127.0.0.9,127.0.0.1");
    cr_assert(eq(int, puller.ups, 1));
    cr_expect(eq(u32, conn_of(&puller)->path, 1));
    cr_expect(eq(int, puller.path_lines, 1));
    cr_expect(ne(ptr, strstr(puller.path_line, "127.0.0.9:"), NULL), "%s", puller.path_line);
    cr_expect(ne(ptr, strstr(puller.path_line, "refused; the peer answers on 127.0.0.1:"), NULL),
            "%s", puller.path_line);
    pull_all(4);
    dial("127.0.0.9,127.0.0.1"); /* what failed is tried last */
    cr_expect(eq(int, puller.ups, 2));
    cr_expect(eq(int, puller.path_lines, 1));
    sides_close();
}

Test(tcp_addresses, of_addresses_that_all_refuse_each_is_named)
{
    sides_open("127.0.0.1", "127.0.0.1");
    dial("127.0.0.8,127.0.0.9");
    cr_expect(eq(int, puller.downs, 1));
    cr_expect(eq(int, puller.down_code, HEARTH_EPEER));
    cr_expect(strstr(puller.down_text, "127.0.0.8:") && strstr(puller.down_text, "; 127.0.0.9:"),
            "%s", puller.down_text);
    cr_expect(zero(int, puller.path_lines), "the session has it");
    sides_close();
}

/* A listener whose queue is full: the kernel answers no more. Two dials are its queue. */
static int black_hole(int dials[2])
{
    struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = owner.addr.in.sin_port };
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK + 8);
    cr_assert(zero(int, bind(fd, (struct sockaddr *)(void *)&a, sizeof(a))));
    cr_assert(zero(int, listen(fd, 0)));
    for (int i = 0; i < 2; i++) {
        dials[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        cr_assert(connect(dials[i], (struct sockaddr *)(void *)&a, sizeof(a)) &&
                  errno == EINPROGRESS);
    }
    usleep(10000);
    return fd;
}

Test(tcp_addresses, an_address_that_does_not_answer_has_a_second)
{
    unsigned char blob[HTH_ADDR_MAX];
    int dials[2], fd;

    sides_open("127.0.0.1", "127.0.0.1");
    fd = black_hole(dials);
    must(puller.t->ops->connect(puller.t, blob, blob_of("127.0.0.9,127.0.0.1", blob), &conn, NULL));
    for (int i = 0; i < 50; i++)
        both_turn();
    cr_expect(zero(int, puller.ups));
    puller.now_ms += 999;
    both_turn();
    cr_expect(zero(u32, conn_of(&puller)->greeting->path));
    puller.now_ms += 1;
    for (int i = 0; i < 1000 && !puller.ups; i++)
        both_turn();
    cr_expect(eq(int, puller.ups, 1));
    cr_expect(ne(ptr, strstr(puller.path_line, "127.0.0.9:"), NULL), "%s", puller.path_line);
    pull_all(2);
    for (int i = 0; i < 2; i++)
        close(dials[i]);
    close(fd);
    sides_close();
}

/* Half of it may have passed before. */
Test(tcp_addresses, an_address_that_does_not_answer_has_a_quarter_of_dead_ms)
{
    unsigned char blob[HTH_ADDR_MAX];
    int dials[2], fd;

    sides_open("127.0.0.1", "127.0.0.1");
    puller.t->dead_ms = 2000;
    fd = black_hole(dials);
    must(puller.t->ops->connect(puller.t, blob, blob_of("127.0.0.9,127.0.0.1", blob), &conn, NULL));
    puller.now_ms += 499;
    both_turn();
    cr_expect(zero(u32, conn_of(&puller)->greeting->path));
    puller.now_ms += 1;
    both_turn();
    cr_expect(eq(u32, conn_of(&puller)->greeting->path, 1));
    for (int i = 0; i < 2; i++)
        close(dials[i]);
    close(fd);
    sides_close();
}

/* ---- bulk ---- */

static void path_is(const struct hth_tcp_bulk *b, const char *from, const char *to)
{
    union hth_addr a;
    socklen_t len = sizeof(a);
    char text[HTH_ADDR_LABEL];

    cr_assert(zero(int, getsockname(b->fd, &a.sa, &len)));
    cr_expect(eq(str, (char *)(uintptr_t)inet_ntop(AF_INET, &a.in.sin_addr, text, sizeof(text)),
            (char *)(uintptr_t)from));
    len = sizeof(a);
    cr_assert(zero(int, getpeername(b->fd, &a.sa, &len)));
    cr_expect(eq(str, (char *)(uintptr_t)inet_ntop(AF_INET, &a.in.sin_addr, text, sizeof(text)),
            (char *)(uintptr_t)to));
}

static void bulks_are(uint32_t count)
{
    for (int i = 0; i < 1000 && (conn_of(&owner)->bulks < count || conn_of(&puller)->bulks < count);
            i++)
        both_turn();
    for (int i = 0; i < 20; i++)
        both_turn();
    cr_assert(eq(u32, conn_of(&owner)->bulks, count));
    cr_assert(eq(u32, conn_of(&puller)->bulks, count));
}

Test(tcp_addresses, bulk_sockets_of_a_pair_go_over_all_its_paths)
{
    sides_open("127.0.0.1,127.0.0.2", "127.0.0.3,127.0.0.4");
    dial("127.0.0.1,127.0.0.2");
    bulks_are(1);
    pull_all(1);
    bulks_are(2);
    path_is(conn_of(&puller)->bulk[0], "127.0.0.3", "127.0.0.1");
    path_is(conn_of(&puller)->bulk[1], "127.0.0.4", "127.0.0.2");
    pull_all(8);
    for (int i = 0; i < 2; i++)
        cr_expect(gt(u64, atomic_load(&conn_of(&puller)->bulk[i]->pulled_ms), 0u));
    cr_expect(zero(int, owner.downs + puller.downs));
    sides_close();
}

Test(tcp_addresses, of_two_nodes_one_may_have_more_addresses)
{
    sides_open("127.0.0.1", "127.0.0.3,127.0.0.4");
    dial("127.0.0.1");
    pull_all(1);
    bulks_are(2);
    path_is(conn_of(&puller)->bulk[1], "127.0.0.4", "127.0.0.1");
    sides_close();
    sides_open("127.0.0.1,127.0.0.2,127.0.0.5", "127.0.0.3");
    dial("127.0.0.1,127.0.0.2,127.0.0.5");
    pull_all(1);
    bulks_are(3);
    path_is(conn_of(&puller)->bulk[2], "127.0.0.3", "127.0.0.5");
    pull_all(8);
    sides_close();
}

Test(tcp_addresses, messages_find_a_dead_path_in_half_of_dead_ms)
{
    static const unsigned dead_ms[] = { 0, 400, 2000, 5000 },
                          silent_ms[] = { 2000, 500, 1000, 2000 };
    unsigned is = 0;
    socklen_t len = sizeof(is);

    sides_open("127.0.0.1,127.0.0.2", "127.0.0.3,127.0.0.4");
    for (size_t i = 0; i < sizeof(dead_ms) / sizeof(dead_ms[0]); i++) {
        puller.t->dead_ms = dead_ms[i];
        dial("127.0.0.1,127.0.0.2");
        cr_assert(zero(int, getsockopt(conn_of(&puller)->messages.fd, IPPROTO_TCP, TCP_USER_TIMEOUT,
                                    &is, &len)));
        cr_expect(eq(uint, is, silent_ms[i]));
    }
    sides_close();
}

/* ---- a path that fails ---- */

static void two_paths(void)
{
    sides_open("127.0.0.1,127.0.0.2", "127.0.0.3,127.0.0.4");
    dial("127.0.0.1,127.0.0.2");
    pull_all(1);
    bulks_are(2);
}

TestSuite(tcp_paths, .init = two_paths, .fini = sides_close, .timeout = 100);

static uint64_t bytes_received(int fd)
{
    struct tcp_info info = { 0 };
    socklen_t len = sizeof(info);

    cr_assert(zero(int, getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len)));
    return info.tcpi_bytes_received;
}

/* Its connection is gone, with what has come and was not read. */
static void socket_cut(int fd)
{
    struct sockaddr none = { .sa_family = AF_UNSPEC };

    cr_assert(zero(int, connect(fd, &none, sizeof(none))));
}

/* The puller's bulk socket of that path. */
static struct hth_tcp_bulk *bulk_of(uint32_t path)
{
    const struct hth_tcp_conn *c = conn_of(&puller);

    for (uint32_t i = 0; i < c->bulks; i++)
        if (c->bulk[i]->path == path)
            return c->bulk[i];
    return NULL;
}

Test(tcp_paths, a_path_that_dies_in_a_pull_costs_what_was_under_way_on_it)
{
    unsigned char desc[HTH_DESC_MAX];
    uint64_t most, before, moved;
    int fd[2], pulls = puller.pulls;
    uint32_t len;

    must(owner.t->ops->grant(
            owner.t, owner.region, 0, SIDE_BYTES, owner.conn[0], desc, &len, NULL));
    memset(puller.bytes, 0, SIDE_BYTES);
    for (uint32_t i = 0; i < 2; i++)
        fd[i] = dup(bulk_of(i)->fd); /* the kernel's count stays */
    before = bytes_received(fd[0]) + bytes_received(fd[1]);
    most = bulk_of(1)->ahead + HTH_TCP_PART;
    for (uint64_t i = 0; i < 2; i++) /* one on each */
        must(puller.t->ops->pull(puller.t, conn, desc, len, i * SIDE_BYTES / 2, puller.region,
                i * SIDE_BYTES / 2, SIDE_BYTES / 2, i));
    for (int i = 0; i < 1000 && bytes_received(fd[1]) < SIDE_BYTES * 3 / 8; i++)
        both_turn();
    shutdown(fd[1], SHUT_RDWR);
    for (int i = 0; i < 20000 && puller.pulls < pulls + 2; i++)
        both_turn();
    cr_assert(eq(int, puller.pulls, pulls + 2));
    cr_expect(zero(int, puller.pull_code));
    cr_expect(zero(int, memcmp(owner.bytes, puller.bytes, SIDE_BYTES)));
    moved = bytes_received(fd[0]) + bytes_received(fd[1]) - before;
    cr_expect(gt(u64, moved, SIDE_BYTES), "something was under way");
    cr_expect(lt(u64, moved, SIDE_BYTES + most + 65536), "%" PRIu64 " bytes more",
            moved - SIDE_BYTES);
    cr_expect(eq(int, puller.has_crc, 1));
    cr_expect(zero(int, owner.downs + puller.downs));
    for (int i = 0; i < 2; i++)
        close(fd[i]);
}

Test(tcp_paths, the_checksum_of_a_pull_that_has_moved_is_that_of_its_bytes)
{
    unsigned char desc[HTH_DESC_MAX];
    const struct hth_tcp_pull *p = conn_of(&puller)->pull;
    int pulls = puller.pulls, small = 32768;
    uint32_t len;

    must(owner.t->ops->grant(
            owner.t, owner.region, 0, SIDE_BYTES, owner.conn[0], desc, &len, NULL));
    memset(puller.bytes, 0, SIDE_BYTES);
    for (int i = 0; i < 2; i++) /* a turn moves less than a part */
        setsockopt(conn_of(&owner)->bulk[i]->fd, SOL_SOCKET, SO_SNDBUF, &small, sizeof(small));
    must(puller.t->ops->pull(puller.t, conn, desc, len, 0, puller.region, 0, SIDE_BYTES, 1));
    for (int i = 0; i < 1000 && (p->came == p->ended || !p->ended); i++)
        both_turn();
    cr_assert(gt(u64, p->came, p->ended), "it is cut within a part");
    socket_cut(p->bulk->fd);
    for (int i = 0; i < 20000 && puller.pulls == pulls; i++)
        both_turn();
    cr_expect(zero(int, puller.pull_code));
    cr_expect(eq(u32, puller.crc, hth_crc32c(owner.bytes, SIDE_BYTES)));
    cr_expect(zero(int, memcmp(owner.bytes, puller.bytes, SIDE_BYTES)));
}

Test(tcp_paths, a_path_is_dialled_again_later_and_later_and_said_once)
{
    struct hth_tcp *t = hth_tcp_of(owner.t);
    uint32_t waits = 0;

    shutdown(bulk_of(1)->fd, SHUT_RDWR);
    for (int i = 0; i < 100; i++)
        both_turn();
    cr_assert(eq(u32, conn_of(&puller)->bulks, 1));
    cr_expect(zero(int, puller.path_lines));
    close(t->listen_fd[1]); /* the other end of it is gone, too */
    t->listen_fd[1] = -1;
    for (int s = 1; s <= 200; s++) {
        puller.now_ms += 1000;
        both_turn();
        both_turn();
        waits += conn_of(&puller)->redial_wait_ms == 60000;
    }
    cr_expect(gt(u32, waits, 0u));
    cr_expect(eq(u32, conn_of(&puller)->redial_wait_ms, 60000));
    cr_expect(eq(int, puller.path_lines, 1));
    cr_expect(ne(ptr, strstr(puller.path_line, "127.0.0.2:"), NULL), "%s", puller.path_line);
    cr_expect(
            ne(ptr, strstr(puller.path_line, "go on over 1 other"), NULL), "%s", puller.path_line);
    pull_all(4);
    cr_expect(zero(int, owner.downs + puller.downs));
}

Test(tcp_paths, a_path_that_is_back_carries_bytes_again)
{
    shutdown(bulk_of(1)->fd, SHUT_RDWR);
    for (int i = 0; i < 100; i++)
        both_turn();
    cr_assert(eq(ptr, bulk_of(1), NULL));
    puller.now_ms += 999;
    both_turn();
    cr_expect(eq(ptr, conn_of(&puller)->greeting, NULL));
    puller.now_ms += 1;
    bulks_are(2);
    cr_assert(ne(ptr, bulk_of(1), NULL));
    pull_all(8);
    cr_expect(gt(u64, atomic_load(&bulk_of(1)->pulled_ms), 0u));
    cr_expect(zero(u32, conn_of(&puller)->lacks));
}

/* A peer that has ended closes all its sockets: that is no failed path. */
Test(tcp_paths, an_end_of_the_peer_is_not_said_of_its_paths)
{
    owner.t->ops->drop(owner.t, owner.conn[0]);
    for (int i = 0; i < 1000 && !puller.downs; i++)
        both_turn();
    puller.now_ms += 5000;
    for (int i = 0; i < 20; i++)
        both_turn();
    cr_expect(eq(int, puller.downs, 1));
    cr_expect(zero(int, puller.path_lines));
}

/* ---- paths that are dead from the start ---- */

static void listener_end(uint32_t i)
{
    close(hth_tcp_of(owner.t)->listen_fd[i]);
    hth_tcp_of(owner.t)->listen_fd[i] = -1;
}

/* Bulk sockets of the puller on each path. */
static void paths_have(uint32_t first, uint32_t second, uint32_t third)
{
    const struct hth_tcp_conn *c = conn_of(&puller);
    uint32_t on[HTH_ADDRS] = { 0 };

    for (uint32_t i = 0; i < c->bulks; i++)
        on[c->bulk[i]->path]++;
    cr_expect(
            on[0] == first && on[1] == second && on[2] == third, "%u, %u, %u", on[0], on[1], on[2]);
}

static void seconds_pass(int seconds)
{
    for (int i = 0; i < seconds; i++) {
        for (int k = 0; k < 10; k++)
            both_turn();
        puller.now_ms += 1000;
    }
}

Test(tcp_addresses, of_three_paths_a_dead_one_leaves_the_others_their_sockets)
{
    sides_open("127.0.0.1,127.0.0.2,127.0.0.5", "127.0.0.3,127.0.0.4,127.0.0.6");
    listener_end(1);
    dial("127.0.0.1,127.0.0.2,127.0.0.5");
    pull_all(1);
    bulks_are(2);
    paths_have(1, 0, 1);
    seconds_pass(100);
    paths_have(1, 0, 1);
    cr_expect(eq(int, puller.path_lines, 1));
    cr_expect(ne(ptr, strstr(puller.path_line, "127.0.0.2:"), NULL), "%s", puller.path_line);
    shutdown(conn_of(&puller)->bulk[1]->fd, SHUT_RDWR); /* that of the third, which comes back */
    for (int i = 0; i < 100; i++)
        both_turn();
    paths_have(1, 0, 0);
    seconds_pass(61);
    paths_have(1, 0, 1);
    pull_all(4);
    sides_close();
}

Test(tcp_addresses, a_path_that_is_dead_keeps_its_part_of_the_sockets)
{
    setenv("HEARTH_TCP_LANES", "4", 1);
    sides_open("127.0.0.1,127.0.0.2,127.0.0.5", "127.0.0.3,127.0.0.4,127.0.0.6");
    listener_end(1);
    dial("127.0.0.1,127.0.0.2,127.0.0.5");
    pull_all(1);
    bulks_are(3);
    paths_have(2, 0, 1);
    hth_tcp_of(puller.t)->self.at[1] = hth_tcp_of(puller.t)->self.at[0];
    ((struct hth_tcp_conn *)(uintptr_t)conn_of(&puller))->addrs.at[1] = owner.addr; /* it answers */
    puller.now_ms += 1000;
    bulks_are(4);
    paths_have(2, 1, 1);
    seconds_pass(100);
    paths_have(2, 1, 1);
    sides_close();
}

Test(tcp_addresses, an_address_of_ours_that_is_gone_is_dialled_from_again)
{
    union hth_addr *own, was;

    sides_open("127.0.0.1,127.0.0.2", "127.0.0.3,127.0.0.4");
    own = &hth_tcp_of(puller.t)->self.at[1];
    was = *own;
    cr_assert(eq(int, inet_pton(AF_INET, "192.0.2.1", &own->in.sin_addr), 1));
    dial("127.0.0.1,127.0.0.2");
    pull_all(1);
    seconds_pass(10);
    paths_have(1, 0, 0);
    cr_expect(eq(int, puller.path_lines, 1));
    cr_expect(ne(ptr, strstr(puller.path_line, "does not have our own address"), NULL), "%s",
            puller.path_line);
    *own = was;
    seconds_pass(60);
    paths_have(1, 1, 0);
    pull_all(4);
    sides_close();
}

/* Each half of a connection has a second for a path, however long the other took. */
Test(tcp_addresses, a_peer_that_answers_late_has_time_for_both_halves)
{
    unsigned char blob[HTH_ADDR_MAX];
    const struct hth_tcp_conn *c;

    sides_open("127.0.0.1,127.0.0.2", "127.0.0.3,127.0.0.4");
    listener_end(1);
    must(puller.t->ops->connect(puller.t, blob, blob_of("127.0.0.1,127.0.0.2", blob), &conn, NULL));
    c = conn_of(&puller);
    puller.now_ms += 900;
    for (int i = 0; i < 1000 && c->greeting->purpose != HTH_PURPOSE_BULK; i++)
        both_turn();
    puller.now_ms += 900;
    for (int i = 0; i < 1000 && !puller.ups && !puller.downs; i++)
        both_turn();
    cr_expect(eq(int, puller.ups, 1), "%s", puller.down_text);
    sides_close();
}
