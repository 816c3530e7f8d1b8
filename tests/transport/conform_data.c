/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes: sizes, offsets, what must stay untouched; who may read what; regions that go away. */
#include "conform.h"

#include "core/base/crc.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>

#define CHUNK   (4 * MIB)
#define CANARY  0xa5
#define PEERS   4  /* connections, each standing for another peer */
#define GRANTS  5  /* to each peer */
#define REGS    6  /* regions by each thread that registers */
#define ANSWERS 64 /* pulls at once */

struct mem {
    struct side *s;
    unsigned char *at;
    uint64_t len;
    struct hth_region *region;
};

static struct mem mem_open(struct side *s, uint64_t len)
{
    struct mem m = { s, mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0),
        len, NULL };

    CHECK(m.at != MAP_FAILED);
    CHECK(s->t->ops->reg(s->t, m.at, len, &m.region, NULL) == 0);
    return m;
}

/* A peer with a grant may have to answer first that it no longer reads the region. */
static void mem_dereg(struct mem *m)
{
    uint64_t end = real_ms() + WAIT_MS;
    int rc;

    while ((rc = m->s->t->ops->dereg(m->s->t, m->region)) == HEARTH_EBUSY && real_ms() < end)
        pump_for(m->s->w, 1);
    CHECK(rc == 0);
    m->region = NULL;
}

static void mem_close(struct mem *m)
{
    if (m->region)
        mem_dereg(m);
    munmap(m->at, m->len);
}

struct pair {
    struct world *w;
    struct conn_record *a, *b;
};

static struct pair pair_open(const struct conform_backend *backend)
{
    struct pair p = { world_open(backend), NULL, NULL };

    side_open(p.w, 0);
    side_open(p.w, 1);
    p.b = dial_side(&p.w->side[1], &p.w->side[0], &p.a);
    return p;
}

struct desc {
    unsigned char bytes[HTH_DESC_MAX];
    uint32_t len;
};

struct told {
    struct side *side;
    uint64_t before;
};

static uint64_t messages_of(const struct side *s)
{
    uint64_t n = 0;

    for (int i = 0; i < s->conns; i++)
        n += s->conn[i].messages;
    return n;
}

static int is_told(struct world *w, void *arg)
{
    const struct told *told = arg;

    (void)w;
    return messages_of(told->side) > told->before;
}

/* Granted, and the descriptor is at the peer, in a message: that is how it gets there. */
static struct desc grant(
        struct side *s, const struct mem *m, uint64_t off, uint64_t len, hth_conn conn)
{
    struct side *peer = s == &s->w->side[0] ? &s->w->side[1] : &s->w->side[0];
    struct told told = { peer, messages_of(peer) };
    struct desc d = { .len = 0 };

    CHECK(s->t->ops->grant(s->t, m->region, off, len, conn, d.bytes, &d.len, NULL) == 0);
    CHECK(d.len && d.len <= HTH_DESC_MAX);
    CHECK(s->t->ops->send(s->t, conn, d.bytes, d.len) == 0);
    CHECK(pump(s->w, is_told, &told, WAIT_MS));
    return d;
}

/* The transport's checksum, where it has one, is of what lies there. */
static int crc_fits(const struct pull_record *r, const unsigned char *at, uint64_t len)
{
    return !r->has_crc || r->crc == hth_crc32c(at, len);
}

/* One pull of `len` bytes; everything around it must stay. */
static void one(struct pair *p, struct mem *src, struct mem *dst, uint64_t goff, uint64_t roff,
        uint64_t doff, uint64_t len)
{
    struct world *w = p->w;
    struct desc d = grant(A, src, goff, roff + len ? roff + len : 1, p->a->conn);
    uint64_t before = doff < 4096 ? doff : 4096, after = dst->len - doff - len;
    int cookie;

    after = after < 4096 ? after : 4096;
    memset(dst->at + doff - before, CANARY, before + len + after);
    cookie = pull_post(B, p->b->conn, d.bytes, d.len, roff, dst->region, doff, len);
    CHECK(B->pull[cookie].posted);
    CHECK(pump(w, all_pulled, B, WAIT_MS));
    CHECK(B->pull[cookie].code == 0);
    CHECK(is_filled(dst->at + doff, len, 1, goff + roff));
    CHECK(crc_fits(&B->pull[cookie], dst->at + doff, len));
    for (uint64_t i = 0; i < before; i++)
        CHECK(dst->at[doff - 1 - i] == CANARY);
    for (uint64_t i = 0; i < after; i++)
        CHECK(dst->at[doff + len + i] == CANARY);
    A->t->ops->revoke(A->t, d.bytes, d.len);
}

