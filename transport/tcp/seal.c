/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The handshake. Nothing of a hello is believed before a proof that covers it, but what it takes to
 * answer.
 *
 *   dial ──► DIALLED ── answer ──► ANSWERED ── finish ──► ENDED
 *   accept ──► ACCEPTED ── admit ──► ENDED           each also where its call fails
 */
#include "seal.h"

#include "core/base/bytes.h"
#include "core/base/fail.h"
#include "seal_cipher.h"
#include "seal_hello.h"
#include "seal_record.h"

#include <string.h>

#define VERSION 2u /* 2: the hello has a mac, and no id of the job key */

enum { HIGH_AT = 5 }; /* of a hello, in every version */
enum { DIALLED = 1, ANSWERED, ACCEPTED, ENDED };

int hth_seal_init(struct hearth_error *err)
{
    hth_cipher_init();
    return hth_auth_init(err);
}

uint32_t hth_seal_suites(void)
{
    return hth_cipher_suites(HTH_CIPHER_ANY);
}

static unsigned char *hello_of_dialler(struct hth_seal_hand *h)
{
    return h->transcript;
}

static unsigned char *hello_of_acceptor(struct hth_seal_hand *h)
{
    return h->transcript + HTH_SEAL_HELLO;
}

/* 1: the hand is where this call belongs; it is at its end if the call then fails. */
static int stage_take(struct hth_seal_hand *h, int stage)
{
    int here = h->stage == stage;

    h->stage = ENDED;
    return here;
}

static int stage_wrong(struct hearth_error *err)
{
    return hth_fail(err, HEARTH_ESTATE, 0, "a step of the handshake out of its order");
}

/* ---- hellos ---- */

static int opts_check(const struct hth_seal_opts *o, struct hearth_error *err)
{
    uint32_t have = hth_cipher_suites(o->lib) | HTH_SUITE_PROOF;

    if (!o->key || !o->suites || (o->suites & ~have))
        return hth_fail(err, HEARTH_EINVAL, 0,
                "suites 0x%x are to be offered; this machine has 0x%x", o->suites, have);
    return HEARTH_OK;
}

static void hand_init(struct hth_seal_hand *h, const struct hth_seal_opts *opts, int stage)
{
    memset(h, 0, sizeof(*h));
    h->opts = *opts;
    h->opts.bond = NULL;
    h->stage = stage;
    hth_random_bytes(h->secret, sizeof(h->secret));
}

static void hello_fill(const struct hth_seal_hand *h, struct hth_seal_hello *hello)
{
    hth_random_bytes(hello->nonce, sizeof(hello->nonce));
    hth_exchange_public(hello->public_key, h->secret);
}

int hth_seal_dial(struct hth_seal_hand *h, const struct hth_seal_opts *opts,
        unsigned char out[HTH_SEAL_HELLO], struct hearth_error *err)
{
    struct hth_seal_hello hello = {
        .low = VERSION,
        .high = VERSION,
        .side = HTH_SEAL_DIALS,
        .purpose = opts->purpose,
        .suites = opts->suites,
    };

    if (opts_check(opts, err))
        return HEARTH_EINVAL;
    if (opts->purpose != HTH_PURPOSE_MESSAGES && (opts->purpose != HTH_PURPOSE_BULK || !opts->bond))
        return hth_fail(err, HEARTH_EINVAL, 0, "a bulk connection without its message connection");
    hand_init(h, opts, DIALLED);
    if (opts->purpose == HTH_PURPOSE_BULK) {
        memcpy(hello.id, opts->bond->id, sizeof(hello.id));
        memcpy(h->bond, opts->bond->secret, sizeof(h->bond));
    }
    hello_fill(h, &hello);
    hth_seal_hello_encode(&hello, out);
    hth_seal_hello_sign(out, opts->key);
    memcpy(hello_of_dialler(h), out, HTH_SEAL_HELLO);
    return HEARTH_OK;
}

int hth_seal_knows(const unsigned char job_key[HTH_KEY], const unsigned char hello[HTH_SEAL_HELLO])
{
    return hth_seal_hello_is_of(hello, job_key);
}

int hth_seal_is_older(const unsigned char hello[HTH_SEAL_HELLO])
{
    return hello[HIGH_AT] < VERSION;
}

int hth_seal_asks(const unsigned char hello[HTH_SEAL_HELLO], struct hth_seal_asked *out,
        struct hearth_error *err)
{
    struct hth_seal_hello h;

    if (hth_seal_hello_decode(&h, hello, HTH_SEAL_DIALS, err))
        return HEARTH_EPROTO;
    out->purpose = h.purpose;
    out->suites = h.suites;
    memcpy(out->id, h.id, sizeof(out->id));
    return HEARTH_OK;
}

