/* SPDX-License-Identifier: Apache-2.0 */
#include "build.h"

#include "transport/session/frame.h"
#include <hearth/version.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void hth_build_this(struct hth_build *out)
{
    *out = (struct hth_build){ .version = HEARTH_VERSION,
        .protocol = { HTH_VERSION_LOW, HTH_VERSION_HIGH } };
    for (int f = 0; f < HTH_FORMATS; f++) {
        const struct hth_versions *v = hth_versions_of((enum hth_format)f);

        out->format[f] = (struct hth_build_range){ v->oldest, v->newest };
    }
}

void hth_build_print(const struct hth_build *build, char out[HTH_BUILD_TEXT])
{
    size_t at =
            (size_t)snprintf(out, HTH_BUILD_TEXT, "version %s\nprotocol %" PRIu32 " %" PRIu32 "\n",
                    build->version, build->protocol.oldest, build->protocol.newest);

    for (int f = 0; f < HTH_FORMATS && at < HTH_BUILD_TEXT; f++)
        at += (size_t)snprintf(out + at, HTH_BUILD_TEXT - at, "format %" PRIu32 " %" PRIu32 " %s\n",
                build->format[f].oldest, build->format[f].newest,
                hth_versions_of((enum hth_format)f)->what);
}

/* The number there, and what is behind it; 0: there is none. */
static uint32_t build_number(const char **at)
{
    char *end = NULL;
    unsigned long n = strtoul(*at, &end, 10);

    *at = end;
    return n <= UINT32_MAX ? (uint32_t)n : 0;
}

/* The rest of the line behind `name`; NULL: the line has another name. */
static const char *build_line(const char *line, const char *name)
{
    size_t len = strlen(name);

    return strncmp(line, name, len) == 0 && line[len] == ' ' ? line + len + 1 : NULL;
}

static struct hth_build_range build_range(const char **at)
{
    struct hth_build_range range = { .oldest = build_number(at) };

    range.newest = build_number(at);
    return range;
}

/* A format that this build does not know is left out: none of it is in use here. */
static void build_take_format(struct hth_build *out, const char *at)
{
    struct hth_build_range range = build_range(&at);
    size_t len;

    at += strspn(at, " ");
    len = strcspn(at, "\n");
    for (int f = 0; f < HTH_FORMATS; f++) {
        const char *what = hth_versions_of((enum hth_format)f)->what;

        if (strlen(what) == len && !strncmp(what, at, len))
            out->format[f] = range;
    }
}

static void build_take_line(struct hth_build *out, const char *line)
{
    const char *at;

    if ((at = build_line(line, "version")))
        snprintf(out->version, sizeof(out->version), "%.*s", (int)strcspn(at, "\n"), at);
    else if ((at = build_line(line, "protocol")))
        out->protocol = build_range(&at);
    else if ((at = build_line(line, "format")))
        build_take_format(out, at);
}

int hth_build_parse(struct hth_build *out, const char *text, struct hearth_error *err)
{
    *out = (struct hth_build){ 0 };
    for (const char *line = text; *line;) {
        size_t len = strcspn(line, "\n");

        build_take_line(out, line);
        line += len + (line[len] == '\n');
    }
    if (out->version[0] && out->protocol.newest)
        return HEARTH_OK;
    return hth_fail(err, HEARTH_EPROTO, 0, "the new hearthd does not print its versions: %.*s",
            (int)strcspn(text, "\n"), text[0] ? text : "it printed nothing");
}

/* -1, 0, 1 by the three numbers of a version. */
static int build_compare(const char *a, const char *b)
{
    for (int i = 0; i < 3; i++) {
        uint32_t x = build_number(&a), y = build_number(&b);

        if (x != y)
            return x < y ? -1 : 1;
        a += *a == '.';
        b += *b == '.';
    }
    return 0;
}

static int build_speaks(const struct hth_build *next, const struct hth_build *now,
        const struct hth_build_range *range, uint32_t used, const char *what,
        struct hearth_error *err)
{
    if (used >= range->oldest && used <= range->newest)
        return HEARTH_OK;
    if (!range->newest)
        return hth_fail(err, HEARTH_EUNSUPPORTED, 0,
                "hearthd %s does not know the %s, which version %s uses: end the job before it is "
                "upgraded",
                next->version, what, now->version);
    return hth_fail(err, HEARTH_EUNSUPPORTED, 0,
            "hearthd %s has the %s in versions %" PRIu32 " to %" PRIu32 ", and version %" PRIu32
            " is in use under hearthd %s: upgrade to a version between the two first, or end the "
            "job",
            next->version, what, range->oldest, range->newest, used, now->version);
}

int hth_build_check(const struct hth_build *next, const struct hth_build *now,
        const struct hth_build_peers *peers, struct hearth_error *err)
{
    uint32_t protocol = peers->protocol ? peers->protocol : now->protocol.newest;
    int rc;

    if (build_compare(next->version, now->version) < 0)
        return hth_fail(err, HEARTH_EUNSUPPORTED, 0,
                "hearthd %s is older than %s, which runs: an engine is not replaced by an older "
                "one while its job runs",
                next->version, now->version);
    rc = build_speaks(next, now, &next->protocol, protocol, "protocol between engines", err);
    for (int f = 0; f < HTH_FORMATS && !rc; f++) {
        uint32_t used = now->format[f].newest;

        if (f == HTH_FORMAT_LOCAL && peers->local)
            used = peers->local;
        rc = build_speaks(
                next, now, &next->format[f], used, hth_versions_of((enum hth_format)f)->what, err);
    }
    return rc;
}
