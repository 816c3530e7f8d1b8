/* SPDX-License-Identifier: Apache-2.0 */
/* What is said over TCP between rank 0 and the others, and how it is proved. */
#include "core/base/bytes.h"
#include "rendezvous.h"
#include <hearth/error.h>

#define NONCE       32u
#define GREETING_AT (HTH_GREETING - HTH_MAC)
#define ANSWER_AT   (HTH_ANSWER - HTH_MAC)

/* The longest input of a proof but for the body: sender, job, challenge, greeting, answer. */
#define SAID        (8 + HTH_NAME_MAX + HTH_CHALLENGE + HTH_GREETING + ANSWER_AT)

static const unsigned char magic[8] = { 'H', 'T', 'H', 'M', 'E', 'E', 'T', '4' };

static void words_begin(struct hth_writer *w, const char who[8], const struct hth_knows *k)
{
    char job[HTH_NAME_MAX] = "";

    memcpy(job, k->job, strnlen(k->job, sizeof(job)));
    hth_write(w, who, 8);
    hth_write(w, job, sizeof(job));
}

void hth_challenge_make(unsigned char out[HTH_CHALLENGE], const struct hth_knows *k)
{
    memcpy(out, magic, 8);
    hth_put32(out + 8, k->keyed != 0);
    hth_put32(out + 12, 0);
    hth_random_bytes(out + 16, NONCE);
}

int hth_challenge_decode(const unsigned char in[HTH_CHALLENGE])
{
    if (memcmp(in, magic, 7) == 0 && in[7] != magic[7])
        return HEARTH_EUNSUPPORTED;
    if (memcmp(in, magic, 8) != 0 || hth_get32(in + 8) > 1 || hth_get32(in + 12))
        return HEARTH_EPROTO;
    return (int)hth_get32(in + 8);
}

static void greeting_proof(unsigned char out[HTH_MAC], const struct hth_talk *t,
        const struct hth_knows *k, unsigned with, const void *row, size_t len)
{
    unsigned char said[SAID];
    struct hth_writer w = { .at = said, .cap = sizeof(said) };

    memset(out, 0, HTH_MAC);
    if (!k->keyed)
        return;
    words_begin(&w, "greeting", k);
    hth_write(&w, t->challenge, HTH_CHALLENGE);
    hth_write(&w, t->greeting, GREETING_AT);
    hth_mac(out, k->key[with], said, w.len, row, len);
}

void hth_greeting_make(struct hth_talk *t, const struct hth_knows *k, const struct hth_greeting *g,
        const void *row)
{
    struct hth_writer w = { .at = t->greeting, .cap = HTH_GREETING };
    unsigned char nonce[NONCE];

    hth_random_bytes(nonce, sizeof(nonce));
    hth_write(&w, magic, 8);
    hth_write32(&w, g->rank);
    hth_write32(&w, g->world);
    hth_write32(&w, g->round);
    hth_write32(&w, g->len);
    hth_write(&w, g->token, HTH_TOKEN);
    hth_write64(&w, g->node);
    hth_write(&w, nonce, sizeof(nonce));
    greeting_proof(t->greeting + GREETING_AT, t, k, 0, row, g->len);
    t->with = 0;
}

int hth_greeting_decode(struct hth_greeting *out, const unsigned char in[HTH_GREETING])
{
    struct hth_greeting g = { .rank = hth_get32(in + 8),
        .world = hth_get32(in + 12),
        .round = hth_get32(in + 16),
        .len = hth_get32(in + 20),
        .node = hth_get64(in + 40) };

    memcpy(g.token, in + 24, HTH_TOKEN);
    if (memcmp(in, magic, 8) != 0 || !g.rank || g.rank >= g.world)
        return HEARTH_EPROTO;
    *out = g;
    return HEARTH_OK;
}

int hth_greeting_holds(struct hth_talk *t, const struct hth_knows *k, const void *row, size_t len)
{
    unsigned char proof[HTH_MAC];
    unsigned with = 0;

    do {
        greeting_proof(proof, t, k, with, row, len);
        if (hth_mac_equal(proof, t->greeting + GREETING_AT)) {
            t->with = with;
            return 1;
        }
    } while (++with < k->keyed);
    return 0;
}

static void answer_proof(unsigned char out[HTH_MAC], const unsigned char answer[HTH_ANSWER],
        const struct hth_talk *t, const struct hth_knows *k, const unsigned char digest[HTH_DIGEST])
{
    unsigned char said[SAID];
    struct hth_writer w = { .at = said, .cap = sizeof(said) };

    memset(out, 0, HTH_MAC);
    if (!k->keyed)
        return;
    words_begin(&w, "answered", k);
    hth_write(&w, t->challenge, HTH_CHALLENGE);
    hth_write(&w, t->greeting, HTH_GREETING);
    hth_write(&w, answer, ANSWER_AT);
    hth_mac(out, k->key[t->with], said, w.len, digest, HTH_DIGEST);
}

void hth_answer_make(unsigned char out[HTH_ANSWER], const struct hth_talk *t,
        const struct hth_knows *k, const struct hth_answer *a,
        const unsigned char digest[HTH_DIGEST])
{
    memcpy(out, magic, 8);
    hth_put32(out + 8, (uint32_t)a->code);
    hth_put32(out + 12, a->round);
    hth_put64(out + 16, a->len);
    hth_put32(out + 24, a->where);
    hth_put32(out + 28, 0);
    answer_proof(out + ANSWER_AT, out, t, k, digest);
}

int hth_answer_decode(struct hth_answer *out, const unsigned char in[HTH_ANSWER])
{
    struct hth_answer a = { .code = (int32_t)hth_get32(in + 8),
        .round = hth_get32(in + 12),
        .len = hth_get64(in + 16),
        .where = hth_get32(in + 24) };

    if (memcmp(in, magic, 8) != 0 || a.code > 0 || hth_get32(in + 28) ||
            a.where >= (a.code ? 1u : HTH_TABLE_WHERES))
        return HEARTH_EPROTO;
    *out = a;
    return HEARTH_OK;
}

int hth_answer_holds(const unsigned char in[HTH_ANSWER], const struct hth_talk *t,
        const struct hth_knows *k, const unsigned char digest[HTH_DIGEST])
{
    unsigned char proof[HTH_MAC];

    answer_proof(proof, in, t, k, digest);
    return hth_mac_equal(proof, in + ANSWER_AT);
}
