/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finding this node's engine: the socket <root>/<job>/.hearth/sock.
 *
 *     connect -ok-> ours
 *        | no engine listens
 *        +- never:      an error; after a restart, tried until the deadline
 *        +- in_process: a thread of this process, once the engine before has left its lock
 *        +- auto:       start hearthd, then try until the deadline. Two ranks may start one each:
 *                       the lock lets one in, the other's end is ignored while one listens.
 *                       An engine that is refused for a reason that does not pass (its status) is
 *                       the end at once
 */
#include "connect.h"

#include "client/base/clock.h"
#include "core/base/full.h"
#include "core/base/open.h"
#include "core/base/root.h"
#include "core/local/ends.h"
#include "core/local/packet.h"
#include "core/store/store_tmpfs.h"
#include "inside.h"
#include "link_parts.h"
#include "spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define RETRY_MS 10
#define GRACE_MS 3000 /* after our engine ended, for a reason that may pass: for a faster one */
#define WORDS    (HEARTH_ERROR_TEXT + 40)
/* If our engine met the lock of an engine that was ending, we start another one: AGAIN_MS later,
 * and each time later by as much, up to AGAIN times AGAIN_MS. */
#define AGAIN_MS 200
#define AGAIN    5
#define KILLED   3 /* engines that ended and printed nothing, before we report it */

/* `.hearth/`, through no link below the root; -1 and errno. */
static int records_open(const struct hearth *h)
{
    int root, fd, why;

    if (hth_root_open(h->opts.root, O_PATH, &root, NULL))
        return -1;
    fd = hth_open_below(root, h->records + strlen(h->opts.root) + 1, O_PATH | O_DIRECTORY, 0);
    why = errno;
    close(root);
    errno = why;
    return fd;
}

/* A directory of the job may not be entered: whose is it? */
static int sock_denied(const struct hearth *h, int why, struct hearth_error *err)
{
    unsigned we = (unsigned)geteuid();
    struct stat st;
    int root, seen;

    if (hth_root_open(h->opts.root, O_PATH, &root, err))
        return HEARTH_EENGINE;
    seen = !fstatat(root, h->opts.job, &st, AT_SYMLINK_NOFOLLOW);
    close(root);
    if (seen && st.st_uid != we)
        return hth_fail(err, HEARTH_EENGINE, why,
                "job '%s' in %.200s belongs to user %u, and this rank runs as user %u: run all "
                "ranks and the engine of a job as one user, or give this job another name or root",
                h->opts.job, h->opts.root, (unsigned)st.st_uid, we);
    return hth_fail(err, HEARTH_EENGINE, why,
            "%s/sock: %s to user %u, whose job it is: chmod -R u+rwX,go-w %.200s/%s, or end the "
            "engine that made it",
            h->records, strerrordesc_np(why), we, h->opts.root, h->opts.job);
}

/* 0 and a socket; or an errno. */
static int sock_try(const struct hearth *h, int *out_fd)
{
    int records = records_open(h), e;

    if (records < 0)
        return errno;
    e = hth_packet_dial(records, out_fd);
    close(records);
    return e;
}

/* The process that listens there must run as our user or as root. */
static int sock_check_peer(const struct hearth *h, int fd, struct hearth_error *err)
{
    struct ucred peer;
    socklen_t len = sizeof(peer);

    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) != 0)
        return hth_fail(err, HEARTH_EENGINE, errno, "%s/sock: %s", h->records, strerror(errno));
    if (peer.uid != geteuid() && peer.uid != 0)
        return hth_fail(err, HEARTH_EAUTH, 0,
                "%s/sock is served by user %u, but we are user %u: run ranks and engine as one "
                "user, or use a root folder of your own",
                h->records, (unsigned)peer.uid, (unsigned)geteuid());
    return HEARTH_OK;
}

/* The last line of a file from `fd` on; "" where there is none. */
static void engine_last_line(int fd, char *text, size_t len)
{
    off_t end = fd >= 0 ? lseek(fd, 0, SEEK_END) : 0;
    off_t from = end > (off_t)len - 1 ? end - (off_t)len + 1 : 0;
    ssize_t n = end > 0 ? pread(fd, text, len - 1, from) : 0;
    char *line;

    while (n > 0 && (text[n - 1] == '\n' || text[n - 1] == '\0'))
        n--;
    text[n > 0 ? n : 0] = '\0';
    line = strrchr(text, '\n');
    if (line)
        memmove(text, line + 1, strlen(line + 1) + 1);
}

