/* SPDX-License-Identifier: Apache-2.0 */
/* The order in which nodes receive the table, and from where: two queues. */
#include "share.h"

#include <stdlib.h>

#define NONE  UINT32_MAX
#define TRIES 3u /* fetches of a node that may fail */
#define SPARE 8u /* fetches of all nodes that may fail beyond twice those that went well */

enum node_state { NODE_AWAY, NODE_WAITS, NODE_FETCHES, NODE_HAS };

/* Of numbers below `size`, each in it once at most. */
struct queue {
    uint32_t first, last;
    uint32_t *next; /* [size]; OUT: it is not in the queue */
};
#define OUT (UINT32_MAX - 1)

struct node {
    enum node_state state;
    int alone;     /* it neither fetches nor gives */
    int from_host; /* FETCHES */
    uint32_t tries, children;
};

struct hth_share {
    int tree;
    struct node *node;
    struct queue waiting;
    struct queue sources;     /* nodes that have the table, and fewer children than they may */
    uint32_t fetching;        /* nodes */
    uint32_t failed, fetched; /* fetches from other nodes */
};

/* ---- queues ---------------------------------------------------------------------------------- */

static int queue_init(struct queue *q, uint32_t size)
{
    q->first = q->last = NONE;
    q->next = malloc((size_t)size * sizeof(*q->next) + 1);
    for (uint32_t i = 0; q->next && i < size; i++)
        q->next[i] = OUT;
    return q->next != NULL;
}

static void queue_add(struct queue *q, uint32_t i)
{
    if (q->next[i] != OUT)
        return;
    q->next[i] = NONE;
    *(q->first == NONE ? &q->first : &q->next[q->last]) = i;
    q->last = i;
}

static uint32_t queue_take(struct queue *q)
{
    uint32_t i = q->first;

    if (i == NONE)
        return NONE;
    q->first = q->next[i];
    q->next[i] = OUT;
    return i;
}

/* ---- what nodes do --------------------------------------------------------------------------- */

struct hth_share *hth_share_open(uint32_t nodes, const unsigned char *fetches, int tree)
{
    struct hth_share *s = calloc(1, sizeof(*s));

    if (!s)
        return NULL;
    s->tree = tree;
    s->node = calloc(nodes, sizeof(*s->node));
    if (!(queue_init(&s->waiting, nodes) & queue_init(&s->sources, nodes)) || !s->node) {
        hth_share_close(s);
        return NULL;
    }
    for (uint32_t i = 0; i < nodes; i++)
        s->node[i].alone = !fetches[i];
    return s;
}

void hth_share_close(struct hth_share *s)
{
    if (!s)
        return;
    free(s->node);
    free(s->waiting.next);
    free(s->sources.next);
    free(s);
}

static void share_fetch_ends(struct hth_share *s, struct node *n, int well)
{
    if (n->state != NODE_FETCHES)
        return;
    s->fetching--;
    n->tries += !well;
    if (!n->from_host)
        ++*(well ? &s->fetched : &s->failed);
}

void hth_share_waits(struct hth_share *s, uint32_t node)
{
    if (s->node[node].state == NODE_HAS)
        return;
    share_fetch_ends(s, &s->node[node], 0);
    s->node[node].state = NODE_WAITS;
    queue_add(&s->waiting, node);
}

void hth_share_gone(struct hth_share *s, uint32_t node)
{
    if (s->node[node].state == NODE_HAS)
        return;
    share_fetch_ends(s, &s->node[node], 0);
    s->node[node].state = NODE_AWAY;
}

void hth_share_has(struct hth_share *s, uint32_t node)
{
    share_fetch_ends(s, &s->node[node], 1);
    s->node[node].state = NODE_HAS;
    if (!s->node[node].alone)
        queue_add(&s->sources, node);
}

/* ---- which is next --------------------------------------------------------------------------- */

/* A node that has the table, for one fetch more. */
static uint32_t share_source(struct hth_share *s)
{
    uint32_t i = queue_take(&s->sources);

    if (i != NONE && ++s->node[i].children < HTH_SHARE_CHILDREN)
        queue_add(&s->sources, i);
    return i;
}

static int share_is_direct(const struct hth_share *s, const struct node *n)
{
    return !s->tree || n->alone || n->tries >= TRIES || s->failed > SPARE + 2 * s->fetched;
}

int hth_share_next(struct hth_share *s, struct hth_handing *out)
{
    uint32_t i;

    while ((i = s->waiting.first) != NONE) {
        struct node *n = &s->node[i];
        int direct = share_is_direct(s, n);

        if (n->state == NODE_WAITS && !direct && s->sources.first == NONE && s->fetching)
            return 0; /* a node that fetches now is a source soon, or fails */
        queue_take(&s->waiting);
        if (n->state != NODE_WAITS)
            continue;
        *out = (struct hth_handing){ i, direct ? HTH_SHARE_HOST : share_source(s) };
        n->from_host = out->source == HTH_SHARE_HOST;
        n->state = NODE_FETCHES;
        s->fetching++;
        return 1;
    }
    return 0;
}
