/* SPDX-License-Identifier: Apache-2.0 */
/* The program `hearth`, run as a user runs it, in a directory of the test's own. */
#ifndef TEST_CLI_COMMAND_H
#define TEST_CLI_COMMAND_H

#include "check.h"

#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define ARGS    16
#define OUT_MAX (8 << 20)

static char root[64], out_path[80], err_path[80];
static char *out; /* [OUT_MAX], what the last command printed */
static size_t out_len;
static char err_text[4096];

static void make_root(void)
{
    alarm(100);
    unsetenv("HEARTH_ROOT");
    snprintf(root, sizeof(root), "/dev/shm/hearth-cli-XXXXXX");
    cr_assert(ne(ptr, mkdtemp(root), NULL));
    snprintf(out_path, sizeof(out_path), "%s.out", root);
    snprintf(err_path, sizeof(err_path), "%s.err", root);
    out = malloc(OUT_MAX);
}

static inline void remove_root(void)
{
    char command[256];

    snprintf(command, sizeof(command), "rm -rf %s %s %s", root, out_path, err_path);
    cr_assert(zero(int, system(command)));
    free(out);
}

static size_t slurp(const char *path, char *to, size_t len)
{
    FILE *f = fopen(path, "rb");
    size_t n = f ? fread(to, 1, len - 1, f) : 0;

    to[n] = '\0';
    if (f)
        fclose(f);
    return n;
}

static pid_t start(const char *program_name, const char *const *more)
{
    char program[512];
    char *argv[ARGS] = { program };
    posix_spawn_file_actions_t files;
    pid_t pid;

    snprintf(program, sizeof(program), "%s/%s", getenv("HEARTH_TEST_BIN"), program_name);
    for (int n = 1; *more && n < ARGS - 1; n++)
        argv[n] = (char *)(uintptr_t)*more++;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&files, 1, out_path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    posix_spawn_file_actions_addopen(&files, 2, err_path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    cr_assert(zero(int, posix_spawn(&pid, program, &files, NULL, argv, environ)), "%s", program);
    posix_spawn_file_actions_destroy(&files);
    return pid;
}

/* Runs `hearth` with these arguments. Returns its exit status; out and err_text are its output. */
static int hearth_args(const char *const *args)
{
    pid_t pid = start("hearth", args);
    int status = -1;

    cr_assert(eq(int, waitpid(pid, &status, 0), pid));
    out_len = slurp(out_path, out, OUT_MAX);
    slurp(err_path, err_text, sizeof(err_text));
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

#define hearth(...) hearth_args((const char *const[]){ __VA_ARGS__, NULL })

/* The command as a user who may not read everything: root may. */
static inline int hearth_as_user(const char *const *args)
{
    pid_t pid;
    int status;

    if (geteuid() != 0)
        return hearth_args(args);
    pid = fork();
    if (!pid) {
        char program[512];
        char *argv[ARGS] = { program };

        snprintf(program, sizeof(program), "%s/hearth", getenv("HEARTH_TEST_BIN"));
        for (int n = 1; args[n - 1] && n < ARGS - 1; n++)
            argv[n] = (char *)(uintptr_t)args[n - 1];
        if (dup2(open(out_path, O_WRONLY | O_CREAT | O_TRUNC, 0600), 1) < 0 ||
                dup2(open(err_path, O_WRONLY | O_CREAT | O_TRUNC, 0600), 2) < 0 ||
                setresgid(65534, 65534, 65534) || setresuid(65534, 65534, 65534))
            _exit(126);
        execv(program, argv);
        _exit(127);
    }
    cr_assert(eq(int, waitpid(pid, &status, 0), pid));
    if (WEXITSTATUS(status) >= 126)
        cr_skip_test("another user may not run what was built");
    out_len = slurp(out_path, out, OUT_MAX);
    slurp(err_path, err_text, sizeof(err_text));
    return WEXITSTATUS(status);
}

#define hearth_user(...) hearth_as_user((const char *const[]){ __VA_ARGS__, NULL })

static int has(const char *text, const char *part)
{
    return strstr(text, part) != NULL;
}

#endif
