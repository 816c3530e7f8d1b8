/* SPDX-License-Identifier: Apache-2.0 */
/*
 * transport = auto: nodes that are alike, nodes that lack a library, and what a job does that began
 * on something better, or on something worse. Of what auto takes a machine of namespaces has TCP in
 * three ways: our own sockets are the best of them, then libfabric's, then UCX's.
 */
#include "cluster.h"

#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

static int copy_program(const char *from, const char *to)
{
    int in = open(from, O_RDONLY | O_CLOEXEC), out = open(to, O_WRONLY | O_CREAT | O_CLOEXEC, 0700);
    ssize_t n = in < 0 || out < 0 ? -1 : 1;

    while (n > 0)
        n = sendfile(out, in, NULL, 1u << 24);
    if (in >= 0)
        close(in);
    if (out >= 0)
        close(out);
    return n ? -1 : 0;
}

/* An engine finds its modules beside the program: a copy of it, and beside that all but
 * hearth-tcp.so. */
static int engine_without_tcp(struct world *w)
{
    static const char *const modules[] = { "hearth-ofi.so", "hearth-ucx.so", "hearth-ucx-impl.so" };
    char bin[PATH_MAX], from[PATH_MAX + 64], to[400];

    if (!realpath(w->bin, bin))
        return lost(w, "no folder %s", w->bin);
    for (size_t i = 0; i < 3; i++) {
        static const char *const parts[] = { "", "/bin", "/lib" };

        snprintf(to, sizeof(to), "%.240s/without-tcp%s", w->dir, parts[i]);
        if (mkdir(to, 0755))
            return lost(w, "cannot make %s", to);
    }
    for (size_t i = 0; i < 3; i++) {
        snprintf(from, sizeof(from), "%s/../lib/%s", bin, modules[i]);
        snprintf(to, sizeof(to), "%.240s/without-tcp/lib/%s", w->dir, modules[i]);
        if (symlink(from, to))
            return lost(w, "cannot make %s", to);
    }
    snprintf(from, sizeof(from), "%s/hearthd", bin);
    snprintf(to, sizeof(to), "%.240s/without-tcp/bin/hearthd", w->dir);
    return copy_program(from, to) ? lost(w, "cannot copy %s", from) : 0;
}

/* Each engine that there is now logs that it listens on it. */
static int all_are_on(struct world *w, const char *line, int times)
{
    for (uint32_t k = 0; k < w->nodes; k++)
        if (node_log_has(w, k, line) < times)
            return lost(w, "the engine of %s does not say '%s'", w->node[k].name, line);
    return 0;
}

static int lose_and_go_on(struct world *w, uint32_t k, uint64_t step)
{
    TRY(node_kill(w, k));
    TRY(node_up(w, k));
    TRY(world_restart(w, step));
    return world_save(w, step + 1);
}

static int alike(struct world *w, const char *arg)
{
    (void)arg;
    TRY(world_begin(w, 3, 1, 1));
    TRY(all_are_on(w, " fabric tcp: the best that opens here", 1));
    TRY(lose_and_go_on(w, 1, 1));
    return all_are_on(w, " fabric tcp: ", 1);
}

/* With a key, on a network that is called hostile: a fabric that would accept any connection is
 * left out. */
static int alike_among_strangers(struct world *w, const char *arg)
{
    (void)arg;
    TRY(key_make(w));
    TRY(world_begin(w, 3, 1, 1));
    TRY(all_are_on(w, " fabric tcp: the best that opens here", 1));
    TRY(all_are_on(w, " obeys whoever reaches its port", 2));
    return lose_and_go_on(w, 1, 1);
}

static int without_ucx(struct world *w, const char *arg)
{
    (void)arg;
    w->no_ucx = 1u << 1;
    TRY(world_begin(w, 3, 1, 1));
    TRY(all_are_on(w, " fabric tcp: ", 1));
    if (!node_log_has(w, 1, " fabric-left-out ucx tcp: ucx_library (HEARTH_UCX_LIBRARY) is"))
        return lost(w, "the engine of %s does not say why it has no ucx", w->node[1].name);
    return lose_and_go_on(w, 2, 1);
}

/* The others come down to what it has; a fresh machine does likewise, and an engine that comes back
 * under living ranks is at once on what it was on. */
static int without_tcp(struct world *w, const char *library)
{
    char takes[80], before[80];

    snprintf(takes, sizeof(takes), " fabric not all nodes have tcp: the next engine takes %s tcp",
            library);
    snprintf(before, sizeof(before), " fabric %s tcp: on record for this job", library);
    TRY(engine_without_tcp(w));
    w->no_tcp = 1u << 1;
    w->no_ofi = strcmp(library, "ucx") == 0 ? 1u << 1 : 0;
    w->loses_engines = 1;
    TRY(world_begin(w, 3, 2, 1));
    for (uint32_t k = 0; k < w->nodes; k += 2)
        if (node_log_has(w, k, takes) != 1)
            return lost(w, "the engine of %s did not take %s, once", w->node[k].name, library);
    if (!node_log_has(w, 1, " fabric-left-out tcp: transport tcp: hearth-tcp.so cannot be loaded"))
        return lost(w, "the engine of %s does not say why it has no tcp", w->node[1].name);
    TRY(lose_and_go_on(w, 2, 1));
    if (node_log_has(w, 2, takes) != 1)
        return lost(w, "the fresh machine %s did not take %s", w->node[2].name, library);
    TRY(node_engine_signal(w, 0, SIGKILL));
    TRY(world_save(w, 3));
    if (!node_log_has(w, 0, before) || !node_log_has(w, 0, " resumed "))
        return lost(w, "the engine of %s that came back did not go on", w->node[0].name);
    return world_restart(w, 3);
}

