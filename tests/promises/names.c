/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Something else lies at a name that an engine, a rank or a command opens: a link to outside or to
 * another file inside, a fifo, a folder, a device; or at that of a directory, a link. No process
 * waits, nothing is read or written where a link leads, and the job goes on, or each rank gets the
 * reason why not.
 */
#include "damage.h"
#include "party.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

static struct party p;
static char key[128];

static void keyed(const struct party *q, struct me *me)
{
    (void)q;
    me->opts.key_file = key;
}

static void job_open(void)
{
    unsigned char bytes[32];

    party_open(&p, 2, 2, 128);
    p.opts.transport = "tcp";
    snprintf(key, sizeof(key), "%s/key", p.root[0]);
    CHECK(getrandom(bytes, sizeof(bytes), 0) == sizeof(bytes), "no random bytes");
    damage_put(key, bytes, sizeof(bytes));
    p.adjust = keyed;
    party_start(&p);
    party_recover(&p, 0, 0);
    party_save(&p, 1, 1);
}

struct names {
    char path[64][256];
    int count;
};

static void name_add(const char *path, void *arg)
{
    struct names *n = arg;

    if (n->count < 64)
        snprintf(n->path[n->count++], sizeof(n->path[0]), "%s", path);
}

enum thing { FIFO, LINK_OUTSIDE, LINK_INSIDE, DIRECTORY, DEVICE };

static char outside[160], inside[160]; /* files that no program may write to */

static void plant(const char *path, enum thing thing)
{
    int failed = 0;

    CHECK(!unlink(path), "%s: %s", path, strerror(errno));
    if (thing == FIFO)
        failed = mkfifo(path, 0600);
    else if (thing == DIRECTORY)
        failed = mkdir(path, 0700);
    else if (thing == DEVICE)
        failed =
                mknod(path, S_IFCHR | 0600, makedev(1, 5)); /* /dev/zero: reading it does not end */
    else
        failed = symlink(thing == LINK_OUTSIDE ? outside : inside, path);
    CHECK(!failed, "%s: %s", path, strerror(errno));
}

/* Of node 0's job; `rest` may be "". */
static void job_path(const char *rest, char *out, size_t len)
{
    party_path(&p, 0, rest, out, len);
    if (!rest[0])
        out[strlen(out) - 1] = '\0';
}

static void victims_make(void)
{
    snprintf(outside, sizeof(outside), "%s/victim", p.base);
    party_path(&p, 0, "victim", inside, sizeof(inside));
    damage_put(outside, "whole", 5);
    damage_put(inside, "whole", 5);
}

static void victims_must_be_whole(void)
{
    const char *const paths[] = { outside, inside };

    for (size_t i = 0; i < 2; i++) {
        char text[8] = "";
        FILE *f = fopen(paths[i], "re");

        CHECK(f && fread(text, 1, sizeof(text), f) == 5 && !memcmp(text, "whole", 5),
                "%s was written to", paths[i]);
        fclose(f);
    }
}

/* The command-line program ends, and in time, whatever lies there. */
static void command_must_end(const char *const *args)
{
    uint64_t until = now_ms() + 10000;
    char path[512];
    pid_t pid;
    int status;

    snprintf(path, sizeof(path), "%s/hearth", getenv("HEARTH_TEST_BIN"));
    fflush(NULL);
    pid = fork();
    if (!pid) {
        int null = open("/dev/null", O_RDWR);

        dup2(null, 1);
        dup2(null, 2);
        execv(path, (char *const *)(uintptr_t)args);
        _exit(127);
    }
    while (!waitpid(pid, &status, WNOHANG)) {
        if (now_ms() > until)
            kill(pid, SIGKILL);
        nap_ms(5);
    }
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) != 127, "hearth %s: ended with %x", args[1],
            status);
}

static void commands_must_end(const char *path)
{
    const char *const looks[][6] = { { "hearth", "ls", "--root", p.root[0], NULL },
        { "hearth", "ls", "--root", p.root[0], "job", NULL }, { "hearth", "verify", path, NULL },
        { "hearth", "inspect", path, NULL } };

    for (size_t i = 0; i < sizeof(looks) / sizeof(looks[0]); i++)
        command_must_end(looks[i]);
}

