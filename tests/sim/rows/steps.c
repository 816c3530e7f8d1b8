/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of saves that ranks name, begin and hand over in orders of all kinds. */
#include "rows.h"

#include "core/format/handed.h"
#include "core/format/table.h"
#include "replication/held/holdings.h"
#include "replication/transfer/transfer.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Each rank begins one of two steps, and no rank begins both. The two saves fail well before their
 * deadline, and saving goes on. */
void steps_differ(struct world *w)
{
    uint64_t step, since_ms, failed;

    must_save(w, 2, "at first");
    step = w->rank[0].next;
    failed = w->count[WORLD_FAILED];
    since_ms = w->now_ms;
    for (uint32_t r = 0; r < w->ranks; r++) {
        w->rank[r].next = step + r % 2;
        rank_due(&w->rank[r], w->now_ms + 1 + r % 2);
    }
    world_advance(w, w->now_ms + 3);
    script_rest(w);
    if (w->count[WORLD_FAILED] != failed + w->ranks)
        world_broken(w, "%llu of %u ranks that name different steps hear an error",
                (unsigned long long)(w->count[WORLD_FAILED] - failed), w->ranks);
    if (!strstr(w->heard, "name different steps"))
        world_broken(w, "another reason: %.200s", w->heard);
    if (w->now_ms - since_ms > SAVE_MS - 2000)
        world_broken(
                w, "the ranks heard it after %llu ms", (unsigned long long)(w->now_ms - since_ms));
    for (uint32_t r = 0; r < w->ranks; r++)
        w->rank[r].next = step + 2;
    must_save(w, 3, "after two different steps");
}

/* One step in five is saved by a set of ranks, and half of these by all ranks right after it. Ranks
 * of the set have begun the step twice then, the others once, and no save fails for that. */
void sets(struct world *w)
{
    script_go(w);
    world_advance(w, w->now_ms + 100000);
    if (w->count[WORLD_SOME] < 10)
        world_broken(w, "%llu saves of some ranks", (unsigned long long)w->count[WORLD_SOME]);
    if (w->count[WORLD_FAILED])
        world_broken(w, "%llu ranks hear an error: %.200s",
                (unsigned long long)w->count[WORLD_FAILED], w->heard);
}

/* Helpers of each rank, which write a save each at the same time. */
#define WRITER 80000u

static struct writer {
    struct hth_local_lent lent;
    uint32_t errors, level;
} writer[8][3];

static void hear_writer(struct world *w, const struct letter *l)
{
    uint32_t n = l->client - WRITER;
    const struct hth_local_head *head = (const void *)l->bytes;
    struct writer *x;

    (void)w;
    if (n >= 24)
        return;
    x = &writer[n / 3][n % 3];
    if (head->type == HTH_LOCAL_LENT)
        x->lent = *(const struct hth_local_lent *)(const void *)l->bytes;
    x->errors += head->type == HTH_LOCAL_ERROR;
    if (head->type == HTH_LOCAL_EVENT) {
        const struct hth_local_event *e = (const void *)l->bytes;

        x->errors += e->code != 0;
        x->level = e->level;
    }
}

static void writer_says(struct world *w, uint32_t node, uint32_t which, void *message, uint32_t len,
        uint32_t type, const void *attach, size_t attach_len)
{
    const struct hth_local_head head = { len, type, 1, writer[node][which].lent.head.token };

    memcpy(message, &head, sizeof(head));
    machine_ask(&w->machine[w->member[node]], WRITER + 3 * node + which, message, len, attach,
            attach_len);
    world_advance(w, w->now_ms + 1);
}

static void writer_asks(
        struct world *w, uint32_t node, uint32_t which, uint64_t step, uint32_t wait_ms)
{
    struct hth_local_attach attach = { .version = hth_version_written(HTH_FORMAT_LOCAL),
        .rank = node,
        .world = w->ranks,
        .helper = 1,
        .job = "sim" };
    struct hth_local_begin begin = { .step = step, .bytes = 4 * HTH_BLOCK, .wait_ms = wait_ms };

    snprintf(begin.name, sizeof(begin.name), "__%u__0_src%u.distcp", node, node);
    writer_says(w, node, which, &attach, sizeof(attach), HTH_LOCAL_ATTACH, NULL, 0);
    writer_says(w, node, which, &begin, sizeof(begin), HTH_LOCAL_BEGIN, NULL, 0);
}

