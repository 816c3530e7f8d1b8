/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs the scenarios, a few at a time, each in a process of its own that ends with all it started;
 * a line for each, and at the end how many. The output of a failed scenario, and the logs of its
 * engines, stay in --logs; see tests/cluster/run --help.
 */
#include "cluster.h"
#include "engines.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define JOBS_MAX 16
#define RUNS_MAX 4096

static const struct scenario *const lists[] = { scenarios_loss, scenarios_life, scenarios_damage,
    scenarios_room, scenarios_store, scenarios_slots, scenarios_shape, scenarios_some,
    scenarios_key, scenarios_why, scenarios_upgrade, scenarios_stop };

struct run {
    const struct scenario *scenario;
    const char *transport, *provider; /* NULL: the default */
    pid_t pid;
    uint64_t started, killed;
    unsigned again; /* the n-th time */
    char dir[160], log[400], why[3000];
    int result; /* 0, LOST_IT, SKIPPED */
};

static struct {
    const char *bin, *logs, *only, *transport, *provider;
    int list, jobs, namespaces, keep_logs, planted;
    const struct scenario *on_demand; /* instead of all others; NULL: none */
    unsigned times, limit_ms;         /* of one scenario */
    unsigned soak_ms;                 /* rolled worlds are started for so long */
    unsigned rounds;                  /* of each */
    uint64_t seed;                    /* of the first */
} opt = { .bin = "build/debug/bin", .jobs = 4, .times = 1, .limit_ms = 120000, .rounds = 6 };

static struct run runs[RUNS_MAX];
static size_t run_count;
static char base[128];

/* 1: of the texts in --only, with commas between them, name has one; "=TEXT" is the whole name. */
static int is_wanted(const char *name)
{
    char one[64];
    size_t len;

    if (!opt.only)
        return 1;
    for (const char *at = opt.only; *at; at += len + (at[len] == ',')) {
        len = strcspn(at, ",");
        snprintf(one, sizeof(one), "%.*s", (int)len, at);
        if (len && (one[0] == '=' ? !strcmp(name, one + 1) : strstr(name, one) != NULL))
            return 1;
    }
    return 0;
}

static void choose_from(const struct scenario *s, const struct run *how)
{
    for (; s->name; s++)
        if (is_wanted(s->name) && run_count < RUNS_MAX) {
            runs[run_count] = *how;
            runs[run_count++].scenario = s;
        }
}

/* By turns over all that there is, unless one is asked for. */
static void choose_soak(void)
{
    static const struct {
        const char *transport, *provider;
    } by[] = { { "tcp", NULL }, { "ofi", NULL }, { "ucx", NULL }, { "ofi", "tcp;ofi_rxm" },
        { "ofi", "strict-efa" } };
    static struct scenario worlds[SOAK_MAX];

    for (uint64_t i = 0; i < SOAK_MAX && !soak_world(&worlds[i], opt.seed + i); i++) {
        size_t turn = i % (sizeof(by) / sizeof(by[0]));
        struct run r = {
            .scenario = &worlds[i], .transport = by[turn].transport, .provider = by[turn].provider
        };

        if (opt.provider || opt.transport) {
            r.transport = opt.transport ? opt.transport : "ofi";
            r.provider = opt.provider;
        }
        runs[run_count++] = r;
    }
}

static void choose(const char *transport, const char *provider, unsigned again)
{
    struct run how = { .transport = transport, .provider = provider, .again = again };

    if (opt.on_demand) {
        choose_from(opt.on_demand, &how);
        return;
    }
    if (opt.planted)
        choose_from(scenarios_planted, &how);
    for (size_t l = 0; !opt.planted && l < sizeof(lists) / sizeof(lists[0]); l++)
        choose_from(lists[l], &how);
    if (!opt.planted && provider && !strncmp(provider, "strict-", 7))
        choose_from(scenarios_fabric, &how);
    if (!opt.planted && !strcmp(transport, "auto"))
        choose_from(scenarios_auto, &how);
    if (!opt.planted && !strcmp(transport, "tcp"))
        choose_from(scenarios_paths, &how);
}

/* --provider has one or several of ofi's, with commas between them. */
static void choose_providers(unsigned again)
{
    static char names[8][64];
    size_t len, count = 0;

    for (const char *at = opt.provider; *at && count < 8; at += len + (at[len] == ',')) {
        len = strcspn(at, ",");
        snprintf(names[count], sizeof(names[0]), "%.*s", (int)len, at);
        choose("ofi", names[count++], again);
    }
}

