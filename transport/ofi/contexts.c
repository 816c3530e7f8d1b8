/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory that an operation's context points to. A provider may ask for memory of its own there
 * (FI_CONTEXT, FI_CONTEXT2), which is the operation's until its completion is read or its endpoint
 * is closed. Behind it is a number that says what the operation was.
 *
 * A connection's contexts outlive it: a completion that is read late still finds the number, and no
 * connection of that id. They are another connection's only after the queue was once empty.
 */
#include "ofi.h"

#include <stdlib.h>

#define SENDS HTH_OFI_TAKEN
#define PULLS (SENDS + HTH_OFI_KEPT)
#define ALL   (PULLS + HTH_OFI_RING)

struct context {
    struct fi_context2 library; /* first, so that one pointer is both */
    uint64_t number;
};

struct hth_ofi_contexts {
    struct hth_ofi_contexts *next;
    struct context context[ALL];
};

int hth_ofi_contexts_init(struct hth_ofi_conn *c)
{
    struct hth_ofi *o = c->link.o;

    c->contexts = o->contexts_free;
    if (c->contexts)
        o->contexts_free = c->contexts->next;
    else
        c->contexts = calloc(1, sizeof(*c->contexts));
    return c->contexts ? 0 : -FI_ENOMEM;
}

void hth_ofi_contexts_fini(struct hth_ofi_conn *c)
{
    if (!c->contexts)
        return;
    c->contexts->next = c->link.o->contexts_late;
    c->link.o->contexts_late = c->contexts;
    c->contexts = NULL;
}

void *hth_ofi_context(struct hth_ofi_conn *c, enum hth_ofi_kind kind, uint32_t index)
{
    uint32_t first = kind == HTH_OFI_PULL ? PULLS : kind == HTH_OFI_SEND ? SENDS : 0;
    struct context *x = &c->contexts->context[first + index];

    x->number = c->link.id | (uint64_t)kind << 24 | (uint64_t)index << 16;
    return x;
}

uint64_t hth_ofi_context_number(const void *context)
{
    return context ? ((const struct context *)context)->number : 0;
}

void hth_ofi_contexts_drained(struct hth_ofi *o)
{
    struct hth_ofi_contexts *x;

    while ((x = o->contexts_late)) {
        o->contexts_late = x->next;
        x->next = o->contexts_free;
        o->contexts_free = x;
    }
}

void hth_ofi_contexts_free(struct hth_ofi *o)
{
    struct hth_ofi_contexts *x;

    hth_ofi_contexts_drained(o);
    while ((x = o->contexts_free)) {
        o->contexts_free = x->next;
        free(x);
    }
}
