/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loads into GPU memory, over a driver of the tests' own: its device memory cannot be read by the
 * processor. The expected bytes are computed here, from coordinates alone.
 */
#include "gpu_load_rig.h"

TestSuite(gpu_load, .init = load_start, .fini = load_stop);

#define DIMS 8

/* ---- tensors whose every byte follows from its place ---------------------------------------- */

static const struct {
    uint32_t dtype, bytes;
} dtypes[] = {
#define DTYPE(name, value, text, size) { name, size },
    HEARTH_DTYPES(DTYPE)
#undef DTYPE
};
#define DTYPES (sizeof(dtypes) / sizeof(dtypes[0]))

static uint64_t state = 1;

static uint64_t below(uint64_t most)
{
    state = state * UINT64_C(6364136223846793005) + 1442695040888963407u;
    return (state >> 33) % most;
}

struct tensor {
    char key[16];
    uint32_t dtype, elem, ndim;
    int64_t shape[DIMS]; /* global */
    struct part {        /* as it is stored: slabs of one dimension */
        int64_t offset[DIMS], shape[DIMS];
        unsigned char *bytes;
    } part[3];
    uint32_t parts;
};

/* Byte b of the element with these coordinates in tensor `key`. */
static unsigned char byte_of(const struct tensor *t, const int64_t *at, uint32_t b)
{
    uint64_t hash = 1469598103934665603u + (unsigned char)t->key[1] + 256u * (unsigned)t->key[2];

    for (uint32_t d = 0; d < t->ndim; d++)
        hash = (hash ^ (uint64_t)at[d]) * 1099511628211u;
    hash = (hash ^ (b + 77)) * 1099511628211u;
    return (unsigned char)(hash >> 29);
}

static int64_t count_of(uint32_t ndim, const int64_t *shape)
{
    int64_t n = 1;

    for (uint32_t d = 0; d < ndim; d++)
        n *= shape[d];
    return n;
}

/* The coordinates of element e of a box, in C order. */
static void coordinates(
        uint32_t ndim, const int64_t *offset, const int64_t *shape, int64_t e, int64_t *out)
{
    for (uint32_t d = ndim; d-- > 0; e /= shape[d])
        out[d] = offset[d] + e % shape[d];
}

static void part_fill(const struct tensor *t, struct part *p)
{
    int64_t n = count_of(t->ndim, p->shape), at[DIMS];

    p->bytes = malloc((size_t)n * t->elem + 1);
    for (int64_t e = 0; e < n; e++) {
        coordinates(t->ndim, p->offset, p->shape, e, at);
        for (uint32_t b = 0; b < t->elem; b++)
            p->bytes[e * t->elem + b] = byte_of(t, at, b);
    }
}

/* Stored as up to three parts, cut in dimension `cut`. */
static void tensor_make(struct tensor *t, unsigned number, uint32_t dtype, uint32_t ndim,
        int64_t most, uint32_t parts)
{
    uint32_t cut = ndim ? (uint32_t)below(ndim) : 0;
    int64_t done = 0;

    *t = (struct tensor){ .dtype = dtypes[dtype].dtype, .elem = dtypes[dtype].bytes };
    snprintf(t->key, sizeof(t->key), "k%c%c", 'a' + number / 26, 'a' + number % 26);
    t->ndim = ndim;
    for (uint32_t d = 0; d < ndim; d++)
        t->shape[d] = 1 + (int64_t)below((uint64_t)most);
    t->parts = ndim && t->shape[cut] >= parts ? parts : 1;
    for (uint32_t i = 0; i < t->parts; i++) {
        struct part *p = &t->part[i];
        int64_t end = ndim ? t->shape[cut] * (i + 1) / t->parts : 0;

        memcpy(p->shape, t->shape, sizeof(p->shape));
        if (ndim) {
            p->offset[cut] = done;
            p->shape[cut] = end - done;
        }
        done = end;
        part_fill(t, p);
    }
}

