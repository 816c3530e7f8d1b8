/* SPDX-License-Identifier: Apache-2.0 */
/* A rank whose engine ends while it meets the other ranks for it. Rank 0 never comes. */
#include "check.h"
#include "port.h"
#include "rank.h"

#include "client/bootstrap/tcp.h"
#include <pthread.h>
#include <time.h>

#define LONG_MS  30000u
#define SHORT_MS 1500u
#define NAP_MS   400u

static struct rank r;
static struct hearth_bootstrap *bootstrap;
static pthread_t opener;
static int rc;
static struct hearth_error err;

static uint64_t now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static void nap_ms(long ms)
{
    const struct timespec nap = { .tv_nsec = ms * 1000000 };

    nanosleep(&nap, NULL);
}

static void *open_rank(void *none)
{
    (void)none;
    rc = hearth_open(&r.opts, &r.h, &err);
    return NULL;
}

/* The engine does not answer the rank that meets the others. */
static void open_within(uint32_t deadline_ms)
{
    rank_start(&r);
    r.opts.rank = 1;
    r.opts.world = 2;
    r.opts.open_ms = LONG_MS;
    must(hearth_bootstrap_tcp("127.0.0.1", port_keep(), 1, 2, deadline_ms, &bootstrap, NULL));
    r.opts.bootstrap = bootstrap;
    fake_silence(r.fake, HTH_LOCAL_MEET);
    cr_assert(zero(int, pthread_create(&opener, NULL, open_rank, NULL)));
}

/* Milliseconds that the rank gave the engine for the gather when it asked for the n-th time. */
static uint32_t left_at(uint32_t n)
{
    for (uint64_t until = now_ms() + 20000; fake_counts(r.fake).silenced < n; nap_ms(5))
        cr_assert(lt(u64, now_ms(), until), "the rank did not ask the engine %u times", n);
    return fake_counts(r.fake).meet_left_ms;
}

static void end(void)
{
    rank_end(&r);
    hearth_bootstrap_close(bootstrap);
}

Test(meet, each_engine_of_a_rank_has_what_the_ones_before_left_of_the_gather)
{
    uint32_t left, before;

    open_within(LONG_MS);
    before = left_at(1);
    for (uint32_t n = 2; n <= 3; n++, before = left) {
        nap_ms(NAP_MS);
        fake_crash(r.fake);
        fake_back(r.fake);
        left = left_at(n);
        cr_expect(le(u32, left + NAP_MS, before), "engine %u has %u ms, the one before had %u", n,
                left, before);
    }
    fake_crash(r.fake);
    fake_refuse(r.fake, HTH_LOCAL_MEET, HEARTH_EPROTO, "no more of it");
    fake_silence(r.fake, 0);
    fake_back(r.fake);
    pthread_join(opener, NULL);
    must_fail(rc, HEARTH_EPROTO);
    end();
}

Test(meet, a_rank_looks_for_the_next_engine_no_longer_than_it_meets_the_others)
{
    uint64_t began_ms = now_ms();

    open_within(SHORT_MS);
    (void)left_at(1);
    fake_crash(r.fake);
    pthread_join(opener, NULL);
    must_fail(rc, HEARTH_EENGINE);
    cr_assert(lt(u64, now_ms() - began_ms, LONG_MS / 2), "%s", err.text);
    end();
}
