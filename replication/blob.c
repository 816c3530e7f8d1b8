/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One blob at one node:
 *
 *   ASKING ──BLOB with a grant──► PULLING ──all here──► CHECKING ──digest right──► HERE
 *     ▲ BLOB_WANT every retry       │ pull failed          │ wrong
 *     └─────────────────────────────┴──────────────────────┘
 *
 * HERE serves: each child (or whoever wanted it) gets BLOB every retry until it says BLOB_DONE.
 * A blob is forgotten at once for everybody else, but its memory waits for its pull or its work.
 *
 *   BLOB_WANT, BLOB_DONE  {id}
 *   BLOB                  {id, u64 length, digest 32, u32 grant length, u32 zero, grant}
 *   id                    {u32 kind, u32 zero, save 32, u64 object}
 *
 * BLOB without a grant: there was no connection to grant to yet; the answer is BLOB_WANT.
 */
#include <hearth/internal/replication/blob.h>
#include <hearth/internal/replication/tree.h>

#include <hearth/internal/core/auth.h>
#include <hearth/internal/core/record.h>
#include <stdlib.h>

#define BLOB_MAX  (UINT64_C(64) << 20) /* bytes of one */
#define BLOBS_MAX 4096u
#define ID_LEN    48u
#define BLOB_LEN  (ID_LEN + 48u)

enum state { ASKING, PULLING, CHECKING, HERE };

/* Somebody who should have it. */
struct reader {
    uint32_t node;
    int done, granted;
    struct hth_grant grant;
    uint64_t due_ms;
    struct reader *next;
};

struct blob {
    struct hth_blob_id id;
    enum state state;
    int give_on;   /* to our children */
    int forgotten; /* freed when pull or work ends */
    int busy;      /* one of them is under way */
    unsigned char *bytes;
    uint64_t len, at; /* at: pulled so far */
    unsigned char digest[HTH_DIGEST];
    unsigned char found[HTH_DIGEST];
    struct hth_region *region;
    uint32_t source; /* whom we ask; HTH_NODE_NONE: our parent */
    uint32_t puller; /* whom we pull from */
    struct hth_grant grant;
    uint64_t due_ms; /* ASKING, PULLING: try again */
    struct hth_session_pull pull;
    struct hth_work work;
    struct reader *readers;
    struct hth_ctx *ctx;
    struct blob *next;
};

struct hth_blobs {
    hth_blob_arrived *arrived;
    void *self;
    uint32_t count;
    uint64_t family; /* our children when all blobs were last offered to them */
    struct blob *first;
    struct blob *dying; /* forgotten, under a pull or a work */
};

#define owner_of(field, at) ((struct blob *)(void *)((char *)(at)-offsetof(struct blob, field)))

static void step(struct blob *b);

int hth_blobs_open(struct hth_ctx *ctx, hth_blob_arrived *arrived, void *self,
        struct hth_blobs **out, struct hearth_error *err)
{
    struct hth_blobs *blobs = calloc(1, sizeof(*blobs));

    (void)ctx;
    if (!blobs)
        return hth_fail(err, HEARTH_ENOMEM, 0, "no memory for the blobs");
    blobs->arrived = arrived;
    blobs->self = self;
    *out = blobs;
    return HEARTH_OK;
}

/* ---- Blobs and their readers ------------------------------------------------------------------ */

static int same(const struct hth_blob_id *a, const struct hth_blob_id *b)
{
    return a->kind == b->kind && a->object == b->object && hth_save_cmp(a->save, b->save) == 0;
}

static struct blob *find(struct hth_ctx *ctx, const struct hth_blob_id *id)
{
    struct blob *b = ctx->blobs->first;

    while (b && !same(&b->id, id))
        b = b->next;
    return b;
}

static struct blob *get(struct hth_ctx *ctx, const struct hth_blob_id *id)
{
    struct blob **at = &ctx->blobs->first, *b = find(ctx, id);

    if (b)
        return b;
    if (ctx->blobs->count >= BLOBS_MAX || !(b = calloc(1, sizeof(*b))))
        return NULL;
    b->id = *id;
    b->ctx = ctx;
    b->source = HTH_NODE_NONE;
    b->due_ms = HTH_NEVER;
    while (*at)
        at = &(*at)->next;
    *at = b;
    ctx->blobs->count++;
    return b;
}

static void reader_revoke(struct blob *b, struct reader *r)
{
    if (r->granted)
        hth_session_revoke(b->ctx->session, &r->grant);
    r->granted = 0;
}

