/* SPDX-License-Identifier: Apache-2.0 */
/* The command line: what is completed, repeated, and how wide it prints. */
#include "saved.h"

#include "core/format/keep.h"

#include <pty.h>
#include <signal.h>
#include <sys/stat.h>
#include <time.h>

TestSuite(line, .init = make_root, .fini = remove_root);

static void put_file(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");

    cr_assert(ne(ptr, f, NULL));
    fputs(text, f);
    fclose(f);
}

/* ---- completion ------------------------------------------------------------------------------ */

/* What bash offers behind these words, sorted, with a blank behind each. */
static void must_complete(const char *script, const char *typed, const char *want)
{
    char command[1000], have[1000] = "";
    FILE *p;

    snprintf(command, sizeof(command),
            "bash -c 'HEARTH_ROOT=%s; source %s; COMP_WORDS=(%s); "
            "[[ \"%s\" != *\" \" ]] || COMP_WORDS+=(\"\"); COMP_CWORD=$((${#COMP_WORDS[@]}-1)); "
            "_hearth; printf \"%%s\\n\" \"${COMPREPLY[@]}\" | sort | tr \"\\n\" \" \"'",
            root, script, typed, typed);
    p = popen(command, "r");
    cr_assert(ne(ptr, p, NULL));
    (void)!fread(have, 1, sizeof(have) - 1, p);
    cr_assert(zero(int, pclose(p)));
    cr_expect(eq(str, have, (char *)(uintptr_t)want), "behind '%s'", typed);
}

Test(line, bash_completes_commands_options_words_jobs_and_files)
{
    char script[128], job[128];

    snprintf(script, sizeof(script), "%s/script", root);
    cr_assert(zero(int, hearth("completion", "bash")), "%s", err_text);
    put_file(script, out);
    snprintf(job, sizeof(job), "%s/train7", root);
    cr_assert(zero(int, mkdir(job, 0700)));
    must_complete(script, "hearth ins", "inspect ");
    must_complete(script, "hearth ls --e", "--env ");
    must_complete(script, "hearth clean --", "--help --root ");
    must_complete(script, "hearth keep tr", "train7 ");
    must_complete(script, "hearth keep --json train7 un", "unpin ");
    must_complete(script, "hearth keep train7 ", "bad good pin release unpin ");
    must_complete(script, "hearth header ", "decode encode ");
    must_complete(script, "hearth help comp", "completion ");
    snprintf(job, sizeof(job), "hearth inspect %s/scr", root);
    must_complete(script, job, strcat(script, " "));
    cr_assert(zero(int, hearth("completion", "zsh")), "%s", err_text);
    cr_expect(eq(int, has(out, "#compdef hearth") && has(out, "pin unpin release"), 1), "%s", out);
    cr_expect(eq(int, hearth("completion", "fish"), 2));
}

/* ---- width and colour ------------------------------------------------------------------------ */

static size_t widest(const char *text)
{
    size_t most = 0;

    for (; *text; text += strcspn(text, "\n"), text += *text == '\n')
        most = strcspn(text, "\n") > most ? strcspn(text, "\n") : most;
    return most;
}

/* Lines of a long path alone are wider: it is not cut. */
Test(line, tables_fit_the_columns_and_nothing_is_cut)
{
    struct hth_store *s = make_store();
    const char *path = in_job("step-40_ckpt");

    setenv("COLUMNS", "80", 1);
    cr_assert(zero(int, hearth("ls", "--root", root, JOB)), "%s", err_text);
    cr_expect(le(sz, widest(out), 80), "%s", out);
    cr_expect(eq(int, has(out, path), 1), "%s", out);
    cr_assert(zero(int, hearth("ls", "--root", root)), "%s", err_text);
    cr_expect(le(sz, widest(out), 80), "%s", out);
    cr_assert(zero(int, hearth("ls", "--env")), "%s", err_text);
    cr_expect(le(sz, widest(out), 110), "%s", out);
    setenv("COLUMNS", "40", 1);
    cr_assert(zero(int, hearth("ls", "--root", root, JOB)), "%s", err_text);
    cr_expect(eq(int, has(out, path), 1), "%s", out);
    cr_expect(le(sz, widest(out), 50), "%s", out);
    setenv("COLUMNS", "200", 1);
    cr_assert(zero(int, hearth("ls", "--env")), "%s", err_text);
    cr_expect(gt(sz, widest(out), 120), "%s", out);
    unsetenv("COLUMNS");
    cr_assert(zero(int, hearth("ls", "--root", root, JOB)), "%s", err_text);
    cr_expect(eq(int, has(out, "complete"), 1), "a pipe has each row in one line: %s", out);
    cr_expect(eq(int, has(out, "\033"), 0), "%s", out);
    s->ops->close(s);
}

/* A save that is on the keep list with fewer copies than asked for. */
static void put_degraded(void)
{
    struct hth_keep keep = {
        .epoch = 6, .serial = 1, .saves = 1, .degraded = 1, .pinned = 1, .save = { save_id() }
    };
    unsigned char bytes[HTH_KEEP_BYTES];
    struct hth_store *s = make_store();

    hth_keep_encode(&keep, bytes);
    must(s->ops->record_put(s, "keep", bytes, sizeof(bytes), NULL));
    s->ops->close(s);
}

