/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The attacks of the enemy, slice by slice: with its own session, whose frames are lies under the
 * right keys or are changed after they were sealed; with connections that send something else than
 * a hello; and, where the listener is Hearth's own, with plain sockets. Now and then it does not
 * listen for a while.
 */
#include "wires.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define RAWS   12u /* connections without a session, at once */
#define PLAINS 8u

static struct hostile_corpus frames, bodies; /* as they left: sealed; and what is in them */
static uint64_t dice;
static struct hth_transport_ops tapped;
static const struct hth_transport_ops *own;
static struct shared *shared;
static hth_conn raw[RAWS];
static struct hth_transport *raw_transport;
static int plain[PLAINS];

struct lie {
    size_t len;
    uint16_t type;
    int random;
    unsigned char bytes[HTH_MESSAGE_MAX];
};

/* As often random bytes as a message that was sent before, changed. */
static void lie_make(struct lie *lie, const struct hostile_corpus *c, size_t most)
{
    lie->random = !c->count || hostile_roll(&dice, 2);
    if (lie->random)
        lie->len = hostile_random(&dice, lie->bytes, most, &lie->type);
    else
        lie->len = corpus_lie(c, &dice, lie->bytes, most, &lie->type);
}

static void lie_sent(int up, int random)
{
    atomic_fetch_add(&shared->sent[up][random], 1);
}

/* Of the enemy's own session: most frames go as they are. */
static int tap_send(struct hth_transport *t, hth_conn conn, const void *bytes, size_t len)
{
    struct lie lie;
    struct hth_frame f;

    corpus_add(&frames, &dice, 0, bytes, len);
    if (!hth_frame_decode(&f, bytes, len, NULL) && f.type >= HTH_MSG_UP)
        corpus_add(&bodies, &dice, f.type, f.body, f.body_len);
    if (hostile_roll(&dice, 64))
        return own->send(t, conn, bytes, len);
    if (hostile_roll(&dice, 2)) {
        memcpy(lie.bytes, bytes, len);
        lie.len = hostile_mutate(&dice, lie.bytes, len, sizeof(lie.bytes));
    } else {
        lie_make(&lie, &frames, sizeof(lie.bytes)); /* perhaps one from before */
    }
    return own->send(t, conn, lie.bytes, lie.len);
}

/* ---- connections with no session
 * ----------------------------------------------------------------- */

static void raw_conn(void *self, hth_conn conn)
{
    (void)self, (void)conn;
}

static void raw_up(void *self, hth_conn conn)
{
    struct lie lie;

    (void)self;
    for (uint64_t n = 1 + hostile_roll(&dice, 4); n; n--) {
        lie_make(&lie, &frames, sizeof(lie.bytes));
        if (!raw_transport->ops->send(raw_transport, conn, lie.bytes, lie.len))
            lie_sent(!UP, lie.random);
    }
}

static void raw_down(void *self, hth_conn conn, int code, const char *detail)
{
    (void)self, (void)code, (void)detail;
    atomic_fetch_add(&shared->cut, 1);
    for (uint32_t i = 0; i < RAWS; i++)
        if (raw[i] == conn)
            raw[i] = 0;
}

static void raw_message(void *self, hth_conn conn, const void *bytes, size_t len)
{
    (void)self, (void)conn, (void)bytes, (void)len;
}

static void raw_pull(void *self, uint64_t cookie, int code)
{
    (void)self, (void)cookie, (void)code;
}

static void raw_open(const struct side *s)
{
    struct hth_transport_events events = { NULL, raw_conn, raw_up, raw_down, raw_message, raw_conn,
        raw_pull };
    struct hth_transport_opts o = { .bind = "127.0.0.1",
        .provider = s->backend->provider,
        .trusted = strcmp(s->backend->module, "tcp") != 0,
        .key = s->backend->keyed ? &hostile_key : NULL,
        .clock = s->clock };

    CHECK(!hth_transport_open(
                  s->backend->module, getenv("HEARTH_TEST_LIB"), &o, &events, &raw_transport, NULL),
            "no second transport");
}

static void raw_says(const struct side *s)
{
    uint32_t i = (uint32_t)hostile_roll(&dice, RAWS);
    const struct hth_member *victim = &s->member[VICTIM];

    if (raw[i])
        raw_transport->ops->drop(raw_transport, raw[i]);
    else if (raw_transport->ops->connect(
                     raw_transport, victim->addr, victim->addr_len, &raw[i], NULL))
        raw[i] = 0;
}

/* ---- plain sockets at a listener of Hearth's own
 * --------------------------------------------------- */

static int plain_dial(const struct side *s)
{
    const unsigned char *blob = s->member[VICTIM].addr; /* u8 1, u8 4, u16 port, address */
    struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons(hth_get16(blob + 2)) };
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    memcpy(&a.sin_addr, blob + 4, 4);
    if (fd < 0 || connect(fd, (struct sockaddr *)(void *)&a, sizeof(a)) ||
            fcntl(fd, F_SETFL, O_NONBLOCK)) {
        close(fd);
        return -1;
    }
    return fd;
}

