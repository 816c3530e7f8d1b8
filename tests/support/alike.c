/* SPDX-License-Identifier: Apache-2.0 */
#include "alike.h"

#include "store_mem.h"

#include "core/base/buf.h"
#include "core/format/epoch.h"
#include "core/format/manifest.h"
#include "loader/plan/plan.h"
#include "replication/commit/placement.h"

#include <stdlib.h>
#include <string.h>

#define SMALL 4096u /* bytes that are not worth it */

static int on, alone;

void alike_on(void)
{
    on = 1;
    hth_store_mem_share();
}

void alike_alone(int one)
{
    alone = one;
}

/* 1: this caller may be given bytes and forms that another caller made, and its own may be given to
 * others. */
static int taking(void)
{
    return on && !alone;
}

static void *alike_alloc(size_t bytes)
{
    void *p = malloc(bytes ? bytes : 1);

    if (!p)
        abort();
    return p;
}

/* ---- Bytes
 * ----------------------------------------------------------------------------------------- */

struct kept {
    struct kept *next;
    struct hth_buf *buf;
    int right; /* it has been seen to have its digest */
};

static struct kept *kept;

struct hth_buf *__real_hth_buf_new(size_t len, const unsigned char digest[HTH_DIGEST]);
struct hth_buf *__wrap_hth_buf_new(size_t len, const unsigned char digest[HTH_DIGEST]);
struct hth_buf *__real_hth_buf_of(const void *bytes, size_t len);
struct hth_buf *__wrap_hth_buf_of(const void *bytes, size_t len);
void __real_hth_buf_put(struct hth_buf *b);
void __wrap_hth_buf_put(struct hth_buf *b);

struct hth_buf *__wrap_hth_buf_new(size_t len, const unsigned char digest[HTH_DIGEST])
{
    struct kept *k = kept;

    if (!taking() || len < SMALL)
        return __real_hth_buf_new(len, digest);
    while (k && (k->buf->len != len || memcmp(k->buf->digest, digest, HTH_DIGEST) != 0))
        k = k->next;
    if (k)
        return hth_buf_get(k->buf);
    k = alike_alloc(sizeof(*k));
    *k = (struct kept){ kept, __real_hth_buf_new(len, digest), 0 };
    if (!k->buf)
        abort();
    kept = k;
    return k->buf;
}

struct hth_buf *__wrap_hth_buf_of(const void *bytes, size_t len)
{
    unsigned char digest[HTH_DIGEST];
    struct hth_buf *b;

    if (!taking() || len < SMALL)
        return __real_hth_buf_of(bytes, len);
    hth_digest(digest, bytes, len);
    b = __wrap_hth_buf_new(len, digest);
    if (b->users == 1)
        memcpy(b->at, bytes, len);
    return b;
}

void __wrap_hth_buf_put(struct hth_buf *b)
{
    struct kept **at = &kept, *k;

    if (on && b && b->users == 1 && b->len >= SMALL) {
        while (*at && (*at)->buf != b)
            at = &(*at)->next;
        if ((k = *at)) {
            *at = k->next;
            free(k);
        }
    }
    __real_hth_buf_put(b);
}

/* ---- Digests of such bytes
 * ----------------------------------------------------------------------- */

struct summing { /* a digest under way that has been given the first bytes of a buffer, and nothing else */
    struct summing *next;
    const struct hth_digesting *of;
    struct kept *k;
    size_t at;
    int known; /* it is right: nothing was computed */
};

#define SUMMINGS 4096u
static struct summing *summing[SUMMINGS];

void __real_hth_digest_begin(struct hth_digesting *d);
void __wrap_hth_digest_begin(struct hth_digesting *d);
void __real_hth_digest_add(struct hth_digesting *d, const void *bytes, size_t len);
void __wrap_hth_digest_add(struct hth_digesting *d, const void *bytes, size_t len);
void __real_hth_digest_end(struct hth_digesting *d, unsigned char out[HTH_DIGEST]);
void __wrap_hth_digest_end(struct hth_digesting *d, unsigned char out[HTH_DIGEST]);