/* Prints what `hearth` writes on a terminal of so many columns into `out`. */
static int on_terminal(unsigned short columns, const char *const *more)
{
    struct winsize size = { .ws_row = 24, .ws_col = columns };
    char program[512], *argv[ARGS] = { program };
    int terminal, status;
    ssize_t got;
    pid_t pid;

    snprintf(program, sizeof(program), "%s/hearth", getenv("HEARTH_TEST_BIN"));
    for (int n = 1; *more && n < ARGS - 1; n++)
        argv[n] = (char *)(uintptr_t)*more++;
    pid = forkpty(&terminal, NULL, NULL, &size);
    if (!pid) {
        execv(program, argv);
        _exit(127);
    }
    out_len = 0;
    while ((got = read(terminal, out + out_len, OUT_MAX - out_len - 1)) > 0)
        out_len += (size_t)got;
    out[out_len] = '\0';
    waitpid(pid, &status, 0);
    close(terminal);
    return WEXITSTATUS(status);
}

#define terminal(columns, ...) on_terminal(columns, (const char *const[]){ __VA_ARGS__, NULL })

Test(line, a_terminal_has_its_own_width_and_colour_unless_that_is_not_wanted)
{
    setenv("TERM", "xterm", 1);
    unsetenv("NO_COLOR");
    unsetenv("COLUMNS");
    cr_assert(zero(int, terminal(70, "ls", "--env")));
    cr_expect(le(sz, widest(out), 111), "%zu", widest(out));
    cr_assert(zero(int, terminal(220, "ls", "--env")));
    cr_expect(gt(sz, widest(out), 120), "%zu", widest(out));
    put_degraded();
    cr_assert(zero(int, terminal(100, "ls", "--root", root, JOB)), "%s", out);
    cr_expect(eq(int, has(out, "\033[33mdegraded\033[0m"), 1), "%s", out);
    setenv("NO_COLOR", "1", 1);
    cr_assert(zero(int, terminal(100, "ls", "--root", root, JOB)), "%s", out);
    cr_expect(eq(int, has(out, "degraded"), 1), "%s", out);
    cr_expect(zero(int, has(out, "\033")), "%s", out);
    cr_assert(zero(int, hearth("ls", "--root", root, JOB)), "%s", err_text);
    cr_expect(zero(int, has(out, "\033")), "%s", out);
}

/* ---- again and again ------------------------------------------------------------------------- */

static unsigned times(const char *text, const char *part)
{
    unsigned n = 0;

    for (; (text = strstr(text, part)); text += strlen(part))
        n++;
    return n;
}

/* On a pipe it is repeated without control characters. */
Test(line, watch_looks_again_until_it_is_interrupted)
{
    static const struct timespec while_ = { .tv_sec = 2, .tv_nsec = 500000000 };
    struct hth_store *s = make_store();
    const char *args[] = { "ls", "--root", root, "--watch", "1", NULL };
    int status;
    pid_t pid = start("hearth", args);

    nanosleep(&while_, NULL);
    kill(pid, SIGINT);
    cr_assert(eq(int, waitpid(pid, &status, 0), pid));
    cr_expect(eq(int, WIFEXITED(status) && !WEXITSTATUS(status), 1), "status %x", status);
    slurp(out_path, out, OUT_MAX);
    cr_expect(ge(u32, times(out, "JOB "), 2), "%s", out);
    cr_expect(le(u32, times(out, "JOB "), 4), "%s", out);
    cr_expect(zero(int, has(out, "\033")), "%s", out);
    s->ops->close(s);
    cr_expect(eq(int, hearth("ls", "--root", root, "--watch=0"), 2));
    cr_expect(eq(int, hearth("ls", "--root", root, "--watch=x"), 2));
    cr_expect(eq(int, has(err_text, "seconds from 1 to 86400"), 1), "%s", err_text);
}

/* ---- a save in one word, and its marks ------------------------------------------------------- */

Test(line, pins_are_shown_without_an_engine_too)
{
    put_degraded();
    cr_assert(zero(int, hearth("ls", "--root", root, JOB)), "%s", err_text);
    cr_expect(eq(int, has(out, "MARKS") && has(out, "  pinned  "), 1), "%s", out);
    cr_assert(zero(int, hearth("ls", "--root", root, JOB, "--json")), "%s", err_text);
    cr_expect(eq(int, has(out, "\"pinned\": true"), 1), "%s", out);
}

/* ---- what has been looked at ----------------------------------------------------------------- */

Test(line, verify_of_a_root_verifies_its_jobs)
{
    struct hth_store *s = make_store();
    char path[128];

    s->ops->close(s);
    snprintf(path, sizeof(path), "%s/stray.distcp", root);
    put_file(path, "no object of anything");
    cr_assert(zero(int, hearth("verify", root)), "%s%s", out, err_text);
    cr_expect(eq(int, has(out, in_job("step-40_ckpt/shard")), 1), "%s", out);
    cr_expect(zero(int, has(out, "stray")), "%s", out);
}

/* Files of another program that no container names are no checkpoint. */
Test(line, verify_of_foreign_files_alone_is_no_success)
{
    char command[600], dir[128];

    snprintf(dir, sizeof(dir), "%s/files", root);
    snprintf(command, sizeof(command), "mkdir %s && cp %s/container/step-7_ckpt/*.distcp %s", dir,
            getenv("HEARTH_TEST_DATA"), dir);
    cr_assert(zero(int, system(command)));
    cr_expect(eq(int, hearth("verify", dir), 3), "%s", out);
    cr_expect(eq(int, has(err_text, "nothing to verify"), 1), "%s", err_text);
}

/* As df, beside what the jobs' files take. */
Test(line, ls_says_what_the_file_system_has)
{
    struct hth_store *s = make_store();

    cr_assert(zero(int, hearth("ls", "--root", root, JOB)), "%s", err_text);
    cr_expect(eq(int, has(out, "\nmount   ") && has(out, "as df counts"), 1), "%s", out);
    cr_assert(zero(int, hearth("ls", "--root", root)), "%s", err_text);
    cr_expect(eq(int, has(out, "as df counts"), 1), "%s", out);
    s->ops->close(s);
}
