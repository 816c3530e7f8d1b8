/* SPDX-License-Identifier: Apache-2.0 */
/* The functions that the module exports, and the life of a transport. */
#include "tcp.h"

#include "core/base/network.h"
#include "transport/offers.h"

#include <errno.h>
#include <hearth/export.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#define CONNECT_MS 5000u

static uint32_t tcp_caps(struct hth_transport *t)
{
    return HTH_CAP_READ_ONLY | HTH_CAP_BOUNDS | HTH_CAP_GRANT_PER_CONN | HTH_CAP_REVOKES |
           (hth_tcp_of(t)->key->id ? HTH_CAP_PROVES : 0);
}

static int tcp_address(struct hth_transport *t, unsigned char *out_addr, uint32_t *out_len,
        struct hearth_error *err)
{
    (void)err;
    *out_len = hth_addrs_pack(&hth_tcp_of(t)->self, out_addr);
    return HEARTH_OK;
}

static void tcp_free(struct hth_tcp *t)
{
    hth_tcp_lanes_close(t);
    hth_tcp_listen_close(t);
    if (t->wake_fd >= 0)
        close(t->wake_fd);
    if (t->strangers_fd >= 0)
        close(t->strangers_fd);
    if (t->epoll_fd >= 0)
        close(t->epoll_fd);
    free(t->places);
    hth_ids_fini(&t->socks);
    hth_ids_fini(&t->conns);
    hth_ids_fini(&t->grants);
    pthread_mutex_destroy(&t->regions_lock);
    pthread_mutex_destroy(&t->grants_lock);
    pthread_mutex_destroy(&t->back_lock);
    pthread_cond_destroy(&t->grants_unread);
    free(t);
}

static void tcp_close(struct hth_transport *transport)
{
    struct hth_tcp *t = hth_tcp_of(transport);

    if (!t)
        return;
    t->closing = 1;
    hth_tcp_listen_close(t);
    for (uint32_t i = 0; i < t->conns.cap; i++)
        if (hth_ids_at(&t->conns, i))
            hth_tcp_conn_end(hth_ids_at(&t->conns, i), HEARTH_ECANCELED, "closed by us");
    hth_tcp_lanes_close(t);
    hth_tcp_back_take(t);
    hth_tcp_finish(t);
    hth_tcp_regions_end(t);
    tcp_free(t);
}

static const struct hth_transport_ops tcp_ops = {
    .name = "tcp",
    .caps = tcp_caps,
    .address = tcp_address,
    .members = hth_tcp_members,
    .connect = hth_tcp_connect,
    .drop = hth_tcp_drop,
    .send = hth_tcp_send,
    .reg = hth_tcp_reg,
    .dereg = hth_tcp_dereg,
    .grant = hth_tcp_grant,
    .revoke = hth_tcp_revoke,
    .pull = hth_tcp_pull,
    .pulled_crc = hth_tcp_pulled_crc,
    .pulled_ms = hth_tcp_pulled_ms,
    .progress = hth_tcp_progress,
    .arm = hth_tcp_arm,
    .wake = hth_tcp_wake,
    .close = tcp_close,
};

/* A connection takes two descriptors, and the rest of the process needs some. */
static uint32_t tcp_conns_max(void)
{
    struct rlimit files;

    if (getrlimit(RLIMIT_NOFILE, &files) || files.rlim_cur / 4 >= HTH_TCP_CONNS)
        return HTH_TCP_CONNS;
    return (uint32_t)files.rlim_cur / 4;
}

static int tcp_check(const struct hth_transport_opts *opts, struct hearth_error *err)
{
    struct hth_network n = { .bind = opts->bind,
        .transport = "tcp",
        .trusted = opts->trusted,
        .provider = "tcp",
        .has_key = opts->key != NULL };

    if (!opts->clock.now_ms)
        return hth_fail(err, HEARTH_EINVAL, 0, "the transport needs a clock");
    if (opts->provider && strcmp(opts->provider, HTH_PROVIDER_DEFAULT) != 0)
        return hth_fail(err, HEARTH_EINVAL, 0,
                "transport tcp has no provider '%.40s': leave it out, or set tcp", opts->provider);
    return hth_listener_check(&n, err);
}

static int tcp_poll_open(struct hth_tcp *t, struct hearth_error *err)
{
    struct epoll_event e = { .events = EPOLLIN }; /* no socket has id 0 */
    struct epoll_event strangers = { .events = EPOLLIN, .data.u64 = HTH_TCP_DOOR };

    t->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    t->strangers_fd = epoll_create1(EPOLL_CLOEXEC);
    t->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (t->epoll_fd < 0 || t->strangers_fd < 0 || t->wake_fd < 0 ||
            epoll_ctl(t->epoll_fd, EPOLL_CTL_ADD, t->wake_fd, &e) ||
            epoll_ctl(t->epoll_fd, EPOLL_CTL_ADD, t->strangers_fd, &strangers))
        return hth_fail(err, HEARTH_EIO, errno, "no descriptors for a transport: %s",
                strerrordesc_np(errno));
    return HEARTH_OK;
}

/* One thread for each 8 processors: more than a few have nothing to do but at a fast network card.
 * In a build for tests HEARTH_TCP_LANES sets it, with 0 for none. */
