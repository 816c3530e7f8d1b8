/* SPDX-License-Identifier: Apache-2.0 */
/* A static host file: the meeting place and the number of ranks, then as over TCP. */
#include "bootstrap.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct place {
    char host[256];
    uint16_t port;
};

/* 1: "host port"; 0: an empty line or a comment; else HEARTH_EINVAL. */
static int parse(
        char *line, const char *path, unsigned number, struct place *out, struct hearth_error *err)
{
    char *save = NULL, *host, *port, *end = NULL;
    unsigned long v;

    line[strcspn(line, "#\r\n")] = '\0';
    host = strtok_r(line, " \t", &save);
    if (!host)
        return 0;
    port = strtok_r(NULL, " \t", &save);
    v = port ? strtoul(port, &end, 10) : 0;
    if (!port || *end || !v || v > 65535 || strtok_r(NULL, " \t", &save) ||
            strlen(host) >= sizeof(out->host))
        return hth_fail(err, HEARTH_EINVAL, 0,
                "%s line %u: a line is \"host port\", one for each rank", path, number);
    snprintf(out->host, sizeof(out->host), "%s", host);
    out->port = (uint16_t)v;
    return 1;
}

static int read_file(FILE *f, const char *path, struct place *first, uint32_t *out_world,
        struct hearth_error *err)
{
    char line[512];
    struct place place;
    unsigned number = 0;

    *out_world = 0;
    while (fgets(line, sizeof(line), f)) {
        int rc = parse(line, path, ++number, &place, err);

        if (rc < 0)
            return rc;
        if (rc && ++*out_world == 1)
            *first = place;
    }
    if (!*out_world)
        return hth_fail(err, HEARTH_EINVAL, 0, "%s names no ranks: a line is \"host port\"", path);
    return HEARTH_OK;
}

int hearth_bootstrap_hostfile(const char *path, uint32_t rank, uint32_t deadline_ms,
        struct hearth_bootstrap **out, uint32_t *out_world, struct hearth_error *err)
{
    struct place first = { .port = 0 };
    uint32_t world = 0;
    FILE *f = path ? fopen(path, "re") : NULL;
    int rc;

    if (!f)
        return hth_fail(err, HEARTH_EINVAL, path ? errno : 0, "host file %s: %s",
                path ? path : "(NULL)", path ? strerror(errno) : "not given");
    rc = read_file(f, path, &first, &world, err);
    fclose(f);
    if (!rc && rank >= world)
        rc = hth_fail(
                err, HEARTH_EINVAL, 0, "rank is %u, but %s names %u ranks", rank, path, world);
    if (!rc)
        rc = hearth_bootstrap_tcp(first.host, first.port, rank, world, deadline_ms, out, err);
    if (!rc && out_world)
        *out_world = world;
    return rc;
}
