/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keys of regions, where the network card reads. The owner packs a key when it registers the
 * region. A peer receives the key in a message of its own, before the first descriptor of the
 * region, unpacks it once, and drops it when the owner says that the region is over. So a region
 * that is over has no key at the peer, and needs no mark there.
 *
 *   grant() -- AM_KEY region, key, once ---> kept by region
 *   pull()  -- read by the card -----------> on_pull(0)
 *   dereg() -- AM_KEY region --------------> no key: pulls of it are denied
 */
#include "ucx.h"

#include <stdlib.h>

#define KEY_MAX  1024u  /* bytes; 30 for each card that the region is registered with */
#define KEYS_MAX 65536u /* regions that a peer has registered at once */

struct hth_ucx_key {
    ucp_rkey_h rkey;
    uint32_t pulls; /* that use it */
    int over;       /* the owner has deregistered the region: it goes with the last of them */
};

static void key_free(struct hth_ucx_key *key)
{
    ucp_rkey_destroy(key->rkey);
    free(key);
}

/* Messages keep their order, so the peer has the key before the message with the grant comes. */
static void key_tell(struct hth_ucx *t, struct hth_ucx_conn *c, const struct hth_region *r)
{
    unsigned char header[HTH_UCX_KEY];

    hth_put64(header, r->serial);
    hth_ucx_post_data(t, c, HTH_UCX_AM_KEY, header, sizeof(header), r->key, r->key_len);
}

struct hth_ucx_desc hth_ucx_key_grant(
        struct hth_ucx *t, struct hth_ucx_conn *c, struct hth_region *r, uint64_t off, uint64_t len)
{
    struct hth_ucx_desc d = { .grant = r->serial, .at = (uintptr_t)r->base + off, .len = len };

    if (hth_map_get(&c->told, r->serial))
        return d;
    if (hth_map_put(&c->told, r->serial, r) != HEARTH_OK)
        hth_ucx_conn_fail(t, c, HEARTH_EPEER, "this node has no memory for a key");
    else
        key_tell(t, c, r);
    return d;
}

/* The region goes: each peer that has its key is notified. */
void hth_ucx_key_end(struct hth_ucx *t, const struct hth_region *r)
{
    unsigned char header[HTH_UCX_KEY];

    hth_put64(header, r->serial);
    for (uint32_t i = 0; i < t->conns.cap; i++) {
        struct hth_ucx_conn *c = hth_ids_at(&t->conns, i);

        if (c && hth_map_take(&c->told, r->serial) && c->state == HTH_UCX_UP)
            hth_ucx_post_data(t, c, HTH_UCX_AM_KEY, header, sizeof(header), NULL, 0);
    }
}

static int key_end(struct hth_ucx_conn *c, uint64_t region)
{
    struct hth_ucx_key *key = hth_map_take(&c->keys, region);

    if (!key)
        return HEARTH_EPROTO;
    key->over = 1;
    if (!key->pulls)
        key_free(key);
    return HEARTH_OK;
}

/* UCX reads a key without knowing where its bytes end: behind them are zeros. */
static int key_keep(struct hth_ucx_conn *c, uint64_t region, const unsigned char *bytes, size_t len)
{
    unsigned char padded[2 * KEY_MAX] = { 0 };
    struct hth_ucx_key *key;

    if (!len || len > KEY_MAX || c->keys.len >= KEYS_MAX)
        return HEARTH_EPROTO;
    key = calloc(1, sizeof(*key));
    if (!key)
        return HEARTH_ENOMEM;
    memcpy(padded, bytes, len);
    if (ucp_ep_rkey_unpack(c->ep, padded, &key->rkey) != UCS_OK) {
        free(key);
        return HEARTH_EPROTO;
    }
    if (hth_map_put(&c->keys, region, key) != HEARTH_OK) {
        key_free(key);
        return HEARTH_ENOMEM;
    }
    return HEARTH_OK;
}

void hth_ucx_key_heard(
        struct hth_ucx *t, struct hth_ucx_conn *c, const unsigned char *bytes, size_t len)
{
    uint64_t region = hth_get64(bytes);
    int rc = HEARTH_EPROTO;

    bytes += HTH_UCX_KEY;
    len -= HTH_UCX_KEY;
    if (c->state != HTH_UCX_UP)
        return;
    if (t->gets && region && !len)
        rc = key_end(c, region);
    else if (t->gets && region && !hth_map_get(&c->keys, region))
        rc = key_keep(c, region, bytes, len);
    if (rc)
        hth_ucx_conn_fail(t, c, rc == HEARTH_ENOMEM ? HEARTH_EPEER : rc,
                "a key of the peer's memory cannot be kept: %s", hearth_strerror(rc));
}

/* Of a connection whose pulls are over. */
void hth_ucx_keys_drop(struct hth_ucx_conn *c)
{
    for (size_t i = 0; i < c->keys.cap; i++)
        if (c->keys.at[i].key)
            key_free(c->keys.at[i].value);
    hth_map_fini(&c->keys);
    hth_map_fini(&c->told);
}

/* NULL: the region is over, or the peer has sent no key of it. */
struct hth_ucx_key *hth_ucx_key_get(struct hth_ucx_conn *c, const struct hth_ucx_desc *desc)
{
    return hth_map_get(&c->keys, desc->grant);
}

/* For one pull more. */
ucp_rkey_h hth_ucx_key_use(struct hth_ucx_key *key)
{
    key->pulls++;
    return key->rkey;
}

void hth_ucx_key_put(struct hth_ucx_key *key)
{
    if (--key->pulls == 0 && key->over)
        key_free(key);
}
