/* SPDX-License-Identifier: Apache-2.0 */
/* Names that lead elsewhere, and things that are no files: with openat2(), and where a sandbox
 * refuses it. */
#include "check.h"

#include "core/base/open.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

static char root[64], victim[96];
static int dir;

static void make(void)
{
    static const char *const links[][2] = { { "f", "l" }, { "/etc/passwd", "lout" }, { "d", "ld" },
        { "/etc", "ldout" }, { "..", "d/up" }, { "../outside", "lnone" }, { "loop", "loop" } };
    struct sockaddr_un a = { .sun_family = AF_UNIX };
    int sock = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    alarm(30);
    snprintf(root, sizeof(root), "/tmp/hearth-open-XXXXXX");
    cr_assert(ne(ptr, mkdtemp(root), NULL));
    snprintf(victim, sizeof(victim), "%s/outside", root);
    dir = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    cr_assert(ge(int, dir, 0));
    cr_assert(zero(int, mkdirat(dir, "in", 0700)));
    dir = openat(dir, "in", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    close(openat(dir, "f", O_CREAT | O_WRONLY, 0600));
    cr_assert(zero(int, mkdirat(dir, "d", 0700)));
    close(openat(dir, "d/f", O_CREAT | O_WRONLY, 0600));
    for (size_t i = 0; i < sizeof(links) / sizeof(links[0]); i++)
        cr_assert(zero(int, symlinkat(links[i][0], dir, links[i][1])), "%s", links[i][1]);
    cr_assert(zero(int, mkfifoat(dir, "p", 0600)));
    snprintf(a.sun_path, sizeof(a.sun_path), "%s/in/s", root);
    cr_assert(zero(int, bind(sock, (const struct sockaddr *)&a, sizeof(a))));
    close(sock);
}

static void away(void)
{
    char command[96];

    snprintf(command, sizeof(command), "rm -rf %s", root);
    cr_assert(zero(int, system(command)));
}

TestSuite(open, .init = make, .fini = away);

static const char long_name[] =
        "d/123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890"
        "123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890"
        "123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890";

static const struct row {
    const char *name;
    int why;             /* of a file that is read; 0: it opens */
    int directory, path; /* of a directory; of whatever it is, by O_PATH */
    int made;            /* of a file that is written, and made where there is none */
} rows[] = {
    { "f", 0, ENOTDIR, 0, 0 },
    { "d/f", 0, ENOTDIR, 0, 0 },
    { "./d/.//f", 0, ENOTDIR, 0, 0 },
    { "d", EINVAL, 0, 0, EINVAL },
    { ".", EINVAL, 0, 0, EINVAL },
    { "p", EINVAL, ENOTDIR, 0, EINVAL },
    { "s", EINVAL, ENOTDIR, 0, EINVAL },
    { "l", ELOOP, ELOOP, ELOOP, ELOOP },
    { "lout", ELOOP, ELOOP, ELOOP, ELOOP },
    { "lnone", ELOOP, ELOOP, ELOOP, ELOOP },
    { "loop", ELOOP, ELOOP, ELOOP, ELOOP },
    { "ld", ELOOP, ELOOP, ELOOP, ELOOP },
    { "ld/f", ELOOP, ELOOP, ELOOP, ELOOP },
    { "ldout/passwd", ELOOP, ELOOP, ELOOP, ELOOP },
    { "d/up", ELOOP, ELOOP, ELOOP, ELOOP },
    { "d/up/f", ELOOP, ELOOP, ELOOP, ELOOP },
    { "..", EXDEV, EXDEV, EXDEV, EXDEV },
    { "../outside", EXDEV, EXDEV, EXDEV, EXDEV },
    { "d/../f", EXDEV, EXDEV, EXDEV, EXDEV },
    { "d/..", EXDEV, EXDEV, EXDEV, EXDEV },
    { "/etc/passwd", EXDEV, EXDEV, EXDEV, EXDEV },
    { "f/f", ENOTDIR, ENOTDIR, ENOTDIR, ENOTDIR },
    { "none/f", ENOENT, ENOENT, ENOENT, ENOENT },
    { "", ENOENT, ENOENT, ENOENT, ENOENT },
    { long_name, ENAMETOOLONG, ENAMETOOLONG, ENAMETOOLONG, ENAMETOOLONG },
};

static void must_be(const char *name, const char *what, int fd, int why)
{
    int got = fd < 0 ? errno : 0;

    cr_assert(eq(int, got, why), "'%.80s' as a %s: %s, not %s", name, what, strerrorname_np(got),
            strerrorname_np(why));
    if (fd < 0)
        return;
    cr_assert(eq(int, fcntl(fd, F_GETFD), FD_CLOEXEC), "'%s' goes to children", name);
    close(fd);
}

static void each_row(void)
{
    int before = dup(dir), after;

    close(before);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct row *r = &rows[i];

        must_be(r->name, "file", hth_open_file(dir, r->name, O_RDONLY), r->why);
        must_be(r->name, "directory", hth_open_below(dir, r->name, O_RDONLY | O_DIRECTORY, 0),
                r->directory);
        must_be(r->name, "path", hth_open_below(dir, r->name, O_PATH, 0), r->path);
        must_be(r->name, "file that is made", hth_open_file(dir, r->name, O_WRONLY | O_CREAT),
                r->made);
    }
    cr_assert(ne(int, access(victim, F_OK), 0), "a file was made outside");
    must_be("new", "file", hth_open_below(dir, "new", O_RDWR | O_CREAT | O_EXCL, 0640), 0);
    must_be("new", "file", hth_open_below(dir, "new", O_RDWR | O_CREAT | O_EXCL, 0640), EEXIST);
    must_be("l", "file", hth_open_below(dir, "l", O_RDWR | O_CREAT | O_EXCL, 0640), EEXIST);
    must_be("d/new", "file", hth_open_file(dir, "d/new", O_WRONLY | O_CREAT), 0);
    after = dup(dir);
    cr_assert(eq(int, after, before), "a descriptor stays open");
}