/* The line by which hearthd says how it ended. A library that it has loaded may print more after
 * it. 0: there is none. */
static int engine_end_line(int words, char text[WORDS])
{
    char all[8192];
    off_t size = words >= 0 ? lseek(words, 0, SEEK_END) : 0;
    ssize_t n = size > 0 ? pread(words, all, sizeof(all) - 1,
                                   size < (off_t)sizeof(all) ? 0 : size - (off_t)sizeof(all) + 1)
                         : 0;
    const char *at;

    all[n > 0 ? n : 0] = '\0';
    at = strstr(all, HTH_END_LINE);
    if (at)
        snprintf(text, WORDS, "%.*s", (int)strcspn(at, "\n"), at);
    return at != NULL;
}

/* The last words of hearthd, and its exit status; -1: it printed none. */
static const char *engine_printed(int words, char text[WORDS], int *out_status)
{
    size_t len = strlen(HTH_END_LINE);
    char *end;

    *out_status = -1;
    if (!engine_end_line(words, text)) {
        engine_last_line(words, text, WORDS);
        return text;
    }
    *out_status = (int)strtol(text + len, &end, 10);
    return end + strspn(end, ": ");
}

/* The last words of the engine: from its standard error, else from its log. */
static const char *engine_last_words(const struct hearth *h, int words, char text[WORDS])
{
    int records, log, status;
    const char *printed = engine_printed(words, text, &status);

    if (printed[0])
        return printed;
    records = records_open(h);
    log = records < 0 ? -1 : hth_open_file(records, "log", O_RDONLY);
    if (log >= 0) {
        engine_last_line(log, text, WORDS);
        close(log);
    }
    if (records >= 0)
        close(records);
    return text[0] ? text : "it wrote no reason";
}

struct search {
    int started;
    int pidfd, words; /* of the process that we started */
    uint64_t ended;   /* when our engine was seen to end; 0: it was not */
    unsigned again;   /* engines started after the first */
};

static int lock_is_held(const struct hearth *h)
{
    struct hth_lock_holder holder = { 0 };

    return !hth_store_locked(h->opts.root, h->opts.job, &holder, NULL) && holder.held;
}

/* No engine listens, so an engine that has the lock will serve soon, or it ends, as the engine of a
 * dropped job does when its memory is free: looked at again until the deadline. */
static int search_start_inside(struct hearth *h, struct search *s, struct hearth_error *err)
{
    int rc = lock_is_held(h) ? HEARTH_ELOCKED : hth_inside_start(h, err);

    s->started = rc != HEARTH_ELOCKED;
    return s->started ? rc : HEARTH_OK;
}

static int search_start(
        struct hearth *h, struct search *s, uint64_t until, struct hearth_error *err)
{
    int may = 1;

    if (s->started)
        return HEARTH_OK;
    if (h->opts.start == HEARTH_START_IN_PROCESS)
        return search_start_inside(h, s, err);
    if (h->opts.start == HEARTH_START_AUTO)
        may = hth_fallen_may_start(&h->link->fallen, hth_mono_ms(), h->records, err);
    if (may <= 0)
        return may;
    s->started = 1;
    if (h->opts.start == HEARTH_START_NEVER && !h->link->incarnation)
        return hth_fail(err, HEARTH_EENGINE, 0,
                "no engine serves job '%s' at %s/sock: start hearthd on this node, or open with "
                "start = auto",
                h->opts.job, h->records);
    if (h->opts.start == HEARTH_START_NEVER)
        return HEARTH_OK;
    return hth_spawn(h, until, &s->pidfd, &s->words, err);
}

/* An engine that was killed keeps its lock until its last thread is gone, one that was dropped
 * until its memory is free; neither serves any more. The engine that we started meanwhile ends and
 * prints whose lock it met. If it prints nothing it was killed itself, as by a script that ends
 * the old engine. */
