/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Peers that die, stop or can no longer be reached. Real ones are processes: we kill and stop
 * them, and each says by its exit status whether its own side kept the contract.
 */
#include "conform.h"

#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/wait.h>

static uint64_t object = 32 * MIB; /* bytes, more than sockets hold; the strict provider has none */

/* The owner's message to the puller. */
struct offer {
    uint32_t addr_len, desc_len;
    unsigned char addr[HTH_ADDR_MAX], desc[HTH_DESC_MAX];
};

static void object_choose(const struct conform_backend *backend)
{
    if (backend->profile)
        object = 8 * MIB;
}

static unsigned char *map(uint64_t len)
{
    void *at = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    CHECK(at != MAP_FAILED);
    return at;
}

static void tell(int fd, char what)
{
    put_all(fd, &what, 1);
}

static int told(int fd)
{
    struct pollfd p = { fd, POLLIN, 0 };
    char what;

    if (poll(&p, 1, 0) == 1)
        get_all(fd, &what, 1);
    else
        return 0;
    return 1;
}

/* Serves one object to whoever connects; says its address, then grants to each connection.
 * A byte from us: stall 100 ms. It ends by being killed, or after `serve` messages of "bye". */
static void owner(const struct conform_backend *backend, const struct link_pipe *p)
{
    struct world *w = world_open(backend);
    unsigned char *bytes = map(object);
    struct hth_region *region;
    struct offer offer = { 0 };
    int granted = 0;

    side_open(w, 0);
    fill(bytes, object, 1);
    CHECK(A->t->ops->address(A->t, offer.addr, &offer.addr_len, NULL) == 0);
    CHECK(A->t->ops->reg(A->t, bytes, object, &region, NULL) == 0);
    put_all(p->to_puller[1], &offer, sizeof(offer));
    for (;;) {
        pump_for(w, 2);
        for (; granted < A->conns; granted++) {
            struct conn_record *r = &A->conn[granted];
            struct offer o = { 0 };

            if (r->downs)
                continue;
            CHECK(A->t->ops->grant(A->t, region, 0, object, r->conn, o.desc, &o.desc_len, NULL) ==
                    0);
            CHECK(A->t->ops->send(A->t, r->conn, &o, sizeof(o)) == 0);
        }
        if (told(p->to_owner[0]))
            usleep(100000);
    }
}

static int has_offer(struct world *w, void *record)
{
    struct conn_record *r = record;

    (void)w;
    return r->messages || r->downs;
}

struct puller {
    struct world *w;
    struct offer offer;
    struct conn_record *r;
    unsigned char *bytes;
    struct hth_region *region;
};

static void puller_dial(struct puller *u)
{
    struct world *w = u->w;
    struct offer o;

    u->r = dial(B, u->offer.addr, u->offer.addr_len);
    CHECK(pump(w, has_offer, u->r, WAIT_MS) && u->r->messages == 1);
    CHECK(u->r->last_len == sizeof(o));
    memcpy(&o, B->last, sizeof(o));
    memcpy(u->offer.desc, o.desc, sizeof(o.desc));
    u->offer.desc_len = o.desc_len;
}

static struct puller puller_open(const struct conform_backend *backend, const struct link_pipe *p)
{
    struct puller u = { .w = world_open(backend), .bytes = map(object) };
    struct world *w = u.w;

    get_all(p->to_puller[0], &u.offer, sizeof(u.offer));
    side_open(w, 1);
    CHECK(B->t->ops->reg(B->t, u.bytes, object, &u.region, NULL) == 0);
    puller_dial(&u);
    return u;
}

/* The whole object in eight pulls, not waited for. */
static void puller_post(struct puller *u)
{
    struct world *w = u->w;

    for (uint64_t off = 0; off < object; off += object / 8)
        pull_post(B, u->r->conn, u->offer.desc, u->offer.desc_len, off, u->region, off, object / 8);
}

static void puller_whole(struct puller *u)
{
    struct world *w = u->w;
    int first = B->pulls;

    memset(u->bytes, 0, object);
    puller_post(u);
    CHECK(pump(w, all_pulled, B, WAIT_MS));
    for (int i = first; i < B->pulls; i++)
        CHECK(B->pull[i].code == 0);
    CHECK(is_filled(u->bytes, object, 1, 0));
}

