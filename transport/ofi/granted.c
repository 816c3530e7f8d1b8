/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which peers may still be reading a region. A fabric does not tell an owner which reads its peers
 * have under way, nor which answers its own library still has to send. So the owner asks the peers:
 *
 *   owner                                  peer
 *     dereg(): HEARTH_EBUSY  -- END n -->    refuses new pulls under n; running pulls go on
 *     dereg(): HEARTH_OK   <-- OVER n --     when no pull is left
 *
 * All grants of one region on one connection share a number n: 1, 2, ... on each connection. If a
 * region is granted again after a dereg() that was busy, it gets another number there. The end of
 * the connection also counts as an answer.
 *
 * A word, of END or OVER, is u32 n << 1 | 1 for OVER, little-endian.
 */
#include "ofi.h"

#include "core/base/bytes.h"
#include <stdlib.h>
#include <string.h>

#define NUMBERS_MAX (UINT32_MAX >> 1)
#define SPANS_MAX   8192u /* n grants that go on leave at most n + 1 spans that are over */
#define WORDS_MAX   8192u /* words that wait for room on the connection */
#define OVER        1u

/* The grants with numbers from `first` to `last` are over. */
struct hth_ofi_span {
    uint32_t first, last;
};

/* ---- the owner's side ---- */

struct hth_ofi_granted {
    hth_conn conn;
    uint32_t number;
    int asked; /* END is queued or sent */
};

static void granted_drop(struct hth_region *region, uint32_t i)
{
    region->granted[i] = region->granted[--region->granted_count];
}

/* Drops entries of connections that are gone. */
static void granted_prune(struct hth_ofi *o, struct hth_region *region)
{
    for (uint32_t i = region->granted_count; i-- > 0;)
        if (!o->grants_of(o, region->granted[i].conn))
            granted_drop(region, i);
}

static int granted_grow(struct hth_ofi *o, struct hth_region *region)
{
    uint32_t cap = region->granted_cap ? 2 * region->granted_cap : 4;
    struct hth_ofi_granted *more;

    if (region->granted_count < region->granted_cap)
        return HEARTH_OK;
    granted_prune(o, region);
    if (2 * region->granted_count < region->granted_cap)
        return HEARTH_OK;
    more = realloc(region->granted, cap * sizeof(*more));
    if (!more)
        return HEARTH_ENOMEM;
    region->granted = more;
    region->granted_cap = cap;
    return HEARTH_OK;
}

int hth_ofi_granted_number(
        struct hth_ofi *o, struct hth_region *region, hth_conn conn, uint32_t *out)
{
    struct hth_ofi_grants *grants = o->grants_of(o, conn);

    for (uint32_t i = 0; i < region->granted_count; i++) {
        const struct hth_ofi_granted *g = &region->granted[i];

        if (g->conn == conn && !g->asked) {
            *out = g->number;
            return HEARTH_OK;
        }
    }
    if (!grants || grants->given == NUMBERS_MAX || granted_grow(o, region))
        return HEARTH_ENOMEM;
    *out = ++grants->given;
    region->granted[region->granted_count++] =
            (struct hth_ofi_granted){ .conn = conn, .number = *out };
    return HEARTH_OK;
}

static int word_say(struct hth_ofi_grants *grants, uint32_t number, uint32_t over)
{
    if (grants->words == WORDS_MAX)
        return HEARTH_EBUSY;
    if (grants->words == grants->word_cap) {
        uint32_t cap = grants->word_cap ? 2 * grants->word_cap : 16;
        uint32_t *more = realloc(grants->word, cap * sizeof(*more));

        if (!more)
            return HEARTH_ENOMEM;
        grants->word = more;
        grants->word_cap = cap;
    }
    grants->word[grants->words++] = number << 1 | over;
    return HEARTH_OK;
}

int hth_ofi_granted_end(struct hth_ofi *o, struct hth_region *region)
{
    granted_prune(o, region);
    for (uint32_t i = 0; i < region->granted_count; i++) {
        struct hth_ofi_granted *g = &region->granted[i];

        if (!g->asked && word_say(o->grants_of(o, g->conn), g->number, 0) == HEARTH_OK)
            g->asked = 1;
    }
    for (uint32_t i = 0; i < region->granted_count; i++)
        o->grants_flush(o, region->granted[i].conn);
    return region->granted_count ? HEARTH_EBUSY : HEARTH_OK;
}

