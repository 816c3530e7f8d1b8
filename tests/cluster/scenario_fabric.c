/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What only the provider for tests can show (tests/support/strictfi), which counts and can be slow:
 * memory is registered beside the engine's thread, once a slot, however long that takes.
 */
#include "cluster.h"

#include "strictfi/stats.h"

#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#define MIB ((uint64_t)1 << 20)

struct registered {
    uint64_t bytes;
    uint64_t by_engine; /* times, by the thread that everything waits for: a process's first */
};

static void page_add(const struct strictfi_stats *page, uint32_t pid, struct registered *sum)
{
    sum->bytes += page->registered_bytes;
    for (unsigned i = 0; i < STRICTFI_THREADS; i++)
        if (page->threads[i].tid == pid)
            sum->by_engine += page->threads[i].registrations;
}

/* By all engines that machine k has had. */
static int registered_by(struct world *w, uint32_t k, struct registered *sum)
{
    DIR *d = opendir(w->node[k].seen);
    struct dirent *e;
    int pages = 0;

    while (d && (e = readdir(d))) {
        struct strictfi_stats *page;
        int fd;

        if (strncmp(e->d_name, "strictfi.", 9) != 0)
            continue;
        fd = openat(dirfd(d), e->d_name, O_RDONLY | O_CLOEXEC);
        page = fd < 0 ? MAP_FAILED : mmap(NULL, sizeof(*page), PROT_READ, MAP_SHARED, fd, 0);
        if (fd >= 0)
            close(fd);
        if (page == MAP_FAILED)
            continue;
        page_add(page, (uint32_t)strtoul(e->d_name + 9, NULL, 10), sum);
        munmap(page, sizeof(*page));
        pages++;
    }
    if (d)
        closedir(d);
    return pages ? 0 : lost(w, "machine %s has no counters", w->node[k].name);
}

static int registered_by_all(struct world *w, struct registered *sum)
{
    *sum = (struct registered){ 0 };
    for (uint32_t k = 0; k < w->nodes; k++)
        TRY(registered_by(w, k, sum));
    note(w, "registered: %lu bytes; by engines' own threads %lu times", (unsigned long)sum->bytes,
            (unsigned long)sum->by_engine);
    return 0;
}

/* All the time, heartbeats went out and arrived. The line "paused", that an engine stood still for
 * a third of dead_ms, proves nothing: the engine may have had no processor for so long. */
static int nobody_was_late(struct world *w)
{
    static const char *const words[] = { " peer-down ", " pull-stalled ", " connection-cut ",
        " handshake-failed " };

    for (uint32_t k = 0; k < w->nodes; k++)
        for (unsigned i = 0; i < sizeof(words) / sizeof(words[0]); i++)
            if (node_log_has(w, k, words[i]))
                return lost(w, "the engine of %s was late, or calls another late:%s",
                        w->node[k].name, words[i]);
    return 0;
}

static int slow_fabric(struct world *w, uint64_t ms_per_gib)
{
    char path[200], text[32];

    if (!w->namespaces || strcmp(w->provider ? w->provider : "", "strict") != 0) {
        snprintf(w->why, sizeof(w->why),
                "it needs machines with a tmpfs of their own, and the strict provider");
        return SKIPPED;
    }
    snprintf(path, sizeof(path), "%.150s/mem/strictfi.%%p", w->dir);
    snprintf(text, sizeof(text), "%lu", (unsigned long)ms_per_gib);
    return setenv("STRICTFI_STATS", path, 1) || setenv("STRICTFI_REG_MS_PER_GIB", text, 1)
                   ? lost(w, "no room in the environment")
                   : 0;
}

/* Large ones, on a busy machine. */
static int save_slowly(struct world *w, uint64_t step)
{
    TRY(world_save_begin(w, step));
    TRY(world_answers(w, w->save_ms));
    return world_save_end(w, step);
}

static uint64_t found_bytes;

static int file_add(const char *path, const struct stat *st, int type, struct FTW *at)
{
    (void)path, (void)at;
    found_bytes += type == FTW_F && (uint64_t)st->st_size >= MIB ? (uint64_t)st->st_size : 0;
    return 0;
}

/* Of all machines, in use or free. */
static uint64_t slots_bytes(struct world *w)
{
    char path[300];

    found_bytes = 0;
    for (uint32_t k = 0; k < w->nodes; k++) {
        node_path(w, k, "", path, sizeof(path));
        nftw(path, file_add, 16, FTW_PHYS);
    }
    note(w, "slots: %lu bytes", (unsigned long)found_bytes);
    return found_bytes;
}

/* However many saves there are, a slot is registered when it is first used, and never again; what
 * is left are blobs of some KiB. An engine's own thread registers buffers of messages when it opens
 * its transport, and nothing after that. */
static int saves_register_nothing(struct world *w, uint64_t slot_bytes)
{
    struct registered open, later;

    TRY(registered_by_all(w, &open));
    if (open.bytes > 16 * MIB)
        return lost(
                w, "%lu bytes were registered before the first save", (unsigned long)open.bytes);
    TRY(world_recover(w, 0));
    for (uint64_t step = 1; step < 10; step++)
        TRY(save_slowly(w, step));
    TRY(registered_by_all(w, &later));
    if (later.bytes < 4 * slot_bytes)
        return lost(w, "two machines have registered %lu bytes only", (unsigned long)later.bytes);
    if (later.bytes > open.bytes + slots_bytes(w) + MIB)
        return lost(w, "nine saves have registered %lu bytes, and all slots are %lu",
                (unsigned long)(later.bytes - open.bytes), (unsigned long)found_bytes);
    if (later.by_engine != open.by_engine)
        return lost(w, "engines have registered %lu times on the thread that answers their peers",
                (unsigned long)(later.by_engine - open.by_engine));
    return nobody_was_late(w);
}

/* arg "MIB MS": the bytes of a rank, and how long registering a GiB takes. */
static int registers_beside(struct world *w, const char *arg)
{
    unsigned long mib = 0, ms = 0;
    struct sysinfo now;

    sscanf(arg, "%lu %lu", &mib, &ms);
    if (!sysinfo(&now) && (uint64_t)now.freeram * now.mem_unit < 14 * mib * MIB) {
        snprintf(w->why, sizeof(w->why), "it takes %lu MiB of memory", 14 * mib);
        return SKIPPED;
    }
    TRY(slow_fabric(w, ms));
    w->kib = (uint32_t)mib * 1024;
    w->mib = (uint32_t)mib * 8 + 64;
    w->save_ms = 60000;
    TRY(world_open(w, 2, 1));
    TRY(world_start(w));
    return saves_register_nothing(w, mib * MIB);
}

/* In the first a slot takes a second, longer than an engine may stand still; the second is 4 GiB of
 * slots on a machine, at what pinning 4 KiB pages costs. */
const struct scenario scenarios_fabric[] = { { "registers-beside", registers_beside, "64 16000" },
    { "registers-4-gib-beside", registers_beside, "800 100" }, { 0 } };
