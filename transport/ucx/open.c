/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One transport: a context with one worker on one interface, a listener, and its close.
 * Settings that UCX takes per context are given here; those it takes from the environment only
 * are in module.c.
 */
#include "ucx.h"

#include "core/base/network.h"
#include "rdma.h"
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#define CLOSE_MS 3000 /* to get rid of connections; a forced close takes under one */

struct setting {
    const char *name, *value;
};

static int context_configure(const struct hth_ucx *t, ucp_config_t *config, const char *provider,
        const char *device, struct hearth_error *err)
{
    /* All sends, by the old protocols alone. */
    const int copied = strcmp(provider, "tcp") == 0 && hth_ucx_needs(HTH_UCX_COPIED_SENDS);
    const struct setting setting[] = {
        { "TLS", provider },
        { "NET_DEVICES", device },
        { "SOCKADDR_TLS_PRIORITY", t->rdma ? "rdmacm" : "tcp" },
        { "PROTO_ENABLE", copied || hth_ucx_needs(HTH_UCX_OLD_PROTOCOLS) ? "n" : "y" },
        { "ZCOPY_THRESH", copied ? "inf" : "auto" },
        /* Longer than the kernel's own keepalive takes, or the ping itself hides a silent partition
         * from that. */
        { "KEEPALIVE_INTERVAL", "20s" },
    };
    size_t n = sizeof(setting) / sizeof(setting[0]);

    if (getenv("UCX_KEEPALIVE_INTERVAL"))
        n--; /* the site's choice */
    for (size_t i = 0; i < n; i++) {
        ucs_status_t status = ucp_config_modify(config, setting[i].name, setting[i].value);

        if (status != UCS_OK)
            return hth_fail(err, HEARTH_EUNSUPPORTED, status,
                    "this UCX does not take %s=%s (%s): use version 1.13 or later", setting[i].name,
                    setting[i].value, ucs_status_string(status));
    }
    return 0;
}

/* Pinning takes seconds, on a thread that is not the worker's. */
static int context_check_threads(struct hth_ucx *t, struct hearth_error *err)
{
    ucp_context_attr_t attr = { .field_mask = UCP_ATTR_FIELD_THREAD_MODE };
    ucs_status_t status = ucp_context_query(t->context, &attr);

    if (status == UCS_OK && attr.thread_mode == UCS_THREAD_MODE_MULTI)
        return HEARTH_OK;
    return hth_fail(err, HEARTH_EUNSUPPORTED, status,
            "this UCX (%s) is built for one thread, and memory is registered beside the engine's: "
            "take one that is built with --enable-mt",
            ucp_get_version_string());
}

static int context_open(
        struct hth_ucx *t, const char *provider, const char *device, struct hearth_error *err)
{
    ucp_params_t params = {
        .field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_MT_WORKERS_SHARED,
        .features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP | (t->gets ? UCP_FEATURE_RMA : 0),
        .mt_workers_shared = 1, /* one thread has the worker, but any registers memory */
    };
    ucp_config_t *config;
    ucs_status_t status = ucp_config_read(NULL, NULL, &config);
    int rc;

    if (status != UCS_OK)
        return hth_fail(err, HEARTH_EIO, status, "UCX does not read its settings: %s",
                ucs_status_string(status));
    rc = context_configure(t, config, provider, device, err);
    if (rc == 0) {
        status = ucp_init(&params, config, &t->context);
        if (status != UCS_OK)
            rc = hth_fail(err, HEARTH_EINVAL, status, "UCX has no \"%s\" on %s %s (%s): %s",
                    provider, t->rdma ? "device" : "interface", device, ucs_status_string(status),
                    t->rdma ? "does `ucx_info -d` show it? It may be built without verbs"
                            : "is it up, and does /sys/class/net show it?");
    }
    if (rc == 0 && t->rdma)
        rc = context_check_threads(t, err);
    ucp_config_release(config);
    return rc;
}

