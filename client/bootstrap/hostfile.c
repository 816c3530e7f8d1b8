/* SPDX-License-Identifier: Apache-2.0 */
/* A static host file: the meeting place and the number of ranks, then as over TCP. */
#include "bootstrap.h"

#include "core/base/open.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct place {
    char host[256];
    uint16_t port;
};

/* 1: "host port"; 0: an empty line or a comment; else HEARTH_EINVAL. */
static int hostfile_line(
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

static int hostfile_read(FILE *f, const char *path, struct place *first, uint32_t *out_world,
        struct hearth_error *err)
{
    char line[512];
    struct place place;
    unsigned number = 0;

    *out_world = 0;
    while (fgets(line, sizeof(line), f)) {
        int rc;

        number++;
        if (strlen(line) == sizeof(line) - 1 && line[sizeof(line) - 2] != '\n')
            return hth_fail(err, HEARTH_EINVAL, 0,
                    "%s, line %u is longer than %zu bytes: a line is \"host port\"", path, number,
                    sizeof(line) - 2);
        rc = hostfile_line(line, path, number, &place, err);
        if (rc < 0)
            return rc;
        if (rc && ++*out_world == 1)
            *first = place;
    }
    if (!*out_world)
        return hth_fail(err, HEARTH_EINVAL, 0, "%s names no ranks: a line is \"host port\"", path);
    return HEARTH_OK;
}

/* Opening a fifo would wait for a writer, whatever the caller's deadline is. */
static FILE *hostfile_open(const char *path, struct hearth_error *err)
{
    int fd = hth_open_named(path, O_RDONLY);
    struct stat st;
    FILE *f = NULL;

    if (fd >= 0 && !fstat(fd, &st) && !S_ISREG(st.st_mode)) {
        close(fd);
        hth_fail(err, HEARTH_EINVAL, 0, "host file %s is not a regular file", path);
        return NULL;
    }
    if (fd >= 0)
        f = fdopen(fd, "r");
    if (!f) {
        hth_fail(err, HEARTH_EINVAL, errno, "host file %s: %s", path, strerror(errno));
        if (fd >= 0)
            close(fd);
    }
    return f;
}

int hearth_bootstrap_hostfile(const char *path, uint32_t rank, uint32_t deadline_ms,
        struct hearth_bootstrap **out, uint32_t *out_world, struct hearth_error *err)
{
    struct place first = { .port = 0 };
    uint32_t world = 0;
    FILE *f;
    int rc;

    if (!path)
        return hth_fail(err, HEARTH_EINVAL, 0, "host file (NULL): not given");
    f = hostfile_open(path, err);
    if (!f)
        return HEARTH_EINVAL;
    rc = hostfile_read(f, path, &first, &world, err);
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