/* Many chunks at once, as a whole object is brought. */
static void window(struct pair *p, struct mem *src, struct mem *dst, uint64_t len)
{
    struct world *w = p->w;
    struct desc d = grant(A, src, 0, len, p->a->conn);
    int first = B->pulls;

    memset(dst->at, 0, len);
    for (uint64_t off = 0; off < len; off += MIB)
        pull_post(B, p->b->conn, d.bytes, d.len, off, dst->region, off,
                len - off < MIB ? len - off : MIB);
    CHECK(pump(w, all_pulled, B, WAIT_MS));
    for (int i = first; i < B->pulls; i++) {
        uint64_t off = (uint64_t)(i - first) * MIB;

        CHECK(B->pull[i].posted && B->pull[i].code == 0);
        CHECK(crc_fits(&B->pull[i], dst->at + off, len - off < MIB ? len - off : MIB));
    }
    CHECK(is_filled(dst->at, len, 1, 0));
}

/* The source cannot be written, not even by us; and it is longer than 32 bits can say. */
static void read_only_and_far(struct pair *p, struct mem *dst)
{
    struct world *w = p->w;
    uint64_t far = (UINT64_C(4) << 30) + 12345, len = far + 2 * MIB;
    int fd = memfd_create("source", MFD_CLOEXEC), cookie;
    unsigned char *bytes = malloc(MIB);
    struct mem src = { A, NULL, len, NULL };
    struct desc d;

    CHECK(fd >= 0 && bytes && ftruncate(fd, (off_t)len) == 0);
    fill(bytes, MIB, 7);
    CHECK(pwrite(fd, bytes, MIB, (off_t)far) == (ssize_t)MIB);
    src.at = mmap(NULL, len, PROT_READ, MAP_SHARED, fd, 0);
    CHECK(src.at != MAP_FAILED);
    CHECK(A->t->ops->reg(A->t, src.at, len, &src.region, NULL) == 0);
    d = grant(A, &src, 0, len, p->a->conn);
    cookie = pull_post(B, p->b->conn, d.bytes, d.len, far, dst->region, 0, MIB);
    CHECK(pump(w, all_pulled, B, WAIT_MS));
    CHECK(B->pull[cookie].code == 0 && is_filled(dst->at, MIB, 7, 0));
    mem_close(&src);
    close(fd);
    free(bytes);
}

void conform_data(const struct conform_backend *backend)
{
    static const uint64_t sizes[] = { 0, 1, 7, 4095, 4096, 4097, MIB - 1, MIB, CHUNK - 1, CHUNK,
        CHUNK + 1 };
    static const uint64_t offs[] = { 0, 1, 4095, 65537 };
    struct pair p = pair_open(backend);
    struct world *w = p.w;
    struct mem src = mem_open(A, 33 * MIB), dst = mem_open(B, 33 * MIB);

    fill(src.at, src.len, 1);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++)
        one(&p, &src, &dst, 0, 0, 0, sizes[i]);
    for (size_t i = 0; i < 4; i++)
        for (size_t j = 0; j < 4; j++)
            one(&p, &src, &dst, offs[i], offs[3 - j], offs[j], 100003);
    one(&p, &src, &dst, src.len - 5, 2, dst.len - 3, 3); /* to the last byte */
    window(&p, &src, &dst, 32 * MIB + 17);
    read_only_and_far(&p, &dst);
    mem_close(&src);
    mem_close(&dst);
    world_close(w);
}

