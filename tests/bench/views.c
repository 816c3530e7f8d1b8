/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_views: views of the items of one save of this node, opened and closed, against a mapping of
 * the same pages made and ended by hand.
 *
 *     per round   (mapped and unmapped) ─ (opened and closed, one after the other) ─
 *                 all opened, then closed in random order
 */
#include "bench.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define ITEMS   1000u
#define FLOATS  1024u /* an item: a page */
#define MAPPED  20000u
#define BY_TURN 400000u
#define WAIT_MS 60000u
#define PAGE    4096u

static struct {
    const char *root, *backend, *json, *memory;
    uint64_t views;
    unsigned rounds;
} arg = { .views = 1000000, .rounds = 5 };

static struct hearth *h;
static struct hearth_checkpoint *ckpt;
static struct hearth_item item[ITEMS];
static float data[ITEMS][FLOATS];
static char key[ITEMS][16];
static int low;

static void must(int code, const struct hearth_error *err)
{
    if (code)
        die("%s", err->text);
}

static void open_job(void)
{
    struct backend b = backend_of(arg.backend);
    struct hearth_opts o = HEARTH_OPTS_INIT;
    struct hearth_error err = { 0 };

    o.root = arg.root, o.job = "bench", o.node = "n0", o.world = 1;
    o.transport = b.transport, o.provider = b.provider;
    if (b.trusted)
        o.network = HEARTH_NETWORK_TRUSTED;
    o.allow_degraded = 1, o.linger_s = 60;
    must(hearth_open(&o, &h, &err), &err);
    must(hearth_recover(h, NULL, &ckpt, &err), &err);
    hearth_checkpoint_close(ckpt);
}

static void save(void)
{
    static const int64_t n = FLOATS;
    struct hearth_piece piece[ITEMS];
    struct hearth_error err = { 0 };
    struct hearth_handle *handle;
    struct hearth_save *s;

    for (uint32_t i = 0; i < ITEMS; i++) {
        snprintf(key[i], sizeof(key[i]), "item/%04u", i);
        fill((uint64_t *)(void *)data[i], sizeof(data[i]), i);
        piece[i] = (struct hearth_piece){ .struct_size = sizeof(piece[i]),
            .key = key[i],
            .key_len = strlen(key[i]),
            .data = data[i],
            .dtype = HEARTH_FLOAT32,
            .ndim = 1,
            .shape = &n };
    }
    must(hearth_save_begin(h, 1, hearth_save_bytes(piece, ITEMS, NULL, 0), NULL, &s, &err), &err);
    must(hearth_save_add(s, piece, ITEMS, &err), &err);
    must(hearth_save_commit(s, &handle, &err), &err);
    must(hearth_wait(handle, HEARTH_PROTECTED, WAIT_MS, &err), &err);
    hearth_handle_close(handle);
}

static void list_items(void)
{
    struct hearth_error err = { 0 };
    size_t count;

    must(hearth_checkpoint_open(h, 1, &ckpt, &err), &err);
    for (uint32_t i = 0; i < ITEMS; i++) {
        item[i] = (struct hearth_item)HEARTH_ITEM_INIT;
        must(hearth_item_find(ckpt, key[i], strlen(key[i]), &item[i], 1, &count, &err), &err);
    }
}

static void view_open(struct hearth_view *view, uint64_t which)
{
    struct hearth_error err = { 0 };

    *view = (struct hearth_view)HEARTH_VIEW_INIT;
    must(hearth_view_open(ckpt, &item[which % ITEMS], view, &err), &err);
}

static void compare(const struct hearth_view *view, uint64_t which)
{
    if (view->bytes != sizeof(data[0]) ||
            memcmp(view->data, data[which % ITEMS], sizeof(data[0])) != 0)
        die("view %llu has other bytes than were saved", (unsigned long long)which);
}

/* Millions a second. */
static double rate(uint64_t count, double begin)
{
    return (double)count / (now_s() - begin) / 1e6;
}

