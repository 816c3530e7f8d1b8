/* SPDX-License-Identifier: Apache-2.0 */
/* The table: what is planted, and what has to come of it. */
#include "pods.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define USER  61234u /* no process of this machine has it: limits count by user */
#define OTHER 61235u
#define GROUP 61300u

/* ---- rights ---------------------------------------------------------------------------------- */

static int become(struct pod *p, uid_t user)
{
    static const gid_t groups[1] = { GROUP };
    char program[4096];
    ssize_t n = readlink("/proc/self/exe", program, sizeof(program) - 1);

    for (int c = 0; c < 64; c++)
        prctl(PR_CAPBSET_DROP, c, 0, 0, 0);
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    if (setgroups(1, groups) || setgid(user) || setuid(user))
        return pod_skip(p, "another user cannot be had: %s", strerror(errno));
    program[n > 0 ? n : 0] = '\0';
    if (n > 0 && access(program, X_OK))
        return pod_skip(p, "user %u does not reach %s", (unsigned)user, program);
    return 0;
}

static int as_user(struct pod *p)
{
    return become(p, USER);
}

static int as_user_umask_0777(struct pod *p)
{
    umask(0777);
    return as_user(p);
}

static int umask_0777(struct pod *p)
{
    (void)p;
    umask(0777);
    return 0;
}

/* ---- limits ---------------------------------------------------------------------------------- */

static int limit(struct pod *p, int what, rlim_t value)
{
    const struct rlimit l = { value, value };

    return setrlimit((__rlimit_resource_t)what, &l) ? pod_skip(p, "a limit: %s", strerror(errno))
                                                    : 0;
}

static int files(struct pod *p)
{
    return limit(p, RLIMIT_NOFILE, strtoul(p->condition->arg, NULL, 10));
}

static int file_size(struct pod *p)
{
    return limit(p, RLIMIT_FSIZE, strtoul(p->condition->arg, NULL, 10));
}

static int stack(struct pod *p)
{
    return limit(p, RLIMIT_STACK, strtoul(p->condition->arg, NULL, 10));
}

static int no_memlock(struct pod *p)
{
    return limit(p, RLIMIT_MEMLOCK, 0) ? -1 : as_user(p);
}

static int processes(struct pod *p)
{
    rlim_t most = strtoul(p->condition->arg, NULL, 10);

    /* Of a user, in all pods of the machine: each condition has another one. */
    return limit(p, RLIMIT_NPROC, most) ? -1 : become(p, (uid_t)(USER + 10 + most));
}

/* ---- calls ----------------------------------------------------------------------------------- */

static int deny(struct pod *p, int call, int answer)
{
    struct sock_filter f[] = { BPF_STMT(
                                       BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)call, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)answer),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW) };
    struct sock_fprog program = { sizeof(f) / sizeof(f[0]), f };

    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
            prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
        return pod_skip(p, "no seccomp: %s", strerror(errno));
    return 0;
}

static const struct call {
    const char *name;
    int number;
} calls[] = { { "memfd_create", SYS_memfd_create }, { "openat2", SYS_openat2 },
    { "landlock_create_ruleset", SYS_landlock_create_ruleset },
    { "landlock_restrict_self", SYS_landlock_restrict_self }, { "pidfd_open", SYS_pidfd_open },
    { "renameat2", SYS_renameat2 }, { "statx", SYS_statx }, { "close_range", SYS_close_range },
    { "fallocate", SYS_fallocate }, { "madvise", SYS_madvise },
    { "sched_setaffinity", SYS_sched_setaffinity }, { "clone3", SYS_clone3 },
    { "getrandom", SYS_getrandom }, { "mlock2", SYS_mlock2 }, { "fchmod", SYS_fchmod },
    { "prlimit64", SYS_prlimit64 }, { "faccessat2", SYS_faccessat2 } };