/* All ranks learn in time whether the job opens. 1: the job goes on. */
static int job_comes(void)
{
    uint16_t meet = port_keep();
    int ok = 1;

    p.launches++;
    for (uint32_t r = 0; r < 2; r++)
        party_start_rank(&p, r);
    for (uint32_t r = 0; r < 2; r++)
        party_tell(&p, r, do_open, meet, 0, 0);
    for (uint32_t r = 0; r < 2; r++) {
        struct answer a = party_hear(&p, r, 30000);

        CHECK(!a.rc || strlen(a.err.text) > 10, "it failed without a word");
        ok &= !a.rc;
        if (a.rc)
            printf("  rank %u: %s\n", r, a.err.text);
    }
    return ok;
}

/* Step 1, byte for byte; or each rank gets the reason. */
static int job_recovers(void)
{
    int ok = 1;

    for (uint32_t r = 0; r < 2; r++)
        party_tell(&p, r, do_recover, 0, 0, 0);
    for (uint32_t r = 0; r < 2; r++) {
        struct answer a = party_hear(&p, r, 30000);

        CHECK(a.rc ? strlen(a.err.text) > 10 : a.v[0] == 1, "rank %u: step %llu %s", r,
                (unsigned long long)a.v[0], a.err.text);
        ok &= !a.rc;
        if (a.rc)
            printf("  rank %u: %s\n", r, a.err.text);
    }
    if (ok)
        party_all(&p, do_verify, 1, 1, 0);
    return ok;
}

static void job_ends(void)
{
    party_kill_ranks(&p);
    party_kill_engine(&p, 0);
    party_kill_engine(&p, 1);
}

/* At each name of node 0's, before its engine starts again. Node 1 has all that it had. */
static void at_each_name(enum thing thing)
{
    static struct names names;
    struct stat st;
    char dir[160];
    int refused = 0;

    job_open();
    victims_make();
    job_ends();
    job_path("", dir, sizeof(dir));
    party_find(dir, name_add, &names);
    for (int i = 0; i < names.count; i++) {
        const char *path = names.path[i];

        if (lstat(path, &st) || S_ISDIR(st.st_mode) || strstr(path, "/pool/") ||
                !strcmp(path, inside))
            continue; /* gone since; and slots are without a name once they are taken */
        printf("%s\n", path);
        fflush(stdout);
        plant(path, thing);
        commands_must_end(path);
        if (!job_comes() || !job_recovers()) { /* in words; where it is taken away the job comes */
            refused++;
            job_ends();
            CHECK(!(thing == DIRECTORY ? rmdir(path) : unlink(path)), "%s: %s", path,
                    strerror(errno));
            CHECK(job_comes() && job_recovers(), "%s: nor without it", path);
        }
        job_ends();
        victims_must_be_whole();
    }
    printf("%d names, refused at %d\n", names.count, refused);
    CHECK(job_comes(), "the job does not come");
    party_recover(&p, 1, 1);
    party_save(&p, 3, 3);
}

static void fifos(void)
{
    at_each_name(FIFO);
}

static void links(void)
{
    at_each_name(LINK_OUTSIDE);
}

static void links_inside(void)
{
    at_each_name(LINK_INSIDE);
}

static void folders(void)
{
    at_each_name(DIRECTORY);
}

static void devices(void)
{
    if (geteuid() != 0)
        party_skip("only root makes devices");
    at_each_name(DEVICE);
}

/* The files below, with sizes and times, as one number. */
static void print_add(const char *path, void *arg)
{
    uint64_t *print = arg;
    struct stat st;

    CHECK(!lstat(path, &st), "%s: %s", path, strerror(errno));
    *print += (uint64_t)st.st_ino * 31 + (uint64_t)st.st_size * 7 +
              (uint64_t)st.st_mtim.tv_sec * 1000000007 + (uint64_t)st.st_mtim.tv_nsec;
}

static uint64_t print_of(const char *path)
{
    uint64_t print = 0;

    print_add(path, &print); /* a name that is made or goes is in its time */
    party_find(path, print_add, &print);
    return print;
}

/* A directory of node 0's lies elsewhere, with all that it has, and a link in its place leads
 * there: nothing is read from it, since the job comes as if it were not there or not at all, and
 * nothing there is written. */
