/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Commands beside a job that saves and frees as fast as it can: what goes while it is read is left
 * out, and nothing is called wrong. On demand 10,000 times.
 */
#include "party.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define LOOKS 40
#define MANY  10000

static struct party p;
static uint64_t *saved; /* by the rank; shared with the case */

static void save_on(struct me *me, const uint64_t arg[3], struct answer *out)
{
    uint64_t step = 0;

    (void)arg;
    while (!out->rc) { /* until the case kills it */
        step++;
        const uint64_t next[3] = { step, step, 0 }, wait[3] = { step, HEARTH_PROTECTED, 20000 };

        do_save(me, next, out);
        if (!out->rc)
            do_wait(me, wait, out);
        __atomic_store_n(saved, step, __ATOMIC_RELEASE);
    }
    fprintf(stderr, "the job cannot save any more: %s\n", out->err.text);
}

/* The output of the last command, standard output and error. */
static char printed[1 << 16];

/* Its exit status. */
static int look(const char *const *args)
{
    char path[128], program[256];
    const char *bin = getenv("HEARTH_TEST_BIN");
    int status = 0, to;
    ssize_t n;
    pid_t pid;

    snprintf(path, sizeof(path), "%s/printed", p.base);
    snprintf(program, sizeof(program), "%s/hearth", bin ? bin : ".");
    to = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    CHECK(to >= 0, "%s: %s", path, strerror(errno));
    fflush(NULL);
    pid = fork();
    if (!pid) {
        dup2(to, 1);
        dup2(to, 2);
        execv(program, (char *const *)(uintptr_t)args);
        _exit(127);
    }
    CHECK(waitpid(pid, &status, 0) == pid, "waitpid: %s", strerror(errno));
    n = pread(to, printed, sizeof(printed) - 1, 0);
    printed[n > 0 ? n : 0] = '\0';
    close(to);
    CHECK(WIFEXITED(status), "%s ended with %x", args[1], status);
    return WEXITSTATUS(status);
}

/* A save that is being freed, or was just published. */
static int lists_it_falsely(void)
{
    return strstr(printed, "complete, no manifest") || strstr(printed, "kept, no manifest") ||
           strstr(printed, "degraded, no manifest") || strstr(printed, "foreign");
}

static void look_often(unsigned looks)
{
    char job[128];
    const char *const verify[] = { "hearth", "verify", job, NULL };
    const char *const ls[] = { "hearth", "ls", "--root", p.root[0], "job", NULL };
    uint64_t begun, left_out = 0;

    saved = mmap(NULL, sizeof(*saved), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(saved != MAP_FAILED, "no shared memory");
    party_open(&p, 1, 1, 64);
    p.bytes = 4096;
    p.opts.keep = 3;
    p.opts.allow_degraded = 1;
    party_start(&p);
    party_all(&p, do_recover, 0, 0, 0);
    party_path(&p, 0, "", job, sizeof(job));
    party_tell(&p, 0, save_on, 0, 0, 0);
    for (uint64_t until = now_ms() + 20000; __atomic_load_n(saved, __ATOMIC_ACQUIRE) < 8; nap_ms(1))
        CHECK(now_ms() < until, "the job makes no saves");
    begun = __atomic_load_n(saved, __ATOMIC_ACQUIRE);
    for (unsigned i = 0; i < looks; i++) {
        int status = look(verify);

        CHECK(!status, "verify, run %u: status %d: %s", i, status, printed);
        left_out += strstr(printed, "gone") != NULL;
        status = look(ls);
        CHECK(!status, "ls, run %u: status %d: %s", i, status, printed);
        CHECK(!lists_it_falsely(), "ls, run %u: %s", i, printed);
        left_out += strstr(printed, "left out") != NULL;
        CHECK(!party_heard(&p, 0, 0), "the job ended");
    }
    begun = __atomic_load_n(saved, __ATOMIC_ACQUIRE) - begun;
    printf("%u runs of verify and of ls beside %llu saves: 0 false, %llu left out what went\n",
            looks, (unsigned long long)begun, (unsigned long long)left_out);
    CHECK(begun, "the job made no save meanwhile");
}

/* ---- root and a user's job ------------------------------------------------------------------- */

#define USER 65534

static void become_the_user(const struct party *q, struct me *me)
{
    (void)q, (void)me;
    CHECK(!setgroups(0, NULL) && !setresgid(USER, USER, USER) && !setresuid(USER, USER, USER),
            "setuid: %s", strerror(errno));
}

/* Directories above a build may be closed to all but root. */
static void the_user_can_start_engines(void)
{
    int status = 0;
    pid_t pid = fork();

    if (!pid) {
        become_the_user(NULL, NULL);
        _exit(access(p.opts.engine, X_OK) != 0);
    }
    CHECK(waitpid(pid, &status, 0) == pid, "waitpid: %s", strerror(errno));
    if (status)
        party_skip("the build cannot be read by others than root");
}

static void root_looks_at_the_job_of_a_user(void)
{
    const char *const ls[] = { "hearth", "ls", "--root", p.root[0], "job", NULL };
    const char *const keep[] = { "hearth", "keep", "--root", p.root[0], "job", NULL };
    const char *const pin[] = { "hearth", "keep", "--root", p.root[0], "job", "pin", "1", NULL };

    if (geteuid())
        party_skip("only root can try it");
    party_open(&p, 1, 1, 64);
    if (p.opts.engine)
        the_user_can_start_engines();
    p.opts.allow_degraded = 1;
    p.opts.keep = 2;
    p.adjust = become_the_user;
    CHECK(!chmod(p.base, 0755) && !chown(p.root[0], USER, USER), "chown: %s", strerror(errno));
    party_start(&p);
    party_all(&p, do_recover, 0, 0, 0);
    party_save(&p, 1, 1);
    CHECK(!look(ls) && strstr(printed, "1 ranks here"), "ls: %s", printed);
    CHECK(!look(keep) && strstr(printed, "degraded"), "keep: %s", printed);
    CHECK(!look(pin), "keep pin: %s", printed);
    CHECK(!look(keep) && strstr(printed, "pinned"), "keep: %s", printed);
}

static void looked_at(void)
{
    look_often(LOOKS);
}

static void looked_at_10000_times(void)
{
    alarm(MANY);
    look_often(MANY);
}

int main(int argc, char **argv)
{
    static const struct party_case cases[] = {
#define CASE(name) { #name, name },
        /* clang-format off */
    CASE(looked_at)
    CASE(root_looks_at_the_job_of_a_user)
        /* clang-format on */
        { "looked_at_10000_times", looked_at_10000_times }, /* on demand */
        { NULL, NULL }
    };

    return party_main(argc, argv, cases);
}