/* Pulls until the owner dies under it: all end, the connection ends, the next pull is refused. */
static void puller_outlives(const struct conform_backend *backend, const struct link_pipe *p)
{
    struct puller u = puller_open(backend, p);
    struct world *w = u.w;
    uint64_t end = real_ms() + WAIT_MS, lately = real_ms();
    int rc, done = 0;

    tell(p->to_us[1], 'r');
    while (!u.r->downs) {
        CHECK(real_ms() < end);
        if (done != B->done)
            lately = real_ms();
        done = B->done;
        if (backend->silent && real_ms() - lately > 300)
            B->t->ops->drop(B->t, u.r->conn); /* as the session does, after stall_ms */
        if (all_pulled(w, B) && B->pulls + 8 < PULLS)
            for (uint64_t off = 0; off < object && !u.r->downs; off += object / 8) {
                int cookie = B->pulls++; /* by hand: EBUSY and EPEER are right here, too */

                B->pull[cookie] = (struct pull_record){ .conn = u.r->conn, .posted = 1 };
                rc = B->t->ops->pull(B->t, u.r->conn, u.offer.desc, u.offer.desc_len, off, u.region,
                        off, object / 8, (uint64_t)cookie);
                B->pull[cookie].posted = rc == 0;
                CHECK(rc == 0 || rc == HEARTH_EPEER || rc == HEARTH_EBUSY);
            }
        pump_for(w, 1);
    }
    CHECK(all_pulled(w, B));
    CHECK(B->t->ops->pull(B->t, u.r->conn, u.offer.desc, u.offer.desc_len, 0, u.region, 0, MIB,
                  PULLS - 1) == HEARTH_EPEER);
    CHECK(B->t->ops->send(B->t, u.r->conn, "x", 1) == HEARTH_EPEER);
    CHECK(B->t->ops->dereg(B->t, u.region) == 0);
    world_close(w);
}

static void puller_for_ever(const struct conform_backend *backend, const struct link_pipe *p)
{
    struct puller u = puller_open(backend, p);
    struct world *w = u.w;

    tell(p->to_us[1], 'r');
    for (;;) {
        B->pulls = B->done = 0;
        memset(B->pull, 0, sizeof(B->pull));
        puller_post(&u);
        pump(w, all_pulled, B, WAIT_MS);
    }
}

static void puller_once(const struct conform_backend *backend, const struct link_pipe *p)
{
    struct puller u = puller_open(backend, p);

    puller_whole(&u);
    world_close(u.w);
}

static void owner_dies(const struct conform_backend *backend, unsigned seed)
{
    struct link_pipe p;
    pid_t o, u;
    char ready;

    pipe_open(&p);
    o = child_start(owner, backend, &p);
    u = child_start(puller_outlives, backend, &p);
    get_all(p.to_us[0], &ready, 1);
    usleep(seed * 7919 % 40000);
    child_killed(o);
    child_must_end(u);
    pipe_close(&p);
}

/* The dying puller leaves half a conversation with an owner that is busy elsewhere. */
static void puller_dies(const struct conform_backend *backend, int times)
{
    struct link_pipe p;
    struct offer offer;
    pid_t o, u;
    char ready;

    pipe_open(&p);
    o = child_start(owner, backend, &p);
    get_all(p.to_puller[0], &offer, sizeof(offer));
    for (int i = 0; i <= times; i++) {
        put_all(p.to_puller[1], &offer, sizeof(offer));
        u = child_start(i < times ? puller_for_ever : puller_once, backend, &p);
        if (i == times) { /* and after all that it still serves */
            child_must_end(u);
            break;
        }
        get_all(p.to_us[0], &ready, 1);
        tell(p.to_owner[1], 's');
        usleep((unsigned)i * 7919 % 40000);
        child_killed(u);
        CHECK(waitpid(o, NULL, WNOHANG) == 0);
    }
    child_killed(o);
    pipe_close(&p);
}

static int has_begun(struct world *w, void *puller)
{
    (void)w;
    return is_filled(((struct puller *)puller)->bytes, 8, 1, 0);
}

