/* SPDX-License-Identifier: Apache-2.0 */
/* The life of a transport of reliable datagrams. */
#include "rdm.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

static int rdm_address(struct hth_transport *t, unsigned char *out_addr, uint32_t *out_len,
        struct hearth_error *err)
{
    const struct hth_rdm *r = hth_rdm_of(t);

    (void)err;
    memcpy(out_addr, r->address, r->address_len);
    *out_len = r->address_len;
    return HEARTH_OK;
}

static struct hth_ofi_grants *rdm_grants(struct hth_ofi *o, hth_conn conn)
{
    struct hth_rdm_conn *c = hth_ids_get(&o->conns, conn);

    return c && c->link.state == HTH_OFI_UP ? &c->link.grants : NULL;
}

static void rdm_leave(struct hth_ofi_link *c, int code, const char *why)
{
    hth_rdm_conn_leave((struct hth_rdm_conn *)c, code, why, 1);
}

static void rdm_free(struct hth_rdm *r)
{
    for (uint32_t i = 0; i < r->byes; i++)
        hth_rdm_peer_put(r, r->bye[i].peer);
    hth_ofi_regions_end(&r->o);
    if (r->home.r)
        hth_rdm_end_close(&r->home);
    if (r->pull_info)
        r->o.lib->freeinfo(r->pull_info);
    if (r->timer_fd >= 0)
        close(r->timer_fd);
    hth_ofi_fini(&r->o);
    free(r);
}

static void rdm_leave_all(struct hth_rdm *r, int up)
{
    for (uint32_t i = 0; i < r->o.conns.cap; i++) {
        struct hth_rdm_conn *c = hth_ids_at(&r->o.conns, i);

        if (c && (c->link.state == HTH_OFI_UP || !up))
            hth_rdm_conn_leave(c, HEARTH_ECANCELED, "closed by us", 1);
    }
}

static void rdm_close(struct hth_transport *t)
{
    struct hth_rdm *r = hth_rdm_of(t);

    if (!t)
        return;
    hth_rdm_end_read(&r->home); /* a peer that has sent BYE is not answered */
    r->o.closing = 1;
    rdm_leave_all(r, 1); /* first, while BYE has a place */
    rdm_leave_all(r, 0);
    hth_rdm_pull_ends_close(r);
    hth_ofi_finish(&r->o);
    hth_rdm_drain(r);
    rdm_free(r);
}

static const struct hth_transport_ops rdm_ops = {
    .name = "ofi",
    .caps = hth_ofi_caps,
    .address = rdm_address,
    .connect = hth_rdm_connect,
    .drop = hth_rdm_drop,
    .send = hth_rdm_send,
    .reg = hth_ofi_reg,
    .dereg = hth_ofi_dereg,
    .grant = hth_ofi_link_grant,
    .revoke = hth_ofi_revoke,
    .pull = hth_ofi_pull,
    .pulled_crc = hth_ofi_pulled_crc,
    .pulled_ms = hth_ofi_pulled_ms,
    .progress = hth_rdm_progress,
    .arm = hth_rdm_arm,
    .wake = hth_ofi_wake,
    .close = rdm_close,
};

/* cxi may miss a wake-up; that of net stays readable (libfabric 1.17). */
static int descriptor_misleads(const char *provider)
{
    return strcmp(provider, "cxi") == 0 || strcmp(provider, "net") == 0;
}

/* The pull endpoint has no port of its own that peers would have to know. */
static int pull_info_make(struct hth_rdm *r, struct hearth_error *err)
{
    struct fi_info *info = r->o.lib->dupinfo(r->o.info);

    if (!info)
        return hth_fail(err, HEARTH_ENOMEM, 0, "no memory for an endpoint's description");
    if ((info->addr_format == FI_SOCKADDR_IN || info->addr_format == FI_SOCKADDR_IN6) &&
            info->src_addr)
        ((union hth_addr *)info->src_addr)->in.sin_port = 0; /* sin6_port is there, too */
    r->pull_info = info;
    r->own_domains = r->o.sockets && !(r->o.mr_mode & FI_MR_LOCAL);
    r->polls = descriptor_misleads(info->fabric_attr->prov_name);
    return HEARTH_OK;
}

static int rdm_wait_open(struct hth_rdm *r, struct hearth_error *err)
{
    struct epoll_event ev = { .events = EPOLLIN };

    r->o.epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    r->o.wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    r->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    if (r->o.epoll_fd < 0 || r->o.wake_fd < 0 || r->timer_fd < 0 ||
            epoll_ctl(r->o.epoll_fd, EPOLL_CTL_ADD, r->o.wake_fd, &ev) ||
            epoll_ctl(r->o.epoll_fd, EPOLL_CTL_ADD, r->timer_fd, &ev))
        return hth_fail(err, HEARTH_EIO, errno, "nothing to wait on: %s", strerror(errno));
    return HEARTH_OK;
}

static int rdm_build(
        struct hth_rdm *r, const struct hth_transport_opts *opts, struct hearth_error *err)
{
    struct hth_ofi_fds before;
    int rc;

    hth_ofi_fds_note(&before);
    rc = hth_ofi_provider_choose(&r->o, opts, err);
    if (!rc)
        rc = pull_info_make(r, err);
    if (!rc)
        rc = rdm_wait_open(r, err);
    if (!rc)
        rc = hth_ofi_domain_open(&r->o, err);
    if (!rc)
        rc = hth_rdm_home_open(r, err);
    hth_ofi_fds_seal(&before, NULL);
    return rc;
}

int hth_rdm_open(const struct hth_transport_opts *opts, const struct hth_transport_events *events,
        struct hth_transport **out, struct hearth_error *err)
{
    struct hth_rdm *r = calloc(1, sizeof(*r));
    int rc;

    if (!r)
        return hth_fail(err, HEARTH_ENOMEM, 0, "no memory for a transport");
    hth_ofi_init(&r->o, &rdm_ops, opts, events);
    r->timer_fd = -1;
    r->scan_ms = HTH_NEVER;
    r->ended = hth_rdm_ended;
    r->o.grants_of = rdm_grants;
    r->o.grants_flush = hth_rdm_grants_flush;
    r->o.pull_post = hth_rdm_pull_post;
    r->o.leave = rdm_leave;
    r->o.conn_free = hth_rdm_conn_free;
    rc = rdm_build(r, opts, err);
    if (rc) {
        rdm_free(r);
        return rc;
    }
    *out = &r->o.base;
    return HEARTH_OK;
}
