/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The loop of an engine. Everything that can happen ends up in one epoll set; each round gives
 * every source a bounded turn, lets the node look at the time, and sleeps until the next due time
 * of anybody. Nothing to do costs nothing.
 *
 *     transport ── progress() ──┐
 *     finished work ── done() ──┼─► node ── reply() ─► socket
 *     ranks ── request() ───────┤     └── submit() ─► workers
 *     time ── tick() ───────────┘
 */
#include "driver.h"

#include "attach.h"
#include "confined.h"
#include "core/base/auth.h"
#include "core/base/bytes.h"
#include "core/base/options.h"
#include "core/store/store_tmpfs.h"
#include "engine/state/node.h"
#include "fabrics.h"
#include "hands.h"
#include "key_watch.h"
#include "log.h"
#include "meets.h"
#include "round.h"
#include "server.h"
#include "stop_point.h"
#include <hearth/version.h>

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define ROUND_EVENTS 64

#define LOOK_MS      2000 /* at most between two looks at whether its directory is there */

#define UNLOCKED_MS  1000 /* before a lock that was removed is made anew */

enum { TAG_WAKE = 1, TAG_TRANSPORT = 2, TAG_STOP = 3, TAG_MEETS = 4 }; /* the server's are others */

struct hth_driver {
    struct hth_config config;
    char records[HTH_PATH_MAX + HTH_NAME_MAX + 16]; /* path of `.hearth/`, for messages */
    int records_fd;           /* `.hearth/`, the driver's own; -1: not open yet */
    struct hth_points points; /* self: the driver frees it */
    struct hth_store_faults faults;
    struct hth_key_watch *key; /* lent to the node's session; NULL: there is none */
    struct hth_logs *logs;
    struct hth_log log;
    struct hth_clock clock;
    struct hth_pool *pool;
    struct hth_confined confined;
    struct hth_store *store;
    struct hth_fabrics *fabrics;    /* transport = auto; NULL: set by hand */
    struct hth_node_fabrics offers; /* then: the node's part of it */
    struct hth_node *node;
    struct hth_meets meets;
    struct hth_server *server;
    int epoll_fd, wake_fd, stop_fd;
    int transport_fd;     /* in the epoll set; -1: none */
    int meets_fd;         /* likewise */
    int stopping;         /* atomic */
    int comes_back;       /* it has ended only to be opened again */
    uint64_t lonely_ms;   /* no rank is connected since then */
    uint64_t unlocked_ms; /* the lock was seen to be gone then; 0: it is there */
};

/* ---- what the node calls --------------------------------------------------------------------- */

static void driver_reply(void *self, uint32_t client, const void *bytes, size_t len, int fd)
{
    struct hth_driver *d = self;

    if (d->server)
        hth_server_reply(d->server, client, bytes, len, fd);
}

static int driver_attach(void *self, int *fd, const void *bytes, uint64_t off, size_t len, int last)
{
    (void)self;
    return hth_attach_put(fd, bytes, off, len, last);
}

static uint32_t driver_pid_of(void *self, uint32_t client)
{
    const struct hth_driver *d = self;

    return d->server ? (uint32_t)hth_server_pid(d->server, client) : 0;
}

/* `.hearth/port`: the port of the last engine. Members have that address, so an engine that is
 * started again under living ranks listens there again if it can. */
static uint16_t driver_last_port(struct hth_driver *d)
{
    unsigned char *bytes = NULL;
    uint16_t port = 0;
    size_t len = 0;

    if (d->store->ops->record_get(d->store, "port", (void **)&bytes, &len, NULL))
        return 0;
    if (len == sizeof(port))
        port = hth_get16(bytes);
    free(bytes);
    return port;
}

static void driver_keep_port(struct hth_driver *d, struct hth_transport *t)
{
    unsigned char addr[HTH_ADDR_MAX];
    struct hearth_error err;
    uint32_t len = 0;

    /* All transports have two bytes of their own, the port, which is 0 where there is none, and
     * more. */
    if (t->ops->address(t, addr, &len, NULL) || len < 4 || !hth_get16(addr + 2) ||
            hth_get16(addr + 2) == driver_last_port(d))
        return;
    if (d->store->ops->record_put(d->store, "port", addr + 2, sizeof(uint16_t), &err))
        hth_say(&d->log, HEARTH_LOG_WARN, "port-not-kept", "%s", err.text);
}

