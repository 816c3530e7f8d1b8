/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_save: what a save costs the rank, and until it is sealed, on one node.
 *
 *     per round   new job ─ engine at rest ─ copy, first save ─ copy, save x 3 ─ recover, compare
 *     per round   new job that has not said its sizes ─ save, pause, save ─ save x 3
 *     in one job  (whole copy, save), (one large item, many small), (rows), (turned) x rounds
 */
#include "bench.h"

#include <stdlib.h>
#include <string.h>

#define SMALL   (UINT64_C(4) << 10)
#define MIDDLE  (UINT64_C(128) << 10)
#define PAUSE   1000u /* ms, as training would go on */
#define THREADS 2u
#define BEFORE  2u /* saves until every slot has been written once */
#define WAIT_MS 60000u

static struct {
    const char *root, *backend, *json, *memory;
    uint64_t mib;
    unsigned rounds;
    int only_whole;
} arg = { .mib = 256, .rounds = 5 };

static struct hearth *h;
static uint64_t step, bytes;
static uint64_t *src;
static unsigned char *dst;
static int low;

struct times {
    double blocked, sealed;
};

static void must(int code, const struct hearth_error *err)
{
    if (code)
        die("%s", err->text);
}

static struct hearth_piece piece_1d(const char *key, void *data, const int64_t *n)
{
    return (struct hearth_piece){ .struct_size = sizeof(struct hearth_piece),
        .key = key,
        .key_len = strlen(key),
        .data = data,
        .dtype = HEARTH_INT64,
        .ndim = 1,
        .shape = n };
}

/* object_bytes 0: not said. */
static void open_job(uint64_t object_bytes)
{
    struct backend b = backend_of(arg.backend);
    struct hearth_opts o = HEARTH_OPTS_INIT;
    struct hearth_checkpoint *ckpt = NULL;
    struct hearth_error err = { 0 };

    o.root = arg.root, o.job = "bench", o.node = "n0", o.world = 1;
    o.transport = b.transport, o.provider = b.provider;
    if (b.trusted)
        o.network = HEARTH_NETWORK_TRUSTED;
    o.allow_degraded = 1, o.object_bytes = &object_bytes, o.object_count = object_bytes != 0;
    o.copy_threads = THREADS, o.linger_s = 60;
    must(hearth_open(&o, &h, &err), &err);
    must(hearth_recover(h, NULL, &ckpt, &err), &err);
    hearth_checkpoint_close(ckpt);
    engine_settle(arg.root);
}

static void close_job(void)
{
    hearth_close(h, HEARTH_KEEP);
    engine_end(arg.root);
}

static struct times save(const struct hearth_piece *pieces, size_t count)
{
    struct hearth_begin_opts o = { .struct_size = sizeof(o), .wait_ms = WAIT_MS };
    uint64_t need = hearth_save_bytes(pieces, count, NULL, 0);
    struct hearth_error err = { 0 };
    struct hearth_handle *handle;
    struct hearth_save *s;
    struct times t;
    double begin = now_s();

    must(hearth_save_begin(h, ++step, need, &o, &s, &err), &err);
    must(hearth_save_add(s, pieces, count, &err), &err);
    must(hearth_save_commit(s, &handle, &err), &err);
    t.blocked = now_s() - begin;
    must(hearth_wait(handle, HEARTH_SEALED, WAIT_MS, &err), &err);
    t.sealed = now_s() - begin;
    must(hearth_wait(handle, HEARTH_PROTECTED, WAIT_MS, &err), &err);
    hearth_handle_close(handle);
    nap_ms(5); /* the older save's slot is on its way back */
    return t;
}

static double rate(double seconds)
{
    return (double)bytes / seconds / 1e9;
}

/* Compares with the bytes that the last save has written. */
static void compare(struct hearth_piece *piece, uint64_t seed)
{
    struct hearth_checkpoint *ckpt = NULL;
    struct hearth_error err = { 0 };

    must(hearth_recover(h, NULL, &ckpt, &err), &err);
    if (!ckpt)
        die("nothing to recover after a save");
    memset(src, 0xee, bytes);
    must(hearth_load(ckpt, piece, 1, 0, NULL, &err), &err);
    hearth_checkpoint_close(ckpt);
    check(src, bytes, seed);
}

