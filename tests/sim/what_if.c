/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What `hearth what-if` says beforehand agrees with what then happens. Six machines in three racks:
 * an engine is asked for its placement, each loss of a machine, of two, or of a rack is judged by
 * cli/losses.c, and then exactly these machines are lost and the job is started again. The step
 * that recovery chooses, or that it finds nothing, and the bytes that the engines have pulled are
 * compared with what was said.
 *
 *   what_if           each loss, with all copies where they belong
 *   what_if moved     one machine is out of reach, and its places have moved
 *   what_if moving    ... at moments at which they are being moved: what is promised holds
 */
#include "cli/losses.h"
#include "replication/transfer/transfer.h"
#include "script.h"
#include "world_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NODES 6u
#define RACKS 3u
#define ASKER 99999u
#define AWAY  4u /* the machine that is out of reach */
#define AFTER 12000u
#define SLOW  400u /* a pull takes up to that long while places are being moved */

static json_t *page;
static unsigned cases, survived, unsure;

static void hear(struct world *w, const struct letter *l)
{
    (void)w;
    if (l->client == ASKER && l->attached)
        page = json_loadb((const char *)l->bytes + l->len, l->attached, 0, NULL);
}

/* The placement as the engine of that node knows it. */
static int ask(struct world *w, uint32_t node, struct losses *out)
{
    struct hth_local_history m = { .head = { sizeof(m), HTH_LOCAL_PLACES, 1, 0 } };
    int rc;

    *out = (struct losses){ 0 };
    w->stranger = hear;
    hth_node_request(world_node(w, node), ASKER, &m, sizeof(m), NULL);
    for (int i = 0; i < 20 && !page; i++)
        world_advance(w, w->now_ms + 1);
    rc = losses_page(out, page, NULL);
    json_decref(page);
    page = NULL;
    return rc || !losses_whole(out);
}

static void add_manifests(struct world *w, uint32_t node, struct losses *l)
{
    struct hth_store *s = w->machine[w->member[node]].store;

    for (uint32_t i = 0; i < l->saves; i++) {
        char id[HTH_SAVE_TEXT], name[HTH_SAVE_TEXT + 16];
        struct hth_manifest m;
        void *bytes;
        size_t len;

        hth_save_text(l->save[i].id, id);
        snprintf(name, sizeof(name), "%s.manifest", id);
        if (s->ops->record_get(s, name, &bytes, &len, NULL) ||
                hth_manifest_decode(&m, bytes, len, NULL))
            continue;
        if (losses_manifest(l, i, &m))
            abort();
        hth_manifest_fini(&m);
        free(bytes);
    }
}

static void lose(struct world *w, uint32_t machines)
{
    w->hurt = (uint32_t)__builtin_popcount(machines);
    w->hurt_ms = w->now_ms;
    for (uint32_t i = 0; i < NODES; i++)
        if (machines >> i & 1) {
            fault_ranks_kill(w, w->member[i]);
            machine_lose(w, w->member[i]);
        }
    check_beyond(w);
    world_restart(w, 1, "machines lost");
}

static int is_lost(const struct world *w)
{
    for (uint32_t r = 0; r < w->ranks; r++)
        if (world_error(w, r) && world_error(w, r)->code == HEARTH_ELOST)
            return 1;
    return 0;
}

/* The step that all ranks resume from; 0: recovery has found that nothing is whole. */
static uint64_t recover(struct world *w)
{
    uint64_t until_ms = w->now_ms + 40000, lineage = w->lineage;

    while (!w->why[0] && w->now_ms < until_ms && !is_lost(w) &&
            (w->lineage == lineage || w->recovered < w->ranks))
        world_advance(w, w->now_ms + 1);
    if (is_lost(w))
        return 0;
    if (w->recovered < w->ranks)
        world_broken(w, "no recovery within 40 s");
    return w->why[0] ? 0 : world_recovery(w, 0)->step;
}

static uint64_t pulled_before(const struct world *w)
{
    uint64_t sum = 0;

    for (uint32_t i = 0; i < NODES; i++)
        sum += world_recovery(w, i * w->opts.ranks_per_node)->pulled_bytes;
    return sum;
}

static uint64_t pulled(struct world *w)
{
    uint64_t sum = 0, one;

    for (uint32_t i = 0; i < NODES; i++) {
        hth_transfer_pulled(hth_node_ctx(world_node(w, i)), &one, NULL);
        sum += one;
    }
    return sum;
}

