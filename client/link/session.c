/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A rank's state at its engine, which is restored when the engine was restarted:
 *
 *     attach -> join, if the new engine does not know our epoch -> leases taken -> saves (kept.c)
 *
 * The lock is not held while an answer is waited for.
 */
#include "session.h"

#include "client/base/clock.h"
#include "client/opts/settings.h"
#include "client/opts/told.h"
#include "core/store/store_tmpfs.h"
#include "leases.h"
#include "link_parts.h"
#include "wire.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

/* Names the engine by the pid that the kernel reports for its socket; an engine in another pod has
 * none here. Called before the engine answers, so that an error can name an engine that does
 * not. */
static void session_name_engine(struct hearth *h, int fd)
{
    struct hth_lock_holder holder = { 0 };
    struct ucred peer = { 0 };
    socklen_t len = sizeof(peer);

    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len))
        peer.pid = 0;
    h->attached.pid = (uint32_t)peer.pid;
    if (!h->attached.log[0])
        snprintf(h->attached.log, sizeof(h->attached.log), "%.500s/log", h->records);
    if (!h->attached.pid && !hth_store_locked(h->opts.root, h->opts.job, &holder, NULL))
        holder.pid = 0;
    else
        holder.pid = (pid_t)h->attached.pid;
    hth_lock_holder_text(&holder, h->engine);
}

struct attach {
    struct hth_local_attach fixed;
    char host[HTH_LOCAL_HOST];
};

int hth_attach_locked(struct hearth *h, int fd, uint64_t until, struct hearth_error *err)
{
    struct attach m = {
        .fixed = { .version = hth_version_written(HTH_FORMAT_LOCAL),
                .rank = h->opts.rank,
                .world = h->opts.world,
                .helper = h->opts.helper,
                .pid = (uint32_t)getpid(),
                .epoch = h->epoch,
                .nonce = h->nonce,
                .want_log = h->lines.level,
                .ahead = !h->opts.helper,
                .flags = (h->opts.network == HEARTH_NETWORK_TRUSTED ? HTH_LOCAL_TRUSTED : 0) |
                         (h->opts.integrity == HEARTH_INTEGRITY_STRONG ? HTH_LOCAL_STRONG : 0) }
    };
    struct hth_local_attached a;
    struct hth_ask ask = { .msg = &m,
        .len = sizeof(m),
        .type = HTH_LOCAL_ATTACH,
        .want = HTH_LOCAL_ATTACHED,
        .fd = -1,
        .answer = &a,
        .answer_len = sizeof(a),
        .what = "attach to this node's engine" };
    int rc;

    gethostname(m.host, sizeof(m.host) - 1);
    session_name_engine(h, fd);
    memcpy(m.fixed.job, h->opts.job, strlen(h->opts.job) + 1);
    if (getrandom(m.fixed.challenge, sizeof(m.fixed.challenge), 0) != sizeof(m.fixed.challenge))
        return hth_fail(err, HEARTH_EIO, errno, "no random number: %s", strerror(errno));
    if ((rc = hth_ask_over_locked(h, fd, &ask, until, err)))
        return rc;
    a.pid = h->attached.pid;
    a.node[sizeof(a.node) - 1] = a.log[sizeof(a.log) - 1] = '\0';
    a.transport[sizeof(a.transport) - 1] = a.provider[sizeof(a.provider) - 1] = '\0';
    a.bind[sizeof(a.bind) - 1] = a.device[sizeof(a.device) - 1] = '\0';
    if (a.addr_len > HTH_ADDR_MAX || hth_node_check(a.node, NULL))
        return hth_fail(err, HEARTH_EPROTO, 0,
                "the engine's answer is not valid: engine and library are not of one version");
    h->attached = a;
    return hth_settings_check(h, m.fixed.challenge, err);
}

