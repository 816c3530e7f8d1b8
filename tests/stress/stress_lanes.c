/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two transports `tcp` of several lanes and addresses in one process, drawn at random: pulls,
 * revokes, memory that is given up, sockets that are cut, connections that are dropped and dialled
 * again, closes under load.
 *
 * What must hold at each moment: a pull ends once, and a connection after its pulls; a pull that
 * ended well has the bytes of its grant; after revoke(), dereg() and drop() the owner's memory is
 * not read (it is written over at once: a byte of that in a pull that ended well is an error, and a
 * sanitizer sees the race); after on_pull() the destination is not written.
 *
 *     stress_lanes [SEED [ROUNDS]]
 */
#include "core/base/bytes.h"
#include "transport/transport.h"

#include <netinet/in.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define PIECE    (UINT64_C(64) << 10) /* a place of the source, and of the destination */
#define PLACES   64u
#define SIZE     (PIECE * PLACES)
#define VERSIONS 8u /* of what the source has */
#define GRANTS   8u
#define PULLS    64u
#define SOILED   0xee /* no byte of the source has it */

struct pull {
    int is_open;
    uint64_t roff, doff, len;
    unsigned version; /* of the source when its grant was made */
};

struct side {
    struct hth_transport *t;
    hth_conn conn; /* 0: none */
    int ups, downs;
    struct hth_region *region;
    unsigned char *bytes;
    unsigned char addr[HTH_ADDR_MAX];
    uint32_t addr_len;
};

static struct side owner, puller;
static struct pull pull[PULLS];
static struct {
    unsigned char desc[HTH_DESC_MAX];
    uint32_t len;
} grant[GRANTS];
static unsigned grants;
static unsigned char source[VERSIONS][SIZE];
static unsigned version; /* that the owner's memory has */
static unsigned place_taken[PLACES];
static unsigned done_well, done_badly, dials, cuts;
static unsigned seed;

__attribute__((format(printf, 1, 2))) _Noreturn static void fail(const char *fmt, ...)
{
    va_list args;

    fputs("stress_lanes: ", stderr);
    va_start(args, fmt);
    vfprintf(stderr, fmt, args);
    va_end(args);
    fputc('\n', stderr);
    _exit(1);
}

static unsigned drawn(unsigned below)
{
    return (unsigned)rand_r(&seed) % below;
}

static void versions_make(void)
{
    for (unsigned v = 0; v < VERSIONS; v++)
        for (uint64_t i = 0; i < SIZE; i++)
            source[v][i] = (unsigned char)((i * UINT64_C(2654435761) >> 11 ^ v) & 0x7f);
}

static void source_fill(void)
{
    version = (version + 1) % VERSIONS;
    memcpy(owner.bytes, source[version], SIZE);
}

static void on_pull(void *self, uint64_t cookie, int code)
{
    struct pull *p = &pull[cookie];

    (void)self;
    if (!p->is_open)
        fail("pull %lu has ended twice", (unsigned long)cookie);
    p->is_open = 0;
    for (uint64_t i = p->doff / PIECE; i < (p->doff + p->len + PIECE - 1) / PIECE; i++)
        place_taken[i] = 0;
    done_well += !code;
    done_badly += code != 0;
    if (!code && memcmp(puller.bytes + p->doff, source[p->version] + p->roff, p->len) != 0)
        fail("a pull of %lu bytes ended well with others than were granted", (unsigned long)p->len);
    memset(puller.bytes + p->doff, SOILED, p->len); /* a lane that still writes there races */
}

static void on_down(void *self, hth_conn conn, int code, const char *detail)
{
    struct side *s = self;

    (void)code, (void)detail;
    s->downs++;
    if (s == &puller)
        for (unsigned i = 0; i < PULLS; i++)
            if (pull[i].is_open)
                fail("pull %u outlives its connection", i);
    if (conn == s->conn)
        s->conn = 0;
    if (s == &owner)
        grants = 0;
}

static void on_conn(void *self, hth_conn conn)
{
    struct side *s = self;

    s->conn = conn;
    s->ups++;
}

static void on_message(void *self, hth_conn conn, const void *bytes, size_t len)
{
    (void)self, (void)conn, (void)bytes, (void)len;
}

static void on_writable(void *self, hth_conn conn)
{
    (void)self, (void)conn;
}

static uint64_t now_ms(void *self)
{
    struct timespec t;

    (void)self;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 10000 + (uint64_t)t.tv_nsec / 100000; /* ten times as fast */
}

static void side_open(struct side *s, const struct hth_key *key)
{
    struct hth_transport_events events = { s, on_conn, on_conn, on_down, on_message, on_writable,
        on_pull };
    struct hth_transport_opts opts = {
        .bind = "127.0.0.1,127.0.0.2", .key = key, .clock = { now_ms, now_ms, NULL }
    };
    struct hearth_error err = { 0 };

    if (hth_transport_open("tcp", NULL, &opts, &events, &s->t, &err) ||
            s->t->ops->address(s->t, s->addr, &s->addr_len, &err))
        fail("%s", err.text);
    s->bytes = malloc(SIZE);
    if (!s->bytes || s->t->ops->reg(s->t, s->bytes, SIZE, &s->region, &err))
        fail("no memory");
}

static void turn(void)
{
    if (!(owner.t->ops->progress(owner.t) + puller.t->ops->progress(puller.t)))
        usleep(50);
}

