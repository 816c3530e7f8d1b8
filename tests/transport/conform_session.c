/* SPDX-License-Identifier: Apache-2.0 */
/* A session above the transport: the deadlines that a transport alone does not have. Node 0 owns an
 * object and is stopped in the middle; node 1 pulls it and must find its way on its own. If a peer
 * has another version or another key, both sides report it. */
#include "conform.h"

#include "transport/session/session.h"
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

#define PIECES 8

static uint64_t object = 32 * MIB; /* bytes */

struct talker {
    struct hth_session *session;
    struct hth_transport *t;
    struct hth_clock clock;
    uint64_t seed;
    struct hth_member member[2];
    struct hth_epoch epoch;
    unsigned char *bytes;
    struct hth_region *region;
    struct hth_grant grant;
    int offers, ups, downs, ended, failed;
    int down_code;
    char down_text[HEARTH_ERROR_TEXT];
    struct hth_session_pull pull[PIECES];
};

static uint64_t now_real(void *self)
{
    (void)self;
    return real_ms();
}

static uint64_t next_random(void *self)
{
    return hth_splitmix64(self);
}

static void on_message(
        void *self, uint32_t node, uint16_t type, const unsigned char *body, size_t len)
{
    struct talker *k = self;

    if (type == HTH_MSG_WANT) {
        CHECK(hth_session_grant(k->session, node, k->region, 0, object, &k->grant, NULL) == 0);
        CHECK(hth_session_send(k->session, node, HTH_MSG_OFFER, k->grant.desc, k->grant.desc_len) ==
                0);
    } else {
        CHECK(type == HTH_MSG_OFFER && len <= HTH_DESC_MAX);
        memcpy(k->grant.desc, body, len);
        k->grant.desc_len = (uint32_t)len;
        k->offers++;
    }
}

static void on_peer_up(void *self, uint32_t node)
{
    (void)node;
    ((struct talker *)self)->ups++;
}

static void on_peer_down(void *self, uint32_t node, int code, const char *text)
{
    struct talker *k = self;

    (void)node;
    CHECK(code < 0 && *text);
    k->downs++;
    k->down_code = code;
    snprintf(k->down_text, sizeof(k->down_text), "%s", text);
}

static struct talker *the_talker; /* a process has one */

static void on_done(struct hth_session_pull *pull, int code)
{
    (void)pull;
    the_talker->ended++;
    the_talker->failed += code != 0;
}

static const unsigned char bytes[2][HTH_KEY] = { { 1, 2, 3 }, { 2, 2, 3 } };
static const struct hth_key keys[2] = { { .bytes = bytes[0], .id = 1 },
    { .bytes = bytes[1], .id = 2 } };

static struct hth_session_opts usual(void)
{
    return (struct hth_session_opts){ .heartbeat_ms = 200,
        .dead_ms = 4000,
        .stall_ms = 2000,
        .key = &keys[0],
        .job = "conformance" };
}