static struct hearth_piece tensor_piece(struct tensor *t, const struct part *p)
{
    struct hearth_piece piece = rank_piece(t->key, p->bytes, t->ndim, p->shape);

    piece.dtype = t->dtype;
    piece.global_shape = t->shape;
    piece.global_offset = p->offset;
    return piece;
}

static struct hearth_checkpoint *save_tensors(
        struct tensor *t, size_t count, uint64_t step, int remote)
{
    struct hearth_piece *p = calloc(count * 3, sizeof(*p));
    struct hearth_save *save;
    size_t n = 0;

    for (size_t i = 0; i < count; i++)
        for (uint32_t j = 0; j < t[i].parts; j++)
            p[n++] = tensor_piece(&t[i], &t[i].part[j]);
    save = rank_begin(r.h, step, hearth_save_bytes(p, n, NULL, 0));
    must(hearth_save_add(save, p, n, &err), err);
    rank_protect(rank_commit(save));
    free(p);
    fake_remote(r.fake, remote);
    return rank_recover(r.h, step);
}

static void tensors_free(struct tensor *t, size_t count)
{
    for (size_t i = 0; i < count; i++)
        for (uint32_t j = 0; j < t[i].parts; j++)
            free(t[i].part[j].bytes);
}

/* ---- targets -------------------------------------------------------------------------------- */

/* A box of a tensor, in memory with gaps. */
struct target {
    const struct tensor *t;
    int64_t offset[DIMS], shape[DIMS], strides[DIMS];
    size_t bytes; /* of its memory */
    uint64_t gpu; /* 0: host memory */
    unsigned char *host;
};

/* The dimensions in a random order, every third with a gap behind it. */
static void target_strides(struct target *x, int dense)
{
    uint32_t order[DIMS];
    int64_t step = 1;

    for (uint32_t d = 0; d < x->t->ndim; d++)
        order[d] = x->t->ndim - 1 - d;
    for (uint32_t d = x->t->ndim; !dense && d > 1; d--) {
        uint32_t j = (uint32_t)below(d), was = order[d - 1];

        order[d - 1] = order[j];
        order[j] = was;
    }
    for (uint32_t d = 0; d < x->t->ndim; d++) {
        step += !dense && below(3) == 0 ? (int64_t)below(4) : 0;
        x->strides[order[d]] = step;
        step *= x->shape[order[d]];
    }
    x->bytes = (size_t)step * x->t->elem;
}

/* Of the box [offset, offset + shape) a random one within. */
static void target_make(struct target *x, const struct tensor *t, const int64_t *offset,
        const int64_t *shape, int device)
{
    *x = (struct target){ .t = t };
    for (uint32_t d = 0; d < t->ndim; d++) {
        int64_t from = (int64_t)below((uint64_t)shape[d]);

        if (below(2))
            from = 0;
        x->offset[d] = offset[d] + from;
        x->shape[d] = below(2) ? shape[d] - from : 1 + (int64_t)below((uint64_t)(shape[d] - from));
    }
    target_strides(x, below(3) == 0);
    x->host = malloc(x->bytes);
    memset(x->host, 0x5a, x->bytes);
    if (device < 0)
        return;
    x->gpu = device_new(device, x->bytes);
    fakegpu_poke(x->gpu, x->host, x->bytes);
}

static void *target_at(const struct target *x)
{
    return x->gpu ? (void *)(uintptr_t)x->gpu : x->host;
}

