/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The explanation of a full or lost tmpfs must not lie in that tmpfs alone. syslog(3) has its tag,
 * its connection and its wait in the process's state, which belongs to the program that an engine
 * is inside of: so the datagrams are sent from here.
 */
#include "log_system.h"

#include <errno.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static void system_connect(struct log_system *s)
{
    struct sockaddr_un to = { .sun_family = AF_UNIX };

    log_system_close(s);
    if ((size_t)snprintf(to.sun_path, sizeof(to.sun_path), "%s", s->path) >= sizeof(to.sun_path))
        return;
    s->fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (s->fd >= 0 && connect(s->fd, (const struct sockaddr *)&to, sizeof(to)))
        log_system_close(s);
}

void log_system_open(struct log_system *s, const char *path)
{
    *s = (struct log_system){ .fd = -1 };
    snprintf(s->path, sizeof(s->path), "%s", path);
    system_connect(s);
}

static int system_sent(const struct log_system *s, const char *bytes, size_t len)
{
    return s->fd >= 0 && send(s->fd, bytes, len, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0;
}

static void system_send(struct log_system *s, const struct log_line *line)
{
    char out[LOG_LINE_BYTES];
    size_t len = log_line_system(out, line);
    int sent = system_sent(s, out, len);

    if (!sent && (s->fd < 0 || (errno != EAGAIN && errno != ENOBUFS))) {
        system_connect(s); /* it was started again */
        sent = system_sent(s, out, len);
    }
    s->unsent += !sent;
    s->sent++;
}

static void system_tell_held(struct log_system *s, const struct log_line *line)
{
    struct log_line told = *line;
    char text[160];

    snprintf(text, sizeof(text),
            "%llu warnings and errors before this line were held back: the system log gets at most "
            "%d a minute",
            (unsigned long long)s->held_now, LOG_SYSTEM_MOST);
    told.level = HEARTH_LOG_WARN;
    told.event = "log-held-back";
    told.text = text;
    s->held_now = 0;
    system_send(s, &told);
}

void log_system_put(struct log_system *s, const struct log_line *line, uint64_t now_ms)
{
    if (!s->path[0])
        return;
    if (!s->since_ms || now_ms >= s->since_ms + LOG_SYSTEM_MS) {
        s->since_ms = now_ms ? now_ms : 1;
        s->sent = 0;
        if (s->held_now)
            system_tell_held(s, line);
    }
    if (line->level > HEARTH_LOG_WARN)
        return;
    if (s->sent < LOG_SYSTEM_MOST) {
        system_send(s, line);
        return;
    }
    s->held_back++;
    s->held_now++;
}

void log_system_close(struct log_system *s)
{
    if (s->fd >= 0)
        close(s->fd);
    s->fd = -1;
}
