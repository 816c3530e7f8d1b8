/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A bit is flipped in memory. The job gets the right bytes from another holder, and afterwards all
 * copies are right again. With the engines' processes alive, and adopted by new ones.
 */
#include "cluster.h"

#include <glob.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

static int is_shared(const char *what)
{
    return !strcmp(what, "manifest") || !strcmp(what, "common");
}

/* A file that every machine has. */
static int shared_path(struct world *w, const char *what, uint32_t k, char *out, size_t len)
{
    return !strcmp(what, "manifest") ? manifest_path(w, k, 2, out, len)
                                     : common_path(w, k, 2, out, len);
}

static int damage(struct world *w, const char *what, uint32_t owner)
{
    struct object o;
    uint32_t k = w->seat[owner];
    char path[400];

    if (is_shared(what)) {
        TRY(shared_path(w, what, k, path, sizeof(path)));
        return file_flip(w, path, 150);
    }
    if (!strcmp(what, "replica"))
        TRY(object_holder(w, 2, owner, k, &k));
    TRY(object_find(w, k, 2, owner, &o));
    if (!strcmp(what, "table"))
        return file_flip(w, o.path, (4096 + o.data_len + 4095) / 4096 * 4096 + o.table_len - 20);
    return file_flip(w, o.path, 4096 + o.data_len / 2);
}

/* The file of every machine is what it was before a bit of it was flipped. */
static int is_repaired_shared(struct world *w, const char *what, uint64_t digest)
{
    char path[400];

    for (uint32_t k = 0; k < w->nodes; k++)
        if (shared_path(w, what, k, path, sizeof(path)) || file_digest(path, 1) != digest)
            return 0;
    return 1;
}

static int is_repaired(struct world *w, uint32_t owner)
{
    struct object a, b;
    uint32_t k = w->seat[owner];

    return !object_find(w, k, 2, owner, &a) && !object_holder(w, 2, owner, k, &k) &&
           !object_find(w, k, 2, owner, &b) && object_same(w, &a, &b);
}

static int flip(struct world *w, const char *what, uint32_t owner, int engines)
{
    uint64_t until, digest = 0;
    char path[400];

    TRY(world_begin(w, 3, 1, 2));
    if (is_shared(what)) {
        TRY(shared_path(w, what, w->seat[owner], path, sizeof(path)));
        digest = file_digest(path, 1);
    }
    world_stop(w);
    for (uint32_t k = 0; !engines && k < w->nodes; k++)
        TRY(node_engine_signal(w, k, SIGKILL));
    TRY(damage(w, what, owner));
    TRY(world_start(w));
    TRY(world_recover(w, 2));
    TRY(world_protected(w));
    for (until = now_ms() + 10000;; nap_ms(20)) {
        if (is_shared(what) ? is_repaired_shared(w, what, digest) : is_repaired(w, owner))
            break;
        if (now_ms() >= until)
            return lost(w, "%s of step 2 is still not the same on all machines", what);
    }
    TRY(node_kill(w, w->seat[owner])); /* so recovery reads the copy, which must be right */
    TRY(node_up(w, w->seat[owner]));
    TRY(world_restart(w, 2));
    return world_save(w, 3);
}

/* arg "WHAT RANK": whose part, or whose machine's file. */
static int flip_of(struct world *w, const char *arg, int engines)
{
    char what[16];
    uint32_t owner;

    if (sscanf(arg, "%15s %u", what, &owner) != 2)
        return lost(w, "'%s' cannot be damaged", arg);
    return flip(w, what, owner, engines);
}

static int flip_alive(struct world *w, const char *arg)
{
    return flip_of(w, arg, 1);
}

static int flip_adopted(struct world *w, const char *arg)
{
    return flip_of(w, arg, 0);
}

/* Both copies of the newest are bad: the older save that is kept is recovered, and the ranks learn
 * of the loss. */
static int flip_both(struct world *w, const char *arg)
{
    (void)arg;
    w->keep = 2;
    TRY(world_begin(w, 3, 1, 2));
    world_stop(w);
    TRY(damage(w, "local", 1));
    TRY(damage(w, "replica", 1));
    TRY(world_start(w));
    TRY(world_recover(w, 1));
    if (!w->beyond)
        return lost(w, "nobody says that step 2 was beyond redundancy");
    TRY(world_protected(w));
    TRY(world_save(w, 2));
    return world_restart(w, 2);
}

/* Machine 1 is a fresh one, and its engine stops when the first chunk of rank 1's object has come
 * and is not yet checked: an attacker on the path, with knowledge of the format, has changed it. */
static int forge_what_comes(struct world *w)
{
    uint64_t until = now_ms() + 20000;
    char path[400];
    glob_t found;

    w->kib = 2048; /* one chunk */
    TRY(world_begin(w, 3, 1, 2));
    world_stop(w);
    TRY(node_kill(w, 1));
    TRY(node_up(w, 1));
    TRY(node_engine_start(w, 1, "HEARTH_STOP_POINT", "arrived"));
    TRY(world_start(w));
    TRY(world_post(w, "recover"));
    while (!node_stopped(w, 1)) {
        if (now_ms() >= until)
            return lost(w, "no chunk came");
        nap_ms(5);
    }
    node_path(w, 1, ".hearth/*/__1__0_src1.distcp.tmp", path, sizeof(path));
    if (glob(path, 0, NULL, &found))
        return lost(w, "there is no %s", path);
    snprintf(path, sizeof(path), "%s", found.gl_pathv[0]);
    globfree(&found);
    TRY(file_forge(w, path, 4096 + 1024 * 1024));
    return node_engine_signal(w, 1, SIGCONT);
}

