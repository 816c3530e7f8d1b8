/* SPDX-License-Identifier: Apache-2.0 */
/* A site's own libfabric or UCX: which file a module loads; and what libfabric's says where a
 * provider does not come up. */
#include "check.h"

#include "transport/transport.h"

#include <criterion/parameterized.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
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
    must(open_with(r, library, &err), err);
    must(open_with(r, library, &err), err);
    must(open_with(r, NULL, &err), err);
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
}

extern char **environ;

static size_t environment_sum(void)
{
    size_t sum = 0;

    for (char **e = environ; *e; e++)
        for (const char *c = *e; *c; c++)
            sum = sum * 31 + (unsigned char)*c;
    return sum;
}

ParameterizedTestParameters(libraries, the_environment_is_as_it_was)
{
    return each_row();
}

/* The process may be a trainer, whose own libfabric and UCX read these variables too. */
ParameterizedTest(size_t *row, libraries, the_environment_is_as_it_was)
{
    struct hearth_error err = { 0 };
    size_t before;

    setenv("UCX_TCP_KEEPCNT", "5", 1);    /* a site's own */
    setenv("UCX_TCP_PUT_ENABLE", "y", 1); /* likewise, and not used */
    setenv("HFI_NO_BACKTRACE", "0", 1);
    unsetenv("FI_PROVIDER");
    before = environment_sum();
    must(open_with(&rows[*row], NULL, &err), err);
    cr_assert(eq(sz, environment_sum(), before));
    must(open_with(&rows[*row], NULL, &err), err);
    cr_assert(eq(sz, environment_sum(), before));
}

#define FDS_FROM 4200 /* more than fit into a table of fixed size */

ParameterizedTestParameters(libraries, descriptors_are_told_apart_whatever_their_number)
{
    return each_row();
}

/* Descriptors of the process stay as they are; the library's, also high ones, are close-on-exec. */
ParameterizedTest(size_t *row, libraries, descriptors_are_told_apart_whatever_their_number)
{
    struct hth_transport_opts opts = {
        .bind = "127.0.0.1", .trusted = 1, .clock = { .now_ms = clock_ms }
    };
    struct hth_transport_events events = { 0 };
    struct hth_transport *t = NULL;
    struct hearth_error err = { 0 };
    struct rlimit files;
    int last = 0;

    cr_assert(zero(int, getrlimit(RLIMIT_NOFILE, &files)));
    if (files.rlim_max < FDS_FROM + 200)
        cr_skip_test("a process may have %lu descriptors here", (unsigned long)files.rlim_max);
    files.rlim_cur = files.rlim_max < 8192 ? files.rlim_max : 8192;
    cr_assert(zero(int, setrlimit(RLIMIT_NOFILE, &files)));
    while (last < FDS_FROM)
        cr_assert(ge(int, last = open("/dev/null", O_RDONLY), 0)); /* NOLINT: not close-on-exec */
    must(hth_transport_open(rows[*row].module, getenv("HEARTH_TEST_LIB"), &opts, &events, &t, &err),
            err);
    cr_assert(zero(int, fcntl(1100, F_GETFD)));
    cr_assert(zero(int, fcntl(last, F_GETFD)));
    for (int fd = last + 1; fd < last + 200; fd++)
        cr_assert(ne(int, fcntl(fd, F_GETFD), 0), "descriptor %d is inherited", fd);
    t->ops->close(t);
}