/* The library is loaded once, with all providers that may be opened later. */
static void driver_also(const struct hth_driver *d, const char *also[HTH_FABRICS_MOST + 1])
{
    size_t n = 0;

    for (const struct hth_fabric *f = hth_fabrics; f->number; f++)
        if ((d->offers.offered & HTH_FABRIC_BIT(f->number)) && strcmp(f->transport, "ofi") == 0)
            also[n++] = f->provider;
    also[n] = NULL;
}

/* The other transports listen on the first one. */
static int driver_uses_all_binds(const struct hth_config *c)
{
    return strcmp(c->transport, "tcp") == 0;
}

static struct hth_transport *driver_open_transport(
        void *self, const struct hth_transport_events *events, struct hearth_error *err)
{
    struct hth_driver *d = self;
    const struct hth_config *c = &d->config;
    const char *also[HTH_FABRICS_MOST + 1];
    const char *library = strcmp(c->transport, "ucx") != 0 ? c->fabric_library : c->ucx_library;
    const char *more = c->bind;
    char first[HTH_BIND_TEXT];
    struct hth_transport_opts opts = {
        .bind = driver_uses_all_binds(c) || !hth_bind_next(&more, first) ? c->bind : first,
        .port = c->port ? (uint16_t)c->port : driver_last_port(d),
        .provider = c->provider[0] ? c->provider : NULL,
        .device = c->device[0] ? c->device : NULL,
        .also = also,
        .library = library[0] ? library : NULL,
        .trusted = hth_config_network(c).trusted,
        .strong = hth_config_network(c).strong,
        .lanes = c->lanes,
        .key = hth_key_watched(d->key),
        .clock = d->clock,
        .log = d->log,
    };
    const char *modules = c->module_dir[0] ? c->module_dir : NULL;
    struct hth_transport *t = NULL;
    int rc;

    driver_also(d, also);
    rc = hth_transport_open(c->transport, modules, &opts, events, &t, err);
    if (rc && !c->port && opts.port) { /* another process has the old port now */
        opts.port = 0;
        rc = hth_transport_open(c->transport, modules, &opts, events, &t, err);
    }
    if (rc)
        return NULL;
    driver_keep_port(d, t);
    return t;
}

static struct hth_transport *driver_open_fabric(void *self, const struct hth_fabric *fabric,
        const struct hth_transport_events *events, struct hearth_error *err)
{
    struct hth_driver *d = self;

    snprintf(d->config.transport, sizeof(d->config.transport), "%s", fabric->transport);
    snprintf(d->config.provider, sizeof(d->config.provider), "%s", fabric->provider);
    return driver_open_transport(d, events, err);
}

/* The transport that is open stays until this engine ends. */
static void driver_settled(void *self)
{
    struct hth_driver *d = self;

    confined_settle(&d->confined, d->config.transport);
}

/* If this node has only tcp, tcp stays, whatever the other nodes have. */
static struct hth_transport *driver_open_first(
        void *self, const struct hth_transport_events *events, struct hearth_error *err)
{
    struct hth_driver *d = self;
    struct hth_transport *t;

    if (!d->fabrics)
        return driver_open_transport(d, events, err);
    t = hth_fabrics_open(d->fabrics, &d->offers, events, &d->log, err);
    if (t && d->offers.offered == HTH_FABRIC_BIT(d->offers.opened) &&
            strcmp(d->config.transport, "tcp") == 0)
        driver_settled(d);
    return t;
}

static void driver_on_request(
        void *self, uint32_t client, const void *bytes, size_t len, struct hth_content *content)
{
    struct hth_driver *d = self;

    hth_node_request(d->node, client, bytes, len, content);
}

static void driver_on_gone(void *self, uint32_t client)
{
    struct hth_driver *d = self;

    hth_node_client_gone(d->node, client);
}

