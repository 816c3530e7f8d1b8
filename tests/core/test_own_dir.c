/* SPDX-License-Identifier: Apache-2.0 */
/* Where this code's own file lies: never the current directory, whatever the program is called. */
#include "check.h"

#include "core/base/own_dir.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define NAME "test_core_own_dir"

/* This program, started again to be asked. */
__attribute__((constructor)) static void own_dir_answer(void)
{
    char dir[PATH_MAX];

    if (!getenv("OWN_DIR_ASKED"))
        return;
    if (hth_own_dir(dir, sizeof(dir)))
        _exit(1);
    puts(dir);
    fflush(stdout);
    _exit(0);
}

/* As a shell starts a program that it found by PATH: with the bare name, in `cwd`. */
static void own_dir_ask(const char *first_word, const char *cwd, char *out, size_t len)
{
    int ends[2], status = -1;
    ssize_t n;
    char program[PATH_MAX];
    pid_t pid;

    cr_assert(zero(int, pipe(ends)));
    snprintf(program, sizeof(program), "%s/" NAME, getenv("HEARTH_TEST_BIN"));
    pid = fork();
    if (pid == 0) {
        setenv("OWN_DIR_ASKED", "1", 1);
        if (chdir(cwd) == 0 && dup2(ends[1], 1) == 1)
            execl(program, first_word, (char *)NULL);
        _exit(2);
    }
    close(ends[1]);
    n = read(ends[0], out, len - 1);
    close(ends[0]);
    cr_assert(eq(int, waitpid(pid, &status, 0), pid));
    cr_assert(zero(int, status));
    out[n > 0 ? n - 1 : 0] = '\0'; /* without its newline */
}

Test(own_dir, is_not_the_current_directory_where_a_file_has_the_programs_name)
{
    static const char *const words[] = { NAME, "./" NAME, "", "-" NAME, "/nowhere/" NAME };
    char cwd[] = "/tmp/hearth-own-dir-XXXXXX", file[64], bin[PATH_MAX], said[PATH_MAX];

    alarm(30);
    cr_assert(ne(ptr, mkdtemp(cwd), NULL));
    snprintf(file, sizeof(file), "%s/" NAME, cwd);
    close(open(file, O_CREAT | O_WRONLY, 0700));
    cr_assert(ne(ptr, realpath(getenv("HEARTH_TEST_BIN"), bin), NULL));
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        own_dir_ask(words[i], cwd, said, sizeof(said));
        cr_expect(zero(int, strcmp(said, bin)), "called '%s': %s", words[i], said);
    }
    unlink(file);
    rmdir(cwd);
}

Test(own_dir, that_does_not_fit_is_refused)
{
    char small[4];

    must_fail(hth_own_dir(small, sizeof(small)), HEARTH_ENOENT);
}
