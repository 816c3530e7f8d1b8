/* SPDX-License-Identifier: Apache-2.0 */
/* A few nodes, and at one of them the parts of a recovery that a test talks to. */
#ifndef HEARTH_TESTS_LOADER_RIG_H
#define HEARTH_TESTS_LOADER_RIG_H

#include "check.h"
#include "pair.h"

#include "core/base/bytes.h"
#include "core/base/crc.h"
#include "loader/choice/choice.h"
#include "loader/plan/plan.h"
#include "loader/restore/restore.h"
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static struct pair *p;
static struct hth_restore *restore;
static struct hth_choice *choice;
static struct {
    int times, code; /* of the last */
    char text[HEARTH_ERROR_TEXT];
    struct hearth_recovery info;
} ended;

static inline void rig_on_end(void *self, int code, const struct hearth_error *err,
        struct hth_save_id save, const struct hearth_recovery *info)
{
    (void)self, (void)save;
    ended.info = *info;
    ended.times++;
    ended.code = code;
    snprintf(ended.text, sizeof(ended.text), "%s", err ? err->text : "");
}

/* As an engine of `node` that has just started. */
static inline void rig_start(uint32_t node)
{
    must(hth_restore_open(&p->node[node].ctx, rig_on_end, NULL, &restore, NULL));
    must(hth_choice_open(&p->node[node].ctx, restore, &choice, NULL));
}

static inline void rig_stop(void)
{
    pair_works(p); /* an engine's workers end before it */
    hth_choice_close(choice);
    hth_restore_close(restore);
}

/* Rank n is on node n. */
static inline void rig_open(uint32_t nodes, uint32_t node)
{
    static uint32_t rank_node[] = { 0, 1, 2, 3 };

    alarm(60);
    p = pair_open(nodes);
    p->node[node].epoch.rank_node = rank_node;
    p->node[node].epoch.world = nodes;
    rig_start(node);
}

static inline void rig_close(void)
{
    rig_stop();
    for (uint32_t n = 0; n < p->nodes; n++)
        p->node[n].epoch.rank_node = NULL;
    pair_close(p);
}

/* Plans up to it are void to the members that tell: they have received all that there were. */
static uint32_t rig_void = UINT32_MAX;

/* `node` reports to the coordinator in one part that it holds this record and these saves. */
static inline void rig_tell(
        uint32_t node, const struct hth_keep *keep, struct hth_seen_save *seen, uint32_t saves)
{
    struct hth_inventory inv = { .store = node + 1, .keep = *keep, .save = seen, .saves = saves };
    size_t len = HTH_INVENTORY_HEAD + hth_inventory_bytes(&inv);
    unsigned char *part = malloc(len);

    cr_assert(part != NULL);
    hth_put32(part, 0);
    hth_put32(part + 4, 1);
    hth_put32(part + 8, rig_void);
    hth_inventory_encode(&inv, part + HTH_INVENTORY_HEAD);
    hth_put32(part + 12, hth_crc32c(part + HTH_INVENTORY_HEAD, len - HTH_INVENTORY_HEAD));
    hth_choice_deliver(choice, node, HTH_KIND_INVENTORY, part, len);
    free(part);
}

static inline struct hth_keep rig_keep(uint64_t epoch, uint64_t serial)
{
    return (struct hth_keep){
        .epoch = epoch, .serial = serial, .saves = 1, .save = { { epoch, 77, 10 * serial, 1 } }
    };
}

#endif
