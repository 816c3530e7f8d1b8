/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Work-arounds for faults of some releases of UCX, with the releases that have them: the
 * release that is loaded decides, not the one that we were built with. A newer release gets what it
 * offers. tests/transport/ucx_releases.sh runs them, and shows each fault with its work-around left
 * out (HEARTH_UCX_WITHOUT, one or several, in builds with test points).
 */
#include "ucx.h"

#include <stdlib.h>

#define RELEASE(major, minor, patch) ((major)*1000000u + (minor)*1000u + (patch))

static const struct {
    const char *what;
    uint32_t from, to; /* the first and the last release with the fault */
    const char *why, *test;
} rows[] = {
    [HTH_UCX_OLD_PROTOCOLS] = { "old-protocols", RELEASE(1, 13, 0), RELEASE(1, 13, 999),
            "an assertion of the new protocols ends the process at the first message",
            "conformance ucx-tcp data" },
    [HTH_UCX_COPIED_SENDS] = { "copied-sends", RELEASE(1, 13, 0), RELEASE(1, 18, 999),
            "over TCP a send from the caller's memory whose peer dies is completed twice, and an "
            "assertion ends the process",
            "conformance ucx-tcp death" },
    [HTH_UCX_CUT_HANDSHAKES] = { "cut-handshakes", RELEASE(1, 13, 0), RELEASE(1, 21, 999),
            "an endpoint that is closed in its handshake leaves an event to the next one with its "
            "descriptor, and an assertion ends the process",
            "conformance ucx-tcp crossing" },
    [HTH_UCX_NO_LOOPBACK] = { "no-loopback", RELEASE(1, 20, 0), RELEASE(1, 20, 999),
            "over TCP a dial by the loopback interface reads the peer's address wrongly, and finds no route to it",
            "conformance ucx-tcp messages" },
};

static int work_around_is_left_out(const char *what)
{
#ifdef HEARTH_POINTS
    const char *without = getenv("HEARTH_UCX_WITHOUT");

    return without && strstr(without, what) != NULL;
#else
    (void)what;
    return 0;
#endif
}

int hth_ucx_needs(enum hth_ucx_work_around w)
{
    unsigned major, minor, patch;
    uint32_t release;

    ucp_get_version(&major, &minor, &patch);
    release = RELEASE(major, minor, patch);
    return release >= rows[w].from && release <= rows[w].to &&
           !work_around_is_left_out(rows[w].what);
}

void hth_ucx_work_arounds_say(const struct hth_log *log)
{
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        if (hth_ucx_needs((enum hth_ucx_work_around)i))
            hth_say(log, HEARTH_LOG_DEBUG, "ucx-work-around", "%s, since in UCX %s %s (%s)",
                    rows[i].what, ucp_get_version_string(), rows[i].why, rows[i].test);
}