static void readers_free(struct blob *b)
{
    struct reader *r;

    while ((r = b->readers)) {
        b->readers = r->next;
        reader_revoke(b, r);
        free(r);
    }
}

static void unlist(struct blob **list, const struct blob *b)
{
    while (*list && *list != b)
        list = &(*list)->next;
    if (*list)
        *list = b->next;
}

static void blob_free(struct blob *b)
{
    unlist(&b->ctx->blobs->dying, b);
    if (b->region)
        (void)hth_session_dereg(b->ctx->session, b->region);
    free(b->bytes);
    free(b);
}

static void forget(struct hth_ctx *ctx, struct blob *b)
{
    unlist(&ctx->blobs->first, b);
    ctx->blobs->count--;
    readers_free(b);
    b->forgotten = 1;
    b->next = ctx->blobs->dying;
    ctx->blobs->dying = b;
    if (!b->busy)
        blob_free(b);
}

static struct reader *reader_get(struct blob *b, uint32_t node)
{
    struct reader **at = &b->readers, *r;

    while (*at && (*at)->node != node)
        at = &(*at)->next;
    if (*at)
        return *at;
    r = calloc(1, sizeof(*r));
    if (!r)
        return NULL;
    r->node = node;
    *at = r;
    return r;
}

/* ---- Messages ----------------------------------------------------------------------------------- */

static void id_write(struct hth_writer *w, const struct hth_blob_id *id)
{
    hth_write32(w, id->kind);
    hth_write32(w, 0);
    hth_write_save(w, id->save);
    hth_write64(w, id->object);
}

static struct hth_blob_id id_read(struct hth_reader *r)
{
    struct hth_blob_id id;

    id.kind = (enum hth_blob_kind)hth_read32(r);
    hth_read_zeros(r, 4);
    id.save = hth_read_save(r);
    id.object = hth_read64(r);
    if (id.kind < HTH_BLOB_MANIFEST || id.kind > HTH_BLOB_PLAN)
        r->bad = 1;
    return id;
}

static void say(struct blob *b, uint32_t node, uint16_t type)
{
    unsigned char body[ID_LEN];
    struct hth_writer w = { .at = body, .cap = sizeof(body) };

    id_write(&w, &b->id);
    (void)hth_session_send(b->ctx->session, node, type, body, w.len);
}

/* BLOB to one reader; with a grant where there is a connection. */
static void offer(struct blob *b, struct reader *r)
{
    unsigned char body[BLOB_LEN + HTH_DESC_MAX];
    struct hth_writer w = { .at = body, .cap = sizeof(body) };
    struct hth_ctx *ctx = b->ctx;

    r->due_ms = hth_now_ms(&ctx->clock) + ctx->opts.retry_ms;
    if (!b->region && b->len && hth_session_reg(ctx->session, b->bytes, b->len, &b->region, NULL))
        return;
    if (!r->granted && b->len)
        r->granted =
                !hth_session_grant(ctx->session, r->node, b->region, 0, b->len, &r->grant, NULL);
    id_write(&w, &b->id);
    hth_write64(&w, b->len);
    hth_write(&w, b->digest, HTH_DIGEST);
    hth_write32(&w, r->granted ? r->grant.desc_len : 0);
    hth_write32(&w, 0);
    if (r->granted)
        hth_write(&w, r->grant.desc, r->grant.desc_len);
    (void)hth_session_send(ctx->session, r->node, HTH_MSG_BLOB, body, w.len);
}

/* Children that have not been thought of yet: at the beginning, or after a loss below us. */
static void serve(struct blob *b)
{
    uint32_t child[4 * HTH_TREE_DEGREE];
    uint32_t cap = sizeof(child) / sizeof(*child), n;

    if (!b->give_on || b->state != HERE || !b->ctx->epoch)
        return;
    n = hth_tree_children(b->ctx, b->ctx->epoch->self, child, cap);
    for (uint32_t i = 0; i < n && i < cap; i++) {
        struct reader *r = reader_get(b, child[i]);

        if (r && !r->done && !r->due_ms)
            offer(b, r);
    }
}

/* A number for who our children are now. */
static uint64_t family(const struct hth_ctx *ctx)
{
    uint32_t child[4 * HTH_TREE_DEGREE];
    uint32_t cap = sizeof(child) / sizeof(*child), n;
    uint64_t sum = 0;

    n = ctx->epoch ? hth_tree_children(ctx, ctx->epoch->self, child, cap) : 0;
    for (uint32_t i = 0; i < n && i < cap; i++) {
        sum ^= child[i] + UINT64_C(1);
        hth_splitmix64(&sum);
    }
    return sum;
}