static void connect_both(void)
{
    int ups = owner.ups + 1;

    while (puller.conn || owner.conn)
        turn();
    dials++;
    if (puller.t->ops->connect(puller.t, owner.addr, owner.addr_len, &puller.conn, NULL))
        fail("no connection");
    for (int i = 0; i < 200000 && owner.ups < ups; i++)
        turn();
    if (owner.ups < ups)
        fail("it does not connect again");
    source_fill();
    grants = 0;
}

/* Ends grants in one of three ways, and soils what they gave. */
static void memory_ends(void)
{
    struct hearth_error err;

    if (drawn(2)) {
        for (unsigned i = 0; i < grants; i++)
            owner.t->ops->revoke(owner.t, grant[i].desc, grant[i].len);
    } else {
        if (owner.t->ops->dereg(owner.t, owner.region) ||
                owner.t->ops->reg(owner.t, owner.bytes, SIZE, &owner.region, &err))
            fail("memory without a pull into it is busy");
    }
    memset(owner.bytes, SOILED, SIZE);
    grants = 0;
    source_fill();
}

static void grant_make(void)
{
    if (grants < GRANTS && owner.conn &&
            !owner.t->ops->grant(owner.t, owner.region, 0, SIZE, owner.conn, grant[grants].desc,
                    &grant[grants].len, NULL))
        grants++;
}

static int places_are_free(uint64_t off, uint64_t len)
{
    for (uint64_t i = off / PIECE; i < (off + len + PIECE - 1) / PIECE; i++)
        if (place_taken[i])
            return 0;
    return 1;
}

static void pull_make(void)
{
    uint64_t doff = drawn(PLACES) * PIECE, roff = drawn((unsigned)SIZE);
    uint64_t len = drawn(4) ? drawn(3 * PIECE) : drawn((unsigned)SIZE);
    unsigned i = drawn(PULLS), g = grants ? drawn(grants) : 0;

    len = len > SIZE - doff ? SIZE - doff : len;
    len = len > SIZE - roff ? SIZE - roff : len;
    if (!grants || !puller.conn || pull[i].is_open || !places_are_free(doff, len))
        return;
    pull[i] = (struct pull){ 1, roff, doff, len, version };
    if (puller.t->ops->pull(puller.t, puller.conn, grant[g].desc, grant[g].len, roff, puller.region,
                doff, len, i)) {
        pull[i].is_open = 0;
        return;
    }
    for (uint64_t k = doff / PIECE; k < (doff + len + PIECE - 1) / PIECE; k++)
        place_taken[k] = 1;
}

static void drop_one(void)
{
    struct side *s = drawn(2) ? &owner : &puller;

    s->t->ops->drop(s->t, s->conn);
    if (s == &owner)
        memset(owner.bytes, SOILED, SIZE);
    connect_both();
}

/* A connected socket of one of the two, of messages or bulk. Lanes close sockets meanwhile; a
 * sanitizer that watches calls would take that for a race. */
static void path_cut(void)
{
    for (int i = 0; i < 64; i++) {
        int fd = 3 + (int)drawn(96);
        struct sockaddr_in to;
        socklen_t len = sizeof(to);

        if (syscall(SYS_getpeername, fd, &to, &len) || to.sin_family != AF_INET)
            continue;
        cuts += !syscall(SYS_shutdown, fd, SHUT_RDWR);
        return;
    }
}

static void world(unsigned rounds, const struct hth_key *key)
{
    side_open(&owner, key);
    side_open(&puller, key);
    connect_both();
    for (unsigned i = 0; i < rounds; i++) {
        unsigned what = drawn(1000);

        if (!puller.conn || !owner.conn) /* a cut was one too many */
            connect_both();
        else if (what < 3)
            drop_one();
        else if (what < 8)
            path_cut();
        else if (what < 15)
            memory_ends();
        else if (what < 60)
            grant_make();
        else if (what < 500)
            pull_make();
        else
            turn();
    }
    puller.t->ops->close(puller.t); /* with what is under way */
    for (unsigned i = 0; i < PULLS; i++)
        if (pull[i].is_open)
            fail("pull %u outlives its transport", i);
    memset(puller.bytes, SOILED, SIZE);
    owner.t->ops->close(owner.t);
    if (puller.ups + owner.ups != puller.downs + owner.downs)
        fail("%d connections have ended %d times", puller.ups + owner.ups,
                puller.downs + owner.downs);
    free(puller.bytes);
    free(owner.bytes);
    memset(&owner, 0, sizeof(owner));
    memset(&puller, 0, sizeof(puller));
    memset(place_taken, 0, sizeof(place_taken));
    grants = 0;
}

int main(int argc, char **argv)
{
    static const unsigned char secret[HTH_KEY] = { 9, 2, 6 };
    struct hth_key key = { .bytes = secret, .id = hth_key_id(secret) };
    unsigned first = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : 1;
    unsigned rounds = argc > 2 ? (unsigned)strtoul(argv[2], NULL, 10) : 4000;

    alarm(300);
    versions_make();
    for (unsigned i = 0; i < 4; i++) {
        seed = first + i;
        setenv("HEARTH_TCP_LANES", i < 2 ? "3" : "1", 1);
        world(rounds, i % 2 ? &key : NULL);
    }
    printf("stress_lanes: seed %u: %u pulls ended well, %u did not, %u connections, %u cuts\n",
            first, done_well, done_badly, dials, cuts);
    return done_well < rounds / 20 || !done_badly;
}
