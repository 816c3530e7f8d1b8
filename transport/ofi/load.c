/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libfabric is opened by us and not by the loader: some of its dependencies catch signals when
 * they are loaded (PSM: SEGV, BUS, ILL, ABRT, INT, TERM) and read environment variables then.
 * So the variables are set before loading, and variables and handlers are restored after it: the
 * process may be a trainer, whose own libraries read them. libfabric and its providers read their
 * variables once, while they are loaded and started.
 */
#include "ofi.h"

#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LIBRARY "libfabric.so.1"

static const int signals[] = { SIGHUP, SIGINT, SIGQUIT, SIGILL, SIGTRAP, SIGABRT, SIGBUS, SIGFPE,
    SIGSEGV, SIGPIPE, SIGTERM, SIGUSR1, SIGUSR2, SIGCHLD };
#define SIGNALS  (sizeof(signals) / sizeof(signals[0]))

#define SETTINGS 32u

/* Variables that are set while the library is being loaded. */
struct settings {
    const char *variable[SETTINGS];
    size_t count;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct hth_ofi_lib lib; /* guarded by lock until `loaded`; then never written */
static int loaded;
static char loaded_from[PATH_MAX]; /* empty: where the loader found it */

/* ISO C has no cast from an object pointer to a function pointer. */
static int lib_find(void *handle, const char *name, void *out_fn)
{
    void *at = dlsym(handle, name);

    if (!at)
        return 0;
    memcpy(out_fn, &at, sizeof(at));
    return 1;
}

static int lib_find_all(void *handle)
{
    return lib_find(handle, "fi_version", &lib.version) &&
           lib_find(handle, "fi_getinfo", &lib.getinfo) &&
           lib_find(handle, "fi_freeinfo", &lib.freeinfo) &&
           lib_find(handle, "fi_dupinfo", &lib.dupinfo) &&
           lib_find(handle, "fi_fabric", &lib.fabric) &&
           lib_find(handle, "fi_strerror", &lib.strerror);
}

/* The first fi_getinfo() loads and starts the providers: part of loading. */
static void lib_start_providers(void)
{
    struct fi_info *info = NULL;

    if (lib.getinfo(FI_VERSION(1, 15), NULL, NULL, 0, NULL, &info) == 0)
        lib.freeinfo(info);
}

static int lib_open(const char *library, void **out, struct hearth_error *err)
{
    if (library && library[0] != '/')
        return hth_fail(err, HEARTH_EINVAL, 0,
                "fabric_library (HEARTH_FABRIC_LIBRARY) is '%.200s': give the full path of a "
                "libfabric.so.1",
                library);
    *out = dlopen(library ? library : LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (*out)
        return HEARTH_OK;
    if (library)
        return hth_fail(err, HEARTH_ENOENT, 0,
                "fabric_library (HEARTH_FABRIC_LIBRARY) is '%.200s', which cannot be loaded: %s",
                library, dlerror());
    return hth_fail(err, HEARTH_ENOENT, 0,
            "transport ofi needs libfabric, which cannot be loaded: %s", dlerror());
}

static void lib_set(struct settings *s, const char *variable, const char *value)
{
    if (s->count == SETTINGS || getenv(variable))
        return; /* a value that the site has set stays */
    setenv(variable, value, 1);
    s->variable[s->count++] = variable;
}

static void lib_settings_undo(const struct settings *s)
{
    for (size_t i = 0; i < s->count; i++)
        unsetenv(s->variable[i]);
}

static void lib_settings_of(struct settings *s, const char *provider)
{
    const struct hth_ofi_provider *p = hth_ofi_provider_find(provider);

    for (size_t i = 0; p && i < sizeof(p->setting) / sizeof(p->setting[0]); i++)
        if (p->setting[i].variable)
            lib_set(s, p->setting[i].variable, p->setting[i].value);
}

/* Before the library is loaded, which reads them then. */
static void lib_settings(struct settings *s, const char *provider, const char *const *also)
{
    char filter[128];

    lib_set(s, "HFI_NO_BACKTRACE", "1");
    lib_set(s, "IPATH_NO_BACKTRACE", "1");
    if (!provider)
        return;
    hth_ofi_provider_filter(provider, also, filter, sizeof(filter));
    lib_set(s, "FI_PROVIDER", filter);
    lib_settings_of(s, provider);
    for (; also && *also; also++)
        lib_settings_of(s, *also);
}

static int lib_load(const char *library, struct hearth_error *err)
{
    void *handle;
    int rc;

    if ((rc = lib_open(library, &handle, err)))
        return rc;
    if (!lib_find_all(handle))
        return hth_fail(err, HEARTH_EUNSUPPORTED, 0,
                "transport ofi cannot use the libfabric %.200s: %s; 1.15 or newer is needed",
                library ? library : LIBRARY, dlerror());
    if (lib.version() < FI_VERSION(1, 15))
        return hth_fail(err, HEARTH_EUNSUPPORTED, 0,
                "transport ofi needs libfabric 1.15 or newer, and %.200s is %u.%u",
                library ? library : LIBRARY, FI_MAJOR(lib.version()), FI_MINOR(lib.version()));
    lib_start_providers();
    snprintf(loaded_from, sizeof(loaded_from), "%s", library ? library : "");
    return HEARTH_OK;
}

int hth_ofi_load(const char *library, const char *provider, const char *const *also,
        const struct hth_ofi_lib **out, struct hearth_error *err)
{
    struct sigaction before[SIGNALS];
    struct settings settings = { 0 };
    int rc = HEARTH_OK;

    pthread_mutex_lock(&lock);
    if (loaded && library && strcmp(library, loaded_from) != 0) {
        rc = hth_fail(err, HEARTH_ESTATE, 0,
                "fabric_library is '%.200s', and this process has loaded %.200s already", library,
                loaded_from[0] ? loaded_from : LIBRARY);
    } else if (!loaded) {
        for (size_t i = 0; i < SIGNALS; i++)
            sigaction(signals[i], NULL, &before[i]);
        lib_settings(&settings, provider, also);
        rc = lib_load(library, err);
        lib_settings_undo(&settings);
        for (size_t i = 0; i < SIGNALS; i++)
            sigaction(signals[i], &before[i], NULL);
        loaded = rc == HEARTH_OK;
    }
    pthread_mutex_unlock(&lock);
    if (rc == HEARTH_OK)
        *out = &lib;
    return rc;
}