/* ---- Receiving ------------------------------------------------------------------------------------- */

static uint32_t whom(const struct blob *b)
{
    const struct hth_ctx *ctx = b->ctx;

    if (b->source != HTH_NODE_NONE && !(ctx->down && ctx->down[b->source]))
        return b->source;
    return hth_tree_parent(ctx, ctx->epoch->self);
}

static void ask(struct blob *b)
{
    uint32_t node = whom(b);

    b->state = ASKING;
    b->due_ms = hth_now_ms(&b->ctx->clock) + b->ctx->opts.retry_ms;
    if (node != HTH_NODE_NONE && node != b->ctx->epoch->self)
        say(b, node, HTH_MSG_BLOB_WANT);
}

/* What has just failed is not asked for in the same moment again. */
static void pause_asking(struct blob *b)
{
    b->state = ASKING;
    b->due_ms = hth_now_ms(&b->ctx->clock) + 1 + b->ctx->opts.retry_ms / 8;
}

static void here(struct blob *b)
{
    struct hth_blobs *blobs = b->ctx->blobs;

    b->state = HERE;
    b->due_ms = HTH_NEVER;
    for (struct reader *r = b->readers; r; r = r->next)
        offer(b, r); /* who wanted it before it came */
    serve(b);
    say(b, b->puller, HTH_MSG_BLOB_DONE);
    blobs->arrived(blobs->self, &b->id, b->bytes, b->len); /* last: may forget it */
}

static void check_run(struct hth_work *work)
{
    struct blob *b = owner_of(work, work);

    hth_digest(b->found, b->bytes, b->len);
}

static void check_done(struct hth_work *work)
{
    struct blob *b = owner_of(work, work);

    b->busy = 0;
    if (b->forgotten) {
        blob_free(b);
        return;
    }
    if (memcmp(b->found, b->digest, HTH_DIGEST) == 0 || hth_breaks(b->ctx, HTH_BREAK_VERIFY)) {
        here(b);
        return;
    }
    hth_say(&b->ctx->log, HEARTH_LOG_WARN, "blob-bad",
            "node %" PRIu32 " gave " HTH_SAVE " blob %d with a wrong digest", b->puller,
            HTH_SAVE_ARGS(b->id.save), (int)b->id.kind);
    b->at = 0;
    pause_asking(b);
}

static void pull_done(struct hth_session_pull *pull, int code)
{
    struct blob *b = owner_of(pull, pull);

    b->busy = 0;
    if (b->forgotten) {
        blob_free(b);
        return;
    }
    if (code) {
        pause_asking(b);
        return;
    }
    b->at += b->len - b->at < HTH_CHUNK ? b->len - b->at : HTH_CHUNK;
    step(b);
}

/* Pull the next part, or check the whole. */
static void step(struct blob *b)
{
    uint64_t part = b->len - b->at < HTH_CHUNK ? b->len - b->at : HTH_CHUNK;
    struct hth_ctx *ctx = b->ctx;
    int rc;

    if (!part) {
        b->state = CHECKING;
        b->busy = 1;
        b->due_ms = HTH_NEVER;
        b->work = (struct hth_work){ .run = check_run, .done = check_done };
        ctx->workers.submit(ctx->workers.self, &b->work);
        return;
    }
    b->pull = (struct hth_session_pull){ .done = pull_done };
    rc = hth_session_pull(
            ctx->session, b->puller, &b->grant, b->at, b->region, b->at, part, &b->pull);
    b->busy = !rc;
    b->due_ms = rc ? hth_now_ms(&ctx->clock) + 1 + ctx->opts.retry_ms / 16 : HTH_NEVER;
    if (rc && rc != HEARTH_EBUSY)
        pause_asking(b);
}

/* Room for what BLOB says; what was pulled of other bytes counts for nothing. */
static int room(struct blob *b, uint64_t len, const unsigned char *digest)
{
    if (b->bytes && b->len == len && memcmp(b->digest, digest, HTH_DIGEST) == 0)
        return HEARTH_OK;
    if (b->region && hth_session_dereg(b->ctx->session, b->region))
        return HEARTH_EBUSY;
    b->region = NULL;
    free(b->bytes);
    b->at = 0;
    b->len = len;
    memcpy(b->digest, digest, HTH_DIGEST);
    b->bytes = malloc(len ? len : 1);
    if (!b->bytes)
        return HEARTH_ENOMEM;
    return len ? hth_session_reg(b->ctx->session, b->bytes, len, &b->region, NULL) : HEARTH_OK;
}

