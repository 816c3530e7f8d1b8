/* SPDX-License-Identifier: Apache-2.0 */
/* By the kernel's sock_diag, as `ss -ti` does it: one request for each family, many answers. */
#include "sockets.h"

#include <errno.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sock_diag.h>
#include <linux/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#define ANSWER      65536
#define ESTABLISHED 1 /* the kernel's number of the state */

struct sockets {
    struct socket_row *row; /* [count] */
    size_t count;
};

int sockets_same_ip(const union hth_addr *a, const union hth_addr *b)
{
    if (a->sa.sa_family != b->sa.sa_family)
        return 0;
    return a->sa.sa_family == AF_INET6
                   ? !memcmp(&a->in6.sin6_addr, &b->in6.sin6_addr, sizeof(a->in6.sin6_addr))
                   : a->in.sin_addr.s_addr == b->in.sin_addr.s_addr;
}

static void sockets_address(
        unsigned char family, const void *ip, uint16_t port, union hth_addr *out)
{
    memset(out, 0, sizeof(*out));
    out->sa.sa_family = family;
    if (family == AF_INET6) {
        out->in6.sin6_port = port;
        memcpy(&out->in6.sin6_addr, ip, sizeof(out->in6.sin6_addr));
    } else {
        out->in.sin_port = port;
        memcpy(&out->in.sin_addr, ip, sizeof(out->in.sin_addr));
    }
}

/* IP's and TCP's headers, with timestamps where both sides have them. */
static uint32_t sockets_headers(unsigned char family, const struct tcp_info *t)
{
    return (family == AF_INET6 ? 40u : 20u) + 20u +
           (t->tcpi_options & TCPI_OPT_TIMESTAMPS ? 12u : 0);
}

static void sockets_attribute(struct rtattr *a, unsigned char family, struct socket_row *out)
{
    struct tcp_info t = { 0 };
    size_t len = RTA_PAYLOAD(a);

    if (a->rta_type == INET_DIAG_INFO) { /* a kernel's may be shorter or longer than ours */
        memcpy(&t, RTA_DATA(a), len < sizeof(t) ? len : sizeof(t));
        out->mss = t.tcpi_snd_mss;
        out->path_mtu = t.tcpi_pmtu;
        out->headers = sockets_headers(family, &t);
    }
    if (a->rta_type == INET_DIAG_CONG && len <= sizeof(out->congestion)) {
        memcpy(out->congestion, RTA_DATA(a), len);
        out->congestion[sizeof(out->congestion) - 1] = '\0';
    }
}

static int sockets_add(struct sockets *s, struct nlmsghdr *h)
{
    struct inet_diag_msg *m = NLMSG_DATA(h);
    struct socket_row *more;
    struct rtattr *a = (struct rtattr *)(void *)(m + 1);
    int len = (int)h->nlmsg_len - (int)NLMSG_LENGTH(sizeof(*m));

    if (len < 0)
        return 0;
    more = realloc(s->row, (s->count + 1) * sizeof(*more));
    if (!more)
        return ENOMEM;
    s->row = more;
    more += s->count++;
    memset(more, 0, sizeof(*more));
    sockets_address(m->idiag_family, m->id.idiag_src, m->id.idiag_sport, &more->here);
    sockets_address(m->idiag_family, m->id.idiag_dst, m->id.idiag_dport, &more->there);
    for (; RTA_OK(a, len); a = RTA_NEXT(a, len))
        sockets_attribute(a, m->idiag_family, more);
    return 0;
}

/* One datagram of answers. -1: more come; else 0 or an errno. */
static int sockets_take(struct sockets *s, void *bytes, size_t len)
{
    struct nlmsghdr *h = bytes;
    unsigned left = (unsigned)len;
    int rc;

    for (; NLMSG_OK(h, left); h = NLMSG_NEXT(h, left)) {
        if (h->nlmsg_type == NLMSG_DONE)
            return 0;
        if (h->nlmsg_type == NLMSG_ERROR) {
            const struct nlmsgerr *e = NLMSG_DATA(h);

            return h->nlmsg_len < NLMSG_LENGTH(sizeof(*e)) ? EPROTO : -e->error;
        }
        if (h->nlmsg_type == SOCK_DIAG_BY_FAMILY && (rc = sockets_add(s, h)))
            return rc;
    }
    return -1;
}

static int sockets_ask(int fd, unsigned char family, struct sockets *s)
{
    struct {
        struct nlmsghdr head;
        struct inet_diag_req_v2 r;
    } request = { .head = { .nlmsg_len = sizeof(request),
                          .nlmsg_type = SOCK_DIAG_BY_FAMILY,
                          .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP },
        .r = { .sdiag_family = family,
                .sdiag_protocol = IPPROTO_TCP,
                .idiag_ext = 1u << (INET_DIAG_INFO - 1) | 1u << (INET_DIAG_CONG - 1),
                .idiag_states = 1u << ESTABLISHED } };
    void *answer = malloc(ANSWER);
    int rc = answer ? -1 : ENOMEM;
    ssize_t n;

    if (rc < 0 && send(fd, &request, sizeof(request), 0) < 0)
        rc = errno;
    while (rc < 0) {
        n = recv(fd, answer, ANSWER, 0);
        rc = n < 0 ? errno : sockets_take(s, answer, (size_t)n);
    }
    free(answer);
    return rc;
}

int sockets_list(struct socket_row **out, size_t *out_count)
{
    const struct timeval patience = { .tv_sec = 2 };
    struct sockets s = { 0 };
    int fd = socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
    int rc = fd < 0 ? errno : 0;

    if (!rc)
        setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    rc = rc ? rc : sockets_ask(fd, AF_INET, &s);
    if (!rc && sockets_ask(fd, AF_INET6, &s) == ENOMEM)
        rc = ENOMEM;
    if (fd >= 0)
        close(fd);
    if (rc) {
        free(s.row);
        return rc;
    }
    *out = s.row;
    *out_count = s.count;
    return 0;
}