static unsigned tcp_lanes(const struct hth_transport_opts *opts)
{
    unsigned lanes = opts->lanes;
    cpu_set_t cores;

#ifdef HEARTH_POINTS
    if (getenv("HEARTH_TCP_LANES"))
        return (unsigned)strtoul(getenv("HEARTH_TCP_LANES"), NULL, 10);
#endif
    if (!lanes && !sched_getaffinity(0, sizeof(cores), &cores))
        lanes = (unsigned)CPU_COUNT(&cores) / 8;
    return lanes < 1 ? 1 : lanes < HTH_TCP_LANES ? lanes : HTH_TCP_LANES;
}

/* Secrecy is for where there is a key, and a network that is not trusted. */
static int tcp_key(
        struct hth_tcp *t, const struct hth_transport_opts *opts, struct hearth_error *err)
{
    static const unsigned char zeros[HTH_KEY];
    static const struct hth_key none = { .bytes = zeros };
    int rc = hth_seal_init(err);

    t->key = opts->key ? opts->key : &none;
    t->suites = opts->key && !opts->trusted ? hth_seal_suites() : HTH_SUITE_PROOF;
    return rc;
}

static void tcp_say_cipher(const struct hth_tcp *t)
{
    enum hth_suite best =
            t->suites & HTH_SUITE_AES_256_GCM ? HTH_SUITE_AES_256_GCM : HTH_SUITE_CHACHA20_POLY1305;

    if (!t->key->id)
        return; /* the engine logs that it listens without a key */
    if (t->suites == HTH_SUITE_PROOF)
        hth_say(&t->log, HEARTH_LOG_INFO, "tcp-cipher",
                "the key proves who connects; what is sent is not encrypted: network = trusted");
    else
        hth_say(&t->log, HEARTH_LOG_INFO, "tcp-cipher",
                "messages and checkpoints are encrypted: %s, %.1f GB/s a core to seal, and the same "
                "again to open, on %u threads",
                hth_seal_name(best), hth_seal_rate(best), t->lanes);
}

static int tcp_device(
        const struct hth_tcp *t, const struct hth_transport_opts *opts, struct hearth_error *err)
{
    const char *at = opts->bind;
    char one[HTH_BIND_TEXT];
    int rc = HEARTH_OK;

    for (uint32_t i = 0; !rc && i < t->self.count && hth_bind_next(&at, one); i++)
        rc = hth_addr_device(opts->device, one, &t->self.at[i], err);
    return rc;
}

static int tcp_open(const struct hth_transport_opts *opts,
        const struct hth_transport_events *events, struct hth_transport **out,
        struct hearth_error *err)
{
    struct hth_tcp *t = calloc(1, sizeof(*t));
    int rc;

    if (!t)
        return hth_fail(err, HEARTH_ENOMEM, 0, "no memory for a transport");
    t->base.ops = &tcp_ops;
    t->base.conns_max = tcp_conns_max();
    t->events = *events;
    t->clock = opts->clock;
    t->log = opts->log;
    t->connect_ms = opts->connect_ms ? opts->connect_ms : CONNECT_MS;
    t->due_ms = HTH_NEVER;
    t->epoll_fd = t->strangers_fd = t->wake_fd = -1;
    for (uint32_t i = 0; i < HTH_ADDRS; i++)
        t->listen_fd[i] = -1;
    t->doomed_end = &t->doomed;
    t->back_pulls_end = &t->back_pulls;
    t->back_bulks_end = &t->back_bulks;
    hth_ids_init(&t->socks, 2 * t->base.conns_max + HTH_TCP_STRANGERS + HTH_TCP_KEPT_ALL + 1);
    hth_ids_init(&t->conns, t->base.conns_max);
    hth_ids_init(&t->grants, HTH_TCP_GRANTS);
    pthread_mutex_init(&t->regions_lock, NULL);
    pthread_mutex_init(&t->grants_lock, NULL);
    pthread_mutex_init(&t->back_lock, NULL);
    pthread_cond_init(&t->grants_unread, NULL);
    rc = hth_addrs_local(opts->bind, opts->port, &t->self, err);
    if (!rc && opts->device)
        rc = tcp_device(t, opts, err);
    if (!rc)
        rc = tcp_check(opts, err);
    if (!rc)
        rc = tcp_key(t, opts, err);
    if (!rc)
        rc = tcp_poll_open(t, err);
    if (!rc)
        rc = hth_tcp_listen_open(t, err);
    if (!rc)
        rc = hth_tcp_lanes_open(t, tcp_lanes(opts), err);
    if (rc) {
        tcp_free(t);
        return rc;
    }
    tcp_say_cipher(t);
    *out = &t->base;
    return HEARTH_OK;
}

extern const struct hth_transport_backend hth_transport_backend;
HEARTH_API const struct hth_transport_backend hth_transport_backend = {
    .abi = HTH_TRANSPORT_ABI,
    .name = "tcp",
    .open = tcp_open,
};

hth_transport_list_fn hth_transport_list;
HEARTH_API int hth_transport_list(const char *library, const struct hth_machine *machine,
        struct hth_offers *out, struct hearth_error *err)
{
    struct hth_offer *o = &out->offer[out->count++];

    (void)library, (void)machine, (void)err;
    snprintf(out->library, sizeof(out->library), "Hearth's own sockets");
    snprintf(o->provider, sizeof(o->provider), "%s", HTH_PROVIDER_DEFAULT);
    snprintf(o->fabric, sizeof(o->fabric), "Ethernet");
    snprintf(o->shape, sizeof(o->shape), "connected");
    o->hardware = -1;
    o->offered = 1;
    return HEARTH_OK;
}
