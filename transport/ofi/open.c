/* SPDX-License-Identifier: Apache-2.0 */
/* The module's one exported symbol, and the life of a transport. */
#include "rdm.h"

#include <hearth/export.h>
#include <stdlib.h>

#define CONNECT_MS 5000u

static uint32_t ofi_caps(struct hth_transport *t)
{
    const struct hth_ofi *o = hth_ofi_of(t);
    uint32_t c = HTH_CAP_READ_ONLY; /* and the bounds of regions, not of grants */

    if (o->mr_mode & FI_MR_ALLOCATED)
        c |= HTH_CAP_PINS;
    if (!o->sockets)
        c |= HTH_CAP_ONE_SIDED;
    return c;
}

static int ofi_address(struct hth_transport *t, unsigned char *out_addr, uint32_t *out_len,
        struct hearth_error *err)
{
    (void)err;
    *out_len = hth_addr_pack(&hth_ofi_of(t)->self, out_addr);
    return HEARTH_OK;
}

static void ofi_free(struct hth_ofi *o)
{
    hth_ofi_events_end(o);
    hth_ofi_fabric_close(o);
    hth_ofi_contexts_free(o);
    hth_ids_fini(&o->conns);
    pthread_mutex_destroy(&o->regions_lock);
    free(o);
}

static void ofi_close(struct hth_transport *t)
{
    struct hth_ofi *o = hth_ofi_of(t);

    if (!t)
        return;
    o->closing = 1;
    for (uint32_t i = 0; i < o->conns.cap; i++)
        if (hth_ids_at(&o->conns, i))
            hth_ofi_conn_cut(hth_ids_at(&o->conns, i), "closed by us");
    hth_ofi_drain(o);
    hth_ofi_finish(o);
    hth_ofi_dialler_fini(o);
    hth_ofi_regions_end(o);
    ofi_free(o);
}

static const struct hth_transport_ops ops = {
    .name = "ofi",
    .caps = ofi_caps,
    .address = ofi_address,
    .connect = hth_ofi_connect,
    .drop = hth_ofi_drop,
    .send = hth_ofi_send,
    .reg = hth_ofi_reg,
    .dereg = hth_ofi_dereg,
    .grant = hth_ofi_conn_grant,
    .revoke = hth_ofi_revoke,
    .pull = hth_ofi_pull,
    .pulled_crc = hth_ofi_pulled_crc,
    .pulled_ms = hth_ofi_pulled_ms,
    .progress = hth_ofi_progress,
    .arm = hth_ofi_arm,
    .wake = hth_ofi_wake,
    .close = ofi_close,
};

static int ofi_build(
        struct hth_ofi *o, const struct hth_transport_opts *opts, struct hearth_error *err)
{
    struct hth_ofi_fds before;
    int rc = hth_addr_local(opts->bind, opts->port, &o->self, err);

    if (rc)
        return rc;
    hth_ofi_fds_note(&before);
    rc = hth_ofi_load(opts->library, opts->provider ? opts->provider : HTH_PROVIDER_DEFAULT,
            opts->also, &o->lib, err);
    if (!rc)
        rc = hth_ofi_provider_choose(o, opts, err);
    if (!rc)
        rc = hth_ofi_domain_open(o, err);
    if (!rc)
        rc = hth_ofi_listen_open(o, err);
    hth_ofi_fds_seal(&before, NULL);
    return rc;
}

static void msg_grants_flush(struct hth_ofi *o, hth_conn conn)
{
    struct hth_ofi_conn *c = hth_ofi_conn_get(o, conn);

    if (c)
        hth_ofi_words_post(c);
}

static int msg_grant_is_read(struct hth_ofi *o, hth_conn conn, uint32_t number)
{
    const struct hth_ofi_conn *c = hth_ofi_conn_get(o, conn);

    return c && hth_ofi_pulls_read(c, number);
}

static int msg_open(const struct hth_transport_opts *opts,
        const struct hth_transport_events *events, struct hth_transport **out,
        struct hearth_error *err)
{
    struct hth_ofi *o;
    int rc;

    o = calloc(1, sizeof(*o));
    if (!o)
        return hth_fail(err, HEARTH_ENOMEM, 0, "no memory for a transport");
    o->base.ops = &ops;
    o->events = *events;
    o->clock = opts->clock;
    o->log = opts->log;
    o->connect_ms = opts->connect_ms ? opts->connect_ms : CONNECT_MS;
    o->due_ms = HTH_NEVER;
    o->grants_of = hth_ofi_conn_grants;
    o->grants_flush = msg_grants_flush;
    o->grant_is_read = msg_grant_is_read;
    o->epoll_fd = o->wake_fd = -1;
    o->base.conns_max = hth_ofi_conns_max();
    hth_ids_init(&o->conns, o->base.conns_max);
    pthread_mutex_init(&o->regions_lock, NULL);
    hth_ofi_dialler_init(o);
    rc = ofi_build(o, opts, err);
    if (rc) {
        hth_ofi_dialler_fini(o);
        ofi_free(o);
        return rc;
    }
    *out = &o->base;
    return HEARTH_OK;
}

static int ofi_open(const struct hth_transport_opts *opts,
        const struct hth_transport_events *events, struct hth_transport **out,
        struct hearth_error *err)
{
    char name[HTH_OFI_PROVIDER];

    if (!opts->clock.now_ms)
        return hth_fail(err, HEARTH_EINVAL, 0, "the transport needs a clock");
    return hth_ofi_provider_type(opts->provider, name) == FI_EP_MSG
                   ? msg_open(opts, events, out, err)
                   : hth_rdm_open(opts, events, out, err);
}

extern const struct hth_transport_backend hth_transport_backend;
HEARTH_API const struct hth_transport_backend hth_transport_backend = {
    .abi = HTH_TRANSPORT_ABI,
    .name = "ofi",
    .open = ofi_open,
};