static struct summing **summing_of(const struct hth_digesting *d)
{
    struct summing **at = &summing[((uintptr_t)d >> 6) % SUMMINGS];

    while (*at && (*at)->of != d)
        at = &(*at)->next;
    return at;
}

static void summing_end(struct summing **at)
{
    struct summing *s = *at;

    if (!s)
        return;
    *at = s->next;
    free(s);
}

void __wrap_hth_digest_begin(struct hth_digesting *d)
{
    if (on)
        summing_end(summing_of(d)); /* one that was given up */
    __real_hth_digest_begin(d);
    if (taking()) {
        struct summing **at = summing_of(d), *s = alike_alloc(sizeof(*s));

        *s = (struct summing){ .next = *at, .of = d };
        *at = s;
    }
}

static void summing_add(struct summing **at, const unsigned char *bytes, size_t len)
{
    struct summing *s = *at;
    struct kept *k = s->k;

    if (!s->at)
        for (k = kept; k && k->buf->at != bytes;)
            k = k->next;
    if (k && bytes == k->buf->at + s->at && len <= k->buf->len - s->at) {
        s->known = s->at ? s->known : k->right;
        s->k = k;
        s->at += len;
        return;
    }
    if (s->known)
        /* The digest of these bytes is known, so they were not summed up; no caller adds other
         * bytes after them. */
        abort();
    summing_end(at);
}

void __wrap_hth_digest_add(struct hth_digesting *d, const void *bytes, size_t len)
{
    struct summing **at = on ? summing_of(d) : NULL;

    if (at && *at && len)
        summing_add(at, bytes, len);
    if (!at || !*at || !(*at)->known)
        __real_hth_digest_add(d, bytes, len);
}

void __wrap_hth_digest_end(struct hth_digesting *d, unsigned char out[HTH_DIGEST])
{
    struct summing **at = on ? summing_of(d) : NULL, *s = at ? *at : NULL;

    if (s && s->known && s->at != s->k->buf->len)
        abort();
    if (s && s->known)
        memcpy(out, s->k->buf->digest, HTH_DIGEST);
    else
        __real_hth_digest_end(d, out);
    if (s && s->k && s->at == s->k->buf->len && !memcmp(out, s->k->buf->digest, HTH_DIGEST))
        s->k->right = 1;
    if (s)
        summing_end(at);
}

/* ---- What is decoded of equal bytes
 * ------------------------------------------------------------ */

struct form {
    struct form *next;
    uint32_t users;
    size_t len;
    unsigned char *bytes; /* that it was decoded of */
    const void *kept_at;  /* where the same lie that are kept above */
    struct hth_manifest manifest;
    struct hth_plan plan;
};

static struct form *manifests, *plans;

static struct form *form_find(struct form **list, const void *bytes, size_t len)
{
    const struct kept *k = kept;
    struct form *f = *list;

    while (k && k->buf->at != bytes)
        k = k->next;
    for (; f; f = f->next) {
        if (f->len != len ||
                memcmp(f->bytes + len - HTH_DIGEST, (const unsigned char *)bytes + len - HTH_DIGEST,
                        HTH_DIGEST) != 0)
            continue;
        if ((k && k->right && f->kept_at == bytes) || !memcmp(f->bytes, bytes, len))
            break;
    }
    if (f && k && k->right)
        f->kept_at = bytes;
    return f;
}

static struct form *form_new(struct form **list, const void *bytes, size_t len)
{
    struct form *f = alike_alloc(sizeof(*f));

    *f = (struct form){ .next = *list, .len = len, .bytes = alike_alloc(len) };
    memcpy(f->bytes, bytes, len);
    *list = f;
    return f;
}

/* 1: that was its last user, and the form is freed. */
static int form_put(struct form **list, struct form *f)
{
    if (--f->users)
        return 0;
    while (*list != f)
        list = &(*list)->next;
    *list = f->next;
    free(f->bytes);
    free(f);
    return 1;
}

