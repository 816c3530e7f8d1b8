/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The model's ears: heads of an epoch's log on their way from its coordinator, decoded here. A head
 * that is sent is on its sender's record by then, and no two heads of an epoch have one position,
 * whatever dies in between.
 */
#include "world_parts.h"

#include <stdlib.h>
#include <string.h>

#define FIXED 2208u /* bytes of a head before the length of its map */
#define HEADS 4096u /* are remembered */

struct world_heard { /* by position */
    struct told {
        uint64_t epoch, nonce, position, sum;
    } head[HEADS];
};

struct world_heard *heard_open(void)
{
    struct world_heard *h = calloc(1, sizeof(*h));

    if (!h)
        abort();
    return h;
}

void heard_close(struct world_heard *h)
{
    free(h);
}

static uint64_t word_at(const unsigned char *p)
{
    uint64_t v = 0;

    for (int i = 8; i-- > 0;)
        v = v << 8 | p[i];
    return v;
}

static uint64_t sum_of(const unsigned char *p)
{
    uint64_t sum = 0xcbf29ce484222325u;

    for (uint32_t i = 0; i < FIXED; i += 8)
        sum = (sum ^ word_at(p + i)) * 0x100000001b3u;
    return sum;
}

static struct told told_at(const unsigned char *p)
{
    return (struct told){ word_at(p + 16), word_at(p + 24), word_at(p + 32), sum_of(p) };
}

static const unsigned char *record_of(const struct machine *x)
{
    for (const struct file *f = x->store ? mem_of(x->store)->files : NULL; f; f = f->next)
        if (!f->dir && strcmp(f->name, "head") == 0 && f->len >= FIXED)
            return f->bytes;
    return NULL;
}

/* The record has that head, or a later one of its epoch. */
static int is_on_record(const struct machine *x, const struct told *t)
{
    const unsigned char *b = record_of(x);
    struct told on;

    if (!b)
        return 0;
    on = told_at(b);
    return on.epoch == t->epoch && on.nonce == t->nonce &&
           (on.position > t->position || (on.position == t->position && on.sum == t->sum));
}

int heard_first_map(const struct machine *x)
{
    const unsigned char *b = record_of(x);

    return b && word_at(b + 40) == 0;
}

static void hear(struct world *w, const struct machine *x, const struct told *t)
{
    struct told *was = &w->told->head[t->position % HEADS];

    if (was->epoch == t->epoch && was->nonce == t->nonce && was->position == t->position &&
            was->sum != t->sum)
        world_broken(w, "P6: two heads of epoch %llu have position %llu",
                (unsigned long long)t->epoch, (unsigned long long)t->position);
    *was = *t;
    if (!is_on_record(x, t))
        world_broken(w, "P6: machine %u tells head %llu of epoch %llu, which is not on its record",
                x->index, (unsigned long long)t->position, (unsigned long long)t->epoch);
}

void heard_word(struct world *w, uint32_t port, const void *bytes, size_t len)
{
    struct machine *x = port && port <= w->machines ? &w->machine[port - 1] : NULL;
    const unsigned char *at;
    const struct hth_ctx *ctx;
    struct told t;

    if (len < FIXED || !x || !x->node || !x->store || w->opts.deaf)
        return;
    ctx = hth_node_ctx(x->node);
    if (!hth_is_coordinator(ctx) || !(at = memmem(bytes, len, "HTHHEADS", 8)) ||
            (size_t)(at - (const unsigned char *)bytes) + FIXED > len)
        return;
    t = told_at(at);
    if (t.epoch == ctx->epoch->epoch && t.nonce == ctx->epoch->nonce)
        hear(w, x, &t);
}
