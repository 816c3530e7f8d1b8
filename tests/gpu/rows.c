/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_rows: what saves of GPU memory reach, against what the driver does in the same run. A row and
 * its limit alternate; bytes are compared, and a wrong one ends the program.
 */
#include "device.h"
#include "trainer.h"

#include <inttypes.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "tests/bench/bench.h"

#define MIB    UINT64_C(1048576)
#define BEFORE 3u /* loads until each slot was read once */

static struct {
    const char *root, *json;
    uint64_t fake, seconds;
    unsigned rounds;
} arg = { .rounds = 5, .seconds = 420 };

static struct watch {
    atomic_uint stop, ready;
    _Atomic uint64_t longest_us, calls;
} * watch;

static double began;
static int low;
static void *stream;
static FILE *json;

/* ---- rows ----------------------------------------------------------------------------------- */

static void skip(const char *name, const char *why)
{
    printf("%-44s skipped: %s\n", name, why);
    fflush(stdout);
    if (!json)
        return;
    fprintf(json, "{\"case\": \"%s\", \"skipped\": \"", name);
    for (; *why; why++)
        fprintf(json, *why == '"' || *why == '\\' ? "\\%c" : "%c", *why);
    fprintf(json, "\"}\n");
    fflush(json);
}

static void show(const char *name, const struct series *rate, const char *unit,
        const char *limit_name, const struct series *limit, double want)
{
    low |= row_say(&(struct row){ .name = name,
            .limit_name = limit_name,
            .rate = rate,
            .limit = limit,
            .unit = unit,
            .want = arg.fake ? 0 : want });
}

static void show_one(const char *name, double value, const char *unit)
{
    struct series one = { .value = { value }, .count = 1 };

    show(name, &one, unit, NULL, NULL, 0);
}

static const char *size_name(uint64_t bytes, const char *before, const char *after)
{
    static char name[100];
    uint64_t mib = bytes / MIB;

    snprintf(name, sizeof(name), "%s%" PRIu64 " %s%s", before, mib < 1024 ? mib : mib / 1024,
            mib < 1024 ? "MiB" : "GiB", after);
    return name;
}

/* Why a row of such a state cannot be: three slots lie in the tmpfs, and twice the state in the
 * device and in the host's memory. */
static const char *no_room(uint64_t bytes)
{
    struct statvfs fs;

    if (now_s() - began > (double)arg.seconds)
        return "the time is over";
    if (statvfs(arg.root, &fs) || (uint64_t)fs.f_bavail * fs.f_frsize < 4 * bytes + 64 * MIB)
        return "the tmpfs has no room";
    return gpu_room() < 2 * bytes + 64 * MIB ? "the device has no room" : NULL;
}

static unsigned rounds_of(uint64_t bytes)
{
    return bytes >= 1024 * MIB && arg.rounds > 3 ? 3 : arg.rounds;
}

static double rate(uint64_t bytes, double seconds)
{
    return (double)bytes / seconds / 1e9;
}

/* ---- a state -------------------------------------------------------------------------------- */

static struct {
    uint64_t bytes, at;
    uint64_t *host; /* pinned */
    int64_t shape;
    struct hearth_piece piece;
} whole;

static void whole_open(uint64_t bytes)
{
    whole.bytes = bytes;
    whole.at = gpu_alloc(bytes);
    whole.host = memory(bytes);
    gpu_pin(whole.host, bytes);
    whole.shape = (int64_t)(bytes / 8);
    whole.piece = trainer_piece(
            "whole", (void *)(uintptr_t)whole.at, HEARTH_INT64, 1, &whole.shape, NULL);
    whole.piece.memory = HEARTH_CUDA;
}

static void whole_close(void)
{
    gpu_unpin(whole.host);
    munmap(whole.host, whole.bytes);
    gpu_free(whole.at);
}

static void whole_fill(uint64_t seed)
{
    fill(whole.host, whole.bytes, seed);
    gpu_put(whole.at, whole.host, whole.bytes);
}

/* The last save has the bytes of this seed. */
static void whole_check(uint64_t seed)
{
    struct hearth_piece p = trainer_piece("whole", NULL, HEARTH_INT64, 1, &whole.shape, NULL);

    memset(whole.host, 0xee, whole.bytes);
    p.data = whole.host;
    if (trainer_load(&p, 1, NULL, NULL, 0))
        die("host memory is not loaded into");
    check(whole.host, whole.bytes, seed);
}