/* Every byte: those of the box as they follow from their places, and the gaps as they were. */
static void target_check(struct target *x)
{
    unsigned char *want = malloc(x->bytes);
    int64_t n = count_of(x->t->ndim, x->shape), at[DIMS];

    memset(want, 0x5a, x->bytes);
    for (int64_t e = 0; e < n; e++) {
        int64_t to = 0;

        coordinates(x->t->ndim, x->offset, x->shape, e, at);
        for (uint32_t d = 0; d < x->t->ndim; d++)
            to += (at[d] - x->offset[d]) * x->strides[d];
        for (uint32_t b = 0; b < x->t->elem; b++)
            want[to * x->t->elem + b] = byte_of(x->t, at, b);
    }
    if (x->gpu)
        fakegpu_peek(x->gpu, x->host, x->bytes);
    cr_assert(zero(int, memcmp(x->host, want, x->bytes)), "%s, %u dimensions of %u bytes, %s",
            x->t->key, x->t->ndim, x->t->elem, x->gpu ? "GPU" : "host");
    free(want);
    free(x->host);
    if (x->gpu)
        fakegpu_free(x->gpu);
}

static struct hearth_piece target_piece(const struct target *x)
{
    struct hearth_piece p = rank_piece(x->t->key, target_at(x), x->t->ndim, x->shape);

    p.dtype = x->t->dtype;
    p.memory = x->gpu && below(2) ? HEARTH_CUDA : HEARTH_HOST; /* the driver says it, too */
    p.strides = x->strides;
    p.global_shape = x->t->shape;
    p.global_offset = x->offset;
    return p;
}

/* ---- random boxes --------------------------------------------------------------------------- */

#define TENSORS 12u
#define WISHES  40u

static void load_boxes(struct hearth_checkpoint *ckpt, struct tensor *t)
{
    static struct target x[WISHES];
    struct hearth_piece p[WISHES];
    static const int64_t origin[DIMS];

    for (unsigned i = 0; i < WISHES; i++) {
        const struct tensor *of = &t[below(TENSORS)];

        target_make(&x[i], of, origin, of->shape, (int)below(3) - 1);
        p[i] = target_piece(&x[i]);
    }
    must(hearth_load(ckpt, p, WISHES, 0, NULL, &err), err);
    for (unsigned i = 0; i < WISHES; i++)
        target_check(&x[i]);
}

/* The stored piece of a tensor that begins at this offset. */
static void item_of(struct hearth_checkpoint *ckpt, const struct tensor *t, const struct part *part,
        struct hearth_item *out)
{
    struct hearth_item item[3] = { HEARTH_ITEM_INIT, HEARTH_ITEM_INIT, HEARTH_ITEM_INIT };
    size_t n;

    must(hearth_item_find(ckpt, t->key, strlen(t->key), item, 3, &n, &err), err);
    for (size_t i = 0; i < n; i++)
        if (!t->ndim || !memcmp(item[i].global_offset, part->offset, t->ndim * sizeof(int64_t))) {
            *out = item[i];
            return;
        }
    cr_assert(zero(int, 1), "there is no such piece");
}

static void read_boxes(struct hearth_checkpoint *ckpt, struct tensor *t)
{
    static struct target x[WISHES];
    static int64_t in[WISHES][DIMS];
    struct hearth_box b[WISHES];

    for (unsigned i = 0; i < WISHES; i++) {
        const struct tensor *of = &t[below(TENSORS)];
        const struct part *part = &of->part[below(of->parts)];
        struct hearth_item item;

        item_of(ckpt, of, part, &item);
        target_make(&x[i], of, part->offset, part->shape, (int)below(3) - 1);
        for (uint32_t d = 0; d < of->ndim; d++)
            in[i][d] = x[i].offset[d] - part->offset[d];
        b[i] = (struct hearth_box){ .struct_size = sizeof(b[i]),
            .object = item.object,
            .item = item.offset,
            .dtype = of->dtype,
            .ndim = of->ndim,
            .offset = in[i],
            .shape = x[i].shape,
            .dst = target_at(&x[i]),
            .dst_strides = x[i].strides,
            .memory = x[i].gpu && below(2) ? HEARTH_CUDA : HEARTH_HOST };
    }
    must(hearth_read_boxes(ckpt, b, WISHES, &err), err);
    for (unsigned i = 0; i < WISHES; i++)
        target_check(&x[i]);
}

