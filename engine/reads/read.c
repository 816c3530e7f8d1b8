/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads of ranks: manifests, objects of this node as leased slots, ranges of others' as bytes.
 * A copy is lent only when its payload was looked at in this epoch. Before the vote that was done
 * for what this node's own ranks had saved; the rest is looked at when it is first asked for:
 *
 *     MAP, RANGE ─► verified? ─► the slot, its bytes
 *         ▲             │ no
 *         │             ▼
 *         └── right ── look ── wrong ─► put aside, to be brought back; the rank reads a peer's
 *
 * A foreign object has no checksums for a range, so all of it is brought here first; where the slot
 * for it is still being made, as soon as it is there.
 */
#include "read.h"

#include "bad_copy.h"
#include "engine/state/answer.h"
#include "engine/state/client.h"
#include "engine/state/node_state.h"
#include "engine/state/reply.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct lease { /* a sealed object in a reader's hands */
    struct lease *next;
    uint64_t id;
    uint32_t client;
    struct hth_slot *slot;
};

#define READ_AGAIN_MS 5u

struct look { /* a request that waits until its object is verified or fetched */
    struct look *next;
    uint32_t client;
    struct hth_local_map ask;
    uint64_t again_ms; /* no slot was there for the fetch: tried again then; 0: under way */
    uint64_t until_ms; /* and not any more then */
};

static void read_manifest_let_go(struct hth_node *n, void *buf)
{
    (void)n;
    hth_buf_put(buf);
}

void read_manifest(struct hth_node *n, struct client *c, const struct hth_local_map *m)
{
    struct hth_held_save *s = hth_holdings_find(&n->ctx, hth_local_save_to(m->save));

    if (s && s->has_manifest)
        answer_bytes_to(n, c->id, m->head.request,
                &(struct answer_bytes){ .at = s->manifest_bytes,
                        .len = s->manifest_len,
                        .let_go = read_manifest_let_go,
                        .what = hth_buf_get(s->manifest_buf) });
    else
        reply_refusal(n, c->id, m->head.request, HEARTH_ENOENT,
                "this save's manifest is not here: it went when a newer save was PROTECTED");
}

/* ---- Looking --------------------------------------------------------------------------------- */

static struct hth_held_save *read_save(struct hth_node *n, const struct hth_local_map *m)
{
    struct hth_held_save *s = hth_holdings_find(&n->ctx, hth_local_save_to(m->save));

    return s && !s->removed ? s : NULL;
}

static struct hth_held *read_held(struct hth_held_save *s, const struct hth_local_map *m)
{
    struct hth_held *h = s ? hth_held_find(s, m->object) : NULL;

    return h && h->state == HTH_HELD_SEALED && h->slot ? h : NULL;
}

/* Raw objects are files, and the rank has their digest. */
static int read_is_unsure(const struct hth_held *h)
{
    return h && !h->verified && h->object.kind != HTH_OBJECT_RAW;
}

static int look_is_about(const struct look *l, const struct hth_held_save *s, uint64_t object)
{
    return l->ask.object == object && hth_save_cmp(hth_local_save_to(l->ask.save), s->id) == 0;
}

/* The requests that waited for this object. */
static struct look *look_take_all(
        struct hth_node *n, const struct hth_held_save *s, uint64_t object)
{
    struct look **at = &n->looks, *taken = NULL, **end = &taken;

    while (*at) {
        struct look *l = *at;

        if (!look_is_about(l, s, object)) {
            at = &l->next;
            continue;
        }
        *at = l->next;
        l->next = NULL;
        *end = l;
        end = &l->next;
    }
    return taken;
}

static void look_on_done(void *self, struct hth_held_save *save, struct hth_held *held, int code,
        const struct hearth_error *err)
{
    struct hth_node *n = self;
    struct look *l = look_take_all(n, save, held->object.id);

    if (code == HEARTH_ECORRUPT && !held->dropped)
        bad_copy_set_aside(n, save, held, err);
    while (l) {
        struct look *next = l->next;
        struct client *c = client_find(n, l->client);

        if (c && code && code != HEARTH_ECORRUPT && code != HEARTH_ECANCELED)
            reply_error(n, c->id, l->ask.head.request, err);
        else if (c && l->ask.head.type == HTH_LOCAL_RANGE)
            read_range(n, c, &l->ask);
        else if (c)
            read_map(n, c, &l->ask);
        free(l);
        l = next;
    }
}