/* This pull must fail, at once or later, and nothing may be written. */
static void denied(
        struct pair *p, struct mem *dst, const struct desc *d, uint64_t roff, uint64_t len)
{
    struct world *w = p->w;
    int cookie;

    if (p->b->downs || p->a->downs) /* the one before cost the connection: allowed */
        p->b = dial_side(B, A, &p->a);
    memset(dst->at, CANARY, dst->len);
    cookie = pull_post(B, p->b->conn, d->bytes, d->len, roff, dst->region, 0, len);
    CHECK(pump(w, all_pulled, B, WAIT_MS));
    CHECK(B->pull[cookie].code < 0);
    pump_for(w, 50);
    for (uint64_t i = 0; i < dst->len; i++)
        CHECK(dst->at[i] == CANARY);
}

static struct desc fresh(struct pair *p, struct mem *src, uint64_t off, uint64_t len)
{
    struct world *w = p->w;

    if (p->b->downs || p->a->downs)
        p->b = dial_side(B, A, &p->a);
    return grant(A, src, off, len, p->a->conn);
}

static int has_cap(struct side *s, uint32_t cap)
{
    return (s->t->ops->caps(s->t) & cap) != 0;
}

/* One pull under each grant of each peer, into its own place. */
static void pull_all(struct pair *peer, struct desc d[PEERS][GRANTS], const struct mem *dst,
        uint64_t len, int out_cookie[PEERS][GRANTS])
{
    struct world *w = peer->w;

    for (int i = 0; i < PEERS; i++)
        for (int j = 0; j < GRANTS; j++)
            out_cookie[i][j] = pull_post(B, peer[i].b->conn, d[i][j].bytes, d[i][j].len, 0,
                    dst->region, (uint64_t)(i * GRANTS + j) * len, len);
}

/* Pulls under a revoked grant may end either way; all others are whole, on connections that stand.
 * Where the owner cannot take one grant back, the revoked one's connection may be what ends. */
static void others_are_whole(struct pair *peer, int cookie[PEERS][GRANTS], const struct mem *dst,
        uint64_t len, int but_peer, int but_grant)
{
    struct world *w = peer->w;

    CHECK(pump(w, all_pulled, B, WAIT_MS));
    for (int i = 0; i < PEERS; i++)
        for (int j = 0; j < GRANTS; j++) {
            int code = B->pull[cookie[i][j]].code;
            int may_end = i == but_peer && !has_cap(A, HTH_CAP_REVOKES);

            if (code && i == but_peer && (j == but_grant || may_end))
                continue;
            CHECK(code == 0);
            CHECK(is_filled(
                    dst->at + (uint64_t)(i * GRANTS + j) * len, len, 1, (uint64_t)j * 4096));
            CHECK(may_end || (!peer[i].a->downs && !peer[i].b->downs));
        }
}

/* Many grants of one region, to several peers; one is taken back while pulls run under all. */
static void grants_of_one(const struct conform_backend *backend)
{
    const uint64_t len = MIB;
    struct pair peer[PEERS] = { pair_open(backend) };
    struct world *w = peer[0].w;
    struct mem src = mem_open(A, 2 * MIB), dst = mem_open(B, PEERS * GRANTS * len);
    struct desc d[PEERS][GRANTS];
    int cookie[PEERS][GRANTS];

    fill(src.at, src.len, 1);
    for (int i = 0; i < PEERS; i++) {
        peer[i].w = w;
        if (i)
            peer[i].b = dial_side(B, A, &peer[i].a);
        for (int j = 0; j < GRANTS; j++)
            d[i][j] = grant(A, &src, (uint64_t)j * 4096, len, peer[i].a->conn);
    }
    pull_all(peer, d, &dst, len, cookie);
    others_are_whole(peer, cookie, &dst, len, -1, -1);
    memset(dst.at, CANARY, dst.len);
    pull_all(peer, d, &dst, len, cookie);
    A->t->ops->revoke(A->t, d[1][2].bytes, d[1][2].len);
    others_are_whole(peer, cookie, &dst, len, 1, 2);
    mem_close(&src);
    mem_close(&dst);
    world_close(w);
}