/* ---- opening --------------------------------------------------------------------------------- */

static int driver_make_log(struct hth_driver *d, struct hearth_error *err)
{
    const struct hth_config *c = &d->config;
    struct hth_logs_opts opts = { .to = c->engine_log,
        .level = hth_log_level_of(c->log_level),
        .json = strcmp(c->log_format, "json") == 0,
        .also_stderr = (int)c->foreground,
        .job = c->job,
        .node = c->node,
        .clock = d->clock };
    int rc = hth_logs_make(&d->logs, &opts, err);

    if (!rc)
        d->log = hth_logs_sink(d->logs);
    return rc;
}

/* The file that a person is sent to: `log` beside the saves, else the first that is named. */
static void driver_log_path(const struct hth_driver *d, char out[512])
{
    char word[HTH_LOGS_PATH + 8];

    out[0] = '\0';
    for (const char *at = d->config.engine_log; hth_logs_next(&at, word);) {
        if (strcmp(word, "file") == 0) {
            snprintf(out, 512, "%.500s/log", d->records);
            return;
        }
        if (hth_logs_path(word) && !out[0])
            snprintf(out, 512, "%s", word);
    }
}

static int driver_watch(struct hth_driver *d, int fd, uint64_t tag)
{
    struct epoll_event e = { .events = EPOLLIN, .data.u64 = tag };

    return epoll_ctl(d->epoll_fd, EPOLL_CTL_ADD, fd, &e);
}

static int driver_open_waiting(struct hth_driver *d, struct hearth_error *err)
{
    d->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    d->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (d->epoll_fd < 0 || d->wake_fd < 0 || driver_watch(d, d->wake_fd, TAG_WAKE) ||
            (d->stop_fd >= 0 && driver_watch(d, d->stop_fd, TAG_STOP)))
        return hth_fail(err, HEARTH_EIO, errno, "cannot make what the engine waits on: %s",
                strerrordesc_np(errno));
    return HEARTH_OK;
}

/* Called after the store was opened and belongs to this job: no log is written into another
 * program's folder. */
static int driver_open_log(struct hth_driver *d, struct hearth_error *err)
{
    int rc = HEARTH_OK;

    if (d->records_fd < 0)
        rc = hth_store_records(d->config.root, d->config.job, &d->records_fd, err);
    return rc ? rc : hth_logs_open(d->logs, d->records_fd, d->records, err);
}

static int driver_open_store(struct hth_driver *d, struct hearth_error *err)
{
    struct hth_store_tmpfs_opts opts = {
        .root = d->config.root,
        .job = d->config.job,
        .allow_non_tmpfs = (int)d->config.any_root,
        .log = d->log,
        .points = d->points,
        .workers = hth_pool_workers(d->pool),
        .faults = d->faults.fail_at ? &d->faults : NULL,
        .lock = d->config.lock_fd,
    };
    int rc = hth_store_tmpfs_open(&opts, &d->store, err);

    return rc ? rc : driver_open_log(d, err);
}

/* NULL: by its name. */
static const struct hth_key_opener *driver_key_opener(
        const struct hth_config *c, struct hth_key_opener *out)
{
    if (!c->confining || !c->confining->open_key)
        return NULL;
    *out = (struct hth_key_opener){ c->confining->open_key, c->confining->self };
    return out;
}

