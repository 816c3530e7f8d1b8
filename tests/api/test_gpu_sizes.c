/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Saves of GPU memory at the sizes of a model's state: very many tensors of all kinds at once, and
 * slots that are pinned in several parts.
 */
#include "check.h"
#include "fakegpu.h"
#include "rank.h"

#include <hearth/dtype.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static struct rank r;
static struct hearth_error err;

static void start(void)
{
    alarm(100);
    fakegpu_start(NULL, 2);
    fakegpu_current(fakegpu_context(0));
    fakegpu_context(1);
    rank_start(&r);
}

/* Criterion does not count an expectation that fails here. */
static void stop(void)
{
    rank_end(&r);
    if (fakegpu()->registered || fakegpu()->sins) {
        fprintf(stderr, "a registration is left, or %s\n", fakegpu()->sin);
        abort();
    }
}

TestSuite(gpu_sizes, .init = start, .fini = stop);

static void pause_ms(unsigned ms)
{
    struct timespec t = { .tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000 };

    nanosleep(&t, NULL);
}

static void save(uint64_t step, const struct hearth_piece *p, size_t count, uint64_t bytes)
{
    struct hearth_begin_opts o = HEARTH_BEGIN_OPTS_INIT;
    struct hearth_save *s = NULL;
    uint64_t need = hearth_save_bytes(p, count, NULL, 0);

    o.wait_ms = 20000;
    must(hearth_save_begin(r.h, step, bytes > need ? bytes : need, &o, &s, &err), err);
    must(hearth_save_add(s, p, count, &err), err);
    rank_protect(rank_commit(s));
}

/* ---- a state of all kinds ------------------------------------------------------------------- */

#define COUNT  50000u
#define DIMS   8u
#define MEMORY (UINT64_C(4) << 20) /* of each kind */
#define KINDS  5u

static const struct {
    uint32_t dtype, bytes;
} dtypes[] = {
#define ROW(name, value, text, size) { name, size },
    HEARTH_DTYPES(ROW)
#undef ROW
};

static struct tensor {
    char key[12];
    uint32_t ndim, elem, kind;
    int64_t shape[DIMS], strides[DIMS];
    uint64_t elements, off; /* of its first byte in that memory; in what is loaded */
    uint64_t to;
} * tensors;
static unsigned char *source[KINDS]; /* what lies in each memory */
static uint64_t at[KINDS];

/* The host's, and four of two devices: one is managed, and one of cuMemCreate(). */
static void memories(void)
{
    static const enum fakegpu_kind kinds[] = { FAKEGPU_PLAIN, FAKEGPU_PLAIN, FAKEGPU_PLAIN,
        FAKEGPU_MANAGED, FAKEGPU_MAPPED };
    uint64_t state = 9;

    for (unsigned k = 0; k < KINDS; k++) {
        source[k] = malloc(MEMORY);
        cr_assert(ne(ptr, source[k], NULL));
        for (uint64_t i = 0; i < MEMORY; i++)
            source[k][i] = (unsigned char)((state = state * 6364136223846793005 + 1) >> 56);
        at[k] = (uint64_t)(uintptr_t)source[k];
        if (!k)
            continue;
        at[k] = fakegpu_alloc(fakegpu_context(k == 2), MEMORY, kinds[k]);
        fakegpu_poke(at[k], source[k], MEMORY);
    }
}

/* 0 to 8 dimensions, some of them of nothing; those of one to three dimensions with steps. */
static uint64_t tensor_make(struct tensor *t, unsigned i, uint64_t to)
{
    uint64_t span = 1;

    snprintf(t->key, sizeof(t->key), "k%u", i);
    t->elem = dtypes[i % (sizeof(dtypes) / sizeof(dtypes[0]))].bytes;
    t->ndim = i / 3 % (DIMS + 1);
    t->kind = i / 7 % KINDS;
    t->elements = 1;
    for (uint32_t d = t->ndim; d-- > 0;) {
        int steps = t->ndim <= 3 && i % 4 == 0 && (t->ndim < 3 || d < 2);

        t->shape[d] = i % 97 == 0 && !d ? 0 : 1 + (i >> d) % (t->ndim < 4 ? 5 : 2);
        t->strides[d] = (int64_t)(steps ? span * 2 : span);
        span = (uint64_t)t->strides[d] * (uint64_t)(t->shape[d] ? t->shape[d] : 1);
        t->elements *= (uint64_t)t->shape[d];
    }
    t->off = (uint64_t)i * 2654435761u % (MEMORY - span * t->elem) / 16 * 16;
    t->to = to;
    return to + t->elements * t->elem;
}

static uint64_t tensors_make(struct hearth_piece *p)
{
    uint64_t to = 0;

    for (unsigned i = 0; i < COUNT; i++) {
        struct tensor *t = &tensors[i];

        to = tensor_make(t, i, to);
        p[i] = rank_piece(t->key, (void *)(uintptr_t)(at[t->kind] + t->off), t->ndim, t->shape);
        p[i].dtype = dtypes[i % (sizeof(dtypes) / sizeof(dtypes[0]))].dtype;
        p[i].strides = t->strides;
        p[i].memory = t->kind && i % 2 ? HEARTH_CUDA : HEARTH_HOST; /* otherwise the driver says */
    }
    return to;
}

static void tensor_check(const struct tensor *t, const unsigned char *got)
{
    for (uint64_t e = 0; e < t->elements; e++) {
        uint64_t left = e, from = 0;

        for (uint32_t d = t->ndim; d-- > 0;) {
            from += left % (uint64_t)t->shape[d] * (uint64_t)t->strides[d];
            left /= (uint64_t)t->shape[d];
        }
        cr_assert(zero(int, memcmp(got + t->to + e * t->elem,
                                    source[t->kind] + t->off + from * t->elem, t->elem)),
                "element %lu of %s", (unsigned long)e, t->key);
    }
}