static int without_call(struct pod *p, int answer)
{
    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++)
        if (strcmp(calls[i].name, p->condition->arg) == 0)
            return deny(p, calls[i].number, answer);
    return pod_skip(p, "%s is no call of the table", p->condition->arg);
}

static int call_eperm(struct pod *p)
{
    return without_call(p, EPERM);
}

static int call_enosys(struct pod *p)
{
    return without_call(p, ENOSYS);
}

/* ---- the image ------------------------------------------------------------------------------- */

static int hide(struct pod *p, const char *path)
{
    if (mount("none", path, "tmpfs", MS_RDONLY, "size=4k,mode=755"))
        return pod_skip(p, "%s cannot be hidden: %s", path, strerror(errno));
    return 0;
}

static int no_programs(struct pod *p)
{
    return hide(p, "/usr/bin") || hide(p, "/bin");
}

static int no_proc(struct pod *p)
{
    return hide(p, "/proc");
}

static int no_dev(struct pod *p)
{
    return hide(p, "/dev");
}

static int no_sys(struct pod *p)
{
    return hide(p, "/sys");
}

static int bare(struct pod *p)
{
    clearenv();
    return no_programs(p) || hide(p, "/tmp") || hide(p, "/etc") || hide(p, "/var");
}

/* Of the image and all that is mounted on it; the root is made anew. */
static int read_only_image(struct pod *p)
{
    struct mount_attr {
        uint64_t attr_set, attr_clr, propagation, userns_fd;
    } attr = { .attr_set = 1 /* MOUNT_ATTR_RDONLY */ };

    if (syscall(SYS_mount_setattr, AT_FDCWD, "/", 0x8000 /* AT_RECURSIVE */, &attr, sizeof(attr)) ||
            mount("root", POD_ROOT, "tmpfs", 0, "size=64m,mode=1777"))
        return pod_skip(p, "the image cannot be made read-only: %s", strerror(errno));
    return 0;
}

/* ---- the root -------------------------------------------------------------------------------- */

static int read_only_root(struct pod *p)
{
    if (mount("", POD_ROOT, NULL, MS_REMOUNT | MS_BIND | MS_RDONLY, NULL))
        return pod_skip(p, "the root cannot be made read-only: %s", strerror(errno));
    return 0;
}

static int no_root(struct pod *p)
{
    p->opts.root = "/mnt/nowhere";
    return 0;
}

static int root_on_image(struct pod *p)
{
    p->opts.root = "/usr";
    return 0;
}

static int own_directory(struct pod *p, const char *path, uid_t user, mode_t mode)
{
    if ((mkdir(path, 0700) && errno != EEXIST) || chown(path, user, GROUP) || chmod(path, mode))
        return pod_skip(p, "%s: %s", path, strerror(errno));
    return 0;
}

static int job_of_other_user(struct pod *p)
{
    return own_directory(p, POD_JOB, OTHER, 0700);
}

/* As the kubelet leaves a volume with fsGroup: chmod -R g+rwXs. */
static int job_of_fs_group(struct pod *p)
{
    return own_directory(p, POD_JOB, USER, 02770) ||
           own_directory(p, POD_JOB "/.hearth", USER, 02770);
}

static int records_of_fs_group(struct pod *p)
{
    return own_directory(p, POD_JOB, USER, 0700) ||
           own_directory(p, POD_JOB "/.hearth", USER, 02770);
}

/* An engine of that user runs in the pod; a rank of another comes. */
static int engine_of(struct pod *p, uid_t user)
{
    char said[200];
    pid_t pid = fork();
    int status;

    if (pid == 0) {
        struct hearth_error err;
        struct hearth *h;

        if (user && become(p, user))
            _exit(2);
        if (hearth_open(&p->opts, &h, &err))
            _exit(1);
        hearth_close(h, HEARTH_KEEP);
        _exit(0);
    }
    snprintf(said, sizeof(said), "an engine of user %u does not start", (unsigned)user);
    if (waitpid(pid, &status, 0) != pid || status)
        return pod_skip(p, "%s (status %x)", said, (unsigned)status);
    return 0;
}