int __real_hth_manifest_decode(
        struct hth_manifest *out, const void *bytes, size_t len, struct hearth_error *err);
int __wrap_hth_manifest_decode(
        struct hth_manifest *out, const void *bytes, size_t len, struct hearth_error *err);
void __real_hth_manifest_fini(struct hth_manifest *m);
void __wrap_hth_manifest_fini(struct hth_manifest *m);

int __wrap_hth_manifest_decode(
        struct hth_manifest *out, const void *bytes, size_t len, struct hearth_error *err)
{
    struct form *f = taking() && len >= SMALL ? form_find(&manifests, bytes, len) : NULL;
    int rc = f ? 0 : __real_hth_manifest_decode(out, bytes, len, err);

    if (rc || !taking() || len < SMALL)
        return rc;
    if (!f) {
        f = form_new(&manifests, bytes, len);
        f->manifest = *out;
    }
    f->users++;
    *out = f->manifest;
    return 0;
}

void __wrap_hth_manifest_fini(struct hth_manifest *m)
{
    struct form *f = manifests;

    while (f && (!m->object || f->manifest.object != m->object))
        f = f->next;
    if (!f || form_put(&manifests, f)) {
        __real_hth_manifest_fini(m);
        return;
    }
    m->object = NULL;
    m->objects = 0;
}

int __real_hth_plan_decode(
        struct hth_plan *out, const void *bytes, size_t len, struct hearth_error *err);
int __wrap_hth_plan_decode(
        struct hth_plan *out, const void *bytes, size_t len, struct hearth_error *err);
void __real_hth_plan_fini(struct hth_plan *p);
void __wrap_hth_plan_fini(struct hth_plan *p);

int __wrap_hth_plan_decode(
        struct hth_plan *out, const void *bytes, size_t len, struct hearth_error *err)
{
    struct form *f = taking() && len >= SMALL ? form_find(&plans, bytes, len) : NULL;
    int rc = f ? 0 : __real_hth_plan_decode(out, bytes, len, err);

    if (rc || !taking() || len < SMALL)
        return rc;
    if (!f) {
        f = form_new(&plans, bytes, len);
        f->plan = *out;
    }
    f->users++;
    *out = f->plan;
    return 0;
}

void __wrap_hth_plan_fini(struct hth_plan *p)
{
    struct form *f = plans;

    while (f && (!p->from.run || f->plan.from.run != p->from.run))
        f = f->next;
    if (!f || form_put(&plans, f))
        __real_hth_plan_fini(p);
    else
        *p = (struct hth_plan){ 0 };
}

/* ---- The members of an epoch, and where copies go in it
 * --------------------------------------- */

struct members {
    struct members *next;
    uint32_t users;
    unsigned char first[HTH_GATHER]; /* row of the table: no two gatherings have the same */
    uint32_t *by_store;              /* [nodes] */
    struct hth_epoch epoch;
};

struct placed {
    struct placed *next;
    uint32_t users, copies, min_copies;
    int degraded;
    const struct hth_member *member; /* of that epoch; NULL: it is over */
    struct hth_placement placement;
};

static struct members *members;
static struct placed *placements;

int __real_hth_epoch_make(struct hth_epoch *out, const unsigned char *table, uint32_t world,
        uint64_t store, struct hearth_error *err);
int __wrap_hth_epoch_make(struct hth_epoch *out, const unsigned char *table, uint32_t world,
        uint64_t store, struct hearth_error *err);
void __real_hth_epoch_fini(struct hth_epoch *e);
void __wrap_hth_epoch_fini(struct hth_epoch *e);

static int members_by_store(const void *a, const void *b, void *epoch)
{
    const struct hth_epoch *e = epoch;
    uint64_t x = e->member[*(const uint32_t *)a].store, y = e->member[*(const uint32_t *)b].store;

    return x < y ? -1 : x > y;
}