void conform_access(const struct conform_backend *backend)
{
    struct pair p = pair_open(backend);
    struct world *w = p.w;
    struct mem src = mem_open(A, MIB), dst = mem_open(B, MIB);
    struct conn_record *a2, *b2;
    struct desc d;

    fill(src.at, src.len, 1);
    CHECK(A->t->ops->grant(A->t, src.region, MIB - 1, 2, p.a->conn, d.bytes, &d.len, NULL) < 0);
    CHECK(A->t->ops->grant(A->t, src.region, UINT64_MAX, 2, p.a->conn, d.bytes, &d.len, NULL) < 0);
    if (has_cap(A, HTH_CAP_BOUNDS)) { /* past the grant, in the region */
        d = fresh(&p, &src, 4096, 8192);
        denied(&p, &dst, &d, 8192, 1);
        d = fresh(&p, &src, 4096, 8192);
        denied(&p, &dst, &d, 8000, 4096);
    }
    d = fresh(&p, &src, 4096, 8192);
    denied(&p, &dst, &d, UINT64_MAX - 4095, 8192); /* wraps to the grant's start */
    d = fresh(&p, &src, 0, MIB);
    denied(&p, &dst, &d, MIB - 1, 4096);
    if (has_cap(A, HTH_CAP_REVOKES)) {
        d = fresh(&p, &src, 0, MIB);
        A->t->ops->revoke(A->t, d.bytes, d.len);
        denied(&p, &dst, &d, 0, 4096);
    }
    d = fresh(&p, &src, 0, MIB);
    memset(d.bytes, 0x5a, sizeof(d.bytes));
    denied(&p, &dst, &d, 0, 4096);
    d.len = 0;
    denied(&p, &dst, &d, 0, 4096);
    d = fresh(&p, &src, 0, MIB);
    CHECK(B->t->ops->pull(B->t, p.b->conn, d.bytes, d.len, 0, dst.region, MIB - 1, 2, 0) ==
            HEARTH_EINVAL); /* past our own region */
    CHECK(B->t->ops->pull(B->t, p.b->conn, d.bytes, d.len, 0, dst.region, UINT64_MAX, 2, 0) ==
            HEARTH_EINVAL);
    if (has_cap(A, HTH_CAP_GRANT_PER_CONN)) {
        d = fresh(&p, &src, 0, MIB);
        b2 = dial_side(B, A, &a2);
        (void)a2;
        p.b = b2;
        denied(&p, &dst, &d, 0, 4096);
    }
    if (p.b->downs || p.a->downs)
        p.b = dial_side(B, A, &p.a);
    p.b = dial_side(B, A, &p.a);
    one(&p, &src, &dst, 0, 0, 0, 4096); /* the owner is well */
    mem_close(&src);
    mem_close(&dst);
    world_close(w);
    grants_of_one(backend);
}

/* A worker of one side; the transport's own thread is elsewhere. */
struct beside {
    pthread_t thread;
    struct side *s;
    struct mem mem[REGS];
    atomic_int done;
};

static void *register_beside(void *arg)
{
    struct beside *x = arg;

    for (int i = 0; i < REGS; i++)
        x->mem[i] = mem_open(x->s, (uint64_t)(i + 1) * MIB + 4096);
    atomic_store(&x->done, 1);
    return NULL;
}

static int pulled_and_registered(struct world *w, void *besides)
{
    struct beside *x = besides;

    return all_pulled(w, B) && atomic_load(&x[0].done) && atomic_load(&x[1].done);
}

/* The other way round than one(): what was registered is good for both. */
static void one_back(struct pair *p, const struct mem *src, const struct mem *dst, uint64_t len)
{
    struct world *w = p->w;
    struct desc d = grant(B, src, 0, len, p->b->conn);
    int cookie = pull_post(A, p->a->conn, d.bytes, d.len, 0, dst->region, 0, len);

    CHECK(pump(w, all_pulled, A, WAIT_MS));
    CHECK(A->pull[cookie].code == 0 && is_filled(dst->at, len, 3, 0));
}

