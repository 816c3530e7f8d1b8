/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an engine with transport = tcp still opens when it runs, and so may:
 *
 *     its root                all of Hearth's work there; no links, fifos and devices are made, nothing is run
 *     the key file's folder   read: the file is looked at every 2 s, and may be another by then
 *     /proc, /sys             read: room in memory and cgroups, its own descriptors, cards
 *     /dev/null               in the place of a descriptor that it lacks
 *
 * libfabric and UCX open devices, libraries and files of others as they like: with them nothing is done.
 */
#include "confine.h"

#include "core/base/auth.h"
#include "core/base/libcrypto.h"
#include "core/base/open.h"
#include "core/store/store_tmpfs.h"
#include "transport/transport.h"

#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <linux/landlock.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define READ_ALL (LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR)
#define TRUNCATE (UINT64_C(1) << 14) /* LANDLOCK_ACCESS_FS_TRUNCATE, of ABI 3 */
#define IOCTL    (UINT64_C(1) << 15) /* LANDLOCK_ACCESS_FS_IOCTL_DEV, of ABI 5 */
#define RENAMES  2                   /* the ABI since when files may change their directory */

/* The first bytes of struct landlock_ruleset_attr, which all kernels take. */
struct ruleset {
    uint64_t files;
};

/* What this kernel can forbid; all that it can is forbidden, but for the rules. */
static uint64_t confine_known(int abi)
{
    uint64_t known = (LANDLOCK_ACCESS_FS_REFER << 1) - 1;

    if (abi >= 3)
        known |= TRUNCATE;
    if (abi >= 5)
        known |= IOCTL;
    return known;
}

/* 0; -1 and errno. What is not there needs no rule. */
static int confine_allow(int set, const char *path, uint64_t access)
{
    struct landlock_path_beneath_attr rule = { .allowed_access = access,
        .parent_fd = hth_open_named(path, O_PATH) };
    long rc;
    int why;

    if (rule.parent_fd < 0)
        return errno == ENOENT ? 0 : -1;
    rc = syscall(SYS_landlock_add_rule, set, LANDLOCK_RULE_PATH_BENEATH, &rule, 0);
    why = errno;
    close(rule.parent_fd);
    errno = why;
    return rc ? -1 : 0;
}

static int confine_allow_key(int set, const char *key_file)
{
    const char *slash = strrchr(key_file, '/');
    char dir[HTH_PATH_MAX] = ".";

    if (!key_file[0] || hth_key_fd(key_file) >= 0)
        return 0;
    if (slash)
        snprintf(dir, sizeof(dir), "%.*s", slash == key_file ? 1 : (int)(slash - key_file),
                key_file);
    return confine_allow(set, dir, LANDLOCK_ACCESS_FS_READ_FILE);
}

/* One account of free memory for all engines of the machine. */
static int confine_allow_account(int set)
{
    char path[HTH_ACCOUNT_PATH];

    if (!hth_store_tmpfs_account(path))
        return 0;
    return confine_allow(set, path, LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_WRITE_FILE);
}

static int confine_rules(int set, int abi, const struct hth_config *c)
{
    uint64_t known = confine_known(abi);
    uint64_t ours = known & ~(LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_MAKE_CHAR |
                                    LANDLOCK_ACCESS_FS_MAKE_BLOCK | LANDLOCK_ACCESS_FS_MAKE_FIFO |
                                    LANDLOCK_ACCESS_FS_MAKE_SYM | IOCTL);

    if (confine_allow(set, c->root, ours) || confine_allow_key(set, c->key_file) ||
            confine_allow_account(set) || confine_allow(set, "/proc", READ_ALL) ||
            confine_allow(set, "/sys", READ_ALL))
        return -1;
    return confine_allow(set, "/dev/null",
            LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_WRITE_FILE | (known & TRUNCATE));
}

/* Libraries that are loaded when they are first needed. 0: one that must be there is not. */
static int confine_load(const struct hth_config *c)
{
    void *calls[1];

    backtrace(calls, 1);
    hth_libcrypto();
    return !hth_transport_preload(c->transport, c->module_dir[0] ? c->module_dir : NULL, NULL);
}

static void confine_restrict(struct hth_config *c, int abi)
{
    struct ruleset attr = { .files = confine_known(abi) };
    int set = (int)syscall(SYS_landlock_create_ruleset, &attr, sizeof(attr), 0);

    if (set < 0 || confine_rules(set, abi, c) || syscall(SYS_landlock_restrict_self, set, 0))
        snprintf(c->confinement, sizeof(c->confinement),
                "the process may open any file of its user's: Landlock: %s",
                strerrordesc_np(errno));
    else
        snprintf(c->confinement, sizeof(c->confinement),
                "the process can open nothing but its root and the account of memory in /dev/shm, and read "
                "/proc, /sys%s (Landlock, "
                "version %d)",
                c->key_file[0] && hth_key_fd(c->key_file) < 0 ? " and its key file's folder" : "",
                abi);
    if (set >= 0)
        close(set);
}

void daemon_confine(struct hth_config *c)
{
    const char *unconfined = getenv("HEARTH_UNCONFINED");
    long abi;

    if (strcmp(c->transport, "tcp") != 0 || c->unconfined || (unconfined && *unconfined == '1'))
        return;
    abi = syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
    if (abi < RENAMES)
        snprintf(c->confinement, sizeof(c->confinement),
                "the process may open any file of its user's: %s",
                abi < 0 ? "this kernel has no Landlock"
                        : "this kernel's Landlock (version 1) lets no file change its directory");
    else if (confine_load(c)) /* else the engine does not start, and says why */
        confine_restrict(c, (int)abi);
}