static void look_start(struct hth_node *n, struct client *c, const struct hth_local_map *m,
        struct hth_held_save *s, struct hth_held *h)
{
    struct look *l = malloc(sizeof(*l));
    struct hearth_error err;
    int rc = HEARTH_OK, runs = 0;

    for (const struct look *at = n->looks; at && !runs; at = at->next)
        runs = look_is_about(at, s, m->object);
    if (!l)
        rc = hth_fail(&err, HEARTH_ENOMEM, 0, "no memory to look at an object");
    else if (!runs)
        rc = hth_verify_start(&n->ctx, s, h, look_on_done, n, &err);
    if (rc) {
        free(l);
        reply_error(n, c->id, m->head.request, &err);
        return;
    }
    *l = (struct look){ .next = n->looks, .client = c->id, .ask = *m };
    n->looks = l;
}

/* ---- Slots of this node ---------------------------------------------------------------------- */

/* A sealed object never changes: the descriptor that goes with the lease cannot write. A foreign
 * file may; the rank asks for it once more when it has read of it. */
static int lease_begin(struct hth_node *n, const struct client *c, struct hth_held *h,
        struct lease **out, int *out_fd, struct hearth_error *err)
{
    struct hth_store *store = n->env.store;
    struct lease *lease;

    if (h && hth_held_same(&n->ctx, h, err))
        return HEARTH_ELOST;
    lease = h ? calloc(1, sizeof(*lease)) : NULL;
    if (!lease)
        return hth_fail(err, HEARTH_ENOENT, 0, "this node does not hold that object");
    if (store->ops->reader(store, h->slot, out_fd, err)) {
        free(lease);
        return HEARTH_EIO;
    }
    if (!hth_breaks(&n->ctx, HTH_BREAK_READER))
        store->ops->lease(store, h->slot);
    *lease = (struct lease){ n->leases, n->next_id++, c->id, h->slot };
    n->leases = *out = lease;
    return HEARTH_OK;
}

void read_map(struct hth_node *n, struct client *c, const struct hth_local_map *m)
{
    struct hth_held_save *s = read_save(n, m);
    struct hth_held *h = read_held(s, m);
    struct hth_local_mapped answer = { .head = { sizeof(answer), HTH_LOCAL_MAPPED, m->head.request,
                                               0 } };
    struct hearth_error err;
    struct lease *lease = NULL;
    int fd = -1;

    if (read_is_unsure(h)) {
        look_start(n, c, m, s, h);
        return;
    }
    if (lease_begin(n, c, h, &lease, &fd, &err)) {
        reply_error(n, c->id, m->head.request, &err);
        return;
    }
    answer.lease = lease->id;
    answer.slot = h->slot->id;
    answer.generation = h->slot->generation;
    answer.capacity = h->slot->capacity;
    answer.data_len = h->object.data_len;
    answer.table_off = HTH_ALIGN(HTH_BLOCK + h->object.data_len);
    answer.table_len = h->object.table_len;
    reply_packet_fd(n, c->id, &answer, sizeof(answer), fd);
    if (fd >= 0)
        close(fd);
}

static void lease_end(struct hth_node *n, struct lease **at)
{
    struct lease *lease = *at;

    *at = lease->next;
    if (!hth_breaks(&n->ctx, HTH_BREAK_READER))
        n->env.store->ops->unlease(n->env.store, lease->slot);
    free(lease);
}

static void slot_let_go(struct hth_node *n, void *slot)
{
    n->env.store->ops->unlease(n->env.store, slot);
}

static int slot_is_same(struct hth_node *n, void *slot, struct hearth_error *err)
{
    const struct hth_store_ops *ops = n->env.store->ops;

    return ops->same ? ops->same(n->env.store, slot, err) : HEARTH_OK;
}

