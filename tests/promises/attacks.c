/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attackers without the key, or of another user, at a job that is running: with plain sockets at
 * its engines' ports, and at each name in its memory. Saves go on, no engine ends, and what they
 * use is bounded.
 */
#include "damage.h"
#include "party.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define SILENT      1000
#define MORE_FILES  300 /* descriptors that strangers may cost an engine: 256, and some in passing */
#define MORE_KIB    16384
#define HELLO       128
#define STRANGER_ID 65533

static struct party p;
static char key[128];
static uint16_t port[2];
static pid_t engine[2];
static unsigned files[2], kib[2]; /* before the first attacker came */

static void keyed(const struct party *q, struct me *me)
{
    (void)q;
    me->opts.key_file = key;
    me->opts.port = port[me->rank % 2];
}

static unsigned engine_files(uint32_t k)
{
    char path[64];
    unsigned n = 0;
    DIR *d;

    snprintf(path, sizeof(path), "/proc/%ld/fd", (long)engine[k]);
    d = opendir(path);
    CHECK(d, "%s: %s", path, strerror(errno));
    while (readdir(d))
        n++;
    closedir(d);
    return n;
}

/* Of its own memory: the store's is shared. */
static unsigned engine_kib(uint32_t k)
{
    char path[64], line[256];
    unsigned n = 0;
    FILE *f;

    snprintf(path, sizeof(path), "/proc/%ld/status", (long)engine[k]);
    f = fopen(path, "re");
    CHECK(f, "%s: %s", path, strerror(errno));
    while (fgets(line, sizeof(line), f))
        if (sscanf(line, "RssAnon: %u", &n) == 1)
            break;
    fclose(f);
    return n;
}

/* User and system time so far. */
static unsigned engine_cpu_ms(uint32_t k)
{
    unsigned long user = 0, system = 0;
    char path[64], text[512] = "";
    FILE *f;

    snprintf(path, sizeof(path), "/proc/%ld/stat", (long)engine[k]);
    f = fopen(path, "re");
    CHECK(f && fgets(text, sizeof(text), f), "%s: %s", path, strerror(errno));
    fclose(f);
    sscanf(strrchr(text, ')') + 2, "%*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user,
            &system);
    return (unsigned)((user + system) * 1000 / (unsigned long)sysconf(_SC_CLK_TCK));
}

static void job_open(void)
{
    struct rlimit most;
    unsigned char bytes[32];

    CHECK(!getrlimit(RLIMIT_NOFILE, &most), "%s", strerror(errno));
    most.rlim_cur = most.rlim_max;
    setrlimit(RLIMIT_NOFILE, &most);
    party_open(&p, 2, 2, 128);
    p.opts.transport = "tcp";
    snprintf(key, sizeof(key), "%s/key", p.root[0]);
    CHECK(getrandom(bytes, sizeof(bytes), 0) == sizeof(bytes), "no random bytes");
    damage_put(key, bytes, sizeof(bytes));
    port[0] = port_keep();
    port[1] = port_keep();
    p.adjust = keyed;
    party_start(&p);
    party_recover(&p, 0, 0);
    party_save(&p, 1, 1);
    for (uint32_t k = 0; k < 2; k++) {
        engine[k] = party_engine(&p, k);
        files[k] = engine_files(k);
        kib[k] = engine_kib(k);
    }
}

/* The same engines are there, as large as before or little more, and what they say is
 * remembered. */
static void job_must_be_well(uint64_t step)
{
    party_save(&p, step, step);
    for (uint32_t k = 0; k < 2; k++) {
        unsigned now = engine_kib(k);

        CHECK(party_engine(&p, k) == engine[k], "the engine of n%u has ended", k);
        printf("engine n%u: %u KiB of its own before, %u now\n", k, kib[k], now);
        CHECK(now < kib[k] + MORE_KIB, "the engine of n%u has grown", k);
    }
    party_restart(&p);
    party_recover(&p, step, step);
}

