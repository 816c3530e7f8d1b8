/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `hearth rm` and `clean` while another process exchanges what they remove: as root, in the
 * directory of a user who tries to have root's files removed.
 */
#include "command.h"

#include <dirent.h>
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#define JOB      "train"
#define NOBODY   65534 /* the user whose job it is */
#define STRANGER 65533
#define VICTIMS  2000 /* root's files */
#define DIRS     48   /* each beside a link to them */
#define FILES    8    /* in each */
#ifdef __SANITIZE_ADDRESS__
#define ROUNDS 5 /* it looks at memory, and each round runs the same code */
#else
#define ROUNDS 40 /* the first one is enough where links are followed */
#endif

static char victim[128];

static void make_place(void)
{
    make_root();
    cr_assert(zero(int, chmod(root, 0755)));
    snprintf(victim, sizeof(victim), "%s/victim", root);
}

TestSuite(removal, .init = make_place, .fini = remove_root);

static const char *below(const char *name)
{
    static char path[4][256];
    static int turn;

    turn = (turn + 1) % 4;
    snprintf(path[turn], sizeof(path[turn]), "%s/%s", root, name);
    return path[turn];
}

static void touch(const char *path)
{
    int fd = open(path, O_CREAT | O_WRONLY, 0600);

    cr_assert(ge(int, fd, 0), "%s: %s", path, strerror(errno));
    close(fd);
}

static void put_victims(void)
{
    char path[160];

    cr_assert(zero(int, mkdir(victim, 0755)));
    for (int i = 0; i < VICTIMS; i++) {
        snprintf(path, sizeof(path), "%s/%d", victim, i);
        touch(path);
    }
}

static int count_in(const char *path)
{
    DIR *d = opendir(path);
    int n = -2; /* `.` and `..` */

    while (d && readdir(d))
        n++;
    if (d)
        closedir(d);
    return n;
}

/* A child that is another user; it ends with `work`, or with the test. */
static pid_t as_user(uid_t uid, void (*work)(void))
{
    pid_t pid = fork();

    if (pid == 0) {
        alarm(90);
        if (setresgid(uid, uid, uid) || setresuid(uid, uid, uid))
            _exit(1);
        work();
        _exit(0);
    }
    return pid;
}

static void end(pid_t pid)
{
    int status;

    kill(pid, SIGKILL);
    cr_assert(eq(int, waitpid(pid, &status, 0), pid));
}

static void do_and_wait(uid_t uid, void (*work)(void))
{
    int status = -1;
    pid_t pid = as_user(uid, work);

    cr_assert(eq(int, waitpid(pid, &status, 0), pid));
    cr_assert(zero(int, status));
}

/* The container of a job, full of directories that have a link to root's files beside them. */
static void fill_container(void)
{
    char name[80];

    for (int i = 0; i < DIRS; i++) {
        snprintf(name, sizeof(name), JOB "/step-1_ckpt/d%02d", i);
        mkdir(below(name), 0755);
        snprintf(name, sizeof(name), JOB "/step-1_ckpt/l%02d", i);
        if (symlink(victim, below(name)) && errno != EEXIST)
            _exit(2);
        for (int k = 0; k < FILES; k++) {
            snprintf(name, sizeof(name), JOB "/step-1_ckpt/d%02d/%d", i, k);
            close(open(below(name), O_CREAT | O_WRONLY, 0600));
        }
    }
}

/* The files that an engine leaves beside a save: its lock, and the record of whose the directory
 * is. */
static void mark_job(void)
{
    char name[80], line[64];
    struct stat st;
    int fd;

    mkdir(below(JOB), 0755);
    mkdir(below(JOB "/step-1_ckpt"), 0755);
    mkdir(below(JOB "/.hearth"), 0700);
    close(open(below(JOB "/.hearth/lock"), O_CREAT | O_WRONLY, 0600));
    snprintf(name, sizeof(name), JOB "/.hearth/%016x-%016x-%016x-%08x.dir", 1, 1, 1, 1);
    if (stat(below(JOB "/step-1_ckpt"), &st))
        return; /* the other process exchanges names */
    snprintf(line, sizeof(line), "inode %016llx published\n", (unsigned long long)st.st_ino);
    fd = open(below(name), O_CREAT | O_TRUNC | O_WRONLY, 0600);
    if (fd < 0 || write(fd, line, strlen(line)) < 0)
        _exit(3);
    close(fd);
}

static void make_job(void)
{
    mark_job();
    fill_container();
}

static void exchange_directories(void)
{
    char a[80], b[80];

    for (;;)
        for (int i = 0; i < DIRS; i++) {
            snprintf(a, sizeof(a), JOB "/step-1_ckpt/d%02d", i);
            snprintf(b, sizeof(b), JOB "/step-1_ckpt/l%02d", i);
            renameat2(AT_FDCWD, below(a), AT_FDCWD, below(b), RENAME_EXCHANGE);
        }
}