Test(open, a_name_leads_to_a_file_below_or_nowhere)
{
    struct stat st;

    each_row();
    cr_assert(zero(int, fstatat(dir, "new", &st, 0)));
    cr_assert(eq(int, (int)(st.st_mode & 0777), 0640));
    cr_assert(zero(int, fstatat(dir, "d/new", &st, 0)));
    cr_assert(eq(int, (int)(st.st_mode & 0777), 0600));
}

/* From now on openat2() of this process ends so. */
static void refuse_openat2(unsigned why)
{
    struct sock_filter program[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat2, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | why),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = { .len = sizeof(program) / sizeof(program[0]), .filter = program };

    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
            prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter))
        cr_skip_test("no seccomp here");
    errno = 0;
    cr_assert(eq(int, (int)syscall(SYS_openat2, dir, "f", NULL, 0), -1));
    cr_assert(eq(int, errno, (int)why));
}

Test(open, the_same_where_the_kernel_has_no_openat2)
{
    refuse_openat2(ENOSYS);
    each_row();
}

Test(open, the_same_where_a_sandbox_refuses_openat2)
{
    refuse_openat2(EPERM);
    each_row();
}

/* The errno of Linux for a file that another process moves out of the directory during the
 * look-up. */
Test(open, what_is_moved_out_during_the_look_up_is_not_there)
{
    refuse_openat2(EXDEV);
    must_be("d/f", "file", hth_open_below(dir, "d/f", O_RDONLY, 0), ENOENT);
    must_be("d", "directory", hth_open_below(dir, "d", O_PATH | O_DIRECTORY, 0), ENOENT);
    must_be("d/../f", "file", hth_open_below(dir, "d/../f", O_RDONLY, 0), EXDEV);
}

Test(open, links_of_the_kernel_s_are_links)
{
    int proc = hth_open_named("/proc/self", O_PATH | O_DIRECTORY);

    cr_assert(ge(int, proc, 0));
    must_be("fd/0", "link", hth_open_below(proc, "fd/0", O_RDONLY, 0), ELOOP);
    must_be("root", "link", hth_open_below(proc, "root/etc", O_PATH, 0), ELOOP);
    refuse_openat2(ENOSYS);
    must_be("fd/0", "link", hth_open_below(proc, "fd/0", O_RDONLY, 0), ELOOP);
    must_be("root", "link", hth_open_below(proc, "root/etc", O_PATH, 0), ELOOP);
}

Test(open, what_is_open_is_opened_again_listed_and_left_upwards)
{
    int fd = hth_open_file(dir, "f", O_RDWR), again = hth_open_again(fd, O_RDONLY), entries = 0;
    int up = hth_open_parent(dir);
    struct stat a, b;
    DIR *list;

    cr_assert(eq(int, again >= 0 && !fstat(fd, &a) && !fstat(again, &b), 1));
    cr_assert(eq(ulong, a.st_ino, b.st_ino));
    cr_assert(eq(int, fcntl(again, F_GETFL) & O_ACCMODE, O_RDONLY));
    cr_assert(eq(int, (int)write(again, "x", 1), -1));
    for (int twice = 0; twice < 2; twice++) { /* each from the first entry */
        list = hth_open_list(dir);
        cr_assert(ne(ptr, list, NULL));
        while (readdir(list))
            entries++;
        closedir(list);
    }
    cr_assert(eq(int, entries, 2 * (2 + 10)));
    must_be("in", "directory", hth_open_below(up, "in", O_PATH | O_DIRECTORY, 0), 0);
    cr_assert(eq(ptr, hth_open_list(fd), NULL));
    close(fd);
    close(again);
    close(up);
}
