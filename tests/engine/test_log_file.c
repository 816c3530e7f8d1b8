/* SPDX-License-Identifier: Apache-2.0 */
/* The engine's log: no line is cut, what is lost is counted and reported, and the system log gets
 * warnings and errors, at most so many a minute. */
#include "check.h"

#include "engine/driver/hands.h"
#include "engine/driver/log.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

static char root[64], socket_path[96];
static int dir;
static struct hth_logs *file;
static struct hth_log sink;
static uint64_t now_ms = 5000;

static uint64_t told_now(void *self)
{
    (void)self;
    return now_ms;
}

static uint64_t told_wall(void *self)
{
    (void)self;
    return 1795977971677 + now_ms; /* 2026-11-29T18:46:11.677Z */
}

static void make_log(const char *to, int json)
{
    struct hth_logs_opts opts = { .to = to,
        .level = HEARTH_LOG_INFO,
        .json = json,
        .job = "j\"1",
        .node = "n0",
        .clock = { told_now, told_wall, NULL } };

    hth_logs_close(file);
    file = NULL;
    must(hth_logs_make(&file, &opts, NULL));
    must(hth_logs_open(file, dir, root, NULL));
    sink = hth_logs_sink(file);
}

static void open_log(void)
{
    alarm(60);
    signal(SIGXFSZ, SIG_IGN);
    snprintf(root, sizeof(root), "/dev/shm/hearth-log-XXXXXX");
    cr_assert(ne(ptr, mkdtemp(root), NULL));
    snprintf(socket_path, sizeof(socket_path), "%s/system", root);
    dir = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    cr_assert(ge(int, dir, 0));
    make_log("file", 0);
}

static void close_log(void)
{
    hth_logs_close(file);
    unlinkat(dir, "log", 0);
    unlinkat(dir, "log.1", 0);
    unlinkat(dir, "named", 0);
    unlinkat(dir, "named.old", 0);
    unlinkat(dir, "system", 0);
    close(dir);
    cr_assert(zero(int, rmdir(root)));
}

TestSuite(log_file, .init = open_log, .fini = close_log);

static void say(enum hearth_log_level level, const char *event, const char *text)
{
    sink.emit(sink.self, level, event, text);
}

/* Lines of about 1 KiB each. */
static void say_lines(int count)
{
    char text[1001];

    memset(text, 'x', 1000);
    text[1000] = '\0';
    for (int i = 0; i < count; i++)
        say(HEARTH_LOG_INFO, "fill", text);
}

/* How many lines of the file have this part; bad: how many are not whole. */
static int count_in(const char *name, const char *part, int *bad)
{
    char line[4096];
    FILE *f = fdopen(openat(dir, name, O_RDONLY | O_CLOEXEC), "r");
    int found = 0;

    if (bad)
        *bad = 0;
    while (f && fgets(line, sizeof(line), f)) {
        found += strstr(line, part) != NULL;
        if (bad)
            *bad += strncmp(line, "2026-11-29T", 11) != 0 || line[strlen(line) - 1] != '\n';
    }
    if (f)
        fclose(f);
    return found;
}

static int log_has(const char *part)
{
    return count_in("log", part, NULL) > 0;
}

static struct hth_log_state state_of(void)
{
    struct hth_log_state s;

    hth_log_state(&sink, &s);
    return s;
}

Test(log_file, is_made_anew_where_it_was_removed)
{
    say_lines(1);
    cr_assert(zero(int, unlinkat(dir, "log", 0)));
    say(HEARTH_LOG_WARN, "said-after", "the log was removed");
    cr_assert(eq(int, log_has("said-after"), 1));
}

Test(log_file, is_opened_again_when_a_descriptor_is_free_and_says_how_many_lines_are_lost)
{
    struct rlimit all, none;

    say_lines(1);
    cr_assert(zero(int, getrlimit(RLIMIT_NOFILE, &all)));
    none = (struct rlimit){ .rlim_cur = 0, .rlim_max = all.rlim_max };
    cr_assert(zero(int, setrlimit(RLIMIT_NOFILE, &none)));
    say_lines(5000); /* more than one file holds */
    cr_assert(zero(int, setrlimit(RLIMIT_NOFILE, &all)));
    say(HEARTH_LOG_WARN, "said-after", "there are descriptors again");
    cr_assert(eq(int, log_has("said-after"), 1));
    cr_assert(eq(int, log_has("lines before this one are lost"), 1));
    cr_assert(eq(int, log_has(strerrordesc_np(EMFILE)), 1));
}

/* A file may have `bytes`. */
static void limit(rlim_t bytes)
{
    struct rlimit now;

    cr_assert(zero(int, getrlimit(RLIMIT_FSIZE, &now)));
    now.rlim_cur = bytes;
    cr_assert(zero(int, setrlimit(RLIMIT_FSIZE, &now)));
}