static int driver_open_node(struct hth_driver *d, struct hearth_error *err)
{
    const struct hth_config *c = &d->config;
    struct hth_node_env env = {
        .clock = d->clock,
        .random = hth_system_random(),
        .workers = hth_pool_workers(d->pool),
        .log = d->log,
        .points = d->points,
        .store = d->store,
        .session = { .heartbeat_ms = c->heartbeat_ms,
                .dead_ms = c->dead_ms,
                .stall_ms = c->stall_ms,
                .busy_ms = hth_system_busy_ms },
        .transport = driver_open_first,
        .transport_self = d,
        .fabrics = d->fabrics ? &d->offers : NULL,
        .successor = c->successor,
        .reply = driver_reply,
        .attach = driver_attach,
        .pid_of = driver_pid_of,
        .reply_self = d,
        .trusted = hth_config_network(c).trusted,
        .strong = hth_config_network(c).strong,
        .retry_ms = c->retry_ms,
        .foreign_last = c->foreign_last,
    };
    struct hth_key_opener opener;
    int rc;

    memcpy(env.session.job, c->job, sizeof(env.session.job));
    memcpy(env.node, c->node, sizeof(env.node));
    snprintf(env.provider, sizeof(env.provider), "%s",
            c->provider[0] ? c->provider : HTH_PROVIDER_DEFAULT);
    memcpy(env.bind, c->bind, sizeof(env.bind));
    memcpy(env.device, c->device, sizeof(env.device));
    env.linger_s = c->linger_s;
    env.confined = d->confined.text;
    driver_log_path(d, env.log_path);
    if (c->key_file[0] &&
            (rc = hth_key_watch_open(c->key_file, driver_key_opener(c, &opener), &d->key, err)))
        return rc;
    env.session.key = hth_key_watched(d->key);
    d->meets.clock = &d->clock;
    d->meets.log = &d->log;
    d->meets.key = env.session.key;
    d->meets.trusted = env.trusted;
    d->meets.store = d->store->ops->id(d->store);
    d->meets.job = c->job;
    env.meeting = hth_meets_hands(&d->meets);
    hth_point(&env.points, "adopt");
    rc = hth_node_open(&env, &d->node, err);
    d->meets.node = d->node;
    return rc;
}

static int driver_open_parts(struct hth_driver *d, struct hearth_error *err)
{
    struct hth_server_events events = {
        .self = d, .request = driver_on_request, .gone = driver_on_gone
    };
    int rc;

    if (strcmp(d->config.transport, HTH_TRANSPORT_AUTO) == 0 &&
            !(d->fabrics = hth_fabrics_ask(&d->config, driver_open_fabric, d)))
        return hth_fail(err, HEARTH_ENOMEM, 0, "no memory for an engine");
    if ((rc = hth_auth_init(err)) || (rc = driver_open_waiting(d, err)) ||
            (rc = hth_pool_open(d->config.threads, d->wake_fd, &d->pool, err)))
        return rc;
    confined_init(&d->confined, &d->config, d->pool, &d->log);
    if ((rc = driver_open_store(d, err)) || (rc = driver_open_node(d, err)))
        return rc;
    return hth_server_open(d->records_fd, d->records, d->config.sock_fd, d->epoll_fd, &events,
            &d->log, &d->server, err);
}

static void driver_say_hello(struct hth_driver *d)
{
    const struct hth_config *c = &d->config;
    struct hth_network network = hth_config_network(c);
    char left_out[HTH_LEFT_OUT][HTH_LEFT_OUT_TEXT];
    unsigned count = hth_network_left_out(&network, left_out);

    hth_say(&d->log, HEARTH_LOG_INFO, "engine-ready",
            "hearthd " HEARTH_VERSION " pid %ld: job %s, node %s, root %s, transport %s, provider "
            "%s, bind %s, port %u, device %s, key %s, network %s, linger %u s, %u threads",
            (long)getpid(), c->job, c->node, c->root, c->transport,
            c->provider[0] ? c->provider : "default", c->bind, c->port,
            c->device[0] ? c->device : "by address", c->key_file[0] ? "yes" : "none", c->network,
            c->linger_s ? c->linger_s : hth_option_none(HTH_AT_linger_s), c->threads);
    if (d->key && !hth_key_watched(d->key)->locked)
        hth_say(&d->log, HEARTH_LOG_WARN, "key-not-locked",
                "the job key may be swapped out: this process may not lock memory; raise "
                "RLIMIT_MEMLOCK (ulimit -l) by some pages");
    for (unsigned i = 0; i < count; i++)
        hth_say(&d->log, HEARTH_LOG_WARN, "network", "%s", left_out[i]);
    if (strchr(c->bind, ',') && !driver_uses_all_binds(c))
        hth_say(&d->log, HEARTH_LOG_WARN, "bind-unused",
                "of the addresses %s transport %s uses the first: tcp uses several", c->bind,
                c->transport);
}

