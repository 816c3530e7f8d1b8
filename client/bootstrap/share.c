/* SPDX-License-Identifier: Apache-2.0 */
/* The order in which ranks receive the table, and from where: three queues. */
#include "share.h"

#include <stdlib.h>

#define NONE  UINT32_MAX
#define TRIES 3u /* fetches of a house that may fail */
#define SPARE 8u /* fetches of all houses that may fail beyond twice those that went well */

enum house_state { HOUSE_WAITS, HOUSE_FETCHES, HOUSE_HAS };
enum rank_state { RANK_AWAY, RANK_WAITS, RANK_ANSWERED, RANK_HAS };

/* Of numbers below `size`, each in it once at most. */
struct queue {
    uint32_t first, last;
    uint32_t *next; /* [size]; OUT: it is not in the queue */
};
#define OUT (UINT32_MAX - 1)

struct house {
    uint32_t first, count; /* in order[] */
    enum house_state state;
    uint32_t rank; /* FETCHES: that was answered */
    int from_rank_0;
    uint32_t tries, children;
};

struct hth_share {
    uint32_t world, houses;
    int tree;
    uint32_t *order;      /* [world] ranks by node, those of none left out */
    uint32_t *house_of;   /* [world] NONE: it has no engine */
    unsigned char *rank;  /* [world] enum rank_state */
    unsigned char *lacks; /* [world] its engine has the table, and it did not receive it there */
    struct house *house;  /* [houses] */
    struct queue ranks;   /* to be answered whatever other houses do */
    struct queue waiting; /* houses */
    struct queue sources; /* houses that have the table, and fewer children than they may */
    uint32_t fetching;    /* houses */
    uint32_t failed, fetched; /* fetches from other houses */
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

/* ---- houses ---------------------------------------------------------------------------------- */

struct inmate {
    uint64_t node;
    uint32_t rank;
};

static int inmate_cmp(const void *a, const void *b)
{
    const struct inmate *x = a, *y = b;

    return x->node != y->node ? (x->node < y->node ? -1 : 1) : (x->rank > y->rank) - 1;
}

static void houses_fill(struct hth_share *s, const struct inmate *all)
{
    uint32_t placed = 0;

    for (uint32_t i = 0; i < s->world; i++) {
        if (!all[i].node) {
            s->house_of[all[i].rank] = NONE;
            continue;
        }
        if (!placed || all[i].node != all[i - 1].node)
            s->house[s->houses++] = (struct house){ .first = placed, .rank = NONE };
        s->house[s->houses - 1].count++;
        s->house_of[all[i].rank] = s->houses - 1;
        s->order[placed++] = all[i].rank;
    }
}

static void house_has(struct hth_share *s, uint32_t h)
{
    struct house *house = &s->house[h];

    house->state = HOUSE_HAS;
    queue_add(&s->sources, h);
    for (uint32_t i = house->first; i < house->first + house->count; i++)
        if (s->rank[s->order[i]] == RANK_WAITS)
            queue_add(&s->ranks, s->order[i]);
}

struct hth_share *hth_share_open(const uint64_t *node, uint32_t world)
{
    struct hth_share *s = calloc(1, sizeof(*s));
    struct inmate *all = calloc(world, sizeof(*all));
    int whole = s && all;

