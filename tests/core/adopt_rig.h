/* SPDX-License-Identifier: Apache-2.0 */
/* A store that is opened on what is there already, and what its scan finds. */
#ifndef HEARTH_TESTS_CORE_ADOPT_RIG_H
#define HEARTH_TESTS_CORE_ADOPT_RIG_H

#include "check.h"
#include "raws.h"
#include "tmp_root.h"

#include "core/format/manifest.h"
#include "core/store/store_tmpfs.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB (UINT64_C(1) << 20)

static const struct hth_save_id save_a = { 7, 11, 40, 1 };
static const char *root;
static struct hth_store *s;
static struct hth_store_faults faults;
static char said[8192];

static inline void say(void *arg, enum hearth_log_level level, const char *event, const char *text)
{
    (void)arg, (void)level, (void)event;
    strncat(said, text, sizeof(said) - strlen(said) - 1);
    strncat(said, "\n", sizeof(said) - strlen(said) - 1);
}

static inline void setup(void)
{
    alarm(60);
    root = tmp_root(64 * MIB);
    cr_assert(root != NULL);
}

static inline void teardown(void)
{
    if (s)
        s->ops->close(s);
    tmp_root_remove(root);
}

static inline struct hth_store_tmpfs_opts options(void)
{
    return (struct hth_store_tmpfs_opts){
        .root = root, .job = "job", .faults = &faults, .log = { .emit = say }
    };
}

static inline int open_store(struct hearth_error *err)
{
    struct hth_store_tmpfs_opts opts = options();

    return hth_store_tmpfs_open(&opts, &s, err);
}

static inline void close_store(void)
{
    s->ops->close(s);
    s = NULL;
}

/* A path below <root>/job. */
static inline const char *at(const char *name)
{
    static char path[2][1024];
    static int turn;

    turn = !turn;
    snprintf(path[turn], sizeof(path[turn]), "%s/job/%s", root, name);
    return path[turn];
}

static inline void put(const char *name, const char *text, size_t len)
{
    int fd = open(at(name), O_RDWR | O_CREAT | O_TRUNC, 0600);

    cr_assert(ge(int, fd, 0), "%s: %s", name, strerror(errno));
    cr_assert(eq(sz, (size_t)write(fd, text, len), len));
    close(fd);
}

static inline struct hth_slot *sealed(struct hth_save_id save, const char *name, int value)
{
    struct hth_block block = { .signature = HTH_SIG_TENSORS, .own = 1, .save = save };
    struct hth_slot *slot;

    must(s->ops->take(s, 2 * MIB, &slot, NULL));
    block.data_len = slot->capacity - 2 * HTH_BLOCK;
    block.table_off = HTH_BLOCK + HTH_ALIGN(block.data_len);
    block.table_len = 64;
    block.generation = slot->generation;
    snprintf(block.job, sizeof(block.job), "job");
    snprintf(block.name, sizeof(block.name), "%s", name);
    hth_block_encode(&block, slot->base);
    memset(slot->base + HTH_BLOCK, value, slot->capacity - HTH_BLOCK);
    must(s->ops->seal(s, slot, save, name, NULL));
    return slot;
}

struct seen {
    int count;
    struct hth_store_found f[16];
    char dir[16][64], name[16][128];
};

static inline void see(void *arg, const struct hth_store_found *f)
{
    struct seen *seen = arg;
    int i = seen->count++;

    cr_assert(lt(int, i, 16));
    seen->f[i] = *f;
    snprintf(seen->dir[i], sizeof(seen->dir[i]), "%s", f->dir);
    snprintf(seen->name[i], sizeof(seen->name[i]), "%s", f->name);
}

static inline struct seen scan(void)
{
    struct seen seen = { .count = 0 };

    must(s->ops->scan(s, see, &seen, NULL));
    return seen;
}

/* The object that was found under this name; fails when there is none. */
static inline const struct hth_store_found *found(const struct seen *seen, const char *name)
{
    for (int i = 0; i < seen->count; i++)
        if (!strcmp(seen->name[i], name))
            return &seen->f[i];
    cr_assert(0, "%s was not found", name);
    return NULL;
}

static inline int in_dir(const struct seen *seen, const char *name, const char *dir)
{
    return !strcmp(seen->dir[found(seen, name) - seen->f], dir);
}

static inline int byte_at(const char *path, off_t off)
{
    unsigned char byte = 0;
    int fd = open(path, O_RDONLY);

    cr_assert(eq(long, (long)pread(fd, &byte, 1, off), 1), "%s", path);
    close(fd);
    return byte;
}

#endif