static void members_new(const unsigned char *table, const struct hth_epoch *e)
{
    struct members *m = alike_alloc(sizeof(*m));

    *m = (struct members){ .next = members, .epoch = *e };
    memcpy(m->first, table, sizeof(m->first));
    m->by_store = alike_alloc(e->nodes * sizeof(*m->by_store));
    for (uint32_t i = 0; i < e->nodes; i++)
        m->by_store[i] = i;
    qsort_r(m->by_store, e->nodes, sizeof(*m->by_store), members_by_store, &m->epoch);
    m->users = 1;
    members = m;
}

static int members_self(const struct members *m, uint64_t store, uint32_t *out)
{
    uint32_t lo = 0, hi = m->epoch.nodes;

    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;

        if (m->epoch.member[m->by_store[mid]].store < store)
            lo = mid + 1;
        else
            hi = mid;
    }
    *out = lo < m->epoch.nodes ? m->by_store[lo] : 0;
    return m->epoch.member[*out].store == store;
}

int __wrap_hth_epoch_make(struct hth_epoch *out, const unsigned char *table, uint32_t world,
        uint64_t store, struct hearth_error *err)
{
    struct members *m = taking() ? members : NULL;
    uint32_t self;
    int rc;

    while (m && (m->epoch.world != world || memcmp(m->first, table, sizeof(m->first)) != 0))
        m = m->next;
    if (m && members_self(m, store, &self)) {
        m->users++;
        *out = m->epoch;
        out->self = self;
        return 0;
    }
    rc = __real_hth_epoch_make(out, table, world, store, err);
    if (!rc && taking())
        members_new(table, out);
    return rc;
}

void __wrap_hth_epoch_fini(struct hth_epoch *e)
{
    struct members **at = &members, *m;

    while (*at && (!e->member || (*at)->epoch.member != e->member))
        at = &(*at)->next;
    m = *at;
    if (m && --m->users) {
        e->member = NULL;
        e->rank_node = NULL;
        return;
    }
    if (m) {
        for (struct placed *p = placements; p; p = p->next)
            if (p->member == e->member)
                p->member = NULL;
        *at = m->next;
        free(m->by_store);
        free(m);
    }
    __real_hth_epoch_fini(e);
}

int __real_hth_placement_make(struct hth_placement *out, const struct hth_epoch *epoch,
        uint32_t copies, uint32_t min_copies, int degraded, struct hearth_error *err);
int __wrap_hth_placement_make(struct hth_placement *out, const struct hth_epoch *epoch,
        uint32_t copies, uint32_t min_copies, int degraded, struct hearth_error *err);
void __real_hth_placement_fini(struct hth_placement *p);
void __wrap_hth_placement_fini(struct hth_placement *p);

int __wrap_hth_placement_make(struct hth_placement *out, const struct hth_epoch *epoch,
        uint32_t copies, uint32_t min_copies, int degraded, struct hearth_error *err)
{
    struct placed *p = taking() ? placements : NULL;
    int rc;

    while (p && (p->member != epoch->member || p->copies != copies || p->min_copies != min_copies ||
                        p->degraded != degraded))
        p = p->next;
    if (p) {
        p->users++;
        *out = p->placement;
        return 0;
    }
    rc = __real_hth_placement_make(out, epoch, copies, min_copies, degraded, err);
    if (rc || !taking())
        return rc;
    p = alike_alloc(sizeof(*p));
    *p = (struct placed){ placements, 1, copies, min_copies, degraded, epoch->member, *out };
    placements = p;
    return 0;
}

void __wrap_hth_placement_fini(struct hth_placement *p)
{
    struct placed **at = &placements, *one;

    while (*at && (!p->holder || (*at)->placement.holder != p->holder))
        at = &(*at)->next;
    one = *at;
    if (one && --one->users) {
        *p = (struct hth_placement){ 0 };
        return;
    }
    if (one) {
        *at = one->next;
        free(one);
    }
    __real_hth_placement_fini(p);
}