static void exchange_containers(void)
{
    for (;;)
        renameat2(
                AT_FDCWD, below(JOB "/step-1_ckpt"), AT_FDCWD, below(JOB "/link"), RENAME_EXCHANGE);
}

static void exchange_jobs(void)
{
    for (;;)
        renameat2(AT_FDCWD, below(JOB), AT_FDCWD, below("link"), RENAME_EXCHANGE);
}

static void link_to_containers(void)
{
    make_job();
    if (symlink(victim, below(JOB "/link")) && errno != EEXIST)
        _exit(2);
}

static void link_to_jobs(void)
{
    make_job();
    if (symlink(victim, below("link")) && errno != EEXIST)
        _exit(2);
}

/* Rounds of a command against a process that exchanges names all the while. */
static void race(void (*make)(void), void (*exchange)(void), int is_clean)
{
    if (geteuid() != 0)
        cr_skip_test("needs root, and a second user");
    put_victims();
    cr_assert(zero(int, chmod(root, 0777 | S_ISVTX)));
    cr_assert(zero(int, chown(root, NOBODY, NOBODY)));
    for (int i = 0; i < ROUNDS; i++) {
        pid_t pid;
        int status;

        do_and_wait(NOBODY, make);
        pid = as_user(NOBODY, exchange);
        status = is_clean ? hearth("clean", "--root", root, JOB)
                          : hearth("rm", "--root", root, JOB "/step-1_ckpt");
        end(pid);
        cr_assert(eq(int, count_in(victim), VICTIMS), "round %d: %s", i, err_text);
        cr_assert(le(int, status, 5), "round %d: %s", i, err_text);
        unlink(below("link"));
        if (rename(below(JOB), below("away")) == 0) { /* what a refusal has left */
            char command[200];

            snprintf(command, sizeof(command), "rm -rf %s", below("away"));
            cr_assert(zero(int, system(command)));
        }
    }
    do_and_wait(NOBODY, make_job); /* and then it goes on, but for what is not Hearth's */
    cr_assert(eq(int, hearth("clean", "--root", root, JOB), 1), "%s", err_text);
    cr_assert(eq(int, has(err_text, "is not Hearth's, and stays"), 1), "%s", err_text);
    cr_assert(eq(int, has(err_text, "is a link, and stays"), 1), "%s", err_text);
    cr_assert(ne(int, access(below(JOB "/.hearth"), F_OK), 0));
    cr_assert(eq(int, count_in(victim), VICTIMS));
}

Test(removal, clean_follows_no_directory_that_becomes_a_link)
{
    race(make_job, exchange_directories, 1);
}

Test(removal, clean_follows_no_container_that_becomes_a_link)
{
    race(link_to_containers, exchange_containers, 1);
}

Test(removal, rm_follows_no_container_that_becomes_a_link)
{
    race(link_to_containers, exchange_containers, 0);
}

Test(removal, rm_follows_no_job_that_becomes_a_link)
{
    race(link_to_jobs, exchange_jobs, 0);
}

/* ---- what is not the job's
 * -------------------------------------------------------------------- */

static void make_job_here(void)
{
    mark_job();
    touch(below(JOB "/step-1_ckpt/first"));
    touch(below(JOB "/step-1_ckpt/other"));
}

static void give_to(const char *name, uid_t uid)
{
    cr_assert(zero(int, lchown(below(name), uid, uid)), "%s: %s", name, strerror(errno));
}

/* The command is refused, with a sentence that has `says`; and no file has moved or gone. */
static void must_refuse(int status, const char *says)
{
    cr_assert(eq(int, hearth("clean", "--root", root, JOB), status), "%s", err_text);
    cr_assert(eq(int, has(err_text, says), 1), "%s", err_text);
    cr_assert(zero(int, access(below(JOB "/step-1_ckpt/first"), F_OK)), "%s", err_text);
    cr_assert(eq(int, hearth("rm", "--root", root, JOB "/step-1_ckpt"), status), "%s", err_text);
    cr_assert(zero(int, access(below(JOB "/step-1_ckpt/first"), F_OK)), "%s", err_text);
}

/* Exit status 1, with this sentence; all that is Hearth's has gone. */
static void must_leave(const char *says)
{
    cr_assert(eq(int, hearth("clean", "--root", root, JOB), 1), "%s", err_text);
    cr_assert(eq(int, has(err_text, says), 1), "%s", err_text);
    cr_assert(ne(int, access(below(JOB "/step-1_ckpt/first"), F_OK), 0));
    cr_assert(ne(int, access(below(JOB "/.hearth"), F_OK), 0));
}

