/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A process that stops itself at a named place, so that a test can kill it exactly there. The
 * file says that it has happened; it appears whole, by rename.
 */
#include "hands.h"

#include <ctype.h>
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

static void stop_point_write(const struct hth_stop_point *p)
{
    char from[sizeof(p->dir) + 16], to[sizeof(p->dir) + 16], text[HTH_POINT_NAME + 32];
    int n = snprintf(text, sizeof(text), "%s %ld\n", p->name, (long)getpid());
    int fd;

    snprintf(from, sizeof(from), "%s/stopped.new", p->dir);
    snprintf(to, sizeof(to), "%s/stopped", p->dir);
    fd = open(from, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
    if (fd < 0)
        return;
    if (write(fd, text, (size_t)n) == n)
        rename(from, to);
    close(fd);
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