static void show(const char *name, const struct series *a, const char *limit_name,
        const struct series *limit, double want)
{
    low |= row_say(&(struct row){ .name = name,
            .limit_name = limit_name,
            .rate = a,
            .limit = limit,
            .unit = "GB/s",
            .want = arg.mib < 16 ? 0 : want }); /* smaller: for pictures */
}

static void whole(void)
{
    struct series first = { 0 }, steady = { 0 }, blocked = { 0 }, copy = { 0 };
    int64_t n = (int64_t)(bytes / 8);
    struct hearth_piece p = piece_1d("whole", src, &n);

    for (unsigned i = 0; i <= arg.rounds; i++) { /* the first round is warm-up */
        struct times t;
        double c;

        open_job(hearth_save_bytes(&p, 1, NULL, 0));
        fill(src, bytes, i);
        t = save(&p, 1);
        if (i)
            series_add(&first, rate(t.blocked));
        for (unsigned k = 0; k < BEFORE; k++)
            save(&p, 1);
        c = copy_s(dst, src, bytes, THREADS);
        t = save(&p, 1);
        if (i) {
            series_add(&copy, rate(c));
            series_add(&blocked, rate(t.blocked));
            series_add(&steady, rate(t.sealed));
        }
        compare(&p, i);
        close_job();
    }
    show("save: begin, add, commit (blocked)", &blocked, "streaming copy, same threads", &copy,
            0.67);
    show("save: until sealed (with checksums)", &steady, "streaming copy, same threads", &copy,
            0.50);
    show("first save: begin, add, commit", &first, "a steady one", &blocked, 0.80);
}

/* All memory is new to the engine, then some of it, then none. */
static void unsaid(void)
{
    struct series second = { 0 }, steady = { 0 };
    int64_t n = (int64_t)(bytes / 8);
    struct hearth_piece p = piece_1d("whole", src, &n);

    for (unsigned i = 0; i < arg.rounds; i++) {
        open_job(0);
        save(&p, 1);
        nap_ms(PAUSE);
        series_add(&second, rate(save(&p, 1).blocked));
        for (unsigned k = 0; k < BEFORE; k++)
            save(&p, 1);
        series_add(&steady, rate(save(&p, 1).blocked));
        close_job();
    }
    show("second save, object_bytes not given", &second, "a steady one", &steady, 0.50);
}

/* So many pieces as make the same bytes. */
static struct hearth_piece *cut(uint64_t each, const int64_t *n)
{
    size_t count = bytes / each;
    struct hearth_piece *p = calloc(count, sizeof(*p));
    char(*key)[32] = calloc(count, sizeof(*key)); /* until we end */

    if (!p || !key)
        die("no memory");
    for (size_t i = 0; i < count; i++) {
        snprintf(key[i], sizeof(key[i]), "item/%zu", i);
        p[i] = piece_1d(key[i], src + i * (each / 8), n);
    }
    return p;
}

/* Each is less than the library copies past the caches at once, and all are more than they hold. */
static void middle(void)
{
    size_t count = bytes / MIDDLE;
    int64_t n = MIDDLE / 8;
    struct hearth_piece *p = cut(MIDDLE, &n);
    struct series many = { 0 }, copy = { 0 };

    open_job(hearth_save_bytes(p, count, NULL, 0));
    for (unsigned i = 0; i < BEFORE + 1; i++)
        save(p, count);
    for (unsigned i = 0; i < arg.rounds; i++) {
        series_add(&copy, rate(copy_s(dst, src, bytes, THREADS)));
        series_add(&many, rate(save(p, count).blocked));
    }
    show("save: items of 128 KiB (blocked)", &many, "streaming copy, same threads", &copy, 0.67);
    close_job();
    free(p);
}

