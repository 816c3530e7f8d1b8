/* SPDX-License-Identifier: Apache-2.0 */
/* An engine of its own process on tcp: what it does it can do with the files of its root, and it
 * can open no other. */
#include "damage.h"
#include "party.h"

#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define OTHER "/etc/passwd"

static struct party p;
static char key[128], beside[128];
static const char *unconfined, *opens, *transport = "tcp", *point = "chunk";
static uint32_t network;

/* The first engine of node 0 stops as it checksums, on a worker, or as it joins, on the engine's
 * thread, and has tried to read a file by then. */
static void stop_and_try(const struct party *q, struct me *me)
{
    me->opts.key_file = key;
    me->opts.network = network;
    me->opts.integrity = HEARTH_INTEGRITY_STRONG; /* else its rank makes the checksums */
    me->opts.stall_ms = me->opts.dead_ms = 20000;
    setenv("HEARTH_UNCONFINED", unconfined, 1);
    if (opens && q->launches == 1 && me->rank == 0) {
        setenv("HEARTH_STOP_POINT", point, 1);
        setenv("HEARTH_STOP_OPENS", opens, 1);
    }
}

/* The result: an errno. The engine goes on. */
static int heard_at_the_point(void)
{
    char path[160], text[64] = "", name[32] = "";
    int why = -1;
    long pid = 0;
    FILE *f;

    party_path(&p, 0, ".hearth/stopped", path, sizeof(path));
    party_wait_stopped(&p, 0);
    f = fopen(path, "re");
    CHECK(f && fgets(text, sizeof(text), f) && sscanf(text, "%31s %ld %d", name, &pid, &why) == 3 &&
                    !strcmp(name, point),
            "%s", text);
    fclose(f);
    kill((pid_t)pid, SIGCONT);
    return why;
}

static void put_key(const char *path)
{
    unsigned char bytes[32];

    CHECK(getrandom(bytes, sizeof(bytes), 0) == sizeof(bytes), "no random bytes");
    damage_put(path, bytes, sizeof(bytes));
}

/* Two nodes, with a key in a folder of its own and a file beside it. */
static void open_with_key(void)
{
    char folder[100];

    party_open(&p, 2, 2, 128);
    p.opts.transport = transport;
    snprintf(folder, sizeof(folder), "%s/keys", p.base);
    CHECK(!mkdir(folder, 0700), "%s: %s", folder, strerror(errno));
    snprintf(key, sizeof(key), "%s/key", folder);
    snprintf(beside, sizeof(beside), "%s/beside", folder);
    put_key(key);
    put_key(beside);
    p.adjust = stop_and_try;
}

/* The ranks wait until the engine goes on, so a process of its own reads the result. */
static int start_and_hear(void)
{
    int status = 0, rc;
    pid_t pid;

    fflush(NULL);
    pid = fork();
    if (pid == 0)
        _exit(heard_at_the_point());
    party_start(&p);
    while ((rc = waitpid(pid, &status, 0)) < 0 && errno == EINTR)
        continue;
    CHECK(rc == pid && WIFEXITED(status), "nothing was heard at the point");
    return WEXITSTATUS(status);
}

/* As the ranks open the job, on the engine's thread: the errno. */
static int try_as_it_joins(const char *path)
{
    party_needs_points();
    unconfined = "0";
    opens = path;
    point = "join";
    open_with_key();
    return start_and_hear();
}

/* A save of two nodes, in which an engine tries to open this: the errno. */
static int try_in_a_job(const char *switched, const char *path)
{
    int why;

    party_needs_points();
    unconfined = switched;
    opens = path;
    point = "chunk";
    open_with_key();
    party_start(&p);
    party_recover(&p, 0, 0);
    for (uint32_t r = 0; r < 2; r++)
        party_tell(&p, r, do_save, 1, 1, 0);
    why = heard_at_the_point();
    for (uint32_t r = 0; r < 2; r++) {
        struct answer a = party_hear(&p, r, 20000);

        CHECK(!a.rc, "rank %u: %s", r, a.err.text);
    }
    party_all(&p, do_wait, 1, HEARTH_PROTECTED, 15000);
    return why;
}

