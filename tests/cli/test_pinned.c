/* SPDX-License-Identifier: Apache-2.0 */
/* `hearth ls` shows of a running job which memory GPUs copy into is pinned. */
#include "command.h"

#include "engines.h"
#include "fakegpu.h"
#include <hearth/hearth.h>
#include <jansson.h>
#include <signal.h>
#include <time.h>

#define JOB   "train"
#define BYTES (UINT64_C(12) << 20)

static struct hearth *h;
static struct hearth_error err;
static char log_line[800];

static void open_job(uint32_t pin)
{
    static char program[512];
    struct hearth_opts o = HEARTH_OPTS_INIT;
    struct hearth_checkpoint *ckpt;
    uint64_t bytes = BYTES;

    fakegpu_start(NULL, 1);
    fakegpu_current(fakegpu_context(0));
    snprintf(program, sizeof(program), "%s/hearthd", getenv("HEARTH_TEST_BIN"));
    o.root = root, o.job = JOB, o.node = "n0", o.world = 1, o.engine = program;
    o.transport = "tcp", o.allow_degraded = 1, o.linger_s = 1, o.pin = pin;
    o.object_bytes = &bytes, o.object_count = 1;
    must(hearth_open(&o, &h, &err), err);
    must(hearth_recover(h, NULL, &ckpt, &err), err);
}

static void end(void)
{
    hearth_close(h, HEARTH_DROP);
    cr_assert(ge(int, engines_signal(root, NULL, SIGKILL), 0));
    remove_root();
    if (fakegpu()->registered || fakegpu()->sins)
        abort();
}

TestSuite(pinned, .init = make_root, .fini = end);

static void pause_ms(unsigned ms)
{
    struct timespec t = { .tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000 };

    nanosleep(&t, NULL);
}

static void save(uint64_t step, int of_device)
{
    static const int64_t shape[] = { BYTES / 2 };
    static unsigned char host[BYTES / 2];
    static uint64_t at;
    struct hearth_piece p = { .struct_size = sizeof(p),
        .key = "x",
        .key_len = 1,
        .data = host,
        .dtype = HEARTH_UINT8,
        .ndim = 1,
        .shape = shape };
    struct hearth_begin_opts o = HEARTH_BEGIN_OPTS_INIT;
    struct hearth_handle *handle;
    struct hearth_save *s;

    at = at ? at : fakegpu_alloc(fakegpu_context(0), BYTES, FAKEGPU_PLAIN);
    if (of_device)
        p.from = (void *)(uintptr_t)at, p.memory = HEARTH_CUDA;
    o.wait_ms = 20000;
    must(hearth_save_begin(h, step, hearth_save_bytes(&p, 1, NULL, 0), &o, &s, &err), err);
    must(hearth_save_add(s, &p, 1, &err), err);
    must(hearth_save_commit(s, &handle, &err), err);
    must(hearth_wait(handle, HEARTH_PROTECTED, 20000, &err), err);
    hearth_handle_close(handle);
}

/* Until the log has what came of the first pin. */
static void pinned(void)
{
    char text[800];

    for (unsigned ms = 0; !log_line[0] && ms < 20000; ms++) {
        while (hearth_log_poll(h, NULL, text, sizeof(text)))
            if (has(text, "pin: ") && has(text, "pinned"))
                snprintf(log_line, sizeof(log_line), "%s", text);
        pause_ms(1);
    }
}

static json_t *gpu_json(void)
{
    json_t *got, *gpu;

    cr_assert(zero(int, hearth("ls", "--root", root, JOB, "--json")), "%s", err_text);
    got = json_loads(out, 0, NULL);
    gpu = json_incref(json_object_get(json_object_get(got, "status"), "gpu"));
    json_decref(got);
    return gpu;
}

static void shows(const char *way, const char *line)
{
    json_t *gpu = gpu_json(), *one = json_array_get(gpu, 0);

    cr_assert(eq(sz, json_array_size(gpu), 1));
    cr_expect(eq(str, (char *)(uintptr_t)json_string_value(json_object_get(one, "pinned")),
            (char *)(uintptr_t)way));
    cr_expect(zero(long, (long)json_integer_value(json_object_get(one, "rank"))));
    json_decref(gpu);
    cr_assert(zero(int, hearth("ls", "--root", root, JOB)), "%s", err_text);
    cr_expect(eq(int, has(out, line), 1), "no '%s' in %s", line, out);
}

Test(pinned, ls_shows_slots_and_how_long_they_took)
{
    json_t *gpu;
    long ms, most;

    open_job(HEARTH_PIN_AUTO);
    save(1, 0);
    gpu = gpu_json();
    cr_expect(eq(sz, json_array_size(gpu), 0), "host memory alone was saved");
    json_decref(gpu);
    cr_assert(zero(int, hearth("ls", "--root", root, JOB)), "%s", err_text);
    cr_expect(eq(int, has(out, "\ngpu "), 0), "%s", out);

    fakegpu()->pin_ms = 24; /* 12 MiB and more of it: about 2 s for a GiB */
    save(2, 1);
    pinned();
    cr_assert(eq(int, has(log_line, " s/GiB)"), 1), "%s", log_line);
    save(3, 1);
    shows("slots", "\ngpu     rank 0: slots are pinned, in at most ");
    gpu = gpu_json();
    ms = (long)json_integer_value(json_object_get(json_array_get(gpu, 0), "ms_per_gib"));
    json_decref(gpu);
    most = 24 * 1024 / 12;
    cr_expect(ge(long, ms, most / 2), "of a slot that is larger than the save");
    save(4, 0);
    shows("slots", "rank 0: slots are pinned"); /* host memory takes nothing of it back */
}

Test(pinned, ls_shows_the_buffers_where_slots_are_not_pinned)
{
    open_job(HEARTH_PIN_NO);
    save(1, 1);
    shows("buffers", "\ngpu     rank 0: pinned buffers, slots are not pinned\n");
}

Test(pinned, ls_shows_the_buffers_where_the_driver_refuses_slots)
{
    open_job(HEARTH_PIN_AUTO);
    for (unsigned i = 0; i < 4; i++)
        fakegpu_refuse("cuMemHostRegister_v2", 0, 2); /* the next of its calls */
    save(1, 1);
    pinned();
    save(2, 1);
    shows("nothing", "\ngpu     rank 0: buffers, nothing is pinned\n");
}
