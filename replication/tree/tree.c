/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A node's parent follows from its index and from the lost nodes. The tree keeps only facts on
 * their way up, for some milliseconds.
 *
 *                0                   A parent's index is below its children's, so up goes to a
 *          ┌─────┼─────┐             lower index and down to a higher one, always: whatever two
 *          1     2 ..  32            nodes think of who is lost, no message goes round.
 *       ┌──┴──┐
 *      33 .. 64
 */
#include "tree.h"

#include "core/base/bytes.h"
#include <stdlib.h>
#include <string.h>

#define HEAD             8u  /* of an envelope */
#define UP               24u /* of one that goes up */
#define PART             4u  /* before each of several */

#define DISCONNECTED_MAX 8u /* more than there are levels below the coordinator */

#define GATHER_MS        5u /* facts of a subtree wait for each other, at each node on their way */

struct hth_tree {
    hth_tree_deliver *deliver;
    hth_tree_sign *sign; /* NULL: no call */
    void *self;
    uint32_t disconnected[DISCONNECTED_MAX],
            disconnecteds; /* ancestors that cannot be reached from here */
    /* The UPS message that will be sent to the parent. */
    uint64_t epoch, nonce; /* of what is gathered, and of `disconnected` */
    uint64_t due_ms;
    size_t len;
    unsigned char body[HTH_BODY_MAX];
};

int hth_tree_open(struct hth_ctx *ctx, hth_tree_deliver *deliver, void *self, struct hth_tree **out,
        struct hearth_error *err)
{
    struct hth_tree *t = calloc(1, sizeof(*t));

    (void)ctx;
    if (!t)
        return hth_fail(err, HEARTH_ENOMEM, 0, "no memory for the tree");
    t->deliver = deliver;
    t->self = self;
    *out = t;
    return HEARTH_OK;
}

void hth_tree_on_sign(struct hth_ctx *ctx, hth_tree_sign *sign)
{
    ctx->tree->sign = sign;
}

static int tree_is_lost(const struct hth_ctx *ctx, uint32_t node)
{
    return ctx->lost && ctx->lost[node];
}

int hth_tree_is_unreachable(const struct hth_ctx *ctx, uint32_t a, uint32_t b)
{
    const struct hth_pair_note *p = hth_pair_note_find(ctx->pair, ctx->pairs, a, b);

    return p && p->unreachable;
}

static uint32_t tree_degree(const struct hth_ctx *ctx)
{
    return ctx->opts.tree_degree ? ctx->opts.tree_degree : HTH_TREE_DEGREE;
}

uint32_t hth_tree_above(const struct hth_ctx *ctx, uint32_t node)
{
    return (node - 1) / tree_degree(ctx);
}

uint32_t hth_tree_parent(const struct hth_ctx *ctx, uint32_t node)
{
    uint32_t at = node;

    if (node == 0)
        return HTH_NODE_NONE;
    do
        at = hth_tree_above(ctx, at);
    while (at != 0 && (tree_is_lost(ctx, at) || hth_tree_is_unreachable(ctx, node, at)));
    return at;
}

int hth_tree_is_neighbour(const struct hth_ctx *ctx, uint32_t node)
{
    uint32_t self = ctx->epoch ? ctx->epoch->self : HTH_NODE_NONE;

    return self != HTH_NODE_NONE && !tree_is_lost(ctx, node) &&
           (hth_tree_parent(ctx, self) == node || hth_tree_parent(ctx, node) == self);
}

/* Walks the living children: those by index, and below a lost child its children, level by
 * level. */
struct walk {
    uint32_t node, degree;
    uint64_t first, at, end; /* of this level */
    int lost; /* a child is lost or cannot reach its parent: the next level may have more */
};

static void walk_init(const struct hth_ctx *ctx, struct walk *w, uint32_t node)
{
    uint32_t degree = tree_degree(ctx);

    *w = (struct walk){ .node = node, .degree = degree, .first = (uint64_t)node * degree + 1 };
    w->at = w->first;
    w->end = w->first + degree;
    w->lost = ctx->pairs != 0;
}

