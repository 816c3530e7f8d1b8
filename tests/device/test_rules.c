/* SPDX-License-Identifier: Apache-2.0 */
/* Each rule of the driver of the tests is seen to end a process that sins against it, by name. */
#include "side.h"

#include "cuda.h"
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>

typedef void sin_fn(void);

/* Runs it in a process of its own, and returns what that printed. */
static const char *sin_run(const char *profile, sin_fn *fn, int *out_status)
{
    static char text[1024];
    size_t got = 0;
    ssize_t n;
    int fds[2];
    pid_t pid;

    cr_assert(zero(int, pipe(fds)));
    pid = fork();
    if (pid == 0) {
        dup2(fds[1], STDERR_FILENO);
        close(fds[0]);
        close(fds[1]);
        setenv("FAKEGPU_PROFILE", profile, 1);
        gpu_open(2);
        fn();
        exit(0); /* with what is done at a process's end */
    }
    close(fds[1]);
    while ((n = read(fds[0], text + got, sizeof(text) - 1 - got)) > 0)
        got += (size_t)n;
    text[got] = 0;
    close(fds[0]);
    waitpid(pid, out_status, 0);
    return text;
}

static void must_sin(const char *profile, const char *rule, sin_fn *fn)
{
    char want[64];
    int status;
    const char *text = sin_run(profile, fn, &status);

    snprintf(want, sizeof(want), "FAKEGPU %s: ", rule);
    cr_expect(ne(ptr, strstr(text, want), NULL), "%s: it said: %s", rule, text);
    cr_expect(eq(int, WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT, 1), "%s: 0x%x", rule,
            status);
}

