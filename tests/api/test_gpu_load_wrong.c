/* SPDX-License-Identifier: Apache-2.0 */
/* Loads into GPU memory where the driver, the caller or another node is wrong. */
#include "gpu_load_rig.h"

#include <pthread.h>

#define N 40000u

static float was[N], got[N], pattern[N];
static const int64_t all[] = { N };
static uint64_t at[2]; /* of two devices */

static struct hearth_checkpoint *saved(int remote)
{
    struct hearth_piece p[2];

    rank_fill(was, N, 5);
    memset(pattern, 0x5a, sizeof(pattern));
    p[0] = rank_piece("x", was, 1, all);
    p[1] = rank_piece("y", was, 1, all);
    rank_save(r.h, 1, p, 2, NULL, 0);
    for (int i = 0; i < 2; i++)
        at[i] = device_new(i, sizeof(was));
    fake_remote(r.fake, remote);
    return rank_recover(r.h, 1);
}

static struct hearth_piece target(const char *key, uint64_t to)
{
    struct hearth_piece p = rank_piece(key, (void *)(uintptr_t)to, 1, all);

    p.memory = HEARTH_CUDA;
    return p;
}

static void clear(void)
{
    for (int i = 0; i < 2; i++)
        fakegpu_poke(at[i], pattern, sizeof(pattern));
}

static void holds(uint64_t to, const void *what)
{
    fakegpu_peek(to, got, sizeof(got));
    cr_assert(zero(int, memcmp(got, what, sizeof(got))));
}

TestSuite(gpu_load_wrong, .init = load_start, .fini = load_stop);

Test(gpu_load_wrong, a_target_that_is_not_what_it_is_said_to_be_is_refused_before_a_byte_is_written)
{
    static float host[N];
    struct hearth_checkpoint *ckpt = saved(0);
    struct hearth_piece p[2] = { target("x", at[0]), rank_piece("y", host, 1, all) };
    struct hearth_box box = HEARTH_BOX_INIT;
    struct hearth_item item = HEARTH_ITEM_INIT;
    int64_t zero = 0;
    size_t n;

    clear();
    p[1].memory = HEARTH_CUDA;
    must_fail(hearth_load(ckpt, p, 2, 0, NULL, &err), HEARTH_EINVAL);
    says("'y'");
    says("HEARTH_CUDA");
    holds(at[0], pattern);
    must(hearth_item_find(ckpt, "x", 1, &item, 1, &n, &err), err);
    box.object = item.object;
    box.item = item.offset;
    box.dtype = HEARTH_FLOAT32;
    box.ndim = 1;
    box.offset = &zero;
    box.shape = all;
    box.dst = host;
    box.memory = HEARTH_CUDA;
    must_fail(hearth_read_boxes(ckpt, &box, 1, &err), HEARTH_EINVAL);
    says("'x'");
    box.memory = 5;
    must_fail(hearth_read_boxes(ckpt, &box, 1, &err), HEARTH_EINVAL);
    box.memory = HEARTH_HOST;
    box.reserved = 1;
    must_fail(hearth_read_boxes(ckpt, &box, 1, &err), HEARTH_EINVAL);
    hearth_checkpoint_close(ckpt);
}

Test(gpu_load_wrong, a_stream_that_is_captured_is_refused_and_the_next_load_works)
{
    struct hearth_checkpoint *ckpt = saved(0);
    struct hearth_piece p = target("x", at[0]);
    void *stream = fakegpu_stream();

    clear();
    must(hearth_checkpoint_stream(ckpt, stream, &err), err);
    fakegpu_capture(stream, 1);
    must_fail(hearth_load(ckpt, &p, 1, 0, NULL, &err), HEARTH_EUNSUPPORTED);
    says("'x'");
    says("captur");
    fakegpu_capture(stream, 0);
    holds(at[0], pattern);
    must(hearth_load(ckpt, &p, 1, 0, NULL, &err), err);
    fakegpu_wait(stream);
    holds(at[0], was);
    hearth_checkpoint_close(ckpt);
}

/* How a load takes a refusal: it fails; it goes on without what the call is for; the thread that
 * pins may be the one that meets it; it fails unless the target is the processor's to read. */
enum takes { FAILS, GOES_ON, ENTERS, ASKS };

static int takes_it(enum takes takes, unsigned after, int remote)
{
    return takes == GOES_ON || (takes == ENTERS && !remote) || (takes == ASKS && after == 1);
}