static int worker_open(struct hth_ucx *t, const char *device, struct hearth_error *err)
{
    ucp_worker_params_t params = { .field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
        .thread_mode = UCS_THREAD_MODE_SINGLE };
    ucs_status_t status = ucp_worker_create(t->context, &params, &t->worker);

    if (status == UCS_OK)
        status = hth_ucx_handlers_set(t);
    if (status == UCS_OK)
        status = ucp_worker_get_efd(t->worker, &t->worker_fd);
    if (status != UCS_OK)
        return hth_fail(err, HEARTH_EIO, status, "UCX does not start on interface %s: %s", device,
                ucs_status_string(status));
    return 0;
}

static int ucx_wait_open(struct hth_ucx *t, struct hearth_error *err)
{
    struct epoll_event event = { .events = EPOLLIN };

    t->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    t->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (t->wake_fd < 0 || t->epoll_fd < 0 ||
            epoll_ctl(t->epoll_fd, EPOLL_CTL_ADD, t->wake_fd, &event) < 0 ||
            epoll_ctl(t->epoll_fd, EPOLL_CTL_ADD, t->worker_fd, &event) < 0)
        return hth_fail(err, HEARTH_EIO, errno, "no descriptor to wait on: %s", strerror(errno));
    return 0;
}

/* A peer dials; whether it is accepted is decided outside of UCX's callback. */
static void listener_on_request(ucp_conn_request_h request, void *arg)
{
    struct hth_ucx *t = arg;
    struct hth_ucx_request *r = malloc(sizeof(*r));

    if (!r) {
        ucp_listener_reject(t->listener, request);
        return;
    }
    r->request = request;
    hth_ucx_note(t, &r->event, HTH_UCX_REQUEST);
}

static int listener_open(
        struct hth_ucx *t, const struct hth_transport_opts *opts, struct hearth_error *err)
{
    ucp_listener_params_t params = { 0 };
    ucp_listener_attr_t attr = { .field_mask = UCP_LISTENER_ATTR_FIELD_SOCKADDR };
    ucs_status_t status;

    params.field_mask = UCP_LISTENER_PARAM_FIELD_SOCK_ADDR | UCP_LISTENER_PARAM_FIELD_CONN_HANDLER;
    params.sockaddr.addr = (const struct sockaddr *)(const void *)&t->bound;
    params.sockaddr.addrlen = hth_ucx_sockaddr_len(&t->bound);
    params.conn_handler.cb = listener_on_request;
    params.conn_handler.arg = t;
    status = ucp_listener_create(t->worker, &params, &t->listener);
    if (status == UCS_ERR_BUSY)
        return hth_fail(err, HEARTH_EEXIST, status,
                "port %u of %s is in use: choose another, or 0 for any", (unsigned)opts->port,
                opts->bind);
    if (status == UCS_OK)
        status = ucp_listener_query(t->listener, &attr);
    if (status != UCS_OK)
        return hth_fail(err, HEARTH_EIO, status, "listening on %s port %u failed: %s%s", opts->bind,
                (unsigned)opts->port, ucs_status_string(status),
                t->rdma ? " (does this UCX have rdmacm?)" : "");
    t->bound = attr.sockaddr;
    return 0;
}

static uint64_t ucx_real_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static uint32_t ucx_caps(struct hth_transport *base)
{
    struct hth_ucx *t = (struct hth_ucx *)(void *)base;

    if (t->gets) /* UCX registers for writing, too */
        return t->rdma ? HTH_CAP_ONE_SIDED | HTH_CAP_PINS : 0;
    return HTH_CAP_BOUNDS | HTH_CAP_GRANT_PER_CONN |
           HTH_CAP_REVOKES; /* by the owner's table, see grant.c */
}

static int ucx_address(struct hth_transport *base, unsigned char *out_addr, uint32_t *out_len,
        struct hearth_error *err)
{
    struct hth_ucx *t = (struct hth_ucx *)(void *)base;

    (void)err;
    *out_len = hth_ucx_blob_encode(&t->bound, out_addr);
    return 0;
}

static void ucx_free(struct hth_ucx *t)
{
    while (t->packets) {
        struct hth_ucx_packet *p = t->packets;

        t->packets = p->next;
        free(p);
    }
    hth_ucx_pulls_fini(t);
    for (uint32_t i = 0; i < t->conns.cap; i++)
        free(hth_ids_at(&t->conns, i));
    hth_ids_fini(&t->conns);
    hth_ids_fini(&t->grants);
    pthread_mutex_destroy(&t->memory);
    free(t->known_fds);
    free(t);
}