/* The kernel writes the part of a line that fits, as a tmpfs does when its last page is full. */
Test(log_file, a_line_that_does_not_fit_leaves_no_part_of_it)
{
    struct stat before, after;
    int bad;

    say_lines(2);
    cr_assert(zero(int, fstatat(dir, "log", &before, 0)));
    limit((rlim_t)before.st_size + 500);
    say_lines(3);
    cr_assert(zero(int, fstatat(dir, "log", &after, 0)));
    cr_assert(eq(long, (long)after.st_size, (long)before.st_size));
    cr_assert(eq(u64, state_of().lost, 3));
    cr_assert(eq(u64, state_of().lost_now, 3));
    cr_assert(eq(int, state_of().why, EFBIG));
    limit(RLIM_INFINITY);
    say(HEARTH_LOG_INFO, "said-after", "there is room again");
    cr_assert(eq(int, count_in("log", "", &bad), 4));
    cr_assert(zero(int, bad));
    cr_assert(eq(int,
            log_has("warn log-lost 3 lines before this one are lost: the log could not be "
                    "written: File too large"),
            1));
    cr_assert(eq(u64, state_of().lost, 3));
    cr_assert(eq(u64, state_of().lost_now, 0));
}

Test(log_file, has_pages_for_the_lines_of_a_full_tmpfs_made_ahead)
{
    struct stat st;

    for (int i = 0; i < 300; i++) {
        say_lines(1);
        cr_assert(zero(int, fstatat(dir, "log", &st, 0)));
        cr_assert(ge(long, (long)st.st_blocks * 512, (long)st.st_size + (30 << 10)));
    }
    cr_assert(le(long, (long)st.st_blocks * 512, (long)st.st_size + (80 << 10)));
}

/* ---- the system log -------------------------------------------------------------------------- */

static int listen_at(const char *path)
{
    struct sockaddr_un a = { .sun_family = AF_UNIX };
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    snprintf(a.sun_path, sizeof(a.sun_path), "%s", path);
    cr_assert(zero(int, bind(fd, (struct sockaddr *)&a, sizeof(a))));
    return fd;
}

static char received[4096];

/* Of what has come: how many datagrams have this part; `received` is the last that has. */
static int drain(int fd, const char *part)
{
    char text[sizeof(received)];
    int found = 0;
    ssize_t n;

    while ((n = recv(fd, text, sizeof(text) - 1, 0)) >= 0) {
        text[n] = '\0';
        if (!strstr(text, part))
            continue;
        found++;
        strcpy(received, text);
    }
    return found;
}

static void make_system_log(const char *more)
{
    char to[256];

    snprintf(to, sizeof(to), "syslog:%s%s", socket_path, more);
    make_log(to, 0);
}

Test(log_file, warnings_and_errors_are_in_the_system_log_with_job_and_node)
{
    int fd = listen_at(socket_path);
    char want[200];

    make_system_log(",file");
    say(HEARTH_LOG_INFO, "said", "per save");
    say(HEARTH_LOG_WARN, "peer-lost", "node n2 is lost");
    snprintf(want, sizeof(want), "<28>hearthd[%ld]: job j\"1 node n0: peer-lost node n2 is lost",
            (long)getpid());
    cr_assert(eq(int, drain(fd, ""), 1));
    cr_assert(eq(str, received, want));
    say(HEARTH_LOG_ERROR, "engine-ends", "x");
    cr_assert(eq(int, drain(fd, "<27>hearthd["), 1));
    cr_assert(eq(int, log_has("warn peer-lost node n2 is lost"), 1));
    close(fd);
}

/* One line at a time, since the kernel lets only a few wait. */
static int flood(int fd, int lines)
{
    int came = 0;

    for (int i = 0; i < lines; i++) {
        say(HEARTH_LOG_WARN, "storm", "x");
        came += drain(fd, "storm");
    }
    return came;
}

Test(log_file, a_storm_of_warnings_is_60_lines_a_minute_and_the_others_are_counted)
{
    int fd = listen_at(socket_path);

    make_system_log(",file");
    cr_assert(eq(int, flood(fd, 1000), 60));
    cr_assert(eq(u64, state_of().held_back, 940));
    cr_assert(eq(int, count_in("log", "storm", NULL), 1000));
    now_ms += 59999;
    cr_assert(eq(int, flood(fd, 1), 0));
    now_ms += 1;
    say(HEARTH_LOG_INFO, "save", "the next line has the count, whatever its level");
    cr_assert(eq(int, drain(fd, "log-held-back 941 warnings and errors"), 1));
    cr_assert(eq(int, flood(fd, 1000), 59));
    close(fd);
}