static void writer_begins(struct world *w, uint32_t node, uint32_t which, uint64_t step)
{
    writer_asks(w, node, which, step, 1000);
    world_advance(w, w->now_ms + 50);
    if (!writer[node][which].lent.slot)
        world_broken(w, "node %u: no slot for step %llu", node, (unsigned long long)step);
}

static void writer_commits(struct world *w, uint32_t node, uint32_t which)
{
    const struct hth_local_lent *lent = &writer[node][which].lent;
    struct hth_slot *slot = hth_node_lent(world_node(w, w->member[node]), lent->slot);
    uint64_t step = lent->save.step, tag = rank_tag(w->lineage, lent->save.attempt);
    uint64_t len = rank_bytes(w->lineage, step, node, w->opts.data_max);
    struct hth_local_seal seal = { .slot = lent->slot,
        .generation = lent->generation,
        .data_len = len,
        .items_len = hth_item_bytes(0, 8),
        .items = 1 };
    struct hth_local_common common = { .name = WORLD_COMMON };
    unsigned char bytes[WORLD_COMMON_MAX];
    struct hth_local_head commit;

    if (!slot)
        return;
    rank_write(slot, len, tag, step, node);
    writer_says(w, node, which, &seal, sizeof(seal), HTH_LOCAL_SEAL, NULL, 0);
    if (node == step % w->ranks) {
        common.len = world_common(bytes, tag, step);
        writer_says(w, node, which, &common, sizeof(common), HTH_LOCAL_COMMON, bytes, common.len);
    }
    writer_says(w, node, which, &commit, sizeof(commit), HTH_LOCAL_COMMIT, NULL, 0);
}

static void must_be_protected(struct world *w, uint32_t which)
{
    script_run(w, 1000);
    for (uint32_t n = 0; n < w->opts.nodes; n++)
        if (writer[n][which].level < HEARTH_PROTECTED)
            world_broken(w, "node %u: save %u is not PROTECTED", n, which);
}

/* All ranks have begun two saves. One node is slow with the first, the others with the second: both
 * are PROTECTED, however long that lasts. */
void both_open(struct world *w)
{
    uint64_t step;

    must_save(w, 1, "at first");
    step = w->rank[0].next;
    w->stranger = hear_writer;
    for (uint32_t n = 0; n < w->opts.nodes; n++)
        for (uint32_t which = 0; which < 2; which++)
            writer_begins(w, n, which, step + which);
    for (uint32_t n = 0; n < w->opts.nodes; n++)
        writer_commits(w, n, n == 2);
    script_run(w, 3 * DEAD_MS);
    for (uint32_t n = 0; n < w->opts.nodes; n++)
        if (writer[n][0].errors || writer[n][1].errors)
            world_broken(w, "node %u: a save failed that is only slow", n);
    writer_commits(w, 2, 0);
    must_be_protected(w, 0);
    for (uint32_t n = 0; n < 2; n++)
        writer_commits(w, n, 1);
    must_be_protected(w, 1);
    for (uint32_t n = 0; n < w->opts.nodes; n++)
        for (uint32_t which = 0; which < 2; which++)
            hth_node_client_gone(world_node(w, w->member[n]), WRITER + 3 * n + which);
    for (uint32_t r = 0; r < w->ranks; r++)
        w->rank[r].next = step + 2;
    must_save(w, 3, "after two saves at once");
}

/* So many parts of the save are on the commit record of the machine. */
static uint32_t on_record(struct machine *m, struct hth_save_id save)
{
    struct hth_handed_record record = { 0 };
    uint32_t rows = 0;
    void *bytes = NULL;
    size_t len;

    if (m->store->ops->record_get(m->store, "handed", &bytes, &len, NULL))
        return 0;
    if (!hth_handed_decode(&record, bytes, len, NULL))
        for (size_t i = 0; i < record.rows; i++)
            rows += !hth_save_cmp(record.row[i].save, save);
    free(bytes);
    hth_handed_fini(&record);
    return rows;
}

/* Each engine has received the COMMIT of each of its ranks and sealed all of it, and has no
 * manifest of the save. */
static int all_committed(struct world *w, uint64_t step)
{
    struct hth_save_id save = w->rank[0].save;

    for (uint32_t i = 0; i < w->opts.nodes; i++) {
        struct machine *m = &w->machine[w->member[i]];
        const struct hth_held_save *s = hth_holdings_find(hth_node_ctx(m->node), save);

        if (save.step != step || !s || s->has_manifest ||
                on_record(m, save) < w->opts.ranks_per_node)
            return 0;
        for (const struct hth_held *h = s->held; h; h = h->next)
            if (h->state != HTH_HELD_SEALED)
                return 0;
    }
    return 1;
}

