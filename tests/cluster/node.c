/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A machine: one process namespace with its own network, mounts and host name, held by an init that
 * does nothing. When init is killed the kernel ends all its processes, and the last reference to
 * its tmpfs goes with them. The scenario has a network namespace of its own with the switch in it,
 * so nothing of all this is seen outside, and nothing outlives the scenario's process.
 *
 *     scenario ── bridge 10.77.0.254 ──┬── node 10.77.0.1: init, hearthd, ranks; tmpfs
 *                                      └── node 10.77.0.2 ...
 *     with two links also a bridge ──┬── 10.78.0.1 of the same node ...
 *
 * Without the rights for that a machine is a directory and an address 127.<scenario>.<n>.1.
 */
#include "cluster.h"

#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

/* `ip` with a script on its standard input. */
static int ip_batch(const char *script)
{
    char *const argv[] = { (char[]){ "ip" }, (char[]){ "-batch" }, (char[]){ "-" }, NULL };
    posix_spawn_file_actions_t files;
    int ends[2], status = -1;
    pid_t pid;

    if (pipe2(ends, O_CLOEXEC))
        return -1;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_adddup2(&files, ends[0], 0);
    if (!posix_spawnp(&pid, "ip", &files, NULL, argv, environ)) {
        ssize_t n = write(ends[1], script, strlen(script));

        close(ends[1]);
        ends[1] = -1;
        while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
            continue;
        if (n != (ssize_t)strlen(script))
            status = -1;
    }
    posix_spawn_file_actions_destroy(&files);
    close(ends[0]);
    if (ends[1] >= 0)
        close(ends[1]);
    return status;
}

/* Only our own processes see the mounts that are made from here on. In a chroot "/" is not a mount:
 * then a mount of our own is made, below which nothing is shared, and the two that are mounted over
 * are made private. */
static int keep_mounts_apart(const char *dir)
{
    if (!mount("", "/", NULL, MS_REC | MS_PRIVATE, NULL))
        return 0;
    mount("", "/proc", NULL, MS_REC | MS_PRIVATE, NULL);
    mount("", "/sys", NULL, MS_REC | MS_PRIVATE, NULL);
    return mount(dir, dir, NULL, MS_BIND, NULL) || mount("", dir, NULL, MS_PRIVATE, NULL);
}

int key_make(struct world *w)
{
    unsigned char key[32];
    int fd, rc;

    snprintf(w->key, sizeof(w->key), "%.200s/key", w->dir);
    fd = open(w->key, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    rc = fd < 0 || getrandom(key, sizeof(key), 0) != sizeof(key) ||
         write(fd, key, sizeof(key)) != sizeof(key);
    if (fd >= 0)
        close(fd);
    return rc ? lost(w, "no key file %s", w->key) : 0;
}

int nodes_open(struct world *w)
{
    if (!w->namespaces)
        return 0;
    if (unshare(CLONE_NEWNS | CLONE_NEWNET) || keep_mounts_apart(w->dir))
        return SKIPPED;
    return ip_batch("link set lo up\n"
                    "link add br0 type bridge forward_delay 0\n"
                    "addr add 10.77.0.254/24 dev br0\n"
                    "link set br0 up\n"
                    "link add br1 type bridge forward_delay 0\n"
                    "link set br1 up\n")
                   ? SKIPPED
                   : 0;
}

/* ---- up -------------------------------------------------------------------------------------- */

/* /sys/class/net of this network, with the cgroups as they were. */
static void show_own_interfaces(const struct world *w)
{
    char keep[200];

    snprintf(keep, sizeof(keep), "%s/cgroup", w->dir);
    mkdir(keep, 0700);
    if (!mount("/sys/fs/cgroup", keep, NULL, MS_BIND | MS_REC, NULL) &&
            !mount("sysfs", "/sys", "sysfs", 0, NULL))
        mount(keep, "/sys/fs/cgroup", NULL, MS_BIND | MS_REC, NULL);
}

/* An interface that was just set up runs a moment later. */
static int carrier(const char *name)
{
    struct ifreq r = { 0 };
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), runs = 0;
    uint64_t until = now_ms() + 5000;

    snprintf(r.ifr_name, sizeof(r.ifr_name), "%s", name);
    while (fd >= 0 && !runs && now_ms() < until) {
        runs = !ioctl(fd, SIOCGIFFLAGS, &r) && (r.ifr_flags & IFF_RUNNING);
        if (!runs)
            nap_ms(2);
    }
    if (fd >= 0)
        close(fd);
    return runs;
}

