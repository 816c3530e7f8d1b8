/* SPDX-License-Identifier: Apache-2.0 */
/* A session on a real backend, in a process of its own. */
#include "wires.h"

#include <poll.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static const unsigned char key_bytes[HTH_KEY] = { 9, 9, 9 };
const struct hth_key hostile_key = { .bytes = key_bytes, .id = 9 };

uint64_t side_now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static uint64_t side_clock(void *self)
{
    (void)self;
    return side_now_ms();
}

static uint64_t side_random(void *self)
{
    return hth_splitmix64(self);
}

unsigned own_kib(void)
{
    FILE *f = fopen("/proc/self/status", "re");
    char line[256];
    unsigned n = 0;

    while (f && fgets(line, sizeof(line), f))
        if (sscanf(line, "RssAnon: %u", &n) == 1)
            break;
    if (f)
        fclose(f);
    return n;
}

/* One grant for each peer: if a peer asks again, the one before is taken away. */
static void victim_gives(struct side *s, uint32_t node)
{
    struct hth_grant *g = &s->grant[node];

    if (g->desc_len && hth_session_stands(s->session, g))
        hth_session_ungrant(s->session, g);
    g->desc_len = 0;
    if (!hth_session_grant(s->session, node, s->region, 0, OBJECT, g, NULL))
        (void)hth_session_send(s->session, node, HTH_MSG_OFFER, g->desc, g->desc_len);
}

static void side_message(
        void *self, uint32_t node, uint16_t type, const unsigned char *body, size_t len)
{
    struct side *s = self;

    if (s->self == VICTIM) {
        atomic_fetch_add(&s->shared->heard, 1);
        if (type == HTH_MSG_WANT)
            victim_gives(s, node);
    } else if (node == VICTIM && type == HTH_MSG_OFFER && len <= HTH_DESC_MAX) {
        memcpy(s->grant[VICTIM].desc, body, len);
        s->grant[VICTIM].desc_len = (uint32_t)len;
        s->offers++;
    }
}

static void side_up(void *self, uint32_t node)
{
    (void)self, (void)node;
}

static void side_down(void *self, uint32_t node, int code, const char *text)
{
    struct side *s = self;

    (void)code, (void)text;
    if (s->self == HEALTHY || (s->self == VICTIM && node == HEALTHY))
        atomic_fetch_add(&s->shared->downs, 1);
}

static void side_log(void *self, enum hearth_log_level level, const char *event, const char *text)
{
    struct side *s = self;

    (void)level;
    if (s->self == VICTIM && strstr(text, "node 2"))
        atomic_fetch_add(&s->shared->named, 1);
    if (getenv("HEARTH_TEST_LOGS"))
        fprintf(stderr, "%u %s: %s\n", s->self, event, text);
}

static void side_open_transport(struct side *s)
{
    struct hth_transport_events below = hth_session_events_for(s->session);
    struct hth_transport_opts o = { .bind = "127.0.0.1",
        .provider = s->backend->provider,
        .trusted = strcmp(s->backend->module, "tcp") != 0,
        .key = s->backend->keyed ? &hostile_key : NULL,
        .clock = s->clock };
    struct hearth_error err = { 0 };
    int rc = hth_transport_open(
            s->backend->module, getenv("HEARTH_TEST_LIB"), &o, &below, &s->t, &err);

    if (rc) {
        printf("skipped: %s\n", err.text);
        fflush(NULL);
        _exit(rc == HEARTH_ENOENT || rc == HEARTH_EINVAL ? 77 : 1);
    }
    hth_session_attach(s->session, s->t);
}

void side_open(struct side *s, const struct backend *b, struct shared *shared, uint32_t self)
{
    struct hth_session_opts o = { .heartbeat_ms = 500,
        .dead_ms = 10000,
        .stall_ms = 5000,
        .key = &hostile_key,
        .job = "hostile" };
    struct hth_session_events events = {
        .self = s, .on_message = side_message, .on_peer_up = side_up, .on_peer_down = side_down
    };
    struct hth_log log = { .emit = side_log, .self = s };
    struct hth_random random = { side_random, &s->dice };

    *s = (struct side){ .backend = b, .shared = shared, .self = self, .dice = self + 1 };
    s->clock = (struct hth_clock){ side_clock, side_clock, NULL };
    CHECK(!hth_session_open(&o, &events, &s->clock, &random, &log, &s->session, NULL),
            "no session");
    side_open_transport(s);
    s->bytes = mmap(NULL, OBJECT, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(s->bytes != MAP_FAILED, "no memory");
    if (self == VICTIM)
        memset(s->bytes, 0x5a, OBJECT);
    CHECK(!hth_session_reg(s->session, s->bytes, OBJECT, &s->region, NULL), "no region");
    snprintf(shared->member[self].node, sizeof(shared->member[self].node), "n%u", self);
    CHECK(!s->t->ops->address(
                  s->t, shared->member[self].addr, &shared->member[self].addr_len, NULL),
            "no address");
    atomic_fetch_add(&shared->here, 1);
    for (int i = 0; i < 20000 && atomic_load(&shared->here) < SIDES; i++) {
        s->t->ops->progress(s->t);
        usleep(1000);
    }
    CHECK(atomic_load(&shared->here) == SIDES, "the others have not come");
    memcpy(s->member, shared->member, sizeof(s->member));
    s->epoch = (struct hth_epoch){
        .epoch = 1, .nonce = 2, .world = SIDES, .nodes = SIDES, .self = self, .member = s->member
    };
    hth_session_join(s->session, &s->epoch);
}

int side_turn(struct side *s)
{
    int did = s->t->ops->progress(s->t);

    if (hth_session_due_ms(s->session) <= side_now_ms())
        hth_session_tick(s->session);
    return did;
}

void side_wait(struct side *s, unsigned ms)
{
    struct pollfd p = { -1, POLLIN, 0 };
    uint64_t now = side_now_ms(), due;

    if (side_turn(s) || !s->t->ops->arm(s->t, &p.fd, &due))
        return;
    if (hth_session_due_ms(s->session) < due)
        due = hth_session_due_ms(s->session);
    if (due > now)
        poll(&p, 1, due - now < ms ? (int)(due - now) : (int)ms);
}

void side_close(struct side *s)
{
    s->t->ops->close(s->t);
    hth_session_close(s->session);
    munmap(s->bytes, OBJECT);
}
