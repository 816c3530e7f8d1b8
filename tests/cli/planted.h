/* SPDX-License-Identifier: Apache-2.0 */
/* Faults of a node, planted where this process alone has them, and what `hearth doctor` finds. */
#ifndef TEST_CLI_PLANTED_H
#define TEST_CLI_PLANTED_H

#include "made_up.h"
#include "saved.h"
#include "tmp_root.h"

#include "core/format/epoch.h"
#include "core/local/local.h"
#include "core/local/packet.h"

#include <arpa/inet.h>
#include <errno.h>
#include <hearth/version.h>
#include <jansson.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#define GOOD "huge=within_size,noswap"

static json_t *report;
static int findings; /* of the last look that are broken or at risk */
static pid_t planted_engine, planted_peer;
static char planted_group[200], planted_node[64];

static void plant_start(void)
{
    char path[600], options[400];
    const char *asan = getenv("ASAN_OPTIONS");

    make_root();
    rmdir(root);
    for (char **e = environ; *e;)
        if (!strncmp(*e, "HEARTH_", 7) && strncmp(*e, "HEARTH_TEST_", 12) != 0) {
            snprintf(path, sizeof(path), "%.*s", (int)strcspn(*e, "="), *e);
            unsetenv(path);
            e = environ;
        } else {
            e++;
        }
    snprintf(options, sizeof(options), "%s:verify_asan_link_order=0", asan ? asan : "");
    setenv("ASAN_OPTIONS", options, 1);
    snprintf(path, sizeof(path), "%s/made-up/fake_clock.so", getenv("HEARTH_TEST_LIB"));
    setenv("LD_PRELOAD", path, 1);
}