static void granted_is_over(struct hth_ofi *o, hth_conn conn, uint32_t number)
{
    pthread_mutex_lock(&o->regions_lock);
    for (struct hth_region *region = o->regions; region; region = region->next)
        for (uint32_t i = region->granted_count; i-- > 0;)
            if (region->granted[i].conn == conn && region->granted[i].number == number &&
                    region->granted[i].asked)
                granted_drop(region, i);
    pthread_mutex_unlock(&o->regions_lock);
}

/* ---- the peer's side ---- */

int hth_ofi_grant_is_over(const struct hth_ofi_grants *grants, uint32_t number)
{
    for (uint32_t i = 0; i < grants->spans; i++)
        if (number >= grants->span[i].first && number <= grants->span[i].last)
            return 1;
    return 0;
}

static void spans_join(struct hth_ofi_grants *grants, uint32_t i)
{
    struct hth_ofi_span *s = &grants->span[i];

    if (i + 1 >= grants->spans || s[0].last + 1 != s[1].first)
        return;
    s[0].last = s[1].last;
    memmove(s + 1, s + 2, (grants->spans - i - 2) * sizeof(*s));
    grants->spans--;
}

/* Spans are in ascending order, and neighbours have a gap between them. */
static int span_add(struct hth_ofi_grants *grants, uint32_t number)
{
    uint32_t i = 0;

    while (i < grants->spans && grants->span[i].last < number)
        i++;
    if (i < grants->spans && grants->span[i].first <= number)
        return HEARTH_OK;
    if (grants->spans == SPANS_MAX)
        return HEARTH_EPROTO;
    if (grants->spans == grants->span_cap) {
        uint32_t cap = grants->span_cap ? 2 * grants->span_cap : 8;
        struct hth_ofi_span *more = realloc(grants->span, cap * sizeof(*more));

        if (!more)
            return HEARTH_ENOMEM;
        grants->span = more;
        grants->span_cap = cap;
    }
    memmove(grants->span + i + 1, grants->span + i, (grants->spans - i) * sizeof(*grants->span));
    grants->span[i] = (struct hth_ofi_span){ number, number };
    grants->spans++;
    spans_join(grants, i);
    if (i)
        spans_join(grants, i - 1);
    return HEARTH_OK;
}

int hth_ofi_grant_unread(struct hth_ofi_grants *grants, uint32_t number)
{
    return word_say(grants, number, OVER);
}

/* ---- both sides ---- */

int hth_ofi_words_heard(struct hth_ofi *o, hth_conn conn, const unsigned char *bytes, size_t len)
{
    struct hth_ofi_grants *grants = o->grants_of(o, conn);
    int rc = !grants || !len || len % 4 ? HEARTH_EPROTO : HEARTH_OK;

    for (size_t at = 0; !rc && at < len; at += 4) {
        uint32_t word = hth_get32(bytes + at), number = word >> 1;

        if (!number)
            rc = HEARTH_EPROTO;
        else if (word & OVER)
            granted_is_over(o, conn, number);
        else
            rc = span_add(grants, number);
        if (!rc && !(word & OVER) && !o->grant_is_read(o, conn, number))
            rc = word_say(grants, number, OVER);
    }
    if (!rc)
        o->grants_flush(o, conn);
    return rc;
}

size_t hth_ofi_words_take(struct hth_ofi_grants *grants, unsigned char *out, size_t most)
{
    uint32_t n = grants->words < most / 4 ? grants->words : (uint32_t)(most / 4);

    for (uint32_t i = 0; i < n; i++)
        hth_put32(out + (size_t)i * 4, grants->word[i]);
    grants->words -= n;
    if (grants->words)
        memmove(grants->word, grants->word + n, grants->words * sizeof(*grants->word));
    return (size_t)n * 4;
}

void hth_ofi_grants_fini(struct hth_ofi_grants *grants)
{
    free(grants->word);
    free(grants->span);
}