static void needs_landlock(void)
{
    if (syscall(SYS_landlock_create_ruleset, NULL, 0, 1) < 2)
        party_skip("this kernel has no Landlock of version 2");
}

/* All that a job does: saves, an engine that is killed and adopts, a machine that is lost, another
 * epoch, the end. */
static void engine_opens_nothing_else(void)
{
    int why;

    needs_landlock();
    why = try_in_a_job("0", OTHER);
    CHECK(why == EACCES, OTHER ": %s", strerror(why));
    CHECK(party_log_has(&p, 0, " confined ") && party_log_has(&p, 0, "nothing but its root"),
            "the log does not say it");
    party_restart(&p);
    party_recover(&p, 1, 1);
    party_save(&p, 2, 2);
    party_kill_ranks(&p);
    party_kill_engine(&p, 0);
    party_restart(&p);
    party_recover(&p, 2, 2);
    party_save(&p, 3, 3);
    party_kill_ranks(&p);
    party_lose_node(&p, 1);
    party_restart(&p);
    party_recover(&p, 3, 3);
    party_save(&p, 4, 4);
    party_all(&p, do_close, HEARTH_DROP, 0, 0);
}

/* Without these the engine would take room for endless, or serve no rank where descriptors are
 * short. */
static void engine_reads_what_it_needs(void)
{
    static const struct row {
        const char *path;
        int why;
    } rows[] = { { "/proc/self/cgroup", 0 }, { "/proc/self/mountinfo", 0 }, { "/proc/meminfo", 0 },
        { "/sys/kernel", 0 }, { "/dev/null", 0 }, { "/dev/zero", EACCES }, { "/tmp", EACCES },
        { "/proc/1/../../etc/passwd", EACCES }, { key, EACCES }, { beside, EACCES } };

    needs_landlock();
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        int why = try_in_a_job("0", rows[i].path);

        CHECK(why == rows[i].why, "%s: %s", rows[i].path, strerror(why));
    }
}

/* The same file, where it is switched off: it is there, and could be read. */
static void engine_is_left_alone_where_that_is_asked_for(void)
{
    int why = try_in_a_job("1", OTHER);

    CHECK(why == 0, OTHER ": %s", strerror(why));
    CHECK(!party_log_has(&p, 0, " confined "), "the log says that it is confined");
}

/* The number of threads that the last of its engine's lines of this kind tells. */
static unsigned threads_told(uint32_t node, const char *before, const char *behind)
{
    char path[160], line[4096], *at;
    unsigned n = 0;
    FILE *f;

    party_path(&p, node, ".hearth/log", path, sizeof(path));
    f = fopen(path, "re");
    while (f && fgets(line, sizeof(line), f))
        if ((at = strstr(line, before)) && strstr(at, behind))
            n = (unsigned)strtoul(at + strlen(before), NULL, 10);
    if (f)
        fclose(f);
    return n;
}

/* Lanes of tcp are started later, by a thread that is confined: the kernel confines them, too. */
static int is_lane(pid_t pid, const char *thread)
{
    char path[128], name[32] = "";
    FILE *f;

    snprintf(path, sizeof(path), "/proc/%ld/task/%.20s/comm", (long)pid, thread);
    if (!(f = fopen(path, "re")))
        return 0;
    if (!fgets(name, sizeof(name), f))
        name[0] = 0;
    fclose(f);
    return strcmp(name, "hearth-lane\n") == 0;
}

static unsigned threads_of(pid_t pid)
{
    char path[64];
    struct dirent *e;
    unsigned n = 0;
    DIR *d;

    snprintf(path, sizeof(path), "/proc/%ld/task", (long)pid);
    d = opendir(path);
    CHECK(d, "%s: %s", path, strerror(errno));
    while ((e = readdir(d)))
        n += e->d_name[0] != '.' && !is_lane(pid, e->d_name);
    closedir(d);
    return n;
}

