/* SPDX-License-Identifier: Apache-2.0 */
/* A hello as bytes: what one side never writes is refused by the other. */
#include "seal_hello.h"

#include "core/base/bytes.h"
#include "core/base/fail.h"

#define MAGIC 0x50435448u /* "HTCP" */
#define KNOWN (HTH_SUITE_PROOF | HTH_SUITE_CHACHA20_POLY1305 | HTH_SUITE_AES_256_GCM)

enum { LOW_AT = 4, HIGH_AT = 5, SIDE_AT = 6, PURPOSE_AT = 7, SUITES_AT = 8, ZERO_AT = 12 };
enum { ID_AT = 16, NONCE_AT = 32, KEY_AT = 64, MAC_AT = 96 };

static void hello_mac(unsigned char out[HTH_SHA256], const unsigned char hello[HTH_SEAL_HELLO],
        const unsigned char job_key[HTH_KEY])
{
    static const char name[] = "hello";
    unsigned char key[HTH_KEY];

    hth_hkdf_expand(key, sizeof(key), job_key, name, sizeof(name) - 1);
    hth_hmac(out, key, sizeof(key), hello, MAC_AT, NULL, 0);
    hth_wipe(key, sizeof(key));
}

void hth_seal_hello_sign(unsigned char hello[HTH_SEAL_HELLO], const unsigned char job_key[HTH_KEY])
{
    hello_mac(hello + MAC_AT, hello, job_key);
}

int hth_seal_hello_is_of(
        const unsigned char hello[HTH_SEAL_HELLO], const unsigned char job_key[HTH_KEY])
{
    unsigned char want[HTH_SHA256];

    hello_mac(want, hello, job_key);
    return hth_secret_equal(want, hello + MAC_AT, sizeof(want));
}

void hth_seal_hello_encode(const struct hth_seal_hello *hello, unsigned char out[HTH_SEAL_HELLO])
{
    memset(out, 0, HTH_SEAL_HELLO);
    hth_put32(out, MAGIC);
    out[LOW_AT] = hello->low;
    out[HIGH_AT] = hello->high;
    out[SIDE_AT] = (unsigned char)hello->side;
    out[PURPOSE_AT] = (unsigned char)hello->purpose;
    hth_put32(out + SUITES_AT, hello->suites);
    memcpy(out + ID_AT, hello->id, sizeof(hello->id));
    memcpy(out + NONCE_AT, hello->nonce, sizeof(hello->nonce));
    memcpy(out + KEY_AT, hello->public_key, sizeof(hello->public_key));
}

static int all_zero(const unsigned char *bytes, size_t len)
{
    unsigned char any = 0;

    for (size_t i = 0; i < len; i++)
        any |= bytes[i];
    return !any;
}

/* Numbers that no sender of this side writes. */
static int hello_is_odd(const struct hth_seal_hello *h)
{
    if (!h->low || h->low > h->high)
        return 1;
    if (h->purpose == HTH_PURPOSE_MESSAGES && !all_zero(h->id, sizeof(h->id)))
        return 1;
    if (h->side == HTH_SEAL_DIALS)
        return !h->suites;
    return h->low != h->high || (h->suites & ~KNOWN) || (h->suites & (h->suites - 1));
}

int hth_seal_hello_decode(struct hth_seal_hello *out, const unsigned char bytes[HTH_SEAL_HELLO],
        enum hth_seal_side side, struct hearth_error *err)
{
    struct hth_seal_hello h = {
        .low = bytes[LOW_AT],
        .high = bytes[HIGH_AT],
        .side = bytes[SIDE_AT] == HTH_SEAL_DIALS ? HTH_SEAL_DIALS : HTH_SEAL_ACCEPTS,
        .purpose = bytes[PURPOSE_AT] == HTH_PURPOSE_BULK ? HTH_PURPOSE_BULK : HTH_PURPOSE_MESSAGES,
        .suites = hth_get32(bytes + SUITES_AT),
    };

    if (hth_get32(bytes) != MAGIC)
        return hth_fail(err, HEARTH_EPROTO, 0, "what arrives is not a greeting of ours");
    memcpy(h.id, bytes + ID_AT, sizeof(h.id));
    memcpy(h.nonce, bytes + NONCE_AT, sizeof(h.nonce));
    memcpy(h.public_key, bytes + KEY_AT, sizeof(h.public_key));
    if (bytes[SIDE_AT] != side || bytes[PURPOSE_AT] != h.purpose || hello_is_odd(&h) ||
            !all_zero(bytes + ZERO_AT, ID_AT - ZERO_AT) ||
            (side == HTH_SEAL_ACCEPTS && !all_zero(bytes + MAC_AT, HTH_SHA256)))
        return hth_fail(err, HEARTH_EPROTO, 0, "a greeting with numbers in it that no %s writes",
                side == HTH_SEAL_DIALS ? "dialler" : "acceptor");
    *out = h;
    return HEARTH_OK;
}
