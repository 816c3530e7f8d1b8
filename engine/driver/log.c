/* SPDX-License-Identifier: Apache-2.0 */
#include "log.h"

#include "log_file.h"
#include "log_line.h"
#include "log_system.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EARLY_BYTES   4096
#define LOGS_FILES    3 /* `file` and two that are named */
#define SYSTEM_SOCKET "/dev/log"

struct hth_logs {
    pthread_mutex_t lock; /* guards all below but `level` */
    struct hth_logs_opts opts;
    int level; /* atomic */
    int to_stderr;
    struct log_system system;
    struct log_file file[LOGS_FILES];
    char paths[LOGS_FILES][HTH_LOGS_PATH];
    unsigned files;
    size_t early_len;
    char early[EARLY_BYTES];
};

/* ---- the list -------------------------------------------------------------------------------- */

int hth_logs_next(const char **at, char word[HTH_LOGS_PATH + 8])
{
    size_t len = strcspn(*at, ",");

    if (!**at)
        return 0;
    snprintf(word, HTH_LOGS_PATH + 8, "%.*s", (int)len, *at);
    *at += len;
    *at += **at == ',' && (*at)[1];
    return 1;
}

const char *hth_logs_path(const char *word)
{
    return word[0] == '/' ? word : NULL;
}

/* Of a word that is the system log: the path of its socket; NULL: it is another word. */
static const char *logs_socket(const char *word)
{
    if (strcmp(word, "syslog") == 0)
        return SYSTEM_SOCKET;
    return strncmp(word, "syslog:/", 8) == 0 ? word + 7 : NULL;
}

int hth_logs_check(const char *to, struct hearth_error *err)
{
    char word[HTH_LOGS_PATH + 8];
    unsigned files = 0;

    for (const char *at = to; hth_logs_next(&at, word);) {
        const char *path = hth_logs_path(word), *socket = logs_socket(word);

        files += path || strcmp(word, "file") == 0;
        if (!path && !socket && strcmp(word, "file") != 0 && strcmp(word, "stderr") != 0)
            return hth_fail(err, HEARTH_EINVAL, 0,
                    "--log has '%s': use file, a path from / on, stderr, syslog or "
                    "syslog:/PATH, several with commas between",
                    word);
        if ((path && strlen(path) >= HTH_LOGS_PATH) || (socket && strlen(socket) >= HTH_LOGS_PATH))
            return hth_fail(err, HEARTH_EINVAL, 0,
                    "--log has '%.80s...': at most %d bytes of a path", word, HTH_LOGS_PATH - 1);
    }
    return files <= LOGS_FILES ? HEARTH_OK
                               : hth_fail(err, HEARTH_EINVAL, 0, "--log has %u files: at most %d",
                                         files, LOGS_FILES);
}

/* ---- a line ---------------------------------------------------------------------------------- */

static uint64_t logs_now_ms(const struct hth_logs *l)
{
    return hth_now_ms(&l->opts.clock);
}

static size_t logs_format(const struct hth_logs *l, const struct log_line *line, char *out)
{
    return l->opts.json ? log_line_json(out, line) : log_line_text(out, line);
}

static struct log_line logs_line(
        const struct hth_logs *l, enum hearth_log_level level, const char *event, const char *text)
{
    return (struct log_line){ .wall_ms = l->opts.clock.wall_ms(l->opts.clock.self),
        .level = level,
        .event = event,
        .text = text,
        .job = l->opts.job,
        .node = l->opts.node };
}

/* Why a file does not take lines. */
static void logs_why(const struct log_file *f, char out[120])
{
    snprintf(out, 120, "the log could not be %s: %s", f->opened ? "written" : "opened",
            strerrordesc_np(f->why));
}

/* The first line that a file loses is reported to the system log at once. */
static void logs_lose(struct hth_logs *l, struct log_file *f, int why)
{
    char text[300], reason[120];
    struct log_line line;

    f->why = why;
    f->lost++;
    if (f->lost_now++)
        return;
    logs_why(f, reason);
    snprintf(text, sizeof(text), "lines are lost from here on in %s: %s",
            f->path ? f->path : "the log beside the saves", reason);
    line = logs_line(l, HEARTH_LOG_WARN, "log-lost", text);
    log_system_put(&l->system, &line, logs_now_ms(l));
}

/* The line of what was lost before; its bytes. */
static size_t logs_lost_line(struct hth_logs *l, struct log_file *f, char *out)
{
    char text[200], reason[120];
    struct log_line line;

    logs_why(f, reason);
    snprintf(text, sizeof(text), "%llu lines before this one are lost: %s",
            (unsigned long long)f->lost_now, reason);
    line = logs_line(l, HEARTH_LOG_WARN, "log-lost", text);
    return logs_format(l, &line, out);
}

/* The report of what was lost and the line behind it go together, so that a file with room for one
 * of them gets no report for each line that it loses. */
static void logs_put_file(struct hth_logs *l, struct log_file *f, const char *bytes, size_t len)
{
    char out[2 * LOG_LINE_BYTES];
    size_t told = f->lost_now ? logs_lost_line(l, f, out) : 0;
    int why;

    memcpy(out + told, bytes, len);
    why = log_file_put(f, out, told + len);
    if (why)
        logs_lose(l, f, why);
    else
        f->lost_now = 0;
}

static void logs_put_early(struct hth_logs *l, const char *bytes, size_t len)
{
    if (len > sizeof(l->early) - l->early_len)
        return;
    memcpy(l->early + l->early_len, bytes, len);
    l->early_len += len;
}