Test(removal, what_belongs_to_another_user_stays_and_is_named)
{
    char dir[80];

    if (geteuid() != 0)
        cr_skip_test("needs root, to give files away");
    snprintf(dir, sizeof(dir), JOB "/.hearth/%016x-%016x-%016x-%08x.dir", 1, 1, 1, 1);
    make_job_here();
    give_to(JOB, NOBODY);
    give_to(JOB "/step-1_ckpt", NOBODY);
    give_to(JOB "/step-1_ckpt/first", NOBODY);
    give_to(JOB "/step-1_ckpt/other", STRANGER);
    give_to(JOB "/.hearth", NOBODY);
    give_to(JOB "/.hearth/lock", NOBODY);
    give_to(dir, NOBODY);
    must_leave("step-1_ckpt/other belongs to another user, and stays");
    cr_assert(zero(int, access(below(JOB "/step-1_ckpt/other"), F_OK)));
}

Test(removal, root_removes_nothing_where_others_may_exchange_jobs)
{
    if (geteuid() != 0)
        cr_skip_test("needs root");
    make_job_here();
    cr_assert(zero(int, chmod(root, 0777)));
    must_refuse(5, "others may write to");
    cr_assert(zero(int, chmod(root, 0755)));
    cr_assert(zero(int, chown(root, STRANGER, STRANGER)));
    must_refuse(5, "belongs to user 65533");
    cr_assert(zero(int, chown(root, 0, 0)));
    cr_assert(zero(int, chmod(root, 0777 | S_ISVTX)));
    cr_assert(zero(int, hearth("clean", "--root", root, JOB)), "%s", err_text);
}

static void make_away(void)
{
    if (mkdir(below("theirs"), 0755) || symlink(victim, below("theirs/root")))
        _exit(1);
}

Test(removal, root_takes_no_path_that_another_user_can_bend)
{
    char bent[160];

    if (geteuid() != 0)
        cr_skip_test("needs root, and a second user");
    snprintf(bent, sizeof(bent), "%s/theirs/root", root);
    cr_assert(zero(int, chmod(root, 0777 | S_ISVTX)));
    cr_assert(zero(int, mkdir(victim, 0755)));
    cr_assert(zero(int, mkdir(below("victim/" JOB), 0755)));
    cr_assert(zero(int, mkdir(below("victim/" JOB "/step-1_ckpt"), 0755)));
    do_and_wait(NOBODY, make_away);
    cr_assert(eq(int, hearth("clean", "--root", bent, JOB), 2), "%s", err_text);
    cr_assert(eq(int, has(err_text, "without links"), 1), "%s", err_text);
    cr_assert(eq(int, hearth("rm", "--root", bent, JOB "/step-1_ckpt"), 2), "%s", err_text);
    cr_assert(zero(int, access(below("victim/" JOB "/step-1_ckpt"), F_OK)));
}

Test(removal, a_mount_point_is_not_crossed)
{
    if (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL))
        cr_skip_test("no right to mount");
    make_job_here();
    cr_assert(zero(int, mkdir(below("elsewhere"), 0755)));
    touch(below("elsewhere/precious"));
    cr_assert(zero(int, mkdir(below(JOB "/step-1_ckpt/in"), 0755)));
    cr_assert(zero(
            int, mount(below("elsewhere"), below(JOB "/step-1_ckpt/in"), NULL, MS_BIND, NULL)));
    must_leave("step-1_ckpt/in is on another mount, and stays");
    cr_assert(zero(int, umount(below(JOB "/step-1_ckpt/in"))));
    cr_assert(zero(int, access(below("elsewhere/precious"), F_OK)));
}

/* Opening a fifo waits for a process at its other end; a directory chain could use up
 * descriptors. */
Test(removal, what_is_no_file_stays_and_is_not_opened)
{
    struct sockaddr_un a = { .sun_family = AF_UNIX };
    int fd = socket(AF_UNIX, SOCK_STREAM, 0), dir;

    make_job_here();
    cr_assert(zero(int, mkfifo(below(JOB "/step-1_ckpt/fifo"), 0600)));
    cr_assert(zero(int, mkfifo(below(JOB "/fifo"), 0)));
    cr_assert(zero(int, symlink("/etc", below(JOB "/step-1_ckpt/link"))));
    snprintf(a.sun_path, sizeof(a.sun_path), "%s/" JOB "/sock", root);
    cr_assert(zero(int, bind(fd, (const struct sockaddr *)&a, sizeof(a))));
    close(fd);
    dir = open(below(JOB "/step-1_ckpt"), O_RDONLY | O_DIRECTORY);
    for (int i = 0; i < 2000; i++) {
        int next;

        cr_assert(zero(int, mkdirat(dir, "d", 0700)));
        next = openat(dir, "d", O_RDONLY | O_DIRECTORY);
        close(dir);
        dir = next;
    }
    close(dir);
    must_leave("step-1_ckpt/fifo is not Hearth's, and stays");
    cr_assert(
            eq(int, has(err_text, "/" JOB "/sock is not Hearth's, and stays"), 1), "%s", err_text);
    cr_assert(
            eq(int, has(err_text, "step-1_ckpt/d is not Hearth's, and stays"), 1), "%s", err_text);
    cr_assert(eq(int, has(err_text, "step-1_ckpt/link is a link, and stays"), 1), "%s", err_text);
}