static void plain_says(const struct side *s)
{
    unsigned char bytes[1024] = "HTCP\2\2\1\1\7";
    int *fd = &plain[hostile_roll(&dice, PLAINS)];
    size_t len = 128;
    uint16_t type;
    int random = (int)hostile_roll(&dice, 2);

    if (*fd <= 0 || hostile_roll(&dice, 3) == 0) {
        if (*fd > 0)
            close(*fd);
        *fd = plain_dial(s);
    }
    for (size_t i = 32; i < 96; i++)
        bytes[i] = (unsigned char)hostile_roll(&dice, 256);
    if (random)
        len = hostile_random(&dice, bytes, sizeof(bytes), &type);
    else if (hostile_roll(&dice, 3))
        len = hostile_mutate(&dice, bytes, len, sizeof(bytes));
    if (*fd > 0 && send(*fd, bytes, len, MSG_NOSIGNAL) > 0)
        lie_sent(!UP, random);
}

/* ---- with a session
 * ---------------------------------------------------------------------------------- */

static void enemy_pulled(struct hth_session_pull *pull, int code)
{
    (void)code;
    free(pull);
}

/* Pulls bytes within its grant, and beyond. */
static void enemy_pulls(struct side *s)
{
    struct hth_session_pull *pull = calloc(1, sizeof(*pull));
    uint64_t off = hostile_roll(&dice, 2 * OBJECT), len = hostile_roll(&dice, OBJECT);

    CHECK(pull, "no memory");
    pull->done = enemy_pulled;
    if (!(s->t->ops->caps(s->t) & HTH_CAP_BOUNDS)) /* such a library reads what it is asked to */
        off = off % (OBJECT / 2), len = len % (OBJECT / 2);
    if (!s->offers ||
            hth_session_pull(s->session, VICTIM, &s->grant[VICTIM], off, s->region, 0, len, pull))
        free(pull);
}

static void session_says(struct side *s)
{
    struct lie lie;

    lie_make(&lie, &bodies, HTH_BODY_MAX);
    if (lie.type < HTH_MSG_UP || hostile_roll(&dice, 8) == 0)
        lie.type = HTH_MSG_WANT;
    if (!hth_session_send(s->session, VICTIM, lie.type, lie.bytes, lie.len))
        lie_sent(UP, lie.random);
    if (hostile_roll(&dice, 16) == 0)
        enemy_pulls(s);
}

static void enemy_turns(struct side *s)
{
    side_turn(s);
    raw_transport->ops->progress(raw_transport);
}

/* Each frame is a connection, made or cut. */
static void enemy_dials(struct side *s)
{
    for (uint32_t i = 0; i < SLICE; i++) {
        raw_says(s);
        enemy_turns(s);
        if (i % 4 == 0)
            usleep(20);
    }
}

static void enemy_slice(struct side *s)
{
    for (uint32_t i = 0; i < SLICE; i++) {
        uint64_t kind = hostile_roll(&dice, 8);

        if (kind < 2)
            raw_says(s);
        else if (kind < 4 && s->backend->plain)
            plain_says(s);
        else
            session_says(s);
        enemy_turns(s);
        /* The messages need time to go out: an enemy that is refused dials again. */
        if (i % 16 == 0)
            for (int k = 0; k < 4; k++) {
                usleep(500);
                enemy_turns(s);
            }
        if (hostile_roll(&dice, SLICE / 2) == 0)
            usleep(150000); /* it reads nothing meanwhile */
    }
}

/* The queue of messages goes out, or is lost with its connection. */
static void enemy_rests(struct side *s)
{
    for (uint64_t until = side_now_ms() + 100; side_now_ms() < until; usleep(200))
        enemy_turns(s);
}

void enemy_run(struct side *s, const struct hostile_opts *o)
{
    uint64_t last = (o->first + o->frames + SLICE - 1) / SLICE;

    shared = s->shared;
    own = s->t->ops;
    tapped = *own;
    tapped.send = tap_send;
    s->t->ops = &tapped;
    raw_open(s);
    for (uint64_t until = side_now_ms() + 20000; atomic_load(&shared->pulls) < 3;) {
        CHECK(side_now_ms() < until, "the healthy peer does not begin");
        enemy_turns(s);
        usleep(1000);
    }
    usleep(300000); /* what the victim is now is what it grows from */
    for (uint64_t i = o->first / SLICE; i < last; i++) {
        atomic_store(&shared->slice, i);
        dice = o->seed ^ i << 32;
        if (o->dials) {
            enemy_dials(s);
            continue;
        }
        enemy_slice(s);
        enemy_rests(s);
    }
    for (uint32_t i = 0; i < PLAINS; i++)
        if (plain[i] > 0)
            close(plain[i]);
    raw_transport->ops->close(raw_transport);
    s->t->ops = own;
    corpus_clear(&frames);
    corpus_clear(&bodies);
}
