/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The contract of a transport (transport/transport.h), one cell at a
 * time: conformance --backend NAME --group 1..14; or many rows of chance
 * of a strict backend: conformance --backend NAME --seeds FROM-TO. A cell prints one
 * line: conformance GROUP BACKEND passed|skipped: reason|failed: what. HEARTH_LONG=1 repeats
 * more. Nothing is asserted about how fast anything is, only that it ends.
 */
#include "conform.h"

#include <signal.h>

/* A fabric whose hardware is not here, as a provider for tests demands it. */
#define STRICT_AS(as, fabric, looks_at_no_key)                                            \
    {                                                                                     \
        .name = "ofi-strict-" fabric, .module = "ofi", .provider = as, .profile = fabric, \
        .connect_ms = 2000, .silent = 1, .keyless = looks_at_no_key                       \
    }
#define STRICT(fabric) STRICT_AS("strict", fabric, 0)

static const struct conform_backend backends[] = {
    { .name = "loop" },
    { .name = "tcp", .module = "tcp", .provider = "tcp" },
    { .name = "tcp-key", .module = "tcp", .provider = "tcp", .keyed = 1, .trusted = 1 },
    { .name = "tcp-two", .module = "tcp", .provider = "tcp", .bind = "127.0.0.1,127.0.0.2" },
    { .name = "tcp-sealed",
            .module = "tcp",
            .provider = "tcp",
            .keyed = 1,
            .setting = "HEARTH_TCP_CREW" },
    { .name = "ofi-tcp", .module = "ofi", .provider = "tcp" },
    { .name = "ofi-rxm",
            .module = "ofi",
            .provider = "tcp;ofi_rxm",
            .connect_ms = 2000,
            .silent = 1 },
    { .name = "ofi-rdm",
            .module = "ofi",
            .provider = RDM_PROVIDER,
            .connect_ms = 2000,
            .silent = 1 },
    { .name = "ofi-shm",
            .module = "ofi",
            .provider = "shm",
            .connect_ms = 2000,
            .silent = 1,
            .unguarded = 1 },
    STRICT("efa"),
    STRICT("efa-direct"),
    STRICT("cxi"),
    STRICT("opx"),
    STRICT_AS("verbs", "verbs", 0), /* of these two the backend knows the names */
    STRICT_AS("shm", "shm", 1),
    /* By hand: ofi_rxm of libfabric 1.17 to 2.6 receives on an endpoint that it has closed. */
    { .name = "ofi-strict-verbs-rxm",
            .module = "ofi",
            .provider = "verbs;ofi_rxm",
            .profile = "verbs",
            .connect_ms = 2000,
            .silent = 1 },
    STRICT("worst"),
    { .name = "ucx-tcp", .module = "ucx", .provider = "tcp", .library = "HEARTH_UCX_LIBRARY" },
    { .name = "ucx-gets",
            .module = "ucx",
            .provider = "tcp",
            .library = "HEARTH_UCX_LIBRARY",
            .setting = "HEARTH_UCX_GETS" },
};

static const struct {
    const char *name;
    void (*run)(const struct conform_backend *b);
} groups[] = {
    { "data", conform_data },
    { "messages", conform_messages },
    { "idle", conform_idle },
    { "death", conform_death },
    { "stop", conform_stop },
    { "partition", conform_partition },
    { "post-to-dead", conform_post_to_dead },
    { "isolation", conform_isolation },
    { "access", conform_access },
    { "dereg", conform_dereg },
    { "close", conform_close },
    { "session", conform_session },
    { "doors", conform_doors },
    { "crossing", conform_crossing },
};

static const char *cell_group = "?", *cell_backend = "?";

/* Asked by LeakSanitizer where there is one. It misjudges where libucs, which is opened at run
 * time, has its thread-local memory, depending on its address, and dies reading it. */
const char *__lsan_default_options(void);
__attribute__((visibility("default"))) const char *__lsan_default_options(void)
{
    return "use_tls=0";
}