static void choose_all(unsigned again)
{
    if (opt.provider) {
        choose_providers(again);
        return;
    }
    if (!opt.transport && !opt.planted && !opt.on_demand) {
        struct run how = { .transport = "auto", .again = again };

        choose_from(scenarios_auto, &how);
        how.transport = "tcp";
        choose_from(scenarios_paths, &how);
    }
    if (opt.transport && !strcmp(opt.transport, "auto"))
        choose("auto", NULL, again);
    if (opt.transport && !strcmp(opt.transport, "tcp"))
        choose("tcp", NULL, again);
    if (!opt.transport || !strcmp(opt.transport, "ofi"))
        choose("ofi", NULL, again);
    if (!opt.transport || !strcmp(opt.transport, "ucx"))
        choose("ucx", NULL, again);
}

/* How the bytes travel, as the lines call it. */
static const char *fabric_of(const struct run *r)
{
    return r->provider ? r->provider : r->transport;
}

/* ---- one ------------------------------------------------------------------------------------- */

static void write_why(const struct run *r, const struct world *w, int rc)
{
    char path[200];
    FILE *f;

    snprintf(path, sizeof(path), "%s/why", r->dir);
    f = fopen(path, "we");
    if (!f)
        return;
    fprintf(f, "%d %s\n", rc, w->why);
    fclose(f);
}

/* ---- sanitizers: what they find in any process of the scenario is in a file
 * ------------------- */

static void add_log_path(const char *variable, const char *dir)
{
    const char *is = getenv(variable);
    char text[600];

    snprintf(text, sizeof(text), "%.200s%slog_path=%s/sanitizer", is ? is : "", is ? ":" : "", dir);
    setenv(variable, text, 1);
}

void __sanitizer_set_report_path(const char *path) __attribute__((weak)); /* in builds with one */

/* That file lies outside of an engine's root, which it would keep itself to. */
static void let_engines_write_it(void)
{
    if (__sanitizer_set_report_path)
        setenv("HEARTH_UNCONFINED", "1", 1);
}

static int copy_findings(const char *path, FILE *to)
{
    FILE *f = fopen(path, "re");
    char line[1000];

    while (f && fgets(line, sizeof(line), f))
        fputs(line, to);
    return f ? fclose(f) : -1;
}

static int findings(struct world *w)
{
    DIR *d = opendir(w->dir);
    struct dirent *e;
    char path[450];
    int found = 0;

    while (d && (e = readdir(d))) {
        if (strncmp(e->d_name, "sanitizer.", 10) != 0)
            continue;
        snprintf(path, sizeof(path), "%s/%s", w->dir, e->d_name);
        found += !copy_findings(path, w->log);
    }
    if (d)
        closedir(d);
    return found ? lost(w, "a sanitizer found something; its reports are in the record") : 0;
}

/* "strict-PROFILE" is the provider for tests as that fabric; its settings are the environment's,
 * which ranks and engines have from us. A read of a save that its owner has just freed fails in a
 * completion, as on hardware: that is not the reader's fault. Machines share no names of sockets
 * but those in the scenario's folder. */
static int provider_set(struct world *w, const char *provider)
{
    char path[400];

    w->provider = provider;
    if (!provider || strncmp(provider, "strict-", 7) != 0)
        return 0;
    snprintf(path, sizeof(path), "%.300s/../lib/strictfi", w->bin);
    if (access(path, F_OK)) {
        snprintf(w->why, sizeof(w->why), "%s is not built", path);
        return SKIPPED;
    }
    w->provider = "strict";
    return setenv("FI_PROVIDER_PATH", path, 1) || setenv("FI_PROVIDER", "strict", 1) ||
                           setenv("STRICTFI_PROFILE", provider + 7, 1) ||
                           setenv("STRICTFI_FORGIVE", "mr-closed", 1) ||
                           setenv("STRICTFI_DIR", w->dir, 1)
                   ? lost(w, "no room in the environment")
                   : 0;
}

static int run_scenario(const struct run *r, struct world *w)
{
    TRY(provider_set(w, r->provider));
    if (strcmp(w->transport, "tcp") == 0) /* our sockets carry what a hostile network may see */
        TRY(key_make(w));
    return nodes_open(w) ? lost(w, "no network namespace") : r->scenario->run(w, r->scenario->arg);
}