/* Each rank hands its part of a save over and asks for nothing more. Then all engines are killed,
 * before the coordinator has received enough to decide. The next engines read in their records
 * which objects were handed over. */
void forgotten(struct world *w)
{
    uint64_t step, until_ms;

    must_save(w, 2, "at first");
    script_go(w);
    step = w->rank[0].next;
    for (until_ms = w->now_ms + 1000; !all_committed(w, step) && w->now_ms < until_ms;)
        world_advance(w, w->now_ms + 1);
    if (!all_committed(w, step))
        world_broken(w, "no instant at which all is committed and nothing decided");
    for (uint32_t n = 0; n < w->opts.nodes && !w->why[0]; n++)
        script_kill(w, n);
    for (uint32_t r = 0; r < w->ranks; r++)
        w->rank[r].step = R_RUN; /* it follows nothing */
    for (uint32_t n = 0; n < w->opts.nodes && !w->why[0]; n++)
        script_start(w, n);
    script_run(w, 4000);
    if (!w->why[0] && hth_node_ctx(world_node(w, w->member[0]))->keep.save[0].step != step)
        world_broken(w, "what was handed over to engines that were killed is not PROTECTED");
    must_save(w, 2, "after that");
}

/* The slot of an object that is on the commit record of the node, came with its rank's checksums
 * and is not sealed; NULL: there is none. */
static struct hth_slot *committed_slot(struct machine *m, uint64_t step)
{
    struct hth_handed_record record = { 0 };
    struct hth_held_save *s;
    const struct hth_held *h;
    struct hth_slot *slot = NULL;
    void *bytes = NULL;
    size_t len;

    if (m->store->ops->record_get(m->store, "handed", &bytes, &len, NULL))
        return NULL;
    if (!hth_handed_decode(&record, bytes, len, NULL))
        for (size_t i = 0; i < record.rows; i++) {
            const struct hth_handed *row = &record.row[i];

            s = hth_holdings_find(hth_node_ctx(m->node), row->save);
            h = s ? hth_held_find(s, hth_object_id(row->rank, row->index)) : NULL;
            if (row->save.step == step && (row->rank + step) % 2 && h &&
                    h->state == HTH_HELD_SEALING)
                slot = h->slot;
        }
    free(bytes);
    hth_handed_fini(&record);
    return slot;
}

/* An engine is killed while it seals an object of a rank that is done with the save, and a bit of
 * the object changes before the next engine seals it. */
void flipped(struct world *w)
{
    struct machine *m = &w->machine[w->member[1]];
    struct hth_slot *slot;
    uint64_t failed, step, until_ms;

    must_save(w, 3, "at first");
    if (w->rank[w->rank[0].next % w->ranks].machine == m->index)
        world_broken(w, "the node has the common object, which no rank sends again here");
    failed = w->count[WORLD_FAILED];
    m->slow_ms = 100;
    script_go(w);
    step = w->rank[0].next;
    for (until_ms = w->now_ms + 1000; !(slot = committed_slot(m, step)) && w->now_ms < until_ms;)
        world_advance(w, w->now_ms + 1);
    if (!slot) {
        world_broken(w, "no instant at which an object is committed and not sealed");
        return;
    }
    script_kill(w, 1);
    m->slow_ms = 0;
    slot->base[HTH_BLOCK] ^= 1; /* the store outlives the engine */
    script_start(w, 1);
    script_run(w, 4000);
    if (w->count[WORLD_FAILED] == failed || !strstr(w->heard, "chunk 0"))
        world_broken(w, "no rank hears of a bit that changed (%.200s)", w->heard);
    script_rest(w);
    must_save(w, 2, "after that");
}

/* All save the same steps in the same order. The rank of one node comes to each save later than the
 * others, by more than dead_ms. Once another rank passes a step over. */
