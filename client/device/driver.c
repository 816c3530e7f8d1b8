/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds the driver that the process around us has loaded. Nothing is loaded or initialised here:
 * a process without an initialised driver has no device memory, and it may have some later, so
 * only a driver that was found, or one that cannot be used, is remembered. A child of a fork looks
 * again: the driver of its parent is not initialised there.
 */
#include "client/device/driver.h"

#include "core/base/fail.h"
#include <dlfcn.h>
#include <pthread.h>

typedef int device_fill_fn(void *library, struct hth_driver *out, struct hearth_error *err);

/* torch's wheels bring a libamdhip64.so without a number. */
static const struct {
    const char *soname;
    device_fill_fn *fill;
} libraries[] = {
    { "libcuda.so.1", hth_cuda_driver },
    { "libamdhip64.so.7", hth_hip_driver },
    { "libamdhip64.so.6", hth_hip_driver },
    { "libamdhip64.so", hth_hip_driver },
};

static pthread_once_t driver_once = PTHREAD_ONCE_INIT;
static pthread_mutex_t driver_lock = PTHREAD_MUTEX_INITIALIZER;
static struct hth_driver driver; /* once found, it stays as it is */
static int driver_found;
static struct hearth_error driver_bad; /* code 0: none that cannot be used was seen */

/* 1: found. A library that is not used now is given back. */
static int driver_try(const char *soname, device_fill_fn *fill, struct hearth_error *bad)
{
    void *library = dlopen(soname, RTLD_NOLOAD | RTLD_LAZY);
    struct hth_driver filled = { 0 };
    int rc;

    if (!library)
        return 0;
    rc = fill(library, &filled, bad);
    if (rc == HEARTH_OK && filled.name) {
        driver = filled;
        return 1;
    }
    dlclose(library);
    return 0;
}

/* Fork waits for no thread that looks: the lock is held while libraries are opened. */
static void driver_fork_child(void)
{
    static const pthread_mutex_t unlocked = PTHREAD_MUTEX_INITIALIZER;

    driver_lock = unlocked;
    driver_found = 0;
}

static void driver_fork_watch(void)
{
    pthread_atfork(NULL, NULL, driver_fork_child);
}

int hth_driver_find(const struct hth_driver **out, struct hearth_error *err)
{
    struct hearth_error bad = { 0 };
    int found;

    pthread_once(&driver_once, driver_fork_watch);
    pthread_mutex_lock(&driver_lock);
    for (size_t i = 0;
            !driver_found && !driver_bad.code && i < sizeof(libraries) / sizeof(libraries[0]); i++)
        driver_found = driver_try(libraries[i].soname, libraries[i].fill, &bad);
    if (!driver_found && !driver_bad.code && bad.code == HEARTH_EUNSUPPORTED)
        driver_bad = bad; /* any other error may pass */
    found = driver_found;
    if (driver_bad.code)
        bad = driver_bad;
    pthread_mutex_unlock(&driver_lock);
    if (!found && bad.code)
        return hth_fail(err, bad.code, bad.native, "%s", bad.text);
    *out = found ? &driver : NULL;
    return HEARTH_OK;
}
