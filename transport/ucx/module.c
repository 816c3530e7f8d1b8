/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The module that hth_transport_open() loads. libucs reads part of its settings while it is loaded,
 * and the settings of its TCP and shared memory only from the environment. So this module is not
 * linked with UCX: it sets the environment, loads the UCX that the site names (if it names one, the
 * loader takes it for what the next needs), then hearth-ucx-impl.so (beside it), which is linked.
 * Then it restores the environment and signal handlers, since the process may be a trainer. UCX's
 * thread gets no signals.
 */
#include "transport/offers.h"
#include "transport/transport.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define IMPLEMENTATION "hearth-ucx-impl.so"
#define LIBRARY        "libucp.so.0"

static const struct {
    const char *name, *value;
    int forced; /* a site's other choice would be unsafe */
} setting[] = {
    /* else a peer's death is not reported on shared memory */
    /* peers could write anywhere, and their death would abort this process */
    { "UCX_HANDLE_ERRORS", "none", 1 }, /* no signal handlers, no debugger at a crash */
    { "UCX_TCP_PUT_ENABLE", "n", 1 },
    { "UCX_TCP_CONN_NB", "y", 1 }, /* else dialling a dead node blocks for 134 s */
    { "UCX_POSIX_ERROR_HANDLING", "y", 1 },
    { "UCX_TCP_CM_REUSEADDR", "y", 0 },   /* a new engine on the old one's port */
    { "UCX_TCP_TX_SEG_SIZE", "512K", 0 }, /* each is a system call; the default is 8K */
    { "UCX_TCP_RX_SEG_SIZE", "512K", 0 },
    { "UCX_TCP_KEEPIDLE", "2s", 0 },
    { "UCX_TCP_KEEPINTVL", "1s", 0 },
    { "UCX_TCP_KEEPCNT", "3", 0 },
    { "UCX_WARN_UNUSED_ENV_VARS", "n", 0 },
    { "UCX_LOG_LEVEL", "fatal", 0 }, /* failures come as return codes; a library prints nothing */
    { "UCX_MEM_MMAP_HOOK_MODE", "none", 0 }, /* the providers used here cache no registrations */
    { "UCX_VFS_ENABLE", "n", 0 },
};

#define SETTINGS (sizeof(setting) / sizeof(setting[0]))

/* Variables that an open has changed, to be restored. */
struct environment {
    const char *name[SETTINGS + 1];
    char *was[SETTINGS + 1]; /* NULL: it was not set */
    size_t count;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const struct hth_transport_backend *implementation; /* by lock; loaded once, for good */
static void *implementation_so;                            /* by lock: likewise */
/* by lock: UCX was loaded before this module, its settings are not this module's */
static int shared;
static char loaded_from[PATH_MAX]; /* by lock: of UCX; empty: where the loader found it */

/* The whole process's signal handlers and this thread's mask, to be put back. */
struct signals {
    struct sigaction action[65];
    sigset_t mask;
};

static void signals_keep(struct signals *s)
{
    sigset_t all;

    for (int i = 1; i < 65; i++)
        if (sigaction(i, NULL, &s->action[i]) < 0)
            s->action[i].sa_flags = -1;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &s->mask);
}

static void signals_restore(const struct signals *s)
{
    for (int i = 1; i < 65; i++) {
        struct sigaction now;

        if (s->action[i].sa_flags != -1 && sigaction(i, NULL, &now) == 0 &&
                now.sa_sigaction != s->action[i].sa_sigaction)
            sigaction(i, &s->action[i], NULL);
    }
    pthread_sigmask(SIG_SETMASK, &s->mask, NULL);
}

/* Another part of this process uses UCX, which has read the settings already. */
static int environment_share(const struct hth_log *log, struct hearth_error *err)
{
    const char *put = getenv("UCX_TCP_PUT_ENABLE");

    if (!put || strcmp(put, "n") != 0)
        return hth_fail(err, HEARTH_ESTATE, 0,
                "this process uses UCX already, with UCX_TCP_PUT_ENABLE=%s, which lets peers write "
                "into it: set UCX_TCP_PUT_ENABLE=n before the program starts, or use the "
                "transport ofi",
                put ? put : "y (the default)");
    for (size_t i = 0; i < sizeof(setting) / sizeof(setting[0]); i++) {
        const char *value = getenv(setting[i].name);

        if (!value || strcmp(value, setting[i].value) != 0)
            hth_say(log, HEARTH_LOG_WARN, "ucx-shared",
                    "this process uses UCX already: %s is %s where %s was measured",
                    setting[i].name, value ? value : "not set", setting[i].value);
    }
    return 0;
}

static void variable_set(struct environment *e, const char *name, const char *value, int forced)
{
    const char *was = getenv(name);
    char *copy = was ? strdup(was) : NULL;

    if (was && (!forced || !copy || strcmp(was, value) == 0)) {
        free(copy);
        return;
    }
    setenv(name, value, 1);
    e->name[e->count] = name;
    e->was[e->count++] = copy;
}

/* Called at each open: a worker reads its transports' settings when it is made. */
static void environment_set(struct environment *e, const struct hth_transport_opts *opts)
{
    struct in6_addr address;
    int is_v6 = opts->bind && inet_pton(AF_INET6, opts->bind, &address) == 1 &&
                !IN6_IS_ADDR_LOOPBACK(&address);

    for (size_t i = 0; i < SETTINGS; i++)
        variable_set(e, setting[i].name, setting[i].value, setting[i].forced);
    variable_set(e, "UCX_TCP_AF_PRIO", is_v6 ? "inet6,inet" : "inet,inet6", 0);
}

