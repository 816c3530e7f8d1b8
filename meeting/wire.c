/* SPDX-License-Identifier: Apache-2.0 */
/* The messages between a node and the host, and their proofs. */
#include "wire.h"

#include "core/base/bytes.h"
#include <hearth/error.h>
#include <string.h>

#define NONCE       32u
#define GREETING_AT (HTH_GREETING - HTH_MAC)
#define FRAME_AT    (HTH_MEET_FRAME - HTH_MAC)
#define TALK        (8 + HTH_NAME_MAX + HTH_CHALLENGE + HTH_GREETING)

static const unsigned char magic[8] = { 'H', 'T', 'H', 'M', 'E', 'E', 'T', '5' };

void hth_challenge_make(unsigned char out[HTH_CHALLENGE], const struct hth_meeting_keys *k)
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

/* Job, challenge, and so much of the greeting. */
static size_t wire_talk(unsigned char out[TALK], const char what[8], const struct hth_talk *t,
        const struct hth_meeting_keys *k, size_t greeting)
{
    struct hth_writer w = { .at = out, .cap = TALK };
    char job[HTH_NAME_MAX] = "";

    memcpy(job, k->job, strnlen(k->job, sizeof(job)));
    hth_write(&w, what, 8);
    hth_write(&w, job, sizeof(job));
    hth_write(&w, t->challenge, HTH_CHALLENGE);
    hth_write(&w, t->greeting, greeting);
    return w.len;
}

static void greeting_proof(unsigned char out[HTH_MAC], const struct hth_talk *t,
        const struct hth_meeting_keys *k, unsigned with)
{
    unsigned char talk[TALK];
    size_t len = wire_talk(talk, "greeting", t, k, GREETING_AT);

    memset(out, 0, HTH_MAC);
    if (k->keyed)
        hth_mac(out, k->key[with], talk, len, NULL, 0);
}

static void wire_proving(struct hth_proving *out, const struct hth_talk *t,
        const struct hth_meeting_keys *k, unsigned with, int is_host)
{
    unsigned char talk[TALK];
    size_t len = wire_talk(talk, "frames  ", t, k, HTH_GREETING);

    *out = (struct hth_proving){ .keyed = k->keyed != 0, .is_host = is_host };
    if (k->keyed)
        hth_session_key(out->key, k->key[with], "meeting", talk, len);
}

void hth_greeting_make(struct hth_talk *t, const struct hth_meeting_keys *k,
        const struct hth_greeting *g, struct hth_proving *out)
{
    struct hth_writer w = { .at = t->greeting, .cap = HTH_GREETING };
    unsigned char nonce[NONCE];

    hth_random_bytes(nonce, sizeof(nonce));
    hth_write(&w, magic, 8);
    hth_write32(&w, g->world);
    hth_write32(&w, g->len);
    hth_write32(&w, g->round);
    hth_write32(&w, 0);
    hth_write(&w, g->token, HTH_MEETING_TOKEN);
    hth_write64(&w, g->node);
    hth_write(&w, nonce, sizeof(nonce));
    greeting_proof(t->greeting + GREETING_AT, t, k, 0);
    wire_proving(out, t, k, 0, 0);
}

int hth_greeting_decode(struct hth_greeting *out, const unsigned char in[HTH_GREETING])
{
    struct hth_greeting g = { .world = hth_get32(in + 8),
        .len = hth_get32(in + 12),
        .round = hth_get32(in + 16),
        .node = hth_get64(in + 40) };

    memcpy(g.token, in + 24, HTH_MEETING_TOKEN);
    if (memcmp(in, magic, 8) != 0 || !g.world || hth_get32(in + 20))
        return HEARTH_EPROTO;
    *out = g;
    return HEARTH_OK;
}

int hth_greeting_holds(
        const struct hth_talk *t, const struct hth_meeting_keys *k, struct hth_proving *out)
{
    unsigned char proof[HTH_MAC];
    unsigned with = 0;

    do {
        greeting_proof(proof, t, k, with);
        if (hth_mac_equal(proof, t->greeting + GREETING_AT)) {
            wire_proving(out, t, k, with, 1);
            return 1;
        }
    } while (++with < k->keyed);
    return 0;
}

static void frame_proof(unsigned char out[HTH_MAC], const unsigned char head[HTH_MEET_FRAME],
        const struct hth_proving *p, int from_host, uint64_t number,
        const unsigned char digest[HTH_DIGEST])
{
    unsigned char said[9 + FRAME_AT];

    memset(out, 0, HTH_MAC);
    if (!p->keyed)
        return;
    said[0] = (unsigned char)from_host;
    hth_put64(said + 1, number);
    memcpy(said + 9, head, FRAME_AT);
    hth_mac(out, p->key, said, sizeof(said), digest, HTH_DIGEST);
}

void hth_meet_frame_make(unsigned char out[HTH_MEET_FRAME], struct hth_proving *p,
        const struct hth_meet_frame *f, const unsigned char digest[HTH_DIGEST])
{
    hth_put16(out, (uint16_t)f->type);
    hth_put16(out + 2, 0);
    hth_put32(out + 4, f->rank);
    hth_put32(out + 8, f->round);
    hth_put32(out + 12, (uint32_t)f->code);
    hth_put64(out + 16, f->len);
    frame_proof(out + FRAME_AT, out, p, p->is_host, p->sent++, digest);
}

int hth_meet_frame_decode(struct hth_meet_frame *out, const unsigned char in[HTH_MEET_FRAME])
{
    uint16_t type = hth_get16(in);

    if (!type || type >= HTH_MEET_FRAME_TYPES || hth_get16(in + 2))
        return HEARTH_EPROTO;
    *out = (struct hth_meet_frame){ .type = (enum hth_meet_frame_type)type,
        .rank = hth_get32(in + 4),
        .round = hth_get32(in + 8),
        .code = (int32_t)hth_get32(in + 12),
        .len = hth_get64(in + 16) };
    return HEARTH_OK;
}

int hth_meet_frame_holds(const unsigned char in[HTH_MEET_FRAME], struct hth_proving *p,
        const unsigned char digest[HTH_DIGEST])
{
    unsigned char proof[HTH_MAC];

    frame_proof(proof, in, p, !p->is_host, p->heard++, digest);
    return hth_mac_equal(proof, in + FRAME_AT);
}
