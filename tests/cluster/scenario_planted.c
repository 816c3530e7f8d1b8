/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Scenarios that go wrong on purpose, for `--planted` alone: a runner that calls one of them
 * passed, but the first, is broken.
 */
#include "cluster.h"

#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

static void close_for_ever(void)
{
    for (;;)
        pause();
}

static int passes(struct world *w, const char *arg)
{
    (void)arg;
    TRY(world_begin(w, 2, 1, 1));
    return world_save(w, 2);
}

static int fails(struct world *w, const char *arg)
{
    return lost(w, "planted: %s", arg);
}

static int hangs(struct world *w, const char *arg)
{
    (void)w, (void)arg;
    close_for_ever();
    return 0;
}

static int hangs_closing(struct world *w, const char *arg)
{
    (void)arg;
    w->closing = close_for_ever;
    return 0;
}

static int crashes_closing(struct world *w, const char *arg)
{
    (void)arg;
    w->closing = abort;
    return 0;
}

/* The scenario does not know of the kill: its reason has the crash, and where it was. */
static int engine_crashes(struct world *w, const char *arg)
{
    (void)arg;
    TRY(world_begin(w, 2, 1, 1));
    TRY(node_engine_signal(w, 1, SIGSEGV));
    nap_ms(500);
    return world_save(w, 2);
}

/* A bit of a copy, where no read looks. */
static int copy_differs(struct world *w, const char *arg)
{
    struct object copy;
    uint64_t bytes = 0;

    (void)arg;
    TRY(world_begin(w, 2, 1, 1));
    TRY(object_find(w, 1, 1, 0, &copy));
    TRY(file_flip(w, copy.path, 4096 + copy.data_len - 1));
    return objects_compare(w, 1, &bytes);
}

const struct scenario scenarios_planted[] = { { "planted-passes", passes, NULL },
    { "planted-fails", fails, "it fails" }, { "planted-hangs", hangs, NULL },
    { "planted-hangs-closing", hangs_closing, NULL },
    { "planted-crashes-closing", crashes_closing, NULL },
    { "planted-engine-crashes", engine_crashes, NULL },
    { "planted-copy-differs", copy_differs, NULL }, { 0 } };