/* Memory is registered by other threads, several at once, while pulls run. */
static void reg_beside(const struct conform_backend *backend)
{
    static struct beside x[2];
    struct pair p = pair_open(backend);
    struct world *w = p.w;
    struct mem src = mem_open(A, 16 * MIB), dst = mem_open(B, 16 * MIB);
    struct desc d = grant(A, &src, 0, src.len, p.a->conn);

    fill(src.at, src.len, 1);
    for (int i = 0; i < 2; i++) {
        x[i].s = &w->side[i];
        CHECK(pthread_create(&x[i].thread, NULL, register_beside, &x[i]) == 0);
    }
    for (uint64_t off = 0; off < src.len; off += MIB)
        pull_post(B, p.b->conn, d.bytes, d.len, off, dst.region, off, MIB);
    while (!pump(w, pulled_and_registered, x, 100))
        CHECK(!p.b->downs);
    for (int i = 0; i < 2; i++)
        pthread_join(x[i].thread, NULL);
    CHECK(is_filled(dst.at, dst.len, 1, 0));
    for (int i = 0; i < REGS; i++) {
        fill(x[0].mem[i].at, x[0].mem[i].len, 1);
        one(&p, &x[0].mem[i], &x[1].mem[i], 0, 0, 0, x[0].mem[i].len - 4096);
        fill(x[1].mem[i].at, x[1].mem[i].len, 3);
        one_back(&p, &x[1].mem[i], &x[0].mem[i], x[0].mem[i].len);
        mem_close(&x[0].mem[i]);
        mem_close(&x[1].mem[i]);
    }
    mem_close(&src);
    mem_close(&dst);
    world_close(w);
}

/* The owner takes its memory away under pulls. */
static void dereg_amid(const struct conform_backend *backend)
{
    struct pair p = pair_open(backend);
    struct world *w = p.w;
    struct mem src = mem_open(A, 32 * MIB), dst = mem_open(B, 32 * MIB), other;
    struct desc d = grant(A, &src, 0, src.len, p.a->conn);
    int busy = 0, first = B->pulls;

    fill(src.at, src.len, 1);
    for (uint64_t off = 0; off < src.len; off += 8 * MIB)
        pull_post(B, p.b->conn, d.bytes, d.len, off, dst.region, off, 8 * MIB);
    if (!all_pulled(w, B))
        busy = B->t->ops->dereg(B->t, dst.region) == HEARTH_EBUSY; /* they go into it */
    CHECK(busy || all_pulled(w, B));
    while (A->t->ops->dereg(A->t, src.region) == HEARTH_EBUSY) { /* being read: or let go at once */
        pump_for(w, 1);
        CHECK(B->pulls < PULLS);
    }
    src.region = NULL;
    memset(src.at, CANARY, src.len);
    if (!pump(w, all_pulled, B, 2000)) /* no answer is allowed: then the session cuts */
        B->t->ops->drop(B->t, p.b->conn);
    CHECK(pump(w, all_pulled, B, WAIT_MS));
    for (int i = first; i < B->pulls; i++) /* whole, or failed: never "done" with other bytes */
        CHECK(B->pull[i].code || is_filled(dst.at + (uint64_t)(i - first) * 8 * MIB, 8 * MIB, 1,
                                         (uint64_t)(i - first) * 8 * MIB));
    other = mem_open(A, MIB);
    fill(other.at, other.len, 1);
    p.b = dial_side(B, A, &p.a);
    one(&p, &other, &dst, 0, 0, 0, MIB);
    mem_close(&src);
    mem_close(&dst);
    mem_close(&other);
    world_close(w);
}

/* Each pull is one answer. The owner's library has all answers, and the peer receives none of them
 * yet: the library still has to send them from the region. */
