/* SPDX-License-Identifier: Apache-2.0 */
/* What a member says of a save, as the coordinator hears it. */
#include "check.h"
#include "pair.h"

#include "replication/commit/commit.h"
#include <string.h>
#include <unistd.h>

#define TEXT_AT 36u /* of FAILED: behind the save and the code */

static const struct hth_save_id save = { 7, 77, 5, 1 };
static struct pair *p;
static struct hth_commit *commit; /* of node 1 */

static void on_level(void *self, struct hth_save_id id, uint32_t rank, enum hearth_level level,
        int degraded, int code, const char *text)
{
    (void)self, (void)id, (void)rank, (void)level, (void)degraded, (void)code, (void)text;
}

static void begin(void)
{
    static uint32_t rank_node[2] = { 0, 1 };
    struct hth_commit_events events = { .on_level = on_level };

    alarm(60);
    p = pair_open(2);
    p->node[1].epoch.rank_node = rank_node;
    must(hth_commit_open(&p->node[1].ctx, &events, &commit, NULL));
    must(hth_commit_join(commit, NULL));
}

static void end(void)
{
    hth_commit_close(commit);
    p->node[1].epoch.rank_node = NULL;
    pair_close(p);
}

TestSuite(commit, .init = begin, .fini = end);

Test(commit, a_failure_that_is_said_again_has_the_same_reason)
{
    const struct pair_node *coordinator = &p->node[0];
    unsigned char first[HTH_TREE_MAX + 1];
    size_t len;

    hth_commit_fail(commit, save, HEARTH_EIO, "the disk is full");
    cr_assert(pair_until(p, &coordinator->delivered, 1, 1000));
    cr_assert(eq(u16, coordinator->kind, HTH_KIND_FAILED));
    len = coordinator->len;
    memcpy(first, coordinator->fact, len);
    first[len] = '\0';
    cr_assert(ne(ptr, strstr((char *)first + TEXT_AT, "the disk is full"), NULL));
    for (uint32_t n = 2; n <= 4; n++) {
        pair_run(p, 200);
        p->now_ms += 200;
        hth_commit_tick(commit);
        cr_assert(pair_until(p, &coordinator->delivered, n, 1000));
        cr_assert(eq(sz, coordinator->len, len), "said %u times", n);
        cr_assert(zero(int, memcmp(coordinator->fact, first, len)), "said %u times", n);
    }
}