static void read_slot_bytes(struct hth_node *n, uint32_t client, uint64_t request,
        struct hth_slot *slot, uint64_t off, uint64_t len)
{
    n->env.store->ops->lease(n->env.store, slot);
    answer_bytes_to(n, client, request,
            &(struct answer_bytes){ .at = slot->base + off,
                    .len = len,
                    .let_go = slot_let_go,
                    .what = slot,
                    .check = slot_is_same });
}

void read_unmap(struct hth_node *n, struct client *c, const struct hth_local_unmap *m)
{
    for (struct lease **at = &n->leases; *at; at = &(*at)->next)
        if ((*at)->id == m->lease && (*at)->client == c->id) {
            lease_end(n, at);
            break;
        }
    reply_ok(n, c->id, m->head.request);
}

/* ---- Ranges of others' ----------------------------------------------------------------------- */

/* A range that is being pulled from a peer, once for all clients that read it; freed when it has
 * arrived or failed. */
struct reading {
    struct hth_node *node;
    struct reading *next;
    struct hth_save_id save;
    uint64_t object, off, len;
    int chunks; /* a source has no checksums of slices: whole chunks are pulled */
    struct asker *askers;
};

static struct reading *reading_find(struct hth_node *n, const struct hth_local_map *m)
{
    struct reading *r = n->readings;

    while (r && (r->object != m->object || r->off != m->off || r->len != m->len ||
                        hth_save_cmp(r->save, hth_local_save_to(m->save)) != 0))
        r = r->next;
    return r;
}

static void reading_free(struct reading *r)
{
    struct reading **at = &r->node->readings;

    while (*at != r)
        at = &(*at)->next;
    *at = r->next;
    askers_free(r->askers);
    free(r);
}

static void range_let_go(struct hth_node *n, void *fetch)
{
    (void)n;
    hth_fetch_release(fetch);
}

#define READ_SOURCES 64u /* as many as a fetch asks */
_Static_assert(READ_SOURCES >= HTH_PLAN_SOURCES, "all that a plan names");

static void read_add_source(uint32_t node, uint32_t out[READ_SOURCES], uint32_t *count)
{
    for (uint32_t i = 0; i < *count; i++)
        if (out[i] == node)
            return;
    if (*count < READ_SOURCES)
        out[(*count)++] = node;
}

/* Copies of a kept save may lie where an older epoch has placed them, until they are where they
 * belong. */
static int read_may_lie_anywhere(const struct hth_node *n, struct hth_save_id save)
{
    int at = hth_keep_at(&n->ctx.keep, save);

    return at >= 0 && hth_commit_kept(n->commit, (uint32_t)at) != HTH_KEPT_PROTECTED;
}

/* The nodes to ask. First the nodes that should have the object now: the node whose ranks wrote or
 * first read it, and the nodes of its placement. For the recovered save also the nodes that had it
 * by the plan, until its copies have come to their places. If these may not help, all other
 * nodes. */
static uint32_t read_range_sources(struct hth_node *n, struct hth_save_id save,
        const struct hth_object *o, uint32_t out[READ_SOURCES])
{
    uint32_t holder[HTH_COPIES_MAX], planned[HTH_PLAN_SOURCES], rank, copies, plans = 0, count = 0;

    if (!n->ctx.epoch)
        return 0;
    rank = o->owner % n->epoch.world; /* a stand-in in a smaller world */
    copies = hth_commit_holders(n->commit, rank, holder);
    if (hth_save_cmp(save, n->chosen) == 0)
        plans = hth_recover_sources(n->recover, o->id, planned);
    for (uint32_t i = 0; i < plans; i++)
        read_add_source(planned[i], out, &count);
    read_add_source(n->epoch.rank_node[rank], out, &count);
    for (uint32_t i = 0; i < copies; i++)
        read_add_source(holder[i], out, &count);
    for (uint32_t i = 0; read_may_lie_anywhere(n, save) && i < n->epoch.nodes; i++)
        read_add_source(i, out, &count);
    return count;
}

