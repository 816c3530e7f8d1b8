/* SPDX-License-Identifier: Apache-2.0 */
/* Saves of some of the ranks: which steps these are, and which ranks take part. */
#include "world_parts.h"

#include "core/base/bytes.h"
#include "core/format/ranks.h"

#include <stdlib.h>
#include <string.h>

static uint64_t some_dice(uint64_t lineage, uint64_t step)
{
    uint64_t seed = lineage * 7919 + step * 104729;

    return hth_splitmix64(&seed);
}

int some_save(uint64_t lineage, uint64_t step, uint32_t ranks)
{
    return ranks > 1 && some_dice(lineage, step) % 5 == 0;
}

int some_and_all(uint64_t lineage, uint64_t step)
{
    return (int)(some_dice(lineage, step) >> 16 & 1);
}

/* The first alone, one alone, or each so many: that may be one of each machine. */
int some_have(uint64_t lineage, uint64_t step, uint32_t ranks, uint32_t rank)
{
    uint64_t dice = some_dice(lineage, step) >> 20;

    if (dice % 3 < 2)
        return rank == (dice % 3 ? dice / 3 % ranks : 0);
    return rank % (2 + dice / 3 % 7) == 0;
}

size_t some_put(const struct rank_state *r, unsigned char *out)
{
    uint32_t ranks = r->world->launch_ranks[r->lineage], count = 0;
    uint32_t *rank = r->some ? malloc(ranks * sizeof(*rank)) : NULL;
    struct hth_ranks set = { 0 };

    if (!rank)
        return 0;
    for (uint32_t i = 0; i < ranks; i++)
        if (some_have(r->lineage, r->next, ranks, i))
            rank[count++] = i;
    if (hth_ranks_of(&set, rank, count, ranks, NULL))
        abort();
    hth_ranks_encode(&set, out);
    free(rank);
    return hth_ranks_bytes(&set);
}

uint32_t some_lowest(const struct rank_state *r)
{
    uint32_t ranks = r->world->launch_ranks[r->lineage], i = 0;

    while (i + 1 < ranks && !some_have(r->lineage, r->next, ranks, i))
        i++;
    return i;
}

int some_pass(struct rank_state *r)
{
    const struct world *w = r->world;
    uint32_t ranks = w->launch_ranks[r->lineage];

    r->some = 0;
    if (!w->opts.some || !some_save(r->lineage, r->next, ranks))
        return 0;
    r->some = r->somed != r->next && some_have(r->lineage, r->next, ranks, r->rank);
    return !r->some && !some_and_all(r->lineage, r->next);
}

void some_next(struct rank_state *r)
{
    if (r->some && some_and_all(r->lineage, r->next)) {
        r->somed = r->next;
        r->some = 0;
    } else {
        r->next++;
    }
}

void some_failed(const struct rank_state *r, const char *text)
{
    struct world *w = r->world;

    if (!w->opts.faults && r->some && some_dice(r->lineage, r->next) / (1 << 20) % 3 < 2 &&
            strstr(text, "in time"))
        world_broken(w, "P4: rank %u saves step %llu alone, and: %s", r->rank,
                (unsigned long long)r->next, text);
}