/* Lets the owner fill the wires, and asks for more when it has stopped in the middle of that. */
static void puller_asks_and_dies(const struct conform_backend *backend, const struct link_pipe *p)
{
    struct puller u = puller_open(backend, p);
    char go;

    puller_post(&u);
    CHECK(pump(u.w, has_begun, &u, WAIT_MS));
    usleep(50000);
    tell(p->to_us[1], 's');
    get_all(p->to_puller[0], &go, 1);
    puller_post(&u);
    tell(p->to_us[1], 'k');
    for (;;)
        pause();
}

/* The owner wakes up with an answer half sent, new requests to read, and a puller that is dead. */
static void puller_dies_asking(const struct conform_backend *backend)
{
    struct link_pipe p;
    struct offer offer;
    pid_t o, u;
    char what;

    pipe_open(&p);
    o = child_start(owner, backend, &p);
    get_all(p.to_puller[0], &offer, sizeof(offer));
    put_all(p.to_puller[1], &offer, sizeof(offer));
    u = child_start(puller_asks_and_dies, backend, &p);
    get_all(p.to_us[0], &what, 1);
    kill(o, SIGSTOP);
    waitpid(o, NULL, WUNTRACED);
    tell(p.to_puller[1], 'g');
    get_all(p.to_us[0], &what, 1);
    child_killed(u);
    kill(o, SIGCONT);
    put_all(p.to_puller[1], &offer, sizeof(offer));
    child_must_end(child_start(puller_once, backend, &p));
    CHECK(waitpid(o, NULL, WNOHANG) == 0);
    child_killed(o);
    pipe_close(&p);
}

/* In one process there is no death, but a close under way is the same for the other side. */
static void loop_dies(const struct conform_backend *backend, int silent)
{
    struct world *w = world_open(backend);
    struct conn_record *a, *b;
    struct hth_region *src, *dst;
    unsigned char *from = map(MIB), *to = map(MIB), desc[HTH_DESC_MAX];
    uint32_t len;
    int cookie;

    side_open(w, 0);
    side_open(w, 1);
    b = dial_side(B, A, &a);
    fill(from, MIB, 1);
    CHECK(A->t->ops->reg(A->t, from, MIB, &src, NULL) == 0);
    CHECK(B->t->ops->reg(B->t, to, MIB, &dst, NULL) == 0);
    CHECK(A->t->ops->grant(A->t, src, 0, MIB, a->conn, desc, &len, NULL) == 0);
    cookie = pull_post(B, b->conn, desc, len, 0, dst, 0, MIB);
    if (silent) { /* nothing breaks by itself; a drop ends it, and nothing is written later */
        hth_loop_net_silence(w->net, 0, 1);
        CHECK(!pump(w, all_pulled, B, 10000) && !b->downs && !a->downs);
        B->t->ops->drop(B->t, b->conn);
        CHECK(pump(w, is_down, b, 10));
        CHECK(B->pull[cookie].code == HEARTH_ECANCELED && b->code == HEARTH_ECANCELED);
        hth_loop_net_silence(w->net, 0, 0);
        CHECK(pump(w, is_down, a, 10));
        CHECK(to[0] == 0 && memcmp(to, to + 1, MIB - 1) == 0);
        b = dial_side(B, A, &a);
    } else {
        side_close(A);
        CHECK(pump(w, is_down, b, 10));
        CHECK(B->pull[cookie].done && B->pull[cookie].code == HEARTH_EPEER);
        CHECK(B->t->ops->pull(B->t, b->conn, desc, len, 0, dst, 0, MIB, 1) == HEARTH_EPEER);
    }
    world_close(w);
    munmap(from, MIB);
    munmap(to, MIB);
}

/* Group 4: the process that reads dies. The process whose memory is read: group 7. */
void conform_death(const struct conform_backend *backend)
{
    if (!backend->module) {
        loop_dies(backend, 0);
        return;
    }
    if (backend->unguarded)
        conform_skip("a process that is killed may hold a lock in the owner's memory");
    object_choose(backend);
    puller_dies(backend, long_run() ? 100 : backend->profile ? 3 : 5);
    puller_dies_asking(backend);
}

