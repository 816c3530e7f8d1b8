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
 * Both sides count the same records and bytes, so no message announces it. Records under one key
 * may be sealed, or opened, at the same time: each has its nonce before, and each thread a context
 * of its own.
 */
#include "seal_record.h"

#include "core/base/bytes.h"
#include "core/base/crc.h"
#include "crew.h"
#include "seal_cipher.h"

#include <stdatomic.h>
#include <stdlib.h>

/* A key's limits. GCM wants fewer than 2^32 records under one key if nonces were drawn; counted
 * ones bear more, and 2^34 blocks leave an attacker's chance near 2^-60. */
#define KEY_RECORDS (UINT64_C(1) << 32)
#define KEY_BYTES   (UINT64_C(1) << 38)

#define HANDS       (1 + HTH_TCP_CREW)

struct seal_way {
    struct hth_cipher *
            cipher[HANDS]; /* of each thread of a crew; all but the first NULL until there is one */
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

/* The key that the secret of now gives, for the ciphers from `first` on. */
static int way_key_from(const struct seal_way *w, unsigned first)
{
    unsigned char key[HTH_KEY];
    int rc = HEARTH_OK;

    way_derive(w, "key", key, sizeof(key));
    for (unsigned i = first; i < HANDS && w->cipher[i] && !rc; i++)
        rc = hth_cipher_key(w->cipher[i], key);
    hth_wipe(key, sizeof(key));
    return rc;
}

static int way_key(struct seal_way *w)
{
    way_derive(w, "nonce", w->first, sizeof(w->first));
    w->records = w->bytes = 0;
    return way_key_from(w, 0);
}

static int way_init(struct seal_way *w, const struct hth_seal *s,
        const unsigned char secret[HTH_KEY], int sealing)
{
    w->cipher[0] = hth_cipher_new(s->suite, s->lib, sealing);
    if (!w->cipher[0])
        return HEARTH_ENOMEM;
    memcpy(w->secret, secret, HTH_KEY);
    return way_key(w);
}

/* A cipher for each thread of a crew. */
static int way_hands(struct seal_way *w, const struct hth_seal *s, int sealing)
{
    if (w->cipher[HANDS - 1])
        return HEARTH_OK;
    for (unsigned i = 1; i < HANDS; i++) {
        if (!w->cipher[i])
            w->cipher[i] = hth_cipher_new(s->suite, s->lib, sealing);
        if (!w->cipher[i])
            return HEARTH_ENOMEM;
    }
    return way_key_from(w, 1);
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
        rc = record_seal(s->out.cipher[0], nonce, out, sealed, sealed + len, in, (uint32_t)len);
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
        rc = record_open(s->in.cipher[0], nonce, out, head, sealed, len, tag);
    s->in.broken = rc != HEARTH_OK;
    return rc;
}

/* ---- several at once ---- */

/* Under one key. */
struct seal_batch {
    struct seal_way *way;
    int sealing;
    struct hth_seal_item *item;
    unsigned char nonce[HTH_SEAL_BATCH][HTH_AEAD_NONCE];
    unsigned n;
    atomic_int rc;
};

static int item_open(struct hth_cipher *cipher, const unsigned char nonce[HTH_AEAD_NONCE],
        struct hth_seal_item *i)
{
    int rc = record_open(cipher, nonce, i->plain, i->head, i->sealed, i->len, i->tag);

    if (!rc)
        i->crc = hth_crc32c(i->plain, i->len);
    return rc;
}

static void batch_part(void *arg, unsigned part, unsigned who)
{
    struct seal_batch *b = arg;
    struct hth_seal_item *i = &b->item[part];
    struct hth_cipher *cipher = b->way->cipher[who];
    int rc = b->sealing ? record_seal(cipher, b->nonce[part], i->head, i->sealed, i->tag, i->plain,
                                  i->len)
                        : item_open(cipher, b->nonce[part], i);

    if (rc)
        atomic_store(&b->rc, rc);
}

static int batch_run(struct seal_batch *b, struct hth_tcp_crew *crew)
{
    hth_tcp_crew_run(crew, b->n, batch_part, b);
    b->item += b->n;
    b->n = 0;
    return atomic_load(&b->rc);
}

static int batches_run(
        struct hth_seal *s, struct seal_batch *b, struct hth_tcp_crew *crew, unsigned n)
{
    struct hth_seal_item *item = b->item;
    int rc = HEARTH_OK;

    for (unsigned i = 0; i < n && !rc; i++) {
        if (item[i].len > HTH_SEAL_PLAIN)
            return HEARTH_EINVAL;
        if (b->n && way_is_spent(s, b->way, item[i].len))
            rc = batch_run(b, crew);
        if (!rc)
            rc = way_advance(s, b->way, item[i].len, b->nonce[b->n++]);
    }
    return rc ? rc : batch_run(b, crew);
}

static int items_run(struct hth_seal *s, struct hth_tcp_crew *crew, struct hth_seal_item *item,
        unsigned n, int sealing)
{
    struct seal_batch b = { .way = sealing ? &s->out : &s->in, .sealing = sealing, .item = item };
    int rc = HEARTH_OK;

    if (n > HTH_SEAL_BATCH || s->suite == HTH_SUITE_PROOF)
        return HEARTH_EINVAL;
    if (b.way->broken)
        return HEARTH_ESTATE;
    if (crew)
        rc = way_hands(b.way, s, sealing);
    if (!rc)
        rc = batches_run(s, &b, crew, n);
    b.way->broken = rc != HEARTH_OK;
    return rc;
}

int hth_seal_put_all(
        struct hth_seal *s, struct hth_tcp_crew *crew, struct hth_seal_item *item, unsigned n)
{
    return items_run(s, crew, item, n, 1);
}

int hth_seal_take_all(
        struct hth_seal *s, struct hth_tcp_crew *crew, struct hth_seal_item *item, unsigned n)
{
    return items_run(s, crew, item, n, 0);
}

void hth_seal_close(struct hth_seal *s)
{
    if (!s)
        return;
    for (unsigned i = 0; i < HANDS; i++) {
        hth_cipher_free(s->out.cipher[i]);
        hth_cipher_free(s->in.cipher[i]);
    }
    hth_wipe(s, sizeof(*s));
    free(s);
}