    for (uint32_t r = 0; whole && r < world; r++)
        all[r] = (struct inmate){ node[r], r };
    if (whole) {
        s->world = world;
        s->order = calloc(world, sizeof(*s->order));
        s->house_of = calloc(world, sizeof(*s->house_of));
        s->rank = calloc(world, 1);
        s->lacks = calloc(world, 1);
        s->house = calloc(world, sizeof(*s->house));
        whole = queue_init(&s->ranks, world) & queue_init(&s->waiting, world) &
                        queue_init(&s->sources, world) &&
                s->order && s->house_of && s->rank && s->lacks && s->house;
    }
    if (whole) {
        qsort(all, world, sizeof(*all), inmate_cmp);
        houses_fill(s, all);
    }
    free(all);
    if (whole)
        return s;
    hth_share_close(s);
    return NULL;
}

uint32_t hth_share_houses(const struct hth_share *s)
{
    return s->houses;
}

uint32_t hth_share_mates(const struct hth_share *s, uint32_t rank)
{
    uint32_t h = s->house_of[rank];

    return h == NONE ? 0 : s->house[h].count - 1;
}

void hth_share_begin(struct hth_share *s, int brought, int tree)
{
    s->tree = tree;
    s->rank[0] = RANK_HAS;
    if (brought && s->house_of[0] != NONE)
        house_has(s, s->house_of[0]);
}

void hth_share_close(struct hth_share *s)
{
    if (!s)
        return;
    free(s->order);
    free(s->house_of);
    free(s->rank);
    free(s->lacks);
    free(s->house);
    free(s->ranks.next);
    free(s->waiting.next);
    free(s->sources.next);
    free(s);
}

/* ---- what ranks do --------------------------------------------------------------------------- */

void hth_share_waits(struct hth_share *s, uint32_t rank)
{
    uint32_t h = s->house_of[rank];

    s->rank[rank] = RANK_WAITS;
    if (h == NONE || s->house[h].state == HOUSE_HAS)
        queue_add(&s->ranks, rank);
    else if (s->house[h].state == HOUSE_WAITS)
        queue_add(&s->waiting, h);
}

/* Another rank of the house may fetch it. */
static void house_fails(struct hth_share *s, uint32_t h)
{
    struct house *house = &s->house[h];

    house->state = HOUSE_WAITS;
    house->rank = NONE;
    house->tries++;
    s->fetching--;
    s->failed += !house->from_rank_0;
    queue_add(&s->waiting, h);
}

void hth_share_gone(struct hth_share *s, uint32_t rank)
{
    uint32_t h = s->house_of[rank];
    int answered = s->rank[rank] == RANK_ANSWERED;

    s->rank[rank] = RANK_AWAY;
    if (h == NONE || !answered)
        return;
    if (s->house[h].state == HOUSE_FETCHES && s->house[h].rank == rank)
        house_fails(s, h);
    else if (s->house[h].state == HOUSE_HAS)
        s->lacks[rank] = 1;
}

void hth_share_has(struct hth_share *s, uint32_t rank)
{
    uint32_t h = s->house_of[rank];
    struct house *house = h == NONE ? NULL : &s->house[h];

    s->rank[rank] = RANK_HAS;
    if (!house || house->state != HOUSE_FETCHES || house->rank != rank)
        return;
    s->fetching--;
    s->fetched += !house->from_rank_0;
    house_has(s, h);
}

/* ---- who is next ----------------------------------------------------------------------------- */

static int share_rank(struct hth_share *s, struct hth_handing *out)
{
    uint32_t rank;

    while ((rank = queue_take(&s->ranks)) != NONE) {
        if (s->rank[rank] != RANK_WAITS)
            continue;
        *out = (struct hth_handing){ .rank = rank,
            .where = s->house_of[rank] == NONE || s->lacks[rank] ? HTH_TABLE_HERE
                                                                 : HTH_TABLE_AT_NODE };
        s->rank[rank] = RANK_ANSWERED;
        return 1;
    }
    return 0;
}

/* NONE: none of its ranks waits. */
static uint32_t house_rank(const struct hth_share *s, const struct house *house)
{
    for (uint32_t i = house->first; i < house->first + house->count; i++)
        if (s->rank[s->order[i]] == RANK_WAITS)
            return s->order[i];
    return NONE;
}

/* A house that has the table, for one fetch more. */
static uint32_t share_source(struct hth_share *s)
{
    uint32_t h = queue_take(&s->sources);

    if (h != NONE && ++s->house[h].children < HTH_SHARE_CHILDREN)
        queue_add(&s->sources, h);
    return h;
}

static int share_house(struct hth_share *s, struct hth_handing *out)
{
    uint32_t h, source = NONE, rank = NONE;
    struct house *house = NULL;
    int direct = 0;

    while (rank == NONE && (h = s->waiting.first) != NONE) {
        house = &s->house[h];
        direct = !s->tree || house->tries >= TRIES || s->failed > SPARE + 2 * s->fetched;
        if (!direct && s->sources.first == NONE && s->fetching)
            return 0; /* what fetches now is a source soon, or fails */
        queue_take(&s->waiting);
        rank = house->state == HOUSE_WAITS ? house_rank(s, house) : NONE;
    }
    if (rank == NONE)
        return 0;
    if (!direct)
        source = share_source(s);
    house->state = HOUSE_FETCHES;
    house->rank = rank;
    house->from_rank_0 = source == NONE;
    s->fetching++;
    s->rank[rank] = RANK_ANSWERED;
    *out = (struct hth_handing){ .rank = rank,
        .where = s->tree || house->count > 1 ? HTH_TABLE_FOR_NODE : HTH_TABLE_HERE };
    if (source != NONE) {
        out->where = HTH_TABLE_AT_OTHER;
        out->source = s->order[s->house[source].first];
    }
    return 1;
}

int hth_share_next(struct hth_share *s, struct hth_handing *out)
{
    return share_rank(s, out) || share_house(s, out);
}
