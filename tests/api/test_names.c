/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks meet at a name: when it gets addresses, and which of them they use. This file has the
 * names, and a getaddrinfo() that answers in place of the resolver. */
#include "check.h"
#include "port.h"

#include "client/bootstrap/tcp.h"
#include <arpa/inet.h>
#include <hearth/hearth.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define WORLD 2
#define LEN   16
#define MOST  4

/* The resolver's answers to one rank. */
struct names {
    const char *address[MOST];
    atomic_int misses; /* look-ups without a record before these */
    atomic_int asked;
};

static struct names names[WORLD];
static _Thread_local uint32_t self;

static struct addrinfo *name_entry(const char *address, const char *service)
{
    struct addrinfo *a = calloc(1, sizeof(*a) + sizeof(struct sockaddr_in6));
    struct sockaddr_in v4 = { .sin_family = AF_INET,
        .sin_port = htons((uint16_t)strtoul(service, NULL, 10)) };
    struct sockaddr_in6 v6 = { .sin6_family = AF_INET6, .sin6_port = v4.sin_port };
    int six = strchr(address, ':') != NULL;
    void *to = six ? (void *)&v6.sin6_addr : (void *)&v4.sin_addr;

    inet_pton(six ? AF_INET6 : AF_INET, address, to);
    a->ai_addr = (struct sockaddr *)(a + 1);
    a->ai_family = six ? AF_INET6 : AF_INET;
    a->ai_socktype = SOCK_STREAM;
    a->ai_addrlen = six ? sizeof(v6) : sizeof(v4);
    memcpy(a->ai_addr, six ? (void *)&v6 : (void *)&v4, a->ai_addrlen);
    return a;
}

int getaddrinfo(
        const char *name, const char *service, const struct addrinfo *hints, struct addrinfo **out)
{
    struct names *n = &names[self];
    struct addrinfo **at = out;

    (void)name, (void)hints;
    if (atomic_fetch_add(&n->asked, 1) < atomic_load(&n->misses))
        return EAI_NONAME;
    *out = NULL;
    for (int i = 0; i < MOST && n->address[i]; i++, at = &(*at)->ai_next)
        *at = name_entry(n->address[i], service);
    return 0;
}

void freeaddrinfo(struct addrinfo *all)
{
    while (all) {
        struct addrinfo *next = all->ai_next;

        free(all);
        all = next;
    }
}

struct one {
    uint32_t rank, deadline_ms;
    uint16_t port;
    const char *name; /* NULL: rank0.job */
    int keyless;      /* the rank has no key, and the network is not trusted */
    int rc;
    struct hearth_error err;
};

static void *gather(void *arg)
{
    struct one *o = arg;
    struct hearth_bootstrap *b = NULL;
    unsigned char mine[LEN], all[WORLD][LEN];

    self = o->rank;
    memset(mine, (int)o->rank + 1, LEN);
    o->rc = hearth_bootstrap_tcp(
            o->name ? o->name : "rank0.job", o->port, o->rank, WORLD, o->deadline_ms, &b, &o->err);
    if (!o->rc && (o->name || o->keyless))
        hth_bootstrap_tell(
                b, &(struct hth_meeting_keys){ .told = 1, .trusted = !o->keyless, .job = "job" });
    if (!o->rc)
        o->rc = b->allgather(b->self, mine, LEN, all, &o->err);
    for (uint32_t i = 0; i < WORLD && !o->rc; i++)
        if (all[i][0] != i + 1)
            o->rc = -999;
    hearth_bootstrap_close(b);
    return NULL;
}

static struct one ranks[WORLD];

static const char *own_name; /* NULL, or the meeting place's name; the network is trusted then */
static int no_key;           /* and it is not trusted */

static void run(uint32_t from, uint32_t to, uint16_t port, uint32_t deadline_ms)
{
    pthread_t t[WORLD];

    alarm(60);
    for (uint32_t i = from; i < to; i++) {
        ranks[i] = (struct one){
            .rank = i, .port = port, .deadline_ms = deadline_ms, .name = own_name, .keyless = no_key
        };
        pthread_create(&t[i], NULL, gather, &ranks[i]);
    }
    for (uint32_t i = from; i < to; i++)
        pthread_join(t[i], NULL);
}

static void all_have_gathered(void)
{
    for (uint32_t i = 0; i < WORLD; i++)
        cr_assert(eq(int, ranks[i].rc, 0), "rank %u: %s", i, ranks[i].err.text);
}

/* A listener whose backlog is full: further connections are not answered. */
static int silent_listener(const char *address, uint16_t port, int backlog)
{
    struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons(port) };
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), yes = 1;

    inet_pton(AF_INET, address, &a.sin_addr);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
    cr_assert(zero(int, bind(fd, (struct sockaddr *)&a, sizeof(a))));
    cr_assert(zero(int, listen(fd, backlog)));
    for (int i = 0; i < 2 && !backlog; i++) {
        int one = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

        connect(one, (struct sockaddr *)&a, sizeof(a)); /* stays open, as does `fd` */
    }
    return fd;
}

Test(names, a_name_that_has_no_address_yet_is_asked_for_again)
{
    names[0] = (struct names){ .address = { "127.0.0.1" }, .misses = 1 };
    names[1] = (struct names){ .address = { "127.0.0.1" }, .misses = 2 };
    run(0, 2, port_keep(), 20000);
    all_have_gathered();
}