static void environment_restore(struct environment *e)
{
    while (e->count) {
        e->count--;
        if (e->was[e->count])
            setenv(e->name[e->count], e->was[e->count], 1);
        else
            unsetenv(e->name[e->count]);
        free(e->was[e->count]);
    }
}

/* The handle is that of the library which hearth-ucx-impl.so will get by name. */
static int library_is_taken(void *handle)
{
    void *named = dlopen(LIBRARY, RTLD_NOLOAD | RTLD_LAZY);

    if (named)
        dlclose(named);
    return named == handle && dlsym(handle, "ucp_get_version_string") != NULL;
}

static int library_load(const char *library, struct hearth_error *err)
{
    void *handle;

    if (library[0] != '/')
        return hth_fail(err, HEARTH_EINVAL, 0,
                "ucx_library (HEARTH_UCX_LIBRARY) is '%.200s': give the full path of a " LIBRARY,
                library);
    handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    if (!handle)
        return hth_fail(err, HEARTH_ENOENT, 0,
                "ucx_library (HEARTH_UCX_LIBRARY) is '%.200s', which cannot be loaded: %s", library,
                dlerror());
    if (!library_is_taken(handle)) {
        dlclose(handle);
        return hth_fail(err, HEARTH_EUNSUPPORTED, 0,
                "ucx_library (HEARTH_UCX_LIBRARY) is '%.200s', which is no " LIBRARY, library);
    }
    return HEARTH_OK; /* stays open with the implementation, for good */
}

/* One UCX for the life of the process. */
static int library_check(const char *library, struct hearth_error *err)
{
    if (!library || (implementation && strcmp(library, loaded_from) == 0))
        return HEARTH_OK;
    if (!implementation && !shared)
        return library_load(library, err);
    return hth_fail(err, HEARTH_ESTATE, 0,
            "ucx_library is '%.200s', and this process has loaded %.200s already", library,
            loaded_from[0] ? loaded_from : LIBRARY);
}

static int impl_load(struct hearth_error *err)
{
    char path[PATH_MAX];
    Dl_info self;
    void *so;
    const char *slash;

    if (dladdr(&setting, &self) == 0 || !self.dli_fname)
        return hth_fail(err, HEARTH_EIO, 0, "the place of hearth-ucx.so is not known");
    slash = strrchr(self.dli_fname, '/');
    snprintf(path, sizeof(path), "%.*s%s", slash ? (int)(slash + 1 - self.dli_fname) : 0,
            self.dli_fname, IMPLEMENTATION);
    so = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!so)
        return hth_fail(err, HEARTH_ENOENT, 0,
                "the transport ucx cannot be loaded (is UCX installed?): %s", dlerror());
    implementation_so = so;
    implementation = dlsym(so, "hth_transport_backend");
    if (!implementation || implementation->abi != HTH_TRANSPORT_ABI) {
        implementation = NULL;
        return hth_fail(err, HEARTH_EUNSUPPORTED, 0, "%s is of another version of Hearth", path);
    }
    return 0;
}

static int impl_prepare(const struct hth_transport_opts *opts, struct environment *environment,
        struct hearth_error *err)
{
    void *ucs = implementation ? NULL : dlopen("libucs.so.0", RTLD_NOLOAD | RTLD_LAZY);
    int rc = 0;

    if (ucs) {
        shared = 1;
        dlclose(ucs);
    }
    if (!shared)
        environment_set(environment, opts);
    else if (!implementation)
        rc = environment_share(&opts->log, err);
    if (rc == 0)
        rc = library_check(opts->library, err);
    if (rc || implementation)
        return rc;
    rc = impl_load(err);
    if (rc == 0 && opts->library)
        snprintf(loaded_from, sizeof(loaded_from), "%s", opts->library);
    return rc;
}

static int impl_open(const struct hth_transport_opts *opts,
        const struct hth_transport_events *events, struct hth_transport **out,
        struct hearth_error *err)
{
    struct environment environment = { .count = 0 };
    struct signals signals;
    int rc;

    pthread_mutex_lock(&lock);
    signals_keep(&signals);
    rc = impl_prepare(opts, &environment, err);
    if (rc == 0)
        rc = implementation->open(opts, events, out, err);
    environment_restore(&environment);
    signals_restore(&signals);
    pthread_mutex_unlock(&lock);
    return rc;
}

__attribute__((
        visibility("default"))) extern const struct hth_transport_backend hth_transport_backend;
const struct hth_transport_backend hth_transport_backend = {
    .abi = HTH_TRANSPORT_ABI,
    .name = "ucx",
    .open = impl_open,
};

__attribute__((visibility("default"))) hth_transport_list_fn hth_transport_list;
int hth_transport_list(const char *library, const struct hth_machine *machine,
        struct hth_offers *out, struct hearth_error *err)
{
    struct hth_transport_opts opts = { .library = library };
    struct environment environment = { .count = 0 };
    hth_transport_list_fn *list;
    struct signals signals;
    void *at;
    int rc;

    pthread_mutex_lock(&lock);
    signals_keep(&signals);
    rc = impl_prepare(&opts, &environment, err);
    at = rc ? NULL : dlsym(implementation_so, "hth_transport_list");
    memcpy(&list, &at, sizeof(list)); /* ISO C has no cast for it */
    if (at)
        rc = list(library, machine, out, err);
    else if (!rc)
        rc = hth_fail(
                err, HEARTH_EUNSUPPORTED, 0, IMPLEMENTATION " is of another version of Hearth");
    environment_restore(&environment);
    signals_restore(&signals);
    pthread_mutex_unlock(&lock);
    return rc;
}