static int come(uint32_t k)
{
    struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons(port[k]) };
    struct timeval t = { .tv_sec = 5 };
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    CHECK(fd >= 0 && !connect(fd, (struct sockaddr *)&a, sizeof(a)), "port %u: %s", port[k],
            strerror(errno));
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof(t));
    return fd;
}

/* A dialler's hello as tcp/seal.h draws it, whose nonce and public key are anything. */
static void hello_make(unsigned char out[HELLO])
{
    memset(out, 0, HELLO);
    memcpy(out, "HTCP\2\2\1\1\7", 9);
    CHECK(getrandom(out + 32, 64, 0) == 64, "no random bytes");
}

/* ---- what would hurt a library's listener
 * ------------------------------------------------------ */

struct said {
    const char *what;
    unsigned char bytes[64];
    uint32_t len, times;
};

/* As those libraries' own clients would say it. */
static const struct said libraries[] = {
    { "libuct: its magic, then PUT_REQ to address 0x1000, 4096 bytes",
            { 0x78, 0x56, 0x34, 0x12, 0xbe, 0xba, 0xfe, 0xca, 0x21, 20, 0, 0, 0, 0, 0x10, 0, 0, 0,
                    0, 0, 0, 0, 0x10 },
            64, 70 },
    { "libuct: PUT_REQ without a magic", { 0x21, 20, 0, 0, 0, 0, 0x10, 0, 0, 0, 0, 0, 0, 0, 0x10 },
            25, 1 },
    { "libfabric: a connect request, then an ACK nobody waits for",
            { 2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3, 8, 0, 0, 0, 0, 0, 16 }, 48, 1 },
    { "libfabric: a connect request, then a tagged message",
            { 2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3, 1, 0, 0, 0, 0, 0, 24 }, 48, 1 },
    { "libfabric: reads of no length", { 3, 4, 0, 0, 0, 0, 0, 40 }, 40, 10000 },
    { "TLS", { 22, 3, 1, 0, 200, 1, 0, 0, 196, 3, 3 }, 64, 4 },
    { "ssh", "SSH-2.0-OpenSSH_9.2\r\n", 21, 1 },
    { "http", "GET /step-1_ckpt/__0__0_src0.distcp HTTP/1.0\r\n\r\n", 48, 1 },
};

static void must_be_closed_without_a_word(const struct said *s, uint32_t k)
{
    char got[16];
    ssize_t n;
    int fd = come(k);

    for (uint32_t i = 0; i < s->times && send(fd, s->bytes, s->len, MSG_NOSIGNAL) > 0;)
        i++;
    n = recv(fd, got, sizeof(got), 0);
    CHECK(n <= 0, "%s: it was answered", s->what);
    CHECK(n == 0 || errno != EAGAIN, "%s: it was not closed in 5 s", s->what);
    close(fd);
}

static void frames_of_libraries(void)
{
    job_open();
    for (uint32_t k = 0; k < 2; k++)
        for (size_t i = 0; i < sizeof(libraries) / sizeof(libraries[0]); i++)
            must_be_closed_without_a_word(&libraries[i], k);
    job_must_be_well(2);
}

/* ---- crowds
 * -------------------------------------------------------------------------------------- */

static void must_hold_few(uint32_t k)
{
    unsigned now = engine_files(k);

    printf("engine n%u: %u descriptors before, %u now\n", k, files[k], now);
    CHECK(now < files[k] + MORE_FILES, "the engine of n%u holds them", k);
}

static void thousand_silent(void)
{
    static int fd[SILENT];
    uint64_t until;

    job_open();
    for (int i = 0; i < SILENT; i++)
        fd[i] = come(0);
    party_save(&p, 2, 2);
    must_hold_few(0);
    until = now_ms() + 8000; /* they have 2 s */
    while (engine_files(0) > files[0] + 20 && now_ms() < until)
        nap_ms(50);
    CHECK(engine_files(0) <= files[0] + 20, "the silent ones are still there");
    for (int i = 0; i < SILENT; i++)
        close(fd[i]);
    job_must_be_well(3);
}