/* The life of an init. It says 'r' when all is made; our parent gives us the end of a cable
 * first. */
static void be_init(const struct world *w, const struct node *n, int in, int out)
{
    char script[200], size[64], go;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    prctl(PR_SET_NAME, "node");
    signal(SIGCHLD, SIG_DFL);
    if (unshare(CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWUTS) || write(out, "u", 1) != 1 ||
            read(in, &go, 1) != 1)
        _exit(1);
    snprintf(script, sizeof(script), "link set lo up\naddr add %s/24 dev eth0\nlink set eth0 up\n",
            n->address);
    snprintf(size, sizeof(size), "size=%um,mode=700,huge=within_size", w->mib);
    mount("", "/", NULL, MS_REC | MS_PRIVATE, NULL); /* a chroot's cannot, and is apart already */
    if (mount("proc", "/proc", "proc", 0, NULL))
        _exit(1);
    if (mount("node", n->root, "tmpfs", 0, size)) {
        snprintf(size, sizeof(size), "size=%um,mode=700", w->mib);
        if (mount("node", n->root, "tmpfs", 0, size))
            _exit(1);
    }
    show_own_interfaces(w);
    if (sethostname(n->name, strlen(n->name)) || ip_batch(script) || !carrier("eth0"))
        _exit(1);
    if (w->two_links) {
        snprintf(script, sizeof(script), "addr add %s/24 dev eth1\nlink set eth1 up\n",
                strchr(n->bind, ',') + 1);
        if (ip_batch(script) || !carrier("eth1"))
            _exit(1);
    }
    signal(SIGCHLD, SIG_IGN); /* orphans need no wait() */
    if (write(out, "r", 1) != 1)
        _exit(1);
    for (;;)
        pause();
}

static int said(int fd, char want)
{
    char c = 0;

    return read(fd, &c, 1) == 1 && c == want;
}

static pid_t fork_into_pid_space(int space)
{
    int own = open("/proc/self/ns/pid", O_RDONLY | O_CLOEXEC);
    pid_t pid = -1;

    if (own < 0)
        return -1;
    if (space < 0 ? !unshare(CLONE_NEWPID) : !setns(space, CLONE_NEWPID))
        pid = fork();
    if (pid != 0 && setns(own, CLONE_NEWPID))
        pid = -1;
    close(own);
    return pid;
}

static int make_init(struct world *w, struct node *n)
{
    int in[2], out[2], ok;
    unsigned long last = strtoul(strrchr(n->address, '.') + 1, NULL, 10);
    char script[400];

    if (pipe2(in, O_CLOEXEC) || pipe2(out, O_CLOEXEC))
        return lost(w, "no pipe: %s", strerror(errno));
    fflush(NULL);
    n->init = fork_into_pid_space(-1);
    if (n->init == 0)
        be_init(w, n, in[0], out[1]);
    close(in[0]);
    close(out[1]);
    snprintf(script, sizeof(script),
            "link add v%u type veth peer name eth0 address 02:00:0a:4d:00:%02lx netns %ld\n"
            "link set v%u master br0 up\n",
            w->made, last, (long)n->init, w->made);
    if (w->two_links) {
        size_t len = strlen(script);

        snprintf(script + len, sizeof(script) - len,
                "link add w%u type veth peer name eth1 address 02:00:0a:4e:00:%02lx netns %ld\n"
                "link set w%u master br1 up\n",
                w->made, last, (long)n->init, w->made);
    }
    ok = n->init > 0 && said(out[0], 'u') && !ip_batch(script) && write(in[1], "g", 1) == 1 &&
         said(out[0], 'r');
    close(in[1]);
    close(out[0]);
    return ok ? 0 : lost(w, "a machine with namespaces of its own cannot be made");
}

/* Everything that is new with each incarnation, unless machines are the same ones, rebooted. */
static struct node fresh(const struct world *w, uint32_t k)
{
    struct node n = { .up = 1 };

