/* SPDX-License-Identifier: Apache-2.0 */
/* A site's own libfabric or UCX: which file a module loads; and what libfabric's says where a provider does
 * not come up. */
#include "check.h"

#include "transport/transport.h"

#include <criterion/parameterized.h>
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define must_name(text, part) cr_assert(ne(ptr, strstr((text), (part)), NULL), "says: %s", (text))

static const struct row {
    const char *module, *file, *variable;
} rows[] = {
    { "ofi", "libfabric.so.1", "HEARTH_FABRIC_LIBRARY" },
    { "ucx", "libucp.so.0", "HEARTH_UCX_LIBRARY" },
};

static size_t row_index[] = { 0, 1 };

static struct criterion_test_params each_row(void)
{
    return cr_make_param_array(size_t, row_index, sizeof(row_index) / sizeof(*row_index));
}

static uint64_t clock_ms(void *self)
{
    (void)self;
    return 1;
}

static int open_provider(
        const char *module, const char *provider, const char *library, struct hearth_error *err)
{
    struct hth_transport_opts opts = { .bind = "127.0.0.1",
        .provider = provider,
        .trusted = 1,
        .library = library,
        .clock = { .now_ms = clock_ms } };
    struct hth_transport_events events = { 0 };
    struct hth_transport *t = NULL;
    int rc = hth_transport_open(module, getenv("HEARTH_TEST_LIB"), &opts, &events, &t, err);

    if (rc == HEARTH_OK)
        t->ops->close(t);
    return rc;
}

static int open_with(const struct row *r, const char *library, struct hearth_error *err)
{
    return open_provider(r->module, NULL, library, err);
}

/* Where the loader finds it, without loading it; skipped without one. */
static const char *real_library(const struct row *r)
{
    static char path[PATH_MAX];
    FILE *f = popen("ldconfig -p 2>/dev/null || /sbin/ldconfig -p", "r");
    char line[PATH_MAX], name[64];

    path[0] = '\0';
    snprintf(name, sizeof(name), "%s ", r->file);
    while (f && fgets(line, sizeof(line), f))
        if (strstr(line, name) && strstr(line, "=> ") && !path[0])
            sscanf(strstr(line, "=> ") + 3, "%4095s", path);
    if (f)
        pclose(f);
    if (!path[0])
        cr_skip_test("ldconfig knows no %s", r->file);
    return path;
}

ParameterizedTestParameters(libraries, a_path_that_leads_nowhere_is_named)
{
    return each_row();
}

ParameterizedTest(size_t *row, libraries, a_path_that_leads_nowhere_is_named)
{
    const struct row *r = &rows[*row];
    struct hearth_error err = { 0 };
    char path[64];

    snprintf(path, sizeof(path), "/nowhere/%s", r->file);
    must_fail(open_with(r, path, &err), HEARTH_ENOENT);
    must_name(err.text, r->variable);
    must_name(err.text, path);
}

ParameterizedTestParameters(libraries, another_library_is_refused)
{
    return each_row();
}

ParameterizedTest(size_t *row, libraries, another_library_is_refused)
{
    struct hearth_error err = { 0 };
    Dl_info info;

    cr_assert(ne(int, dladdr((void *)(uintptr_t)&printf, &info), 0));
    must_fail(open_with(&rows[*row], info.dli_fname, &err), HEARTH_EUNSUPPORTED);
    must_name(err.text, info.dli_fname);
}

ParameterizedTestParameters(libraries, a_path_is_whole)
{
    return each_row();
}

ParameterizedTest(size_t *row, libraries, a_path_is_whole)
{
    struct hearth_error err = { 0 };

    must_fail(open_with(&rows[*row], rows[*row].file, &err), HEARTH_EINVAL);
    must_name(err.text, "give the full path");
}

ParameterizedTestParameters(libraries, the_one_that_is_named_is_loaded_and_stays_the_only_one)
{
    return each_row();
}

ParameterizedTest(size_t *row, libraries, the_one_that_is_named_is_loaded_and_stays_the_only_one)
{
    const struct row *r = &rows[*row];
    const char *library = real_library(r);
    struct hearth_error err = { 0 };
    char nowhere[64];

    snprintf(nowhere, sizeof(nowhere), "/nowhere/%s", r->file);
    must(open_with(r, library, &err));
    must(open_with(r, library, &err));
    must(open_with(r, NULL, &err));
    must_fail(open_with(r, nowhere, &err), HEARTH_ESTATE);
    must_name(err.text, library);
}

Test(libraries, a_provider_without_its_hardware_names_what_is_missing)
{
    struct hearth_error err = { 0 };

    if (access("/dev/infiniband", F_OK) == 0)
        cr_skip_test("this machine has adapters");
    must_fail(open_provider("ofi", "verbs", NULL, &err), HEARTH_EINVAL);
    must_name(err.text, "libfabric's provider verbs: there is no /dev/infiniband/uverbs*");
    must_fail(open_provider("ofi", "of_nobody", NULL, &err), HEARTH_EINVAL);
    must_name(err.text, "libfabric has no provider 'of_nobody'");
    must_name(err.text, "hearth doctor net");
    cr_assert(ne(ptr, getenv("RDMAV_HUGEPAGES_SAFE"), NULL)); /* before the library was loaded */
}
