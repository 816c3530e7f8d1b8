/* SPDX-License-Identifier: Apache-2.0 */
/* doctor: the root. Is it a tmpfs that an engine takes, and does what jobs need fit into it? */
#include "checkup.h"

#include "core/base/full.h"
#include "core/base/open.h"
#include "core/store/need.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MIB          (UINT64_C(1) << 20)
#define INODES_LEAST 1000u
#define NAMES_SHOWN  3u

static int see_is_tmpfs(const struct checkup *c)
{
    return c->root_fd >= 0 && c->room.tmpfs;
}

static unsigned see_mib(uint64_t bytes)
{
    return (unsigned)((bytes + MIB - 1) / MIB);
}

/* A command that mounts one of half of the machine's memory. */
static void see_mount_remedy(struct checkup *c)
{
    uint64_t memory = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);

    remedy(c,
            "mkdir -p %s && mount -t tmpfs -o size=%um,mode=0700,uid=%u,huge=within_size tmpfs "
            "%s\n"
            "(half of the memory; docs/operate/sizing.md computes what a job needs)",
            c->shown, see_mib(memory / 2), (unsigned)geteuid(), c->shown);
}

static void see_root_not_opened(struct checkup *c)
{
    found(c, STATE_BROKEN, "%s", c->root_err.text);
    if (c->root_err.code == HEARTH_ENOENT)
        see_mount_remedy(c);
    else if (c->root_err.native == EPERM && strstr(c->root_err.text, "has mode"))
        remedy(c, "chmod 0700 %s", c->shown);
    else if (c->root_err.native == EACCES)
        remedy(c, "run hearth doctor as the job's user, or as root");
}

void see_root(struct checkup *c)
{
    char size[32];

    if (!c->root) {
        found(c, STATE_UNKNOWN, "no root is named: give --root or HEARTH_ROOT");
    } else if (c->root_fd < 0) {
        see_root_not_opened(c);
    } else if (!c->room.tmpfs && !c->net.opts.any_root) {
        found(c, STATE_BROKEN, "%s is not on a tmpfs but on %s: an engine refuses it", c->root,
                c->pages.kind[0] ? c->pages.kind : "another file system");
        see_mount_remedy(c);
    } else if (faccessat(c->root_fd, ".", W_OK | X_OK, AT_EACCESS)) {
        found(c, STATE_BROKEN, "user %u cannot write to %s: %s", (unsigned)geteuid(), c->root,
                strerrordesc_np(errno));
        if (errno == EROFS)
            remedy(c, "mount -o remount,rw %s", c->mount);
        else
            remedy(c, "chown %u %s", (unsigned)geteuid(), c->shown);
    } else {
        human(size, c->room.size);
        found(c, STATE_OK, "%s: %s, mode %04o, user %u", c->root,
                c->room.size == HTH_ROOM_NONE ? "a tmpfs without a limit"
                : c->room.tmpfs               ? size
                                              : "no tmpfs, and HEARTH_ANY_ROOT is set",
                (unsigned)c->at.st_mode & 07777, (unsigned)c->at.st_uid);
    }
}

/* ---- Can a file be made and used there? ------------------------------------------------------ */

/* The calls without which no slot is made, on a file without a name; they fail where the tmpfs is
 * full, and where a sandbox refuses them. NULL, or the call that failed. */
