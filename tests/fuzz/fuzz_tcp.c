/* SPDX-License-Identifier: Apache-2.0 */
/* A byte for the way in, then what a member sends: an address, a grant, messages, or frames of bulk
 * to a connection that has two pulls under way. Each pull ends once, nothing is written beside its
 * place. On a sealed connection, bytes that an attacker on the path adds are not taken for a
 * message. */
#include "core/base/bytes.h"
#include "transport/tcp/tcp.h"

#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define PLACE       64                     /* bytes of the first pull */
#define LONG        (HTH_TCP_PART + PLACE) /* and of the second, which is asked for in two parts */
#define INPUT_MAX   9000u
#define RECORDS_MAX 32 /* that are sealed */

enum { MESSAGES, BULK };

/* The two sockets' far ends, that the input speaks from. */
struct far {
    int fd[2];
    struct hth_seal *seal[2]; /* NULL: as it is */
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct hth_tcp t;
static struct hth_region region, *sources;
static unsigned char places[2 * PLACE + LONG + PLACE], desc[2 * HTH_DESC_MAX];
static int downs, pulls, messages;

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
    messages++;
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

static uint64_t fuzz_now(void *self)
{
    (void)self;
    return 1;
}

static void fuzz_start(void)
{
    t.clock = (struct hth_clock){ fuzz_now, fuzz_now, NULL };
    t.events = (struct hth_transport_events){ NULL, fuzz_conn, fuzz_conn, fuzz_down, fuzz_message,
        fuzz_conn, fuzz_pull };
    t.epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    t.wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    t.doomed_end = &t.doomed;
    t.back_pulls_end = &t.back_pulls;
    t.back_bulks_end = &t.back_bulks;
    pthread_mutex_init(&t.grants_lock, NULL);
    pthread_mutex_init(&t.back_lock, NULL);
    pthread_cond_init(&t.grants_unread, NULL);
    tcp_want(!hth_tcp_lanes_open(&t, 0, NULL));
    hth_ids_init(&t.conns, 16);
    hth_ids_init(&t.socks, 16);
    hth_ids_init(&t.grants, 16);
    tcp_want(!hth_seal_init(NULL));
    region = (struct hth_region){ .base = places, .len = sizeof(places) };
    tcp_want(!hth_tcp_reg(&t.base, places, sizeof(places), &sources, NULL));
}

/* Ours of a connection where both have proved the key. */
static struct hth_seal *fuzz_seal(enum hth_purpose purpose, uint32_t suites,
        const struct hth_seal_bond *bond, struct hth_seal **far)
{
    static const unsigned char key[HTH_KEY] = { 1, 2, 3 };
    const struct hth_seal_opts opts = {
        .key = key, .suites = suites, .purpose = purpose, .bond = bond
    };
    unsigned char asks[HTH_SEAL_HELLO], answers[HTH_SEAL_HELLO], proof[HTH_SEAL_PROOF];
    struct hth_seal_hand dialler, acceptor;
    struct hth_seal *ours = NULL;

    tcp_want(!hth_seal_dial(&dialler, &opts, asks, NULL) &&
             !hth_seal_accept(&acceptor, &opts, asks, answers, NULL) &&
             !hth_seal_answer(&dialler, answers, proof, NULL) &&
             !hth_seal_admit(&acceptor, proof, proof, &ours, NULL) &&
             !hth_seal_finish(&dialler, proof, far, NULL));
    hth_seal_drop(&dialler);
    hth_seal_drop(&acceptor);
    return ours;
}

/* Our bulk seal. Where nothing is sealed, the far end has none. */
static struct hth_seal *fuzz_seals(struct hth_tcp_conn *c, struct far *far, int sealed)
{
    const uint32_t suites = sealed ? HTH_SUITE_CHACHA20_POLY1305 : HTH_SUITE_PROOF;
    struct hth_seal_bond bond;
    struct hth_seal *bulk;

    c->messages_seal = fuzz_seal(HTH_PURPOSE_MESSAGES, suites, NULL, &far->seal[MESSAGES]);
    hth_seal_bond(c->messages_seal, &bond);
    bulk = fuzz_seal(HTH_PURPOSE_BULK, suites, &bond, &far->seal[BULK]);
    for (int way = 0; way < 2 && !sealed; way++) {
        hth_seal_close(far->seal[way]);
        far->seal[way] = NULL;
    }
    c->is_sealed = sealed;
    return bulk;
}

static struct hth_tcp_conn *fuzz_connect(struct far *far, int sealed)
{
    static const union hth_addr nobody = { .in = { .sin_family = AF_INET } };
    struct hth_tcp_conn *c = hth_tcp_conn_new(&t, &nobody);
    int m[2], b[2];
    uint32_t len;

