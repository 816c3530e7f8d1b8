/* SPDX-License-Identifier: Apache-2.0 */
/* A job of one node with hearthd itself on a tmpfs that is as large as it must be, and no
 * larger. */
#include "check.h"
#include "engines.h"
#include "rank.h"
#include "tmp_root.h"

#include "client/link/mapped.h"
#include "core/store/need.h"
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define MIB     (UINT64_C(1) << 20)
#define OBJECTS 4u

static struct hearth_opts opts;
static struct hearth *h;
static struct hearth_error err;
static char root[32];
static unsigned char *data;
static uint64_t size[OBJECTS]; /* of the objects' payloads */

static void mount_of(uint64_t bytes)
{
    static char hearthd[512];
    const char *bin = getenv("HEARTH_TEST_BIN");

    alarm(60);
    if (!tmp_root_mount(bytes, NULL))
        cr_skip_test("no right to mount a tmpfs");
    snprintf(root, sizeof(root), "/mnt/%d", (int)getpid()); /* engines are found by their root */
    must(mkdir(root, 0700));
    opts = (struct hearth_opts)HEARTH_OPTS_INIT;
    opts.root = root;
    opts.job = "job";
    opts.node = "node";
    opts.world = 1;
    opts.allow_degraded = 1;
    opts.transport = "tcp";
    opts.open_ms = 20000;
    opts.linger_s = 20;
    if (bin) {
        snprintf(hearthd, sizeof(hearthd), "%s/hearthd", bin);
        opts.engine = hearthd;
    }
    data = calloc(1, 64 * MIB);
    cr_assert(ne(ptr, data, NULL));
}

static void open_job(void)
{
    struct hearth_checkpoint *c = NULL;

    cr_assert(eq(int, hearth_open(&opts, &h, &err), 0), "%s", err.text);
    cr_assert(eq(int, hearth_recover(h, NULL, &c, &err), 0), "%s", err.text);
}

static void end(void)
{
    hearth_close(h, HEARTH_KEEP);
    if (root[0])
        cr_assert(ge(int, engines_signal(root, NULL, SIGKILL), 0));
    free(data);
}

static int add_object(struct hearth_save *save, uint32_t i)
{
    int64_t bytes = (int64_t)size[i];
    char key[16];
    struct hearth_piece piece;

    snprintf(key, sizeof(key), "key%u", i);
    piece = rank_piece(key, data, 1, &bytes);
    piece.dtype = HEARTH_UINT8;
    return hearth_save_add(save, &piece, 1, &err);
}

/* A save of so many objects; its first error. */
static int save(uint64_t step, uint32_t objects, uint32_t wait_ms)
{
    struct hearth_begin_opts o = { .struct_size = sizeof(o), .wait_ms = wait_ms };
    struct hearth_handle *handle = NULL;
    struct hearth_save *s = NULL;
    char name[24];
    int rc = hearth_save_begin(h, step, size[0] + 4096, &o, &s, &err);

    for (uint32_t i = 0; !rc && i < objects; i++) {
        snprintf(name, sizeof(name), "object%u", i);
        if (i)
            rc = hearth_save_next_object(s, name, size[i] + 4096, &err);
        if (!rc)
            rc = add_object(s, i);
    }
    if (rc && s)
        hearth_save_abort(s);
    if (!rc && !(rc = hearth_save_commit(s, &handle, &err)))
        rc = hearth_wait(handle, HEARTH_PROTECTED, 20000, &err);
    hearth_handle_close(handle);
    return rc;
}

static void saves(uint64_t last, uint32_t objects)
{
    for (uint64_t step = 1; step <= last; step++)
        cr_assert(eq(int, save(step, objects, 0), 0), "step %d: %s", (int)step, err.text);
}

TestSuite(room, .fini = end);

/* As the header has it: each object is a slot of its own, and none is as large as all together. */
Test(room, sizes_that_are_told_are_of_one_object_each)
{
    uint64_t told[OBJECTS];

    mount_of(160 * MIB);
    for (uint32_t i = 0; i < OBJECTS; i++) {
        size[i] = (i + 1) * 3 * MIB;
        told[i] = size[i] + 4096;
    }
    opts.object_bytes = told;
    opts.object_count = OBJECTS;
    open_job();
    saves(4, OBJECTS);
}

/* What core/store/need.h says that keep + 1 saves of these objects need. */
static uint64_t need(uint32_t objects, uint32_t keep)
{
    uint64_t slots = 0;

    for (uint32_t i = 0; i < objects; i++)
        slots += hth_need_slot(hth_file_bytes(size[i] + 4096)) * (keep + 1);
    return hth_need_mount(slots);
}

static void just_enough(uint32_t keep, int tell)
{
    uint64_t told[OBJECTS];
    char text[1200];

    size[0] = 9 * MIB;
    size[1] = 5 * MIB;
    mount_of(need(2, keep));
    for (uint32_t i = 0; i < 2; i++)
        told[i] = size[i] + 4096;
    opts.keep = keep;
    opts.object_bytes = told;
    opts.object_count = tell ? 2 : 0;
    open_job();
    saves(keep + 3, 2);
    while (hearth_log_poll(h, NULL, text, sizeof(text)))
        cr_assert(eq(ptr, strstr(text, "will not"), NULL), "%s", text);
}

Test(room, a_mount_of_what_the_formula_says_is_enough_for_sizes_that_are_told)
{
    just_enough(2, 1);
}