static void on_blob(struct hth_ctx *ctx, uint32_t from, struct hth_reader *r)
{
    struct hth_blob_id id = id_read(r);
    uint64_t len = hth_read64(r);
    const unsigned char *digest = hth_read(r, HTH_DIGEST);
    struct hth_grant grant = { .desc_len = hth_read32(r) };
    const unsigned char *desc;
    struct blob *b;

    hth_read_zeros(r, 4);
    desc = grant.desc_len <= HTH_DESC_MAX ? hth_read(r, grant.desc_len) : NULL;
    if (r->bad || !desc || r->pos != r->len || len > BLOB_MAX)
        return;
    memcpy(grant.desc, desc, grant.desc_len);
    b = find(ctx, &id);
    if (b && b->state == HERE) {
        say(b, from, HTH_MSG_BLOB_DONE);
        return;
    }
    if (!b && (b = get(ctx, &id)))
        b->give_on = 1;
    if (!b || b->busy || b->state == PULLING)
        return;
    b->puller = from;
    if (!grant.desc_len && len) {
        b->due_ms = hth_now_ms(&ctx->clock) + ctx->opts.retry_ms;
        say(b, from, HTH_MSG_BLOB_WANT);
        return;
    }
    if (room(b, len, digest)) {
        b->due_ms = hth_now_ms(&ctx->clock) + ctx->opts.retry_ms;
        return;
    }
    b->grant = grant;
    b->state = PULLING;
    step(b);
}

/* Whoever wants a blob has no grant that is good, whatever we think. */
static void on_want(struct hth_ctx *ctx, uint32_t from, const struct hth_blob_id *id)
{
    struct blob *b = find(ctx, id);
    struct reader *r = b ? reader_get(b, from) : NULL;

    if (!r)
        return; /* it asks again */
    reader_revoke(b, r);
    r->done = 0;
    if (b->state == HERE)
        offer(b, r);
}

static void on_done(struct hth_ctx *ctx, uint32_t from, const struct hth_blob_id *id)
{
    struct blob *b = find(ctx, id);
    struct reader *r = b ? b->readers : NULL;

    while (r && r->node != from)
        r = r->next;
    if (!r)
        return;
    reader_revoke(b, r);
    r->done = 1;
}

int hth_blobs_message(
        struct hth_ctx *ctx, uint32_t from, uint16_t type, const unsigned char *body, size_t len)
{
    struct hth_reader r = { .at = body, .len = len };
    struct hth_blob_id id;

    if (type < HTH_MSG_BLOB || type > HTH_MSG_BLOB_DONE)
        return 0;
    if (!ctx->epoch)
        return 1;
    if (type == HTH_MSG_BLOB) {
        on_blob(ctx, from, &r);
        return 1;
    }
    id = id_read(&r);
    if (r.bad || len != ID_LEN)
        return 1;
    if (type == HTH_MSG_BLOB_WANT)
        on_want(ctx, from, &id);
    else
        on_done(ctx, from, &id);
    return 1;
}

/* ---- Giving ------------------------------------------------------------------------------------------ */

static int put(struct hth_ctx *ctx, const struct hth_blob_id *id, const void *bytes, size_t len,
        int give_on, struct hearth_error *err)
{
    struct blob *b = find(ctx, id);
    unsigned char *copy;

    if (b && (b->state == HERE || b->busy || b->state == PULLING)) {
        b->give_on |= give_on;
        serve(b);
        return HEARTH_OK;
    }
    if (len > BLOB_MAX)
        return hth_fail(err, HEARTH_EINVAL, 0, "%zu bytes are more than the %" PRIu64 " of a blob",
                len, BLOB_MAX);
    copy = malloc(len ? len : 1);
    b = copy ? get(ctx, id) : NULL;
    if (!b || (b->region && hth_session_dereg(ctx->session, b->region))) {
        free(copy);
        return hth_fail(err, HEARTH_ENOMEM, 0, "no room for a blob of %zu bytes", len);
    }
    if (len)
        memcpy(copy, bytes, len);
    free(b->bytes);
    b->region = NULL;
    b->bytes = copy;
    b->len = b->at = len;
    b->state = HERE;
    b->due_ms = HTH_NEVER;
    b->give_on |= give_on;
    hth_digest(b->digest, copy, len);
    for (struct reader *r = b->readers; r; r = r->next)
        offer(b, r);
    serve(b);
    return HEARTH_OK;
}