static int engine_of_other_user(struct pod *p)
{
    return engine_of(p, OTHER);
}

static int engine_of_root(struct pod *p)
{
    return engine_of(p, 0);
}

/* ---- the key --------------------------------------------------------------------------------- */

static int key_of(struct pod *p, uid_t user, gid_t group, mode_t mode)
{
    unsigned char key[32];
    int fd = open(POD_KEY, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600), rc;

    p->opts.key_file = POD_KEY;
    rc = fd < 0 || getrandom(key, sizeof(key), 0) != sizeof(key) ||
         write(fd, key, sizeof(key)) != sizeof(key) || fchown(fd, user, group) || fchmod(fd, mode);
    if (fd >= 0)
        close(fd);
    return rc ? pod_skip(p, POD_KEY ": %s", strerror(errno)) : 0;
}

/* A Secret's, with fsGroup: root may change it, the pod's group may read it. */
static int key_of_secret(struct pod *p)
{
    return key_of(p, 0, GROUP, 0440);
}

static int key_of_another_group(struct pod *p)
{
    return key_of(p, 0, GROUP + 1, 0440);
}

static int key_for_all(struct pod *p)
{
    return key_of(p, 0, GROUP, 0444);
}

static int key_of_other_user(struct pod *p)
{
    return key_of(p, OTHER, GROUP, 0440);
}

/* The name in a Secret's mount: key -> ..data/key. */
static int key_is_link(struct pod *p)
{
    if (key_of_secret(p))
        return -1;
    p->opts.key_file = "/mnt/link";
    return symlink(POD_KEY, "/mnt/link") ? pod_skip(p, "no link: %s", strerror(errno)) : 0;
}

/* ---- the network ----------------------------------------------------------------------------- */

static int no_ipv4(struct pod *p)
{
    struct ifreq r = { .ifr_name = "lo", .ifr_addr.sa_family = AF_INET };
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    int rc = fd < 0 ? -1 : ioctl(fd, SIOCSIFADDR, &r);

    if (fd >= 0)
        close(fd);
    return rc ? pod_skip(p, "127.0.0.1 stays: %s", strerror(errno)) : 0;
}

static int ipv6_only(struct pod *p)
{
    p->opts.bind = "::1";
    return no_ipv4(p);
}

static int wildcard(struct pod *p)
{
    p->opts.bind = "0.0.0.0";
    return 0;
}

static int pod_ip_without_key(struct pod *p)
{
    p->opts.bind = "10.1.2.3";
    return 0;
}

static int another_pods_address(struct pod *p)
{
    p->opts.bind = "10.1.2.3";
    return key_of(p, 0, 0, 0600);
}

/* An interface of its own, as a plugin's that has set none of its addresses yet. */
static int device_without_address(struct pod *p)
{
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    int rc = fd < 0 ? -1 : ioctl(fd, SIOCBRADDBR, "net1");

    if (fd >= 0)
        close(fd);
    p->opts.device = "net1";
    return rc ? pod_skip(p, "no interface can be made: %s", strerror(errno)) : 0;
}

#define CALL(answer, text)                                              \
    {                                                                   \
        .name = text "-" #answer, .enter = call_##answer, .arg = (text) \
    }
#define DENIED(answer, text, of)                                                        \
    {                                                                                   \
        .name = text "-" #answer, .enter = call_##answer, .arg = (text), .cause = (of), \
        .cure = "seccomp profile"                                                       \
    }