static void dereg_under_answers(const struct conform_backend *backend)
{
    struct pair p = pair_open(backend);
    struct world *w = p.w;
    struct mem src = mem_open(A, 16 * MIB), dst = mem_open(B, 16 * MIB);
    uint64_t len = src.len / ANSWERS;
    struct desc d;
    int first;

    fill(src.at, src.len, 1);
    one(&p, &src, &dst, 0, 0, 0, len); /* both sides know who reads */
    d = grant(A, &src, 0, src.len, p.a->conn);
    first = B->pulls;
    for (uint64_t off = 0; off < src.len; off += len)
        pull_post(B, p.b->conn, d.bytes, d.len, off, dst.region, off, len);
    for (int i = 0; i < ANSWERS; i++)
        A->t->ops->progress(A->t);
    mem_dereg(&src);
    memset(src.at, CANARY, src.len);
    if (!pump(w, all_pulled, B, 2000)) /* no answer is allowed: then the session cuts */
        B->t->ops->drop(B->t, p.b->conn);
    CHECK(pump(w, all_pulled, B, WAIT_MS));
    for (int i = first; i < B->pulls; i++) {
        uint64_t off = (uint64_t)(i - first) * len;

        CHECK(B->pull[i].code || is_filled(dst.at + off, len, 1, off));
    }
    mem_close(&src);
    mem_close(&dst);
    world_close(w);
}

/* A region's end ends its own grants only: another region's grant on that connection stays valid.
 * After a dereg() that returned HEARTH_EBUSY, the region can be granted again, and old grants are
 * over. */
static void dereg_ends_its_grants(const struct conform_backend *backend)
{
    struct pair p = pair_open(backend);
    struct world *w = p.w;
    struct mem src = mem_open(A, MIB), other = mem_open(A, MIB), dst = mem_open(B, MIB);
    struct desc d, stale = grant(A, &src, 0, src.len, p.a->conn);
    int cookie;

    fill(src.at, src.len, 1);
    fill(other.at, other.len, 1);
    d = grant(A, &other, 0, other.len, p.a->conn);
    if (A->t->ops->dereg(A->t, src.region) == HEARTH_EBUSY) {
        struct desc again = grant(A, &src, 0, src.len, p.a->conn);

        cookie = pull_post(B, p.b->conn, again.bytes, again.len, 0, dst.region, 0, MIB);
        CHECK(pump(w, all_pulled, B, WAIT_MS) && B->pull[cookie].code == 0);
        CHECK(is_filled(dst.at, MIB, 1, 0));
        cookie = pull_post(B, p.b->conn, stale.bytes, stale.len, 0, dst.region, 0, MIB);
        CHECK(pump(w, all_pulled, B, WAIT_MS) && B->pull[cookie].code == HEARTH_EDENIED);
        mem_dereg(&src);
    }
    src.region = NULL;
    memset(dst.at, 0, dst.len);
    cookie = pull_post(B, p.b->conn, d.bytes, d.len, 0, dst.region, 0, MIB);
    CHECK(pump(w, all_pulled, B, WAIT_MS) && B->pull[cookie].code == 0);
    CHECK(is_filled(dst.at, MIB, 1, 0));
    CHECK(!p.a->downs && !p.b->downs);
    mem_close(&src);
    mem_close(&other);
    mem_close(&dst);
    world_close(w);
}

void conform_dereg(const struct conform_backend *backend)
{
    conform_needs_guard(backend);
    reg_beside(backend);
    dereg_under_answers(backend);
    dereg_ends_its_grants(backend);
    if (backend->keyless)
        conform_skip("this provider checks no keys: memory is read after its deregistration, too");
    dereg_amid(backend);
}

static void reconnect(struct pair *p, int times)
{
    struct world *w = p->w;

    for (int i = 0; i < times; i++) {
        struct conn_record *a, *b = dial_side(B, A, &a);

        B->t->ops->drop(B->t, b->conn);
        CHECK(pump(w, is_down, b, WAIT_MS) && b->code == HEARTH_ECANCELED);
        CHECK(pump(w, is_down, a, WAIT_MS));
    }
}