static void read_range_done(
        void *self, struct hth_fetch *fetch, int code, const struct hearth_error *err);

static int read_range_start(
        struct hth_node *n, struct reading *r, const struct hth_object *o, struct hearth_error *err)
{
    uint32_t source[READ_SOURCES];
    uint32_t found = read_range_sources(n, r->save, o, source);
    uint32_t count = 0;
    struct hth_fetch *fetch;

    for (uint32_t i = 0; i < found; i++)
        if (source[i] != n->epoch.self && !n->ctx.lost[source[i]])
            source[count++] = source[i];
    if (count == 0)
        return hth_fail(err, HEARTH_ELOST, 0, "no other node holds %s", o->name);
    return hth_fetch_start(&n->ctx,
            &(struct hth_fetch_want){
                    .save = r->save,
                    .object = *o,
                    .sources = source,
                    .count = count,
                    .class = HTH_FETCH_READ,
                    .off = r->off,
                    .len = r->len,
                    .slice = !r->chunks,
                    .deadline_ms = n->ctx.opts.recover_ms,
                    .done = read_range_done,
                    .self = r,
            },
            &fetch, err);
}

/* Once more in whole chunks, as every version gives them. */
static int read_range_again(struct reading *r, struct hearth_error *err)
{
    struct hth_held_save *s = hth_holdings_find(&r->node->ctx, r->save);
    const struct hth_object *o =
            s && s->has_manifest ? hth_manifest_find(&s->manifest, r->object) : NULL;

    r->chunks = 1;
    if (!o)
        return hth_fail(err, HEARTH_ELOST, 0, "this save is not here any more");
    return read_range_start(r->node, r, o, err);
}

static void read_range_done(
        void *self, struct hth_fetch *fetch, int code, const struct hearth_error *err)
{
    struct reading *r = self;
    struct answer_bytes bytes = { .len = r->len, .let_go = range_let_go, .what = fetch };
    struct asker *askers;
    struct hearth_error failed = *err;

    if (code == HEARTH_EUNSUPPORTED && !r->chunks && !(code = read_range_again(r, &failed)))
        return;
    askers = r->askers;
    r->askers = NULL;
    if (code) {
        askers_refuse(r->node, askers, &failed);
    } else {
        bytes.at = hth_fetch_bytes(fetch);
        bytes.summed = (uint32_t)hth_fetch_sum(fetch, &bytes.sum);
        answer_bytes(r->node, askers, &bytes);
    }
    reading_free(r);
}

/* Ranks of one node that read one object ask for its table at the same time, and often for more
 * of it. */
static int read_remote(struct hth_node *n, struct client *c, const struct hth_local_map *m,
        const struct hth_object *o, struct hearth_error *err)
{
    struct reading *r = reading_find(n, m);
    int rc;

    if (r)
        return asker_add(&r->askers, c->id, m->head.request, err);
    r = calloc(1, sizeof(*r));
    if (!r)
        return hth_fail(err, HEARTH_ENOMEM, 0, "no memory to read from another node");
    *r = (struct reading){ n, n->readings, hth_local_save_to(m->save), m->object, m->off, m->len, 0,
        NULL };
    n->readings = r;
    rc = asker_add(&r->askers, c->id, m->head.request, err);
    if (!rc)
        rc = read_range_start(n, r, o, err);
    if (rc)
        reading_free(r);
    return rc;
}

struct bringing { /* a foreign object on its way; freed likewise */
    struct hth_node *node;
    struct bringing *next;
    struct hth_save_id save;
    uint64_t object;
};

static void bringing_free(struct bringing *b)
{
    struct bringing **at = &b->node->bringings;

    while (*at != b)
        at = &(*at)->next;
    *at = b->next;
    free(b);
}

static void bringing_done(
        void *self, struct hth_fetch *fetch, int code, const struct hearth_error *err)
{
    struct bringing *b = self;
    struct hth_held_save about = { .id = b->save };
    struct look *l = look_take_all(b->node, &about, b->object);

    (void)fetch;
    while (l) {
        struct look *next = l->next;
        struct client *c = client_find(b->node, l->client);

        if (c && code)
            reply_error(b->node, c->id, l->ask.head.request, err);
        else if (c)
            read_range(b->node, c, &l->ask);
        free(l);
        l = next;
    }
    bringing_free(b);
}

