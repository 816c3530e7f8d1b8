/* SPDX-License-Identifier: Apache-2.0 */
/* An engine reads a changed key file as soon as it can be read, whatever prevented that. */
#include "check.h"

#include "engine/driver/key_watch.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char dir[64], path[80];
static struct hth_key_watch *watch;
static uint64_t now_ms;
static int refuses; /* errno; 0: the file is opened */
static unsigned lines;
static char line[1024];

static int opener_open(void *self)
{
    (void)self;
    errno = refuses;
    return refuses ? -1 : open(path, O_RDONLY | O_CLOEXEC);
}

static void hear(void *self, enum hearth_log_level level, const char *event, const char *text)
{
    (void)self;
    (void)level;
    lines += !strcmp(event, "key-unchanged");
    snprintf(line, sizeof(line), "%s", text);
}

static const struct hth_log sink = { .emit = hear };

/* Another file of that name, as `hearth key` makes one. */
static void put_key(void)
{
    unsigned char bytes[HTH_KEY];
    char fresh[90];
    int fd;

    hth_random_bytes(bytes, sizeof(bytes));
    snprintf(fresh, sizeof(fresh), "%s.new", path);
    fd = open(fresh, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    cr_assert(eq(sz, (size_t)write(fd, bytes, sizeof(bytes)), sizeof(bytes)));
    close(fd);
    cr_assert(zero(int, rename(fresh, path)));
}

static void open_watch(void)
{
    struct hth_key_opener opener = { opener_open, NULL };

    alarm(60);
    must(hth_auth_init(NULL));
    snprintf(dir, sizeof(dir), "/dev/shm/hearth-key-XXXXXX");
    cr_assert(ne(ptr, mkdtemp(dir), NULL));
    snprintf(path, sizeof(path), "%s/key", dir);
    put_key();
    must(hth_key_watch_open(path, &opener, &watch, NULL));
}

static void close_watch(void)
{
    hth_key_watch_close(watch);
    unlink(path);
    rmdir(dir);
}

TestSuite(key_watch, .init = open_watch, .fini = close_watch);

static int look(void)
{
    now_ms += 2000;
    return hth_key_watch_look(watch, now_ms, &sink);
}

Test(key_watch, a_key_that_could_not_be_read_for_a_moment_is_read_later)
{
    static const int causes[] = { EMFILE, EIO, ETIMEDOUT };
    uint32_t before;

    for (size_t i = 0; i < sizeof(causes) / sizeof(causes[0]); i++) {
        before = hth_key_watched(watch)->id;
        put_key();
        refuses = causes[i];
        cr_expect(zero(int, look()), "it has not stood still yet");
        for (int k = 0; k < 3; k++)
            cr_expect(zero(int, look()));
        cr_expect(eq(u32, hth_key_watched(watch)->id, before));
        cr_expect(ne(ptr, strstr(line, strerrordesc_np(causes[i])), NULL), "%s", line);
        refuses = 0;
        cr_expect(eq(int, look(), 1), "after %s", strerrordesc_np(causes[i]));
        cr_expect(ne(u32, hth_key_watched(watch)->id, before));
    }
    cr_expect(eq(uint, lines, 3), "each cause is said once");
}

Test(key_watch, a_cause_that_lasts_is_said_once_a_minute)
{
    put_key();
    refuses = EACCES;
    for (int k = 0; k < 2 + 3 * 30; k++)
        look();
    cr_expect(ge(uint, lines, 3));
    cr_expect(le(uint, lines, 4));
    refuses = 0;
    cr_expect(eq(int, look(), 1));
}

Test(key_watch, a_file_that_was_gone_and_is_back_is_no_change)
{
    char beside[90];

    snprintf(beside, sizeof(beside), "%s/beside", dir);
    cr_assert(zero(int, rename(path, beside)));
    refuses = ENOENT;
    look();
    look();
    cr_expect(eq(uint, lines, 1));
    cr_assert(zero(int, rename(beside, path)));
    refuses = 0;
    look();
    cr_expect(zero(int, look()));
    cr_assert(zero(int, rename(path, beside)));
    refuses = ENOENT;
    look();
    look();
    cr_expect(eq(uint, lines, 2), "the second absence is said, too");
    unlink(beside);
}