static unsigned char *pinned_pages(void)
{
    unsigned char *p =
            mmap(NULL, 16384, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    memset(p, 1, 16384);
    must(gpu->pin(p, 16384, 0, &gpu_err), gpu_err);
    return p;
}

static void sin_unmapped(void)
{
    unsigned char *p = pinned_pages();

    munmap(p, 16384);
    gpu->unpin(p, NULL);
}

static void sin_unmapped_in_part(void)
{
    unsigned char *p = pinned_pages();

    munmap(p + 8192, 4096);
    gpu->unpin(p, NULL);
}

/* Other memory has come to lie there. */
static void sin_mapped_anew(void)
{
    unsigned char *p = pinned_pages();
    int fd = memfd_create("other", MFD_CLOEXEC);

    must(ftruncate(fd, 16384));
    mmap(p, 16384, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0);
    gpu->unpin(p, NULL);
}

static void sin_unmapped_at_exit(void)
{
    munmap(pinned_pages(), 16384);
}

static void sin_busy(void)
{
    unsigned char *p = pinned_pages();
    uint64_t device = fakegpu_alloc(fakegpu_context(0), 16384, FAKEGPU_PLAIN);

    fakegpu()->hold = 1;
    must(copy_one(HTH_FROM_DEVICE, p, device, 4096), gpu_err);
    gpu->unpin(p, NULL);
}

static void sin_device(void)
{
    unsigned char *p = pinned_pages();

    copy_one(HTH_FROM_DEVICE, p, fakegpu_alloc(fakegpu_context(1), 4096, FAKEGPU_PLAIN), 4096);
}

static void sin_capture(void)
{
    unsigned char *p = pinned_pages();

    fakegpu_capture(gpu_stream, 1);
    copy_one(HTH_FROM_DEVICE, p, fakegpu_alloc(fakegpu_context(0), 4096, FAKEGPU_PLAIN), 4096);
}

static void sin_primary(void)
{
    void *context;

    cuDevicePrimaryCtxRetain(&context, 1);
}

static void sin_flags(void)
{
    int (*set)(void);
    void *found = dlsym(RTLD_DEFAULT, "cuCtxSetFlags");

    memcpy(&set, &found, sizeof(set));
    set();
}

static void sin_blocking(void)
{
    void *stream;

    cuStreamCreateWithPriority(&stream, 0, 0);
}

static void sin_depth(void)
{
    for (int i = 0; i < 20; i++)
        gpu->enter(&gpu_at, NULL);
}

/* A driver of 12.0 has no batch; the library of the tests exports it for all. */
static void sin_version(void)
{
    struct cu_copy_attributes how = { .order = 1 };
    size_t first = 0, bad, bytes = 1;
    uint64_t dst = 0, src = 0;
    cu_batch_12_fn *batch;
    void *found = dlsym(RTLD_DEFAULT, "cuMemcpyBatchAsync");

    memcpy(&batch, &found, sizeof(batch));
    batch(&dst, &src, &bytes, 1, &how, &first, 1, &bad, gpu_stream);
}

static void nothing(void)
{
}

static const struct {
    const char *rule, *profile;
    sin_fn *fn;
} sins[] = {
    { "unmapped", "recent", sin_unmapped },
    { "unmapped", "recent", sin_unmapped_in_part },
    { "unmapped", "recent", sin_mapped_anew },
    { "unmapped", "recent", sin_unmapped_at_exit },
    { "pin-busy", "recent", sin_busy },
    { "device", "recent", sin_device },
    { "capture", "recent", sin_capture },
    { "guest", "recent", sin_primary },
    { "guest", "recent", sin_flags },
    { "guest", "recent", sin_blocking },
    { "context", "recent", sin_depth },
    { "version", "12.0", sin_version },
    { "profile", "of-no-driver", nothing },
};
#define SINS (sizeof(sins) / sizeof(sins[0]))

Test(rules, end_a_process_that_sins)
{
    for (size_t i = 0; i < SINS; i++)
        must_sin(sins[i].profile, sins[i].rule, sins[i].fn);
}

/* A rule that the page names, and that no sin here breaks, would be one that is never seen. */
Test(rules, of_the_page_are_each_broken_here)
{
    char path[600], line[400], rule[40];
    int in = 0, found = 0;
    FILE *page;

    snprintf(path, sizeof(path), "%s/../support/fakegpu/README.md", getenv("HEARTH_TEST_DATA"));
    page = fopen(path, "re");
    cr_assert(ne(ptr, page, NULL), "%s", path);
    while (fgets(line, sizeof(line), page)) {
        size_t i = 0;

        in = strncmp(line, "## ", 3) ? in : strcmp(line, "## Rules\n") == 0;
        if (!in || sscanf(line, "| `%39[a-z-]` |", rule) != 1)
            continue;
        while (i < SINS && strcmp(sins[i].rule, rule) != 0)
            i++;
        cr_expect(lt(sz, i, SINS), "%s", rule);
        found++;
    }
    fclose(page);
    cr_expect(eq(int, found, 8));
}

/* The processor ends it, not the driver. */
static void read_device(void)
{
    volatile char *p = (char *)(uintptr_t)fakegpu_alloc(fakegpu_context(0), 4096, FAKEGPU_PLAIN);

    signal(SIGSEGV, SIG_DFL);
    (void)*p;
}

static void read_managed(void)
{
    volatile char *p = (char *)(uintptr_t)fakegpu_alloc(fakegpu_context(0), 4096, FAKEGPU_MANAGED);

    (void)*p;
}

Test(rules, memory_of_a_device_is_not_the_processors)
{
    int status;

    sin_run("recent", read_device, &status);
    cr_expect(eq(int, WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV, 1));
    sin_run("recent", read_managed, &status);
    cr_expect(eq(int, status, 0));
}

static void behaves(void)
{
    unsigned char *p = pinned_pages();

    must(copy_one(HTH_FROM_DEVICE, p, fakegpu_alloc(fakegpu_context(0), 4096, FAKEGPU_PLAIN), 9));
    gpu_drain();
    must(gpu->unpin(p, NULL));
    munmap(p, 16384);
    gpu_close();
}

Test(rules, do_not_end_a_process_that_keeps_them)
{
    int status;
    const char *text = sin_run("recent", behaves, &status);

    cr_expect(eq(int, status, 0), "%s", text);
}

Test(rules, that_are_forgiven_are_counted)
{
    void *context;

    gpu_open(2);
    fakegpu()->forgive = 1;
    cuDevicePrimaryCtxRetain(&context, 1);
    cr_expect(eq(u64, fakegpu()->sins, 1));
    must_say(fakegpu()->sin, "guest: the primary context of device 1 is created");
}

static void *query_elsewhere(void *event)
{
    return (void *)(intptr_t)cuEventQuery(event);
}

/* As a watchdog of NCCL did to PyTorch's captures (pytorch#104487). */
Test(rules, a_query_of_another_thread_ends_a_global_capture)
{
    void *event, *stream, *rc;
    pthread_t thread;

    gpu_open(1);
    stream = fakegpu_stream();
    must(gpu->event_open(&event, &gpu_err), gpu_err);
    fakegpu()->global = 1;
    fakegpu_capture(stream, 1);
    cr_expect(eq(int, cuEventQuery(event), 0));
    cr_expect(eq(int, fakegpu_capture(stream, 1), 1));
    pthread_create(&thread, NULL, query_elsewhere, event);
    pthread_join(thread, &rc);
    cr_expect(eq(int, (int)(intptr_t)rc, 900));
    cr_expect(eq(int, fakegpu_capture(stream, 0), 2));
    gpu->event_close(event);
    gpu_close();
}

/* No sins: the driver refuses them. */
Test(rules, a_stream_of_another_context_is_refused)
{
    struct hth_device_at at = { .device = 1 };
    void *event;

    gpu_open(2);
    at.context = fakegpu_context(1);
    must(gpu->enter(&at, &gpu_err), gpu_err);
    must(gpu->event_open(&event, &gpu_err), gpu_err);
    must_fail(gpu->record(event, gpu_stream, &gpu_err), HEARTH_EINVAL);
    cr_expect(eq(int, gpu_err.native, 400));
    gpu->leave();
    must_fail(gpu->record(event, gpu_stream, &gpu_err), HEARTH_EINVAL); /* nor the event */
    gpu->event_close(event);
    gpu_close();
}