    if (w->reboots && w->node[k].name[0]) {
        n = w->node[k];
        n.up = 1;
        n.init = 0;
        return n;
    }
    snprintf(n.name, sizeof(n.name), "n%u-%u", k, w->made);
    if (w->namespaces) {
        snprintf(n.address, sizeof(n.address), "10.77.0.%u", w->made);
        if (w->two_links)
            snprintf(n.bind, sizeof(n.bind), "%s,10.78.0.%u", n.address, w->made);
        else
            snprintf(n.bind, sizeof(n.bind), "%s", n.address);
        snprintf(n.root, sizeof(n.root), "%.120s/mem", w->dir);
    } else {
        snprintf(n.address, sizeof(n.address), "127.%u.%u.1", 100 + w->id % 100, w->made);
        snprintf(n.bind, sizeof(n.bind), "%s", n.address);
        snprintf(n.root, sizeof(n.root), "%.120s/%s", w->dir, n.name);
    }
    return n;
}

int node_up(struct world *w, uint32_t k)
{
    struct node *n = &w->node[k];
    char seen[sizeof(n->seen)];

    w->made++;
    *n = fresh(w, k);
    if (mkdir(n->root, 0700) && errno != EEXIST)
        return lost(w, "%s: %s", n->root, strerror(errno));
    if (w->namespaces) {
        TRY(make_init(w, n));
        snprintf(seen, sizeof(seen), "/proc/%ld/root%.150s", (long)n->init, n->root);
    } else {
        snprintf(seen, sizeof(seen), "%s", n->root);
    }
    memcpy(n->seen, seen, sizeof(seen));
    note(w, "machine %s is up at %s", n->name, n->address);
    return 0;
}

pid_t node_fork(struct world *w, uint32_t k)
{
    const struct node *n = &w->node[k];
    char path[64];
    int space, hold, root;
    pid_t pid;

    fflush(NULL);
    if (!n->init)
        return fork();
    snprintf(path, sizeof(path), "/proc/%ld/ns/pid", (long)n->init);
    space = open(path, O_RDONLY | O_CLOEXEC);
    hold = (int)syscall(SYS_pidfd_open, n->init, 0);
    snprintf(path, sizeof(path), "/proc/%ld/root", (long)n->init);
    root = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (space < 0 || hold < 0 || root < 0)
        return -1;
    pid = fork_into_pid_space(space);
    if (pid == 0 && (setns(hold, CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWUTS) || fchdir(root) ||
                            chroot("."))) /* setns() leaves a chroot */
        _exit(126);
    close(root);
    close(space);
    close(hold);
    return pid;
}

/* ---- down ------------------------------------------------------------------------------------ */

/* Its engine's log would go with its memory. */
static void save_log(struct world *w, uint32_t k)
{
    char path[300], text[4096];
    FILE *f;

    node_path(w, k, ".hearth/log", path, sizeof(path));
    f = fopen(path, "re");
    if (!f)
        return;
    fprintf(w->log, "---- log of %s\n", w->node[k].name);
    while (fgets(text, sizeof(text), f))
        fputs(text, w->log);
    fprintf(w->log, "---- end of log of %s\n", w->node[k].name);
    fclose(f);
}

static int gone(pid_t pid, unsigned ms)
{
    uint64_t until = now_ms() + ms;

    while (waitpid(pid, NULL, WNOHANG) == 0) {
        if (now_ms() >= until)
            return 0;
        nap_ms(2);
    }
    return 1;
}

static void remove_tree(const char *path)
{
    char *const argv[] = { (char[]){ "rm" }, (char[]){ "-rf" }, strdup(path), NULL };
    pid_t pid;

    if (argv[2] && !posix_spawnp(&pid, "rm", NULL, NULL, argv, environ))
        gone(pid, 10000);
    free(argv[2]);
}

int node_kill(struct world *w, uint32_t k)
{
    struct node *n = &w->node[k];

    if (!n->up)
        return 0;
    save_log(w, k);
    n->up = 0;
    if (n->init)
        kill(n->init, SIGKILL);
    else
        node_engine_signal(w, k, SIGKILL);
    for (uint32_t r = 0; r < RANKS_MAX; r++)
        if (w->rank[r].pid && w->rank[r].node == k)
            rank_kill(w, r);
    note(w, "machine %s is lost", n->name);
    if (!n->init)
        remove_tree(n->root);
    else if (!gone(n->init, 10000))
        return lost(w, "machine %s does not end", n->name);
    return 0;
}

void node_path(const struct world *w, uint32_t k, const char *rest, char *out, size_t len)
{
    snprintf(out, len, "%s/job/%s", w->node[k].seen, rest);
}