static int open_files(void)
{
    int n = 0;

    for (int fd = 0; fd < 1024; fd++)
        n += fcntl(fd, F_GETFD) != -1;
    return n;
}

/* The first answer is here in part: what is read in one turn is less than a pull. */
static int has_begun(struct world *w, void *mem)
{
    const struct mem *dst = mem;

    (void)w;
    return is_filled(dst->at, 8, 1, 0);
}

/* Cut where it hurts most, in the middle of an answer. Neither the connection beside it nor the
 * one that comes next may care. */
static void cut_amid(struct pair *p, struct mem *src, struct mem *dst)
{
    struct world *w = p->w;
    struct conn_record *a, *b = dial_side(B, A, &a);
    struct pair next = { .w = w };
    struct desc d = grant(A, src, 0, src->len, a->conn);
    int first = B->pulls;

    memset(dst->at, CANARY, dst->len);
    for (uint64_t off = 0; off < src->len; off += 4 * MIB)
        pull_post(B, b->conn, d.bytes, d.len, off, dst->region, off, 4 * MIB);
    CHECK(pump(w, has_begun, dst, WAIT_MS));
    B->t->ops->drop(B->t, b->conn);
    CHECK(pump(w, is_down, b, WAIT_MS) && b->code == HEARTH_ECANCELED);
    CHECK(pump(w, is_down, a, WAIT_MS));
    CHECK(all_pulled(w, B));
    for (int i = first; i < B->pulls; i++) {
        uint64_t off = (uint64_t)(i - first) * 4 * MIB;

        CHECK(B->pull[i].code == HEARTH_ECANCELED ||
                (B->pull[i].code == 0 && is_filled(dst->at + off, 4 * MIB, 1, off)));
    }
    next.b = dial_side(B, A, &next.a);
    window(p, src, dst, src->len);
    window(&next, src, dst, src->len);
    B->t->ops->drop(B->t, next.b->conn);
    CHECK(pump(w, is_down, next.b, WAIT_MS) && pump(w, is_down, next.a, WAIT_MS));
}

void conform_isolation(const struct conform_backend *backend)
{
    struct pair p = pair_open(backend);
    struct world *w = p.w;
    struct mem src = mem_open(A, 8 * MIB), dst = mem_open(B, 64 * MIB);
    struct conn_record *a[8] = { p.a }, *b[8] = { p.b };
    int files;

    fill(src.at, src.len, 1);
    for (int i = 1; i < 8; i++)
        b[i] = dial_side(B, A, &a[i]);
    for (int i = 0; i < 8; i++) {
        struct desc d = grant(A, &src, 0, src.len, a[i]->conn);

        pull_post(B, b[i]->conn, d.bytes, d.len, 0, dst.region, (uint64_t)i * 8 * MIB, 8 * MIB);
    }
    B->t->ops->drop(B->t, b[3]->conn);
    CHECK(pump(w, all_pulled, B, WAIT_MS));
    CHECK(pump(w, is_down, b[3], WAIT_MS) && pump(w, is_down, a[3], WAIT_MS));
    for (int i = 0; i < 8; i++)
        CHECK(i == 3 || (B->pull[i].code == 0 && !b[i]->downs && !a[i]->downs &&
                                is_filled(dst.at + (uint64_t)i * 8 * MIB, 8 * MIB, 1, 0)));
    CHECK(B->pull[3].code == HEARTH_ECANCELED || B->pull[3].code == 0);
    for (int i = 0; i < (long_run() ? 100 : 10); i++)
        cut_amid(&p, &src, &dst);
    reconnect(&p, 5);
    files = open_files();
    reconnect(&p, long_run() ? 400 : 100);
    pump_for(w, 200);
    CHECK(open_files() <= files + 8);
    mem_close(&src);
    mem_close(&dst);
    world_close(w);
}