static int refused_everywhere(struct world *w, const char *part, const char *node)
{
    for (uint32_t r = 0; r < w->ranks; r++) {
        TRY(rank_refusal(w, r, w->open_ms + 5000, part));
        if (!strstr(w->rank[r].answer, node))
            return lost(w, "rank %u is not told of %s: %s", r, node, w->rank[r].answer);
    }
    world_stop(w);
    return 0;
}

static int start_refused(struct world *w, const char *part, uint32_t k)
{
    w->launches++;
    for (uint32_t r = 0; r < w->ranks; r++)
        TRY(rank_start(w, r, w->seat[r]));
    return refused_everywhere(w, part, w->node[k].name);
}

static int with_nothing(struct world *w, const char *arg)
{
    (void)arg;
    TRY(engine_without_tcp(w));
    w->no_tcp = w->no_ofi = w->no_ucx = 1u << 1;
    TRY(world_open(w, 3, 1));
    TRY(start_refused(w, "no fabric of node ", 1));
    w->no_tcp = w->no_ofi = w->no_ucx = 0; /* mended */
    TRY(world_start(w));
    TRY(world_recover(w, 0));
    return world_save(w, 1);
}

/* A replacement has less than the job began on: by name, and only where that is allowed it goes
 * on. */
static int comes_down(struct world *w, const char *arg)
{
    (void)arg;
    TRY(world_begin(w, 3, 1, 1));
    TRY(node_kill(w, 1));
    TRY(node_up(w, 1));
    world_stop(w);
    TRY(engine_without_tcp(w));
    w->no_tcp = 1u << 1;
    TRY(start_refused(w, "this job began on tcp, which rank 1 ", 1));
    w->allow_slower = w->loses_engines = 1;
    TRY(world_start(w));
    for (uint32_t k = 0; k < w->nodes; k += 2)
        if (!node_log_has(w, k, " engine-ends it comes back on another fabric"))
            return lost(w, "the engine of %s did not come back", w->node[k].name);
    TRY(world_recover(w, 1));
    TRY(world_save(w, 2));
    return world_restart(w, 2);
}

/* The same while the other ranks live on: their engines end under them and come back. */
static int comes_down_under_survivors(struct world *w, const char *arg)
{
    char meet[64];

    (void)arg;
    w->allow_slower = w->loses_engines = 1;
    TRY(world_begin(w, 3, 1, 2));
    TRY(all_are_on(w, " fabric tcp: ", 1));
    TRY(engine_without_tcp(w));
    w->launches++;
    TRY(node_kill(w, 1));
    TRY(node_up(w, 1));
    w->no_tcp = 1u << 1;
    TRY(rank_start(w, 1, 1));
    snprintf(meet, sizeof(meet), "meet %s %u", w->node[0].address, rank_port(w));
    for (uint32_t r = 0; r < w->ranks; r += 2) {
        TRY(rank_post(w, r, meet));
        TRY(rank_answer(w, r, 5000));
        TRY(rank_post(w, r, "recover"));
    }
    TRY(rank_answer(w, 1, 25000));
    TRY(rank_post(w, 1, "recover"));
    TRY(world_recovered(w, 2));
    for (uint32_t k = 0; k < w->nodes; k += 2)
        if (!node_log_has(w, k, " fabric ofi tcp: on record for this job"))
            return lost(w, "the engine of %s is not back on libfabric", w->node[k].name);
    TRY(world_protected(w));
    return world_save(w, 3);
}

/* A job of a build that had no sockets of its own: engines that come back in its epoch stay on what
 * their peers know them by, and a fresh machine takes it, none refused; with leave to change they
 * go up. */
static int goes_up(struct world *w, const char *arg)
{
    (void)arg;
    TRY(engine_without_tcp(w));
    w->no_tcp = 7;
    TRY(world_begin(w, 3, 1, 1));
    TRY(all_are_on(w, " fabric ofi tcp: the best that opens here", 1));
    world_stop(w);
    for (uint32_t k = 0; k < w->nodes; k++)
        TRY(node_engine_signal(w, k, SIGKILL));
    w->no_tcp = 0;
    w->loses_engines = 1;
    TRY(world_start(w));
    TRY(all_are_on(w, " fabric ofi tcp: on record for this job", 1));
    TRY(world_recover(w, 1));
    TRY(lose_and_go_on(w, 2, 1));
    if (!node_log_has(w, 2, " fabric not all nodes have tcp: the next engine takes ofi tcp"))
        return lost(w, "the fresh machine %s did not take ofi", w->node[2].name);
    w->allow_slower = 1;
    TRY(world_restart(w, 2));
    TRY(all_are_on(
            w, " fabric all nodes have what is better than ofi tcp: the next engine takes tcp", 1));
    TRY(all_are_on(w, " fabric tcp: on record for this job", 1));
    return world_save(w, 3);
}

const struct scenario scenarios_auto[] = { { "auto-alike", alike, NULL },
    { "auto-alike-among-strangers", alike_among_strangers, NULL },
    { "auto-one-without-ucx", without_ucx, NULL }, { "auto-one-without-tcp", without_tcp, "ofi" },
    { "auto-one-with-ucx-alone", without_tcp, "ucx" }, { "auto-goes-up", goes_up, NULL },
    { "auto-one-with-nothing", with_nothing, NULL }, { "auto-comes-down", comes_down, NULL },
    { "auto-comes-down-under-survivors", comes_down_under_survivors, NULL }, { 0 } };