int hth_driver_open(const struct hth_config *config, int stop_fd, struct hth_driver **out,
        struct hearth_error *err)
{
    struct hth_driver *d = calloc(1, sizeof(*d));
    struct hearth_error cause = { 0 };
    int rc;

    if (!d)
        return hth_fail(err, HEARTH_ENOMEM, 0, "no memory for an engine");
    d->config = *config;
    d->epoll_fd = d->wake_fd = d->transport_fd = d->meets_fd = d->records_fd = d->meets.fd = -1;
    d->stop_fd = stop_fd;
    d->offers = (struct hth_node_fabrics){ .settled = driver_settled, .self = d };
    d->clock = hth_system_clock();
    snprintf(d->records, sizeof(d->records), "%s/%s/" HTH_RECORDS_DIR, config->root, config->job);
    rc = hth_test_asks(config->root, d->records + strlen(config->root) + 1, &d->points,
            &d->faults.fail_at, &cause);
    rc = rc ? rc : driver_make_log(d, &cause);
    rc = rc ? rc : driver_open_parts(d, &cause);
    if (rc) {
        if (!d->store && d->logs)
            driver_open_log(d, NULL);
        /* Ranks that come at the same time start an engine each, and the lock lets one continue. */
        hth_say(&d->log, rc == HEARTH_ELOCKED ? HEARTH_LOG_DEBUG : HEARTH_LOG_ERROR,
                "engine-not-started", "%s", cause.text);
        hth_driver_close(d);
        if (err)
            *err = cause;
        return rc;
    }
    if (!d->fabrics) /* else when one is settled */
        driver_settled(d);
    driver_say_hello(d);
    d->lonely_ms = hth_now_ms(&d->clock);
    *out = d;
    return HEARTH_OK;
}

/* ---- running --------------------------------------------------------------------------------- */

/* Keeps the transport's descriptor in the epoll set when the transport has another one. */
static void driver_follow_fd(struct hth_driver *d, int fd)
{
    if (fd == d->transport_fd)
        return;
    if (d->transport_fd >= 0)
        epoll_ctl(d->epoll_fd, EPOLL_CTL_DEL, d->transport_fd, NULL);
    d->transport_fd = -1;
    if (fd < 0)
        return;
    if (driver_watch(d, fd, TAG_TRANSPORT))
        hth_say(&d->log, HEARTH_LOG_ERROR, "transport-deaf",
                "the transport's descriptor cannot be waited on: %s", strerrordesc_np(errno));
    else
        d->transport_fd = fd;
}

static uint64_t driver_linger_end_ms(const struct hth_driver *d)
{
    if (hth_node_clients(d->node))
        return HTH_NEVER;
    return d->lonely_ms + (uint64_t)hth_node_linger_s(d->node) * 1000;
}

/* Milliseconds that epoll may sleep. */
static int driver_sleep_ms(struct hth_driver *d)
{
    struct hth_transport *t = hth_node_transport(d->node);
    uint64_t due = HTH_NEVER, node_due = hth_node_due_ms(d->node), linger = driver_linger_end_ms(d);
    uint64_t meets = hth_meets_due_ms(&d->meets);
    int fd = -1, may_sleep = t->ops->arm(t, &fd, &due);
    uint64_t now = hth_now_ms(&d->clock);

    if (!may_sleep)
        return 0;
    driver_follow_fd(d, fd);
    if (d->meets.fd >= 0 && d->meets_fd < 0 && !driver_watch(d, d->meets.fd, TAG_MEETS))
        d->meets_fd = d->meets.fd;
    due = node_due < due ? node_due : due;
    due = linger < due ? linger : due;
    due = meets < due ? meets : due;
    due = now + LOOK_MS < due ? now + LOOK_MS : due;
    if (due <= now)
        return 0;
    return due - now < INT_MAX ? (int)(due - now) : INT_MAX;
}

static void driver_drain(int fd)
{
    uint64_t n;

    while (read(fd, &n, sizeof(n)) < 0 && errno == EINTR)
        continue;
}