Test(room, a_mount_of_what_the_formula_says_is_enough_where_no_sizes_are_told)
{
    just_enough(1, 0);
}

/* A state that fits once. */
Test(room, the_first_begin_warns_of_the_second_which_says_room)
{
    char text[1200] = "", numbers[64];
    int warned = 0;

    size[0] = 28 * 1000 * 1000;
    mount_of(48 * MIB);
    open_job();
    cr_assert(eq(int, save(1, 1, 0), 0), "%s", err.text);
    while (!warned && hearth_log_poll(h, NULL, text, sizeof(text)))
        warned = strstr(text, "this save has room on node 'node' and the next will not") != NULL;
    cr_assert(eq(int, warned, 1));
    snprintf(numbers, sizeof(numbers), "%llu bytes do not fit: ",
            (unsigned long long)hth_need_slot(hth_file_bytes(size[0] + 4096)));
    cr_assert(ne(ptr, strstr(text, numbers), NULL), "%s", text);
    cr_assert(ne(ptr, strstr(text, "free in its file system "), NULL), "%s", text);
    for (uint32_t wait_ms = 0; wait_ms < 600; wait_ms += 500) {
        must_fail(save(2, 1, wait_ms), HEARTH_ENOSPC);
        cr_assert(ne(ptr, strstr(err.text, numbers), NULL), "%s", err.text);
    }
}

/* The optimizer has its state from the fourth save on. */
Test(room, where_no_sizes_are_told_an_object_may_grow)
{
    size[0] = 26 * MIB;
    mount_of(need(1, 1));
    opts.keep = 1;
    open_job();
    size[0] = 9 * MIB;
    saves(3, 1);
    size[0] = 26 * MIB;
    for (uint64_t step = 4; step < 9; step++)
        cr_assert(
                eq(int, save(step, 1, step % 2 ? 0 : 3000), 0), "step %d: %s", (int)step, err.text);
}

/* ---- Two ranks of the node ------------------------------------------------------------------- */

static pthread_barrier_t meets;
static unsigned char *rows[2];

static int gather(void *self, const void *mine, size_t len, void *all, struct hearth_error *why)
{
    (void)why;
    rows[*(uint32_t *)self] = (unsigned char *)(uintptr_t)mine;
    pthread_barrier_wait(&meets);
    for (uint32_t i = 0; i < 2; i++)
        memcpy((unsigned char *)all + i * len, rows[i], len);
    pthread_barrier_wait(&meets);
    return 0;
}

struct other { /* rank 1 */
    struct hearth *h;
    struct hearth_opts opts;
    struct hearth_error err;
    int rc;
};

static void *other_joins(void *arg)
{
    struct hearth_checkpoint *c = NULL;
    struct other *o = arg;

    o->rc = hearth_open(&o->opts, &o->h, &o->err);
    if (!o->rc)
        o->rc = hearth_recover(o->h, NULL, &c, &o->err);
    return NULL;
}

/* Rank 1 opens, with an object of so many bytes, and both recover. Returns the code that rank 0
 * gets. */
static int both_join(struct other *o, uint64_t bytes)
{
    struct hearth_checkpoint *c = NULL;
    pthread_t thread;
    int rc = 0;

    o->opts.object_bytes = &bytes;
    must(pthread_create(&thread, NULL, other_joins, o));
    if (!h)
        rc = hearth_open(&opts, &h, &err);
    if (!rc)
        rc = hearth_recover(h, NULL, &c, &err);
    must(pthread_join(thread, NULL));
    return rc;
}

/* Rank 0 has a slot of rank 1's size mapped, since a save of it had more objects than it said.
 * That slot is to make way when rank 1 comes back with a larger object. */
Test(room, a_rank_that_recovers_in_place_gives_up_what_it_has_mapped)
{
    uint32_t self[2] = { 0, 1 };
    struct hearth_bootstrap b[2] = {
        { .struct_size = sizeof(b[0]), .allgather = gather, .self = &self[0] },
        { .struct_size = sizeof(b[1]), .allgather = gather, .self = &self[1] }
    };
    uint64_t told = 4 * MIB;
    struct hearth_save *s = NULL;
    struct other other;

    size[0] = told - 4096;
    size[1] = 30 * MIB - 4096;
    mount_of(need(2, 1));
    must(pthread_barrier_init(&meets, NULL, 2));
    opts.world = 2;
    opts.keep = 1;
    opts.object_count = 1;
    other = (struct other){ .opts = opts };
    opts.bootstrap = &b[0];
    opts.object_bytes = &told;
    other.opts.rank = 1;
    other.opts.bootstrap = &b[1];
    cr_assert(eq(int, both_join(&other, 20 * MIB), 0), "%s", err.text);
    cr_assert(eq(int, other.rc, 0), "%s", other.err.text);
    must(hearth_save_begin(h, 1, told, NULL, &s, &err), err);
    must(hearth_save_next_object(s, "b", told, &err), err);
    cr_assert(eq(int, hearth_save_next_object(s, "c", told, &err), 0), "%s", err.text);
    hearth_save_abort(s);
    hearth_close(other.h, HEARTH_KEEP);
    other.h = NULL;
    cr_expect(eq(int, both_join(&other, 30 * MIB), 0), "%s", err.text);
    cr_expect(eq(int, other.rc, 0), "%s", other.err.text);
    if (other.h)
        hearth_close(other.h, HEARTH_KEEP);
}