static void ucx_close(struct hth_transport *base)
{
    struct hth_ucx *t = (struct hth_ucx *)(void *)base;
    uint64_t end = ucx_real_ms() + CLOSE_MS;

    if (!t)
        return;
    t->closed = 1;
    /* At least once, even without connections: a noted request must be refused. */
    do {
        hth_ucx_conns_fail(t, HEARTH_ECANCELED, "this node closes");
        if (t->worker)
            hth_ucx_progress(base);
    } while ((t->noted || t->conns.count) && ucx_real_ms() < end);
    if (t->listener)
        ucp_listener_destroy(t->listener);
    t->listener = NULL;
    for (uint32_t i = 0; i < t->conns.cap; i++)
        if (hth_ids_at(&t->conns, i)) /* one that does not close: its keys are the worker's */
            hth_ucx_keys_drop(hth_ids_at(&t->conns, i));
    if (t->worker)
        ucp_worker_destroy(t->worker);
    hth_ucx_conns_forget(t);
    hth_ucx_events_run(t);
    hth_ucx_regions_fini(t);
    if (t->context)
        ucp_cleanup(t->context);
    if (t->wake_fd >= 0)
        close(t->wake_fd);
    if (t->epoll_fd >= 0)
        close(t->epoll_fd);
    ucx_free(t);
}

static const struct hth_transport_ops ucx_ops = {
    .name = "ucx",
    .caps = ucx_caps,
    .address = ucx_address,
    .connect = hth_ucx_connect,
    .drop = hth_ucx_drop,
    .send = hth_ucx_send,
    .reg = hth_ucx_reg,
    .dereg = hth_ucx_dereg,
    .grant = hth_ucx_grant,
    .revoke = hth_ucx_revoke,
    .pull = hth_ucx_pull,
    .pulled_crc = hth_ucx_pulled_crc,
    .progress = hth_ucx_progress,
    .arm = hth_ucx_arm,
    .wake = hth_ucx_wake,
    .close = ucx_close,
};

static struct hth_ucx *ucx_new(
        const struct hth_transport_opts *opts, const struct hth_transport_events *events)
{
    struct hth_ucx *t = calloc(1, sizeof(*t));

    if (!t)
        return NULL;
    t->base.ops = &ucx_ops;
    t->base.conns_max = HTH_UCX_CONNS;
    t->events = *events;
    t->clock = opts->clock;
    t->log = opts->log;
    t->connect_ms = opts->connect_ms ? opts->connect_ms : 5000;
    t->worker_fd = t->wake_fd = t->epoll_fd = -1;
    t->noted_end = &t->noted;
    pthread_mutex_init(&t->memory, NULL);
    hth_ids_init(&t->conns, 2 * HTH_UCX_CONNS);
    hth_ids_init(&t->pulls, HTH_UCX_PULLS);
    hth_ids_init(&t->grants, HTH_UCX_GRANTS);
    return t;
}

/* In a build for tests: UCX's own imitation of reads, over what this machine has. */
static const char *ucx_gets_for_tests(void)
{
#ifdef HEARTH_POINTS
    return getenv("HEARTH_UCX_GETS");
#else
    return NULL;
#endif
}

static int provider_take(struct hth_ucx *t, const char *provider, struct hearth_error *err)
{
    t->rdma = hth_ucx_is_rdma(provider);
    t->gets = t->rdma || ucx_gets_for_tests();
    if (t->rdma || strcmp(provider, "tcp") == 0)
        return HEARTH_OK;
    if (strcmp(provider, "posix") == 0)
        return hth_fail(err, HEARTH_EINVAL, 0,
                "the transport ucx does not use provider posix: it copies twice, in pieces of 8 KiB, at "
                "half the rate of memory; within one machine take transport ofi with provider shm");
    return hth_fail(err, HEARTH_EINVAL, 0,
            "the transport ucx has no provider \"%s\": known are tcp, and for network cards "
            "rc, rc_verbs, rc_mlx5, dc, dc_mlx5 or several of those with commas between",
            provider);
}

