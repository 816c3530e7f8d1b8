/* SPDX-License-Identifier: Apache-2.0 */
#include "pin.h"

#include "client/base/clock.h"
#include "core/format/block.h"
#include "core/format/chunk.h"
#include "device.h"
#include "gpu.h"
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_READ  22
#define MADV_POPULATE_WRITE 23
#endif

#define PART_MOST      (UINT64_C(1) << 30)
#define PAUSE_LEAST_MS 1u
#define PAUSE_MOST_MS  100u
#define MS_MOST        1000000u /* for a GiB, that are reported */

struct hth_pin {
    struct hth_pin *next;
    struct hth_device *of; /* for its log; NULL: closed, or forgotten */
    const struct hth_driver *driver;
    struct hth_device_at at;
    unsigned char *base;
    uint64_t bytes, part; /* part: bytes of each but the first and the last */
    unsigned parts;       /* registered; the thread's */
    atomic_int pinned;
    int reads, read_only;
    int tried, closed;
};

static struct {
    pthread_mutex_t lock;
    pthread_cond_t due, undone;
    pthread_once_t once;
    struct hth_pin *all;
    int runs;
} here = {
    .lock = PTHREAD_MUTEX_INITIALIZER, .due = PTHREAD_COND_INITIALIZER, .once = PTHREAD_ONCE_INIT
};

static void pins_init(void)
{
    pthread_condattr_t attr;

    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&here.undone, &attr);
    pthread_condattr_destroy(&attr);
}

/* ---- parts ---------------------------------------------------------------------------------- */

/* A part ends where a chunk of the slot's data does. With pages of more than 4 KiB it ends at the
 * page before: two registrations may not share a page. */
static uint64_t pin_end(const struct hth_pin *pin, uint64_t part)
{
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), end = HTH_BLOCK + (part + 1) * pin->part;

    end -= end % page;
    return end < pin->bytes ? end : pin->bytes;
}

static uint64_t pin_begin(const struct hth_pin *pin, uint64_t part)
{
    return part ? pin_end(pin, part - 1) : 0;
}

uint64_t hth_pin_reach(const struct hth_pin *pin, const void *at)
{
    uint64_t off, part;

    if (!pin || !atomic_load(&pin->pinned))
        return 0;
    off = (uint64_t)((const unsigned char *)at - pin->base);
    part = off < HTH_BLOCK ? 0 : (off - HTH_BLOCK) / pin->part;
    if (off >= pin_end(pin, part))
        part++;
    return pin_end(pin, part) - off;
}

/* ---- the thread ----------------------------------------------------------------------------- */

static int pin_is_closed(const struct hth_pin *pin)
{
    int closed;

    pthread_mutex_lock(&here.lock);
    closed = pin->closed;
    pthread_mutex_unlock(&here.lock);
    return closed;
}

static void pin_pause(uint64_t ms)
{
    struct timespec t = { 0 };

    ms = ms < PAUSE_LEAST_MS ? PAUSE_LEAST_MS : ms > PAUSE_MOST_MS ? PAUSE_MOST_MS : ms;
    t.tv_nsec = (long)ms * 1000000;
    nanosleep(&t, NULL);
}

/* An error: some of it stays registered. */
static int pin_undo(struct hth_pin *pin)
{
    int rc = HEARTH_OK;

    atomic_store(&pin->pinned, 0);
    while (pin->parts && !rc) {
        rc = hth_gpus_unpin(pin->driver, &pin->at, pin->base + pin_begin(pin, pin->parts - 1));
        pin->parts -= !rc;
    }
    return rc;
}

/* Between two parts other threads of the process use the driver. */
static int pin_one(struct hth_pin *pin, uint64_t *out_ms, struct hearth_error *err)
{
    unsigned char *from = pin->base + pin_begin(pin, pin->parts);
    uint64_t bytes = pin_end(pin, pin->parts) - pin_begin(pin, pin->parts), since;
    int rc;

    /* One thread makes pages slowly within the call. */
    madvise(from, bytes, pin->reads ? MADV_POPULATE_READ : MADV_POPULATE_WRITE);
    since = hth_mono_ms();
    if ((rc = pin->driver->enter(&pin->at, err)))
        return rc;
    rc = pin->driver->pin(from, bytes, pin->read_only, err);
    pin->driver->leave();
    *out_ms = hth_mono_ms() - since;
    return rc;
}

static uint64_t pin_ms_per_gib(const struct hth_pin *pin, uint64_t ms)
{
    return (ms << 20) / (pin->bytes >> 10); /* a slot has a block and a chunk at least */
}

/* For the log once, and for what the rank reports with its saves each time. */
static void pin_say(struct hth_pin *pin, int rc, uint64_t ms, const struct hearth_error *err)
{
    uint64_t each = pin_ms_per_gib(pin, ms);
    struct hth_device *of;

    pthread_mutex_lock(&here.lock);
    of = pin->of;
    if (of && !pin->reads)
        atomic_store(&of->slots_pinned, rc ? 0 : (unsigned)(each < MS_MOST ? each : MS_MOST) + 1);
    if (of && !atomic_exchange(pin->reads ? &of->said_reads : &of->said, 1)) {
        if (rc)
            hth_line_add(of->lines, HEARTH_LOG_WARN, "pin",
                    "%s of %" PRIu64 " bytes is not pinned, so GPU memory is copied through "
                    "two pinned buffers of 16 MiB: %s",
                    pin->reads ? "an object" : "a slot", pin->bytes, err->text);
        else
            hth_line_add(of->lines, HEARTH_LOG_INFO, "pin",
                    "%s are pinned for %s: the first one, %" PRIu64 " bytes, in %u parts and "
                    "%" PRIu64 " ms (%" PRIu64 ".%03u s/GiB)",
                    pin->reads ? "objects that are loaded" : "slots", pin->driver->name, pin->bytes,
                    pin->parts, ms, each / 1000, (unsigned)(each % 1000));
    }
    pthread_mutex_unlock(&here.lock);
}