static int be_scenario(struct run *r, uint32_t id)
{
    static struct world w;
    int rc;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    w = (struct world){ .transport = r->transport,
        .bin = opt.bin,
        .dir = r->dir,
        .namespaces = opt.namespaces,
        .id = id,
        .log = fopen(r->log, "we") };
    if (!w.log)
        return LOST_IT;
    setvbuf(w.log, NULL, _IOLBF, 0);
    add_log_path("ASAN_OPTIONS", r->dir);
    add_log_path("UBSAN_OPTIONS", r->dir);
    let_engines_write_it();
    rc = run_scenario(r, &w);
    write_why(r, &w, rc);
    world_close(&w);
    if (findings(&w))
        write_why(r, &w, rc = LOST_IT);
    fclose(w.log);
    return rc;
}

static void start(struct run *r, uint32_t id)
{
    snprintf(r->dir, sizeof(r->dir), "%s/%u", base, id);
    snprintf(r->log, sizeof(r->log), "%.200s/%s.%.60s", opt.logs, r->scenario->name, fabric_of(r));
    for (char *c = r->log; (c = strchr(c, ';'));) /* no word of a shell */
        *c = '-';
    snprintf(r->log + strlen(r->log), 20, r->again ? ".%u.log" : ".log", r->again + 1);
    mkdir(r->dir, 0700);
    r->started = now_ms();
    fflush(NULL);
    r->pid = fork();
    if (r->pid == 0)
        _exit(be_scenario(r, id) & 0xff);
}

static int remove_one(const char *path, const struct stat *st, int flag, struct FTW *at)
{
    (void)st, (void)flag, (void)at;
    return remove(path), 0;
}

static void remove_dir(const char *path)
{
    nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
}

static void read_why(struct run *r, int status)
{
    char path[200], line[sizeof(r->why) + 16] = "";
    FILE *f;

    snprintf(path, sizeof(path), "%s/why", r->dir);
    f = fopen(path, "re");
    if (f && fgets(line, sizeof(line), f))
        r->result = (int)strtol(line, NULL, 10);
    else
        r->result = LOST_IT;
    if (f)
        fclose(f);
    line[strcspn(line, "\n")] = '\0';
    if (r->result) /* a scenario may have met a loss that it wanted */
        snprintf(r->why, sizeof(r->why), "%s", strchr(line, ' ') ? strchr(line, ' ') + 1 : "");
    /* A reason from before the world was closed does not explain why the closing failed. */
    if (r->killed)
        snprintf(r->why, sizeof(r->why), "no end after %u s", opt.limit_ms / 1000);
    else if (!line[0] || status != (r->result & 0xff) << 8)
        snprintf(r->why, sizeof(r->why), "the scenario's process ended with status %#x", status);
    else
        return;
    r->result = LOST_IT;
}

static void finish(struct run *r, int status)
{
    const char *verdict;

    engines_signal(r->dir, NULL, SIGKILL);
    read_why(r, status);
    verdict = r->result == 0 ? "passed" : r->result == SKIPPED ? "skipped" : "failed";
    printf("cluster: %s/%s %s %s%s(%.1f s)\n", r->scenario->name, fabric_of(r), verdict, r->why,
            r->why[0] ? " " : "", (double)(now_ms() - r->started) / 1000);
    fflush(stdout);
    if ((r->result == 0 || r->result == SKIPPED) && !opt.keep_logs)
        remove(r->log);
    remove_dir(r->dir);
    r->pid = 0;
}

/* ---- all ------------------------------------------------------------------------------------- */

static int reap(void)
{
    int status, running = 0;
    pid_t pid;

    while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
        for (size_t i = 0; i < run_count; i++)
            if (runs[i].pid == pid)
                finish(&runs[i], status);
    for (size_t i = 0; i < run_count; i++) {
        if (runs[i].pid <= 0)
            continue;
        running++;
        if (!runs[i].killed && now_ms() > runs[i].started + opt.limit_ms) {
            runs[i].killed = 1;
            kill(runs[i].pid, SIGKILL); /* its machines go with it */
        }
    }
    return running;
}

static int run_all(void)
{
    unsigned passed = 0, failed = 0, skipped = 0;
    uint64_t began = now_ms();
    size_t next = 0;
    int running;

    while ((running = reap()) || next < run_count) {
        if (opt.soak_ms && now_ms() > began + opt.soak_ms)
            run_count = next;
        if (next < run_count && running < opt.jobs) {
            start(&runs[next], (uint32_t)next);
            next++;
        } else {
            nap_ms(10);
        }
    }
    for (size_t i = 0; i < run_count; i++) {
        passed += runs[i].result == 0;
        skipped += runs[i].result == SKIPPED;
        failed += runs[i].result != 0 && runs[i].result != SKIPPED;
    }
    if (failed)
        printf("what they did: %s\n", opt.logs);
    printf("cluster: total: %u passed, %u failed, %u skipped\n", passed, failed, skipped);
    return failed || !passed;
}