const struct condition conditions[] = { { .name = "root-user" },
    { .name = "user-without-capabilities", .enter = as_user },
    { .name = "process-1", .is_first = 1 },
    { .name = "no-shell-no-programs", .plant = no_programs },
    { .name = "no-tmp-home-path", .plant = bare },
    { .name = "read-only-image", .plant = read_only_image, .enter = as_user },
    { .name = "no-dev", .plant = no_dev }, { .name = "no-sys", .plant = no_sys },
    { .name = "no-proc", .plant = no_proc, .cause = "/proc/self/fd", .cure = "mount -t proc" },
    { .name = "umask-0777", .enter = umask_0777 },
    { .name = "umask-0777-user", .enter = as_user_umask_0777 },

    { .name = "root-size-0", .mount = "size=0,mode=1777" },
    { .name = "root-size-4k",
            .mount = "size=4k,mode=1777",
            .cause = "no room left",
            .cure = "enlarge the mount" },
    { .name = "root-10-inodes",
            .mount = "size=64m,nr_inodes=10,mode=1777",
            .cause = "no inodes left",
            .cure = "nr_inodes=" },
    { .name = "root-setgid", .mount = "size=64m,mode=2775,gid=61300", .enter = as_user },
    { .name = "root-read-only",
            .plant = read_only_root,
            .cause = "Read-only file system",
            .cure = "mount it without ro" },
    { .name = "root-of-root",
            .mount = "size=64m,mode=755",
            .enter = as_user,
            .cause = "cannot be written by user 61234",
            .cure = "chown it" },
    { .name = "root-0777", .mount = "size=64m,mode=777", .cause = "mode 0777", .cure = "chmod +t" },
    { .name = "root-missing", .plant = no_root, .cause = "No such file", .cure = "mount a tmpfs" },
    { .name = "root-on-disk",
            .plant = root_on_image,
            .cause = "not on a tmpfs",
            .cure = "mount one there" },

    { .name = "job-of-another-user",
            .plant = job_of_other_user,
            .enter = as_user,
            .cause = "belongs to user 61235",
            .cure = "as one user" },
    { .name = "job-of-another-user-root",
            .plant = job_of_other_user,
            .cause = "belongs to user 61235",
            .cure = "as one user" },
    { .name = "job-fs-group",
            .plant = job_of_fs_group,
            .enter = as_user,
            .cause = "fsGroup",
            .cure = "chmod -R go-w /mnt/h/k" },
    { .name = "records-fs-group",
            .plant = records_of_fs_group,
            .enter = as_user,
            .cause = "fsGroup",
            .cure = "chmod -R go-w /mnt/h/k" },
    { .name = "engine-of-another-user",
            .plant = engine_of_other_user,
            .enter = as_user,
            .cause = "belongs to user 61235",
            .cure = "as one user" },
    { .name = "engine-of-root",
            .plant = engine_of_root,
            .enter = as_user,
            .cause = "belongs to user 0",
            .cure = "as one user" },

    { .name = "key-of-secret-with-fs-group", .plant = key_of_secret, .enter = as_user },
    { .name = "key-of-another-group",
            .plant = key_of_another_group,
            .enter = as_user,
            .cause = "Permission denied",
            .cure = "fsGroup" },
    { .name = "key-for-all",
            .plant = key_for_all,
            .enter = as_user,
            .cause = "mode 0444",
            .cure = "chmod 440" },
    { .name = "key-of-another-user",
            .plant = key_of_other_user,
            .enter = as_user,
            .cause = "belongs to user 61235",
            .cure = "copy" },
    { .name = "key-is-a-link",
            .plant = key_is_link,
            .enter = as_user,
            .cause = "symbolic link",
            .cure = "name the file itself" },

    { .name = "ipv6-only", .plant = ipv6_only },
    { .name = "ipv6-only-bind-unset",
            .plant = no_ipv4,
            .cause = "cannot listen on 127.0.0.1",
            .cure = "HEARTH_BIND" },
    { .name = "bind-wildcard",
            .plant = wildcard,
            .cause = "every address",
            .cure = "give the one" },
    { .name = "bind-without-key",
            .plant = pod_ip_without_key,
            .cause = "there is no job key",
            .cure = "HEARTH_KEY_FILE" },
    { .name = "bind-of-another-pod",
            .plant = another_pods_address,
            .cause = "cannot listen on 10.1.2.3",
            .cure = "HEARTH_BIND" },
    { .name = "device-without-address",
            .plant = device_without_address,
            .cause = "interface net1 does not have the address 127.0.0.1, it has none",
            .cure = "HEARTH_BIND" },

    { .name = "files-24",
            .enter = files,
            .arg = "24",
            .cause = "may open 24 files",
            .cure = "ulimit -n" },
    { .name = "files-64", .enter = files, .arg = "64" },
    { .name = "files-8", .enter = files, .arg = "8", .cause = "open", .cure = "ulimit -n" },
    { .name = "processes-1",
            .enter = processes,
            .arg = "1",
            .cause = "start ",
            .cure = "ulimit -u" },
    { .name = "processes-3",
            .enter = processes,
            .arg = "3",
            .cause = "threads",
            .cure = "ulimit -u" },
    { .name = "memlock-0", .enter = no_memlock },
    { .name = "stack-64k", .enter = stack, .arg = "65536" },
    { .name = "file-size-1m",
            .enter = file_size,
            .arg = "1048576",
            .cause = "File too large",
            .cure = "ulimit -f" },

    { .name = "engine-frozen-v1", .plant = plant_freezer_v1, .saves = engine_is_frozen },
    { .name = "engine-frozen-v2", .plant = plant_freezer_v2, .saves = engine_is_frozen },
    { .name = "trainer-frozen-v1", .plant = plant_freezer_v1, .saves = trainer_is_frozen },
    { .name = "trainer-frozen-v2", .plant = plant_freezer_v2, .saves = trainer_is_frozen },
    { .name = "pod-frozen-v1",
            .plant = plant_freezer_v1,
            .opens = second_pod_has_a_group,
            .saves = second_pod_is_frozen,
            .ranks = 2 },
    { .name = "pod-frozen-v2",
            .plant = plant_freezer_v2,
            .opens = second_pod_has_a_group,
            .saves = second_pod_is_frozen,
            .ranks = 2 },
    { .name = "two-pods", .ranks = 2 }, { .name = "host-name-new", .opens = host_name_is_new },
    { .name = "host-name-new-node-set", .opens = host_name_is_new, .arg = "n" },
    { .name = "host-names-new-two-pods", .opens = host_name_is_new, .ranks = 2 },
    { .name = "host-names-new-node-set", .opens = host_name_is_new, .ranks = 2, .arg = "n" },
    { .name = "clock-apart", .opens = clock_is_apart, .ranks = 2 },
    { .name = "clock-jumps-ahead", .plant = plant_clock, .saves = clock_jumps_ahead },
    { .name = "clock-jumps-back", .plant = plant_clock, .saves = clock_jumps_back },

    CALL(eperm, "openat2"), CALL(enosys, "openat2"), CALL(eperm, "landlock_create_ruleset"),
    CALL(enosys, "landlock_create_ruleset"), CALL(eperm, "landlock_restrict_self"),
    CALL(eperm, "pidfd_open"), CALL(enosys, "pidfd_open"), CALL(enosys, "statx"),
    CALL(eperm, "close_range"), CALL(enosys, "close_range"), CALL(eperm, "fallocate"),
    CALL(enosys, "fallocate"), CALL(eperm, "madvise"), CALL(eperm, "sched_setaffinity"),
    CALL(enosys, "clone3"), CALL(eperm, "mlock2"), CALL(eperm, "prlimit64"),
    CALL(enosys, "faccessat2"), DENIED(eperm, "renameat2", "cannot make a slot"),
    DENIED(enosys, "renameat2", "cannot make a slot"),
    DENIED(eperm, "memfd_create", "memfd_create"), DENIED(enosys, "memfd_create", "memfd_create"),
    DENIED(eperm, "fchmod", "cannot listen"), DENIED(enosys, "getrandom", "getrandom") };

const unsigned condition_count = sizeof(conditions) / sizeof(conditions[0]);