/* The next child in this level. */
static uint32_t walk_level_next(const struct hth_ctx *ctx, struct walk *w)
{
    while (w->at < w->end && w->at < ctx->epoch->nodes) {
        uint32_t child = (uint32_t)w->at++;

        if (tree_is_lost(ctx, child))
            w->lost = 1;
        else if (hth_tree_parent(ctx, child) == w->node)
            return child;
    }
    return HTH_NODE_NONE;
}

static uint32_t walk_next(const struct hth_ctx *ctx, struct walk *w)
{
    uint32_t child = walk_level_next(ctx, w);

    while (child == HTH_NODE_NONE && w->lost && w->at < ctx->epoch->nodes) {
        w->first = w->at = w->first * w->degree + 1;
        w->end = w->end * w->degree + 1;
        w->lost = ctx->pairs != 0;
        child = walk_level_next(ctx, w);
    }
    return child;
}

uint32_t hth_tree_children(const struct hth_ctx *ctx, uint32_t node, uint32_t *out, uint32_t cap)
{
    struct walk w;
    uint32_t child, count = 0;

    walk_init(ctx, &w, node);
    for (; (child = walk_next(ctx, &w)) != HTH_NODE_NONE; count++)
        if (count < cap)
            out[count] = child;
    return count;
}

static void tree_pass(
        struct hth_ctx *ctx, uint32_t node, uint16_t type, const void *body, size_t len)
{
    int rc = hth_session_send(ctx->session, node, type, body, len);

    if (rc) /* the sender repeats it */
        hth_say(&ctx->log, HEARTH_LOG_DEBUG, "tree-lost", "node %" PRIu32 ": %s", node,
                hearth_strerror(rc));
}

static void tree_pass_down(struct hth_ctx *ctx, const void *body, size_t len)
{
    struct walk w;
    uint32_t child;

    walk_init(ctx, &w, ctx->epoch->self);
    while ((child = walk_next(ctx, &w)) != HTH_NODE_NONE)
        tree_pass(ctx, child, HTH_MSG_DOWN, body, len);
}

/* This node's child on the way to `node`, which is another node; HTH_NODE_NONE: `node` is not below
 * this node. */
static uint32_t tree_way_to(const struct hth_ctx *ctx, uint32_t node)
{
    uint32_t self = ctx->epoch->self;

    while (node != HTH_NODE_NONE && node > self) {
        uint32_t parent = hth_tree_parent(ctx, node);

        if (parent == self)
            return node;
        node = parent;
    }
    return HTH_NODE_NONE;
}

/* ---- Gathering ------------------------------------------------------------------------------- */

/* Drops what an older epoch has left, and begins for this epoch. */
static void gather_of_this_epoch(struct hth_ctx *ctx)
{
    struct hth_tree *t = ctx->tree;

    if (t->epoch != ctx->epoch->epoch || t->nonce != ctx->epoch->nonce)
        t->len = t->disconnecteds = 0;
    t->epoch = ctx->epoch->epoch;
    t->nonce = ctx->epoch->nonce;
}

static int disconnected_at(const struct hth_tree *t, uint32_t node)
{
    for (uint32_t i = 0; i < t->disconnecteds; i++)
        if (t->disconnected[i] == node)
            return (int)i;
    return -1;
}

void hth_tree_reach(struct hth_ctx *ctx, uint32_t node, int up)
{
    struct hth_tree *t = ctx->tree;
    uint32_t above = ctx->epoch ? ctx->epoch->self : 0;
    int at;

    if (!above || !node)
        return;
    gather_of_this_epoch(ctx);
    at = disconnected_at(t, node);
    if (up && at >= 0)
        t->disconnected[at] = t->disconnected[--t->disconnecteds];
    while (above > node)
        above = hth_tree_above(ctx, above);
    if (!up && at < 0 && above == node && t->disconnecteds < DISCONNECTED_MAX)
        t->disconnected[t->disconnecteds++] = node;
}

