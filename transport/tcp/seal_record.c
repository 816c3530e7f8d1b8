/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Records, a direction at a time. Each direction has a secret, and from that the key and the first
 * nonce; before the key's limit is passed the secret becomes the next one, which does not lead
 * back:
 *
 *   secret 0 ── "next" ──► secret 1 ── "next" ──► ...
 *      ├─ "key"               ├─ "key"
 *      └─ "nonce"             └─ "nonce"
 *
 * Both sides count the same records and bytes, so no message announces it.
 */
#include "seal_record.h"

#include "core/base/bytes.h"
#include "seal_cipher.h"

#include <stdlib.h>

/* A key's limits. GCM wants fewer than 2^32 records under one key if nonces were drawn; counted
 * ones bear more, and 2^34 blocks leave an attacker's chance near 2^-60. */
#define KEY_RECORDS (UINT64_C(1) << 32)
#define KEY_BYTES   (UINT64_C(1) << 38)

struct seal_way {
    struct hth_cipher *cipher;
    unsigned char secret[HTH_KEY], first[HTH_AEAD_NONCE];
    uint64_t records, bytes; /* under this key */
    int broken;
};

struct hth_seal {
    enum hth_suite suite;
    enum hth_cipher_lib lib;
    uint64_t key_records, key_bytes;
    struct hth_seal_bond bond;
    struct seal_way out, in;
};

static void way_derive(const struct seal_way *w, const char *name, unsigned char *out, size_t len)
{
    hth_hkdf_expand(out, len, w->secret, name, strlen(name));
}

static int way_key(struct seal_way *w)
{
    unsigned char key[HTH_KEY];
    int rc;

    way_derive(w, "nonce", w->first, sizeof(w->first));
    w->records = w->bytes = 0;
    way_derive(w, "key", key, sizeof(key));
    rc = hth_cipher_key(w->cipher, key);
    hth_wipe(key, sizeof(key));
    return rc;
}

static int way_init(struct seal_way *w, const struct hth_seal *s,
        const unsigned char secret[HTH_KEY], int sealing)
{
    w->cipher = hth_cipher_new(s->suite, s->lib, sealing);
    if (!w->cipher)
        return HEARTH_ENOMEM;
    memcpy(w->secret, secret, HTH_KEY);
    return way_key(w);
}

static int way_is_spent(const struct hth_seal *s, const struct seal_way *w, size_t len)
{
    return w->records >= s->key_records || (w->records && len > s->key_bytes - w->bytes);
}

/* Before a record of len: the next key if this one may not do it, and the record's nonce. */
static int way_advance(const struct hth_seal *s, struct seal_way *w, size_t len,
        unsigned char nonce[HTH_AEAD_NONCE])
{
    unsigned char next[HTH_KEY];

    if (way_is_spent(s, w, len)) {
        way_derive(w, "next", next, sizeof(next));
        memcpy(w->secret, next, sizeof(next));
        hth_wipe(next, sizeof(next));
        if (way_key(w))
            return HEARTH_EIO;
    }
    memcpy(nonce, w->first, HTH_AEAD_NONCE);
    hth_put64(nonce + 4, hth_get64(nonce + 4) ^ w->records);
    w->records++;
    w->bytes += len < s->key_bytes - w->bytes ? len : s->key_bytes - w->bytes;
    return HEARTH_OK;
}

struct hth_seal *hth_seal_new(
        const struct hth_seal_opts *opts, enum hth_suite suite, const struct hth_seal_keys *keys)
{
    struct hth_seal *s = calloc(1, sizeof(*s));

    if (!s)
        return NULL;
    s->suite = suite;
    s->lib = opts->lib;
    s->key_records = opts->key_records ? opts->key_records : KEY_RECORDS;
    s->key_bytes = opts->key_bytes ? opts->key_bytes : KEY_BYTES;
    s->bond = keys->bond;
    if (suite != HTH_SUITE_PROOF &&
            (way_init(&s->out, s, keys->out, 1) || way_init(&s->in, s, keys->in, 0))) {
        hth_seal_close(s);
        return NULL;
    }
    return s;
}

enum hth_suite hth_seal_suite(const struct hth_seal *s)
{
    return s->suite;
}

void hth_seal_bond(const struct hth_seal *s, struct hth_seal_bond *out)
{
    *out = s->bond;
}

static int record_seal(struct hth_cipher *cipher, const unsigned char nonce[HTH_AEAD_NONCE],
        unsigned char *head, unsigned char *sealed, unsigned char *tag, const void *in,
        uint32_t len)
{
    hth_put32(head, len);
    return hth_cipher_seal(cipher, nonce, head, HTH_SEAL_HEAD, sealed, in, len, tag);
}

/* `out` is zeros if it does not open. */
static int record_open(struct hth_cipher *cipher, const unsigned char nonce[HTH_AEAD_NONCE],
        void *out, const unsigned char *head, const void *sealed, size_t len,
        const unsigned char *tag)
{
    int rc = hth_cipher_open(cipher, nonce, head, HTH_SEAL_HEAD, out, sealed, len, tag);

    if (rc)
        hth_wipe(out, len);
    return rc;
}

int hth_seal_put(struct hth_seal *s, unsigned char *out, const void *in, size_t len)
{
    unsigned char nonce[HTH_AEAD_NONCE];
    unsigned char *sealed = out + HTH_SEAL_HEAD;
    int rc;

    if (len > HTH_SEAL_PLAIN || s->suite == HTH_SUITE_PROOF)
        return HEARTH_EINVAL;
    if (s->out.broken)
        return HEARTH_ESTATE;
    rc = way_advance(s, &s->out, len, nonce);
    if (!rc)
        rc = record_seal(s->out.cipher, nonce, out, sealed, sealed + len, in, (uint32_t)len);
    s->out.broken = rc != HEARTH_OK;
    return rc;
}

int hth_seal_length(const unsigned char head[HTH_SEAL_HEAD], size_t *out_len)
{
    uint32_t len = hth_get32(head);

    if (len > HTH_SEAL_PLAIN)
        return HEARTH_EPROTO;
    *out_len = len;
    return HEARTH_OK;
}

int hth_seal_take(struct hth_seal *s, void *out, const unsigned char head[HTH_SEAL_HEAD],
        const void *sealed, const unsigned char tag[HTH_SEAL_TAG])
{
    unsigned char nonce[HTH_AEAD_NONCE];
    size_t len;
    int rc;

    if (s->suite == HTH_SUITE_PROOF)
        return HEARTH_EINVAL;
    if (s->in.broken)
        return HEARTH_ESTATE;
    rc = hth_seal_length(head, &len);
    if (!rc)
        rc = way_advance(s, &s->in, len, nonce);
    if (!rc)
        rc = record_open(s->in.cipher, nonce, out, head, sealed, len, tag);
    s->in.broken = rc != HEARTH_OK;
    return rc;
}

void hth_seal_close(struct hth_seal *s)
{
    if (!s)
        return;
    hth_cipher_free(s->out.cipher);
    hth_cipher_free(s->in.cipher);
    hth_wipe(s, sizeof(*s));
    free(s);
}