    tcp_want(c && !socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, m) &&
             !socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, b));
    tcp_want(!hth_tcp_sock_open(&t, &c->messages, m[0], HTH_TCP_MESSAGES, c, EPOLLIN));
    *far = (struct far){ .fd = { m[1], b[1] } };
    tcp_want(!hth_tcp_bulk_add(c, b[0], fuzz_seals(c, far, sealed)));
    hth_tcp_bulk_start(c->bulk[0]);
    c->state = HTH_TCP_UP;
    tcp_want(!hth_tcp_grant(&t.base, sources, 0, PLACE, c->id, desc, &len, NULL));
    memset(places, 5, PLACE);
    memset(places + sizeof(places) - PLACE, 5, PLACE);
    tcp_want(!hth_tcp_pull(&t.base, c->id, desc, len, 0, &region, PLACE, PLACE, 0));
    tcp_want(!hth_tcp_pull(&t.base, c->id, desc, len, 0, &region, 2 * PLACE, LONG, 1));
    tcp_want(c->bulk[0]->requests == 3);
    return c;
}

/* {u8 length, as many bytes}, each sealed, up to a length of 0; returns how many there are. The
 * rest is sent as it is. */
static int far_says(const struct far *far, int way, const uint8_t *data, size_t size)
{
    static unsigned char out[INPUT_MAX + RECORDS_MAX * HTH_SEAL_MORE];
    struct hth_reader r = { .at = data, .len = size };
    const unsigned char *n;
    size_t len = 0;
    int records = 0;

    for (; far->seal[way] && records < RECORDS_MAX; records++) {
        if (!(n = hth_read(&r, 1)) || !*n || *n > size - r.pos)
            break;
        tcp_want(!hth_seal_put(far->seal[way], out + len, hth_read(&r, *n), *n));
        len += *n + HTH_SEAL_MORE;
    }
    if (size > r.pos)
        memcpy(out + len, data + r.pos, size - r.pos);
    len += size - r.pos;
    tcp_want(send(far->fd[way], out, len, MSG_NOSIGNAL) == (ssize_t)len);
    return records;
}

static void fuzz_speak(int way, int sealed, const uint8_t *data, size_t size)
{
    struct far far;
    struct hth_tcp_conn *c = fuzz_connect(&far, sealed);
    int records;

    downs = pulls = messages = 0;
    records = far_says(&far, way, data, size);
    for (int i = 0; i < 4 && c->state == HTH_TCP_UP; i++) {
        if (way == BULK)
            hth_tcp_lane_turn(c->bulk[0]->lane, 0);
        else
            hth_tcp_messages_event(c, EPOLLIN);
        hth_tcp_back_take(&t);
    }
    hth_tcp_conn_end(c, HEARTH_ECANCELED, "the end of the input");
    hth_tcp_back_take(&t);
    hth_tcp_finish(&t);
    tcp_want(downs == 1 && pulls == 2 && (!sealed || messages <= records));
    for (int i = 0; i < PLACE; i++)
        tcp_want(places[i] == 5 && places[sizeof(places) - 1 - (size_t)i] == 5);
    for (int i = 0; i < 2; i++) {
        close(far.fd[i]);
        hth_seal_close(far.seal[i]);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct hth_addrs self = { .count = 1 };
    unsigned char secret[16], blob[HTH_ADDR_MAX];
    struct hth_addrs addrs;
    uint64_t id;

    if (!t.epoll_fd)
        fuzz_start();
    if (!size || size > INPUT_MAX)
        return 0;
    self.at[0].sa.sa_family = size > 2 && data[2] == 6 ? AF_INET6 : AF_INET;
    if (data[0] == 0 && !hth_addrs_unpack(data + 1, (uint32_t)size - 1, &self, &addrs, NULL))
        tcp_want(hth_addrs_pack(&addrs, blob) == size - 1 && !memcmp(blob, data + 1, size - 1));
    if (data[0] == 1)
        hth_tcp_desc_read(data + 1, (uint32_t)size - 1, &id, secret);
    if (data[0] >= 2 && data[0] <= 5)
        fuzz_speak(data[0] % 2, data[0] >= 4, data + 1, size - 1);
    return 0;
}