static int driver_handle(struct hth_driver *d, int timeout_ms, struct hearth_error *err)
{
    struct epoll_event e[ROUND_EVENTS];
    int n = epoll_wait(d->epoll_fd, e, ROUND_EVENTS, timeout_ms);

    if (n < 0 && errno != EINTR) {
        hth_say(&d->log, HEARTH_LOG_ERROR, "engine-deaf", "the system refused to wait: %s",
                strerrordesc_np(errno));
        return hth_fail(
                err, HEARTH_EIO, errno, "the engine cannot wait: %s", strerrordesc_np(errno));
    }
    for (int i = 0; i < n; i++) {
        if (hth_server_event(d->server, e[i].data.u64, e[i].events))
            continue;
        if (e[i].data.u64 == TAG_WAKE)
            driver_drain(d->wake_fd);
        else if (e[i].data.u64 == TAG_STOP)
            hth_driver_stop(d);
        else if (e[i].data.u64 == TAG_MEETS)
            d->meets.stirs = 1;
    }
    return HEARTH_OK;
}

static const char *driver_end_reason(struct hth_driver *d)
{
    if (hth_node_hands_over(d->node))
        return "another program takes its place";
    d->comes_back = hth_node_ends(d->node);
    if (d->comes_back)
        return d->confined.is ? "it comes back on another fabric, in another process: this one is "
                                "confined. Start hearthd again, where no rank does"
                              : "it comes back on another fabric";
    if (__atomic_load_n(&d->stopping, __ATOMIC_RELAXED))
        return "it was asked to end";
    if (hth_node_done(d->node))
        return "the job was dropped";
    if (hth_node_clients(d->node))
        d->lonely_ms = hth_now_ms(&d->clock);
    else if (hth_now_ms(&d->clock) >= driver_linger_end_ms(d))
        return "no rank came for the linger time";
    return NULL;
}

/* The ranks are notified, and the engine ends. */
static int driver_give_up(struct hth_driver *d, const struct hearth_error *why, const char *event,
        struct hearth_error *err)
{
    hth_say(&d->log, HEARTH_LOG_ERROR, event, "%s", why->text);
    hth_node_fail(d->node, why);
    if (err)
        *err = *why;
    return why->code;
}

/* An operator has run `rm .hearth/lock` for a job that looked dead. The engine does not end at
 * once, because `rm -rf` of the job's directory also removes the lock first. */
static int driver_look_at_lock(struct hth_driver *d, struct hearth_error *err)
{
    uint64_t now = hth_now_ms(&d->clock);
    struct hearth_error cause = { 0 }, why;
    int rc;

    if (!hth_store_tmpfs_unlocked(d->store)) {
        d->unlocked_ms = 0;
        return HEARTH_OK;
    }
    d->unlocked_ms = d->unlocked_ms ? d->unlocked_ms : now;
    if (now < d->unlocked_ms + UNLOCKED_MS)
        return HEARTH_OK;
    rc = hth_store_tmpfs_relock(d->store, &cause);
    if (!rc)
        hth_say(&d->log, HEARTH_LOG_WARN, "lock-removed",
                "%s/lock was removed under this engine, which made it anew: it is the lock of an "
                "engine that runs",
                d->records);
    if (rc != HEARTH_ELOCKED)
        return HEARTH_OK;
    hth_fail(&why, HEARTH_EENGINE, 0,
            "%.300s/lock was removed while this engine ran, and another engine has the job now: "
            "this one ends, and what it saved lies there for the other: %.200s",
            d->records, cause.text);
    return driver_give_up(d, &why, "lock-lost", err);
}

/* A script or an operator has run `rm -rf` on the job's directory: no rank can attach any more, and
 * the saves are in no directory. The ranks are notified; the next open starts an engine in a new
 * directory. */
static int driver_look(struct hth_driver *d, struct hearth_error *err)
{
    struct hearth_error why;

    if (hth_node_done(d->node))
        return HEARTH_OK;
    if (!hth_store_tmpfs_removed(d->store))
        return driver_look_at_lock(d, err);
    hth_fail(&why, HEARTH_EENGINE, 0,
            "the directory of job %s in %.200s was removed under its engine, and what it held is "
            "lost here: end the ranks and open the job again",
            d->config.job, d->config.root);
    return driver_give_up(d, &why, "directory-removed", err);
}