static const struct planted {
    const char *cuda, *hip;
    enum takes takes;
} planted[] = {
    { "cuPointerGetAttributes", "hipPointerGetAttributes", ASKS },
    { "cuCtxPushCurrent_v2", "hipGetDevice", ENTERS },
    { NULL, "hipSetDevice", ENTERS },
    { "cuCtxGetStreamPriorityRange", "hipDeviceGetStreamPriorityRange", FAILS },
    { "cuStreamCreateWithPriority", "hipStreamCreateWithPriority", FAILS },
    { "cuMemHostRegister_v2", "hipHostRegister", GOES_ON },
    { "cuThreadExchangeStreamCaptureMode", "hipThreadExchangeStreamCaptureMode", GOES_ON },
    { "cuDeviceGetAttribute", "hipGetDeviceCount", GOES_ON },
    { "cuStreamIsCapturing", "hipStreamIsCapturing", FAILS },
    { "cuEventCreate", "hipEventCreateWithFlags", FAILS },
    { "cuEventRecord", "hipEventRecord", FAILS },
    { "cuStreamWaitEvent", "hipStreamWaitEvent", FAILS },
    { "cuEventQuery", "hipEventQuery", FAILS },
    { "cuMemcpyHtoDAsync_v2", "hipMemcpyAsync", FAILS },
    { "cuMemcpyBatchAsync_v2", NULL, FAILS },
    { "cuMemcpyBatchAsync", NULL, FAILS },
};

/* The call of the driver that is loaded. */
static const char *name_of(const char *cuda, const char *hip)
{
    return is_hip() ? hip : cuda;
}

/* One call in turn, from its first use to its eighth, by two numbers. */
static void plant(const struct planted *which, int remote, struct hearth_checkpoint *ckpt)
{
    static float host[N];
    struct hearth_piece p[3] = { target("x", at[0]), rank_piece("y", host, 1, all),
        target("y", at[1]) };
    const char *call = name_of(which->cuda, which->hip);

    /* An event is not given back where the context cannot be entered: a leak of the stand-in. */
    unsigned most = which->takes == ENTERS ? 1 : 8;

    for (unsigned after = 0; after < most; after++) {
        uint64_t before = fakegpu_calls(call);
        int number = after % 2 ? 2 : 999, met, rc;

        clear();
        fakegpu_refuse(call, after, number);
        rc = hearth_load(ckpt, p, 3, 0, NULL, &err);
        met = fakegpu_calls(call) - before > after;
        fakegpu_refuse(NULL, 0, 0);
        if (rc) {
            cr_expect(eq(int, rc, after % 2 ? HEARTH_ENOMEM : HEARTH_EIO), "%s", err.text);
            cr_expect(eq(int, err.native, number), "%s: %s", call, err.text);
            says(call);
            says(after % 2 ? "returned error 2 (" : "returned error 999 (");
            cr_expect(ne(ptr, strstr(err.text, "'x'") ? "" : strstr(err.text, "'y'"), NULL), "%s",
                    err.text);
        } else {
            cr_expect(
                    !met || takes_it(which->takes, after, remote), "%s: its refusal is lost", call);
            holds(at[0], was);
            holds(at[1], was);
        }
        must(hearth_load(ckpt, p, 3, 0, NULL, &err), err);
        holds(at[0], was);
        holds(at[1], was);
        cr_assert(zero(int, memcmp(host, was, sizeof(was))));
    }
}

Test(gpu_load_wrong, a_call_that_the_driver_refuses_fails_this_load_alone, .timeout = 100)
{
    alarm(100);
    for (int remote = 0; remote < 2; remote++)
        for (size_t i = 0; i < sizeof(planted) / sizeof(planted[0]); i++) {
            const char *call = name_of(planted[i].cuda, planted[i].hip);
            struct hearth_checkpoint *ckpt;

            if (!call)
                continue;
            fake_remote(r.fake, 0);
            ckpt = saved(remote);
            plant(&planted[i], remote, ckpt);
            hearth_checkpoint_close(ckpt);
            cr_assert(zero(u32, fake_counts(r.fake).leases), "%s", call);
            hearth_close(r.h, HEARTH_KEEP);
            cr_assert(zero(u64, fakegpu()->registered), "%s", call);
            r.h = NULL;
            must(hearth_open(&r.opts, &r.h, &err), err);
            ckpt = NULL;
            must(hearth_recover(r.h, NULL, &ckpt, &err), err);
            hearth_checkpoint_close(ckpt);
        }
}

static void *breaks(void *arg)
{
    pause_ms(50);
    fakegpu_break(0, 700);
    fakegpu()->hold = 0;
    return arg;
}

