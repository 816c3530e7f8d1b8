/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a rank has at its engine, and gets again when the engine was restarted under it:
 *
 *     attach -> join, if the new engine does not know our epoch -> handles followed -> leases taken
 *
 * Saves that were being written when the engine went are lost with it: their slots were lent by a
 * connection that is gone; following them tells the others. Saves that were handed over are known
 * by their save id, and their events may come under a token of the new engine's.
 */
#include "client.h"

#include "told.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define FOLLOWED (UINT64_C(1) << 63) /* tokens of ours, apart from the engine's */

int hth_attach_locked(struct hearth *h, int fd, uint64_t until, struct hearth_error *err)
{
    struct hth_local_attach m = { .version = hth_version_written(HTH_FORMAT_LOCAL),
        .rank = h->opts.rank,
        .world = h->opts.world,
        .helper = h->opts.helper,
        .pid = (uint32_t)getpid(),
        .epoch = h->epoch,
        .nonce = h->nonce,
        .want_log = h->lines.level,
        .trusted = h->opts.network == HEARTH_NETWORK_TRUSTED };
    struct hth_local_attached a;
    struct hth_ask ask = { .msg = &m,
        .len = sizeof(m),
        .type = HTH_LOCAL_ATTACH,
        .want = HTH_LOCAL_ATTACHED,
        .fd = -1,
        .answer = &a,
        .answer_len = sizeof(a),
        .what = "attach to this node's engine" };
    struct ucred peer;
    socklen_t len = sizeof(peer);
    int rc;

    memcpy(m.job, h->opts.job, strlen(h->opts.job) + 1);
    if (getrandom(m.challenge, sizeof(m.challenge), 0) != sizeof(m.challenge))
        return hth_fail(err, HEARTH_EIO, errno, "no random number: %s", strerror(errno));
    if ((rc = hth_exchange_locked(h, fd, &ask, until, err)))
        return rc;
    if (!a.pid && !getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len))
        a.pid = (uint32_t)peer.pid;
    a.node[sizeof(a.node) - 1] = a.log[sizeof(a.log) - 1] = '\0';
    a.transport[sizeof(a.transport) - 1] = a.provider[sizeof(a.provider) - 1] = '\0';
    a.bind[sizeof(a.bind) - 1] = a.device[sizeof(a.device) - 1] = '\0';
    if (a.addr_len > HTH_ADDR_MAX || hth_node_check(a.node, NULL))
        return hth_fail(err, HEARTH_EPROTO, 0,
                "the engine's answer is not valid: engine and library are not of one version");
    h->attached = a;
    return hth_settings_check(h, m.challenge, err);
}

static int join_again(struct hearth *h, int fd, uint64_t until, struct hearth_error *err)
{
    struct hth_local_join m;
    struct hth_local_joined a;
    struct hth_ask ask = { .msg = &m,
        .len = sizeof(m),
        .type = HTH_LOCAL_JOIN,
        .want = HTH_LOCAL_JOINED,
        .fd = h->table_fd,
        .answer = &a,
        .answer_len = sizeof(a),
        .what = "join again after the engine's restart" };
    int rc;

    if (h->attached.epoch == h->epoch && h->attached.nonce == h->nonce)
        return HEARTH_OK;
    if (h->table_fd < 0)
        return hth_fail(err, HEARTH_ESTATE, 0,
                "this node's engine is in another epoch now: close and open again");
    hth_opts_told(&h->opts, &m);
    if ((rc = hth_exchange_locked(h, fd, &ask, until, err)))
        return rc;
    if (a.epoch != h->epoch || a.nonce != h->nonce)
        return hth_fail(err, HEARTH_ESTATE, 0,
                "this node's engine is in epoch %" PRIu64 " now and we are in %" PRIu64
                ": the job was started again; end this process",
                a.epoch, h->epoch);
    h->joined = a.opts;
    return HEARTH_OK;
}