/* Finds the name that UCX has for the device behind the interface. */
static int device_take(const struct hth_ucx *t, const char *provider, const char *interface,
        char out[HTH_UCX_DEVICE], struct hearth_error *err)
{
    snprintf(out, HTH_UCX_DEVICE, "%s", interface);
    if (!t->rdma || hth_ucx_rdma_device("/sys", interface, out))
        return HEARTH_OK;
    return hth_fail(err, HEARTH_EINVAL, 0,
            "provider %s needs a network card for RDMA, and behind interface %s there is none in "
            "/sys/class/infiniband: give `bind` the address of an interface that `rdma link` shows, "
            "or take provider tcp",
            provider, interface);
}

static int bound_is_loopback(const struct hth_ucx *t)
{
    const struct sockaddr_in *in = (const void *)&t->bound;

    return t->bound.ss_family == AF_INET && ntohl(in->sin_addr.s_addr) >> 24 == 127;
}

/* Without this check it would listen, and would never reach a peer. */
static int loopback_check(const struct hth_ucx *t, struct hearth_error *err)
{
    if (t->rdma || !bound_is_loopback(t) || !hth_ucx_needs(HTH_UCX_NO_LOOPBACK))
        return HEARTH_OK;
    return hth_fail(err, HEARTH_EUNSUPPORTED, 0,
            "UCX %s reaches no peer over TCP by the loopback interface, which is a fault of releases 1.20: "
            "take another release (ucx_library), transport tcp, or another interface",
            ucp_get_version_string());
}

static int ucx_start(struct hth_ucx *t, const struct hth_transport_opts *opts, const char *provider,
        struct hearth_error *err)
{
    char interface[IF_NAMESIZE], device[HTH_UCX_DEVICE];
    int rc = hth_ucx_bind(opts, &t->bound, interface, err);

    if (rc == 0)
        rc = loopback_check(t, err);
    if (rc == 0)
        rc = device_take(t, provider, interface, device, err);
    if (rc == 0)
        rc = context_open(t, provider, device, err);
    if (rc == 0)
        rc = worker_open(t, device, err);
    if (rc == 0)
        rc = ucx_wait_open(t, err);
    if (rc == 0)
        rc = listener_open(t, opts, err);
    if (rc == 0)
        hth_say(&t->log, HEARTH_LOG_INFO, "transport-open",
                "ucx %s (UCX %s) on %s of interface %s for %s", provider, ucp_get_version_string(),
                device, interface, opts->bind);
    return rc;
}

static int ucx_open(const struct hth_transport_opts *opts,
        const struct hth_transport_events *events, struct hth_transport **out,
        struct hearth_error *err)
{
    const char *provider = opts->provider ? opts->provider : HTH_PROVIDER_DEFAULT;
    struct hth_network network = { .bind = opts->bind,
        .transport = "ucx",
        .provider = provider,
        .trusted = opts->trusted,
        .strong = opts->strong };
    struct hth_ucx *t = ucx_new(opts, events);
    int rc;

    if (!t)
        return hth_fail(err, HEARTH_ENOMEM, 0, "no memory for a transport");
    t->settles = hth_ucx_needs(HTH_UCX_CUT_HANDSHAKES);
    rc = hth_ucx_fds_note(t) ? hth_fail(err, HEARTH_ENOMEM, 0, "no memory for a transport")
                             : provider_take(t, provider, err);
    if (rc == 0)
        rc = hth_listener_check(&network, err);
    if (rc == 0)
        rc = ucx_start(t, opts, provider, err);
    if (rc) {
        ucx_close(&t->base);
        return rc;
    }
    hth_ucx_fds_close_on_exec(t, 0);
    hth_ucx_work_arounds_say(&t->log);
    *out = &t->base;
    return 0;
}

/* Found by module.c. */
__attribute__((
        visibility("default"))) extern const struct hth_transport_backend hth_transport_backend;
const struct hth_transport_backend hth_transport_backend = {
    .abi = HTH_TRANSPORT_ABI,
    .name = "ucx",
    .open = ucx_open,
};