static void logs_put_locked(struct hth_logs *l, const struct log_line *line)
{
    char out[LOG_LINE_BYTES];
    size_t len = logs_format(l, line, out);

    log_system_put(
            &l->system, line, logs_now_ms(l)); /* first: it has to be there if all else is not */
    for (unsigned i = 0; i < l->files; i++)
        if (l->file[i].path || l->file[i].dir >= 0)
            logs_put_file(l, &l->file[i], out, len);
        else
            logs_put_early(l, out, len);
    if (l->to_stderr) {
        ssize_t n = write(STDERR_FILENO, out, len);

        (void)n;
    }
}

/* ---- the sink -------------------------------------------------------------------------------- */

static void logs_emit(void *self, enum hearth_log_level level, const char *event, const char *text)
{
    struct hth_logs *l = self;
    struct log_line line;

    if ((int)level > __atomic_load_n(&l->level, __ATOMIC_RELAXED))
        return;
    line = logs_line(l, level, event, text);
    pthread_mutex_lock(&l->lock);
    logs_put_locked(l, &line);
    pthread_mutex_unlock(&l->lock);
}

static void logs_state(void *self, struct hth_log_state *out)
{
    struct hth_logs *l = self;

    pthread_mutex_lock(&l->lock);
    *out = (struct hth_log_state){ .held_back = l->system.held_back, .unsent = l->system.unsent };
    out->level = (enum hearth_log_level)__atomic_load_n(&l->level, __ATOMIC_RELAXED);
    for (unsigned i = 0; i < l->files; i++) {
        const struct log_file *f = &l->file[i];

        out->lost += f->lost;
        out->lost_now += f->lost_now;
        out->why = f->lost_now || !out->why ? f->why : out->why;
    }
    pthread_mutex_unlock(&l->lock);
}

static void logs_set_level(void *self, enum hearth_log_level level)
{
    struct hth_logs *l = self;

    __atomic_store_n(&l->level, (int)level, __ATOMIC_RELAXED);
}

struct hth_log hth_logs_sink(struct hth_logs *logs)
{
    return (struct hth_log){
        .emit = logs_emit, .self = logs, .state = logs_state, .set_level = logs_set_level
    };
}

/* ---- opening --------------------------------------------------------------------------------- */

static int logs_open_failed(const char *path, const char *name, struct hearth_error *err)
{
    if (errno == EINVAL || errno == ELOOP || errno == ENXIO || errno == EISDIR)
        return hth_fail(err, HEARTH_EIO, errno,
                "%.300s%s is not a file of the engine's own (a link, a fifo, a directory): look "
                "at it, then remove it",
                path, name);
    return hth_fail(err, HEARTH_EIO, errno, "cannot open the log %.300s%s: %s", path, name,
            strerrordesc_np(errno));
}

static int logs_add(struct hth_logs *l, const char *word, struct hearth_error *err)
{
    const char *path = hth_logs_path(word), *socket = logs_socket(word);
    struct log_file *f = &l->file[l->files];

    if (socket) {
        log_system_open(&l->system, socket);
        return HEARTH_OK;
    }
    if (strcmp(word, "stderr") == 0) {
        l->to_stderr = 1;
        return HEARTH_OK;
    }
    if (path) {
        snprintf(l->paths[l->files], HTH_LOGS_PATH, "%s", path);
        f->path = l->paths[l->files];
    }
    l->files++;
    return path && log_file_open(f) ? logs_open_failed(path, "", err) : HEARTH_OK;
}

int hth_logs_make(struct hth_logs **out, const struct hth_logs_opts *opts, struct hearth_error *err)
{
    struct hth_logs *l = calloc(1, sizeof(*l));
    char word[HTH_LOGS_PATH + 8];
    int rc = l ? hth_logs_check(opts->to, err) : HEARTH_ENOMEM;

    if (!l)
        return hth_fail(err, HEARTH_ENOMEM, 0, "no memory for the log");
    pthread_mutex_init(&l->lock, NULL);
    l->opts = *opts;
    l->level = (int)opts->level;
    l->to_stderr = opts->also_stderr;
    l->system.fd = -1;
    for (unsigned i = 0; i < LOGS_FILES; i++)
        l->file[i] = (struct log_file){ .dir = -1, .fd = -1 };
    for (const char *at = opts->to; !rc && hth_logs_next(&at, word);)
        rc = logs_add(l, word, err);
    if (rc)
        hth_logs_close(l);
    else
        *out = l;
    return rc;
}

static int logs_open_file(
        struct hth_logs *l, struct log_file *f, int dir, const char *path, struct hearth_error *err)
{
    int rc;

    f->dir = fcntl(dir, F_DUPFD_CLOEXEC, 0);
    if (f->dir < 0 || log_file_open(f)) {
        rc = logs_open_failed(path, "/log", err);
        if (f->dir >= 0)
            close(f->dir);
        f->dir = -1;
        return rc;
    }
    if (l->early_len)
        logs_put_file(l, f, l->early, l->early_len);
    l->early_len = 0;
    return HEARTH_OK;
}

int hth_logs_open(struct hth_logs *logs, int dir, const char *path, struct hearth_error *err)
{
    int rc = HEARTH_OK;

    pthread_mutex_lock(&logs->lock);
    for (unsigned i = 0; !rc && i < logs->files; i++)
        if (!logs->file[i].path && logs->file[i].fd < 0)
            rc = logs_open_file(logs, &logs->file[i], dir, path, err);
    pthread_mutex_unlock(&logs->lock);
    return rc;
}

void hth_logs_close(struct hth_logs *logs)
{
    if (!logs)
        return;
    for (unsigned i = 0; i < LOGS_FILES; i++) {
        log_file_close(&logs->file[i]);
        if (logs->file[i].dir >= 0)
            close(logs->file[i].dir);
    }
    log_system_close(&logs->system);
    pthread_mutex_destroy(&logs->lock);
    free(logs);
}