static void search_start_again(const struct hearth *h, struct search *s, uint64_t now)
{
    uint64_t nap_ms = (uint64_t)AGAIN_MS * (s->again < AGAIN ? s->again + 1 : AGAIN);
    char words[WORDS];
    int status;

    if (!s->ended)
        return;
    if (lock_is_held(h)) { /* one that reads a full memory before it serves may take long */
        s->ended = now;
        return;
    }
    if (now < s->ended + nap_ms)
        return;
    if (engine_printed(s->words, words, &status)[0] ? status != HTH_END_LOCKED
                                                    : s->again + 1 >= KILLED)
        return;
    if (s->words >= 0)
        close(s->words);
    if (s->pidfd >= 0)
        close(s->pidfd);
    *s = (struct search){ .pidfd = -1, .words = -1, .again = s->again + 1 };
}

static int search_locked_out(const struct hearth *h, struct hearth_error *err)
{
    struct hth_lock_holder holder = { 0 };
    char who[HTH_LOCK_HOLDER_TEXT];

    (void)hth_store_locked(h->opts.root, h->opts.job, &holder, NULL);
    return hth_fail(err, HEARTH_ELOCKED, 0,
            "the engine %s%s has %s and neither serves nor ends; end that one first",
            holder.pid > 0 ? "with " : "", hth_lock_holder_text(&holder, who), h->records);
}

static int search_refused(const struct search *s)
{
    char words[WORDS];
    int status;

    (void)engine_printed(s->words, words, &status);
    return status == HTH_END_REFUSED;
}

static int search_go_on(
        struct hearth *h, struct search *s, uint64_t until, struct hearth_error *err)
{
    struct pollfd p = { .fd = s->pidfd, .events = POLLIN };
    uint64_t now = hth_mono_ms();
    char words[WORDS];

    if (h->opts.start == HEARTH_START_AUTO && s->started && !s->ended &&
            (s->pidfd == -1 || (poll(&p, 1, 0) > 0 && (p.revents & POLLIN))))
        s->ended = now;
    search_start_again(h, s, now);
    if (s->ended && (now > s->ended + GRACE_MS || search_refused(s)))
        return hth_fail(err, HEARTH_EENGINE, 0,
                "hearthd ended as soon as it was started for %s: %.300s", h->records,
                engine_last_words(h, s->words, words));
    if (now >= until && h->opts.start == HEARTH_START_IN_PROCESS && !s->started)
        return search_locked_out(h, err);
    if (now >= until)
        return hth_fail(err, HEARTH_EENGINE, 0,
                "no engine answers at %s/sock: %.300s (its log is %s/log)", h->records,
                engine_last_words(h, s->words, words), h->records);
    return HEARTH_OK;
}

int hth_connect(struct hearth *h, uint64_t until, int *out_fd, struct hearth_error *err)
{
    static const struct timespec nap = { .tv_nsec = RETRY_MS * 1000000L };
    struct search s = { .pidfd = -1, .words = -1 };
    int fd = -1, e, rc = HEARTH_OK;

    hth_inside_share(h);
    while ((e = sock_try(h, &fd)) != 0) {
        if (e == EACCES || e == EPERM)
            rc = sock_denied(h, e, err);
        else if (e != ENOENT && e != ECONNREFUSED && e != EAGAIN && e != EINTR)
            rc = hth_fail(err, HEARTH_EENGINE, e, "%s/sock: %s%s", h->records, strerrordesc_np(e),
                    hth_limit_text(e));
        if (!rc && e != EAGAIN && e != EINTR)
            rc = search_start(h, &s, until, err);
        if (!rc)
            rc = search_go_on(h, &s, until, err);
        if (rc)
            break;
        nanosleep(&nap, NULL);
    }
    if (s.pidfd >= 0)
        close(s.pidfd);
    if (s.words >= 0)
        close(s.words);
    if (!rc && (rc = sock_check_peer(h, fd, err)))
        close(fd);
    if (rc)
        return rc;
    hth_fallen_serves(&h->link->fallen, fd, hth_mono_ms());
    *out_fd = fd;
    return HEARTH_OK;
}
