/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A process that stops itself at a named place, so that a test can kill it exactly there. A file
 * shows that it has happened; the file appears whole, by rename.
 */
#include "stop_point.h"

#ifdef HEARTH_POINTS

#include "core/base/fail.h"
#include "core/base/open.h"
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int hth_stop_point_parse(struct hth_stop_point *out, const char *text, struct hearth_error *err)
{
    size_t len = strcspn(text, ":");
    unsigned long count = 1;
    char *end = NULL;

    if (text[len] == ':' && isdigit((unsigned char)text[len + 1]))
        count = strtoul(text + len + 1, &end, 10);
    if (len == 0 || len >= sizeof(out->name) || (text[len] == ':' && (!end || *end)) ||
            count == 0 || count > 1000000000)
        return hth_fail(err, HEARTH_EINVAL, 0,
                "'%.60s' is no stop point: give a name, or name:count with a count from 1", text);
    memcpy(out->name, text, len);
    out->name[len] = '\0';
    out->count = (unsigned)count;
    return HEARTH_OK;
}

/* Tries to read that file: 0 or the errno. */
static int stop_point_tries(const char *path)
{
    int fd = hth_open_named(path, O_RDONLY), why = errno;

    if (fd < 0)
        return why;
    close(fd);
    return 0;
}

static void stop_point_write(const struct hth_stop_point *p)
{
    char text[HTH_POINT_NAME + 48], tried[16] = "";
    int n;
    int root = hth_open_named(p->root, O_PATH | O_DIRECTORY);
    int dir = root < 0 ? -1 : hth_open_below(root, p->dir, O_PATH | O_DIRECTORY, 0);
    int fd = dir < 0 ? -1 : hth_open_file(dir, "stopped.new", O_WRONLY | O_CREAT | O_TRUNC);

    if (p->opens[0])
        snprintf(tried, sizeof(tried), " %d", stop_point_tries(p->opens));
    n = snprintf(text, sizeof(text), "%s %ld%s\n", p->name, (long)getpid(), tried);
    if (fd >= 0 && write(fd, text, (size_t)n) == n)
        renameat(dir, "stopped.new", dir, "stopped");
    if (fd >= 0)
        close(fd);
    if (dir >= 0)
        close(dir);
    if (root >= 0)
        close(root);
}

static void stop_point_reached(void *self, const char *point)
{
    struct hth_stop_point *p = self;

    if (strcmp(point, p->name) != 0 ||
            __atomic_add_fetch(&p->seen, 1, __ATOMIC_RELAXED) != p->count)
        return;
    stop_point_write(p);
    raise(SIGSTOP);
}

struct hth_points hth_stop_point_hook(struct hth_stop_point *point)
{
    return (struct hth_points){ .reached = point->name[0] ? stop_point_reached : NULL,
        .self = point };
}

static int fail_at(uint64_t *out, struct hearth_error *err)
{
    const char *text = getenv("HEARTH_FAIL_AT");
    char *end = NULL;

    *out = 0;
    if (!text)
        return HEARTH_OK;
    errno = 0;
    *out = strtoull(text, &end, 10);
    if (!isdigit((unsigned char)text[0]) || *end || errno)
        return hth_fail(err, HEARTH_EINVAL, 0, "HEARTH_FAIL_AT is '%.60s': give a number", text);
    return HEARTH_OK;
}

int hth_test_asks(const char *root, const char *dir, struct hth_points *out_points,
        uint64_t *out_fail_at, struct hearth_error *err)
{
    const char *text = getenv("HEARTH_STOP_POINT"), *opens = getenv("HEARTH_STOP_OPENS");
    struct hth_stop_point *point;
    int rc = fail_at(out_fail_at, err);

    *out_points = (struct hth_points){ 0 };
    if (rc || !text)
        return rc;
    if (!(point = calloc(1, sizeof(*point))))
        return hth_fail(err, HEARTH_ENOMEM, 0, "no memory for a stop point");
    if ((rc = hth_stop_point_parse(point, text, err))) {
        free(point);
        return hth_while(err, rc, "HEARTH_STOP_POINT");
    }
    snprintf(point->root, sizeof(point->root), "%s", root);
    snprintf(point->dir, sizeof(point->dir), "%s", dir);
    snprintf(point->opens, sizeof(point->opens), "%s", opens ? opens : "");
    *out_points = hth_stop_point_hook(point);
    return HEARTH_OK;
}

#endif