/* One machine made and lost, to see whether it can be done here. */
static int can_have_namespaces(void)
{
    static struct world w;
    char dir[160];
    int status = -1;
    pid_t pid;

    if (geteuid() != 0)
        return 0;
    snprintf(dir, sizeof(dir), "%s/probe", base);
    mkdir(dir, 0700);
    fflush(NULL);
    pid = fork();
    if (pid == 0) {
        w = (struct world){
            .namespaces = 1, .dir = dir, .mib = 1, .log = fopen("/dev/null", "we")
        };
        _exit(!w.log || nodes_open(&w) || node_up(&w, 0) || node_kill(&w, 0));
    }
    if (pid > 0)
        waitpid(pid, &status, 0);
    return status == 0;
}

static int make_base(void)
{
    const char *tmp = getenv("TMPDIR");

    snprintf(base, sizeof(base), "%.80s/hearth-cluster.XXXXXX", tmp ? tmp : "/tmp");
    if (!mkdtemp(base))
        return -1;
    opt.namespaces = can_have_namespaces();
    if (opt.namespaces)
        return 0;
    printf("no rights for namespaces or mounts here: machines are directories and loopback "
           "addresses\n");
    remove_dir(base);
    snprintf(base, sizeof(base), "/dev/shm/hearth-cluster.XXXXXX");
    return mkdtemp(base) ? 0 : -1;
}

static int take_args(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";

        if (!strcmp(argv[i], "--list"))
            opt.list = 1;
        else if (!strcmp(argv[i], "--planted"))
            opt.planted = 1;
        else if (!strcmp(argv[i], "--many"))
            opt.on_demand = scenarios_many;
        else if (!strcmp(argv[i], "--deaths"))
            opt.on_demand = scenarios_deaths;
        else if (!strcmp(argv[i], "--upgrades"))
            opt.on_demand = scenarios_upgrades;
        else if (!strcmp(argv[i], "--keep-logs"))
            opt.keep_logs = 1;
        else if (!strcmp(argv[i], "--bin"))
            opt.bin = value, i++;
        else if (!strcmp(argv[i], "--logs"))
            opt.logs = value, i++;
        else if (!strcmp(argv[i], "--only"))
            opt.only = value, i++;
        else if (!strcmp(argv[i], "--transport"))
            opt.transport = value, i++;
        else if (!strcmp(argv[i], "--provider"))
            opt.provider = value, i++;
        else if (!strcmp(argv[i], "--jobs"))
            opt.jobs = (int)strtol(value, NULL, 10), i++;
        else if (!strcmp(argv[i], "--soak"))
            opt.soak_ms = (unsigned)strtoul(value, NULL, 10) * 1000, i++;
        else if (!strcmp(argv[i], "--rounds"))
            opt.rounds = (unsigned)strtoul(value, NULL, 10), i++;
        else if (!strcmp(argv[i], "--seed"))
            opt.seed = strtoull(value, NULL, 10), i++;
        else if (!strcmp(argv[i], "--limit"))
            opt.limit_ms = (unsigned)strtoul(value, NULL, 10) * 1000, i++;
        else if (!strcmp(argv[i], "--times"))
            opt.times = (unsigned)strtoul(value, NULL, 10), i++;
        else
            return -1;
    }
    return opt.jobs >= 1 && opt.jobs <= JOBS_MAX && (opt.logs || opt.list) ? 0 : -1;
}

int main(int argc, char **argv)
{
    int rc;

    if (take_args(argc, argv)) {
        fprintf(stderr, "cluster: wrong arguments; see tests/cluster/run --help\n");
        return 2;
    }
    if (opt.soak_ms)
        choose_soak();
    for (unsigned i = 0; i < opt.times && !opt.soak_ms; i++)
        choose_all(i);
    if (opt.list) {
        for (size_t i = 0; i < run_count; i++)
            printf("%s/%s\n", runs[i].scenario->name, fabric_of(&runs[i]));
        return 0;
    }
    signal(SIGPIPE, SIG_IGN);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    if (mkdir(opt.logs, 0755) && errno != EEXIST) {
        fprintf(stderr, "cluster: %s: %s\n", opt.logs, strerror(errno));
        return 1;
    }
    if (make_base()) {
        fprintf(stderr, "cluster: no directory for machines: %s\n", strerror(errno));
        return 1;
    }
    if (opt.soak_ms && soak_open(opt.rounds))
        return 1;
    rc = run_all();
    if (opt.soak_ms)
        soak_say();
    remove_dir(base);
    return rc;
}