static void plant_end_process(pid_t pid)
{
    if (pid <= 0)
        return;
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

/* Out of its cgroup, which goes. */
static void plant_leave_group(void)
{
    char path[260], up[200];
    FILE *f;

    if (!planted_group[0])
        return;
    snprintf(up, sizeof(up), "%s", planted_group);
    *strrchr(up, '/') = '\0';
    snprintf(path, sizeof(path), "%s/cgroup.procs", up);
    f = fopen(path, "w");
    if (f) {
        fputs("0", f);
        fclose(f);
    }
    for (int i = 0; i < 100 && rmdir(planted_group) && errno == EBUSY; i++)
        usleep(10000);
}

static void plant_stop(void)
{
    char key[128];

    plant_end_process(planted_engine);
    plant_end_process(planted_peer);
    plant_leave_group();
    if (planted_node[0])
        made_up_end(planted_node);
    json_decref(report);
    if (!strncmp(root, "/tmp/", 5))
        rmdir(root);
    snprintf(key, sizeof(key), "%s.key", out_path);
    unlink(key);
    unlink(out_path);
    unlink(err_path);
    free(out);
}

/* ---- what is found --------------------------------------------------------------------------- */

static int is_finding(const json_t *f)
{
    const char *state = json_string_value(json_object_get(f, "state"));

    return !strcmp(state, "broken") || !strcmp(state, "at risk");
}

static void look(void)
{
    int status = hearth("doctor", "--root", root, "--json");
    const json_t *one;
    size_t i;

    json_decref(report);
    report = json_loads(out, 0, NULL);
    cr_assert(ne(ptr, report, NULL), "status %d: %s%s", status, out, err_text);
    findings = 0;
    json_array_foreach(json_object_get(report, "findings"), i, one) findings += is_finding(one);
    cr_expect(eq(int, status, findings > 0), "%s", out);
}

static int of_finding(const json_t *f, const char *key, const char *part)
{
    const char *text = json_string_value(json_object_get(f, key));

    return !part || (text && strstr(text, part));
}

static void is_found(const char *state, const char *check, const char *text, const char *do_it)
{
    const json_t *one;
    size_t i;

    json_array_foreach(json_object_get(report, "findings"), i,
            one) if (of_finding(one, "check", check) && of_finding(one, "state", state) &&
                     of_finding(one, "text", text) && of_finding(one, "remedy", do_it)) return;
    cr_assert(
            eq(int, 0, 1), "%s %s: '%s', '%s' in %s", state, check, text, do_it ? do_it : "", out);
}

static inline void finds(const char *state, const char *check, const char *text, const char *do_it)
{
    look();
    is_found(state, check, text, do_it);
}

static inline void only(const char *state, const char *check, const char *text, const char *do_it)
{
    finds(state, check, text, do_it);
    cr_expect(eq(int, findings, 1), "%s", out);
}

static void nothing_is_found(void)
{
    look();
    cr_assert(zero(int, findings), "%s", out);
}

/* ---- the root -------------------------------------------------------------------------------- */

static void plant_root(uint64_t bytes, const char *options)
{
    if (!tmp_root_mount(bytes, options))
        cr_skip_test("no right to mount a tmpfs, or not with these options");
    snprintf(root, sizeof(root), "/mnt");
}

static inline void plant_disk(void)
{
    snprintf(root, sizeof(root), "/tmp/hearth-cli-XXXXXX");
    cr_assert(ne(ptr, mkdtemp(root), NULL));
}

/* As large as that, or as there is room for. */
static inline void plant_file(const char *name, uint64_t bytes)
{
    static const char block[4096];
    char path[128];
    int fd;

    snprintf(path, sizeof(path), "%s/%s", root, name);
    fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    cr_assert(ge(int, fd, 0));
    for (uint64_t n = 0; n < bytes && write(fd, block, sizeof(block)) > 0; n += sizeof(block))
        ;
    close(fd);
}

static inline int plant_empty(const char *name)
{
    char path[128];
    int fd;

    snprintf(path, sizeof(path), "%s/%s", root, name);
    fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    if (fd >= 0)
        close(fd);
    return fd < 0;
}

static inline int hth_store_close_made(struct hth_store *s)
{
    s->ops->close(s);
    return HEARTH_OK;
}

/* A machine that is made up, with swap and this line of /proc/self/mounts. */
static inline void plant_swap(const char *line)
{
    if (!planted_node[0])
        made_up_begin(planted_node);
    made_up_file(planted_node, "/proc/swaps",
            "Filename Type Size Used Priority\n/dev/sda2 partition 1024 0 -2");
    made_up_file(planted_node, "/proc/self/mounts", line);
    setenv("HEARTH_DOCTOR_ROOT", planted_node, 1);
}

/* ---- cgroups --------------------------------------------------------------------------------- */

static inline int plant_line(const char *path, const char *line)
{
    FILE *f = fopen(path, "w");
    int failed = !f || fputs(line, f) < 0;

    return (f && fclose(f)) || failed;
}

/* This process and its children are in a cgroup of version 1 of that controller. */
static inline void plant_group(const char *controller, const char *file, const char *value)
{
    char path[300];

    snprintf(planted_group, sizeof(planted_group), "/sys/fs/cgroup/%s/hearth-doctor-%d", controller,
            (int)getpid());
    if (mkdir(planted_group, 0755)) {
        planted_group[0] = '\0';
        cr_skip_test("no cgroup of version 1 can be made");
    }
    snprintf(path, sizeof(path), "%s/%s", planted_group, file);
    cr_assert(zero(int, plant_line(path, value)));
    snprintf(path, sizeof(path), "%s/cgroup.procs", planted_group);
    cr_assert(zero(int, plant_line(path, "0")));
}

/* This process and its children get `why` for that call, as from a container's seccomp profile. */
static inline void plant_refusal(long call, int why)
{
    struct sock_filter rule[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)call, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (uint32_t)why),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog all = { .len = sizeof(rule) / sizeof(rule[0]), .filter = rule };

    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &all))
        cr_skip_test("no seccomp filter can be had");
}

/* ---- networks -------------------------------------------------------------------------------- */

static inline void ip(const char *words)
{
    char command[256];

    snprintf(command, sizeof(command), "ip %s", words);
    cr_assert(zero(int, system(command)), "%s", command);
}