/* The better one of those that both have: none, where both say that they need none. */
static uint32_t suite_choose(uint32_t ours, uint32_t theirs)
{
    static const uint32_t best[] = { HTH_SUITE_PROOF, HTH_SUITE_AES_256_GCM,
        HTH_SUITE_CHACHA20_POLY1305 };

    for (size_t i = 0; i < sizeof(best) / sizeof(best[0]); i++)
        if (ours & theirs & best[i])
            return best[i];
    return 0;
}

/* Without the bond that the dialler names its proof will not hold, whatever it is. */
static void acceptor_bond(struct hth_seal_hand *h, const struct hth_seal_bond *bond,
        const struct hth_seal_hello *asked)
{
    if (asked->purpose == HTH_PURPOSE_MESSAGES)
        return;
    if (bond && memcmp(bond->id, asked->id, sizeof(bond->id)) == 0)
        memcpy(h->bond, bond->secret, sizeof(h->bond));
    else
        hth_random_bytes(h->bond, sizeof(h->bond));
}

static int suites_apart(uint32_t ours, uint32_t theirs, struct hearth_error *err)
{
    int open = (ours | theirs) & HTH_SUITE_PROOF;

    return hth_fail(err, HEARTH_EUNSUPPORTED, 0, "no cipher in common: 0x%x here, 0x%x there%s",
            ours, theirs, open ? "; give all nodes the same `network`" : "");
}

int hth_seal_accept(struct hth_seal_hand *h, const struct hth_seal_opts *opts,
        const unsigned char hello[HTH_SEAL_HELLO], unsigned char out[HTH_SEAL_HELLO],
        struct hearth_error *err)
{
    struct hth_seal_hello asked,
            answer = { .low = VERSION, .high = VERSION, .side = HTH_SEAL_ACCEPTS };

    memset(h, 0, sizeof(*h));
    if (opts_check(opts, err))
        return HEARTH_EINVAL;
    if (!hth_seal_hello_is_of(hello, opts->key))
        return hth_fail(err, HEARTH_EAUTH, 0, "a hello that our job key did not make");
    if (hth_seal_hello_decode(&asked, hello, HTH_SEAL_DIALS, err))
        return HEARTH_EPROTO;
    hand_init(h, opts, ACCEPTED);
    acceptor_bond(h, opts->bond, &asked);
    if (asked.low <= VERSION && asked.high >= VERSION)
        h->suite = suite_choose(opts->suites, asked.suites);
    answer.purpose = asked.purpose;
    answer.suites = h->suite;
    memcpy(answer.id, asked.id, sizeof(answer.id));
    hello_fill(h, &answer);
    hth_seal_hello_encode(&answer, out);
    memcpy(hello_of_dialler(h), hello, HTH_SEAL_HELLO);
    memcpy(hello_of_acceptor(h), out, HTH_SEAL_HELLO);
    if (h->suite)
        return HEARTH_OK;
    h->stage = ENDED;
    if (asked.low > VERSION || asked.high < VERSION)
        return hth_fail(err, HEARTH_EUNSUPPORTED, 0,
                "versions %u to %u there, %u here; install one version everywhere", asked.low,
                asked.high, VERSION);
    return suites_apart(opts->suites, asked.suites, err);
}

/* ---- proofs ---- */

/* h->secret becomes what all keys of this connection come from. */
static int secret_agree(struct hth_seal_hand *h, const unsigned char public_key[HTH_KEY])
{
    unsigned char shared[HTH_KEY];
    int rc = hth_exchange(shared, h->secret, public_key);

    if (!rc)
        hth_hmac(h->secret, h->opts.key, HTH_KEY, shared, sizeof(shared), h->bond, sizeof(h->bond));
    hth_wipe(shared, sizeof(shared));
    return rc;
}

static void hand_derive(
        const struct hth_seal_hand *h, const char *name, unsigned char *out, size_t len)
{
    unsigned char info[64], hash[HTH_SHA256];
    struct hth_writer w = { .at = info, .cap = sizeof(info) };

    hth_sha256(hash, h->transcript, sizeof(h->transcript));
    hth_write(&w, name, strlen(name));
    hth_write(&w, hash, sizeof(hash));
    hth_hkdf_expand(out, len, h->secret, info, w.len);
}

static void proof_write(
        struct hth_seal_hand *h, enum hth_seal_side side, unsigned char out[HTH_SEAL_PROOF])
{
    unsigned char key[HTH_KEY];
    int dials = side == HTH_SEAL_DIALS;

    hand_derive(h, dials ? "dialler proves" : "acceptor proves", key, sizeof(key));
    hth_hmac(out, key, sizeof(key), h->transcript, sizeof(h->transcript), h->proof,
            dials ? 0 : sizeof(h->proof));
    hth_wipe(key, sizeof(key));
}

