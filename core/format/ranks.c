/* SPDX-License-Identifier: Apache-2.0 */
/* Sets of ranks as runs. How they are written: core/format/ranks.h. */
#include "ranks.h"

#include "core/base/auth.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define ALONE 0x4000u /* codes below it name one rank */

static uint32_t run_last(const struct hth_rank_run *r)
{
    return r->first + (r->count - 1) * r->step;
}

static int ranks_check(
        const uint32_t *ranks, size_t count, uint32_t world, struct hearth_error *err)
{
    if (!count)
        return hth_fail(err, HEARTH_EINVAL, 0, "a set of ranks that has none");
    for (size_t i = 0; i < count; i++) {
        if (ranks[i] >= world)
            return hth_fail(err, HEARTH_EINVAL, 0,
                    "rank %" PRIu32 " is named and the world has %" PRIu32, ranks[i], world);
        if (i && ranks[i] <= ranks[i - 1])
            return hth_fail(err, HEARTH_EINVAL, 0,
                    "rank %" PRIu32 " is named after rank %" PRIu32
                    ": a set of ranks is given in rising order, each once",
                    ranks[i], ranks[i - 1]);
    }
    return HEARTH_OK;
}

int hth_ranks_of(struct hth_ranks *out, const uint32_t *ranks, size_t count, uint32_t world,
        struct hearth_error *err)
{
    int rc = ranks_check(ranks, count, world, err);

    if (rc)
        return rc;
    out->runs = 0;
    if (count == world)
        return HEARTH_OK;
    for (size_t i = 0; i < count;) {
        struct hth_rank_run r = { ranks[i], 1, 1 };

        if (out->runs == HTH_RANK_RUNS)
            return hth_fail(err, HEARTH_EINVAL, 0,
                    "the set of %zu ranks is too irregular: it takes more than %u runs of ranks at "
                    "equal distances",
                    count, HTH_RANK_RUNS);
        if (i + 1 < count)
            r.step = ranks[i + 1] - ranks[i];
        for (i++; i < count && ranks[i] - ranks[i - 1] == r.step; i++)
            r.count++;
        out->run[out->runs++] = r;
    }
    return HEARTH_OK;
}

int hth_ranks_have(const struct hth_ranks *ranks, uint32_t rank)
{
    uint32_t i = 0;

    if (!ranks->runs)
        return 1;
    while (i < ranks->runs && rank > run_last(&ranks->run[i]))
        i++;
    return i < ranks->runs && rank >= ranks->run[i].first &&
           (rank - ranks->run[i].first) % ranks->run[i].step == 0;
}

int hth_ranks_same(const struct hth_ranks *a, const struct hth_ranks *b)
{
    return a->runs == b->runs && memcmp(a->run, b->run, a->runs * sizeof(a->run[0])) == 0;
}

uint32_t hth_ranks_count(const struct hth_ranks *ranks)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < ranks->runs; i++)
        count += ranks->run[i].count;
    return count;
}

uint32_t hth_ranks_bits(const struct hth_ranks *ranks)
{
    unsigned char bytes[HTH_RANK_RUNS * HTH_RANK_RUN_BYTES], digest[HTH_DIGEST];
    uint32_t code;

    if (!ranks->runs)
        return 0;
    if (ranks->runs == 1 && ranks->run[0].count == 1 && ranks->run[0].first < ALONE) {
        code = ranks->run[0].first;
    } else {
        hth_ranks_encode(ranks, bytes);
        hth_digest(digest, bytes, hth_ranks_bytes(ranks));
        code = ALONE | (hth_get32(digest) & (ALONE - 1));
    }
    return HTH_ATTEMPT_SOME | code << HTH_ATTEMPT_SHIFT;
}

void hth_ranks_say(const struct hth_ranks *ranks, char *out, size_t len)
{
    int n = snprintf(out, len, "%s", ranks->runs ? "" : "all");

    for (uint32_t i = 0; i < ranks->runs && n >= 0 && (size_t)n < len; i++) {
        const struct hth_rank_run *r = &ranks->run[i];

        n += snprintf(out + n, len - (size_t)n, "%s%" PRIu32, i ? ", " : "", r->first);
        if (r->count > 1 && (size_t)n < len)
            n += snprintf(out + n, len - (size_t)n, "%s%" PRIu32, r->count == 2 ? ", " : "-",
                    run_last(r));
        if (r->count > 2 && r->step > 1 && (size_t)n < len)
            n += snprintf(out + n, len - (size_t)n, " by %" PRIu32, r->step);
    }
    if (n >= 0 && (size_t)n >= len && len > 4)
        memcpy(out + len - 4, "...", 4);
}

void hth_ranks_encode(const struct hth_ranks *ranks, unsigned char *out)
{
    for (uint32_t i = 0; i < ranks->runs; i++, out += HTH_RANK_RUN_BYTES) {
        hth_put32(out, ranks->run[i].first);
        hth_put32(out + 4, ranks->run[i].count);
        hth_put32(out + 8, ranks->run[i].step);
    }
}

/* The run is as hth_ranks_of() makes it, by itself and after the one before it. */
static int run_is_right(const struct hth_rank_run *before, const struct hth_rank_run *r, int last)
{
    uint64_t end = (uint64_t)r->first + ((uint64_t)r->count - 1) * r->step;

    if (!r->count || !r->step || end > UINT32_MAX || (r->count == 1 && (!last || r->step != 1)))
        return 0;
    return !before || (r->first > run_last(before) && r->first - run_last(before) != before->step);
}

int hth_ranks_decode(struct hth_ranks *out, const void *bytes, size_t len, struct hearth_error *err)
{
    const unsigned char *in = bytes;
    size_t runs = len / HTH_RANK_RUN_BYTES;

    if (len % HTH_RANK_RUN_BYTES || runs > HTH_RANK_RUNS)
        return hth_fail(err, HEARTH_EPROTO, 0, "a set of ranks in %zu bytes", len);
    out->runs = (uint32_t)runs;
    for (size_t i = 0; i < runs; i++, in += HTH_RANK_RUN_BYTES) {
        out->run[i] = (struct hth_rank_run){ hth_get32(in), hth_get32(in + 4), hth_get32(in + 8) };
        if (!run_is_right(i ? &out->run[i - 1] : NULL, &out->run[i], i + 1 == runs))
            return hth_fail(err, HEARTH_EPROTO, 0, "run %zu of a set of ranks is not valid", i);
    }
    return HEARTH_OK;
}

struct hth_ranks *hth_ranks_copy(const struct hth_ranks *ranks)
{
    struct hth_ranks *copy = ranks && ranks->runs ? malloc(sizeof(*copy)) : NULL;

    if (copy)
        *copy = *ranks;
    return copy;
}
