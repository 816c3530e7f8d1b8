/* SPDX-License-Identifier: Apache-2.0 */
/* A site's own UCX: which file the module of the transport ucx loads. */
#include "check.h"

#include "transport/transport.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

#define must_name(text, part) cr_assert(ne(ptr, strstr((text), (part)), NULL), "says: %s", (text))

static uint64_t clock_ms(void *self)
{
    (void)self;
    return 1;
}

static int open_with(const char *library, struct hearth_error *err)
{
    struct hth_transport_opts opts = {
        .bind = "127.0.0.1", .library = library, .clock = { .now_ms = clock_ms }
    };
    struct hth_transport_events events = { 0 };
    struct hth_transport *t = NULL;
    int rc = hth_transport_open("ucx", getenv("HEARTH_TEST_LIB"), &opts, &events, &t, err);

    if (rc == HEARTH_OK)
        t->ops->close(t);
    return rc;
}

/* Where the loader finds it, without loading it; skipped without one. */
static const char *real_library(void)
{
    static char path[PATH_MAX];
    FILE *f = popen("ldconfig -p 2>/dev/null || /sbin/ldconfig -p", "r");
    char line[PATH_MAX];

    path[0] = '\0';
    while (f && fgets(line, sizeof(line), f))
        if (strstr(line, "libucp.so.0 ") && strstr(line, "=> ") && !path[0])
            sscanf(strstr(line, "=> ") + 3, "%4095s", path);
    if (f)
        pclose(f);
    if (!path[0])
        cr_skip_test("ldconfig knows no libucp.so.0");
    return path;
}

Test(ucx_library, a_path_that_leads_nowhere_is_named)
{
    struct hearth_error err = { 0 };

    must_fail(open_with("/nowhere/libucp.so.0", &err), HEARTH_ENOENT);
    must_name(err.text, "HEARTH_UCX_LIBRARY");
    must_name(err.text, "/nowhere/libucp.so.0");
}

Test(ucx_library, a_library_that_is_none_of_ucx_is_refused)
{
    struct hearth_error err = { 0 };
    Dl_info info;

    cr_assert(ne(int, dladdr((void *)(uintptr_t)&printf, &info), 0));
    must_fail(open_with(info.dli_fname, &err), HEARTH_EUNSUPPORTED);
    must_name(err.text, info.dli_fname);
}

Test(ucx_library, a_path_is_whole)
{
    struct hearth_error err = { 0 };

    must_fail(open_with("libucp.so.0", &err), HEARTH_EINVAL);
    must_name(err.text, "give the full path");
}

Test(ucx_library, the_one_that_is_named_is_loaded_and_stays_the_only_one)
{
    struct hearth_error err = { 0 };
    const char *library = real_library();

    must(open_with(library, &err));
    must(open_with(library, &err));
    must(open_with(NULL, &err));
    must_fail(open_with("/nowhere/libucp.so.0", &err), HEARTH_ESTATE);
    must_name(err.text, library);
}
