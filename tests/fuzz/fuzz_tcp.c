/* SPDX-License-Identifier: Apache-2.0 */
/* A byte for the way in, then what a member sends: an address, a grant, messages, or frames of bulk to a
 * connection that has two pulls under way. Each pull ends once, nothing is written beside its place. */
#include "transport/tcp/tcp.h"

#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#define PLACE 64 /* bytes of each pull */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct hth_tcp t;
static struct hth_region region, *sources;
static unsigned char places[4 * PLACE], desc[2 * HTH_DESC_MAX];
static int downs, pulls;

static void tcp_want(int good)
{
    if (!good)
        abort();
}

static void fuzz_down(void *self, hth_conn conn, int code, const char *detail)
{
    (void)self, (void)conn, (void)detail;
    tcp_want(code < 0);
    downs++;
}

static void fuzz_message(void *self, hth_conn conn, const void *bytes, size_t len)
{
    (void)self, (void)conn, (void)bytes;
    tcp_want(len <= HTH_MESSAGE_MAX);
}

static void fuzz_pull(void *self, uint64_t cookie, int code)
{
    (void)self;
    tcp_want(cookie < 2 && code <= 0);
    pulls++;
}

static void fuzz_conn(void *self, hth_conn conn)
{
    (void)self, (void)conn;
}

static void fuzz_start(void)
{
    t.events = (struct hth_transport_events){ NULL, fuzz_conn, fuzz_conn, fuzz_down, fuzz_message,
        fuzz_conn, fuzz_pull };
    t.epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    t.doomed_end = &t.doomed;
    hth_ids_init(&t.conns, 16);
    hth_ids_init(&t.socks, 16);
    hth_ids_init(&t.grants, 16);
    region = (struct hth_region){ .base = places, .len = sizeof(places) };
    tcp_want(!hth_tcp_reg(&t.base, places, sizeof(places), &sources, NULL));
}

/* A connection of ours, and the two ends that the input speaks from. */
static struct hth_tcp_conn *fuzz_connect(int far[2])
{
    static const union hth_addr nobody = { .in = { .sin_family = AF_INET } };
    struct hth_tcp_conn *c = hth_tcp_conn_new(&t, &nobody);
    int m[2], b[2];
    uint32_t len;

    tcp_want(c && !socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, m) &&
             !socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, b));
    tcp_want(!hth_tcp_sock_open(&t, &c->messages, m[0], HTH_TCP_MESSAGES, c, EPOLLIN) &&
             !hth_tcp_sock_open(&t, &c->bulk, b[0], HTH_TCP_BULK, c, EPOLLIN));
    far[0] = m[1];
    far[1] = b[1];
    c->state = HTH_TCP_UP;
    tcp_want(!hth_tcp_grant(&t.base, sources, 0, PLACE, c->id, desc, &len, NULL));
    memset(places, 5, sizeof(places));
    for (uint64_t i = 0; i < 2; i++)
        tcp_want(!hth_tcp_pull(&t.base, c->id, desc, len, 0, &region, (1 + i) * PLACE, PLACE, i));
    return c;
}

static void fuzz_speak(int way, const uint8_t *data, size_t size)
{
    int far[2];
    struct hth_tcp_conn *c = fuzz_connect(far);
    ssize_t sent = send(far[way], data, size, MSG_NOSIGNAL);

    downs = pulls = 0;
    tcp_want(sent == (ssize_t)size);
    for (int i = 0; i < 4 && c->state == HTH_TCP_UP; i++) {
        if (way)
            hth_tcp_bulk_event(c, EPOLLIN);
        else
            hth_tcp_messages_event(c, EPOLLIN);
    }
    hth_tcp_conn_end(c, HEARTH_ECANCELED, "the end of the input");
    hth_tcp_finish(&t);
    tcp_want(downs == 1 && pulls == 2);
    for (int i = 0; i < PLACE; i++)
        tcp_want(places[i] == 5 && places[3 * PLACE + i] == 5);
    close(far[0]);
    close(far[1]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const union hth_addr self = { .in = { .sin_family = AF_INET } };
    unsigned char secret[16], blob[HTH_ADDR_MAX];
    union hth_addr addr;
    uint64_t id;

    if (!t.epoll_fd)
        fuzz_start();
    if (!size || size > 9000)
        return 0;
    if (data[0] == 0 && !hth_addr_unpack(data + 1, (uint32_t)size - 1, &self, &addr, NULL))
        tcp_want(hth_addr_pack(&addr, blob) == size - 1 && !memcmp(blob, data + 1, size - 1));
    if (data[0] == 1)
        hth_tcp_desc_read(data + 1, (uint32_t)size - 1, &id, secret);
    if (data[0] == 2 || data[0] == 3)
        fuzz_speak(data[0] - 2, data + 1, size - 1);
    return 0;
}