Test(log_file, a_system_log_that_is_missing_or_does_not_read_is_no_wait_and_no_error)
{
    int fd;

    make_system_log("");
    say(HEARTH_LOG_WARN, "storm", "x");
    cr_assert(eq(u64, state_of().unsent, 1));
    fd = listen_at(socket_path);
    say(HEARTH_LOG_WARN, "storm", "x");
    cr_assert(eq(int, drain(fd, "storm"), 1));
    close(fd); /* it is started again */
    cr_assert(zero(int, unlinkat(dir, "system", 0)));
    fd = listen_at(socket_path);
    say(HEARTH_LOG_WARN, "storm", "x");
    cr_assert(eq(int, drain(fd, "storm"), 1));
    for (int minute = 0; minute < 50; minute++, now_ms += 60000)
        for (int i = 0; i < 60; i++)
            say(HEARTH_LOG_WARN, "storm", "x");
    cr_assert(gt(u64, state_of().unsent, 1)); /* it has a queue, which is full */
    close(fd);
}

Test(log_file, the_first_line_that_a_full_log_loses_is_in_the_system_log)
{
    int fd = listen_at(socket_path);

    make_system_log(",file");
    say_lines(1);
    limit(1100);
    say_lines(3);
    limit(RLIM_INFINITY);
    cr_assert(eq(int, drain(fd, "log-lost lines are lost from here on"), 1));
    cr_assert(ne(ptr, strstr(received, "File too large"), NULL));
    close(fd);
}

/* ---- other places, JSON, level --------------------------------------------------------------- */

Test(log_file, a_line_of_json_is_one_object_whatever_the_text_is)
{
    make_log("file", 1);
    say(HEARTH_LOG_WARN, "peer-lost", "node \"n2\"\nis lost: 50 \xff");
    cr_assert(eq(int,
            log_has("{\"time\": \"2026-11-29T18:46:16.677Z\", \"level\": \"warn\", \"event\": "
                    "\"peer-lost\", \"job\": \"j\\\"1\", \"node\": \"n0\", \"text\": \"node "
                    "\\\"n2\\\"\\u000ais lost: 50 ?\"}\n"),
            1));
}

Test(log_file, a_file_that_is_named_is_appended_to_and_followed_when_it_is_renamed)
{
    char to[128];
    struct hearth_error err;
    struct hth_logs *other = NULL;
    struct hth_logs_opts opts = { .to = to, .clock = { told_now, told_wall, NULL } };

    snprintf(to, sizeof(to), "%s/named", root);
    make_log(to, 0);
    say(HEARTH_LOG_INFO, "one", "x");
    cr_assert(zero(int, renameat(dir, "named", dir, "named.old")));
    say(HEARTH_LOG_INFO, "two", "x");
    cr_assert(eq(int, count_in("named.old", " one ", NULL), 1));
    cr_assert(eq(int, count_in("named", "", NULL), 1));
    cr_assert(eq(int, count_in("named", " two ", NULL), 1));
    for (int i = 0; i < 5000; i++)
        say(HEARTH_LOG_INFO, "many", "it is not turned over: it belongs to the operator");
    cr_assert(eq(int, count_in("named", "", NULL), 5001));
    snprintf(to, sizeof(to), "%s/missing/named", root);
    must_fail(hth_logs_make(&other, &opts, &err), HEARTH_EIO);
    cr_assert(ne(ptr, strstr(err.text, "missing/named"), NULL), "%s", err.text);
}

Test(log_file, its_level_can_be_changed)
{
    say(HEARTH_LOG_DEBUG, "before", "x");
    cr_assert(eq(int, (int)state_of().level, HEARTH_LOG_INFO));
    sink.set_level(sink.self, HEARTH_LOG_DEBUG);
    say(HEARTH_LOG_DEBUG, "after", "x");
    cr_assert(eq(int, (int)state_of().level, HEARTH_LOG_DEBUG));
    cr_assert(eq(int, log_has("before"), 0));
    cr_assert(eq(int, log_has("debug after x"), 1));
}

Test(log_file, a_list_with_a_word_that_is_none_is_refused_by_that_word)
{
    struct hearth_error err;

    must(hth_logs_check("file,syslog,stderr,/var/log/x,syslog:/run/x", &err));
    must_fail(hth_logs_check("file,journal", &err), HEARTH_EINVAL);
    cr_assert(ne(ptr, strstr(err.text, "'journal'"), NULL), "%s", err.text);
    must_fail(hth_logs_check("relative/log", &err), HEARTH_EINVAL);
    must_fail(hth_logs_check("/a,/b,/c,/d", &err), HEARTH_EINVAL);
}