Test(gpu_load_wrong, a_lost_context_fails_the_load_and_another_gpu_still_works)
{
    struct hearth_checkpoint *ckpt = saved(0);
    struct hearth_piece x = target("x", at[0]), y = target("y", at[1]);
    pthread_t thread;

    fakegpu()->hold = 1;
    must(pthread_create(&thread, NULL, breaks, NULL));
    must_fail(hearth_load(ckpt, &x, 1, 0, NULL, &err), HEARTH_EIO);
    pthread_join(thread, NULL);
    says("'x'");
    says("GPU 0");
    says("700");
    cr_expect(eq(int, err.native, 700));
    must_fail(hearth_load(ckpt, &x, 1, 0, NULL, &err), HEARTH_EIO);
    says("'x'");
    says("700");
    if (!is_hip()) { /* its calls all fail here while the broken device is a thread's current one */
        must(hearth_load(ckpt, &y, 1, 0, NULL, &err), err);
        holds(at[1], was);
    }
    hearth_checkpoint_close(ckpt);
    cr_assert(zero(u32, fake_counts(r.fake).leases));
    if (is_hip()) /* that goes for what ends a registration, too */
        fakegpu()->registered = 0;
}

Test(gpu_load_wrong, memory_whose_device_has_no_context_is_refused_by_name)
{
    struct hearth_checkpoint *ckpt = saved(0);
    struct hearth_piece p =
            target("x", fakegpu_alloc(fakegpu_context(1), sizeof(was), FAKEGPU_MAPPED));

    if (is_hip()) { /* it has no contexts */
        hearth_checkpoint_close(ckpt);
        return;
    }
    fakegpu_primary_end(1);
    must_fail(hearth_load(ckpt, &p, 1, 0, NULL, &err), HEARTH_ESTATE);
    says("'x'");
    says("context");
    hearth_checkpoint_close(ckpt);
}

Test(gpu_load_wrong, a_gpu_that_does_not_copy_is_named_in_time)
{
    struct hearth_checkpoint *ckpt = saved(0);
    struct hearth_piece p = target("x", at[0]);

    hearth_checkpoint_close(ckpt);
    hearth_close(r.h, HEARTH_KEEP);
    r.opts.save_ms = 300;
    must(hearth_open(&r.opts, &r.h, &err), err);
    ckpt = rank_recover(r.h, 1);
    fakegpu()->hold = 1;
    must_fail(hearth_load(ckpt, &p, 1, 0, NULL, &err), HEARTH_ETIMEOUT);
    says("'x'");
    says("GPU 0");
    hearth_checkpoint_close(ckpt);
    cr_expect(eq(u32, fake_counts(r.fake).leases, 1), "a copy may still read it");
    fakegpu()->hold = 0;
    for (int ms = 0; ms < 3000 && fake_counts(r.fake).leases; ms++)
        pause_ms(1);
    cr_expect(zero(u32, fake_counts(r.fake).leases));
}

Test(gpu_load_wrong, bytes_that_are_wrong_do_not_reach_the_gpu)
{
    struct hearth_checkpoint *ckpt = saved(1);
    struct hearth_piece p = target("x", at[0]);

    must(hearth_load(ckpt, &p, 0, 0, NULL, &err), err);
    {
        struct hearth_item item = HEARTH_ITEM_INIT; /* its table is here then */
        size_t n;

        must(hearth_item_find(ckpt, "x", 1, &item, 1, &n, &err), err);
    }
    clear();
    fake_flip(r.fake, 2);
    must_fail(hearth_load(ckpt, &p, 1, 0, NULL, &err), HEARTH_ECORRUPT);
    holds(at[0], pattern);
    fake_flip(r.fake, 1); /* the second copy is right */
    must(hearth_load(ckpt, &p, 1, 0, NULL, &err), err);
    holds(at[0], was);
    hearth_checkpoint_close(ckpt);
}

static void *leaves(void *arg)
{
    struct hearth_checkpoint *ckpt = arg;
    struct hearth_piece p = target("x", at[0]);

    must(hearth_load(ckpt, &p, 1, 0, NULL, &err), err);
    return NULL;
}

Test(gpu_load_wrong, a_trainer_without_a_current_context_loads)
{
    struct hearth_checkpoint *ckpt = saved(0);
    pthread_t thread;

    must(pthread_create(&thread, NULL, leaves, ckpt));
    pthread_join(thread, NULL);
    holds(at[0], was);
    hearth_checkpoint_close(ckpt);
}

static void *goes_on(void *arg)
{
    pause_ms(2500);
    fakegpu()->hold = 0;
    return arg;
}

