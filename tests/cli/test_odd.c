/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Something else lies where a file of Hearth's should: a fifo, a directory, a link. The engine
 * starts, or reports what is wrong, and never waits. The same holds for each command.
 */
#include "command.h"

#include <errno.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>

#define JOB "train"

TestSuite(odd, .init = make_root, .fini = remove_root);

enum { FIFO, FOLDER, LINK, KINDS };

static void nap_ms(long ms)
{
    nanosleep(&(struct timespec){ .tv_nsec = ms * 1000000 }, NULL);
}

static void make_odd(const char *path, int kind, const char *target)
{
    int failed = kind == FIFO     ? mkfifo(path, 0600)
                 : kind == FOLDER ? mkdir(path, 0700)
                                  : symlink(target, path);

    cr_assert(zero(int, failed), "%s: %s", path, strerror(errno));
}

/* hearthd until it serves (0) or ends (its exit status); else it hangs. */
static int run_engine(void)
{
    const char *const args[] = { "--root", root, "--job", JOB, "--transport", "tcp", NULL };
    char own[96], others[80];
    int status = -1;
    pid_t pid;

    snprintf(own, sizeof(own), "%s/engine.err", root); /* `ls` writes to the other one */
    memcpy(others, err_path, sizeof(others));
    memcpy(err_path, own, sizeof(err_path));
    pid = start("hearthd", args);
    memcpy(err_path, others, sizeof(err_path));

    for (int i = 0; i < 300; i++) {
        if (waitpid(pid, &status, WNOHANG) == pid) {
            slurp(own, err_text, sizeof(err_text));
            return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
        }
        hearth("ls", "--root", root, JOB); /* 1 where a record cannot be read */
        if (has(out, "epoch 0")) {
            kill(pid, SIGTERM);
            cr_assert(eq(int, waitpid(pid, &status, 0), pid));
            return WEXITSTATUS(status);
        }
        nap_ms(30);
    }
    kill(pid, SIGKILL);
    waitpid(pid, &status, 0);
    cr_assert(0, "hearthd neither serves nor ends");
    return -1;
}

/* `ulimit -f`, of the shell or of the batch system that starts it: the kernel's own answer is a
 * signal. */
Test(odd, an_engine_above_the_limit_of_a_file_ends_with_a_status)
{
    struct rlimit was, less;

    cr_assert(zero(int, getrlimit(RLIMIT_FSIZE, &was)));
    less = (struct rlimit){ 95, was.rlim_max }; /* one byte less than its first record has */
    cr_assert(zero(int, setrlimit(RLIMIT_FSIZE, &less)));
    cr_assert(eq(int, run_engine(), 1), "%s", err_text);
    cr_assert(zero(int, setrlimit(RLIMIT_FSIZE, &was)));
}

Test(odd, an_engine_waits_for_nothing_that_lies_where_its_files_should)
{
    /* Those of the first group are made anew, or not needed; the others are named. */
    static const char *const names[] = { "log.1", "sock", "epoch", "keep", "running", "new", "plan",
        "log", "lock", "store", "pool", "evidence" };
    char path[128], target[128], text[32] = "precious";
    struct stat st;

    snprintf(target, sizeof(target), "%s/precious", root);
    cr_assert(zero(int, run_engine()));
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        for (int kind = 0; kind < KINDS; kind++) {
            int fd = open(target, O_CREAT | O_TRUNC | O_WRONLY, 0600), status;
            char command[256];

            cr_assert(eq(long, (long)write(fd, text, 8), 8));
            close(fd);
            snprintf(path, sizeof(path), "%s/" JOB "/.hearth/%s", root, names[i]);
            snprintf(command, sizeof(command), "rm -rf %s", path);
            cr_assert(zero(int, system(command)));
            make_odd(path, kind, target);
            status = run_engine();
            cr_assert(le(int, status, 2), "%s, kind %d: %s", names[i], kind, err_text);
            cr_assert(eq(int, !status || has(err_text, names[i]), 1), "%s, kind %d: %s", names[i],
                    kind, err_text);
            cr_assert(zero(int, stat(target, &st)));
            cr_assert(eq(long, (long)st.st_size, 8), "%s was followed", names[i]);
            cr_assert(zero(int, system(command)));
            if (!strcmp(names[i], "store")) { /* whose memory it is cannot be told any more */
                snprintf(command, sizeof(command), "rm -rf %s/" JOB, root);
                cr_assert(zero(int, system(command)));
            }
            if (status) /* and then it goes on */
                cr_assert(zero(int, run_engine()), "%s, kind %d: %s", names[i], kind, err_text);
        }
}

/* Of the processor, by all that this test started. */
static int64_t children_ms(void)
{
    struct rusage u;

    getrusage(RUSAGE_CHILDREN, &u);
    return (u.ru_utime.tv_sec + u.ru_stime.tv_sec) * INT64_C(1000) +
           (u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1000;
}

/* Of memory, by the largest of them. */
static int64_t children_kib(void)
{
    struct rusage u;

    getrusage(RUSAGE_CHILDREN, &u);
    return u.ru_maxrss;
}

/* Names alone, as a job that ran for long with another writer leaves them. */
Test(odd, the_time_of_ls_grows_with_the_saves_and_not_with_their_square)
{
    char path[256];

    snprintf(path, sizeof(path), "%s/train", root);
    cr_assert(zero(int, mkdir(path, 0700)));
    snprintf(path, sizeof(path), "%s/train/.hearth", root);
    cr_assert(zero(int, mkdir(path, 0700)));
    for (int i = 0; i < 3000; i++) {
        snprintf(path, sizeof(path), "%s/train/step-%d_ckpt", root, 9000 - i);
        cr_assert(zero(int, mkdir(path, 0700)));
    }
    for (int i = 0; i < 40; i++) {
        int fd;

        snprintf(path, sizeof(path), "%s/train/.hearth/%016x-%016x-%016x-%08x.dir", root, 1, 1, i,
                1);
        fd = open(path, O_CREAT | O_WRONLY, 0600);
        cr_assert(eq(i64, write(fd, "inode 01\n", 9), 9));
        close(fd);
    }
    cr_assert(zero(int, hearth("ls", "--root", root, "train", "--json")), "%s", err_text);
    cr_assert(eq(int, has(out, "step-9000_ckpt") && has(out, "step-6001_ckpt"), 1));
    cr_assert(lt(i64, children_ms(), 2000));
}

/* A record that another program has made large: there is no such record of Hearth's. */
Test(odd, a_keep_record_of_4_GiB_is_not_read)
{
    char path[256];
    int fd;

    snprintf(path, sizeof(path), "%s/train", root);
    cr_assert(zero(int, mkdir(path, 0700)));
    snprintf(path, sizeof(path), "%s/train/.hearth", root);
    cr_assert(zero(int, mkdir(path, 0700)));
    snprintf(path, sizeof(path), "%s/train/.hearth/keep", root);
    fd = open(path, O_CREAT | O_WRONLY, 0600);
    cr_assert(zero(int, ftruncate(fd, INT64_C(4) << 30)));
    close(fd);
    hearth("ls", "--root", root, "train");
    cr_assert(eq(int, has(err_text, "keep is too large to be read"), 1), "%s", err_text);
    cr_assert(lt(i64, children_kib(), 200 << 10));
}