/* ---- a flood --------------------------------------------------------------------------------- */

#define FLOODERS 3
#define FLOOD_S  4
#define FLOOD_AT 256  /* connections of a flooder that stand: the engine reads their hellos */
#define GAP_MS   3000 /* between two saves that are PROTECTED, a machine with other work included */

struct flooded {
    unsigned saves, gap_ms, cpu_ms, ms;
    unsigned long long came;
};

/* One whole hello on a new connection, from one of many addresses; reset later, so that no port
 * waits. */
static void flood_once(uint32_t k, uint64_t n, int place[FLOOD_AT])
{
    const struct linger reset = { .l_onoff = 1 };
    struct sockaddr_in from = { .sin_family = AF_INET }, to = { .sin_family = AF_INET };
    int *fd = &place[n % FLOOD_AT];
    unsigned char hello[HELLO];

    if (*fd > 0)
        close(*fd);
    *fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (*fd < 0)
        return;
    setsockopt(*fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
    from.sin_addr.s_addr = htonl(INADDR_LOOPBACK + 0x100 + (uint32_t)(n % 4000));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    to.sin_port = htons(port[k]);
    hello_make(hello);
    (void)!bind(*fd, (struct sockaddr *)&from, sizeof(from));
    (void)!connect(*fd, (struct sockaddr *)&to, sizeof(to));
    (void)!send(*fd, hello, sizeof(hello), MSG_NOSIGNAL);
}

/* rate: connections a second; 0: as many as can be. */
static pid_t flooder_start(uint32_t k, unsigned rate, unsigned long long *came)
{
    static int place[FLOOD_AT];
    uint64_t began = now_ms();
    pid_t child;

    fflush(NULL);
    child = fork();
    if (child)
        return child;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)!nice(5); /* strangers have processors of their own */
    for (uint64_t n = 0;; n++) {
        while (rate && (now_ms() - began) * rate < n * 1000)
            nap_ms(1);
        flood_once(k, n, place);
        __atomic_fetch_add(came, 1, __ATOMIC_RELAXED);
    }
}

/* Saves of a job while `flooders` come at that rate each. */
static struct flooded flood_for(unsigned seconds, int flooders, unsigned rate, uint64_t *step)
{
    unsigned long long *came =
            mmap(NULL, sizeof(*came), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    struct flooded f = { .cpu_ms = engine_cpu_ms(0) };
    uint64_t began = now_ms(), last = began;
    pid_t child[FLOODERS];

    CHECK(came != MAP_FAILED, "no memory");
    for (int i = 0; i < flooders; i++)
        child[i] = flooder_start(0, rate, came);
    while (now_ms() - began < seconds * 1000) {
        party_save(&p, *step, *step);
        ++*step;
        f.saves++;
        if (now_ms() - last > f.gap_ms)
            f.gap_ms = (unsigned)(now_ms() - last);
        last = now_ms();
    }
    f.ms = (unsigned)(now_ms() - began);
    for (int i = 0; i < flooders; i++) {
        kill(child[i], SIGKILL);
        waitpid(child[i], NULL, 0);
    }
    f.came = *came;
    f.cpu_ms = engine_cpu_ms(0) - f.cpu_ms;
    munmap(came, sizeof(*came));
    printf("%8llu connections a second: %5.1f saves a second, longest gap %4u ms, engine n0 %3u %% of a core\n",
            f.came * 1000 / f.ms, f.saves * 1000.0 / f.ms, f.gap_ms, f.cpu_ms * 100 / f.ms);
    fflush(stdout);
    return f;
}

/* More than an engine's thread can take. In HEARTH_FLOOD_RATES rates may stand, for a table. */
static void flood_above_a_core(void)
{
    const char *rates = getenv("HEARTH_FLOOD_RATES");
    struct flooded f;
    uint64_t step = 2;

    job_open();
    for (; rates && *rates; rates += strcspn(rates, ","), rates += *rates == ',')
        flood_for(FLOOD_S, *rates != '0', (unsigned)strtoul(rates, NULL, 10), &step);
    f = flood_for(FLOOD_S, FLOODERS, 0, &step);
    CHECK(f.gap_ms < GAP_MS, "no save for %u ms", f.gap_ms);
    must_hold_few(0);
    job_must_be_well(step);
}

/* A reset in the middle of whatever. */
static void resets(void)
{
    const struct linger reset = { .l_onoff = 1 };
    unsigned char hello[HELLO];

    job_open();
    hello_make(hello);
    for (int i = 0; i < 3000; i++) {
        int fd = come((uint32_t)i % 2);

        (void)!send(fd, hello, (size_t)i % (HELLO + 1), MSG_NOSIGNAL);
        if (i % 3 == 0)
            shutdown(fd, SHUT_WR);
        setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
        close(fd);
    }
    party_save(&p, 2, 2);
    must_hold_few(0);
    must_hold_few(1);
    job_must_be_well(3);
}

/* ---- another user
 * -------------------------------------------------------------------------------- */

static int opened; /* of what he tries */

static void try_to_open(const char *path, void *arg)
{
    struct sockaddr_un a = { .sun_family = AF_UNIX };
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);

