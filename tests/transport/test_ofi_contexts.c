/* SPDX-License-Identifier: Apache-2.0 */
/* Operations' contexts on connected endpoints: memory that is the library's for as long as it may
 * use it. */
#include "check.h"

#include "transport/ofi/ofi.h"

#include <string.h>

static struct hth_ofi o;
static struct hth_ofi_conn a = { .link = { .o = &o, .id = UINT64_C(7) << 32 | 1 } };
static struct hth_ofi_conn b = { .link = { .o = &o, .id = UINT64_C(8) << 32 | 1 } };

#define NUMBER(conn, kind, index) \
    ((conn).link.id | (uint64_t)(kind) << 24 | (uint64_t)(index) << 16)

static void stop(void)
{
    hth_ofi_contexts_free(&o);
}

TestSuite(ofi_contexts, .fini = stop);

/* All that one connection can have under way. */
static unsigned char *context_at(uint32_t i)
{
    if (i < HTH_OFI_TAKEN)
        return hth_ofi_context(&a, HTH_OFI_RECV, i);
    if ((i -= HTH_OFI_TAKEN) < HTH_OFI_KEPT)
        return hth_ofi_context(&a, HTH_OFI_SEND, i);
    return hth_ofi_context(&a, HTH_OFI_PULL, i - HTH_OFI_KEPT);
}

Test(ofi_contexts, each_operation_has_memory_of_its_own_and_keeps_its_number)
{
    const uint32_t all = HTH_OFI_TAKEN + HTH_OFI_KEPT + HTH_OFI_RING;

    cr_assert(zero(int, hth_ofi_contexts_init(&a)));
    for (uint32_t i = 0; i < all; i++) /* the library's to write */
        memset(context_at(i), (int)i, sizeof(struct fi_context2));
    for (uint32_t i = 0; i < all; i++)
        for (uint32_t at = 0; at < sizeof(struct fi_context2); at++)
            cr_assert(eq(int, context_at(i)[at], (int)i));
    cr_assert(eq(u64, hth_ofi_context_number(hth_ofi_context(&a, HTH_OFI_PULL, 63)),
            NUMBER(a, HTH_OFI_PULL, 63)));
    cr_assert(eq(u64, hth_ofi_context_number(hth_ofi_context(&a, HTH_OFI_RECV, 0)),
            NUMBER(a, HTH_OFI_RECV, 0)));
    cr_assert(zero(u64, hth_ofi_context_number(NULL)));
    hth_ofi_contexts_fini(&a);
}

/* A completion that is read after its connection's end finds who it was, and not who came next. */
Test(ofi_contexts, they_are_another_connections_only_when_the_queue_was_empty)
{
    void *late, *next;

    cr_assert(zero(int, hth_ofi_contexts_init(&a)));
    late = hth_ofi_context(&a, HTH_OFI_SEND, 3);
    hth_ofi_contexts_fini(&a);
    cr_assert(zero(int, hth_ofi_contexts_init(&b)));
    next = hth_ofi_context(&b, HTH_OFI_SEND, 3);
    cr_assert(ne(ptr, late, next));
    cr_assert(eq(u64, hth_ofi_context_number(late), NUMBER(a, HTH_OFI_SEND, 3)));
    hth_ofi_contexts_drained(&o);
    cr_assert(zero(int, hth_ofi_contexts_init(&a)));
    cr_assert(eq(
            ptr, hth_ofi_context(&a, HTH_OFI_SEND, 3), late)); /* no more memory than is needed */
    hth_ofi_contexts_fini(&a);
    hth_ofi_contexts_fini(&b);
}