static void compare_pulls(struct world *w, const struct loss_verdict *v)
{
    uint64_t before = pulled_before(w), after;

    if (before != v->before.bytes)
        world_broken(w, "recovery pulled %llu bytes, and %llu were said",
                (unsigned long long)before, (unsigned long long)v->before.bytes);
    script_rest(w);
    world_advance(w, w->now_ms + AFTER);
    after = pulled(w) - before;
    if (after != v->after.bytes)
        world_broken(w, "%llu bytes were pulled after the recovery, and %llu were said",
                (unsigned long long)after, (unsigned long long)v->after.bytes);
}

/* exact: all is known, so the bytes are too. */
static void compare(struct world *w, const struct losses *l, const struct loss_verdict *v,
        uint32_t machines, int exact)
{
    uint64_t said = v->chosen < 0 ? 0 : l->save[v->chosen].id.step, step;
    int known = 1;

    for (uint32_t i = 0; i < l->saves; i++)
        known &= v->fate[i] != LOSS_UNKNOWN;
    if (exact && !known)
        world_broken(w, "the fate of a save is not known");
    lose(w, machines);
    step = recover(w);
    if (known ? step != said : step < said)
        world_broken(w, "recovery chose step %llu, and %llu was said", (unsigned long long)step,
                (unsigned long long)said);
    if (exact && said && !w->why[0])
        compare_pulls(w, v);
    survived += v->chosen >= 0;
    unsure += !known;
}

static void prepare(struct world *w, uint32_t copies)
{
    struct world_opts opts = { .seed = 1,
        .save_ms = 9000,
        .nodes = NODES,
        .ranks_per_node = 2,
        .copies = copies,
        .min_copies = 1,
        .keep = 2,
        .racks = RACKS };

    script_open(w, &opts);
    if (!script_save(w, 3, 10000))
        world_broken(w, "a save is not PROTECTED (%.200s)", w->heard);
    world_advance(w, w->now_ms + 1000);
}

/* The machine is out of reach, for so long. */
static void away(struct world *w, uint32_t ms)
{
    script_silence(w, AWAY, 1);
    world_advance(w, w->now_ms + ms);
}

/* away_ms 0: no machine is out of reach. */
static int one(uint32_t copies, uint32_t machines, uint32_t asked, uint32_t away_ms, int exact)
{
    struct loss_verdict v = { .chosen = -1 };
    uint8_t gone[NODES];
    struct losses l;
    struct world w;
    int broken;

    prepare(&w, copies);
    w.opts.work_ms = exact ? 0 : SLOW;
    if (away_ms && !w.why[0])
        away(&w, away_ms);
    w.opts.work_ms = 0;
    if (!w.why[0] && ask(&w, asked, &l))
        world_broken(&w, "the placement of node %u cannot be read", asked);
    if (!w.why[0]) {
        add_manifests(&w, asked, &l);
        for (uint32_t i = 0; i < NODES; i++)
            gone[i] = machines >> i & 1;
        if (losses_judge(&l, gone, &v))
            abort();
        if (away_ms)
            script_silence(&w, AWAY, 0);
        compare(&w, &l, &v, machines, exact);
        losses_free(&l);
    }
    broken = w.why[0] != '\0';
    if (broken)
        printf("%u copies, machines %#x lost, node %u asked, %u ms: %s\n", copies, machines, asked,
                away_ms, w.why);
    world_close(&w);
    cases++;
    return broken;
}

static int is_rack(uint32_t machines)
{
    return machines == 0x09 || machines == 0x12 || machines == 0x24;
}

/* Every machine, every pair, and so every rack; `with` is lost in any case. */
static int each(uint32_t copies, uint32_t with, uint32_t away_ms, int exact)
{
    int broken = 0, racks = 0;

    for (uint32_t machines = 1; machines < 1u << NODES; machines++) {
        if (__builtin_popcount(machines) > 2 || (machines & with) != with)
            continue;
        racks += is_rack(machines);
        broken |= one(copies, machines, machines % 2 ? 2 : 0, away_ms, exact);
    }
    if (!with && racks != (int)RACKS)
        abort();
    return broken;
}

static int moving(uint32_t copies)
{
    int broken = 0;

    for (uint32_t ms = 1880; ms < 2600; ms += 20)
        for (uint32_t other = 0; other < NODES; other++)
            if (other != AWAY)
                broken |= one(copies, 1u << AWAY | 1u << other, ms / 20 % 2 ? 1 : 0, ms, 0);
    return broken;
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    int broken = 0;

    for (uint32_t copies = 1; copies <= 2; copies++)
        broken |= !strcmp(what, "moved")    ? each(copies, 1u << AWAY, 9000, 1)
                  : !strcmp(what, "moving") ? moving(copies)
                                            : each(copies, 0, 0, 1);
    printf("%u losses: %u leave a save that was promised, of %u not all was known\n", cases,
            survived, unsure);
    return broken;
}