int hth_blob_give(struct hth_ctx *ctx, const struct hth_blob_id *id, const void *bytes, size_t len,
        struct hearth_error *err)
{
    return put(ctx, id, bytes, len, 1, err);
}

int hth_blob_serve(struct hth_ctx *ctx, const struct hth_blob_id *id, const void *bytes, size_t len,
        struct hearth_error *err)
{
    return put(ctx, id, bytes, len, 0, err);
}

int hth_blob_fetch(
        struct hth_ctx *ctx, const struct hth_blob_id *id, uint32_t node, struct hearth_error *err)
{
    struct blob *b;

    if (!ctx->epoch || node >= ctx->epoch->nodes || node == ctx->epoch->self)
        return hth_fail(err, HEARTH_EINVAL, 0, "node %" PRIu32 " is no node to fetch from", node);
    b = get(ctx, id);
    if (!b)
        return hth_fail(err, HEARTH_ENOMEM, 0, "no memory for a blob");
    b->give_on = 1;
    if (b->state == HERE) {
        serve(b);
        return HEARTH_OK;
    }
    b->source = node;
    if (!b->busy && b->state == ASKING)
        ask(b);
    return HEARTH_OK;
}

const unsigned char *hth_blob_find(
        struct hth_ctx *ctx, const struct hth_blob_id *id, size_t *out_len)
{
    struct blob *b = find(ctx, id);

    if (!b || b->state != HERE)
        return NULL;
    *out_len = b->len;
    return b->bytes;
}

/* ---- Time and ends -------------------------------------------------------------------------------------- */

void hth_blobs_forget(struct hth_ctx *ctx, struct hth_save_id save)
{
    struct blob *next;

    for (struct blob *b = ctx->blobs->first; b; b = next) {
        next = b->next;
        if (b->id.kind != HTH_BLOB_PLAN && hth_save_cmp(b->id.save, save) == 0)
            forget(ctx, b);
    }
}

void hth_blobs_join(struct hth_ctx *ctx)
{
    while (ctx->blobs->first)
        forget(ctx, ctx->blobs->first);
}

void hth_blobs_peer_down(struct hth_ctx *ctx, uint32_t node)
{
    for (struct blob *b = ctx->blobs->first; b; b = b->next) {
        for (struct reader *r = b->readers; r; r = r->next)
            if (r->node == node)
                reader_revoke(b, r);
        if (b->source == node)
            b->source = HTH_NODE_NONE; /* our parent may have it by now */
        if (b->state == ASKING)
            b->due_ms = hth_now_ms(&ctx->clock);
    }
}

static int is_lost(const struct hth_ctx *ctx, uint32_t node)
{
    return ctx->down && ctx->down[node];
}

void hth_blobs_tick(struct hth_ctx *ctx)
{
    uint64_t now = hth_now_ms(&ctx->clock), children = family(ctx);
    int news = children != ctx->blobs->family;

    ctx->blobs->family = children;
    for (struct blob *b = ctx->blobs->first; b && ctx->epoch; b = b->next) {
        if (news)
            serve(b);
        if (b->state == HERE) {
            for (struct reader *r = b->readers; r; r = r->next)
                if (!r->done && !is_lost(ctx, r->node) && now >= r->due_ms)
                    offer(b, r);
        } else if (!b->busy && now >= b->due_ms) {
            if (b->state == PULLING)
                step(b);
            else
                ask(b);
        }
    }
}

uint64_t hth_blobs_due_ms(const struct hth_ctx *ctx)
{
    uint64_t due = HTH_NEVER;

    if (ctx->blobs->first && family(ctx) != ctx->blobs->family)
        return hth_now_ms(&ctx->clock);
    for (const struct blob *b = ctx->blobs->first; b; b = b->next) {
        if (b->state != HERE && !b->busy && b->due_ms < due)
            due = b->due_ms;
        for (const struct reader *r = b->readers; r && b->state == HERE; r = r->next)
            if (!r->done && !is_lost(ctx, r->node) && r->due_ms < due)
                due = r->due_ms;
    }
    return due;
}

static void list_free(struct blob **list)
{
    struct blob *b;
    struct reader *r;

    while ((b = *list)) {
        *list = b->next;
        while ((r = b->readers)) {
            b->readers = r->next;
            free(r);
        }
        free(b->bytes);
        free(b);
    }
}

void hth_blobs_close(struct hth_ctx *ctx)
{
    if (!ctx->blobs)
        return;
    list_free(&ctx->blobs->first);
    list_free(&ctx->blobs->dying);
    free(ctx->blobs);
    ctx->blobs = NULL;
}
