/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keys of regions, where the network card reads. A key is packed when its region is registered, and
 * unpacked by a peer once: it comes in the descriptor or, where it is too long for that, in a message
 * before.
 *
 *   grant() -- AM_KEY region, key, once ---> kept by region
 *   pull()  -- read by the card -----------> on_pull(0)
 *   dereg() -- AM_KEY region --------------> pulls of it are denied
 */
#include "ucx.h"

#include <stdlib.h>

#define KEY_MAX  1024u /* bytes; 30 for each card that the region is registered with */
#define KEYS_MAX 65536u

struct hth_ucx_key {
    ucp_rkey_h rkey;
    uint32_t pulls; /* that use it */
    int over;       /* the owner has deregistered the region; stays to say so */
};

static void key_unpacked_free(struct hth_ucx_key *key)
{
    if (key->rkey)
        ucp_rkey_destroy(key->rkey);
    key->rkey = NULL;
}

/* Messages keep their order, so the key is there before any word of the grant. */
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
    int is_new = hth_map_get(&c->told, r->serial) == NULL;

    if (r->key_len <= t->key_room) {
        d.key = r->key;
        d.key_len = r->key_len;
    }
    if (is_new && hth_map_put(&c->told, r->serial, r) != HEARTH_OK)
        hth_ucx_conn_fail(t, c, HEARTH_EPEER, "this node has no memory for a key");
    else if (is_new && !d.key)
        key_tell(t, c, r);
    return d;
}

/* The region goes: whoever has its key is told. */
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
    struct hth_ucx_key *key = hth_map_get(&c->keys, region);

    if (!key) { /* granted, and never pulled from */
        key = calloc(1, sizeof(*key));
        if (!key || hth_map_put(&c->keys, region, key) != HEARTH_OK) {
            free(key);
            return HEARTH_ENOMEM;
        }
    }
    key->over = 1;
    if (!key->pulls)
        key_unpacked_free(key);
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
        key_unpacked_free(key);
        free(key);
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

static void key_free(struct hth_ucx_key *key)
{
    key_unpacked_free(key);
    free(key);
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

/* NULL: none, or the region is over. */
struct hth_ucx_key *hth_ucx_key_get(struct hth_ucx_conn *c, const struct hth_ucx_desc *desc)
{
    struct hth_ucx_key *key = hth_map_get(&c->keys, desc->grant);

    if (!key && desc->grant && key_keep(c, desc->grant, desc->key, desc->key_len) == HEARTH_OK)
        key = hth_map_get(&c->keys, desc->grant);
    return key && !key->over ? key : NULL;
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
        key_unpacked_free(key);
}
