/* SPDX-License-Identifier: Apache-2.0 */
/* Which build of hearthd may replace a running one. */
#include "check.h"
#include "engine/state/build.h"

#include <stdio.h>
#include <string.h>

static const struct hth_build_peers none = { 0 };

static int check(
        const struct hth_build *next, const struct hth_build_peers *peers, struct hearth_error *err)
{
    struct hth_build now;

    hth_build_this(&now);
    return hth_build_check(next, &now, peers, err);
}

Test(build, what_is_printed_is_read)
{
    struct hth_build build, read;
    char text[HTH_BUILD_TEXT];

    hth_build_this(&build);
    hth_build_print(&build, text);
    must(hth_build_parse(&read, text, NULL));
    cr_assert(eq(str, read.version, build.version));
    cr_assert(eq(int, memcmp(&read.protocol, &build.protocol, sizeof(read.protocol)), 0));
    cr_assert(eq(int, memcmp(read.format, build.format, sizeof(read.format)), 0));
    must(check(&read, &none, NULL));
}

Test(build, program_that_prints_a_reason_is_quoted)
{
    struct hearth_error err;
    struct hth_build read;

    must_fail(hth_build_parse(&read, "hearthd: libsodium is missing\n", &err), HEARTH_EPROTO);
    cr_assert(ne(ptr, strstr(err.text, "libsodium is missing"), NULL), "%s", err.text);
    must_fail(hth_build_parse(&read, "", &err), HEARTH_EPROTO);
}

Test(build, older_version_is_refused_by_name)
{
    struct hearth_error err;
    struct hth_build next;

    hth_build_this(&next);
    snprintf(next.version, sizeof(next.version), "0.0.99");
    must_fail(check(&next, &none, &err), HEARTH_EUNSUPPORTED);
    cr_assert(ne(ptr, strstr(err.text, "0.0.99 is older than 0."), NULL), "%s", err.text);
    snprintf(next.version, sizeof(next.version), "0.10.0");
    must(check(&next, &none, NULL));
}

Test(build, next_version_that_speaks_ours_replaces_it)
{
    struct hth_build next;

    hth_build_this(&next);
    snprintf(next.version, sizeof(next.version), "99.0.0");
    next.protocol.oldest = next.protocol.newest;
    next.protocol.newest++;
    for (int f = 0; f < HTH_FORMATS; f++) {
        next.format[f].oldest = next.format[f].newest;
        next.format[f].newest++;
    }
    must(check(&next, &none, NULL));
}

Test(build, protocol_in_use_with_a_peer_decides)
{
    struct hth_build_peers peers = none;
    struct hearth_error err;
    struct hth_build next;

    hth_build_this(&next);
    peers.protocol = next.protocol.newest - 1;
    must(check(&next, &peers, NULL));
    next.protocol.oldest = next.protocol.newest;
    must_fail(check(&next, &peers, &err), HEARTH_EUNSUPPORTED);
    cr_assert(ne(ptr, strstr(err.text, "protocol between engines"), NULL), "%s", err.text);
    next.protocol.oldest = next.protocol.newest += 1;
    must_fail(check(&next, &none, NULL), HEARTH_EUNSUPPORTED);
}

Test(build, version_of_a_ranks_library_decides)
{
    struct hth_build_peers peers = none;
    struct hearth_error err;
    struct hth_build next;

    hth_build_this(&next);
    peers.local = next.format[HTH_FORMAT_LOCAL].oldest;
    must(check(&next, &peers, NULL));
    next.format[HTH_FORMAT_LOCAL].oldest++;
    must_fail(check(&next, &peers, &err), HEARTH_EUNSUPPORTED);
    cr_assert(ne(ptr, strstr(err.text, "local protocol"), NULL), "%s", err.text);
}

Test(build, format_that_is_gone_is_named)
{
    struct hearth_error err;
    struct hth_build next;
    char text[HTH_BUILD_TEXT], *line;

    hth_build_this(&next);
    hth_build_print(&next, text);
    line = strstr(text, "keep record");
    memcpy(line, "tidy", 4); /* a format of that build alone */
    must(hth_build_parse(&next, text, NULL));
    must_fail(check(&next, &none, &err), HEARTH_EUNSUPPORTED);
    cr_assert(ne(ptr, strstr(err.text, "does not know the keep record"), NULL), "%s", err.text);
}
