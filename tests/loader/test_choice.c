/* SPDX-License-Identifier: Apache-2.0 */
/* What the coordinator makes of that which the members say they hold. */
#include "check.h"
#include "pair.h"

#include "core/base/bytes.h"
#include "loader/choice/choice.h"
#include "loader/plan/plan.h"
#include <stdlib.h>
#include <unistd.h>

enum { NODES = 3 };

static struct pair *p;
static struct hth_restore *restore;
static struct hth_choice *choice;

static void on_end(void *self, int code, const struct hearth_error *err, struct hth_save_id save,
        const struct hearth_recovery *info)
{
    (void)self, (void)code, (void)err, (void)save, (void)info;
}

static void begin(void)
{
    alarm(60);
    p = pair_open(NODES);
    must(hth_restore_open(&p->node[0].ctx, on_end, NULL, &restore, NULL));
    must(hth_choice_open(&p->node[0].ctx, restore, &choice, NULL));
}

static void end(void)
{
    hth_choice_close(choice);
    hth_restore_close(restore);
    pair_close(p);
}

TestSuite(choice, .init = begin, .fini = end);

/* `node` tells in one part that it holds nothing but this record. */
static void say_keep(uint32_t node, const struct hth_keep *keep)
{
    struct hth_inventory inv = { .store = node + 1, .keep = *keep };
    size_t len = 8 + hth_inventory_bytes(&inv);
    unsigned char *part = malloc(len);

    cr_assert(part != NULL);
    hth_put32(part, 0);
    hth_put32(part + 4, 1);
    hth_inventory_encode(&inv, part + 8);
    hth_choice_deliver(choice, node, HTH_KIND_INVENTORY, part, len);
    free(part);
}

static struct hth_keep keep_of(uint64_t epoch, uint64_t serial)
{
    return (struct hth_keep){
        .epoch = epoch, .serial = serial, .saves = 1, .save = { { epoch, 77, 10 * serial, 1 } }
    };
}

Test(choice, of_all_keep_records_the_last_decision_counts)
{
    struct hth_keep *ours = &p->node[0].ctx.keep;
    struct hth_keep said[NODES] = { keep_of(5, 3), keep_of(5, 9), keep_of(4, 20) };

    for (uint32_t first = 0; first < NODES;
            first++) { /* whoever has it, and before or after others */
        hth_choice_join(choice);
        *ours = keep_of(5, 4);
        for (uint32_t n = 0; n < NODES; n++)
            say_keep(n, &said[(first + n) % NODES]);
        cr_assert(eq(u64, ours->epoch, 5));
        cr_assert(eq(u64, ours->serial, 9));
        cr_assert(eq(u64, ours->save[0].step, 90));
    }
}

Test(choice, our_own_keep_record_stays_where_nobody_has_a_later_one)
{
    struct hth_keep *ours = &p->node[0].ctx.keep;
    struct hth_keep said[NODES] = { keep_of(5, 3), keep_of(5, 9), keep_of(4, 20) };

    hth_choice_join(choice);
    *ours = keep_of(5, 10);
    for (uint32_t n = 0; n < NODES; n++)
        say_keep(n, &said[n]);
    cr_assert(eq(u64, ours->serial, 10));
    cr_assert(eq(u64, ours->save[0].step, 100));
}