Test(names, a_name_that_never_has_an_address_is_said_at_the_deadline)
{
    names[1] = (struct names){ .misses = 1 << 30 };
    run(1, 2, port_keep(), 500);
    cr_assert(eq(int, ranks[1].rc, HEARTH_EINVAL));
    cr_assert(ne(ptr, strstr(ranks[1].err.text, "rank0.job has no address"), NULL), "%s",
            ranks[1].err.text);
    cr_assert(gt(int, atomic_load(&names[1].asked), 1));
}

static void meet_behind(int backlog)
{
    uint16_t port = port_keep();

    silent_listener("127.0.0.9", port, backlog);
    names[0] = (struct names){ .address = { "127.0.0.1" } };
    names[1] = (struct names){ .address = { "127.0.0.9", "127.0.0.1" } };
    run(0, 2, port, 6000);
    all_have_gathered();
}

Test(names, a_silent_address_keeps_no_rank_from_the_next_address)
{
    meet_behind(0);
}

Test(names, an_address_that_accepts_and_says_nothing_keeps_no_rank_from_the_next)
{
    meet_behind(8);
}

Test(names, each_address_is_named_with_what_became_of_it)
{
    uint16_t port = port_keep();

    silent_listener("127.0.0.9", port, 0);
    names[1] = (struct names){ .address = { "127.0.0.9", "127.0.0.1" } };
    run(1, 2, port, 500);
    cr_assert(eq(int, ranks[1].rc, HEARTH_ETIMEOUT));
    cr_assert(ne(ptr, strstr(ranks[1].err.text, "127.0.0.9: Connection timed out"), NULL), "%s",
            ranks[1].err.text);
    cr_assert(ne(ptr, strstr(ranks[1].err.text, "127.0.0.1: Connection refused"), NULL), "%s",
            ranks[1].err.text);
}

Test(names, rank_0_listens_at_all_addresses_of_its_name)
{
    names[0] = (struct names){ .address = { "127.0.0.7", "::1", "127.0.0.1" } };
    names[1] = (struct names){ .address = { "127.0.0.1" } };
    run(0, 2, port_keep(), 5000);
    all_have_gathered();
}

/* An address of this machine that other machines reach, or "". */
static void real_address(char out[INET_ADDRSTRLEN])
{
    struct ifaddrs *all = NULL;

    out[0] = '\0';
    cr_assert(zero(int, getifaddrs(&all)));
    for (const struct ifaddrs *i = all; i && !out[0]; i = i->ifa_next) {
        struct sockaddr_in a;

        if (!i->ifa_addr || i->ifa_addr->sa_family != AF_INET)
            continue;
        memcpy(&a, i->ifa_addr, sizeof(a));
        if (ntohl(a.sin_addr.s_addr) >> 24 != 127)
            inet_ntop(AF_INET, &a.sin_addr, out, INET_ADDRSTRLEN);
    }
    freeifaddrs(all);
}

/* As in Debian's /etc/hosts, the host's own name has only 127.0.1.1. */
Test(names, a_host_name_that_is_loopback_on_its_own_host_is_listened_at_where_others_reach_it)
{
    static char own[256], real[INET_ADDRSTRLEN];

    real_address(real);
    cr_assert(zero(int, gethostname(own, sizeof(own) - 1)));
    if (!real[0] || !strncmp(own, "localhost", 9))
        cr_skip_test("this machine has no address or name of its own");
    own_name = own;
    names[0] = (struct names){ .address = { "127.0.1.1" } };
    names[1] = (struct names){ .address = { real } };
    run(0, 2, port_keep(), 5000);
    all_have_gathered();
}

/* The first address is another machine's, at which ranks without a key never meet. */
static void keyless_at(const char *second, uint32_t deadline_ms, uint32_t from)
{
    static char real[INET_ADDRSTRLEN];
    uint16_t port = port_keep();

    real_address(real);
    if (!real[0])
        cr_skip_test("this machine has no address but loopback");
    silent_listener(real, port, 8);
    no_key = 1;
    names[0] = (struct names){ .address = { "127.0.0.1" } };
    names[1] = (struct names){ .address = { real, second } };
    run(from, 2, port, deadline_ms);
}

Test(names, an_address_that_needs_a_key_keeps_no_rank_without_a_key_from_the_next_address)
{
    keyless_at("127.0.0.1", 6000, 0);
    all_have_gathered();
}

Test(names, a_rank_without_a_key_gives_up_at_once_if_each_address_needs_a_key)
{
    keyless_at(NULL, 50000, 1);
    cr_assert(eq(int, ranks[1].rc, HEARTH_EINVAL), "%s", ranks[1].err.text);
    cr_assert(ne(ptr, strstr(ranks[1].err.text, "there is no key_file"), NULL), "%s",
            ranks[1].err.text);
}

Test(names, rank_0_says_where_it_listened)
{
    names[0] = (struct names){ .address = { "127.0.1.1" } };
    run(0, 1, port_keep(), 100);
    cr_assert(eq(int, ranks[0].rc, HEARTH_ETIMEOUT));
    cr_assert(ne(ptr,
                      strstr(ranks[0].err.text,
                              "rank 0 listens at 127.0.1.1, which only its own machine reaches"),
                      NULL),
            "%s", ranks[0].err.text);
}
