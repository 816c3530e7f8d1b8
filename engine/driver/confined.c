/* SPDX-License-Identifier: Apache-2.0 */
/* The ruleset of a thread binds that thread and the threads that it starts, but none of its
 * siblings: each thread confines itself. */
#include "confined.h"

#include "core/base/open.h"
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define TASK_LINKS 2 /* of /proc/self/task; each thread is one more */
#define LATE_MS    10000

static void confined_why_not(struct hth_confined *c, const char *why)
{
    snprintf(c->text, sizeof(c->text), "the process may open any file of its user's: %s", why);
}

static void confined_say(struct hth_confined *c, enum hearth_log_level level)
{
    c->said = 1;
    hth_say(c->log, level, c->is ? "confined" : "unconfined", "%s", c->text);
}

/* How many threads of this process the engine has not started, such as threads of a library that
 * was open before. */
static unsigned confined_others(unsigned own)
{
    int fd = hth_open_kernel("/proc/self/task", O_RDONLY | O_DIRECTORY);
    struct stat st;
    unsigned all = 0;

    if (fd < 0)
        return 0;
    if (!fstat(fd, &st) && st.st_nlink > TASK_LINKS)
        all = (unsigned)st.st_nlink - TASK_LINKS;
    close(fd);
    return all > own ? all - own : 0;
}

/* Writes the state of the confinement as text. 1: each thread has answered. */
static int confined_tell(struct hth_confined *c)
{
    const struct hth_confining *by = c->config->confining;
    struct hth_each e = hth_pool_each_done(c->pool);
    unsigned done = 1 + (by->done ? e.threads : e.done), all = 1 + e.threads + c->others;
    char reason[100] = "they are at work, and follow";

    if (e.failed)
        snprintf(reason, sizeof(reason), "Landlock: %s", strerrordesc_np(e.why));
    else if (done + c->others == all)
        snprintf(reason, sizeof(reason), "a library has started them before tcp was chosen");
    c->all = done == all;
    if (c->all)
        snprintf(c->text, sizeof(c->text), "all %u threads can open %s", all, by->to);
    else
        snprintf(c->text, sizeof(c->text),
                "%u of %u threads can open %s; the others may open any file of the user's: %s",
                done, all, by->to, reason);
    return done + e.failed + c->others == all;
}

void confined_look(struct hth_confined *c)
{
    struct hth_clock clock = hth_system_clock();

    if (!c->is || c->said)
        return;
    if (confined_tell(c))
        confined_say(c, c->all ? HEARTH_LOG_INFO : HEARTH_LOG_WARN);
    else if (!c->late && hth_now_ms(&clock) > c->since_ms + LATE_MS) {
        c->late = 1;
        hth_say(c->log, HEARTH_LOG_WARN, "unconfined", "%s", c->text);
    }
}

void confined_init(struct hth_confined *c, const struct hth_config *config, struct hth_pool *pool,
        const struct hth_log *log)
{
    const struct hth_confining *by = config->confining;

    *c = (struct hth_confined){ .config = config, .pool = pool, .log = log };
    if (!by)
        confined_why_not(c, "the engine is in a rank's process");
    else if (by->against[0])
        confined_why_not(c, by->against);
    else if (!by->done)
        confined_why_not(c, "transport = auto has not settled on tcp yet");
    c->is = by && !by->against[0] && by->done;
}

/* Confines this thread first: threads that it starts from here on are confined as well. */
static void confined_begin(struct hth_confined *c)
{
    const struct hth_confining *by = c->config->confining;
    struct hth_clock clock = hth_system_clock();
    char why[100];
    int e;

    c->others = confined_others(1 + hth_pool_each_done(c->pool).threads);
    if ((e = by->confine(by->self))) {
        snprintf(why, sizeof(why), "Landlock: %s", strerrordesc_np(e));
        confined_why_not(c, why);
        confined_say(c, HEARTH_LOG_WARN);
        return;
    }
    c->is = 1;
    c->since_ms = hth_now_ms(&clock);
    hth_pool_each(c->pool, by->confine, by->self);
    confined_look(c);
}

void confined_settle(struct hth_confined *c, const char *transport)
{
    const struct hth_confining *by = c->config->confining;
    char why[100];

    if (c->said || c->is) {
        confined_look(c);
    } else if (!by || by->against[0]) {
        confined_say(c, HEARTH_LOG_INFO);
    } else if (strcmp(transport, "tcp") == 0) {
        confined_begin(c);
    } else {
        snprintf(why, sizeof(why), "transport %s opens devices and libraries of others", transport);
        confined_why_not(c, why);
        confined_say(c, HEARTH_LOG_INFO);
    }
}