static int session_join(struct hearth *h, int fd, uint64_t until, struct hearth_error *err)
{
    struct hth_local_join m;
    struct hth_local_joined a;
    struct hth_ask ask = { .msg = &m,
        .len = sizeof(m),
        .type = HTH_LOCAL_JOIN,
        .want = HTH_LOCAL_JOINED,
        .fd = h->link->table_fd,
        .answer = &a,
        .answer_len = sizeof(a),
        .what = "join again after the engine's restart" };
    int rc;

    if (h->link->joins || (h->attached.epoch == h->epoch && h->attached.nonce == h->nonce))
        return HEARTH_OK;
    if (h->link->table_fd < 0)
        return hth_fail(err, HEARTH_ESTATE, 0,
                "this node's engine is in another epoch now: close and open again");
    if (h->attached.store != h->link->store)
        return hth_fail(err, HEARTH_ESTATE, 0,
                "the job's directory was removed (%.200s is a new one), and with it all that this "
                "node held: end this process and start the job again, which recovers what other "
                "nodes hold",
                h->records);
    hth_opts_told(&h->opts, &m);
    if ((rc = hth_ask_over_locked(h, fd, &ask, until, err)))
        return rc;
    if (a.epoch != h->epoch || a.nonce != h->nonce)
        return hth_fail(err, HEARTH_ESTATE, 0,
                "this node's engine is in epoch %" PRIu64 " now and we are in %" PRIu64
                ": the job was started again; end this process",
                a.epoch, h->epoch);
    h->joined = a.opts;
    return HEARTH_OK;
}

/* HEARTH_EENGINE: the connection ended. */
static int session_lease(struct hearth *h, int fd, struct hth_lease lease, uint64_t until)
{
    struct hth_local_map m = { .save = hth_local_save_of(lease.save), .object = lease.object };
    struct hth_local_mapped a;
    struct hearth_error err;
    struct stat st;
    int got = -1;
    struct hth_ask ask = { .msg = &m,
        .len = sizeof(m),
        .type = HTH_LOCAL_MAP,
        .want = HTH_LOCAL_MAPPED,
        .fd = -1,
        .answer = &a,
        .answer_len = sizeof(a),
        .out_fd = &got,
        .what = "lease an object again" };
    int rc = hth_ask_over_locked(h, fd, &ask, until, &err);

    hth_leases_renewed_locked(h, rc ? 0 : a.lease);
    if (rc == HEARTH_EENGINE)
        return rc;
    if (rc || got < 0 || fstat(got, &st) != 0 || st.st_dev != lease.dev || st.st_ino != lease.ino)
        hth_line_add(&h->lines, HEARTH_LOG_ERROR, "lease-lost",
                "what is still read of " HTH_SAVE " is not protected from being overwritten: %s",
                HTH_SAVE_ARGS(lease.save),
                rc ? err.text : "the restarted engine has it in another slot");
    if (got >= 0)
        close(got);
    return HEARTH_OK;
}

static int session_went(struct hearth_error *err)
{
    return hth_fail(err, HEARTH_EENGINE, 0, "this node's engine came back, and went away again");
}

int hth_restore_locked(struct hearth *h, int fd, uint64_t until, struct hearth_error *err)
{
    struct hth_lease *lease;
    int rc;

    if ((rc = session_join(h, fd, until, err)))
        return rc;
    h->link->restoring = 1;
    while (!rc && (lease = hth_leases_renew_locked(h)))
        rc = session_lease(h, fd, *lease, until);
    h->link->restoring = 0;
    if (rc)
        return session_went(err);
    hth_line_add(&h->lines, HEARTH_LOG_WARN, "engine-back",
            "this node's engine is back (%s), epoch %" PRIu64, h->engine, h->epoch);
    return HEARTH_OK;
}

void hth_link_joins(struct hearth *h, int on)
{
    pthread_mutex_lock(&h->lock);
    h->link->joins = on;
    pthread_mutex_unlock(&h->lock);
}

void hth_link_awaits(struct hearth *h, uint64_t ms)
{
    pthread_mutex_lock(&h->lock);
    h->link->fallen.not_before_ms = hth_mono_ms() + ms;
    pthread_mutex_unlock(&h->lock);
}

void hth_link_joined(struct hearth *h, const struct hth_local_joined *a, int table_fd)
{
    pthread_mutex_lock(&h->lock);
    h->epoch = a->epoch;
    h->nonce = a->nonce;
    h->link->begun = (struct hth_attempts){ 0 };
    h->joined = a->opts;
    h->ranks_a_node = a->nodes ? (h->opts.world + a->nodes - 1) / a->nodes : h->opts.world;
    if (h->link->table_fd >= 0)
        close(h->link->table_fd);
    h->link->table_fd = table_fd;
    h->link->store = h->attached.store;
    pthread_mutex_unlock(&h->lock);
}