/* The node to which this node's facts go. It also passes over ancestors that this node cannot reach
 * though the map does not name them yet. */
static uint32_t tree_up_to(const struct hth_ctx *ctx)
{
    uint32_t self = ctx->epoch->self, node = self;

    do
        node = hth_tree_above(ctx, node);
    while (node != 0 && (tree_is_lost(ctx, node) || hth_tree_is_unreachable(ctx, self, node) ||
                                disconnected_at(ctx->tree, node) >= 0));
    return node;
}

static void gather_say(struct hth_ctx *ctx)
{
    struct hth_tree *t = ctx->tree;
    uint32_t parent = tree_up_to(ctx);

    if (t->len && PART + hth_get16(t->body) == t->len)
        tree_pass(ctx, parent, HTH_MSG_UP, t->body + PART, t->len - PART);
    else if (t->len)
        tree_pass(ctx, parent, HTH_MSG_UPS, t->body, t->len);
    t->len = 0;
}

static void gather_add(struct hth_ctx *ctx, const unsigned char *body, size_t len)
{
    struct hth_tree *t = ctx->tree;

    gather_of_this_epoch(ctx);
    if (t->len + PART + len > sizeof(t->body))
        gather_say(ctx);
    if (PART + len > sizeof(t->body)) {
        tree_pass(ctx, tree_up_to(ctx), HTH_MSG_UP, body, len);
        return;
    }
    if (!t->len)
        t->due_ms = hth_now_ms(&ctx->clock) + GATHER_MS;
    hth_put16(t->body + t->len, (uint16_t)len);
    hth_put16(t->body + t->len + 2, 0);
    memcpy(t->body + t->len + PART, body, len);
    t->len += PART + len;
}

void hth_tree_tick(struct hth_ctx *ctx)
{
    gather_of_this_epoch(ctx);
    if (ctx->tree->len && hth_now_ms(&ctx->clock) >= ctx->tree->due_ms)
        gather_say(ctx);
}

uint64_t hth_tree_due_ms(const struct hth_ctx *ctx)
{
    return ctx->tree->len ? ctx->tree->due_ms : HTH_NEVER;
}

/* ---- Up and down ----------------------------------------------------------------------------- */

static void tree_deliver(
        struct hth_ctx *ctx, uint32_t origin, uint16_t kind, const unsigned char *bytes, size_t len)
{
    ctx->tree->deliver(ctx->tree->self, origin, kind, bytes, len);
}

void hth_tree_up(struct hth_ctx *ctx, uint16_t kind, const void *bytes, size_t len)
{
    unsigned char body[HTH_BODY_MAX];

    if (!ctx->epoch || len > HTH_TREE_MAX)
        return;
    if (ctx->epoch->self == 0) {
        tree_deliver(ctx, 0, kind, bytes, len);
        return;
    }
    hth_put32(body, ctx->epoch->self);
    hth_put16(body + 4, kind);
    hth_put16(body + 6, 0);
    hth_put64(body + 8, ctx->life);
    hth_put64(body + 16, ++ctx->facts);
    if (len)
        memcpy(body + UP, bytes, len);
    gather_of_this_epoch(ctx);
    if ((uint64_t)ctx->epoch->self * tree_degree(ctx) + 1 < ctx->epoch->nodes)
        gather_add(ctx, body, UP + len);
    else
        tree_pass(ctx, tree_up_to(ctx), HTH_MSG_UP, body, UP + len);
}

void hth_tree_down(struct hth_ctx *ctx, uint16_t kind, const void *bytes, size_t len)
{
    unsigned char body[HTH_BODY_MAX] = { 0 };

    if (!ctx->epoch || len > HTH_TREE_MAX || ctx->epoch->self != 0)
        return;
    hth_put16(body, kind);
    if (len)
        memcpy(body + HEAD, bytes, len);
    tree_pass_down(ctx, body, HEAD + len);
    tree_deliver(ctx, 0, kind, body + HEAD, len);
}