    (void)arg;
    if (fd >= 0) {
        fprintf(stderr, "%s can be opened\n", path);
        opened++;
        close(fd);
    }
    snprintf(a.sun_path, sizeof(a.sun_path), "%.100s", path);
    fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (!connect(fd, (struct sockaddr *)&a, sizeof(a))) {
        fprintf(stderr, "%s can be connected to\n", path);
        opened++;
    }
    close(fd);
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

static void try_the_engine(uint32_t k)
{
    static const char *const parts[] = { "mem", "environ", "maps", "fd/0", "fd/10", "auxv",
        "stack" };
    struct iovec here = { (char[8]){ 0 }, 8 }, there = { (void *)(uintptr_t)4096, 8 };
    char path[64];

    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        snprintf(path, sizeof(path), "/proc/%ld/%s", (long)engine[k], parts[i]);
        try_to_open(path, NULL);
    }
    errno = 0;
    opened += process_vm_readv(engine[k], &here, 1, &there, 1, 0) >= 0 || errno != EPERM;
    errno = 0;
    opened += !kill(engine[k], SIGTERM) || errno != EPERM;
}

/* The attacker has every name, and the directories above the job's let him in. */
static void another_user(void)
{
    static struct names names;
    int status;
    pid_t child;

    if (geteuid() != 0)
        party_skip("only root can try it as another user");
    job_open();
    CHECK(!chmod(p.base, 0755) && !chmod(p.root[0], 0755) && !chmod(p.root[1], 0755), "%s",
            strerror(errno));
    for (uint32_t k = 0; k < 2; k++)
        party_find(p.root[k], name_add, &names);
    CHECK(names.count > 20, "%d names", names.count);
    fflush(NULL);
    child = fork();
    if (!child) {
        if (setresgid(STRANGER_ID, STRANGER_ID, STRANGER_ID) ||
                setresuid(STRANGER_ID, STRANGER_ID, STRANGER_ID))
            _exit(2);
        for (int i = 0; i < names.count; i++)
            if (strstr(names.path[i], "/job"))
                try_to_open(names.path[i], NULL);
        try_to_open(key, NULL);
        for (uint32_t k = 0; k < 2; k++)
            try_the_engine(k);
        _exit(opened != 0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0, "another user got in: %x", status);
    job_must_be_well(2);
}

#define CASE(name) { #name, name },

int main(int argc, char **argv)
{
    static const struct party_case cases[] = { /* clang-format off */
    CASE(frames_of_libraries)
    CASE(thousand_silent)
    CASE(flood_above_a_core)
    CASE(resets)
    CASE(another_user)
        /* clang-format on */
        { NULL, NULL }
    };

    return party_main(argc, argv, cases);
}
