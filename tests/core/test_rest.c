/* SPDX-License-Identifier: Apache-2.0 */
/* Where a memory limit is near, slots are not mapped between uses, and keep their bytes. */
#include "pool_rig.h"

#include "core/store/store.h"
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>

static char proc[] = "/tmp/hearth-rest-XXXXXX";

static void put(const char *name, const char *text)
{
    char path[256];
    FILE *f;

    snprintf(path, sizeof(path), "%s/%s", proc, name);
    f = fopen(path, "we");
    cr_assert(f && fputs(text, f) >= 0 && !fclose(f), "%s", path);
}

/* A /proc with one cgroup, which has so much left. */
static void left(const char *current)
{
    put("memory.max", "1073741824\n");
    put("memory.current", current);
}

static void open_rest(void)
{
    char path[256], line[256];

    cr_assert(mkdtemp(proc) != NULL);
    snprintf(path, sizeof(path), "%s/self", proc);
    must(mkdir(path, 0700));
    put("self/cgroup", "0::/\n");
    snprintf(line, sizeof(line), "30 23 0:26 / %s rw - cgroup2 cgroup rw\n", proc);
    put("self/mountinfo", line);
    left("0\n");
    setup(64 * MIB, (struct hth_store_tmpfs_opts){ .proc = proc, .margin_bytes = MIB });
}

static void close_rest(void)
{
    teardown();
    tmp_root_remove(proc);
}

TestSuite(rest, .init = open_rest, .fini = close_rest);

/* KiB of it that this process has mapped. */
static long mapped_kib(const struct hth_slot *slot)
{
    return smaps_kib(slot, "Rss");
}

static struct hth_slot *sealed(void)
{
    const struct hth_save_id save = { .epoch = 1, .nonce = 1, .step = 1, .attempt = 1 };
    struct hth_slot *slot = take(8 * MIB);

    pattern(slot->base, 8 * MIB, 5);
    must(s->ops->receive(s, slot, save, "rank-0", NULL));
    must(s->ops->seal(s, slot, save, "rank-0", NULL));
    return slot;
}

Test(rest, sealed_slots_are_not_mapped_where_a_limit_is_near_and_keep_their_bytes)
{
    struct hth_slot *slot = sealed();

    left("1072693248\n"); /* 1 MiB */
    s->ops->rest(s);
    cr_expect(eq(long, mapped_kib(slot), 0));
    cr_expect(ne(ptr, strstr(said, "slots-unmapped"), NULL), "%s", said);
    cr_expect(eq(u64, wrong(slot->base, 8 * MIB, 5), 0));
    cr_expect(ge(long, mapped_kib(slot), 8192));
    s->ops->rest(s);
    cr_expect(eq(long, mapped_kib(slot), 0));
    cr_expect(eq(ptr, strstr(strstr(said, "slots-unmapped") + 1, "slots-unmapped"), NULL));
    left("0\n");
    s->ops->rest(s);
    left("1072693248\n");
    s->ops->rest(s);
    cr_expect(ne(ptr, strstr(strstr(said, "slots-unmapped") + 1, "slots-unmapped"), NULL), "%s",
            said);
}

Test(rest, where_there_is_room_all_slots_stay_mapped)
{
    struct hth_slot *slot = sealed();

    s->ops->rest(s);
    cr_expect(ge(long, mapped_kib(slot), 8192));
}

/* A slot of 40 GiB, which no memory is behind. */
Test(rest, slots_stay_mapped_while_no_process_could_take_what_is_left)
{
    struct hth_slot *slot = sealed();
    const struct hth_slot small = *slot;

    slot->capacity = UINT64_C(40) << 30;
    slot->base = mmap(
            NULL, slot->capacity, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    cr_assert(ne(ptr, slot->base, MAP_FAILED));
    put("memory.max", "36507222016\n"); /* 34 GiB */
    cr_expect(zero(int, s->ops->rest(s)));
    put("memory.max", "32212254720\n"); /* 30 GiB */
    cr_expect(eq(int, s->ops->rest(s), 1));
    must(munmap(slot->base, slot->capacity));
    slot->base = small.base;
    slot->capacity = small.capacity;
}
