/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Backends are modules, loaded on first use: a program that opens no transport loads neither UCX
 * nor libfabric. A module is looked for in the folder that the caller names; without one beside
 * this library or program, then in HEARTH_MODULE_DIR. The current directory is never one of these
 * places.
 */
#include "core/base/own_dir.h"
#include "offers.h"
#include "transport.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int module_is_known(const char *name)
{
    return strcmp(name, "tcp") == 0 || strcmp(name, "ofi") == 0 || strcmp(name, "ucx") == 0;
}

/* The end of the package's name: package hearth has the engine, hearth-ofi this module. */
static const char *module_package(const char *name)
{
    return strcmp(name, "ofi") == 0 ? "-ofi" : strcmp(name, "ucx") == 0 ? "-ucx" : "";
}

/* hearth-NAME.so in `dir`, when it is there. */
static void *module_load(const char *dir, const char *name, char *why, size_t why_len)
{
    char path[PATH_MAX];
    void *module;

    if (snprintf(path, sizeof(path), "%s/hearth-%s.so", dir, name) >= (int)sizeof(path) ||
            access(path, R_OK))
        return NULL;
    module = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!module)
        snprintf(why, why_len, "%.300s", dlerror());
    return module;
}

/* Beside this library or program, or in the lib folder next to its bin: there it is built, and in
 * hearth below it installed. */
static void *module_load_beside(const char *name, char *why, size_t why_len)
{
    static const char *const places[] = { "", "/../lib", "/../lib/hearth" };
    char self[PATH_MAX], dir[PATH_MAX + 16];
    void *module = NULL;

    if (hth_own_dir(self, sizeof(self)))
        return NULL;
    for (size_t i = 0; i < 3 && !module; i++) {
        snprintf(dir, sizeof(dir), "%s%s", self, places[i]);
        module = module_load(dir, name, why, why_len);
    }
    return module;
}

static void *module_find(const char *name, const char *dir, char *why, size_t why_len)
{
    void *module = NULL;

    if (dir)
        return module_load(dir, name, why, why_len);
    module = module_load_beside(name, why, why_len);
#ifdef HEARTH_MODULE_DIR
    if (!module)
        module = module_load(HEARTH_MODULE_DIR, name, why, why_len);
#endif
    return module;
}

/* A module that is known, or NULL with `err`. */
static void *module_open(const char *name, const char *dir, struct hearth_error *err)
{
    char why[304] = "";
    void *module;

    if (!module_is_known(name)) {
        hth_fail(err, HEARTH_ENOENT, 0, "unknown transport %.64s: known are tcp, ofi, ucx", name);
        return NULL;
    }
    module = module_find(name, dir, why, sizeof(why));
    if (!module)
        hth_fail(err, HEARTH_ENOENT, 0,
                "transport %s: hearth-%s.so cannot be loaded%s%s; install it (package hearth%s), "
                "or choose another transport",
                name, name, *why ? ": " : "", why, module_package(name));
    return module;
}

int hth_transport_preload(const char *name, const char *dir, struct hearth_error *err)
{
    return module_open(name, dir, err) ? HEARTH_OK : HEARTH_ENOENT;
}

static int module_is_strange(const char *name, struct hearth_error *err)
{
    return hth_fail(err, HEARTH_EUNSUPPORTED, 0,
            "transport %s: its module is of another Hearth; install both from one version", name);
}

int hth_transport_open(const char *name, const char *dir, const struct hth_transport_opts *opts,
        const struct hth_transport_events *events, struct hth_transport **out,
        struct hearth_error *err)
{
    const struct hth_transport_backend *backend;
    void *module = module_open(name, dir, err);

    if (!module)
        return HEARTH_ENOENT;
    backend = dlsym(module, "hth_transport_backend");
    if (!backend || backend->abi != HTH_TRANSPORT_ABI)
        return module_is_strange(name, err);
    /* Never unloaded: the libraries below it have threads and exit handlers of their own. */
    return backend->open(opts, events, out, err);
}

int hth_transport_offers(const char *name, const char *dir, const char *library,
        const struct hth_machine *machine, struct hth_offers *out, struct hearth_error *err)
{
    hth_transport_list_fn *list;
    void *module = module_open(name, dir, err), *at;

    if (!module)
        return HEARTH_ENOENT;
    at = dlsym(module, "hth_transport_list");
    if (!at)
        return module_is_strange(name, err);
    memcpy(&list, &at, sizeof(list)); /* ISO C has no cast for it */
    memset(out, 0, sizeof(*out));
    return list(library, machine, out, err);
}