static void pin_try(struct hth_pin *pin)
{
    struct hearth_error err = { 0 };
    uint64_t since = hth_mono_ms(), ms = 0;
    int rc = HEARTH_OK;

    while (!rc && pin_begin(pin, pin->parts) < pin->bytes && !pin_is_closed(pin)) {
        if (pin->parts)
            pin_pause(ms);
        if (!(rc = pin_one(pin, &ms, &err)))
            pin->parts++;
    }
    if (rc)
        pin_undo(pin);
    else if (pin_begin(pin, pin->parts) >= pin->bytes)
        atomic_store(&pin->pinned, 1);
    else
        return; /* closed meanwhile */
    pin_say(pin, rc, hth_mono_ms() - since, &err);
}

static struct hth_pin *pins_next_locked(void)
{
    for (struct hth_pin *pin = here.all; pin; pin = pin->next)
        if (pin->closed || !pin->tried)
            return pin;
    return NULL;
}

static void pin_free_locked(struct hth_pin *pin)
{
    struct hth_pin **at = &here.all;

    while (*at != pin)
        at = &(*at)->next;
    *at = pin->next;
    free(pin);
    pthread_cond_broadcast(&here.undone);
}

static void *pins_run(void *arg)
{
    struct hth_pin *pin;

    pthread_mutex_lock(&here.lock);
    while (here.all) {
        int closed;

        if (!(pin = pins_next_locked())) {
            pthread_cond_wait(&here.due, &here.lock);
            continue;
        }
        closed = pin->closed;
        pin->tried = 1;
        pthread_mutex_unlock(&here.lock);
        if (!closed)
            pin_try(pin);
        else if (!pin_undo(pin))
            munmap(pin->base, pin->bytes); /* otherwise it stays, until the process ends */
        pthread_mutex_lock(&here.lock);
        if (closed)
            pin_free_locked(pin);
    }
    here.runs = 0;
    pthread_mutex_unlock(&here.lock);
    return arg;
}

static int pins_start_locked(void)
{
    sigset_t all, old;
    pthread_t thread;

    if (here.runs)
        return HEARTH_OK;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    here.runs = !pthread_create(&thread, NULL, pins_run, NULL);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (!here.runs)
        return HEARTH_ENOMEM;
    pthread_detach(thread);
    return HEARTH_OK;
}

/* ---- for those above ------------------------------------------------------------------------ */

struct hth_pin *hth_pin_open(struct hth_device *of, void *base, uint64_t bytes, int reads)
{
    uint64_t most = of->driver->pin_most < PART_MOST ? of->driver->pin_most : PART_MOST;
    struct hth_pin *pin;

    pthread_once(&here.once, pins_init);
    if (most < HTH_BLOCK + HTH_CHUNK || (reads && !of->pin_reads) ||
            !(pin = calloc(1, sizeof(*pin))))
        return NULL;
    pin->of = of;
    pin->driver = of->driver;
    pin->at = of->at;
    pin->base = base;
    pin->bytes = bytes;
    pin->reads = reads;
    pin->read_only = reads && of->read_only;
    pin->part = (most - HTH_BLOCK) / HTH_CHUNK * HTH_CHUNK;
    pthread_mutex_lock(&here.lock);
    pin->next = here.all;
    here.all = pin;
    if (pins_start_locked()) {
        here.all = pin->next;
        free(pin);
        pin = NULL;
    }
    pthread_cond_signal(&here.due);
    pthread_mutex_unlock(&here.lock);
    return pin;
}

void hth_pin_close(struct hth_pin *pin)
{
    pthread_mutex_lock(&here.lock);
    pin->closed = 1;
    pin->of = NULL;
    pthread_cond_signal(&here.due);
    pthread_mutex_unlock(&here.lock);
}

void hth_pins_forget(const struct hth_device *of)
{
    pthread_mutex_lock(&here.lock);
    for (struct hth_pin *pin = here.all; pin; pin = pin->next)
        if (pin->of == of)
            pin->of = NULL;
    pthread_mutex_unlock(&here.lock);
}

static int pins_are_closed_locked(void)
{
    for (struct hth_pin *pin = here.all; pin; pin = pin->next)
        if (pin->closed)
            return 0;
    return 1;
}

int hth_pins_closed(uint64_t until_ms)
{
    struct timespec t = { .tv_sec = (time_t)(until_ms / 1000),
        .tv_nsec = (long)(until_ms % 1000) * 1000000 };
    int rc = 0, closed;

    pthread_once(&here.once, pins_init);
    pthread_mutex_lock(&here.lock);
    while (!(closed = pins_are_closed_locked()) && rc != ETIMEDOUT)
        rc = pthread_cond_timedwait(&here.undone, &here.lock, &t);
    pthread_mutex_unlock(&here.lock);
    return closed;
}
