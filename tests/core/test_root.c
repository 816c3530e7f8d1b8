/* SPDX-License-Identifier: Apache-2.0 */
/* Roots that another user may exchange are refused with a sentence; links of root's and of one's
 * own are followed. */
#include "check.h"

#include "core/base/root.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define STRANGER 65533

static char base[64];

static const char *at(const char *name)
{
    static char path[2][160];
    static int turn;

    turn = !turn;
    snprintf(path[turn], sizeof(path[turn]), "%s/%s", base, name);
    return path[turn];
}

static void make(void)
{
    snprintf(base, sizeof(base), "/tmp/hearth-root-XXXXXX");
    cr_assert(ne(ptr, mkdtemp(base), NULL));
    cr_assert(zero(int, mkdir(at("mem"), 0700)));
    cr_assert(zero(int, mkdir(at("mem/deep"), 0700)));
    cr_assert(zero(int, symlink("mem", at("to-mem"))));
    cr_assert(zero(int, symlink(at("to-mem/deep/.."), at("absolute"))));
    cr_assert(zero(int, symlink("loop", at("loop"))));
    close(open(at("file"), O_CREAT | O_WRONLY, 0600));
}

static void away(void)
{
    char command[96];

    snprintf(command, sizeof(command), "rm -rf %s", base);
    cr_assert(zero(int, system(command)));
}

TestSuite(root, .init = make, .fini = away, .timeout = 30);

/* It is `mem`. */
static void must_reach(const char *path)
{
    struct stat want, got;
    int fd = -1;

    must(hth_root_open(path, O_RDONLY, &fd, NULL));
    cr_assert(zero(int, fstat(fd, &got) | stat(at("mem"), &want)));
    cr_assert(eq(u64, got.st_ino, want.st_ino), "%s", path);
    cr_assert(eq(int, fcntl(fd, F_GETFD), FD_CLOEXEC));
    close(fd);
}

static void must_refuse(const char *path, int code, int why, const char *says)
{
    struct hearth_error err = { 0 };
    int fd = 77;

    must_fail(hth_root_open(path, O_PATH, &fd, &err), code);
    cr_assert(eq(int, errno, why), "%s: %s", path, err.text);
    cr_assert(eq(int, fd, 77));
    cr_assert(ne(ptr, strstr(err.text, says), NULL), "%s", err.text);
}

Test(root, ours_is_opened_by_any_name)
{
    char proc[64];
    int fd = open(at("mem"), O_PATH | O_CLOEXEC);

    must_reach(at("mem"));
    must_reach(at("mem/"));
    must_reach(at("mem//./deep/.."));
    must_reach(at("to-mem"));
    must_reach(at("absolute"));
    snprintf(proc, sizeof(proc), "/proc/self/fd/%d", fd);
    must_reach(proc);
    cr_assert(zero(int, unlink(at("to-mem")) | unlink(at("absolute"))));
    must_reach(proc);
    cr_assert(zero(int, chdir(base)));
    must_reach("mem");
    cr_assert(zero(int, chdir("mem/deep")));
    must_reach("..");
}

Test(root, what_is_not_there_or_no_directory_is_said)
{
    must_refuse(at("none"), HEARTH_ENOENT, ENOENT, "mount a tmpfs there");
    must_refuse(at("mem/none"), HEARTH_ENOENT, ENOENT, "none");
    must_refuse("", HEARTH_ENOENT, ENOENT, "cannot open root ''");
    must_refuse(at("file"), HEARTH_ENOENT, ENOTDIR, "is not a directory");
    must_refuse(at("file/deep"), HEARTH_ENOENT, ENOTDIR, "is not a directory");
    must_refuse(at("loop"), HEARTH_EIO, ELOOP, "Too many levels");
}

Test(root, one_that_every_user_may_write_to_needs_the_sticky_bit)
{
    cr_assert(zero(int, chmod(at("mem"), 0777)));
    must_refuse(at("mem"), HEARTH_EINVAL, EPERM, "has mode 0777");
    must_refuse(at("to-mem"), HEARTH_EINVAL, EPERM, "set the sticky bit");
    cr_assert(zero(int, chmod(at("mem"), 0702)));
    must_refuse(at("mem"), HEARTH_EINVAL, EPERM, "has mode 0702");
    cr_assert(zero(int, chmod(at("mem"), 01777)));
    must_reach(at("mem"));
    cr_assert(zero(int, chmod(at("mem"), 0775)));
    must_reach(at("mem"));
    cr_assert(zero(int, chmod(base, 0777)));
    must_reach(at("mem"));
}

Test(root, no_link_of_another_user_is_followed)
{
    if (geteuid() != 0) {
        away(); /* Criterion runs no .fini after a skip */
        cr_skip_test("needs root, to give links away");
    }
    cr_assert(zero(int, lchown(at("to-mem"), STRANGER, STRANGER)));
    must_refuse(at("to-mem"), HEARTH_EINVAL, EPERM, "the link 'to-mem' of user 65533");
    must_refuse(at("to-mem/deep"), HEARTH_EINVAL, EPERM, "the link 'to-mem' of user 65533");
    must_refuse(at("absolute"), HEARTH_EINVAL, EPERM, "the link 'to-mem' of user 65533");
    must_reach(at("mem"));
    cr_assert(zero(int, symlink("mem", at("by-root")) | chmod(base, 0755)));
    cr_assert(zero(int, chown(at("mem"), STRANGER, STRANGER) | seteuid(STRANGER)));
    must_reach(at("to-mem"));
    must_reach(at("by-root"));
    cr_assert(zero(int, seteuid(0) | chown(at("mem"), 65532, 65532) | chmod(at("mem"), 0755) |
                                lchown(at("to-mem"), 65532, 65532) | seteuid(STRANGER)));
    must_refuse(at("to-mem"), HEARTH_EINVAL, EPERM, "of user 65532");
    must_reach(at("mem"));
    cr_assert(zero(int, seteuid(0)));
}