void hth_tree_to(struct hth_ctx *ctx, uint32_t node, uint16_t kind, const void *bytes, size_t len)
{
    unsigned char body[HTH_BODY_MAX];
    uint32_t next;

    if (!ctx->epoch || len > HTH_TREE_MAX || ctx->epoch->self != 0 || node >= ctx->epoch->nodes)
        return;
    hth_put32(body, node);
    hth_put16(body + 4, kind);
    hth_put16(body + 6, 0);
    if (len)
        memcpy(body + HEAD, bytes, len);
    if (node == 0)
        tree_deliver(ctx, 0, kind, body + HEAD, len);
    else if ((next = tree_way_to(ctx, node)) != HTH_NODE_NONE)
        tree_pass(ctx, next, HTH_MSG_TO, body, HEAD + len);
}

static void tree_on_up(struct hth_ctx *ctx, uint32_t from, const unsigned char *body, size_t len)
{
    uint32_t origin = len < UP ? 0 : hth_get32(body);

    if (len < UP || from <= ctx->epoch->self || origin < from || origin >= ctx->epoch->nodes ||
            hth_get16(body + 6))
        return;
    if (ctx->epoch->self == 0) {
        if (ctx->tree->sign)
            ctx->tree->sign(ctx->tree->self, origin, hth_get64(body + 8), hth_get64(body + 16));
        tree_deliver(ctx, origin, hth_get16(body + 4), body + UP, len - UP);
        return;
    }
    gather_add(ctx, body, len);
}

/* Copies the bytes first: they belong to a connection, and a fact in them may end it. */
static void tree_on_ups(struct hth_ctx *ctx, uint32_t from, const unsigned char *bytes, size_t len)
{
    unsigned char body[HTH_BODY_MAX];
    size_t at = 0, part;

    if (len > sizeof(body))
        return;
    memcpy(body, bytes, len);
    for (; at + PART <= len && ctx->epoch; at += PART + part) {
        part = hth_get16(body + at);
        if (hth_get16(body + at + 2) || part > len - at - PART)
            return;
        tree_on_up(ctx, from, body + at + PART, part);
    }
}

static void tree_on_down(struct hth_ctx *ctx, uint32_t from, const unsigned char *body, size_t len)
{
    if (from >= ctx->epoch->self || hth_get16(body + 2) || hth_get32(body + 4))
        return;
    tree_pass_down(ctx, body, len); /* first: its delivery may change this node's children */
    tree_deliver(ctx, 0, hth_get16(body), body + HEAD, len - HEAD);
}

static void tree_on_to(struct hth_ctx *ctx, uint32_t from, const unsigned char *body, size_t len)
{
    uint32_t node = hth_get32(body), next;

    if (from >= ctx->epoch->self || node >= ctx->epoch->nodes || hth_get16(body + 6))
        return;
    if (node == ctx->epoch->self)
        tree_deliver(ctx, 0, hth_get16(body + 4), body + HEAD, len - HEAD);
    else if ((next = tree_way_to(ctx, node)) != HTH_NODE_NONE)
        tree_pass(ctx, next, HTH_MSG_TO, body, len);
}

int hth_tree_message(
        struct hth_ctx *ctx, uint32_t from, uint16_t type, const unsigned char *body, size_t len)
{
    if (type < HTH_MSG_UP || type > HTH_MSG_UPS)
        return 0;
    if (!ctx->epoch || len < HEAD)
        return 1;
    if (type == HTH_MSG_UP)
        tree_on_up(ctx, from, body, len);
    else if (type == HTH_MSG_DOWN)
        tree_on_down(ctx, from, body, len);
    else if (type == HTH_MSG_UPS)
        tree_on_ups(ctx, from, body, len);
    else
        tree_on_to(ctx, from, body, len);
    return 1;
}

void hth_tree_close(struct hth_ctx *ctx)
{
    free(ctx->tree);
    ctx->tree = NULL;
}
