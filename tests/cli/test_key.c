/* SPDX-License-Identifier: Apache-2.0 */
/* `hearth key`, as an administrator uses it. */
#include "command.h"

#include <sys/stat.h>

TestSuite(key, .init = make_root, .fini = remove_root);

/* 1: the output has no digits of the file's keys. */
static int key_is_unsaid(const char *path)
{
    char text[140] = "", first[17];

    slurp(path, text, sizeof(text));
    snprintf(first, sizeof(first), "%.16s", text);
    return strlen(text) >= 65 && !has(out, first) && !has(err_text, first);
}

Test(key, it_is_made_once_and_changed_in_steps)
{
    char path[128], was[140], now[140], rest[300];
    struct stat st;

    snprintf(path, sizeof(path), "%s/job.key", root);
    cr_assert(zero(int, hearth("key", "new", path)), "%s", err_text);
    cr_assert(zero(int, stat(path, &st)));
    cr_assert(st.st_size == 65 && (st.st_mode & 07777) == 0600 && key_is_unsaid(path));
    slurp(path, was, sizeof(was));
    cr_assert(ne(int, hearth("key", "new", path), 0), "it was written over");
    cr_assert(eq(int, has(err_text, "is there already"), 1), "%s", err_text);
    cr_assert(eq(int, hearth("key", "rotate", path), 1));
    cr_assert(eq(int, hearth("key", "drop", path), 1));
    slurp(path, now, sizeof(now));
    cr_assert(eq(str, now, was));

    cr_assert(zero(int, hearth("key", "add", path)), "%s", err_text);
    slurp(path, now, sizeof(now));
    cr_assert(eq(int, strncmp(now, was, 65), 0));
    cr_assert(eq(sz, strlen(now), 130));
    cr_assert(key_is_unsaid(path) && has(out, "dials and proves") && has(out, "is taken as well"));
    cr_assert(eq(int, hearth("key", "add", path), 1), "a third one");
    cr_assert(zero(int, hearth("key", "rotate", path)), "%s", err_text);
    snprintf(rest, sizeof(rest), "%s%.65s", now + 65, now);
    slurp(path, now, sizeof(now));
    cr_assert(eq(str, now, rest));
    cr_assert(zero(int, hearth("key", "drop", path)), "%s", err_text);
    slurp(path, now, sizeof(now));
    cr_assert(eq(sz, strlen(now), 65));
    cr_assert(eq(int, strncmp(now, rest, 65), 0), "the old one was kept");
    cr_assert(zero(int, stat(path, &st)));
    cr_assert(eq(uint, st.st_mode & 07777, 0600));
    cr_assert(eq(int, hearth("key", "show", path), 2));
    snprintf(rest, sizeof(rest), "%s.link", path);
    cr_assert(zero(int, symlink(path, rest)));
    cr_assert(eq(int, hearth("key", "add", rest), 1), "a link was followed");
    unlink(rest);
    cr_assert(zero(int, chmod(path, 0644)));
    cr_assert(eq(int, hearth("key", "ls", path), 1), "%s", err_text);
    cr_assert(zero(int, chmod(path, 0600) | truncate(path, 7)));
    cr_assert(eq(int, hearth("key", "rotate", path), 1), "%s", err_text);
    unlink(path);
    cr_assert(eq(int, hearth("key", "ls", path), 3), "%s", err_text);
    cr_assert(eq(int, hearth("key", "drop", path), 3), "%s", err_text);
    cr_assert(eq(int, hearth("key", "ls", "/dev/null/key"), 3), "%s", err_text);
    cr_assert(eq(int, hearth("key", "new", "/nonexistent/key"), 3), "%s", err_text);
    cr_assert(eq(int, hearth("key", "new", "/dev/null/key"), 3), "%s", err_text);
    cr_assert(eq(int, hearth("key", "add", "/dev/null/key"), 3), "%s", err_text);
}