static const char *see_use_file(int fd)
{
    struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
    int memory;

    if (fallocate(fd, 0, 0, 4096))
        return "fallocate";
    if (fcntl(fd, F_OFD_SETLK, &lock))
        return "fcntl(F_OFD_SETLK)";
    memory = memfd_create("doctor", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (memory < 0)
        return "memfd_create";
    close(memory);
    return NULL;
}

/* The job without an engine that takes the most; NULL: none does. */
static const struct patient *see_largest_idle(const struct checkup *c, uint64_t *out_bytes)
{
    const struct patient *largest = NULL;

    *out_bytes = 0;
    for (unsigned i = 0; i < c->patients; i++) {
        uint64_t bytes = c->patient[i].engine.held ? 0 : place_taken(c->patient[i].fd);

        if (bytes > *out_bytes) {
            *out_bytes = bytes;
            largest = &c->patient[i];
        }
    }
    return largest;
}

static void see_room_remedy(struct checkup *c, uint64_t more)
{
    uint64_t bytes;
    const struct patient *idle = see_largest_idle(c, &bytes);
    char size[32], name[1100];

    human(size, bytes);
    if (idle)
        remedy(c,
                "hearth clean --root %s %s     (no engine runs on it, and it takes %s)\n"
                "mount -o remount,size=%um %s",
                c->shown, shell_word(idle->name, name, sizeof(name)), size,
                see_mib(c->room.size + more), c->mount);
    else
        remedy(c, "mount -o remount,size=%um %s", see_mib(c->room.size + more), c->mount);
}

static void see_use_failed(struct checkup *c, int fd, const char *call, int why)
{
    found(c, STATE_BROKEN, "%s on %s: %s%s", call, c->root, hth_full_text(c->root_fd, why),
            hth_limit_text(why));
    if (fd >= 0)
        close(fd);
    if (why == ENOSPC && hth_full_of_files(c->root_fd))
        remedy(c, "mount -o remount,nr_inodes=1m %s", c->mount);
    else if (why == ENOSPC)
        see_room_remedy(c, c->room.size / 2);
    else if (why == EPERM || why == ENOSYS)
        remedy(c,
                "a pod: securityContext.seccompProfile.type: RuntimeDefault; docker run "
                "--security-opt seccomp=FILE,\nwith a FILE that allows %s",
                call);
}

void see_use(struct checkup *c)
{
    char left[32], reserve[32];
    const char *call;
    int fd;

    signal(SIGXFSZ, SIG_IGN); /* see_file_size() says it */
    if (c->root_fd < 0 || faccessat(c->root_fd, ".", W_OK | X_OK, AT_EACCESS))
        return; /* see_root() says it */
    fd = hth_open_below(c->root_fd, ".", O_TMPFILE | O_RDWR, 0600);
    call = fd < 0 ? "a new file" : see_use_file(fd);
    if (call) {
        see_use_failed(c, fd, call, errno);
        return;
    }
    close(fd);
    human(left, c->room.mount);
    human(reserve, hth_need_reserve(c->room.size));
    if (!c->room.tmpfs || c->room.size == HTH_ROOM_NONE) {
        found(c, STATE_OK, "files can be made and locked");
    } else if (c->room.mount < hth_need_reserve(c->room.size) / 2) {
        found(c, STATE_RISK,
                "%s has %s left: an engine leaves %s free for records, and other files took it",
                c->root, left, reserve);
        see_room_remedy(c, hth_need_reserve(c->room.size));
    } else {
        found(c, STATE_OK, "%s left; files can be made and locked", left);
    }
}

/* ---- Is the memory there, and is it enough? -------------------------------------------------- */

void see_size(struct checkup *c)
{
    uint64_t used = c->room.size - c->room.mount;
    char more[32], memory[32];

    if (!see_is_tmpfs(c) || c->room.memory == HTH_ROOM_NONE)
        return;
    human(more, c->room.mount);
    human(memory, c->room.memory);
    if (c->room.mount <= c->room.memory) {
        found(c, STATE_OK, "it may take %s more, and %s of memory are available", more, memory);
        return;
    }
    if (c->room.size == HTH_ROOM_NONE)
        found(c, STATE_RISK, "%s has no size: it may take all memory (%s are available)", c->root,
                memory);
    else
        found(c, STATE_RISK,
                "%s may take %s more, but %s of memory are available: before it is full, the "
                "kernel ends processes",
                c->root, more, memory);
    remedy(c, "mount -o remount,size=%um %s",
            see_mib((c->room.size == HTH_ROOM_NONE ? 0 : used) + c->room.memory / 4 * 3), c->mount);
}

/* Bytes of the largest own save of a job here, copies of other nodes' included. */
static uint64_t see_largest_save(const struct checkup *c, const struct patient *p)
{
    struct save_row *rows = NULL;
    char path[4096];
    uint64_t most = 0;

    snprintf(path, sizeof(path), "%.3800s/%.255s", c->root, p->name);
    if (saves_list(p->fd, path, NULL, &rows, NULL))
        return 0;
    for (const struct save_row *row = rows; row; row = row->next)
        if (row->own && row->bytes > most)
            most = row->bytes;
    saves_free(rows);
    return most;
}

/* One more than the saves that stay: of those that a running engine keeps, else by the
 * environment. */
static uint64_t see_generations(const struct checkup *c, const struct patient *p)
{
    uint64_t keep = c->net.opts.keep ? c->net.opts.keep : 1;
    size_t kept = json_array_size(json_object_get(p->status, "kept"));

    return 1 + (kept > keep ? kept : keep);
}

void see_need(struct checkup *c)
{
    uint64_t need = 0;
    char needs[32], size[32];

    if (!see_is_tmpfs(c))
        return;
    for (unsigned i = 0; i < c->patients; i++)
        need += see_largest_save(c, &c->patient[i]) * see_generations(c, &c->patient[i]);
    if (!need) {
        found(c, STATE_UNKNOWN,
                "no job has saved here, so what it needs is not known (docs/operate/sizing.md)");
        return;
    }
    need = hth_need_mount(need);
    human(needs, need);
    human(size, c->room.size);
    if (need <= c->room.size) {
        found(c, STATE_OK, "saves need at least %s of it", needs);
        return;
    }
    found(c, STATE_BROKEN,
            "the saves of its jobs need at least %s, and %s has %s: a save that is kept and the "
            "one that is written must fit side by side",
            needs, c->root, size);
    see_room_remedy(c, need + need / 8 - c->room.size);
}

void see_inodes(struct checkup *c)
{
    struct statfs fs;

    if (!see_is_tmpfs(c) || fstatfs(c->root_fd, &fs) || !fs.f_files)
        return;
    if (fs.f_ffree >= INODES_LEAST) {
        found(c, STATE_OK, "%llu are free", (unsigned long long)fs.f_ffree);
        return;
    }
    found(c, fs.f_ffree ? STATE_RISK : STATE_BROKEN,
            "%s has %llu of %llu inodes left: each file of a save takes one", c->root,
            (unsigned long long)fs.f_ffree, (unsigned long long)fs.f_files);
    remedy(c, "mount -o remount,nr_inodes=1m %s", c->mount);
}

/* ---- How it is mounted ----------------------------------------------------------------------- */

void see_huge(struct checkup *c)
{
    if (!see_is_tmpfs(c))
        return;
    if (c->pages.are_huge && c->pages.collapses <= 0 && !c->pages.advised) {
        found(c, STATE_OK, "%s", c->pages.text);
        return;
    }
    found(c, STATE_RISK, "%s", c->pages.text);
    if (strstr(c->pages.text, "deny"))
        remedy(c, "echo never > /sys/kernel/mm/transparent_hugepage/shmem_enabled");
    else
        remedy(c, "mount -o remount,huge=within_size %s", c->mount);
}

static int see_has_swap(void)
{
    char path[320], line[256];
    int lines = 0;
    FILE *f;

    snprintf(path, sizeof(path), "%s/proc/swaps", doctor_root());
    f = hth_open_kernel_text(path);
    while (f && fgets(line, sizeof(line), f))
        lines++;
    if (f)
        fclose(f);
    return lines > 1; /* the first is the title */
}

void see_swap(struct checkup *c)
{
    if (!see_is_tmpfs(c))
        return;
    if (!see_has_swap()) {
        found(c, STATE_OK, "there is none");
    } else if (strstr(c->pages.options, "noswap")) {
        found(c, STATE_OK, "%s is mounted with noswap", c->pages.mount);
    } else {
        found(c, STATE_RISK,
                "this machine has swap, and %s is not mounted with noswap: a save or a recovery "
                "may wait for the swap device, and checkpoints are written to it",
                c->pages.mount);
        remedy(c, "swapoff -a\n"
                  "or, while no job runs, mount it anew with noswap (Linux 6.4)");
    }
}

/* ---- Whose files lie there ------------------------------------------------------------------- */

/* In a directory to which all users may write, jobs of other users are usual, and a job of the
 * caller's must be his. */
static uid_t see_owner(const struct checkup *c)
{
    return c->at.st_mode & S_IWOTH ? geteuid() : c->at.st_uid;
}

/* 1: the entry counts, and is another user's. */
static int see_is_foreign(const struct checkup *c, const char *name, uid_t *out_uid)
{
    struct stat st;

    if (c->at.st_mode & S_IWOTH && (!c->job || strcmp(c->job, name) != 0))
        return 0;
    if (fstatat(c->root_fd, name, &st, AT_SYMLINK_NOFOLLOW))
        return 0;
    *out_uid = st.st_uid;
    return st.st_uid != see_owner(c);
}

void see_owners(struct checkup *c)
{
    char **names = c->root_fd < 0 ? NULL : names_in(c->root_fd, c->root, NULL);
    unsigned many = 0;
    char word[1100], path[6000];
    uid_t uid = 0;

    for (size_t i = 0; names && names[i]; i++) {
        if (!see_is_foreign(c, names[i], &uid) || many++ >= NAMES_SHOWN)
            continue;
        found(c, STATE_RISK,
                "%.200s in %.200s belongs to user %u, and the root to user %u: its memory counts, "
                "and as a job an engine refuses it",
                names[i], c->root, (unsigned)uid, (unsigned)see_owner(c));
        snprintf(path, sizeof(path), "%s/%s", c->shown, shell_word(names[i], word, sizeof(word)));
        remedy(c, "chown -hR %u %s     (or, if no program needs it: rm -r %s)",
                (unsigned)see_owner(c), path, path);
    }
    if (many > NAMES_SHOWN)
        found(c, STATE_RISK, "%u more entries of %s belong to other users", many - NAMES_SHOWN,
                c->root);
    if (names && !many)
        found(c, STATE_OK, "all that counts belongs to user %u", (unsigned)see_owner(c));
    names_free(names);
}
