/* SPDX-License-Identifier: Apache-2.0 */
/* The module's one exported symbol, and the life of a transport. */
#include "rdm.h"

#include <hearth/export.h>
#include <stdlib.h>

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
    hth_ofi_fini(o);
    hth_ofi_contexts_free(o);
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
    .caps = hth_ofi_caps,
    .address = ofi_address,
    .connect = hth_ofi_connect,
    .drop = hth_ofi_drop,
    .send = hth_ofi_send,
    .reg = hth_ofi_reg,
    .dereg = hth_ofi_dereg,
    .grant = hth_ofi_link_grant,
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
    int rc;

    hth_ofi_fds_note(&before);
    rc = hth_ofi_provider_choose(o, opts, err);
    if (!rc)
        rc = hth_ofi_domain_open(o, err);
    if (!rc)
        rc = hth_ofi_listen_open(o, err);
    hth_ofi_fds_seal(&before, NULL);
    return rc;
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
    hth_ofi_init(o, &ops, opts, events);
    hth_ofi_conn_hooks(o);
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
