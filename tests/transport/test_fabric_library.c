/* SPDX-License-Identifier: Apache-2.0 */
/* A site's own libfabric: which file the module of the transport ofi loads; and what it says where a
 * provider does not come up. */
#include "check.h"

#include "transport/transport.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define must_name(text, part) cr_assert(ne(ptr, strstr((text), (part)), NULL), "says: %s", (text))

static uint64_t clock_ms(void *self)
{
    (void)self;
    return 1;
}

static int open_provider(const char *provider, const char *library, struct hearth_error *err)
{
    struct hth_transport_opts opts = { .bind = "127.0.0.1",
        .provider = provider,
        .library = library,
        .clock = { .now_ms = clock_ms } };
    struct hth_transport_events events = { 0 };
    struct hth_transport *t = NULL;
    int rc = hth_transport_open("ofi", getenv("HEARTH_TEST_LIB"), &opts, &events, &t, err);

    if (rc == HEARTH_OK)
        t->ops->close(t);
    return rc;
}

static int open_with(const char *library, struct hearth_error *err)
{
    return open_provider(NULL, library, err);
}

/* Where the loader finds it, without loading it; skipped without one. */
static const char *real_library(void)
{
    static char path[PATH_MAX];
    FILE *f = popen("ldconfig -p 2>/dev/null || /sbin/ldconfig -p", "r");
    char line[PATH_MAX];

    path[0] = '\0';
    while (f && fgets(line, sizeof(line), f))
        if (strstr(line, "libfabric.so.1 ") && strstr(line, "=> ") && !path[0])
            sscanf(strstr(line, "=> ") + 3, "%4095s", path);
    if (f)
        pclose(f);
    if (!path[0])
        cr_skip_test("ldconfig knows no libfabric.so.1");
    return path;
}

Test(fabric_library, a_path_that_leads_nowhere_is_named)
{
    struct hearth_error err = { 0 };

    must_fail(open_with("/nowhere/libfabric.so.1", &err), HEARTH_ENOENT);
    must_name(err.text, "HEARTH_FABRIC_LIBRARY");
    must_name(err.text, "/nowhere/libfabric.so.1");
}

Test(fabric_library, a_library_that_is_none_of_libfabric_is_refused)
{
    struct hearth_error err = { 0 };
    Dl_info info;

    cr_assert(ne(int, dladdr((void *)(uintptr_t)&printf, &info), 0));
    must_fail(open_with(info.dli_fname, &err), HEARTH_EUNSUPPORTED);
    must_name(err.text, info.dli_fname);
}

Test(fabric_library, a_path_is_whole)
{
    struct hearth_error err = { 0 };

    must_fail(open_with("libfabric.so.1", &err), HEARTH_EINVAL);
    must_name(err.text, "give the full path");
}

Test(fabric_library, the_one_that_is_named_is_loaded_and_stays_the_only_one)
{
    struct hearth_error err = { 0 };
    const char *library = real_library();

    must(open_with(library, &err));
    must(open_with(library, &err));
    must(open_with(NULL, &err));
    must_fail(open_with("/nowhere/libfabric.so.1", &err), HEARTH_ESTATE);
    must_name(err.text, library);
}

Test(fabric_library, a_provider_without_its_hardware_names_what_is_missing)
{
    struct hearth_error err = { 0 };

    if (access("/dev/infiniband", F_OK) == 0)
        cr_skip_test("this machine has adapters");
    must_fail(open_provider("verbs", NULL, &err), HEARTH_EINVAL);
    must_name(err.text, "libfabric's provider verbs: there is no /dev/infiniband/uverbs*");
    must_fail(open_provider("of_nobody", NULL, &err), HEARTH_EINVAL);
    must_name(err.text, "libfabric has no provider 'of_nobody'");
    must_name(err.text, "hearth doctor net");
    cr_assert(ne(ptr, getenv("RDMAV_HUGEPAGES_SAFE"), NULL)); /* before the library was loaded */
}