static double driver_out_s(void *to)
{
    double from = now_s();

    gpu_out(stream, to, whole.at, whole.bytes);
    gpu_wait(stream);
    return now_s() - from;
}

/* As a trainer sees it: the stream goes on behind the copies. */
static double save_s(const struct hearth_piece *pieces, size_t count)
{
    struct hearth_save *save = trainer_begin(pieces, count, stream);
    double from = now_s(), s;

    trainer_add(save, pieces, count);
    trainer_fence(save, stream);
    gpu_wait(stream);
    s = now_s() - from;
    trainer_end(trainer_commit(save));
    return s;
}

/* ---- parts ---------------------------------------------------------------------------------- */

static void registered(uint64_t bytes, int pins_too)
{
    const char *name = size_name(bytes, "save into a registered slot, ", ""), *why = no_room(bytes);
    struct series saves = { 0 }, driver = { 0 };
    struct pinned pinned;
    uint64_t longest_us;

    if (why) {
        skip(name, why);
        return;
    }
    whole_open(bytes);
    whole_fill(0);
    trainer_open(arg.root, hearth_save_bytes(&whole.piece, 1, NULL, 0), HEARTH_PIN_AUTO);
    atomic_store(&watch->longest_us, 0);
    pinned = trainer_pin(&whole.piece, 1, stream);
    longest_us = watch->longest_us;
    for (unsigned i = 1; pinned.bytes && i <= rounds_of(bytes); i++) {
        whole_fill(i);
        series_add(&driver, rate(bytes, driver_out_s(whole.host)));
        series_add(&saves, rate(bytes, save_s(&whole.piece, 1)));
        whole_check(i);
    }
    trainer_close();
    whole_close();
    if (!pinned.bytes) {
        skip(name, pinned.why);
        return;
    }
    show(name, &saves, "GB/s", "pinned cuMemcpyDtoHAsync", &driver, 0.95);
    if (!pins_too)
        return;
    show_one("pinning a slot", pinned.s * (double)(1024 * MIB) / (double)pinned.bytes, "s/GiB");
    if (watch->calls)
        show_one("  longest cuMemGetInfo of another process", (double)longest_us / 1e3, "ms");
}

static void small(size_t count, uint64_t each)
{
    uint64_t bytes = count * each;
    struct series saves = { 0 }, driver = { 0 };
    struct hearth_piece *p = calloc(count, sizeof(*p));
    char(*key)[24] = calloc(count, sizeof(*key));
    int64_t n = (int64_t)(each / 8);
    const char *why = no_room(bytes);
    char name[60];

    snprintf(name, sizeof(name), "save of %zu tensors of 128 KiB", count);
    if (why || !p || !key) {
        skip(name, why ? why : "no memory");
        return;
    }
    whole_open(bytes);
    for (size_t i = 0; i < count; i++) {
        snprintf(key[i], sizeof(key[i]), "t%zu", i);
        p[i] = trainer_piece(
                key[i], (void *)(uintptr_t)(whole.at + i * each), HEARTH_INT64, 1, &n, NULL);
        p[i].memory = HEARTH_CUDA;
    }
    trainer_open(arg.root, hearth_save_bytes(p, count, NULL, 0), HEARTH_PIN_AUTO);
    whole_fill(0);
    trainer_pin(p, count, stream);
    for (unsigned i = 1; i <= arg.rounds; i++) {
        whole_fill(i);
        series_add(&driver, rate(bytes, driver_out_s(whole.host)));
        series_add(&saves, rate(bytes, save_s(p, count)));
        memset(whole.host, 0xee, bytes);
        for (size_t k = 0; k < count; k++)
            p[k].data = whole.host + k * (each / 8), p[k].memory = HEARTH_HOST;
        if (trainer_load(p, count, NULL, NULL, 0))
            die("host memory is not loaded into");
        check(whole.host, bytes, i);
        for (size_t k = 0; k < count; k++)
            p[k].from = (void *)(uintptr_t)(whole.at + k * each), p[k].memory = HEARTH_CUDA;
    }
    trainer_close();
    whole_close();
    free(p);
    free(key);
    show(name, &saves, "GB/s", "one pinned cuMemcpyDtoHAsync", &driver, 0.80);
}

