/* SPDX-License-Identifier: Apache-2.0 */
/* What ranks hear of a recovery, from engines in virtual time: why it cannot be, and how long what took. */
#include "check.h"
#include "world.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define ODD    1u    /* the machine that is not like the others */
#define SOON   4000u /* ms; the deadline of these recoveries is three times that */
#define WORKS  40u
#define SAVING 1000u

static void limit(void)
{
    alarm(60);
}

TestSuite(recovery, .init = limit);

static struct world_opts quiet_world(void)
{
    return (struct world_opts){ .seed = 1,
        .nodes = 3,
        .ranks_per_node = 1,
        .copies = 1,
        .keep = 1,
        .run_ms = SAVING,
        .data_max = 100 };
}

static void another_version(uint32_t machine, struct hth_session_opts *session)
{
    if (machine != ODD)
        return;
    session->version_low = 7;
    session->version_high = 9;
}

static void another_key(uint32_t machine, struct hth_session_opts *session)
{
    session->has_key = 1;
    session->key[0] = machine == ODD;
}

/* Every rank hears it, long before the deadline. */
static void all_hear(
        void (*adjust)(uint32_t, struct hth_session_opts *), int code, const char *const says[2])
{
    struct world_opts o = quiet_world();
    struct world w;

    o.run_ms = 60000;
    o.adjust = adjust;
    world_open(&w, &o);
    world_advance(&w, SOON);
    for (uint32_t r = 0; r < o.nodes; r++) {
        const struct hth_local_error *e = world_error(&w, r);

        cr_assert(ne(ptr, (void *)(uintptr_t)e, NULL), "rank %u has heard nothing", r);
        cr_assert(eq(int, e->code, code), "rank %u: %s", r, e->text);
        for (int i = 0; i < 2; i++)
            cr_assert(ne(ptr, strstr(e->text, says[i]), NULL), "rank %u: %s", r, e->text);
    }
    world_close(&w);
}

Test(recovery, a_member_of_another_version_is_an_error_that_names_both_ranges)
{
    static const char *const says[] = { "7 to 9", "1 to 1" };

    all_hear(another_version, HEARTH_EPROTO, says);
}

Test(recovery, a_member_with_another_key_is_an_error_that_says_so)
{
    static const char *const says[] = { "another job key", "the same key file" };

    all_hear(another_key, HEARTH_EAUTH, says);
}

/* Nothing is pulled, since each node has what its rank needs: the time goes into verifying. */
Test(recovery, the_time_that_verifying_took_is_told)
{
    struct world_opts o = quiet_world();
    struct world w;

    o.work_ms = WORKS;
    world_open(&w, &o);
    world_run(&w);
    cr_assert(eq(int, w.why[0], 0), "%s", w.why);
    for (uint32_t r = 0; r < o.nodes; r++) {
        const struct hearth_recovery *info = world_recovery(&w, r);

        cr_assert(ne(ptr, (void *)(uintptr_t)info, NULL));
        cr_assert(ne(u64, info->step, 0));
        cr_assert(ge(u32, info->verify_ms, WORKS));
        cr_assert(eq(u32, info->pull_ms, 0));
        cr_assert(eq(u64, info->pulled_bytes, 0));
    }
    world_close(&w);
}
