/* SPDX-License-Identifier: Apache-2.0 */
/* Grants of the two ends of a connection: which peer may read a region, and until when. */
#include "check.h"

#include "transport/ofi/ofi.h"

#include <stdlib.h>
#include <string.h>

#define NUMBERS 500u

static struct hth_ofi o;
static struct hth_ofi_grants owner, peer;
static unsigned char read_by_peer[NUMBERS + 1];

/* Connection 1 is the owner's end, 2 the peer's. */
static struct hth_ofi_grants *grants_of(struct hth_ofi *of, hth_conn conn)
{
    (void)of;
    return conn == 1 ? &owner : conn == 2 ? &peer : NULL;
}

static void grants_flush(struct hth_ofi *of, hth_conn conn)
{
    (void)of, (void)conn;
}

static int grant_is_read(struct hth_ofi *of, hth_conn conn, uint32_t number)
{
    (void)of;
    return conn == 2 && number <= NUMBERS && read_by_peer[number];
}

static void start(void)
{
    o.grants_of = grants_of;
    o.grants_flush = grants_flush;
    o.grant_is_read = grant_is_read;
    pthread_mutex_init(&o.regions_lock, NULL);
}

static void stop(void)
{
    hth_ofi_grants_fini(&owner);
    hth_ofi_grants_fini(&peer);
}

TestSuite(ofi_granted, .init = start, .fini = stop);

static void words_bring(struct hth_ofi_grants *from, hth_conn to)
{
    unsigned char bytes[64];
    size_t len;

    while ((len = hth_ofi_words_take(from, bytes, sizeof(bytes))))
        must(hth_ofi_words_heard(&o, to, bytes, len));
}

Test(ofi_granted, a_region_ends_when_the_last_pull_under_its_grant_has)
{
    struct hth_region region = { 0 };
    uint32_t number, again;

    o.regions = &region;
    must(hth_ofi_granted_number(&o, &region, 1, &number));
    must(hth_ofi_granted_number(&o, &region, 1, &again));
    cr_assert(eq(u32, number, again));
    read_by_peer[number] = 1;
    must_fail(hth_ofi_granted_end(&o, &region), HEARTH_EBUSY);
    words_bring(&owner, 2);
    words_bring(&peer, 1);
    cr_assert(hth_ofi_grant_is_over(&peer, number));
    must_fail(hth_ofi_granted_end(&o, &region), HEARTH_EBUSY);
    must(hth_ofi_granted_number(&o, &region, 1, &again)); /* granted anew: another number */
    cr_assert(ne(u32, number, again));
    cr_assert(not(hth_ofi_grant_is_over(&peer, again)));
    read_by_peer[number] = 0;
    must(hth_ofi_grant_unread(&peer, number));
    words_bring(&peer, 1);
    must_fail(hth_ofi_granted_end(&o, &region), HEARTH_EBUSY);
    words_bring(&owner, 2);
    words_bring(&peer, 1);
    must(hth_ofi_granted_end(&o, &region));
    free(region.granted);
}

Test(ofi_granted, the_end_of_a_connection_is_an_answer)
{
    struct hth_region region = { 0 };
    uint32_t number;

    o.regions = &region;
    must(hth_ofi_granted_number(&o, &region, 1, &number));
    region.granted_count = 0; /* as if it was granted on a connection that is gone */
    must(hth_ofi_granted_end(&o, &region));
    must_fail(hth_ofi_granted_number(&o, &region, 3, &number), HEARTH_ENOMEM);
    free(region.granted);
}

/* In any order, each number that has ended is known. At the end all numbers form one span. */
Test(ofi_granted, numbers_end_in_any_order)
{
    unsigned char over[NUMBERS + 1] = { 0 };
    uint32_t step = 7; /* shares no factor with NUMBERS */

    for (uint32_t i = 0, n = 0; i < NUMBERS; i++, n = (n + step) % NUMBERS) {
        uint32_t word = (n + 1) << 1;
        unsigned char bytes[4] = { (unsigned char)word, (unsigned char)(word >> 8) };

        must(hth_ofi_words_heard(&o, 2, bytes, sizeof(bytes)));
        over[n + 1] = 1;
        for (uint32_t k = 1; k <= NUMBERS; k++)
            cr_assert(eq(int, hth_ofi_grant_is_over(&peer, k), over[k]));
    }
    cr_assert(eq(u32, peer.spans, 1));
}

Test(ofi_granted, a_peer_that_ends_what_nobody_numbered_so_is_refused)
{
    static const unsigned char none[4], half[6];
    unsigned char bytes[4];
    int rc = HEARTH_OK;

    must_fail(hth_ofi_words_heard(&o, 2, none, sizeof(none)), HEARTH_EPROTO);
    must_fail(hth_ofi_words_heard(&o, 2, half, sizeof(half)), HEARTH_EPROTO);
    must_fail(hth_ofi_words_heard(&o, 2, NULL, 0), HEARTH_EPROTO);
    for (uint32_t n = 1; n < 100000 && !rc; n += 2) { /* the memory for spans has a bound */
        uint32_t word = n << 1;

        memcpy(bytes,
                (unsigned char[]){ (unsigned char)word, (unsigned char)(word >> 8),
                        (unsigned char)(word >> 16), 0 },
                4);
        rc = hth_ofi_words_heard(&o, 2, bytes, sizeof(bytes));
    }
    cr_assert(ne(int, rc, HEARTH_OK));
}