/* It is found, named and pulled again, whatever carries it. */
static int forged_strong(struct world *w, const char *arg)
{
    (void)arg;
    w->strong = 1;
    TRY(forge_what_comes(w));
    TRY(world_recovered(w, 2));
    if (!node_log_has(w, 1, "chunk 0 has a wrong checksum"))
        return lost(w, "nobody says that chunk 0 was wrong");
    TRY(world_protected(w));
    return world_save(w, 3);
}

/* Nothing tells, so the scenario above does show something. */
static int forged_under_crc(struct world *w, const char *arg)
{
    (void)arg;
    TRY(forge_what_comes(w));
    TRY(rank_refusal(w, 1, 25000, "weights"));
    return 0;
}

#define CHUNK  (UINT64_C(4) << 20)
#define CHUNKS 5u

/* The file of rank 1's object of the save that is under way, when it is sealed on machine 1. */
static int sealed_path(struct world *w, char path[400])
{
    uint64_t until = now_ms() + 1500;
    glob_t found;

    node_path(w, 1, ".hearth/*/__1__0_src1.distcp", path, 400);
    while (glob(path, 0, NULL, &found)) {
        if (now_ms() >= until)
            return lost(w, "there is no %s", path);
        nap_ms(2);
    }
    snprintf(path, 400, "%s", found.gl_pathv[0]);
    globfree(&found);
    return 0;
}

/* Machine 0 stands still while rank 1 saves, so its copy of the object comes after the bit has
 * changed. */
static int change_chunk(struct world *w, uint64_t step, uint32_t chunk)
{
    uint64_t at = 4096 + chunk * CHUNK + chunk * UINT64_C(100003);
    char path[400], line[64];

    w->step_of[++w->tags] = w->newest = step;
    snprintf(line, sizeof(line), "save %lu %lu", (unsigned long)step, (unsigned long)w->tags);
    TRY(node_engine_signal(w, 0, SIGSTOP));
    TRY(rank_post(w, 1, line));
    TRY(rank_answer(w, 1, 1500));
    TRY(sealed_path(w, path));
    TRY(file_flip(w, path, at));
    TRY(node_engine_signal(w, 0, SIGCONT));
    TRY(rank_post(w, 0, line));
    if (!rank_poll(w, 0, 15000)) /* its save may have failed before it has begun */
        return lost(w, "rank 0 did not answer '%s'", line);
    snprintf(line, sizeof(line), "wait %lu %u %u", (unsigned long)step, PROTECTED, w->save_ms);
    TRY(world_post(w, line));
    (void)world_answers_any(w, 8000); /* it fails at once, and not at save_ms */
    for (uint32_t r = 0; r < w->ranks; r++)
        if (!strncmp(w->rank[r].answer, "ok ", 3))
            return lost(w, "rank %u has step %lu PROTECTED, of which a bit had changed", r,
                    (unsigned long)step);
    snprintf(line, sizeof(line), "from node 1: chunk %u has a wrong checksum", chunk);
    if (!node_log_has(w, 0, line))
        return lost(w, "machine 0 does not name chunk %u", chunk);
    return 0;
}

/* A bit of each chunk in turn changes in the owner's memory, after its object was sealed and before
 * the peer pulls it. */
static int changed_before_the_pull(struct world *w, const char *arg)
{
    w->strong = !strcmp(arg, "strong");
    w->kib = (CHUNKS - 1) * 4096 + 1024;
    TRY(world_begin(w, 2, 1, 1));
    for (uint32_t chunk = 0; chunk < CHUNKS; chunk++) {
        TRY(change_chunk(w, 2 + 2 * chunk, chunk));
        TRY(world_save(w, 3 + 2 * chunk));
    }
    return world_restart(w, 1 + 2 * CHUNKS);
}

#define FLIP(name, what)                            \
    { "flip-" name, flip_alive, what },             \
    {                                               \
        "flip-" name "-adopted", flip_adopted, what \
    }

const struct scenario scenarios_damage[] = { FLIP("local", "local 1"), FLIP("replica", "replica 1"),
    FLIP("table", "table 1"), FLIP("manifest", "manifest 1"), FLIP("first-manifest", "manifest 0"),
    FLIP("common", "common 1"), FLIP("first-common", "common 0"),
    { "flip-both-copies", flip_both, NULL }, { "forged-strong", forged_strong, NULL },
    { "forged-under-a-crc", forged_under_crc, NULL },
    { "changed-before-the-pull", changed_before_the_pull, "crc32c" },
    { "changed-before-the-pull-strong", changed_before_the_pull, "strong" }, { 0 } };