static struct talker *talker_open(const struct conform_backend *backend,
        const struct hth_session_opts *o, uint32_t self, int to_peer, int from_peer)
{
    static struct talker k;
    struct hth_session_events ev = {
        .self = &k, .on_message = on_message, .on_peer_up = on_peer_up, .on_peer_down = on_peer_down
    };
    struct hth_random random = { next_random, &k.seed };
    struct hth_transport_events below;
    struct hth_transport_opts to = { .bind = backend->bind ? backend->bind : "127.0.0.1",
        .provider = backend->provider,
        .key = conform_key(backend),
        .trusted = conform_trusts(backend) };
    struct hearth_error err = { 0 };
    int rc;

    the_talker = &k;
    k.seed = self + 1;
    k.clock = to.clock = (struct hth_clock){ now_real, now_real, NULL };
    CHECK(hth_session_open(o, &ev, &k.clock, &random, NULL, &k.session, NULL) == 0);
    below = hth_session_events_for(k.session);
    rc = hth_transport_open(backend->module, getenv("HEARTH_TEST_LIB"), &to, &below, &k.t, &err);
    if (rc == HEARTH_ENOENT)
        conform_skip(err.text);
    CHECK(rc == 0);
    hth_session_attach(k.session, k.t);
    k.bytes = mmap(NULL, object, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(k.bytes != MAP_FAILED);
    CHECK(hth_session_reg(k.session, k.bytes, object, &k.region, NULL) == 0);
    snprintf(k.member[self].node, sizeof(k.member[self].node), "n%u", self);
    CHECK(k.t->ops->address(k.t, k.member[self].addr, &k.member[self].addr_len, NULL) == 0);
    put_all(to_peer, &k.member[self], sizeof(k.member[self]));
    get_all(from_peer, &k.member[!self], sizeof(k.member[0]));
    k.epoch = (struct hth_epoch){
        .epoch = 1, .nonce = 2, .world = 2, .nodes = 2, .self = self, .member = k.member
    };
    hth_session_join(k.session, &k.epoch);
    return &k;
}

typedef int done_fn(const struct talker *k);

/* Does the work of an engine's thread, until `is_done` or the time is over. */
static int drive(struct talker *k, done_fn *is_done, uint64_t ms)
{
    uint64_t end = real_ms() + ms, due, now;
    struct pollfd p = { -1, POLLIN, 0 };

    while (!is_done(k)) {
        int did = k->t->ops->progress(k->t);

        if (hth_session_due_ms(k->session) <= real_ms())
            hth_session_tick(k->session);
        now = real_ms();
        if (is_done(k) || now >= end)
            return is_done(k);
        if (did || !k->t->ops->arm(k->t, &p.fd, &due))
            continue;
        if (hth_session_due_ms(k->session) < due)
            due = hth_session_due_ms(k->session);
        if (end < due)
            due = end;
        poll(&p, 1, due > now ? (int)(due - now) : 0);
    }
    return 1;
}

static int never(const struct talker *k)
{
    (void)k;
    return 0;
}

static int has_offer(const struct talker *k)
{
    return k->offers > 0;
}

static int all_ended(const struct talker *k)
{
    return k->ended == PIECES;
}

static int is_lost(const struct talker *k)
{
    return k->downs > 0;
}

static void owner(const struct conform_backend *backend, const struct link_pipe *p)
{
    struct hth_session_opts o = usual();
    struct talker *k = talker_open(backend, &o, 0, p->to_puller[1], p->to_owner[0]);

    fill(k->bytes, object, 1);
    drive(k, never, 60000); /* until it is killed */
}

static void ask(struct talker *k)
{
    k->offers = 0;
    CHECK(hth_session_send(k->session, 0, HTH_MSG_WANT, NULL, 0) == 0);
    CHECK(drive(k, has_offer, WAIT_MS));
}

static void post(struct talker *k)
{
    uint64_t piece = object / PIECES;

    k->ended = k->failed = 0;
    for (uint64_t i = 0; i < PIECES; i++) {
        k->pull[i].done = on_done;
        CHECK(hth_session_pull(k->session, 0, &k->grant, i * piece, k->region, i * piece, piece,
                      &k->pull[i]) == 0);
    }
}

static void whole(struct talker *k)
{
    memset(k->bytes, 0, object);
    ask(k);
    post(k);
    CHECK(drive(k, all_ended, WAIT_MS));
    CHECK(k->failed == 0 && is_filled(k->bytes, object, 1, 0));
}

static void talker_close(struct talker *k)
{
    k->t->ops->close(k->t);
    hth_session_close(k->session);
    munmap(k->bytes, object);
}

static void puller(const struct conform_backend *backend, const struct link_pipe *p)
{
    struct hth_session_opts o = usual();
    struct talker *k = talker_open(backend, &o, 1, p->to_owner[1], p->to_puller[0]);
    unsigned char *snapshot = malloc(object);
    char go;

    CHECK(snapshot != NULL);
    whole(k);
    CHECK(k->ups == 1 && k->downs == 0);
    ask(k);
    put_all(p->to_us[1], "s", 1);
    get_all(p->to_puller[0], &go, 1);
    memset(k->bytes, 0xa5, object);
    post(k);
    CHECK(drive(k, all_ended, WAIT_MS)); /* the stall deadline, once for each */
    CHECK(k->failed > 0);
    CHECK(drive(k, is_lost, WAIT_MS)); /* and the dead one */
    memcpy(snapshot, k->bytes, object);
    put_all(p->to_us[1], "c", 1);
    get_all(p->to_puller[0], &go, 1);
    drive(k, never, 1000);
    CHECK(k->ended == PIECES && k->downs == 1);
    CHECK(memcmp(snapshot, k->bytes, object) == 0);
    whole(k);
    CHECK(k->ups == 2);
    talker_close(k);
    free(snapshot);
}

static void watch_the_owner_stop(const struct conform_backend *backend)
{
    struct link_pipe p;
    pid_t o, u;
    char what;

    pipe_open(&p);
    o = child_start(owner, backend, &p);
    u = child_start(puller, backend, &p);
    get_all(p.to_us[0], &what, 1);
    kill(o, SIGSTOP);
    waitpid(o, NULL, WUNTRACED);
    put_all(p.to_puller[1], "g", 1);
    get_all(p.to_us[0], &what, 1);
    kill(o, SIGCONT);
    put_all(p.to_puller[1], "g", 1);
    child_must_end(u);
    child_killed(o);
    pipe_close(&p);
}

/* ---- Who is no peer
 * ----------------------------------------------------------------------------- */

static int another_key; /* else another version */

/* "protocol 6 to 8", or "n0 6 to 8" */
static int says_versions(const char *text, const char *node, unsigned low, unsigned high)
{
    char first[64], second[64];

    snprintf(first, sizeof(first), "protocol %u to %u", low, high);
    snprintf(second, sizeof(second), "%s %u to %u", node, low, high);
    return strstr(text, first) || strstr(text, second);
}

/* Node 1 dials; node 0 refuses it, dials it in turn, and is refused. */
static void misfit(const struct conform_backend *backend, const struct link_pipe *p, uint32_t self)
{
    struct hth_session_opts o = usual();
    struct talker *k;

    if (self && another_key)
        o.key = &keys[1];
    if (self && !another_key)
        o.version_low = HTH_VERSION_HIGH + 1, o.version_high = HTH_VERSION_HIGH + 2;
    k = talker_open(backend, &o, self, self ? p->to_owner[1] : p->to_puller[1],
            self ? p->to_puller[0] : p->to_owner[0]);
    if (self)
        CHECK(hth_session_send(k->session, 0, HTH_MSG_WANT, NULL, 0) == 0);
    CHECK(drive(k, is_lost, WAIT_MS));
    if (another_key) {
        CHECK(k->down_code == HEARTH_EAUTH && strstr(k->down_text, "another job key"));
    } else {
        CHECK(k->down_code == HEARTH_EPROTO);
        CHECK(says_versions(k->down_text, "n0", HTH_VERSION_LOW, HTH_VERSION_HIGH));
        CHECK(says_versions(k->down_text, "n1", HTH_VERSION_HIGH + 1, HTH_VERSION_HIGH + 2));
    }
    CHECK(k->ups == 0 && k->offers == 0);
    drive(k, never, 1000); /* the other's answer needs us still */
    talker_close(k);
}

static void misfit_owner(const struct conform_backend *backend, const struct link_pipe *p)
{
    misfit(backend, p, 0);
}

static void misfit_puller(const struct conform_backend *backend, const struct link_pipe *p)
{
    misfit(backend, p, 1);
}

struct misfits {
    struct link_pipe pipe;
    pid_t owner, puller;
};

static void misfits_start(const struct conform_backend *backend, int key, struct misfits *m)
{
    another_key = key;
    pipe_open(&m->pipe);
    m->owner = child_start(misfit_owner, backend, &m->pipe);
    m->puller = child_start(misfit_puller, backend, &m->pipe);
}

static void misfits_end(struct misfits *m)
{
    child_must_end(m->puller);
    child_must_end(m->owner);
    pipe_close(&m->pipe);
}

/* All at once: they wait, most of the time. */
void conform_session(const struct conform_backend *backend)
{
    struct misfits version, key;

    if (!backend->module)
        conform_skip("tests/transport/test_session.c does it in virtual time");
    if (backend->profile)
        object = 8 * MIB;
    misfits_start(backend, 0, &version);
    misfits_start(backend, 1, &key);
    if (!backend->unguarded) /* else a stopped owner is read all the same */
        watch_the_owner_stop(backend);
    misfits_end(&version);
    misfits_end(&key);
}
