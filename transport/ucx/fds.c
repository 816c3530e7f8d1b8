/* SPDX-License-Identifier: Apache-2.0 */
/*
 * UCX opens its sockets and epoll descriptors without close-on-exec. A child that inherits one
 * keeps a dead node's connections open, and its peers see the death only when the child ends. So,
 * whenever new ones can have appeared, we look through /proc/thread-self/fd. Descriptors that were
 * open before are never touched (number and inode identify them); after opening, only TCP sockets
 * are, because the process may open other files of its own meanwhile.
 */
#include "ucx.h"

#include "core/base/open.h"
#include <fcntl.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static ino_t fd_inode(int fd)
{
    struct stat st;

    return fstat(fd, &st) == 0 ? st.st_ino : 0;
}

static int fd_is_known(const struct hth_ucx *t, int fd)
{
    return (size_t)fd < t->known && t->known_fds[fd] && t->known_fds[fd] == fd_inode(fd);
}

static int fd_is_tcp(int fd)
{
    struct sockaddr_storage ss = { .ss_family = AF_UNSPEC };
    socklen_t len = sizeof(ss);
    int type = 0;
    socklen_t type_len = sizeof(type);

    if (getsockname(fd, (struct sockaddr *)(void *)&ss, &len) < 0)
        return 0;
    if (ss.ss_family != AF_INET && ss.ss_family != AF_INET6)
        return 0;
    return getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &type_len) == 0 && type == SOCK_STREAM;
}

static void fd_each(struct hth_ucx *t, void (*fn)(struct hth_ucx *t, int fd))
{
    DIR *dir = hth_open_kernel_list("/proc/thread-self/fd");
    struct dirent *entry;

    if (!dir)
        return;
    while ((entry = readdir(dir)) != NULL) {
        char *end;
        long fd = strtol(entry->d_name, &end, 10);

        if (end != entry->d_name && *end == '\0' && fd != dirfd(dir))
            fn(t, (int)fd);
    }
    closedir(dir);
}

static void fd_count(struct hth_ucx *t, int fd)
{
    if ((size_t)fd >= t->known)
        t->known = (size_t)fd + 1;
}

static void fd_remember(struct hth_ucx *t, int fd)
{
    if ((size_t)fd < t->known)
        t->known_fds[fd] = fd_inode(fd);
}

static void fd_mark(struct hth_ucx *t, int fd)
{
    int flags;

    if (fd_is_known(t, fd))
        return;
    flags = fcntl(fd, F_GETFD);
    if (flags >= 0 && !(flags & FD_CLOEXEC))
        fcntl(fd, F_SETFD, flags | FD_CLOEXEC);
}

static void fd_mark_tcp(struct hth_ucx *t, int fd)
{
    if (fd_is_tcp(fd))
        fd_mark(t, fd);
}

int hth_ucx_fds_note(struct hth_ucx *t)
{
    fd_each(t, fd_count);
    t->known_fds = calloc(t->known + 1, sizeof(*t->known_fds));
    if (!t->known_fds)
        return HEARTH_ENOMEM;
    fd_each(t, fd_remember);
    return HEARTH_OK;
}

void hth_ucx_fds_close_on_exec(struct hth_ucx *t, int sockets_only)
{
    fd_each(t, sockets_only ? fd_mark_tcp : fd_mark);
}