void late(struct world *w)
{
    uint64_t step, at_ms;

    must_save(w, 2, "at first");
    for (uint32_t i = 0; i < 12 && !w->why[0]; i++) {
        step = w->rank[0].next;
        for (uint32_t r = 0; r < w->ranks; r++)
            rank_due(&w->rank[r], r ? w->now_ms + 1 : HTH_NEVER);
        if (i == 3) {
            w->rank[2].next = step + 1; /* once */
            rank_due(&w->rank[0], w->now_ms + 1);
        } else {
            for (at_ms = w->now_ms + DEAD_MS + 500; w->now_ms < at_ms && !w->why[0];) {
                world_advance(w, w->now_ms + 1);
                for (uint32_t r = 0; r < w->ranks; r++)
                    if (w->rank[r].step == R_RUN && w->rank[r].next != step)
                        rank_due(&w->rank[r], HTH_NEVER);
            }
            rank_due(&w->rank[0], w->now_ms + 1);
        }
        world_advance(w, w->now_ms + 3);
        script_rest(w);
        if (i > 4 && w->newest.id.step != step)
            world_broken(w, "nothing is PROTECTED any more");
        for (uint32_t r = 0; r < w->ranks; r++)
            w->rank[r].next = step + 2;
    }
}

/* Three helpers of each rank begin a save each, in the order of the steps. The later two wait for
 * room. */
void queued(struct world *w)
{
    uint64_t step;

    must_save(w, 1, "at first");
    step = w->rank[0].next;
    w->stranger = hear_writer;
    for (uint32_t n = 0; n < w->opts.nodes; n++)
        writer_asks(w, n, 0, step, 1000);
    world_advance(w, w->now_ms + 100);
    for (uint32_t n = 0; n + 1 < w->opts.nodes; n++)
        writer_commits(w, n, 0);
    for (uint32_t which = 1; which < 3; which++)
        for (uint32_t n = 0; n < w->opts.nodes; n++)
            writer_asks(w, n, which, step + which, 5000);
    world_advance(w, w->now_ms + 500);
    writer_commits(w, w->opts.nodes - 1, 0);
    must_be_protected(w, 0);
    world_advance(w, w->now_ms + 500);
    for (uint32_t which = 1; which < 3 && !w->why[0]; which++) {
        for (uint32_t n = 0; n < w->opts.nodes; n++) {
            if (!writer[n][which].lent.slot)
                world_broken(w, "node %u: no slot for save %u", n, which);
            writer_commits(w, n, which);
        }
        must_be_protected(w, which);
    }
}

static uint64_t all_pulled(struct world *w)
{
    uint64_t sum = 0, one;

    for (uint32_t n = 0; n < w->opts.nodes; n++) {
        hth_transfer_pulled(hth_node_ctx(world_node(w, w->member[n])), &one, NULL);
        sum += one;
    }
    return sum;
}

/* The copies of a save on this node have the bytes that the owner has. Returns their bytes. */
static uint64_t copies_alike(struct world *w, uint32_t node, struct hth_save_id save)
{
    struct hth_held_save *s = hth_holdings_find(hth_node_ctx(world_node(w, w->member[node])), save);
    uint64_t bytes = 0;

    for (const struct hth_held *h = s ? s->held : NULL; h; h = h->next) {
        uint32_t owner = h->object.owner;
        struct hth_held_save *theirs =
                owner < w->opts.nodes
                        ? hth_holdings_find(hth_node_ctx(world_node(w, w->member[owner])), save)
                        : NULL;
        const struct hth_held *o = theirs ? hth_held_find(theirs, h->object.id) : NULL;

        if (h->object.kind != HTH_OBJECT_SHARD || owner == node || !o)
            continue;
        bytes += hth_object_file_bytes(&h->object);
        if (memcmp(o->slot->base, h->slot->base, hth_object_file_bytes(&h->object)) != 0)
            world_broken(w, "node %u has other bytes of rank %u than that rank has written", node,
                    owner);
    }
    return bytes;
}

/* Ranks report chunks of large objects as complete, and some of them write one of these once more:
 * copies are pulled meanwhile, and have what was written last. */
void written(struct world *w)
{
    uint64_t before = 0, bytes = 0, again = 0;

    must_save(w, 2, "at first");
    for (uint32_t i = 0; i < 4 && !w->why[0]; i++) {
        before = all_pulled(w);
        must_save(w, 1, "of large objects");
        bytes = 0;
        for (uint32_t n = 0; n < w->opts.nodes; n++)
            bytes += copies_alike(w, n, w->newest.id);
        again +=
                all_pulled(w) - before > bytes; /* what was pulled too early was pulled once more */
    }
    if (!again)
        world_broken(w, "nothing was pulled while it was written");
}
