/* SPDX-License-Identifier: Apache-2.0 */
/* The calls of Landlock, and what of it is newer than the headers that we are built with. */
#include "ruleset.h"

#include "core/base/open.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/landlock.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

#define TCP            UINT64_C(3) /* LANDLOCK_ACCESS_NET_BIND_TCP, _CONNECT_TCP, of version 4 */
#define NET_VERSION    4
#define SCOPES         UINT64_C(3) /* LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET, _SIGNAL, of version 6 */
#define SCOPES_VERSION 6

/* struct landlock_ruleset_attr; a kernel that knows its first bytes alone takes no more of it. */
struct ruleset {
    uint64_t files, network, scopes;
};

int ruleset_version(void)
{
    return (int)syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
}

uint64_t ruleset_files(int version)
{
    uint64_t known = (LANDLOCK_ACCESS_FS_REFER << 1) - 1;

    if (version >= 3)
        known |= RULESET_TRUNCATE;
    if (version >= 5)
        known |= RULESET_IOCTL;
    return known;
}

int ruleset_make(int version, int no_network)
{
    struct ruleset attr = { .files = ruleset_files(version) };
    size_t len = offsetof(struct ruleset, network);

    if (no_network && version >= NET_VERSION) {
        attr.network = TCP;
        len = offsetof(struct ruleset, scopes);
    }
    if (no_network && version >= SCOPES_VERSION) {
        attr.scopes = SCOPES;
        len = sizeof(attr);
    }
    return (int)syscall(SYS_landlock_create_ruleset, &attr, len, 0);
}

int ruleset_allow(int set, const char *path, uint64_t access)
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

int ruleset_bind(int set)
{
    return syscall(SYS_landlock_restrict_self, set, 0) ? errno : 0;
}