/* ml-flashpoint's newest step, beside a save of Hearth's, in the names that Hearth's objects
 * have. */
Test(removal, clean_leaves_a_whole_step_of_another_program)
{
    static const char *const file[] = { "step-15_ckpt/.metadata", "step-15_ckpt/common.pt",
        "step-15_ckpt/__1__0_src1.distcp", "step-15_ckpt__0__unfinished", "buffer_pool/b" };

    make_job_here();
    cr_assert(zero(int, mkdir(below(JOB "/step-15_ckpt"), 0700)));
    cr_assert(zero(int, mkdir(below(JOB "/buffer_pool"), 0700)));
    for (size_t i = 0; i < sizeof(file) / sizeof(file[0]); i++) {
        char name[64];

        snprintf(name, sizeof(name), JOB "/%s", file[i]);
        touch(below(name));
    }
    cr_assert(zero(int,
            symlink(below(JOB "/buffer_pool/b"), below(JOB "/step-15_ckpt/__0__0_src0.distcp"))));
    must_leave("/" JOB "/step-15_ckpt is not Hearth's, and stays");
    for (size_t i = 0; i < sizeof(file) / sizeof(file[0]); i++) {
        char name[64];

        snprintf(name, sizeof(name), JOB "/%s", file[i]);
        cr_assert(zero(int, access(below(name), F_OK)), "%s", name);
    }
    cr_assert(zero(int, access(below(JOB "/step-15_ckpt/__0__0_src0.distcp"), F_OK)));
}

/* A directory of the user's own, with a name in it that Hearth gives to saves. */
Test(removal, clean_takes_nothing_of_a_directory_that_is_no_job)
{
    cr_assert(zero(int, mkdir(below(JOB), 0755)));
    cr_assert(zero(int, mkdir(below(JOB "/src"), 0755)));
    touch(below(JOB "/src/main.c"));
    touch(below(JOB "/step-100_ckpt"));
    cr_assert(eq(int, hearth("clean", "--root", root, JOB), 3), "%s", err_text);
    cr_assert(eq(int, has(err_text, "is no job of Hearth's"), 1), "%s", err_text);
    cr_assert(zero(int, access(below(JOB "/src/main.c"), F_OK)));
    cr_assert(zero(int, access(below(JOB "/step-100_ckpt"), F_OK)));
    cr_assert(eq(int, hearth("rm", "--root", root, JOB "/step-100_ckpt"), 3), "%s", err_text);
    cr_assert(zero(int, access(below(JOB "/step-100_ckpt"), F_OK)));
}

/* The save that a link leads to is another job's. */
Test(removal, rm_of_a_link_names_it_and_takes_nothing)
{
    make_job_here();
    cr_assert(zero(int, mkdir(below("new"), 0755)));
    cr_assert(zero(int, mkdir(below("new/.hearth"), 0755)));
    touch(below("new/.hearth/lock"));
    cr_assert(zero(int, symlink("../" JOB "/step-1_ckpt", below("new/step-9_ckpt"))));
    cr_assert(zero(int, symlink(JOB, below("alias"))));
    cr_assert(eq(int, hearth("rm", "--root", root, "new/step-9_ckpt"), 2), "%s", err_text);
    cr_assert(eq(int, has(err_text, "new/step-9_ckpt is a link"), 1), "%s", err_text);
    cr_assert(eq(int, hearth("rm", below("new/step-9_ckpt")), 2), "%s", err_text);
    cr_assert(eq(int, hearth("rm", below("alias/step-1_ckpt")), 3), "%s", err_text);
    cr_assert(eq(int, has(err_text, "is a link"), 1), "%s", err_text);
    cr_assert(eq(int, hearth("clean", "--root", root, "alias"), 3), "%s", err_text);
    cr_assert(zero(int, access(below(JOB "/step-1_ckpt/first"), F_OK)));
    cr_assert(zero(int, access(below("new/step-9_ckpt/first"), F_OK)), "the link is there");
}