_Noreturn void conform_failed(const char *file, int line, const char *what)
{
    printf("conformance %s %s failed: %s:%d: %s\n", cell_group, cell_backend, file, line, what);
    fflush(NULL);
    _exit(1);
}

_Noreturn void conform_skip(const char *reason)
{
    printf("conformance %s %s skipped: %s\n", cell_group, cell_backend, reason);
    fflush(NULL);
    _exit(77);
}

void conform_needs_guard(const struct conform_backend *b)
{
    if (b->unguarded)
        conform_skip(
                "the library reads a peer's memory as it lies there: of a stopped process, after "
                "its deregistration, and in one process after its end");
}

/* The provider ends the process that breaks a rule; to read what its owner has deregistered is no
 * reader's fault. */
static void be_strict(const struct conform_backend *b)
{
    char name[32], list[48];
    size_t len = strcspn(b->provider, ";");

    snprintf(name, sizeof(name), "%.*s", (int)len, b->provider);
    snprintf(list, sizeof(list), "%s%s", name, b->provider[len] ? ",ofi_rxm" : "");
    setenv("FI_PROVIDER", list, 1);
    setenv("STRICTFI_AS", name, 1);
    setenv("STRICTFI_PROFILE", b->profile, 1);
    if (strcmp(cell_group, "dereg") == 0)
        setenv("STRICTFI_FORGIVE", "mr-closed,key", 1);
}

int conform_trusts(const struct conform_backend *b)
{
    return b->trusted || (b->module && strcmp(b->module, "tcp") != 0);
}

const struct hth_key *conform_key(const struct conform_backend *b)
{
    static const unsigned char bytes[HTH_KEY] = { 9, 8, 7 };
    static const struct hth_key key = { .bytes = bytes, .id = 7 };

    return b->keyed ? &key : NULL;
}

static int usage(const char *program)
{
    fprintf(stderr, "usage: %s (--group 1..14 | --seeds FROM-TO) --backend", program);
    for (size_t b = 0; b < sizeof(backends) / sizeof(*backends); b++)
        fprintf(stderr, "%c%s", b ? '|' : ' ', backends[b].name);
    fprintf(stderr, "\n");
    return 2;
}

static int seeds_run(const struct conform_backend *backend, unsigned from, unsigned to)
{
    int failed;

    alarm(0); /* each seed has its own */
    failed = conform_seeds(backend, from, to);
    if (failed)
        printf("conformance seeds %s failed: %d of %u\n", cell_backend, failed, to - from + 1);
    else
        printf("conformance seeds %s passed\n", cell_backend);
    return failed != 0;
}

int main(int argc, char **argv)
{
    const struct conform_backend *backend = NULL;
    unsigned from = 0, to = 0;
    int group = 0;

    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--group") == 0)
            group = atoi(argv[i + 1]);
        if (strcmp(argv[i], "--seeds") == 0 && sscanf(argv[i + 1], "%u-%u", &from, &to) != 2)
            return usage(argv[0]);
        for (size_t b = 0; b < sizeof(backends) / sizeof(*backends); b++)
            if (strcmp(argv[i], "--backend") == 0 && strcmp(argv[i + 1], backends[b].name) == 0)
                backend = &backends[b];
    }
    if (!backend || (from && (to < from || !backend->profile)) ||
            (!from && (group < 1 || group > (int)(sizeof(groups) / sizeof(*groups)))))
        return usage(argv[0]);
    signal(SIGPIPE, SIG_IGN);
    alarm(long_run() ? 1200 : 110);
    if (backend->setting)
        setenv(backend->setting, "1", 0);
    cell_group = from ? "seeds" : groups[group - 1].name;
    cell_backend = backend->name;
    if (backend->profile)
        be_strict(backend);
    if (from)
        return seeds_run(backend, from, to);
    groups[group - 1].run(backend);
    printf("conformance %s %s passed\n", cell_group, cell_backend);
    return 0;
}