void conform_pulls(const struct conform_backend *backend)
{
    static const uint64_t sizes[] = { 0, 1, 4097, MIB - 1 };
    struct pair p = pair_open(backend);
    struct world *w = p.w;
    struct mem src = mem_open(A, 8 * MIB), dst = mem_open(B, 8 * MIB);

    fill(src.at, src.len, 1);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++)
        one(&p, &src, &dst, i * 4095, 1, i, sizes[i]);
    for (int i = 0; i < 2; i++)
        cut_amid(&p, &src, &dst);
    reconnect(&p, 5);
    mem_close(&src);
    mem_close(&dst);
    world_close(w);
}

/* Pulls in flight: one of the two leaves. */
static void leave_amid(const struct conform_backend *backend, int owner)
{
    struct pair p = pair_open(backend);
    struct world *w = p.w;
    struct mem src = mem_open(A, 32 * MIB), dst = mem_open(B, 32 * MIB);
    struct desc d = grant(A, &src, 0, src.len, p.a->conn);

    for (uint64_t off = 0; off < src.len; off += 8 * MIB)
        pull_post(B, p.b->conn, d.bytes, d.len, off, dst.region, off, 8 * MIB);
    pump_for(w, 1);
    side_close(owner ? A : B);
    CHECK(pump(w, is_down, owner ? p.b : p.a, WAIT_MS));
    CHECK(all_pulled(w, B));
    world_close(w);
    munmap(src.at, src.len);
    munmap(dst.at, dst.len);
}

/* A dial that has not been waited for yet; its record is B's first. */
static struct world *dial_open(const struct conform_backend *backend, enum hook a, enum hook b)
{
    struct world *w = world_open(backend);
    unsigned char addr[HTH_ADDR_MAX];
    uint32_t len;

    side_open(w, 0);
    side_open(w, 1);
    A->drop_in = a;
    B->drop_in = b;
    CHECK(A->t->ops->address(A->t, addr, &len, NULL) == 0);
    CHECK(B->t->ops->connect(B->t, addr, len, &B->conn[0].conn, NULL) == 0);
    B->conns = 1;
    return w;
}

static int both_up(struct world *w, void *arg)
{
    (void)arg;
    return A->conns && B->conn[0].up;
}

static void drop_inside(const struct conform_backend *backend, enum hook where)
{
    enum hook far = where == HOOK_ACCEPT || where == HOOK_MESSAGE ? where : HOOK_NONE;
    struct world *w = dial_open(backend, far, where);
    struct mem src = mem_open(A, MIB), dst = mem_open(B, MIB);
    hth_conn conn = B->conn[0].conn;
    struct desc d;

    if (where >= HOOK_MESSAGE) {
        CHECK(pump(w, both_up, NULL, WAIT_MS));
        d = grant(A, &src, 0, MIB, A->conn[0].conn);
        CHECK(A->t->ops->send(A->t, A->conn[0].conn, "x", 1) == 0);
        pull_post(B, conn, d.bytes, d.len, 0, dst.region, 0, MIB);
        pull_post(B, conn, d.bytes, d.len, 0, dst.region, 0, MIB);
    }
    if (where == HOOK_DOWN)
        A->t->ops->drop(A->t, A->conn[0].conn);
    CHECK(pump(w, is_down, &B->conn[0], WAIT_MS));
    CHECK(all_pulled(w, B));
    CHECK(B->t->ops->send(B->t, conn, "x", 1) == HEARTH_EPEER); /* a stale handle */
    B->t->ops->drop(B->t, conn);
    pump_for(w, 20);
    mem_close(&src);
    mem_close(&dst);
    world_close(w);
}

/* Close and drop at every bad moment; the judging is in world_close() and in the callbacks. */
void conform_close(const struct conform_backend *backend)
{
    struct world *w;
    int files;

    conform_needs_guard(backend);
    leave_amid(backend, 0);
    files = open_files(); /* what the library keeps is among them */
    leave_amid(backend, 1);
    for (int where = HOOK_ACCEPT; where <= HOOK_DOWN; where++)
        drop_inside(backend, (enum hook)where);
    w = dial_open(backend, HOOK_NONE, HOOK_NONE); /* close while connecting */
    side_close(B);
    pump_for(w, 20);
    world_close(w);
    CHECK(open_files() <= files + 4);
}