static int bringing_start(struct hth_node *n, const struct hth_local_map *m,
        const struct hth_object *o, struct hearth_error *err)
{
    struct bringing *b = malloc(sizeof(*b));
    uint32_t source[HTH_PLAN_SOURCES];
    struct hth_fetch *fetch;
    int rc;

    if (!b)
        return hth_fail(err, HEARTH_ENOMEM, 0, "no memory to bring an object");
    *b = (struct bringing){ n, n->bringings, hth_local_save_to(m->save), m->object };
    n->bringings = b;
    rc = hth_fetch_start(&n->ctx,
            &(struct hth_fetch_want){
                    .save = b->save,
                    .object = *o,
                    .sources = source,
                    .count = hth_recover_sources(n->recover, m->object, source),
                    .class = HTH_FETCH_READ,
                    .deadline_ms = n->ctx.opts.recover_ms,
                    .done = bringing_done,
                    .self = b,
            },
            &fetch, err);
    if (rc)
        bringing_free(b);
    return rc;
}

static void read_foreign(struct hth_node *n, struct client *c, const struct hth_local_map *m,
        const struct hth_held_save *s, const struct hth_object *o, uint64_t until_ms)
{
    uint64_t now_ms = hth_now_ms(&n->ctx.clock), again_ms = 0;
    struct look *l = malloc(sizeof(*l));
    struct hearth_error err;
    int rc = HEARTH_OK, runs = 0;

    for (const struct look *at = n->looks; at && !runs; at = at->next)
        runs = look_is_about(at, s, o->id);
    if (!l)
        rc = hth_fail(&err, HEARTH_ENOMEM, 0, "no memory to bring an object");
    else if (!runs)
        rc = bringing_start(n, m, o, &err);
    if (rc == HEARTH_EBUSY && now_ms < until_ms) {
        again_ms = now_ms + READ_AGAIN_MS;
        rc = HEARTH_OK;
    }
    if (rc) {
        free(l);
        reply_error(n, c->id, m->head.request, &err);
        return;
    }
    *l = (struct look){ n->looks, c->id, *m, again_ms, until_ms };
    n->looks = l;
}

static void range_read(
        struct hth_node *n, struct client *c, const struct hth_local_map *m, uint64_t until_ms)
{
    struct hth_held_save *s = read_save(n, m);
    const struct hth_object *o =
            s && s->has_manifest ? hth_manifest_find(&s->manifest, m->object) : NULL;
    struct hth_held *h = read_held(s, m);
    struct hearth_error err;

    if (!s || !s->has_manifest) {
        reply_refusal(n, c->id, m->head.request, HEARTH_ELOST,
                "this save is not here any more: it went when a newer one was PROTECTED; read "
                "before that, or keep more saves");
        return;
    }
    if (!o || m->len == 0 || m->off > hth_object_file_bytes(o) ||
            m->len > hth_object_file_bytes(o) - m->off) {
        reply_refusal(
                n, c->id, m->head.request, HEARTH_EINVAL, "a range that the object does not have");
        return;
    }
    if (read_is_unsure(h)) {
        look_start(n, c, m, s, h);
        return;
    }
    if (h) {
        read_slot_bytes(n, c->id, m->head.request, h->slot, m->off, m->len);
        return;
    }
    if (o->kind == HTH_OBJECT_FOREIGN) {
        read_foreign(n, c, m, s, o, until_ms);
        return;
    }
    if (read_remote(n, c, m, o, &err))
        reply_error(n, c->id, m->head.request, &err);
}

void read_range(struct hth_node *n, struct client *c, const struct hth_local_map *m)
{
    range_read(n, c, m, hth_now_ms(&n->ctx.clock) + n->ctx.opts.recover_ms);
}