static uint64_t own_kib(void)
{
    unsigned long kib = 0;
    char line[200];
    FILE *f = fopen("/proc/self/status", "re");

    while (f && fgets(line, sizeof(line), f))
        if (sscanf(line, "RssAnon: %lu", &kib) == 1)
            break;
    if (f)
        fclose(f);
    return kib;
}

/* Until all bytes are in the slot: two buffers of 16 MiB, and host memory that they need. */
static void ring(uint64_t bytes)
{
    const char *name = size_name(bytes, "save through the buffers, ", ""), *why = no_room(bytes);
    struct series saves = { 0 }, driver = { 0 };
    uint64_t before, most = 0;
    unsigned char *pageable;

    if (why) {
        skip(name, why);
        return;
    }
    whole_open(bytes);
    pageable = memory(bytes);
    whole_fill(0);
    trainer_open(arg.root, hearth_save_bytes(&whole.piece, 1, NULL, 0), HEARTH_PIN_NO);
    before = own_kib();
    for (unsigned i = 0; i < 2; i++)
        trainer_save(&whole.piece, 1, stream);
    for (unsigned i = 1; i <= rounds_of(bytes); i++) {
        struct hearth_save *save;
        double from;
        uint64_t kib;

        whole_fill(i);
        series_add(&driver, rate(bytes, driver_out_s(pageable)));
        save = trainer_begin(&whole.piece, 1, stream);
        from = now_s();
        trainer_add(save, &whole.piece, 1);
        trainer_fence(save, NULL);
        series_add(&saves, rate(bytes, now_s() - from));
        kib = own_kib();
        most = kib > most ? kib : most;
        trainer_end(trainer_commit(save));
        whole_check(i);
    }
    trainer_close();
    munmap(pageable, bytes);
    whole_close();
    show(name, &saves, "GB/s", "pageable cuMemcpyDtoHAsync", &driver, 1.0);
    show_one("  host memory beside the state", most > before ? (double)(most - before) / 1024 : 0,
            "MiB");
}

static double step_s(uint64_t at, uint64_t bytes, unsigned times)
{
    double from = now_s();

    for (unsigned i = 0; i < 10; i++)
        gpu_work(stream, at, bytes, times);
    gpu_wait(stream);
    return now_s() - from;
}

/* Ten kernels, and as many beside a save that began just before. */
static void beside(uint64_t bytes)
{
    const char *name = "training step beside a save", *why = no_room(2 * bytes);
    struct series with = { 0 }, without = { 0 };
    unsigned times = 1;
    uint64_t at;

    if (why) {
        skip(name, why);
        return;
    }
    at = gpu_alloc(bytes);
    whole_open(bytes);
    whole_fill(0);
    gpu_set(stream, at, 0, bytes);
    trainer_open(arg.root, hearth_save_bytes(&whole.piece, 1, NULL, 0), HEARTH_PIN_AUTO);
    trainer_pin(&whole.piece, 1, stream);
    while (step_s(at, bytes, times) < (arg.fake ? 0.002 : 0.2) && times < 1u << 20)
        times *= 2;
    for (unsigned i = 1; i <= arg.rounds; i++) {
        struct hearth_save *save;

        series_add(&without, 1 / step_s(at, bytes, times));
        whole_fill(i);
        save = trainer_begin(&whole.piece, 1, stream);
        trainer_add(save, &whole.piece, 1);
        series_add(&with, 1 / step_s(at, bytes, times));
        trainer_end(trainer_commit(save));
        whole_check(i);
    }
    trainer_close();
    whole_close();
    gpu_free(at);
    show(name, &with, "1/s", "without a save", &without, 0);
}

static double blocked_s(const struct hearth_piece *piece)
{
    struct hearth_save *save = trainer_begin(piece, 1, stream);
    struct hearth_handle *handle;
    double from = now_s(), s;

    trainer_add(save, piece, 1);
    trainer_fence(save, stream);
    handle = trainer_commit(save);
    s = now_s() - from;
    trainer_end(handle);
    return s;
}