/* HEARTH_EENGINE: the connection ended, and nobody knows yet what became of the save. */
static int follow(struct hearth *h, int fd, struct hearth_handle *handle, uint64_t until)
{
    struct hth_local_follow m = { .save = hth_local_save_of(handle->save),
        .objects = handle->objects,
        .committed = (uint32_t)handle->committed };
    struct hth_local_event e;
    struct hearth_error err;
    struct hth_ask ask = { .msg = &m,
        .len = sizeof(m),
        .type = HTH_LOCAL_FOLLOW,
        .want = HTH_LOCAL_EVENT,
        .token = FOLLOWED | ++h->numbers,
        .fd = -1,
        .answer = &e,
        .answer_len = sizeof(e),
        .what = "ask about a save after the engine's restart" };
    int rc;

    handle->token = ask.token;
    handle->incarnation = h->incarnation;
    rc = hth_exchange_locked(h, fd, &ask, until, &err);
    if (rc == HEARTH_EENGINE)
        return rc;
    if (!rc) {
        e.head.token = ask.token;
        if (e.head.type)
            hth_event_locked(h, &e, sizeof(e));
        return HEARTH_OK;
    }
    handle->status.code = HEARTH_EUNKNOWN;
    snprintf(handle->status.text, sizeof(handle->status.text), "%.250s", err.text);
    return HEARTH_OK;
}

/* HEARTH_EENGINE: the connection ended. */
static int lease_again(struct hearth *h, int fd, struct hth_lease *lease, uint64_t until)
{
    struct hth_local_map m = { .save = hth_local_save_of(lease->save), .object = lease->object };
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
    int rc = hth_exchange_locked(h, fd, &ask, until, &err);

    if (rc == HEARTH_EENGINE)
        return rc;
    if (!rc)
        lease->id = a.lease;
    if (rc || got < 0 || fstat(got, &st) != 0 || st.st_dev != lease->dev || st.st_ino != lease->ino)
        hth_line_add(&h->lines, HEARTH_LOG_ERROR, "lease-lost",
                "what is still read of " HTH_SAVE " is not protected from being overwritten: %s",
                HTH_SAVE_ARGS(lease->save),
                rc ? err.text : "the restarted engine has it in another slot");
    if (got >= 0)
        close(got);
    return HEARTH_OK;
}

static int went_again(struct hearth_error *err)
{
    return hth_fail(err, HEARTH_EENGINE, 0, "this node's engine came back, and went away again");
}

int hth_restore_locked(struct hearth *h, int fd, uint64_t until, struct hearth_error *err)
{
    int rc;

    if ((rc = join_again(h, fd, until, err)))
        return rc;
    for (struct hearth_handle *s = h->handles; s; s = s->next) {
        if (s->save.epoch && !s->status.code && s->status.level < HEARTH_PROTECTED &&
                follow(h, fd, s, until))
            return went_again(err);
    }
    for (struct hth_lease *lease = h->leases; lease; lease = lease->next)
        if (lease_again(h, fd, lease, until))
            return went_again(err);
    hth_line_add(&h->lines, HEARTH_LOG_WARN, "engine-back",
            "this node's engine is back (pid %u), epoch %" PRIu64, h->attached.pid, h->epoch);
    return HEARTH_OK;
}

static void take_event(struct hearth_handle *s, const struct hth_local_event *e)
{
    struct hearth_status *st = &s->status;

    s->copied |= e->level == HEARTH_COPIED || e->level >= HEARTH_PROTECTED;
    if (e->level > st->level)
        st->level = e->level;
    st->degraded = e->degraded;
    if (e->code < 0)
        st->code = e->code;
    if (e->save.epoch) {
        s->save = hth_local_save_to(e->save);
        st->step = s->save.step;
        st->attempt = s->save.attempt;
    }
    if (e->bytes)
        st->bytes = e->bytes;
    if (e->copied > st->copied)
        st->copied = e->copied;
    memcpy(st->text, e->text, sizeof(st->text));
    st->text[sizeof(st->text) - 1] = '\0';
}

void hth_event_locked(struct hearth *h, const struct hth_local_event *event, size_t len)
{
    struct hth_local_event e;

    if (len < sizeof(e))
        return;
    memcpy(&e, event, sizeof(e));
    e.text[sizeof(e.text) - 1] = '\0';
    if (!e.head.token) { /* a line of the engine's log */
        hth_line_add(&h->lines, e.level, "engine", "%s", e.text);
        return;
    }
    for (struct hearth_handle *s = h->handles; s; s = s->next) {
        int followed = s->incarnation == h->incarnation && (s->token & FOLLOWED) &&
                       !hth_save_cmp(s->save, hth_local_save_to(e.save));

        if ((s->token == e.head.token && s->incarnation == h->incarnation) || followed) {
            s->token = e.head.token;
            take_event(s, &e);
        }
    }
}
