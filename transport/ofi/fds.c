/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The library's own descriptors, which it does not show: this file finds them in
 * /proc/thread-self/fd. The library's sockets and epoll descriptors are not close-on-exec, and a
 * child that keeps one hides this process's death from the peers. At open they are the descriptors
 * that were not there before, later the sockets bound to this node's address. The socket of an
 * endpoint is the one that has both its addresses.
 */
#include "ofi.h"

#include "core/base/open.h"
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>

uint32_t hth_ofi_conns_max(void)
{
    struct rlimit files;

    if (getrlimit(RLIMIT_NOFILE, &files) || files.rlim_cur / 2 >= HTH_OFI_CONNS)
        return HTH_OFI_CONNS;
    return (uint32_t)files.rlim_cur / 2;
}

typedef void each_fn(int fd, void *arg);

static void fds_each(each_fn *fn, void *arg)
{
    DIR *dir = hth_open_kernel_list("/proc/thread-self/fd");
    struct dirent *entry;

    if (!dir)
        return;
    while ((entry = readdir(dir))) {
        char *end;
        long fd = strtol(entry->d_name, &end, 10);

        if (end != entry->d_name && !*end && fd > 2 && fd != dirfd(dir))
            fn((int)fd, arg);
    }
    closedir(dir);
}

static void fds_note_one(int fd, void *arg)
{
    struct hth_ofi_fds *fds = arg;
    size_t at = (size_t)fd / 8;

    if (at >= fds->bytes) {
        size_t bytes = 2 * at + 64;
        unsigned char *more = realloc(fds->bit, bytes);

        if (!more) {
            fds->failed = 1;
            return;
        }
        memset(more + fds->bytes, 0, bytes - fds->bytes);
        fds->bit = more;
        fds->bytes = bytes;
    }
    fds->bit[at] |= (unsigned char)(1u << fd % 8);
}

static int fds_was_there(const struct hth_ofi_fds *fds, int fd)
{
    size_t at = (size_t)fd / 8;

    return fds->failed || (at < fds->bytes && (fds->bit[at] & 1u << fd % 8));
}

void hth_ofi_fds_note(struct hth_ofi_fds *before)
{
    memset(before, 0, sizeof(*before));
    fds_each(fds_note_one, before);
}

struct seal {
    const struct hth_ofi_fds *before;
    const union hth_addr *self;
};

static int fds_same_host(const union hth_addr *a, const union hth_addr *b)
{
    if (a->sa.sa_family != b->sa.sa_family)
        return 0;
    if (a->sa.sa_family == AF_INET6)
        return IN6_ARE_ADDR_EQUAL(&a->in6.sin6_addr, &b->in6.sin6_addr);
    return a->in.sin_addr.s_addr == b->in.sin_addr.s_addr;
}

static int fds_is_ours(int fd, const union hth_addr *self)
{
    union hth_addr a = { 0 };
    socklen_t len = sizeof(a);

    return getsockname(fd, &a.sa, &len) == 0 && fds_same_host(&a, self);
}

static void fds_seal_one(int fd, void *arg)
{
    const struct seal *s = arg;
    int flags = fcntl(fd, F_GETFD);
    int ours;

    if (flags < 0 || (flags & FD_CLOEXEC))
        return;
    if (s->before)
        ours = !fds_was_there(s->before, fd);
    else
        ours = fds_is_ours(fd, s->self);
    if (ours)
        fcntl(fd, F_SETFD, flags | FD_CLOEXEC);
}

void hth_ofi_fds_seal(struct hth_ofi_fds *before, const union hth_addr *self)
{
    struct seal s = { before, self };

    fds_each(fds_seal_one, &s);
    if (before)
        free(before->bit);
}

struct ends {
    union hth_addr here, there;
};

static int fds_same_end(const union hth_addr *a, const union hth_addr *b)
{
    return fds_same_host(a, b) &&
           a->in.sin_port == b->in.sin_port; /* in6 has it in the same place */
}

static void fds_end_socket(int fd, void *arg)
{
    const struct ends *ep = arg;
    struct ends of = { 0 };
    socklen_t here = sizeof(of.here), there = sizeof(of.there);

    if (getsockname(fd, &of.here.sa, &here) == 0 && getpeername(fd, &of.there.sa, &there) == 0 &&
            fds_same_end(&of.here, &ep->here) && fds_same_end(&of.there, &ep->there))
        shutdown(fd, SHUT_RDWR);
}

void hth_ofi_socket_end(struct fid_ep *ep)
{
    struct ends ends = { 0 };
    size_t here = sizeof(ends.here), there = sizeof(ends.there);

    if (fi_getname(&ep->fid, &ends.here, &here) == 0 && fi_getpeer(ep, &ends.there, &there) == 0)
        fds_each(fds_end_socket, &ends);
}

struct search {
    const union hth_addr *here, *there;
    int end;        /* them; else find one */
    uint16_t spare; /* not the one from this port; 0: all. In network order */
    uint16_t found;
};

static void fds_search_one(int fd, void *arg)
{
    struct search *s = arg;
    struct ends of = { 0 };
    socklen_t here = sizeof(of.here), there = sizeof(of.there);

    if (getsockname(fd, &of.here.sa, &here) || getpeername(fd, &of.there.sa, &there) ||
            !fds_same_host(&of.here, s->here) || !fds_same_end(&of.there, s->there))
        return;
    if (!s->end)
        s->found = of.here.in.sin_port;
    else if (of.here.in.sin_port != s->spare)
        shutdown(fd, SHUT_RDWR);
}

uint16_t hth_ofi_socket_port(const union hth_addr *here, const union hth_addr *there)
{
    struct search s = { .here = here, .there = there };

    fds_each(fds_search_one, &s);
    return s.found;
}

void hth_ofi_sockets_end(const union hth_addr *here, const union hth_addr *there, uint16_t spare)
{
    struct search s = { .here = here, .there = there, .end = 1, .spare = spare };

    fds_each(fds_search_one, &s);
}