Test(gpu_sizes, fifty_thousand_tensors_of_all_kinds_come_back)
{
    struct hearth_piece *p = calloc(COUNT, sizeof(*p));
    struct hearth_checkpoint *ckpt;
    unsigned char *got;
    uint64_t bytes;

    cr_assert(eq(sz, sizeof(dtypes) / sizeof(dtypes[0]) >= 22, 1));
    tensors = calloc(COUNT, sizeof(*tensors));
    cr_assert(p && tensors);
    memories();
    bytes = tensors_make(p);
    got = malloc(bytes);
    rank_open(&r);
    for (uint64_t step = 1; step < 4; step++) { /* through the buffers; into pinned slots */
        save(step, p, COUNT, 0);
        pause_ms(50);
    }
    ckpt = rank_recover(r.h, 3);
    for (unsigned i = 0; i < COUNT; i++) {
        p[i].data = got + tensors[i].to;
        p[i].strides = NULL;
        p[i].memory = HEARTH_HOST;
    }
    memset(got, 0xee, bytes);
    must(hearth_load(ckpt, p, COUNT, 0, NULL, &err), err);
    hearth_checkpoint_close(ckpt);
    for (unsigned i = 0; i < COUNT; i++)
        tensor_check(&tensors[i], got);
    free(p);
    free(got);
    free(tensors);
}

/* ---- slots of more than a registration ------------------------------------------------------ */

#define LARGE (UINT64_C(1100) << 20) /* a slot of two registrations */
#define N     300000u

static float was[N];
static const int64_t all[] = { N };

static void until(const char *call, uint64_t count)
{
    for (unsigned ms = 0; fakegpu_calls(call) < count && ms < 20000; ms++)
        pause_ms(1);
    cr_assert(ge(u64, fakegpu_calls(call), count), "%s", call);
}

static void loaded(uint64_t step)
{
    static float got[N];
    struct hearth_piece p = rank_piece("x", got, 1, all);
    struct hearth_checkpoint *ckpt;

    must(hearth_checkpoint_open(r.h, step, &ckpt, &err), err);
    memset(got, 0, sizeof(got));
    must(hearth_load(ckpt, &p, 1, 0, NULL, &err), err);
    hearth_checkpoint_close(ckpt);
    cr_assert(zero(int, memcmp(got, was, sizeof(was))));
}

/* The first slot is small, so that the buffers of the ring are there before. */
static struct hearth_piece first_save(void)
{
    uint64_t of = fakegpu_alloc(fakegpu_context(0), sizeof(was), FAKEGPU_PLAIN);
    struct hearth_piece p = rank_piece("x", (void *)(uintptr_t)of, 1, all);

    rank_fill(was, N, 4);
    fakegpu_poke(of, was, sizeof(was));
    p.memory = HEARTH_CUDA;
    rank_open(&r);
    fakegpu()->pin_ms = 300; /* the slot is not pinned before its copies are enqueued */
    save(1, &p, 1, 0);
    for (unsigned ms = 0; fakegpu()->registered < 2 && ms < 20000; ms++)
        pause_ms(1);
    cr_assert(eq(u64, fakegpu()->registered, 2));
    fakegpu()->pin_ms = 0;
    return p;
}

/* Slots are pinned, and this driver's limits of a registration differ from those of others. */
static int pins(void)
{
    static const char *const limits[] = { "recent", "r580", "kernel-6.12" };
    int is = 0;

    for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++)
        is |= strcmp(fakegpu_profile(), limits[i]) == 0;
    return is;
}

Test(gpu_sizes, a_large_slot_is_pinned_in_parts_beside_the_trainers_thread)
{
    struct hearth_piece p;

    if (!pins())
        return;
    p = first_save();
    save(2, &p, 1, LARGE);
    until("cuMemHostRegister_v2", 4);
    for (unsigned ms = 0; fakegpu()->registered_bytes < LARGE && ms < 20000; ms++)
        pause_ms(1);
    loaded(2);
    cr_expect(gt(u64, fakegpu()->registered_bytes, LARGE));
    cr_expect(le(u64, fakegpu()->register_most, UINT64_C(1) << 30));
    cr_expect(zero(u64, fakegpu()->register_absent), "pages are present before");
    for (unsigned i = 0; i < FAKEGPU_THREADS; i++)
        cr_expect(ne(u32, fakegpu()->register_threads[i], (uint32_t)syscall(SYS_gettid)));
}

Test(gpu_sizes, a_large_slot_whose_last_part_is_refused_is_not_pinned_and_saves_go_on)
{
    struct hearth_piece p;
    uint64_t registered, bytes;

    if (!pins())
        return;
    p = first_save();
    registered = fakegpu()->registered;
    bytes = fakegpu()->registered_bytes;
    fakegpu_refuse("cuMemHostRegister_v2", 1, 2);
    save(2, &p, 1, LARGE);
    until("cuMemHostUnregister", 1);
    for (unsigned ms = 0; fakegpu()->registered != registered && ms < 20000; ms++)
        pause_ms(1);
    cr_expect(eq(u64, fakegpu()->registered, registered));
    cr_expect(eq(u64, fakegpu()->registered_bytes, bytes), "nothing of that slot");
    loaded(2);
    rank_fill(was, N, 5);
    fakegpu_poke((uint64_t)(uintptr_t)p.from, was, sizeof(was));
    save(3, &p, 1, 0);
    loaded(3);
}
