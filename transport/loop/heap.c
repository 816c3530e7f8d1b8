/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A pairing heap (Fredman, Sedgewick, Sleator, Tarjan 1986): push is one comparison, pop pairs
 * the children up from left to right and folds the pairs from right to left.
 */
#include "heap.h"

static int due_before(const struct hth_due *a, const struct hth_due *b)
{
    return a->ms != b->ms ? a->ms < b->ms : a->seq < b->seq;
}

static struct hth_due *heap_meld(struct hth_due *a, struct hth_due *b)
{
    struct hth_due *first, *second;

    if (!a || !b)
        return a ? a : b;
    first = due_before(a, b) ? a : b;
    second = first == a ? b : a;
    second->next = first->child;
    first->child = second;
    first->next = NULL;
    return first;
}

void hth_heap_push(struct hth_due **heap, struct hth_due *due)
{
    due->child = due->next = NULL;
    *heap = heap_meld(*heap, due);
}

struct hth_due *hth_heap_pop(struct hth_due **heap)
{
    struct hth_due *top = *heap, *pairs = NULL, *rest = NULL, *at;

    if (!top)
        return NULL;
    at = top->child;
    while (at) {
        struct hth_due *second = at->next, *after = second ? second->next : NULL, *pair;

        at->next = NULL;
        if (second)
            second->next = NULL;
        pair = heap_meld(at, second);
        pair->next = pairs;
        pairs = pair;
        at = after;
    }
    while (pairs) {
        struct hth_due *after = pairs->next;

        pairs->next = NULL;
        rest = heap_meld(rest, pairs);
        pairs = after;
    }
    *heap = rest;
    top->child = NULL;
    return top;
}