/* Group 5: asks us to stop the owner, waits in vain, cuts, checks that no byte comes later. */
static void puller_of_stopped(const struct conform_backend *backend, const struct link_pipe *p)
{
    struct puller u = puller_open(backend, p);
    struct world *w = u.w;
    unsigned char *snapshot = map(object);
    char go;

    puller_whole(&u);
    tell(p->to_us[1], 's');
    get_all(p->to_puller[0], &go, 1);
    memset(u.bytes, 0xa5, object);
    puller_post(&u);
    /* A stopped owner does not send so much. The stall deadline of a session is that short here. */
    CHECK(!pump(w, all_pulled, B, 400));
    B->t->ops->drop(B->t, u.r->conn);
    CHECK(pump(w, is_down, u.r, WAIT_MS));
    CHECK(all_pulled(w, B) && u.r->code == HEARTH_ECANCELED);
    memcpy(snapshot, u.bytes, object);
    tell(p->to_us[1], 'c');
    get_all(p->to_puller[0], &go, 1);
    pump_for(w, 500);
    CHECK(memcmp(snapshot, u.bytes, object) == 0);
    puller_dial(&u);
    puller_whole(&u);
    world_close(w);
}

void conform_stop(const struct conform_backend *backend)
{
    struct link_pipe p;
    pid_t o, u;
    char what;

    if (!backend->module) {
        loop_dies(backend, 1);
        return;
    }
    conform_needs_guard(backend);
    object_choose(backend);
    pipe_open(&p);
    o = child_start(owner, backend, &p);
    u = child_start(puller_of_stopped, backend, &p);
    get_all(p.to_us[0], &what, 1);
    kill(o, SIGSTOP);
    waitpid(o, NULL, WUNTRACED);
    tell(p.to_puller[1], 'g');
    get_all(p.to_us[0], &what, 1);
    kill(o, SIGCONT);
    tell(p.to_puller[1], 'g');
    child_must_end(u);
    child_killed(o);
    pipe_close(&p);
}

static void loopback(int up)
{
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    struct ifreq ifr = { .ifr_name = "lo" };

    CHECK(fd >= 0 && ioctl(fd, SIOCGIFFLAGS, &ifr) == 0);
    ifr.ifr_flags = (short)(up ? ifr.ifr_flags | IFF_UP : ifr.ifr_flags & ~IFF_UP);
    CHECK(ioctl(fd, SIOCSIFFLAGS, &ifr) == 0);
    close(fd);
}

/* The network goes away under the pulls: no call blocks, and a cut ends everything. */
static void puller_cut_off(const struct conform_backend *backend, const struct link_pipe *p)
{
    struct puller u = puller_open(backend, p);
    struct world *w = u.w;
    uint64_t start;

    puller_whole(&u);
    puller_post(&u);
    pump_for(w, 2);
    loopback(0);
    start = real_ms();
    pump_for(w, 300);
    B->t->ops->drop(B->t, u.r->conn);
    CHECK(pump(w, is_down, u.r, WAIT_MS));
    CHECK(all_pulled(w, B));
    CHECK(real_ms() - start < WAIT_MS);
    loopback(1);
    world_close(w);
}

void conform_partition(const struct conform_backend *backend)
{
    struct link_pipe p;
    pid_t o, u;

    if (!backend->module) {
        loop_dies(backend, 1);
        return;
    }
    if (strcmp(backend->provider, "shm") == 0)
        conform_skip("shared memory has no network to cut");
    if (backend->profile)
        conform_skip("the strict provider has no network to cut");
    if (unshare(CLONE_NEWNET))
        conform_skip("a network namespace of its own needs root");
    loopback(1);
    pipe_open(&p);
    o = child_start(owner, backend, &p);
    u = child_start(puller_cut_off, backend, &p);
    child_must_end(u);
    child_killed(o);
    pipe_close(&p);
}

/* puller_outlives() posts to the dead before and after on_down() */
void conform_post_to_dead(const struct conform_backend *backend)
{
    int times = long_run() ? 100 : backend->profile ? 3 : 5;

    object_choose(backend);
    if (!backend->module)
        loop_dies(backend, 0);
    for (int i = 0; backend->module && i < times; i++)
        owner_dies(backend, (unsigned)i);
}

void conform_deaths(const struct conform_backend *backend, unsigned when)
{
    object_choose(backend);
    owner_dies(backend, when);
    puller_dies(backend, 1);
}
