/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A bit is flipped in memory. The job gets the right bytes from another holder, and afterwards all
 * copies are right again. With the engines' processes alive, and adopted by new ones.
 */
#include "cluster.h"

#include <signal.h>
#include <string.h>

#define OWNER 1u

static int damage(struct world *w, const char *what)
{
    struct object o;
    uint32_t k = w->seat[OWNER];
    char path[400];

    if (!strcmp(what, "manifest")) {
        TRY(manifest_path(w, k, 2, path, sizeof(path)));
        return file_flip(w, path, 150);
    }
    if (!strcmp(what, "replica"))
        TRY(object_holder(w, 2, OWNER, k, &k));
    TRY(object_find(w, k, 2, OWNER, &o));
    if (!strcmp(what, "table"))
        return file_flip(w, o.path, (4096 + o.data_len + 4095) / 4096 * 4096 + o.table_len - 20);
    return file_flip(w, o.path, 4096 + o.data_len / 2);
}

static int check_repaired(struct world *w)
{
    uint64_t until = now_ms() + 10000;

    for (;;) {
        struct object a, b;
        uint32_t k = w->seat[OWNER];

        if (!object_find(w, k, 2, OWNER, &a) && !object_holder(w, 2, OWNER, k, &k) &&
                !object_find(w, k, 2, OWNER, &b) && object_same(w, &a, &b))
            return 0;
        if (now_ms() >= until)
            return lost(w, "the copies of rank %u are still not equal", OWNER);
        nap_ms(50);
    }
}

static int flip(struct world *w, const char *what, int engines)
{
    TRY(world_begin(w, 3, 1, 2));
    world_stop(w);
    for (uint32_t k = 0; !engines && k < w->nodes; k++)
        TRY(node_engine_signal(w, k, SIGKILL));
    TRY(damage(w, what));
    TRY(world_start(w));
    TRY(world_recover(w, 2));
    TRY(world_protected(w));
    TRY(check_repaired(w));
    TRY(node_kill(w, w->seat[OWNER])); /* so the copy must be what it is said to be */
    TRY(node_up(w, w->seat[OWNER]));
    TRY(world_restart(w, 2));
    return world_save(w, 3);
}

static int flip_alive(struct world *w, const char *what)
{
    return flip(w, what, 1);
}

static int flip_adopted(struct world *w, const char *what)
{
    return flip(w, what, 0);
}

/* Both copies of the newest are bad: the older one that is kept is recovered, and it is said. */
static int flip_both(struct world *w, const char *arg)
{
    (void)arg;
    w->keep = 2;
    TRY(world_begin(w, 3, 1, 2));
    world_stop(w);
    TRY(damage(w, "local"));
    TRY(damage(w, "replica"));
    TRY(world_start(w));
    TRY(world_recover(w, 1));
    if (!w->beyond)
        return lost(w, "nobody says that step 2 was beyond redundancy");
    TRY(world_protected(w));
    TRY(world_save(w, 2));
    return world_restart(w, 2);
}

const struct scenario scenarios_damage[] = { { "flip-local", flip_alive, "local", 1 },
    { "flip-replica", flip_alive, "replica", 1 }, { "flip-table", flip_alive, "table", 0 },
    { "flip-manifest", flip_alive, "manifest", 0 },
    { "flip-local-adopted", flip_adopted, "local", 0 },
    { "flip-replica-adopted", flip_adopted, "replica", 0 },
    { "flip-table-adopted", flip_adopted, "table", 0 }, { "flip-both-copies", flip_both, NULL, 1 },
    { "flip-manifest-adopted", flip_adopted, "manifest", 0 }, { 0 } };