static void blocked(uint64_t few, uint64_t many)
{
    char name[100];
    const char *why = no_room(many);
    struct series of_few = { 0 }, of_many = { 0 };
    struct hearth_piece p;
    int64_t n = (int64_t)(few / 8);

    snprintf(name, sizeof(name), "%s", size_name(many, "add, fence, commit of ", ""));
    if (why) {
        skip(name, why);
        return;
    }
    whole_open(many);
    whole_fill(0);
    p = whole.piece;
    p.shape = &n;
    trainer_open(arg.root, hearth_save_bytes(&whole.piece, 1, NULL, 0), HEARTH_PIN_AUTO);
    trainer_pin(&whole.piece, 1, stream);
    for (unsigned i = 0; i < 2 * arg.rounds && i < ROUNDS_MAX; i++) {
        series_add(&of_few, 1e-3 / blocked_s(&p));
        series_add(&of_many, 1e-3 / blocked_s(&whole.piece));
    }
    whole_check(0);
    trainer_close();
    whole_close();
    show(name, &of_many, "1/ms", size_name(few, "of ", ""), &of_few, 1 / 1.3);
}

static void load(uint64_t bytes)
{
    const char *name = size_name(bytes, "load into GPU memory, ", ""), *why = no_room(bytes);
    struct series loads = { 0 }, driver = { 0 };
    struct pinned pinned;
    char text[600] = "";
    int rc = 0;

    if (why) {
        skip(name, why);
        return;
    }
    whole_open(bytes);
    trainer_open(arg.root, hearth_save_bytes(&whole.piece, 1, NULL, 0), HEARTH_PIN_AUTO);
    whole_fill(0);
    pinned = trainer_pin(&whole.piece, 1, stream);
    for (unsigned i = 1; i <= BEFORE + rounds_of(bytes) && !rc; i++) {
        struct hearth_piece p = whole.piece;
        double from, s, driver_s;

        whole_fill(i);
        trainer_save(&whole.piece, 1, stream);
        from = now_s();
        gpu_in(stream, whole.at, whole.host, bytes);
        gpu_wait(stream);
        driver_s = now_s() - from;
        gpu_set(stream, whole.at, 0xee, bytes);
        gpu_wait(stream);
        p.data = (void *)(uintptr_t)whole.at;
        if ((rc = trainer_load(&p, 1, &s, text, sizeof(text))))
            break;
        if (i > BEFORE) {
            series_add(&driver, rate(bytes, driver_s));
            series_add(&loads, rate(bytes, s));
        }
        memset(whole.host, 0x11, bytes);
        gpu_get(whole.host, whole.at, bytes);
        check(whole.host, bytes, i);
        nap_ms((unsigned)(pinned.s * 1500) + 20); /* what was read may be pinned now */
    }
    trainer_close();
    whole_close();
    if (rc)
        skip(name, text);
    else
        show(name, &loads, "GB/s", "pinned cuMemcpyHtoDAsync", &driver, 0.95);
}

/* ---- what tests/api/test_gpu.c shows of the tests' driver, where a real one can show it ------ */

static void strided(void)
{
    enum { WORDS = 400000 };
    static const int64_t shape[] = { 20, 30, 40 }, strides[] = { 20000, 600, 1 }, all = 24000;
    struct hearth_piece p[2], got[2];
    uint64_t *host, *out = memory(8 * all), *own = memory(8 * all);

    whole_open(8 * WORDS);
    host = whole.host;
    whole_fill(5);
    fill(own, 8 * all, 6);
    p[0] = trainer_piece("strided", (void *)(uintptr_t)whole.at, HEARTH_INT64, 3, shape, strides);
    p[1] = trainer_piece("host", own, HEARTH_INT64, 1, &all, NULL);
    trainer_open(arg.root, hearth_save_bytes(p, 2, NULL, 0), HEARTH_PIN_AUTO);
    for (unsigned i = 0; i < 4; i++) {
        trainer_save(p, 2, stream);
        nap_ms(20);
    }
    got[0] = trainer_piece("strided", NULL, HEARTH_INT64, 3, shape, NULL);
    got[1] = p[1];
    got[0].data = out;
    got[1].data = own;
    memset(own, 0xee, 8 * all);
    if (trainer_load(got, 2, NULL, NULL, 0))
        die("host memory is not loaded into");
    check(own, 8 * all, 6);
    for (int64_t i = 0; i < all; i++)
        if (out[i] != host[i / 1200 * 20000 + i / 40 % 30 * 600 + i % 40])
            die("WRONG BYTES in element %" PRId64 " of a strided tensor", i);
    trainer_close();
    munmap(out, 8 * all);
    munmap(own, 8 * all);
    whole_close();
}