uint64_t read_due_ms(const struct hth_node *n)
{
    uint64_t due_ms = HTH_NEVER;

    for (const struct look *l = n->looks; l; l = l->next)
        due_ms = l->again_ms && l->again_ms < due_ms ? l->again_ms : due_ms;
    return due_ms;
}

/* Repeats all requests that wait for an object: the first fetches it, or is put off again. */
static void read_again(struct hth_node *n, const struct look *due)
{
    struct hth_held_save about = { .id = hth_local_save_to(due->ask.save) };
    struct look *l = look_take_all(n, &about, due->ask.object);

    while (l) {
        struct look *next = l->next;
        struct client *c = client_find(n, l->client);

        if (c)
            range_read(n, c, &l->ask, l->until_ms);
        free(l);
        l = next;
    }
}

void read_tick(struct hth_node *n, uint64_t now_ms)
{
    const struct look *l = n->looks;

    while (l) {
        int due = l->again_ms && l->again_ms <= now_ms;

        if (due)
            read_again(n, l);
        l = due ? n->looks : l->next;
    }
}

/* A file of a foreign container, as it lies here. */
static int read_common_held(struct hth_node *n, struct client *c, const struct hth_local_common *m,
        struct hearth_error *err)
{
    struct hth_held_save *s = hth_holdings_find(&n->ctx, hth_local_save_to(m->save));
    struct hth_held *h = s && !s->removed ? s->held : NULL;

    while (h && (strcmp(h->object.name, m->name) != 0 || !h->verified || !h->slot))
        h = h->next;
    if (!h)
        return hth_fail(err, HEARTH_ENOENT, 0,
                "'%s' of the container is not on this node: name it in hearth_recover_opts.common",
                m->name);
    read_slot_bytes(n, c->id, m->head.request, h->slot, 0, h->object.data_len);
    return HEARTH_OK;
}

static void raw_let_go(struct hth_node *n, void *raw)
{
    n->env.store->ops->raw_close(n->env.store, raw);
}

/* The client gets a descriptor of the file itself, to read: the file is never written again, and
 * the rank has its digest. */
void read_common(struct hth_node *n, struct client *c, const struct hth_local_common *m)
{
    struct hth_local_bytes answer = { .head = { sizeof(answer), HTH_LOCAL_BYTES, m->head.request,
                                              0 } };
    struct hth_store *store = n->env.store;
    struct hth_raw *raw = NULL;
    struct hearth_error err;

    if (hth_save_foreign(hth_local_save_to(m->save))) {
        if (read_common_held(n, c, m, &err))
            reply_error(n, c->id, m->head.request, &err);
        return;
    }
    if (hth_foreign_name_check(m->name, &err) ||
            store->ops->raw_open(store, hth_local_save_to(m->save), m->name, &raw, &err)) {
        reply_error(n, c->id, m->head.request, &err);
        return;
    }
    answer.len = raw->len;
    if (raw->fd < 0) {
        answer_bytes_to(n, c->id, m->head.request,
                &(struct answer_bytes){
                        .at = raw->base, .len = raw->len, .let_go = raw_let_go, .what = raw });
        return;
    }
    reply_packet_fd(n, c->id, &answer, sizeof(answer), raw->fd);
    store->ops->raw_close(store, raw);
}

void read_gone(struct hth_node *n, uint32_t client)
{
    struct lease **lease = &n->leases;

    while (*lease) {
        if ((*lease)->client == client)
            lease_end(n, lease);
        else
            lease = &(*lease)->next;
    }
    for (struct reading *r = n->readings; r; r = r->next)
        askers_forget(&r->askers, client);
}

uint64_t read_leases(const struct hth_node *n)
{
    uint64_t leases = 0;

    for (const struct lease *l = n->leases; l; l = l->next)
        leases++;
    return leases;
}

void read_close(struct hth_node *n)
{
    while (n->leases)
        lease_end(n, &n->leases);
    while (n->looks) {
        struct look *l = n->looks;

        n->looks = l->next;
        free(l);
    }
    while (n->readings)
        reading_free(n->readings);
    while (n->bringings)
        bringing_free(n->bringings);
}