/* A network of this process's own, as /sys shows it; with its loopback up. */
static inline void plant_network(int up)
{
    if (unshare(CLONE_NEWNET) || mount("sysfs", "/sys", "sysfs", 0, NULL))
        cr_skip_test("no right to have a network of its own");
    if (system("ip -V > /dev/null 2>&1"))
        cr_skip_test("there is no ip");
    if (up)
        ip("link set lo up");
}

/* In its own network: accepts connections at port 7701 of 10.77.0.2 and fd77::2, and keeps them. */
static void plant_peer(int ready, int mtu)
{
    struct sockaddr_in6 a = { .sin6_family = AF_INET6, .sin6_port = htons(7701) };
    char words[64];
    int fd;

    if (unshare(CLONE_NEWNET) || write(ready, "n", 1) != 1)
        _exit(1);
    while (system("ip link show e1 > /dev/null 2>&1"))
        usleep(10000);
    snprintf(words, sizeof(words), "ip link set e1 mtu %d up", mtu);
    if (system(words) || system("ip addr add 10.77.0.2/24 dev e1") ||
            system("ip addr add fd77::2/64 dev e1 nodad"))
        _exit(1);
    fd = socket(AF_INET6, SOCK_STREAM, 0);
    if (bind(fd, (const struct sockaddr *)&a, sizeof(a)) || listen(fd, 4) ||
            write(ready, "l", 1) != 1)
        _exit(1);
    for (;;)
        accept(fd, NULL, NULL);
}

/* A second node, and a cable to it: e0 with 10.77.0.1 here, e1 with 10.77.0.2 there. */
static inline void plant_cable(int here_mtu, int there_mtu)
{
    int ready[2];
    char words[160], byte;

    cr_assert(zero(int, pipe(ready)));
    planted_peer = fork();
    if (!planted_peer)
        plant_peer(ready[1], there_mtu);
    close(ready[1]);
    cr_assert(eq(int, (int)read(ready[0], &byte, 1), 1));
    snprintf(words, sizeof(words), "link add e0 mtu %d type veth peer name e1 netns %d", here_mtu,
            (int)planted_peer);
    ip(words);
    ip("addr add 10.77.0.1/24 dev e0");
    ip("addr add fd77::1/64 dev e0 nodad");
    ip("link set e0 up");
    cr_assert(eq(int, (int)read(ready[0], &byte, 1), 1));
    close(ready[0]);
    for (int i = 0; i < 500 && system("grep -q up /sys/class/net/e0/operstate"); i++)
        usleep(10000); /* an interface that was just set up runs a moment later */
}

/* As engines pack it: family, port, number. */
static inline void plant_address(struct hth_member *m, int family, uint16_t port, const char *text)
{
    m->addr[0] = 1;
    m->addr[1] = family == AF_INET6 ? 6 : 4;
    memcpy(m->addr + 2, &port, 2);
    inet_pton(family, text, m->addr + 4);
    m->addr_len = family == AF_INET6 ? 20 : 8;
}

static inline int plant_connection(int family)
{
    struct sockaddr_in four = { .sin_family = AF_INET, .sin_port = htons(7701) };
    struct sockaddr_in6 a = { .sin6_family = AF_INET6, .sin6_port = htons(7701) };
    int fd = socket(family, SOCK_STREAM, 0);

    inet_pton(AF_INET, "10.77.0.2", &four.sin_addr);
    inet_pton(AF_INET6, "fd77::2", &a.sin6_addr);
    return family == AF_INET6 ? connect(fd, (const struct sockaddr *)&a, sizeof(a))
                              : connect(fd, (const struct sockaddr *)&four, sizeof(four));
}

