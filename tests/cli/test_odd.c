/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Something else lies where a file of Hearth's should: a fifo, a directory, a link. The engine
 * starts or says what is wrong, and waits for nobody; and so does each command.
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

/* `ulimit -f`, of the shell or of the batch system that starts it: the kernel's own answer is a signal. */
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