/* The key file has other keys than before. */
static void driver_rekey(struct hth_driver *d)
{
    const struct hth_key *key = hth_key_watched(d->key);
    char other[32] = "";

    if (!d->key || !hth_key_watch_look(d->key, hth_now_ms(&d->clock), &d->log))
        return;
    hth_meets_rekeyed(&d->meets);
    if (key->other)
        snprintf(other, sizeof(other), ", %08" PRIx32 " is taken too", key->other_id);
    hth_say(&d->log, HEARTH_LOG_INFO, "key-changed",
            "job key %08" PRIx32 " is in use from here on%s; %" PRIu32
            " connections of one that is not are made anew",
            key->id, other, hth_node_rekeyed(d->node));
}

int hth_driver_run(struct hth_driver *d, struct hearth_error *err)
{
    const char *why = NULL;
    int rc = HEARTH_OK;

    while (!rc && !(why = driver_end_reason(d)) && !(rc = driver_look(d, err))) {
        hth_round(hth_node_transport(d->node), &d->clock);
        hth_pool_deliver(d->pool);
        confined_look(&d->confined);
        driver_rekey(d);
        hth_meets_turn(&d->meets);
        hth_node_tick(d->node);
        if (!hth_server_reap(d->server) && !hth_node_done(d->node))
            rc = driver_handle(d, driver_sleep_ms(d), err);
    }
    hth_say(&d->log, rc ? HEARTH_LOG_ERROR : HEARTH_LOG_INFO, "engine-ends", "%s",
            why ? why : "for the reason in the lines before");
    return rc;
}

int hth_driver_comes_back(const struct hth_driver *d)
{
    return d->comes_back;
}

int hth_driver_keep(struct hth_driver *d, int *out_lock, int *out_sock)
{
    int lock, sock;

    if (!hth_node_hands_over(d->node))
        return 0;
    lock = hth_store_tmpfs_keep_lock(d->store);
    sock = lock < 0 ? -1 : hth_server_keep(d->server);
    if (sock < 0) {
        hth_say(&d->log, HEARTH_LOG_WARN, "upgrade-failed",
                "no descriptor is left to hand the lock over by: %s", strerrordesc_np(errno));
        if (lock >= 0)
            close(lock);
        d->comes_back = 1;
        return 0;
    }
    *out_lock = lock;
    *out_sock = sock;
    return 1;
}

int hth_driver_confined(const struct hth_driver *d)
{
    return d->confined.is;
}

int hth_driver_records(const struct hth_driver *d)
{
    return d->records_fd;
}

void hth_driver_stop(struct hth_driver *d)
{
    uint64_t one = 1;
    ssize_t n;

    __atomic_store_n(&d->stopping, 1, __ATOMIC_RELAXED);
    n = write(d->wake_fd, &one, sizeof(one));
    (void)n; /* full: it is awake */
}

void hth_driver_close(struct hth_driver *d)
{
    enum hth_leftover left = HTH_LEAVE_ALL;

    if (!d)
        return;
    if (d->node)
        left = hth_node_leftover(d->node);
    hth_server_close(d->server);
    d->server = NULL;
    if (d->pool)
        hth_pool_stop(d->pool); /* before the owners of its work go */
    hth_meets_close(&d->meets);
    hth_node_close(d->node);
    hth_fabrics_close(d->fabrics);
    hth_key_watch_close(d->key);
    if (d->store && left != HTH_LEAVE_ALL)
        hth_store_tmpfs_erase(d->store, left == HTH_LEAVE_RECORDS);
    if (d->store)
        d->store->ops->close(d->store);
    hth_pool_close(d->pool);
    hth_logs_close(d->logs);
    if (d->records_fd >= 0)
        close(d->records_fd);
    if (d->epoll_fd >= 0)
        close(d->epoll_fd);
    if (d->wake_fd >= 0)
        close(d->wake_fd);
    free(d->points.self);
    free(d);
}