/* A job whose epoch has this node and the other one, which have a connection. */
static inline void plant_peers(const char *job, int family)
{
    struct hth_member member[2] = { { .node = "n0", .store = 1 }, { .node = "n1", .store = 2 } };
    uint32_t node[2] = { 0, 1 };
    struct hth_epoch e = {
        .epoch = 7, .nonce = 1, .world = 2, .nodes = 2, .rank_node = node, .member = member
    };
    unsigned char *bytes;
    char path[200];
    FILE *f;

    plant_address(&member[0], family, 7700, family == AF_INET6 ? "fd77::1" : "10.77.0.1");
    plant_address(&member[1], family, 7701, family == AF_INET6 ? "fd77::2" : "10.77.0.2");
    bytes = malloc(hth_epoch_bytes(&e));
    for (int i = 0; plant_connection(family); i++) {
        cr_assert(lt(int, i, 500), "%s", strerror(errno));
        usleep(10000);
    }
    snprintf(path, sizeof(path), "%s/%s", root, job);
    cr_assert(zero(int, mkdir(path, 0700)));
    snprintf(path, sizeof(path), "%s/%s/.hearth", root, job);
    cr_assert(zero(int, mkdir(path, 0700)));
    snprintf(path, sizeof(path), "%s/%s/.hearth/epoch", root, job);
    hth_epoch_encode(&e, bytes);
    f = fopen(path, "w");
    cr_assert(eq(sz, fwrite(bytes, 1, hth_epoch_bytes(&e), f), hth_epoch_bytes(&e)));
    fclose(f);
    free(bytes);
}

/* ---- engines --------------------------------------------------------------------------------- */

static inline void plant_engine(const char *job)
{
    char path[200];

    planted_engine = start("hearthd",
            (const char *const[]){ "--root", root, "--job", job, "--transport", "tcp", NULL });
    snprintf(path, sizeof(path), "%s/%s/.hearth/sock", root, job);
    for (int i = 0; i < 1000 && access(path, F_OK); i++)
        usleep(10000);
    cr_assert(zero(int, access(path, F_OK)));
    /* its log has told that it is ready */
    for (int i = 0; i < 1000 && hearth("ls", "--root", root, job); i++)
        usleep(10000);
}

static inline void plant_signal(int sig)
{
    cr_assert(zero(int, kill(planted_engine, sig)));
    if (sig == SIGSTOP) {
        waitpid(planted_engine, NULL, WUNTRACED);
        return;
    }
    waitpid(planted_engine, NULL, 0);
    planted_engine = 0;
}

static void plant_answer_one(int sock, const char *json)
{
    _Alignas(8) unsigned char packet[HTH_LOCAL_MAX];
    const struct hth_local_head head = {
        .length = sizeof(head), .type = HTH_LOCAL_BYTES, .request = 1
    };
    int memory = memfd_create("answer", MFD_CLOEXEC);

    if (read(sock, packet, sizeof(packet)) > 0 && write(memory, json, strlen(json)) > 0)
        (void)hth_packet_put(sock, &head, sizeof(head), memory);
    close(memory);
    close(sock);
}

/* A process that has the job's lock, and answers each request with this. */
static inline void plant_answer(const char *job, const char *json)
{
    struct sockaddr_un a = { .sun_family = AF_UNIX };
    char path[200];
    int sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0), ready[2], records, lock;
    char byte;

    plant_end_process(planted_engine);
    snprintf(path, sizeof(path), "%s/%s", root, job);
    mkdir(path, 0700);
    snprintf(path, sizeof(path), "%s/%s/.hearth", root, job);
    mkdir(path, 0700);
    records = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    snprintf(path, sizeof(path), "%s/%s/.hearth/log", root, job);
    cr_assert(zero(int, plant_line(path, "2026-01-01T00:00:00.000Z info engine-ready hearthd\n")));
    *strrchr(path, '/') = '\0';
    close(openat(records, "lock", O_WRONLY | O_CREAT, 0600));
    snprintf(a.sun_path, sizeof(a.sun_path), "%.90s/sock", path);
    unlink(a.sun_path);
    cr_assert(zero(int, bind(sock, (const struct sockaddr *)&a, sizeof(a))));
    cr_assert(zero(int, listen(sock, 4)));
    cr_assert(zero(int, pipe(ready)));
    planted_engine = fork();
    if (!planted_engine) {
        if (hth_store_lock(records, path, &lock, NULL) || write(ready[1], "l", 1) != 1)
            _exit(1);
        for (;;)
            plant_answer_one(accept(sock, NULL, NULL), json);
    }
    cr_assert(eq(int, (int)read(ready[0], &byte, 1), 1));
    close(sock);
    close(records);
    close(ready[0]);
    close(ready[1]);
}

#endif
