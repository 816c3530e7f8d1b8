/* SPDX-License-Identifier: Apache-2.0 */
/* The engine's log goes on where its file was removed, or where no descriptor was free for a new
 * one. */
#include "check.h"

#include "engine/driver/hands.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static char root[64];
static int dir;
static struct hth_log_file *file;
static struct hth_log sink;

static void open_log(void)
{
    alarm(60);
    snprintf(root, sizeof(root), "/dev/shm/hearth-log-XXXXXX");
    cr_assert(ne(ptr, mkdtemp(root), NULL));
    dir = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    cr_assert(ge(int, dir, 0));
    must(hth_log_file_make(&file, HEARTH_LOG_INFO, 0, NULL));
    must(hth_log_file_open(file, dir, root, NULL));
    sink = hth_log_file_sink(file);
}

static void close_log(void)
{
    hth_log_file_close(file);
    unlinkat(dir, "log", 0);
    unlinkat(dir, "log.1", 0);
    close(dir);
    cr_assert(zero(int, rmdir(root)));
}

TestSuite(log_file, .init = open_log, .fini = close_log);

/* Lines of about 1 KiB each. */
static void say_lines(int count)
{
    char text[1001];

    memset(text, 'x', 1000);
    text[1000] = '\0';
    for (int i = 0; i < count; i++)
        sink.emit(sink.self, HEARTH_LOG_INFO, "fill", text);
}

static int log_has(const char *part)
{
    char line[4096];
    FILE *f = fdopen(openat(dir, "log", O_RDONLY | O_CLOEXEC), "r");
    int found = 0;

    while (f && !found && fgets(line, sizeof(line), f))
        found = strstr(line, part) != NULL;
    if (f)
        fclose(f);
    return found;
}

Test(log_file, is_made_anew_where_it_was_removed)
{
    say_lines(1);
    cr_assert(zero(int, unlinkat(dir, "log", 0)));
    sink.emit(sink.self, HEARTH_LOG_WARN, "said-after", "the log was removed");
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
    sink.emit(sink.self, HEARTH_LOG_WARN, "said-after", "there are descriptors again");
    cr_assert(eq(int, log_has("said-after"), 1));
    cr_assert(eq(int, log_has("lines before this one are lost"), 1));
    cr_assert(eq(int, log_has(strerrordesc_np(EMFILE)), 1));
}