/* Work before the save is in it, and work behind the fence is not. */
static void ordered(uint64_t bytes, uint32_t pin)
{
    whole_open(bytes);
    whole_fill(0);
    trainer_open(arg.root, hearth_save_bytes(&whole.piece, 1, NULL, 0), pin);
    if (pin == HEARTH_PIN_AUTO)
        trainer_pin(&whole.piece, 1, stream);
    for (unsigned i = 1; i <= 20; i++) {
        struct hearth_save *save;
        struct hearth_handle *handle;
        unsigned char *host = (unsigned char *)whole.host;

        gpu_set(stream, whole.at, (int)i, bytes);
        save = trainer_begin(&whole.piece, 1, stream);
        trainer_add(save, &whole.piece, 1);
        handle = trainer_commit(save);
        if (hearth_handle_fence(handle, stream, NULL))
            die("the fence failed");
        gpu_set(stream, whole.at, 0xee, bytes);
        trainer_end(handle);
        gpu_wait(stream);
        {
            struct hearth_piece p =
                    trainer_piece("whole", NULL, HEARTH_INT64, 1, &whole.shape, NULL);

            p.data = host;
            if (trainer_load(&p, 1, NULL, NULL, 0))
                die("host memory is not loaded into");
        }
        for (uint64_t k = 0; k < bytes; k++)
            if (host[k] != i)
                die("WRONG BYTES at %" PRIu64 ": %u, not %u", k, host[k], i);
    }
    trainer_close();
    whole_close();
}

static void conformance(uint64_t bytes)
{
    strided();
    show_one("strided and host pieces in one save", 1, "ok");
    ordered(bytes, HEARTH_PIN_AUTO);
    show_one("order before and behind, registered slots", 20, "ok");
    ordered(bytes, HEARTH_PIN_NO);
    show_one("order before and behind, the buffers", 20, "ok");
}

/* ---- another process ------------------------------------------------------------------------ */

/* Asks all the time how much memory is free, and notes how long an answer took at most. */
static void watch_run(void)
{
    char why[300];

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (gpu_start(arg.fake != 0, why, sizeof(why)))
        _exit(0);
    gpu_room();
    atomic_store(&watch->ready, 1);
    while (!atomic_load(&watch->stop)) {
        double from = now_s();
        uint64_t us;

        gpu_room();
        us = (uint64_t)((now_s() - from) * 1e6);
        if (us > watch->longest_us)
            watch->longest_us = us;
        watch->calls++;
        nap_ms(1);
    }
    _exit(0);
}

static void watch_start(void)
{
    watch = mmap(NULL, sizeof(*watch), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (watch == MAP_FAILED)
        die("no memory");
    if (fork() == 0) /* before this process uses the driver */
        watch_run();
    for (unsigned i = 0; i < 500 && !atomic_load(&watch->ready); i++)
        nap_ms(10);
}

int main(int argc, char **argv)
{
    static const struct flag known[] = { { "--root", .text = &arg.root },
        { "--json", .text = &arg.json }, { "--fake", .number = &arg.fake },
        { "--rounds", .count = &arg.rounds }, { "--seconds", .number = &arg.seconds }, { 0 } };
    char why[300];

    flags_take(known, argc, argv);
    if (!arg.root || !arg.rounds || arg.rounds > ROUNDS_MAX)
        die("usage: gpu_rows --root TMPFS [--fake 1] [--rounds 1..%d] [--seconds N] [--json LINES]",
                ROUNDS_MAX);
    began = now_s();
    watch_start();
    if (gpu_start(arg.fake != 0, why, sizeof(why))) {
        printf("no GPU: %s\n", why);
        return 77;
    }
    rows_open(arg.json, gpu_name(), 0);
    json = arg.json ? fopen(arg.json, "ae") : NULL;
    printf("%s\n", gpu_name());
    stream = gpu_stream();
    conformance(arg.fake ? 2 * MIB : 64 * MIB);
    blocked(1 * MIB, arg.fake ? 8 * MIB : 1024 * MIB);
    small(arg.fake ? 40 : 4000, 128 * 1024);
    ring(arg.fake ? 20 * MIB : 1024 * MIB);
    beside(arg.fake ? 4 * MIB : 1024 * MIB);
    load(arg.fake ? 4 * MIB : 1024 * MIB);
    for (uint64_t bytes = 1 * MIB; bytes <= (arg.fake ? 4 : 4096) * MIB; bytes *= 4)
        registered(bytes, bytes == (arg.fake ? 4 : 1024) * MIB || bytes == 4096 * MIB);
    atomic_store(&watch->stop, 1);
    return low ? 3 : 0;
}
