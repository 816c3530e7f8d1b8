/* SPDX-License-Identifier: Apache-2.0 */
/* A store on a tmpfs of its own for the tests of its slots, and bytes to know them by. */
#ifndef HEARTH_TESTS_CORE_POOL_RIG_H
#define HEARTH_TESTS_CORE_POOL_RIG_H

#include "check.h"
#include "tmp_root.h"

#include "core/store/store_tmpfs.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MIB (UINT64_C(1) << 20)

static const char *root;
static struct hth_store *s;
static struct hth_store_faults faults;
static char said[4096];

static inline void say(void *arg, enum hearth_log_level level, const char *event, const char *text)
{
    (void)arg, (void)level;
    strncat(said, event, sizeof(said) - strlen(said) - 1);
    strncat(said, ": ", sizeof(said) - strlen(said) - 1);
    strncat(said, text, sizeof(said) - strlen(said) - 1);
    strncat(said, "\n", sizeof(said) - strlen(said) - 1);
}

static inline void setup(uint64_t mount_bytes, struct hth_store_tmpfs_opts opts)
{
    alarm(100);
    if (!root)
        root = tmp_root(mount_bytes);
    cr_assert(root != NULL);
    opts.root = root;
    opts.job = "job";
    opts.faults = &faults;
    opts.log = (struct hth_log){ .emit = say };
    must(hth_store_tmpfs_open(&opts, &s, NULL));
}

static inline void tight(struct hth_store_tmpfs_opts opts)
{
    root = tmp_root_mount(200 * MIB, NULL);
    if (!root)
        cr_skip_test("no right to mount a tmpfs of a given size");
    opts.margin_bytes = 4 * MIB;
    setup(200 * MIB, opts);
}

static inline void teardown(void)
{
    s->ops->close(s);
    tmp_root_remove(root);
}

static inline void work_all(void)
{
    while (s->ops->work(s, HTH_WORK_ALL) != HTH_NEVER)
        ;
}

static inline struct hth_slot *take(uint64_t bytes)
{
    struct hth_slot *slot;

    must(s->ops->take(s, bytes, &slot, NULL));
    return slot;
}

/* The slot's mapping in /proc/self/smaps: KiB of this kind; -1: there is none. */
static inline long smaps_kib(const struct hth_slot *slot, const char *kind)
{
    FILE *f = fopen("/proc/self/smaps", "re");
    size_t len = strlen(kind);
    unsigned long from, to;
    char line[512];
    long kib = -1;
    int here = 0;

    while (f && fgets(line, sizeof(line), f)) {
        if (sscanf(line, "%lx-%lx ", &from, &to) == 2)
            here = from <= (unsigned long)(uintptr_t)slot->base &&
                   (unsigned long)(uintptr_t)slot->base < to;
        else if (here && !strncmp(line, kind, len) && line[len] == ':')
            kib = strtol(line + len + 1, NULL, 10);
    }
    if (f)
        fclose(f);
    return kib;
}

/* Bytes that differ from use to use and from place to place. */
static inline void pattern(unsigned char *at, uint64_t bytes, uint64_t seed)
{
    for (uint64_t i = 0; i + 8 <= bytes; i += 8) {
        uint64_t v = seed * UINT64_C(0x9e3779b97f4a7c15) ^ i;
        memcpy(at + i, &v, 8);
    }
}

static inline uint64_t wrong(const unsigned char *at, uint64_t bytes, uint64_t seed)
{
    uint64_t bad = 0;

    for (uint64_t i = 0; i + 8 <= bytes; i += 8) {
        uint64_t v = seed * UINT64_C(0x9e3779b97f4a7c15) ^ i;
        bad += memcmp(at + i, &v, 8) != 0;
    }
    return bad;
}

#endif