static int proof_is_right(
        struct hth_seal_hand *h, enum hth_seal_side side, const unsigned char *proof)
{
    unsigned char want[HTH_SEAL_PROOF];
    int right;

    proof_write(h, side, want);
    right = hth_secret_equal(want, proof, sizeof(want));
    hth_wipe(want, sizeof(want));
    return right;
}

static int hand_end(struct hth_seal_hand *h, enum hth_seal_side side, struct hth_seal **out,
        struct hearth_error *err)
{
    struct hth_seal_keys keys;
    struct hth_seal *s;
    int dials = side == HTH_SEAL_DIALS;

    hand_derive(h, "dialler seals", dials ? keys.out : keys.in, HTH_KEY);
    hand_derive(h, "acceptor seals", dials ? keys.in : keys.out, HTH_KEY);
    hand_derive(h, "bond id", keys.bond.id, sizeof(keys.bond.id));
    hand_derive(h, "bond secret", keys.bond.secret, sizeof(keys.bond.secret));
    s = hth_seal_new(&h->opts, (enum hth_suite)h->suite, &keys);
    hth_wipe(&keys, sizeof(keys));
    hth_seal_drop(h);
    if (!s)
        return hth_fail(err, HEARTH_ENOMEM, 0, "no memory for a connection's ciphers");
    *out = s;
    return HEARTH_OK;
}

/* 0: it is an answer to the dialler's hello. */
static int answer_check(
        struct hth_seal_hand *h, const struct hth_seal_hello *answer, struct hearth_error *err)
{
    struct hth_seal_hello ours;

    if (hth_seal_hello_decode(&ours, hello_of_dialler(h), HTH_SEAL_DIALS, err))
        return HEARTH_EPROTO;
    if (!answer->suites)
        return hth_fail(err, HEARTH_EUNSUPPORTED, 0,
                "it takes no cipher and version that we offer (0x%x, %u): give all nodes the same version and "
                "`network`",
                ours.suites, VERSION);
    if (answer->high != VERSION || !(answer->suites & ours.suites))
        return hth_fail(err, HEARTH_EPROTO, 0, "a greeting that does not answer ours");
    return HEARTH_OK;
}

int hth_seal_answer(struct hth_seal_hand *h, const unsigned char hello[HTH_SEAL_HELLO],
        unsigned char out[HTH_SEAL_PROOF], struct hearth_error *err)
{
    struct hth_seal_hello answer;
    int rc;

    if (!stage_take(h, DIALLED))
        return stage_wrong(err);
    if (hth_seal_hello_decode(&answer, hello, HTH_SEAL_ACCEPTS, err))
        return HEARTH_EPROTO;
    rc = answer_check(h, &answer, err);
    if (rc)
        return rc;
    h->suite = answer.suites;
    memcpy(hello_of_acceptor(h), hello, HTH_SEAL_HELLO);
    if (secret_agree(h, answer.public_key))
        return hth_fail(err, HEARTH_EPROTO, 0, "a greeting with a public key that is none");
    proof_write(h, HTH_SEAL_DIALS, h->proof);
    memcpy(out, h->proof, HTH_SEAL_PROOF);
    h->stage = ANSWERED;
    return HEARTH_OK;
}

int hth_seal_admit(struct hth_seal_hand *h, const unsigned char proof[HTH_SEAL_PROOF],
        unsigned char out[HTH_SEAL_PROOF], struct hth_seal **out_seal, struct hearth_error *err)
{
    struct hth_seal_hello asked;

    if (!stage_take(h, ACCEPTED))
        return stage_wrong(err);
    if (hth_seal_hello_decode(&asked, hello_of_dialler(h), HTH_SEAL_DIALS, err) ||
            secret_agree(h, asked.public_key) || !proof_is_right(h, HTH_SEAL_DIALS, proof))
        return hth_fail(err, HEARTH_EAUTH, 0, "it does not prove the job key");
    memcpy(h->proof, proof, HTH_SEAL_PROOF);
    proof_write(h, HTH_SEAL_ACCEPTS, out);
    return hand_end(h, HTH_SEAL_ACCEPTS, out_seal, err);
}

int hth_seal_finish(struct hth_seal_hand *h, const unsigned char proof[HTH_SEAL_PROOF],
        struct hth_seal **out_seal, struct hearth_error *err)
{
    if (!stage_take(h, ANSWERED))
        return stage_wrong(err);
    if (!proof_is_right(h, HTH_SEAL_ACCEPTS, proof))
        return hth_fail(err, HEARTH_EAUTH, 0, "it does not prove the job key");
    return hand_end(h, HTH_SEAL_DIALS, out_seal, err);
}

void hth_seal_drop(struct hth_seal_hand *h)
{
    hth_wipe(h, sizeof(*h));
    h->stage = ENDED;
}