static void random_boxes(int remote)
{
    static struct tensor t[TENSORS];

    for (uint64_t step = 1; step < 9; step++) {
        struct hearth_checkpoint *ckpt;

        for (unsigned i = 0; i < TENSORS; i++) {
            uint32_t ndim = (uint32_t)below(6);

            tensor_make(&t[i], i, (uint32_t)below(DTYPES), ndim, ndim < 3 ? 60 : 8,
                    1 + (uint32_t)below(3));
        }
        ckpt = save_tensors(t, TENSORS, step, remote);
        for (int i = 0; i < 3; i++) {
            load_boxes(ckpt, t);
            read_boxes(ckpt, t);
            if (!remote)
                pause_ms(20); /* the next ones come straight from the object */
        }
        hearth_checkpoint_close(ckpt);
        cr_assert(zero(u32, fake_counts(r.fake).leases));
        tensors_free(t, TENSORS);
        fake_remote(r.fake, 0);
    }
}

Test(gpu_load, random_boxes_of_this_nodes_objects_are_what_was_saved)
{
    random_boxes(0);
}

Test(gpu_load, random_boxes_of_other_nodes_objects_are_what_was_saved)
{
    random_boxes(1);
}

Test(gpu_load, every_dtype_with_0_to_8_dimensions_is_what_was_saved)
{
    static struct tensor t[DTYPES];
    static struct target x[DTYPES];
    static const int64_t origin[DIMS];
    struct hearth_piece p[DTYPES];

    cr_assert(ge(sz, DTYPES, 22));
    for (uint32_t ndim = 0; ndim <= DIMS; ndim++) {
        struct hearth_checkpoint *ckpt;

        for (unsigned i = 0; i < DTYPES; i++)
            tensor_make(&t[i], i, i, ndim, ndim < 4 ? 9 : 3, 2);
        ckpt = save_tensors(t, DTYPES, ndim + 1, 0);
        for (unsigned i = 0; i < DTYPES; i++) {
            target_make(&x[i], &t[i], origin, t[i].shape, (int)(i & 1));
            p[i] = target_piece(&x[i]);
        }
        must(hearth_load(ckpt, p, DTYPES, 0, NULL, &err), err);
        for (unsigned i = 0; i < DTYPES; i++)
            target_check(&x[i]);
        hearth_checkpoint_close(ckpt);
        tensors_free(t, DTYPES);
    }
}

/* ---- sizes and numbers ---------------------------------------------------------------------- */

/* More than the two buffers, as it is and transposed. */
static void large(int remote)
{
    static const int64_t origin[DIMS];
    struct hearth_checkpoint *ckpt;
    struct hearth_piece p[3];
    struct target x[3];
    struct tensor t = { .key = "kaa", .dtype = HEARTH_INT64, .elem = 8, .ndim = 2, .parts = 1 };

    t.shape[0] = 2111;
    t.shape[1] = 2503;
    memcpy(t.part[0].shape, t.shape, sizeof(t.shape));
    part_fill(&t, &t.part[0]);
    ckpt = save_tensors(&t, 1, 1, remote);
    for (int i = 0; i < 3; i++) {
        x[i] = (struct target){ .t = &t };
        memcpy(x[i].shape, t.shape, sizeof(t.shape));
        target_strides(&x[i], 1);
        if (i == 1) { /* transposed */
            x[i].strides[0] = 1;
            x[i].strides[1] = t.shape[0];
        }
        if (i == 2) { /* rows that are cut, and lie apart */
            x[i].offset[1] = 3;
            x[i].shape[1] -= 5;
        }
        x[i].host = malloc(x[i].bytes);
        memset(x[i].host, 0x5a, x[i].bytes);
        x[i].gpu = device_new(0, x[i].bytes);
        fakegpu_poke(x[i].gpu, x[i].host, x[i].bytes);
        p[i] = target_piece(&x[i]);
    }
    cr_assert(zero(int, memcmp(x[0].offset, origin, sizeof(origin))));
    must(hearth_load(ckpt, p, 3, 0, NULL, &err), err);
    for (int i = 0; i < 3; i++)
        target_check(&x[i]);
    hearth_checkpoint_close(ckpt);
    tensors_free(&t, 1);
}