static void wait_log(uint32_t node, const char *text)
{
    uint64_t until = now_ms() + 20000;

    while (!party_log_has(&p, node, text)) {
        CHECK(now_ms() < until, "the engine of n%u does not say '%s'", node, text);
        nap_ms(5);
    }
}

static void all_threads_are_told(uint32_t node)
{
    wait_log(node, " confined all ");
    CHECK(threads_told(node, " confined all ", " nothing but its root") ==
                    threads_of(party_engine(&p, node)),
            "n%u: %u threads are told, there are %u", node,
            threads_told(node, " confined all ", " nothing but its root"),
            threads_of(party_engine(&p, node)));
}

/* tcp is all that a node without adapters has, on a network of strangers: before any rank has
 * met another. */
static void engine_on_auto_is_confined_with_all_its_threads(void)
{
    needs_landlock();
    transport = "auto";
    CHECK(try_as_it_joins(OTHER) == EACCES, OTHER " can be read before the first epoch");
    for (uint32_t k = 0; k < 2; k++)
        all_threads_are_told(k);
    CHECK(try_in_a_job("0", beside) == EACCES, "what lies beside the key can be read");
    engine_opens_nothing_else();
}

/* Where the node could take libfabric's TCP as well, until the ranks have met; ever after not. */
static void engine_on_auto_is_confined_when_an_epoch_is_joined(void)
{
    needs_landlock();
    transport = "auto";
    network = HEARTH_NETWORK_TRUSTED;
    if (try_as_it_joins(OTHER) == EACCES)
        party_skip("nothing but tcp is to be had here");
    for (uint32_t k = 0; k < 2; k++)
        all_threads_are_told(k);
    engine_opens_nothing_else();
}

/* The process that opens the key file for this engine; 0: there is none. */
static pid_t reader_of(pid_t engine)
{
    DIR *d = opendir("/proc");
    struct dirent *e;
    pid_t found = 0;

    while (d && !found && (e = readdir(d))) {
        char path[64], name[32] = "";
        int parent = 0;
        FILE *f;

        snprintf(path, sizeof(path), "/proc/%.20s/stat", e->d_name);
        if ((f = fopen(path, "re")) && fscanf(f, "%*d (%31[^)]) %*c %d", name, &parent) == 2 &&
                parent == engine && !strcmp(name, "hearthd-key"))
            found = (pid_t)strtol(e->d_name, NULL, 10);
        if (f)
            fclose(f);
    }
    if (d)
        closedir(d);
    return found;
}

static int ends_soon(pid_t pid, int sig, pid_t other)
{
    struct pollfd end = { .fd = (int)syscall(SYS_pidfd_open, other, 0), .events = POLLIN };
    int ended;

    kill(pid, sig);
    ended = end.fd < 0 || poll(&end, 1, 10000) == 1;
    if (end.fd >= 0)
        close(end.fd);
    return ended;
}

/* The job's key and another one, as two lines, over the file of this name: as `hearth key add`
 * does it. */
static void add_key(void)
{
    unsigned char one[2][32];
    char fresh[160];
    FILE *f = fopen(key, "re");

    CHECK(f && fread(one[0], 1, 32, f) == 32, "%s: %s", key, strerror(errno));
    fclose(f);
    CHECK(getrandom(one[1], 32, 0) == 32, "no random bytes");
    snprintf(fresh, sizeof(fresh), "%s.new", key);
    put_key(fresh);
    f = fopen(fresh, "we");
    for (size_t i = 0; f && i < 64; i++)
        fprintf(f, "%02x%s", one[i / 32][i % 32], i % 32 == 31 ? "\n" : "");
    CHECK(f && !fclose(f) && !rename(fresh, key), "%s: %s", fresh, strerror(errno));
}

