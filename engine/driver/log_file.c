/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The engine's log. It lies in the store, so it is bounded: at 4 MiB `log` becomes `log.1`. Each
 * line is one write to a file opened for appending, so that a second engine, which finds the lock
 * taken, can say so in the same file. Where the file was removed, or could not be opened for a
 * while, it is opened again at the next line, and the first line there says how many were lost.
 */
#include "hands.h"

#include "core/base/open.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define LOG_BYTES   (4 << 20)
#define EARLY_BYTES 4096
#define LINE_BYTES  2048

struct hth_log_file {
    pthread_mutex_t lock; /* guards all below */
    enum hearth_log_level level;
    int also_stderr;
    int dir, fd; /* -1: not open yet; fd alone: it could not be opened */
    off_t size;
    unsigned long lost; /* lines, since it was open last */
    int lost_why;       /* errno */
    size_t early_len;
    char early[EARLY_BYTES];
};

static const char *log_file_level(enum hearth_log_level level)
{
    switch (level) {
    case HEARTH_LOG_ERROR:
        return "error";
    case HEARTH_LOG_WARN:
        return "warn";
    case HEARTH_LOG_INFO:
        return "info";
    case HEARTH_LOG_DEBUG:
        return "debug";
    case HEARTH_LOG_TRACE:
        return "trace";
    }
    return "other";
}

/* Returns the bytes of the line, newline included. */
static size_t log_file_format(
        char out[LINE_BYTES], enum hearth_log_level level, const char *event, const char *text)
{
    struct timespec now = { 0 };
    char when[32];
    struct tm tm;
    int n;

    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &tm);
    strftime(when, sizeof(when), "%Y-%m-%dT%H:%M:%S", &tm);
    n = snprintf(out, LINE_BYTES - 1, "%s.%03ldZ %s %s %s", when, now.tv_nsec / 1000000,
            log_file_level(level), event, text);
    if (n < 0)
        return 0;
    if (n > LINE_BYTES - 2)
        n = LINE_BYTES - 2;
    for (int i = 0; i < n; i++)
        if ((unsigned char)out[i] < ' ') /* one line, and no escape sequences */
            out[i] = ' ';
    out[n] = '\n';
    return (size_t)n + 1;
}

/* Opens the log. If something other than a file has this name, nothing is written to it. */
static int log_file_open(struct hth_log_file *log)
{
    struct stat st;
    int fd = hth_open_file(log->dir, "log", O_WRONLY | O_CREAT | O_APPEND);

    if (fd < 0)
        return -1;
    if (fstat(fd, &st) || st.st_nlink > 1) {
        close(fd);
        errno = EINVAL;
        return -1;
    }
    log->fd = fd;
    log->size = st.st_size;
    return 0;
}

/* Renames `log` to `log.1`; if that fails, empties it. */
static int log_file_turn_over(struct hth_log_file *log)
{
    if (renameat(log->dir, "log", log->dir, "log.1")) {
        log->size = ftruncate(log->fd, 0) ? log->size : 0;
        return 0;
    }
    close(log->fd);
    log->fd = -1;
    return log_file_open(log);
}

static void log_file_write(struct hth_log_file *log, const char *bytes, size_t len)
{
    ssize_t n = write(log->fd, bytes, len);

    if (n > 0)
        log->size += n;
}

static void log_file_tell_lost(struct hth_log_file *log)
{
    char line[LINE_BYTES], text[160];

    snprintf(text, sizeof(text),
            "%lu lines before this one are lost: the log could not be opened: %s", log->lost,
            strerrordesc_np(log->lost_why));
    log->lost = 0;
    log_file_write(log, line, log_file_format(line, HEARTH_LOG_WARN, "log-lost", text));
}

/* 1: a line of `len` bytes can be written. If the file's name was removed, no reader can find it,
 * so a new file is opened. */
static int log_file_ready(struct hth_log_file *log, size_t len)
{
    struct stat st;

    if (log->fd >= 0 && !fstat(log->fd, &st) && !st.st_nlink) {
        close(log->fd);
        log->fd = -1;
    }
    if ((log->fd < 0 && log_file_open(log)) ||
            (log->size + (off_t)len > LOG_BYTES && log_file_turn_over(log))) {
        log->lost_why = errno;
        log->lost++;
        return 0;
    }
    if (log->lost)
        log_file_tell_lost(log);
    return 1;
}

static void log_file_put_locked(struct hth_log_file *log, const char *bytes, size_t len)
{
    if (log->dir >= 0) {
        if (log_file_ready(log, len))
            log_file_write(log, bytes, len);
    } else if (len <= sizeof(log->early) - log->early_len) {
        memcpy(log->early + log->early_len, bytes, len);
        log->early_len += len;
    }
}

static void log_file_emit(
        void *self, enum hearth_log_level level, const char *event, const char *text)
{
    struct hth_log_file *log = self;
    char line[LINE_BYTES];
    size_t len;

    if (level > log->level)
        return;
    len = log_file_format(line, level, event, text);
    pthread_mutex_lock(&log->lock);
    log_file_put_locked(log, line, len);
    if (log->also_stderr) {
        ssize_t n = write(STDERR_FILENO, line, len);

        (void)n;
    }
    pthread_mutex_unlock(&log->lock);
}

int hth_log_file_make(struct hth_log_file **out, enum hearth_log_level level, int also_stderr,
        struct hearth_error *err)
{
    struct hth_log_file *log = calloc(1, sizeof(*log));

    if (!log)
        return hth_fail(err, HEARTH_ENOMEM, 0, "no memory for the log");
    pthread_mutex_init(&log->lock, NULL);
    log->level = level;
    log->also_stderr = also_stderr;
    log->dir = log->fd = -1;
    *out = log;
    return HEARTH_OK;
}

static int log_file_open_failed(const char *path, struct hearth_error *err)
{
    if (errno == EINVAL || errno == ELOOP || errno == ENXIO || errno == EISDIR)
        return hth_fail(err, HEARTH_EIO, errno,
                "%.300s/log is not a file of the engine's own (a link, a fifo, a directory): look "
                "at it, then remove it",
                path);
    return hth_fail(err, HEARTH_EIO, errno, "cannot open the log in %.300s: %s", path,
            strerrordesc_np(errno));
}

int hth_log_file_open(struct hth_log_file *log, int dir, const char *path, struct hearth_error *err)
{
    int rc = HEARTH_OK;

    pthread_mutex_lock(&log->lock);
    log->dir = fcntl(dir, F_DUPFD_CLOEXEC, 0);
    if (log->dir < 0 || log_file_open(log))
        rc = log_file_open_failed(path, err);
    else if (log->early_len)
        log_file_put_locked(log, log->early, log->early_len);
    pthread_mutex_unlock(&log->lock);
    return rc;
}

struct hth_log hth_log_file_sink(struct hth_log_file *log)
{
    return (struct hth_log){ .emit = log_file_emit, .self = log };
}

void hth_log_file_close(struct hth_log_file *log)
{
    if (!log)
        return;
    if (log->fd >= 0)
        close(log->fd);
    if (log->dir >= 0)
        close(log->dir);
    pthread_mutex_destroy(&log->lock);
    free(log);
}
