/* SPDX-License-Identifier: Apache-2.0 */
/* A set of ranks that decodes encodes to the same bytes, and made anew from its ranks it is the
 * same set. */
#include "core/base/auth.h"
#include "core/format/ranks.h"

#include <stdlib.h>

#define SMALL 4096u /* ranks of a set that is made anew */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void make_anew(const struct hth_ranks *set)
{
    uint32_t rank[SMALL], count = 0;
    struct hth_ranks again;

    for (uint32_t i = 0; i < set->runs; i++)
        for (uint32_t k = 0; k < set->run[i].count; k++) {
            rank[count] = set->run[i].first + k * set->run[i].step;
            if (!hth_ranks_have(set, rank[count++]))
                abort();
        }
    if (rank[count - 1] == UINT32_MAX)
        return; /* of no world */
    if (hth_ranks_of(&again, rank, count, UINT32_MAX, NULL) || !hth_ranks_same(set, &again))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    unsigned char bytes[HTH_RANK_RUNS * HTH_RANK_RUN_BYTES];
    struct hth_ranks set;
    uint64_t ranks = 0;
    char text[64];

    if (hth_ranks_decode(&set, data, size, NULL))
        return 0;
    hth_ranks_encode(&set, bytes);
    if (hth_ranks_bytes(&set) != size || (size && memcmp(bytes, data, size) != 0))
        abort();
    hth_ranks_say(&set, text, sizeof(text));
    if (strlen(text) >= sizeof(text) || (set.runs && !(hth_ranks_bits(&set) & HTH_ATTEMPT_SOME)))
        abort();
    for (uint32_t i = 0; i < set.runs; i++)
        ranks += set.run[i].count;
    if (ranks && ranks <= SMALL)
        make_anew(&set);
    return 0;
}
