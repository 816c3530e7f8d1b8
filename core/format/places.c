/* SPDX-License-Identifier: Apache-2.0 */
/* The holder map of an epoch. Layout: core/format/places.h. */
#include "places.h"
#include "record.h"

#include <stdlib.h>

#define HEAD_BYTES 48u
#define NOTE_BYTES 40u
#define MOVE_BYTES 16u
#define PAIR_BYTES 32u

void hth_places_first(struct hth_places *out, uint64_t epoch, uint64_t nonce)
{
    *out = (struct hth_places){ 0 };
    hth_put64(out->forerunner, epoch);
    hth_put64(out->forerunner + 8, nonce);
}

size_t hth_places_bytes(const struct hth_places *m)
{
    return HEAD_BYTES + (size_t)m->notes * NOTE_BYTES + (size_t)m->moves * MOVE_BYTES +
           (size_t)m->pairs * PAIR_BYTES;
}

void hth_places_encode(const struct hth_places *m, unsigned char *out)
{
    struct hth_writer w = { .at = out, .cap = hth_places_bytes(m) };

    hth_write(&w, m->forerunner, HTH_DIGEST);
    hth_write32(&w, m->notes);
    hth_write32(&w, m->moves);
    hth_write32(&w, m->pairs);
    hth_write32(&w, 0);
    for (uint32_t i = 0; i < m->notes; i++) {
        const struct hth_note *n = &m->note[i];

        hth_write32(&w, n->node);
        hth_write32(&w, n->lost);
        hth_write64(&w, n->life);
        hth_write64(&w, n->count);
        hth_write64(&w, n->last_ms);
        hth_write64(&w, n->before_ms);
    }
    for (uint32_t i = 0; i < m->moves; i++) {
        hth_write32(&w, m->move[i].rank);
        hth_write32(&w, m->move[i].place);
        hth_write32(&w, m->move[i].node);
        hth_write32(&w, m->move[i].was);
    }
    for (uint32_t i = 0; i < m->pairs; i++) {
        hth_write32(&w, m->pair[i].a);
        hth_write32(&w, m->pair[i].b);
        hth_write32(&w, m->pair[i].unreachable);
        hth_write32(&w, 0);
        hth_write64(&w, m->pair[i].last_ms);
        hth_write64(&w, m->pair[i].before_ms);
    }
}

static void read_notes(struct hth_reader *r, struct hth_places *m)
{
    for (uint32_t i = 0; i < m->notes; i++) {
        struct hth_note *n = &m->note[i];

        n->node = hth_read32(r);
        n->lost = hth_read32(r);
        n->life = hth_read64(r);
        n->count = hth_read64(r);
        n->last_ms = hth_read64(r);
        n->before_ms = hth_read64(r);
        if (n->lost > 1 || (i && n->node <= n[-1].node))
            r->bad = 1;
    }
}

static void read_moves(struct hth_reader *r, struct hth_places *m)
{
    for (uint32_t i = 0; i < m->moves; i++) {
        struct hth_move *v = &m->move[i];

        v->rank = hth_read32(r);
        v->place = hth_read32(r);
        v->node = hth_read32(r);
        v->was = hth_read32(r);
        if (i && (v->rank < v[-1].rank || (v->rank == v[-1].rank && v->place <= v[-1].place)))
            r->bad = 1;
    }
}

static int pair_cmp(const struct hth_pair_note *p, uint32_t a, uint32_t b)
{
    if (p->a != a)
        return p->a < a ? -1 : 1;
    return p->b < b ? -1 : p->b > b;
}

static void read_pairs(struct hth_reader *r, struct hth_places *m)
{
    for (uint32_t i = 0; i < m->pairs; i++) {
        struct hth_pair_note *p = &m->pair[i];

        p->a = hth_read32(r);
        p->b = hth_read32(r);
        p->unreachable = hth_read32(r);
        hth_read_zeros(r, 4);
        p->last_ms = hth_read64(r);
        p->before_ms = hth_read64(r);
        if (p->a >= p->b || p->unreachable > 1 || (i && pair_cmp(&p[-1], p->a, p->b) >= 0))
            r->bad = 1;
    }
}

int hth_places_decode(
        struct hth_places *out, const void *bytes, size_t len, struct hearth_error *err)
{
    struct hth_reader r = { .at = bytes, .len = len };
    struct hth_places m = { 0 };

    hth_read_into(&r, m.forerunner, HTH_DIGEST);
    m.notes = hth_read32(&r);
    m.moves = hth_read32(&r);
    m.pairs = hth_read32(&r);
    hth_read_zeros(&r, 4);
    if (r.bad || m.notes > len / NOTE_BYTES || m.moves > len / MOVE_BYTES ||
            m.pairs > HTH_PAIRS_MAX || hth_places_bytes(&m) != len)
        return hth_fail(
                err, HEARTH_ECORRUPT, 0, "the holder map of %zu bytes is torn, or none", len);
    m.note = calloc(m.notes ? m.notes : 1, sizeof(*m.note));
    m.move = calloc(m.moves ? m.moves : 1, sizeof(*m.move));
    m.pair = calloc(m.pairs ? m.pairs : 1, sizeof(*m.pair));
    if (!m.note || !m.move || !m.pair) {
        hth_places_fini(&m);
        return hth_fail(err, HEARTH_ENOMEM, 0, "a holder map of %zu bytes", len);
    }
    read_notes(&r, &m);
    read_moves(&r, &m);
    read_pairs(&r, &m);
    if (r.bad) {
        hth_places_fini(&m);
        return hth_fail(err, HEARTH_ECORRUPT, 0, "the holder map holds what Hearth never writes");
    }
    *out = m;
    return HEARTH_OK;
}

void hth_places_fini(struct hth_places *m)
{
    free(m->note);
    free(m->move);
    free(m->pair);
    *m = (struct hth_places){ 0 };
}

const struct hth_note *hth_places_note(const struct hth_places *m, uint32_t node)
{
    uint32_t lo = 0, hi = m->notes;

    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;

        if (m->note[mid].node < node)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < m->notes && m->note[lo].node == node ? &m->note[lo] : NULL;
}

const struct hth_move *hth_places_move(const struct hth_places *m, uint32_t rank, uint32_t place)
{
    uint32_t lo = 0, hi = m->moves;

    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;
        const struct hth_move *v = &m->move[mid];

        if (v->rank < rank || (v->rank == rank && v->place < place))
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < m->moves && m->move[lo].rank == rank && m->move[lo].place == place ? &m->move[lo]
                                                                                   : NULL;
}

const struct hth_pair_note *hth_pair_note_find(
        const struct hth_pair_note *pair, uint32_t pairs, uint32_t a, uint32_t b)
{
    const uint32_t low = a < b ? a : b, high = a < b ? b : a;
    uint32_t from = 0, to = pairs;

    while (from < to) {
        const uint32_t at = from + (to - from) / 2;
        const struct hth_pair_note *p = &pair[at];

        if (p->a == low && p->b == high)
            return p;
        if (p->a < low || (p->a == low && p->b < high))
            from = at + 1;
        else
            to = at;
    }
    return NULL;
}

const struct hth_pair_note *hth_places_pair(const struct hth_places *m, uint32_t a, uint32_t b)
{
    return hth_pair_note_find(m->pair, m->pairs, a, b);
}