static void small(void)
{
    size_t count = bytes / SMALL;
    struct series many = { 0 }, one = { 0 }, cost = { 0 };
    int64_t n = SMALL / 8, all = (int64_t)(bytes / 8);
    struct hearth_piece large = piece_1d("whole", src, &all), *p = cut(SMALL, &n);

    open_job(hearth_save_bytes(p, count, NULL, 0));
    for (unsigned i = 0; i < BEFORE + 1; i++)
        save(p, count);
    for (unsigned i = 0; i < arg.rounds; i++) {
        double a = save(&large, 1).blocked, b = save(p, count).blocked;

        series_add(&one, rate(a));
        series_add(&many, rate(b));
        series_add(&cost, (b - a) / (double)count * 1e9);
    }
    show("save: items of 4 KiB (blocked)", &many, "one item of the same bytes", &one, 0);
    row_say(&(struct row){ .name = "  more per item", .rate = &cost, .unit = "ns" });
    close_job();
    free(p);
}

static void strided(void)
{
    struct series rows = { 0 }, rows_limit = { 0 }, turned = { 0 }, turned_limit = { 0 };
    uint64_t half = bytes / 2, side = 2048, count = half / SMALL, tall = half / 4 / side;
    int64_t shape[2] = { (int64_t)count, SMALL / 8 }, step2[2] = { 2 * SMALL / 8, 1 };
    int64_t shape_t[2] = { (int64_t)side, (int64_t)tall }, step_t[2] = { 1, (int64_t)side };
    struct hearth_piece p = piece_1d("rows", src, shape), t = piece_1d("turned", src, shape_t);

    p.ndim = t.ndim = 2;
    p.strides = step2, t.strides = step_t;
    t.dtype = HEARTH_FLOAT32;
    open_job(half + SMALL);
    for (unsigned i = 0; i < BEFORE + 1; i++)
        save(&p, 1);
    for (unsigned i = 0; i < arg.rounds; i++) {
        series_add(&rows_limit, rate(2 * copy_rows_s(dst, src, SMALL, 2 * SMALL, count, THREADS)));
        series_add(&rows, rate(2 * save(&p, 1).blocked));
        series_add(&turned_limit,
                rate(2 * copy_turned_s((void *)dst, (void *)src, side, tall, THREADS)));
        series_add(&turned, rate(2 * save(&t, 1).blocked));
    }
    show("save: rows of 4 KiB, strided (blocked)", &rows, "memcpy of such rows, same threads",
            &rows_limit, 0.67);
    show("save: a transposed float32 (blocked)", &turned, "plain loop, same threads", &turned_limit,
            0.67);
    close_job();
}

static void part_take(const char *word)
{
    if (strcmp(word, "whole") != 0)
        die("--part whole, not %s", word);
    arg.only_whole = 1;
}

static void take_args(int argc, char **argv)
{
    static const struct flag known[] = { { "--root", .text = &arg.root },
        { "--mib", .number = &arg.mib }, { "--backend", .text = &arg.backend },
        { "--json", .text = &arg.json }, { "--memory", .text = &arg.memory },
        { "--rounds", .count = &arg.rounds }, { "--part", .take = part_take }, { 0 } };

    flags_take(known, argc, argv);
    if (!arg.root || arg.mib < (arg.only_whole ? 1 : 16) || arg.mib > 65536 || !arg.rounds ||
            arg.rounds > ROUNDS_MAX)
        die("usage: bench_save --root TMPFS [--mib 16..65536] [--rounds 1..%d] [--backend NAME] "
            "[--part whole] [--json LINES] [--memory WORD]; with --part from 1 MiB",
                ROUNDS_MAX);
}

int main(int argc, char **argv)
{
    take_args(argc, argv);
    bytes = arg.mib << 20;
    rows_open(arg.json, arg.memory, bytes);
    src = memory(bytes);
    dst = file_memory(arg.root, "copy", bytes);
    whole();
    if (arg.only_whole)
        return low ? 3 : 0;
    unsaid();
    middle();
    small();
    strided();
    return low ? 3 : 0;
}
