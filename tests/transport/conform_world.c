/* SPDX-License-Identifier: Apache-2.0 */
/* Two recording transports and their pump; what every event must obey is checked here. */
#include "conform.h"

#include <glob.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>

uint64_t real_ms(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

static uint64_t clock_real(void *self)
{
    (void)self;
    return real_ms();
}

static uint64_t clock_virtual(void *self)
{
    return ((struct world *)self)->virtual_ms;
}

int long_run(void)
{
    return getenv("HEARTH_LONG") != NULL;
}

struct conn_record *conn_find(struct side *s, hth_conn conn)
{
    for (int i = s->conns; i-- > 0;)
        if (s->conn[i].conn == conn)
            return &s->conn[i];
    return NULL;
}

static struct conn_record *conn_add(struct side *s, hth_conn conn)
{
    CHECK(conn && !conn_find(s, conn)); /* a handle is never used twice */
    CHECK(s->conns < CONNS);
    s->conn[s->conns] = (struct conn_record){ .conn = conn };
    return &s->conn[s->conns++];
}

static void hook(struct side *s, enum hook where, hth_conn conn)
{
    if (s->drop_in == (int)where)
        s->t->ops->drop(s->t, conn);
}

static void on_accept(void *self, hth_conn conn)
{
    struct side *s = self;
    struct conn_record *r = conn_add(s, conn);

    r->accepted = r->up = 1;
    hook(s, HOOK_ACCEPT, conn);
}

static void on_up(void *self, hth_conn conn)
{
    struct side *s = self;
    struct conn_record *r = conn_find(s, conn);

    CHECK(r && !r->up && !r->downs && !r->accepted);
    r->up = 1;
    hook(s, HOOK_UP, conn);
}

static void on_down(void *self, hth_conn conn, int code, const char *detail)
{
    struct side *s = self;
    struct conn_record *r = conn_find(s, conn);

    (void)detail;
    CHECK(r && code < 0);
    CHECK(++r->downs == 1);
    r->code = code;
    for (int i = 0; i < s->pulls; i++) /* pulls first */
        CHECK(s->pull[i].conn != conn || !s->pull[i].posted || s->pull[i].done);
    hook(s, HOOK_DOWN, conn);
}

static void on_message(void *self, hth_conn conn, const void *bytes, size_t len)
{
    struct side *s = self;
    struct conn_record *r = conn_find(s, conn);
    uint64_t number;

    CHECK(r && r->up && !r->downs);
    CHECK(len <= HTH_MESSAGE_MAX);
    r->messages++;
    r->last_len = len;
    if (len)
        memcpy(s->last, bytes, len);
    if (len >= 8) {
        memcpy(&number, bytes, 8);
        s->disorder += number != s->ordered;
        s->ordered = number + 1;
    }
    hook(s, HOOK_MESSAGE, conn);
}

static void on_writable(void *self, hth_conn conn)
{
    struct conn_record *r = conn_find(self, conn);

    CHECK(r && !r->downs);
    r->writable++;
}

static void on_pull(void *self, uint64_t cookie, int code)
{
    struct side *s = self;

    CHECK(cookie < (uint64_t)s->pulls && code <= 0);
    CHECK(s->pull[cookie].posted);
    CHECK(++s->pull[cookie].done == 1);
    s->pull[cookie].code = code;
    s->pull[cookie].has_crc =
            s->t->ops->pulled_crc && s->t->ops->pulled_crc(s->t, &s->pull[cookie].crc);
    CHECK(!code || !s->pull[cookie].has_crc);
    s->done++;
    hook(s, HOOK_PULL, s->pull[cookie].conn);
}

struct world *world_open(const struct conform_backend *backend)
{
    struct world *w = calloc(1, sizeof(*w));

    CHECK(w != NULL);
    w->backend = backend;
    w->virtual_ms = 1000000;
    w->clock = (struct hth_clock){ clock_real, clock_real, w };
    if (!backend->module) {
        w->clock = (struct hth_clock){ clock_virtual, clock_virtual, w };
        CHECK(hth_loop_net_open(&w->clock, 1, &w->net, NULL) == 0);
    }
    return w;
}

static void log_line(void *self, enum hearth_log_level level, const char *event, const char *text)
{
    (void)self;
    if (getenv("CONFORM_LOG"))
        fprintf(stderr, "[%d] %d %s: %s\n", (int)getpid(), (int)level, event, text);
}

void side_open(struct world *w, int i)
{
    struct side *s = &w->side[i];
    struct hth_transport_events events = { s, on_accept, on_up, on_down, on_message, on_writable,
        on_pull };
    struct hth_transport_opts opts = {
        .bind = w->backend->bind ? w->backend->bind : "127.0.0.1",
        .provider = w->backend->provider,
        .connect_ms = w->backend->connect_ms,
        .library = w->backend->library ? getenv(w->backend->library) : NULL,
        .key = conform_key(w->backend),
        .trusted = conform_trusts(w->backend),
        .clock = w->clock,
        .log = { .emit = log_line },
    };
    struct hearth_error err = { 0 };
    int rc;

    memset(s, 0, sizeof(*s));
    s->w = w;
    if (w->net)
        rc = hth_loop_open(w->net, (uint32_t)i, &events, &s->t, &err);
    else
        rc = hth_transport_open(
                w->backend->module, getenv("HEARTH_TEST_LIB"), &opts, &events, &s->t, &err);
    if (rc == HEARTH_ENOENT ||
            rc == HEARTH_EUNSUPPORTED) /* this release of a library, as the text says */
        conform_skip(err.text);
    if (rc)
        fprintf(stderr, "%s\n", err.text);
    CHECK(rc == 0);
}

void side_close(struct side *s)
{
    if (!s->t)
        return;
    s->drop_in = HOOK_NONE;
    s->t->ops->close(s->t);
    s->t = NULL;
    for (int i = 0; i < s->conns; i++)
        CHECK(s->conn[i].downs == 1);
    for (int i = 0; i < s->pulls; i++)
        CHECK(s->pull[i].done == s->pull[i].posted);
}

void world_close(struct world *w)
{
    side_close(A);
    side_close(B);
    hth_loop_net_close(w->net);
    free(w);
}

/* Sleeps until one of the sides has work, at most `ms`. */
static void rest(struct world *w, uint64_t ms)
{
    uint64_t now = hth_now_ms(&w->clock), until = now + ms, due;
    struct pollfd fds[2];
    nfds_t n = 0;
    int fd;

    for (int i = 0; i < 2; i++) {
        struct side *s = &w->side[i];

        if (!s->t)
            continue;
        if (!s->t->ops->arm(s->t, &fd, &due))
            return;
        if (due < until)
            until = due;
        if (fd >= 0)
            fds[n++] = (struct pollfd){ fd, POLLIN, 0 };
    }
    if (w->net)
        w->virtual_ms = until > now ? until : now;
    else if (until > now)
        poll(fds, n, (int)(until - now));
}

int pump(struct world *w, cond_fn *cond, void *arg, uint64_t ms)
{
    uint64_t end = hth_now_ms(&w->clock) + ms, now;
    int did;

    for (;;) {
        did = 0;
        for (int i = 0; i < 2; i++)
            if (w->side[i].t)
                did += w->side[i].t->ops->progress(w->side[i].t);
        if (cond && cond(w, arg))
            return 1;
        now = hth_now_ms(&w->clock);
        if (now >= end)
            return cond ? cond(w, arg) : 0;
        if (!did)
            rest(w, end - now);
    }
}

void pump_for(struct world *w, uint64_t ms)
{
    pump(w, NULL, NULL, ms);
}

static int is_up_or_down(struct world *w, void *record)
{
    struct conn_record *r = record;

    (void)w;
    return r->up || r->downs;
}

int is_down(struct world *w, void *record)
{
    (void)w;
    return ((struct conn_record *)record)->downs;
}

int all_pulled(struct world *w, void *side)
{
    struct side *s = side;
    int open = 0;

    (void)w;
    for (int i = 0; i < s->pulls; i++)
        open += s->pull[i].posted && !s->pull[i].done;
    return open == 0;
}

struct conn_record *dial_begin(struct side *from, const unsigned char *addr, uint32_t len)
{
    struct hearth_error err = { 0 };
    hth_conn conn;
    int rc = from->t->ops->connect(from->t, addr, len, &conn, &err);

    if (rc == HEARTH_EBUSY)
        return NULL;
    if (rc)
        fprintf(stderr, "%s\n", err.text);
    CHECK(rc == 0);
    return conn_add(from, conn);
}

struct conn_record *dial(struct side *from, const unsigned char *addr, uint32_t len)
{
    struct conn_record *r = dial_begin(from, addr, len);

    CHECK(r != NULL);
    CHECK(pump(from->w, is_up_or_down, r, WAIT_MS));
    return r;
}

struct count {
    struct side *side;
    int conns;
};

static int has_conns(struct world *w, void *arg)
{
    struct count *c = arg;

    (void)w;
    return c->side->conns >= c->conns;
}

struct conn_record *dial_side(struct side *from, struct side *to, struct conn_record **out_there)
{
    struct count more = { to, to->conns + 1 };
    unsigned char addr[HTH_ADDR_MAX];
    struct conn_record *r;
    uint32_t len;

    CHECK(to->t->ops->address(to->t, addr, &len, NULL) == 0);
    CHECK(len <= HTH_ADDR_MAX);
    r = dial(from, addr, len);
    if (r->downs)
        fprintf(stderr, "dial: %s\n", hearth_strerror(r->code));
    CHECK(r->up && !r->downs);
    CHECK(pump(from->w, has_conns, &more, WAIT_MS));
    *out_there = &to->conn[to->conns - 1];
    CHECK((*out_there)->accepted);
    return r;
}

static int any_more_done(struct world *w, void *arg)
{
    struct count *c = arg;

    (void)w;
    return c->side->done > c->conns;
}

int pull_post(struct side *s, hth_conn conn, const unsigned char *desc, uint32_t desc_len,
        uint64_t roff, struct hth_region *region, uint64_t doff, uint64_t len)
{
    int cookie = s->pulls++, rc, before = s->done;

    CHECK(cookie < PULLS);
    s->pull[cookie] = (struct pull_record){ .conn = conn, .posted = 1 };
    for (;;) {
        struct count one = { s, s->done };

        rc = s->t->ops->pull(s->t, conn, desc, desc_len, roff, region, doff, len, (uint64_t)cookie);
        if (rc != HEARTH_EBUSY)
            break;
        CHECK(pump(s->w, any_more_done, &one, WAIT_MS));
        before = s->done;
    }
    CHECK(s->done == before); /* never inside the call */
    s->pull[cookie].posted = rc == 0;
    s->pull[cookie].code = rc;
    return cookie;
}

static unsigned char mix(uint64_t seed, uint64_t at)
{
    uint64_t z = (at / 8 + seed) * 0x9e3779b97f4a7c15u;

    return (unsigned char)((z ^ z >> 29) >> (at % 8 * 8));
}

void fill(unsigned char *bytes, uint64_t len, uint64_t seed)
{
    for (uint64_t i = 0; i < len; i++)
        bytes[i] = mix(seed, i);
}

int is_filled(const unsigned char *bytes, uint64_t len, uint64_t seed, uint64_t off)
{
    for (uint64_t i = 0; i < len; i++)
        if (bytes[i] != mix(seed, off + i))
            return 0;
    return 1;
}

/* ---- processes ---- */

void pipe_open(struct link_pipe *p)
{
    CHECK(pipe(p->to_owner) == 0);
    CHECK(pipe(p->to_puller) == 0);
    CHECK(pipe(p->to_us) == 0);
}

void pipe_close(struct link_pipe *p)
{
    for (int i = 0; i < 2; i++) {
        close(p->to_owner[i]);
        close(p->to_puller[i]);
        close(p->to_us[i]);
    }
}

pid_t child_start(child_fn *fn, const struct conform_backend *backend, const struct link_pipe *p)
{
    pid_t pid;

    fflush(NULL);
    pid = fork();
    CHECK(pid >= 0);
    if (pid)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* a failed cell leaves no process behind, stopped or not */
    alarm(60);
    fn(backend, p);
    fflush(NULL);
    _exit(0);
}

void put_all(int fd, const void *bytes, size_t len)
{
    CHECK(write(fd, bytes, len) == (ssize_t)len);
}

void get_all(int fd, void *bytes, size_t len)
{
    struct pollfd p = { fd, POLLIN, 0 };
    size_t got = 0;

    while (got < len) {
        ssize_t n;

        CHECK(poll(&p, 1, WAIT_MS) == 1);
        n = read(fd, (char *)bytes + got, len - got);
        CHECK(n > 0);
        got += (size_t)n;
    }
}

void child_must_end(pid_t pid)
{
    uint64_t end = real_ms() + 2 * WAIT_MS;
    int status;

    while (waitpid(pid, &status, WNOHANG) == 0) {
        if (real_ms() > end) {
            child_killed(pid);
            CHECK(!"the child ends in time");
        }
        usleep(2000);
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
        exit(77);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* What libfabric's shm leaves of a process that was killed. */
static void shared_memory_remove(pid_t pid)
{
    char pattern[64];
    glob_t found;

    snprintf(pattern, sizeof(pattern), "/dev/shm/%d:%u:*", (int)pid, (unsigned)getuid());
    if (glob(pattern, 0, NULL, &found))
        return;
    for (size_t i = 0; i < found.gl_pathc; i++)
        unlink(found.gl_pathv[i]);
    globfree(&found);
}

void child_killed(pid_t pid)
{
    int status;

    kill(pid, SIGKILL);
    waitpid(pid, &status, 0);
    shared_memory_remove(pid);
}