/* The first GPU has much to do before it copies, and the driver refuses the second one's copy. */
Test(gpu_load_wrong, once_a_load_has_failed_its_targets_may_be_freed)
{
    struct hearth_checkpoint *ckpt = saved(0);
    struct hearth_piece p[2] = { target("x", at[0]), target("y", at[1]) };
    pthread_t thread;

    must(hearth_load(ckpt, p, 2, 0, NULL, &err), err);
    for (unsigned first = 0; first < 2; first++) { /* of the stream, or of none */
        must(hearth_checkpoint_stream(ckpt, first ? fakegpu_stream() : NULL, &err), err);
        fakegpu()->hold = 1;
        must(pthread_create(&thread, NULL, goes_on, NULL));
        fakegpu_refuse(name_of("cuStreamWaitEvent", "hipStreamWaitEvent"), 1, 999);
        must_fail(hearth_load(ckpt, p, 2, 0, NULL, &err), HEARTH_EIO);
        fakegpu_refuse(NULL, 0, 0);
        clear(); /* the memory is another tensor's */
        pthread_join(thread, NULL);
        pause_ms(100);
        holds(at[0], pattern);
    }
    hearth_checkpoint_close(ckpt);
}

static void *releases(void *arg)
{
    pause_ms(200);
    fakegpu()->hold = 0;
    return arg;
}

/* The copy of a save is under way, and the driver refuses the event behind it. */
Test(gpu_load_wrong, a_buffer_that_a_copy_uses_is_not_taken_for_a_load)
{
    struct hearth_checkpoint *ckpt = saved(0);
    struct hearth_piece x = target("x", at[0]), other = target("x", at[1]);
    struct hearth_save *save;
    pthread_t thread;

    other.data = (void *)(uintptr_t)device_new(0, sizeof(pattern));
    fakegpu_poke((uint64_t)(uintptr_t)other.from, pattern, sizeof(pattern));
    hearth_checkpoint_close(ckpt);
    hearth_close(r.h, HEARTH_KEEP);
    r.opts.pin = HEARTH_PIN_NO;
    must(hearth_open(&r.opts, &r.h, &err), err);
    ckpt = rank_recover(r.h, 1);
    for (unsigned after = 0; after < 4; after++) {
        clear();
        fakegpu()->hold = 1;
        save = rank_begin(r.h, 2 + after, hearth_save_bytes(&other, 1, NULL, 0));
        fakegpu_refuse(name_of("cuEventRecord", "hipEventRecord"), after, 999);
        hearth_save_add(save, &other, 1, NULL);
        pause_ms(50);
        fakegpu_refuse(NULL, 0, 0);
        hearth_save_abort(save);
        must(pthread_create(&thread, NULL, releases, NULL));
        must(hearth_load(ckpt, &x, 1, 0, NULL, &err), err);
        pthread_join(thread, NULL);
        holds(at[0], was);
    }
    hearth_checkpoint_close(ckpt);
}

/* Of nothing, nothing is asked: neither whose memory it is, nor is a copy made. */
Test(gpu_load_wrong, tensors_of_no_elements_are_loaded_beside_others)
{
    static const int64_t none[] = { 0, 7 };
    static const char *const asks[] = {
        "cuPointerGetAttributes",
        "hipPointerGetAttributes",
        "cuMemcpyHtoDAsync_v2",
        "cuMemcpyBatchAsync",
        "cuMemcpyBatchAsync_v2",
        "cuMemcpy2DAsync_v2",
        "cuMemcpy3DAsync_v2",
        "hipMemcpyAsync",
        "hipMemcpy2DAsync",
    };
    struct hearth_piece p[2] = { rank_piece("none", was, 2, none), rank_piece("x", was, 1, all) };
    struct hearth_checkpoint *ckpt;

    rank_fill(was, N, 5);
    rank_save(r.h, 1, p, 2, NULL, 0);
    at[0] = device_new(0, sizeof(was));
    for (int i = 0; i < 2; i++) {
        ckpt = rank_recover(r.h, 1);
        p[0] = rank_piece("none", i ? NULL : (void *)8, 2, none);
        p[0].memory = HEARTH_CUDA;
        p[1] = target("x", at[0]);
        fakegpu_calls_reset();
        must(hearth_load(ckpt, p, 1, 0, NULL, &err), err);
        /* A pin, made by another thread, asks what it likes meanwhile. */
        for (size_t j = 0; j < sizeof(asks) / sizeof(*asks); j++)
            cr_expect(zero(u64, fakegpu_calls(asks[j])), "%s", asks[j]);
        fakegpu_poke(at[0], pattern, sizeof(was));
        must(hearth_load(ckpt, p, 2, 0, NULL, &err), err);
        holds(at[0], was);
        hearth_checkpoint_close(ckpt);
    }
}
