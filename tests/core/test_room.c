/* SPDX-License-Identifier: Apache-2.0 */
/* The room is the least of mount, cgroups and memory, whatever version of cgroups there is. */
#include "check.h"
#include "tmp_root.h"

#include "core/store/room.h"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define MIB (UINT64_C(1) << 20)

static char top[] = "/tmp/hearth-room-XXXXXX";
static const char *mounted;
static int dir_fd;

/* A file below `top`, its directories made. */
static void put(const char *path, const char *text)
{
    char full[512];
    FILE *f;

    snprintf(full, sizeof(full), "%s/%s", top, path);
    for (char *slash = strchr(full + strlen(top) + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(full, 0700);
        *slash = '/';
    }
    f = fopen(full, "w");
    cr_assert(ne(ptr, f, NULL));
    fputs(text, f);
    fclose(f);
}

/* mountinfo with one cgroup mount at <top>/<at>. */
static void put_mount(const char *root, const char *at, const char *type, const char *options)
{
    char line[512];

    snprintf(line, sizeof(line),
            "22 1 0:20 / /proc rw - proc proc rw\n"
            "30 23 0:26 %s %s/%s rw,nosuid shared:9 - %s cgroup %s\n",
            root, top, at, type, options);
    put("self/mountinfo", line);
}

static void setup(void)
{
    alarm(30);
    mounted = tmp_root_mount(64 * MIB, NULL);
    if (!mounted)
        cr_skip_test("no right to mount a tmpfs");
    cr_assert(ne(ptr, mkdtemp(top), NULL));
    dir_fd = open(mounted, O_RDONLY | O_DIRECTORY);
    cr_assert(ge(int, dir_fd, 0));
    put("meminfo", "MemTotal: 2000000 kB\nMemFree: 10 kB\nMemAvailable:  1048576 kB\n");
    put("self/cgroup", "0::/\n");
    put("self/mountinfo", "");
}

static void teardown(void)
{
    if (dir_fd > 0)
        close(dir_fd);
    tmp_root_remove(top);
}

TestSuite(room, .init = setup, .fini = teardown);

Test(room, mount_and_memory_are_read)
{
    struct hth_room room;

    must(hth_room_look(dir_fd, top, &room, NULL));
    cr_assert(eq(int, room.tmpfs, 1));
    cr_assert(eq(u64, room.mount, 64 * MIB));
    cr_assert(eq(u64, room.size, 64 * MIB));
    cr_assert(eq(u64, room.memory, 1024 * MIB));
    cr_assert(eq(u64, room.cgroup, HTH_ROOM_NONE));
    cr_expect(eq(u64, room.cgroup_max, HTH_ROOM_NONE));
    cr_assert(eq(u64, hth_room_least(&room, 4 * MIB), 60 * MIB));
}

Test(room, limit_of_a_parent_cgroup_counts)
{
    struct hth_room room;

    put("self/cgroup", "0::/job/rank\n");
    put_mount("/", "cg", "cgroup2", "rw");
    put("cg/job/rank/memory.max", "max\n");
    put("cg/job/memory.max", "104857600\n");    /* 100 MiB */
    put("cg/job/memory.current", "83886080\n"); /* 80 MiB, of which 10 are page cache */
    put("cg/job/memory.stat", "anon 5\nactive_file 4194304\ninactive_file 6291456\nshmem 9\n");
    must(hth_room_look(dir_fd, top, &room, NULL));
    cr_assert(eq(u64, room.cgroup, 30 * MIB));
    cr_expect(eq(u64, room.cgroup_max, 100 * MIB));
    cr_expect(eq(u64, room.cgroup_used, 70 * MIB));
    cr_assert(eq(u64, hth_room_least(&room, 0), 30 * MIB));
}

Test(room, the_tightest_of_several_levels_counts)
{
    struct hth_room room;

    put("self/cgroup", "0::/a/b\n");
    put_mount("/", "cg", "cgroup2", "rw");
    put("cg/a/b/memory.max", "209715200\n");
    put("cg/a/b/memory.current", "0\n");
    put("cg/a/memory.max", "10485760\n");
    put("cg/a/memory.current", "9437184\n");
    must(hth_room_look(dir_fd, top, &room, NULL));
    cr_assert(eq(u64, room.cgroup, 1 * MIB));
}

Test(room, what_a_cgroup_takes_back_from_counts_as_its_limit)
{
    struct hth_room room;

    put("self/cgroup", "0::/a\n");
    put_mount("/", "cg", "cgroup2", "rw");
    put("cg/a/memory.max", "209715200\n");
    put("cg/a/memory.high", "104857600\n"); /* 100 MiB */
    put("cg/a/memory.current", "62914560\n");
    must(hth_room_look(dir_fd, top, &room, NULL));
    cr_assert(eq(u64, room.cgroup, 40 * MIB));
    put("cg/a/memory.high", "max\n");
    must(hth_room_look(dir_fd, top, &room, NULL));
    cr_assert(eq(u64, room.cgroup, 140 * MIB));
}

Test(room, a_limit_that_cannot_be_seen_is_told)
{
    struct hth_room room;

    must(hth_room_look(dir_fd, top, &room, NULL));
    cr_assert(ne(ptr, (void *)(uintptr_t)room.unseen, NULL), "no cgroups are mounted");
    put("self/cgroup", "0::/\n");
    put_mount("/", "cg", "cgroup2", "rw");
    must(hth_room_look(dir_fd, top, &room, NULL));
    cr_assert(eq(ptr, (void *)(uintptr_t)room.unseen, NULL), "all of them are seen");
    put("self/ns/cgroup", "another number than the first namespace's");
    must(hth_room_look(dir_fd, top, &room, NULL));
    cr_assert(ne(ptr, (void *)(uintptr_t)room.unseen, NULL), "a pod's");
    put("cg/memory.max", "104857600\n");
    must(hth_room_look(dir_fd, top, &room, NULL));
    cr_assert(eq(ptr, (void *)(uintptr_t)room.unseen, NULL), "it has one of its own");
}

Test(room, first_version_of_cgroups_is_read_too)
{
    struct hth_room room;

    put("self/cgroup", "5:cpu:/x\n4:memory,hugetlb:/box/in\n0::/\n");
    put_mount("/box", "cg1", "cgroup", "rw,memory,hugetlb");
    put("cg1/in/memory.limit_in_bytes", "9223372036854771712\n");
    put("cg1/memory.limit_in_bytes", "41943040\n");
    put("cg1/memory.usage_in_bytes", "20971520\n");
    must(hth_room_look(dir_fd, top, &room, NULL));
    cr_assert(eq(u64, room.cgroup, 20 * MIB));
}

Test(room, nonsense_in_proc_is_no_limit)
{
    struct hth_room room;

    put("self/cgroup", "::\n:::\nmemory\n0::/../../x\n");
    put("self/mountinfo", "1 2\n - cgroup2\n3 4 5:6 / / rw - cgroup2\n\n");
    put("meminfo", "MemAvailable: none\n");
    must(hth_room_look(dir_fd, top, &room, NULL));
    cr_assert(eq(u64, room.memory, HTH_ROOM_NONE));
}

Test(room, the_sentence_names_the_three_numbers)
{
    struct hth_room room = { .mount = 100, .size = 200, .cgroup = 90, .memory = HTH_ROOM_NONE };
    struct hearth_error err;

    must(hth_room_fits(&room, 80, 10, "/x/job", &err), err);
    must_fail(hth_room_fits(&room, 81, 10, "/x/job", &err), HEARTH_ENOSPC);
    must_say(err.text,
            "81 bytes do not fit: its cgroup has room for 80; raise that, or lower keep or copies "
            "if above 1 (in /x/job: free in its file system 100 bytes, up to the cgroup's limit 90 "
            "bytes, available memory no limit, of which 10 stay free)");
    room.mount = 70;
    must_fail(hth_room_fits(&room, 61, 10, "/x/job", &err), HEARTH_ENOSPC);
    cr_assert(ne(ptr, strstr(err.text, "its file system has room for 60;"), NULL), "%s", err.text);
    room.memory = 60;
    must_fail(hth_room_fits(&room, 61, 10, "/x/job", &err), HEARTH_ENOSPC);
    cr_assert(ne(ptr, strstr(err.text, "the machine's memory has room for 50;"), NULL), "%s",
            err.text);
}
