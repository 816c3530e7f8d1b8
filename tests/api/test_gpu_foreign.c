/* SPDX-License-Identifier: Apache-2.0 */
/* Containers in ml-flashpoint's layout, loaded into GPU memory and host memory in one call. */
#include "foreign_rig.h"

#include "fakegpu.h"
#include <time.h>

#define TENSORS  8u
#define MOST     65536u /* bytes of one */
#define AS_IT_IS 0x5a

static struct target {
    struct hearth_item item;
    unsigned char want[MOST], got[MOST];
    uint64_t gpu; /* 0: host memory */
} target[TENSORS];

static void gpu_start(void)
{
    fakegpu_start(NULL, 1);
    fakegpu_current(fakegpu_context(0));
    start();
    put(0, 12);
    recover_step(12);
}

/* Neither a registration nor a mapping of a container is left. */
static void gpu_end(void)
{
    end();
    cr_expect(zero(u64, fakegpu()->registered));
    cr_expect(zero(u64, fakegpu()->sins), "%s", fakegpu()->sin);
}

/* Every second one of a rank's tensors into GPU memory. The bytes that are wanted are read into
 * host memory, where other tests compare them with what the container was made of. */
static size_t wishes(struct one *o, struct hearth_piece *p)
{
    struct hearth_item item = { .struct_size = sizeof(item) };
    size_t n = 0;

    for (size_t i = 0; n < TENSORS && !hearth_item_at(o->c, 0, i, &item, NULL); i++) {
        struct target *t = &target[n];

        if (item.kind != 10)
            continue;
        t->item = item;
        must(hearth_read_bytes(o->c, &item, 0, t->want, item.bytes, &o->err), o->err);
        t->gpu = n % 2 ? 0 : fakegpu_alloc(fakegpu_context(0), MOST, FAKEGPU_PLAIN);
        p[n] = (struct hearth_piece){ .struct_size = sizeof(*p),
            .key = item.key,
            .key_len = item.key_len,
            .dtype = item.dtype,
            .ndim = item.ndim,
            .shape = item.shape,
            .data = t->gpu ? (void *)(uintptr_t)t->gpu : t->got };
        n++;
    }
    return n;
}

static void clear(size_t n)
{
    for (size_t i = 0; i < n; i++) {
        memset(target[i].got, AS_IT_IS, MOST);
        if (target[i].gpu)
            fakegpu_poke(target[i].gpu, target[i].got, MOST);
    }
}

/* Bytes of each target, and what lies behind them. */
static void holds(size_t n, int what_is_stored)
{
    for (size_t i = 0; i < n; i++) {
        struct target *t = &target[i];

        if (t->gpu)
            fakegpu_peek(t->gpu, t->got, MOST);
        for (uint64_t b = 0; b < MOST; b++)
            if (t->got[b] != (b < t->item.bytes && what_is_stored ? t->want[b] : AS_IT_IS))
                cr_assert(zero(int, 1), "byte %lu of %s, in %s memory", b,
                        (const char *)t->item.key, t->gpu ? "GPU" : "host");
    }
}

/* Node 0 has the file, and node 1's engine has pulled it. */
Test(gpu_foreign, tensors_go_into_gpu_memory_and_host_memory_in_one_call)
{
    struct hearth_piece p[TENSORS];

    gpu_start();
    for (int i = 0; i < NODES; i++) {
        size_t n = wishes(&one[i], p);

        cr_assert(ge(sz, n, 3));
        for (int again = 0; again < 3; again++) {
            clear(n);
            must(hearth_load(one[i].c, p, n, 0, NULL, &one[i].err), one[i].err);
            holds(n, 1);
            nanosleep(&(struct timespec){ .tv_nsec = 30000000 }, NULL);
        }
    }
    gpu_end();
}

/* A file that another program may write again is not registered with the driver. */
Test(gpu_foreign, another_programs_file_is_never_registered)
{
    struct hearth_piece p[TENSORS];
    size_t n;

    gpu_start();
    n = wishes(&one[0], p);
    for (int again = 0; again < 3; again++) {
        must(hearth_load(one[0].c, p, n, 0, NULL, &one[0].err), one[0].err);
        nanosleep(&(struct timespec){ .tv_nsec = 30000000 }, NULL);
    }
    cr_expect(eq(u64, fakegpu()->registrations, 1), "the buffers alone");
    gpu_end();
}

/* The second load of a checkpoint meets a file that was cut, or written again, meanwhile. */
static void changes(const char *command)
{
    struct hearth_piece p[TENSORS];
    size_t n;
    int rc;

    gpu_start();
    n = wishes(&one[0], p);
    must(hearth_load(one[0].c, p, n, 0, NULL, &one[0].err), one[0].err);
    sh(command, one[0].root, target[0].item.object);
    clear(n);
    rc = hearth_load(one[0].c, p, n, 0, NULL, &one[0].err);
    cr_assert(eq(int, rc, HEARTH_ELOST), "%s", one[0].err.text);
    cr_expect(ne(ptr, strstr(one[0].err.text, "recover again"), NULL), "%s", one[0].err.text);
    /* Targets of a load that has failed may be freed: nothing writes into them any more. */
    for (size_t i = 0; i < n; i++)
        if (target[i].gpu)
            fakegpu_free(target[i].gpu);
    gpu_end();
}

Test(gpu_foreign, a_file_that_is_written_again_fails_the_load_by_name)
{
    changes("sleep 0.02; printf X | dd of=%s/job/step-12_ckpt/%s bs=1 seek=4300 conv=notrunc "
            "2>/dev/null");
}

/* Its pages are gone, so that a read of them would end this process. */
Test(gpu_foreign, a_file_that_is_cut_fails_the_load_by_name)
{
    changes("truncate -s 100 %s/job/step-12_ckpt/%s");
}