static void at_directory(const char *path)
{
    const char *const looks[][6] = { { "hearth", "ls", "--root", p.root[0], "job", NULL },
        { "hearth", "verify", "--root", p.root[0], "job", NULL } };
    char away[160];
    uint64_t before;

    printf("%s\n", path);
    fflush(stdout);
    snprintf(away, sizeof(away), "%s/away", p.root[0]); /* on the same mount, outside of the job */
    CHECK(!rename(path, away) && !symlink(away, path), "%s: %s", path, strerror(errno));
    before = print_of(away);
    for (size_t i = 0; i < sizeof(looks) / sizeof(looks[0]); i++)
        command_must_end(looks[i]);
    if (job_comes())
        party_recover(&p, 1, 1);
    job_ends();
    CHECK(print_of(away) == before, "%s: something was changed where the link leads", path);
    CHECK(!unlink(path) || errno == EISDIR || errno == ENOENT, "%s: %s", path, strerror(errno));
    if (!access(path, F_OK)) { /* it was put aside, and made anew */
        char command[400];

        snprintf(command, sizeof(command), "rm -rf %s", path);
        CHECK(!system(command), "%s", command);
    }
    CHECK(!rename(away, path), "%s: %s", path, strerror(errno));
    CHECK(job_comes(), "%s: it is back, and the job does not come", path);
    party_recover(&p, 1, 1);
    job_ends();
}

static void links_at_directories(void)
{
    static const char *const names[] = { "", ".hearth", ".hearth/pool", ".hearth/evidence",
        "step-1_ckpt" };
    const char *const clean[] = { "hearth", "clean", "--root", p.root[0], "job", NULL };
    char path[160], away[160];
    const char *const rm[] = { "hearth", "rm", path, NULL };
    uint64_t before;

    job_open();
    job_ends();
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        job_path(names[i], path, sizeof(path));
        at_directory(path);
    }
    job_path("step-1_ckpt", path, sizeof(path));
    snprintf(away, sizeof(away), "%s/away", p.root[0]);
    CHECK(!rename(path, away) && !symlink(away, path), "%s: %s", path, strerror(errno));
    before = print_of(away);
    command_must_end(rm);
    command_must_end(clean);
    CHECK(print_of(away) == before, "what a link leads to was removed");
}

/* Another program's socket, which ranks would speak to; and a fifo, at which they would wait. */
static void socket_elsewhere(void)
{
    struct sockaddr_un a = { .sun_family = AF_UNIX };
    int trap = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    const char *const ls[] = { "hearth", "ls", "--root", p.root[0], "job", NULL };
    char path[160];

    job_open();
    snprintf(a.sun_path, sizeof(a.sun_path), "%s/trap", p.base);
    CHECK(!bind(trap, (struct sockaddr *)&a, sizeof(a)) && !listen(trap, 8), "%s", strerror(errno));
    p.opts.open_ms = 5000; /* an engine runs, and none answers */
    party_path(&p, 0, ".hearth/sock", path, sizeof(path));
    for (int fifo = 0; fifo < 2; fifo++) {
        party_kill_ranks(&p);
        CHECK(!unlink(path) && !(fifo ? mkfifo(path, 0600) : symlink(a.sun_path, path)), "%s: %s",
                path, strerror(errno));
        command_must_end(ls);
        CHECK(!job_comes(), "the engine was found where its socket is not");
        CHECK(accept(trap, NULL, NULL) < 0 && errno == EAGAIN, "somebody came by the link");
    }
    p.opts.open_ms = 20000;
    job_ends(); /* the next one makes its own */
    CHECK(job_comes(), "the job does not come");
    party_recover(&p, 1, 1);
    party_save(&p, 2, 2);
}

/* An engine that ends of a fault writes why, if that can be done; a fifo in the log's place does
 * not stop it. */
static void engine_crashes_at_a_fifo(void)
{
    uint64_t until;
    char path[160];
    int status = 0;
    pid_t engine;

    prctl(PR_SET_CHILD_SUBREAPER, 1); /* it ends as our child: the runner wants no crashes */
    job_open();
    engine = party_engine(&p, 0);
    party_path(&p, 0, ".hearth/log", path, sizeof(path));
    CHECK(!unlink(path) && !mkfifo(path, 0600), "%s: %s", path, strerror(errno));
    kill(engine, SIGABRT);
    until = now_ms() + 5000;
    while (waitpid(engine, &status, WNOHANG) != engine && now_ms() < until)
        nap_ms(10);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT,
            "the engine waits for somebody who reads its log");
}

#define CASE(name) { #name, name },

int main(int argc, char **argv)
{
    static const struct party_case cases[] = { /* clang-format off */
    CASE(fifos)
    CASE(links)
    CASE(links_inside)
    CASE(folders)
    CASE(devices)
    CASE(links_at_directories)
    CASE(socket_elsewhere)
    CASE(engine_crashes_at_a_fifo)
        /* clang-format on */
        { NULL, NULL }
    };

    return party_main(argc, argv, cases);
}