static double mapped(void)
{
    uint64_t offset, bytes;
    struct hearth_error err = { 0 };
    double begin;
    int fd;

    must(hearth_object_fd(ckpt, item[0].object, &fd, &offset, &bytes, &err), &err);
    begin = now_s();
    for (uint64_t i = 0; i < MAPPED; i++) {
        off_t at = (off_t)((offset + item[i % ITEMS].offset) / PAGE * PAGE);
        void *p = mmap(NULL, sizeof(data[0]), PROT_READ, MAP_SHARED, fd, at);

        if (p == MAP_FAILED)
            die("no mapping");
        munmap(p, sizeof(data[0]));
    }
    close(fd);
    return rate(MAPPED, begin);
}

static double by_turns(void)
{
    struct hearth_view view;
    double begin = now_s();

    for (uint64_t i = 0; i < BY_TURN; i++) {
        view_open(&view, i);
        hearth_view_close(h, &view);
    }
    return rate(BY_TURN, begin);
}

static uint32_t *shuffled(void)
{
    uint32_t *order = malloc(arg.views * sizeof(*order));
    unsigned seed = 1;

    if (!order)
        die("no memory");
    for (uint32_t i = 0; i < arg.views; i++)
        order[i] = i;
    for (uint32_t i = (uint32_t)arg.views; i > 1; i--) {
        uint32_t other = (uint32_t)rand_r(&seed) % i, was = order[i - 1];

        order[i - 1] = order[other];
        order[other] = was;
    }
    return order;
}

static double at_once(struct hearth_view *view, const uint32_t *order)
{
    double begin = now_s(), looked;

    for (uint64_t i = 0; i < arg.views; i++)
        view_open(&view[i], i);
    looked = now_s();
    for (uint64_t i = 0; i < arg.views; i += 997)
        compare(&view[i], i);
    begin += now_s() - looked;
    for (uint64_t i = 0; i < arg.views; i++)
        hearth_view_close(h, &view[order[i]]);
    return rate(arg.views, begin);
}

static void measure(void)
{
    struct series map = { 0 }, turn = { 0 }, many = { 0 };
    struct hearth_view *view = memory(arg.views * sizeof(*view));
    uint32_t *order = shuffled();

    for (unsigned i = 0; i <= arg.rounds; i++) { /* the first round is warm-up */
        double limit = mapped(), one = by_turns(), all = at_once(view, order);

        if (!i)
            continue;
        series_add(&map, limit);
        series_add(&turn, one);
        series_add(&many, all);
    }
    free(order);
    low |= row_say(&(struct row){ .name = "view: open and close",
            .limit_name = "mmap and munmap of the page",
            .rate = &turn,
            .limit = &map,
            .unit = "M/s",
            .want = 2 });
    low |= row_say(&(struct row){ .name = "view: all open, closed in any order",
            .limit_name = "mmap and munmap of the page",
            .rate = &many,
            .limit = &map,
            .unit = "M/s",
            .want = 1 });
}

static void take_args(int argc, char **argv)
{
    static const struct flag known[] = { { "--root", .text = &arg.root },
        { "--views", .number = &arg.views }, { "--backend", .text = &arg.backend },
        { "--json", .text = &arg.json }, { "--memory", .text = &arg.memory },
        { "--rounds", .count = &arg.rounds }, { 0 } };

    flags_take(known, argc, argv);
    if (!arg.root || !arg.views || arg.views > 100000000 || !arg.rounds || arg.rounds > ROUNDS_MAX)
        die("usage: bench_views --root TMPFS [--views 1..100000000] [--rounds 1..%d] "
            "[--backend NAME] [--json LINES] [--memory WORD]",
                ROUNDS_MAX);
}

int main(int argc, char **argv)
{
    take_args(argc, argv);
    rows_open(arg.json, arg.memory, 0);
    open_job();
    save();
    list_items();
    measure();
    hearth_checkpoint_close(ckpt);
    hearth_close(h, HEARTH_DROP);
    engine_end(arg.root);
    return low ? 3 : 0;
}