Test(gpu_load, a_tensor_larger_than_the_buffers_arrives_whole)
{
    large(0);
}

Test(gpu_load, a_tensor_of_another_node_larger_than_the_buffers_arrives_whole)
{
    large(1);
}

static uint64_t copy_calls(void)
{
    static const char *const names[] = { "cuMemcpyBatchAsync", "cuMemcpyBatchAsync_v2",
        "cuMemcpyHtoDAsync_v2", "cuMemcpy2DAsync_v2", "cuMemcpy3DAsync_v2", "hipMemcpyAsync",
        "hipMemcpy2DAsync" };
    uint64_t calls = 0;

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        calls += fakegpu_calls(names[i]);
    return calls;
}

Test(gpu_load, fifty_thousand_small_tensors_go_in_batches)
{
    enum { SMALL = 50000 };
    static const int64_t tiny[] = { 7 };
    static struct hearth_piece p[SMALL];
    static char key[SMALL][8];
    static float from[SMALL][7], got[SMALL][8];
    uint64_t at = device_new(0, sizeof(got));
    int batches = strcmp(fakegpu_profile(), "12.0") != 0 && !is_hip();
    struct hearth_checkpoint *ckpt;

    rank_fill(&from[0][0], sizeof(from) / 4, 3);
    for (size_t i = 0; i < SMALL; i++) {
        snprintf(key[i], sizeof(key[i]), "k%zu", i);
        p[i] = rank_piece(key[i], from[i], 1, tiny);
    }
    rank_save(r.h, 1, p, SMALL, NULL, 0);
    ckpt = rank_recover(r.h, 1);
    for (size_t i = 0; i < SMALL; i++)
        p[i].data = (void *)(uintptr_t)(at + 32 * i);
    fakegpu_calls_reset();
    must(hearth_load(ckpt, p, SMALL, 0, NULL, &err), err);
    if (batches)
        cr_expect(le(u64, copy_calls(), SMALL / 1000), "copies of 1,000 pieces in a call each");
    if (!is_hip())
        cr_expect(eq(u64, fakegpu_calls("cuPointerGetAttributes"), SMALL));
    fakegpu_peek(at, got, sizeof(got));
    for (size_t i = 0; i < SMALL; i++)
        cr_assert(zero(int, memcmp(got[i], from[i], 28)), "%zu", i);
    hearth_checkpoint_close(ckpt);
}

Test(gpu_load, a_rank_that_loads_and_never_saves_gpu_memory_has_the_same_two_threads_and_buffers)
{
    static float from[100];
    static const int64_t shape[] = { 100 };
    uint64_t at = device_new(1, sizeof(from));
    struct hearth_piece p = rank_piece("x", from, 1, shape);
    struct hearth_checkpoint *ckpt;

    rank_fill(from, 100, 1);
    rank_save(r.h, 1, &p, 1, NULL, 0);
    cr_expect(zero(u64, fakegpu_calls("cuStreamCreateWithPriority")));
    ckpt = rank_recover(r.h, 1);
    p.data = (void *)(uintptr_t)at;
    must(hearth_load(ckpt, &p, 1, 0, NULL, &err), err);
    pause_ms(20);
    cr_expect(ge(u64, fakegpu()->registered, 1));
    cr_expect(le(u64, fakegpu()->registered, 2), "the buffers of one GPU, and the object");
    hearth_checkpoint_close(ckpt);
}