/* An engine whose reader was ended says so, and goes on with the key that it has. */
static void key_is_replaced_under_a_confined_engine(void)
{
    pid_t engine[2], reader[2];

    needs_landlock();
    transport = "auto";
    unconfined = "0";
    opens = NULL;
    open_with_key();
    party_start(&p);
    party_recover(&p, 0, 0);
    for (uint32_t k = 0; k < 2; k++) {
        engine[k] = party_engine(&p, k);
        CHECK((reader[k] = reader_of(engine[k])) > 0, "nothing opens the key file of n%u", k);
        all_threads_are_told(k);
    }
    CHECK(ends_soon(reader[0], SIGKILL, reader[0]), "the reader of n0 cannot be ended");
    add_key();
    wait_log(1, " key-changed ");
    wait_log(0, " key-unchanged ");
    CHECK(party_log_has(&p, 0, "the process hearthd-key, which opens it"), "n0 does not say why");
    party_save(&p, 1, 1);
    CHECK(party_engine(&p, 0) == engine[0], "n0 ended");
    CHECK(ends_soon(engine[1], SIGKILL, reader[1]), "the reader of n1 outlives its engine");
}

/* Node 0 has its key in a folder that is replaced by another of its name, node 1 as a Secret is
 * mounted: files below a link that is replaced. */
static char folder_of[2][110];

static void key_of_each(const struct party *q, struct me *me)
{
    (void)q;
    snprintf(key, sizeof(key), "%.110s/key", folder_of[me->rank]);
    me->opts.key_file = key;
    me->opts.stall_ms = me->opts.dead_ms = 20000;
}

static void copy_key(const char *folder, const char *text, size_t len)
{
    char path[160];

    CHECK(!mkdir(folder, 0700), "%s: %s", folder, strerror(errno));
    snprintf(path, sizeof(path), "%s/key", folder);
    damage_put(path, text, len);
}

static void key_folder_is_replaced_under_a_confined_engine(void)
{
    char text[131] = "", v[2][110], old[110], fresh[110];
    unsigned char bytes[64];

    needs_landlock();
    party_open(&p, 2, 2, 128);
    p.opts.transport = "tcp";
    p.adjust = key_of_each;
    CHECK(getrandom(bytes, sizeof(bytes), 0) == sizeof(bytes), "no random bytes");
    for (size_t i = 0; i < sizeof(bytes); i++)
        snprintf(text + strlen(text), 4, "%02x%s", bytes[i], i % 32 == 31 ? "\n" : "");
    snprintf(folder_of[0], sizeof(folder_of[0]), "%.64s/keys", p.base);
    snprintf(folder_of[1], sizeof(folder_of[1]), "%.64s/..data", p.base);
    snprintf(old, sizeof(old), "%.64s/old", p.base);
    snprintf(fresh, sizeof(fresh), "%.64s/fresh", p.base);
    for (int i = 0; i < 2; i++)
        snprintf(v[i], sizeof(v[i]), "%.64s/v%d", p.base, i);
    copy_key(folder_of[0], text, 65);
    copy_key(v[0], text, 65);
    copy_key(fresh, text, 130);
    copy_key(v[1], text, 130);
    CHECK(!symlink("v0", folder_of[1]), "no link: %s", strerror(errno));
    party_start(&p);
    party_recover(&p, 0, 0);
    for (uint32_t k = 0; k < 2; k++)
        CHECK(party_log_has(&p, k, " confined "), "n%u is not confined", k);
    CHECK(!rename(folder_of[0], old) && !rename(fresh, folder_of[0]), "%s", strerror(errno));
    CHECK(!symlink("v1", fresh) && !rename(fresh, folder_of[1]), "%s", strerror(errno));
    for (uint32_t k = 0; k < 2; k++)
        wait_log(k, " key-changed ");
    party_save(&p, 1, 1);
}

#define CASE(name) { #name, name },

int main(int argc, char **argv)
{
    static const struct party_case cases[] = { /* clang-format off */
    CASE(engine_opens_nothing_else)
    CASE(engine_reads_what_it_needs)
    CASE(engine_is_left_alone_where_that_is_asked_for)
    CASE(engine_on_auto_is_confined_with_all_its_threads)
    CASE(engine_on_auto_is_confined_when_an_epoch_is_joined)
    CASE(key_is_replaced_under_a_confined_engine)
    CASE(key_folder_is_replaced_under_a_confined_engine)
        /* clang-format on */
        { NULL, NULL }
    };

    return party_main(argc, argv, cases);
}
