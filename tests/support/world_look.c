/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The model's eyes: what lies in a machine's memory, decoded here and not by the product, with sums
 * and an order of saves that are this file's own. An object is whole if its block and its table are
 * right, and its bytes are those that its rank wrote.
 */
#include "raws.h"
#include "world_parts.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PAGE      4096u
#define CHUNK     (UINT64_C(4) << 20)
#define RANKS_MAX (UINT32_C(1) << 20)

static uint64_t le(const unsigned char *p, int bytes)
{
    uint64_t v = 0;

    while (bytes--)
        v = v << 8 | p[bytes];
    return v;
}

/* ---- Order
 * ----------------------------------------------------------------------------------------- */

int look_before(struct hth_save_id a, struct hth_save_id b)
{
    if (a.epoch != b.epoch)
        return a.epoch < b.epoch;
    if (a.nonce != b.nonce)
        return a.nonce < b.nonce;
    if (a.step != b.step)
        return a.step < b.step;
    if (a.attempt >> 31 !=
            b.attempt >> 31) /* of one step a save of some ranks is older than one of all */
        return a.attempt >> 31 != 0;
    return a.attempt < b.attempt;
}

int look_same(struct hth_save_id a, struct hth_save_id b)
{
    return a.epoch == b.epoch && a.nonce == b.nonce && a.step == b.step && a.attempt == b.attempt;
}

static struct hth_save_id save_at(const unsigned char *p)
{
    return (struct hth_save_id){ le(p, 8), le(p + 8, 8), le(p + 16, 8), (uint32_t)le(p + 24, 4) };
}

/* ---- Sums
 * ------------------------------------------------------------------------------------------ */

/* CRC32C, eight bytes at a time (Kounavis and Berry 2005). */
static uint32_t sum(const unsigned char *p, size_t len)
{
    static uint32_t t[8][256];
    uint32_t c = UINT32_MAX;

    for (uint32_t i = 0; !t[0][255] && i < 256; i++) {
        t[0][i] = i;
        for (int k = 0; k < 8; k++)
            t[0][i] = t[0][i] >> 1 ^ (t[0][i] & 1 ? 0x82f63b78u : 0);
        for (int k = 1; i == 255 && k < 8; k++)
            for (uint32_t j = 0; j < 256; j++)
                t[k][j] = t[k - 1][j] >> 8 ^ t[0][t[k - 1][j] & 255];
    }
    for (; len >= 8; len -= 8, p += 8) {
        c ^= (uint32_t)le(p, 4);
        c = t[7][c & 255] ^ t[6][c >> 8 & 255] ^ t[5][c >> 16 & 255] ^ t[4][c >> 24] ^ t[3][p[4]] ^
            t[2][p[5]] ^ t[1][p[6]] ^ t[0][p[7]];
    }
    while (len--)
        c = c >> 8 ^ t[0][(c ^ *p++) & 255];
    return ~c;
}

/* ---- Objects
 * --------------------------------------------------------------------------------------- */

int look_slot(const struct slot *slot, struct look_object *out)
{
    const unsigned char *b = slot->pub.base;
    struct look_object o = { .data = b + PAGE };

    if (slot->state != SEALED || slot->pub.capacity < 2 * PAGE ||
            memcmp(b + 16, "HEARTH\r\n", 8) != 0)
        return 0;
    o.save = save_at(b + 32);
    o.rank = (uint32_t)le(b + 60, 4);
    o.len = le(b, 8);
    if (o.len < 8 || o.len > slot->pub.capacity - PAGE || o.rank >= RANKS_MAX)
        return 0;
    o.tag = le(o.data, 8);
    *out = o;
    return 1;
}

static int table_is_whole(const struct slot *slot, const struct look_object *o)
{
    const unsigned char *b = slot->pub.base;
    uint64_t off = le(b + 80, 8), len = le(b + 88, 8), chunks = (o->len + CHUNK - 1) / CHUNK;
    uint64_t items;

    if (off > slot->pub.capacity || len > slot->pub.capacity - off || len < 64 + 4 * chunks ||
            memcmp(b + off, "HTHTABLE", 8) != 0 || le(b + off + 16, 8) != o->len ||
            le(b + off + 24, 4) != chunks)
        return 0;
    items = le(b + off + 32, 8);
    if (items > len - 64 - 4 * chunks)
        return 0;
    for (uint64_t i = 0; i < chunks; i++) {
        uint64_t left = o->len - i * CHUNK;

        if (le(b + off + 64 + items + 4 * i, 4) !=
                sum(o->data + i * CHUNK, left < CHUNK ? left : CHUNK))
            return 0;
    }
    return 1;
}

static int bytes_are_written(const struct look_object *o)
{
    unsigned char *want = malloc(o->len + 8);
    int same;

    if (!want)
        abort();
    rank_fill(want, o->len, o->tag, o->save.step, o->rank);
    same = memcmp(want, o->data, o->len) == 0;
    free(want);
    return same;
}

int look_whole(const struct slot *slot, const struct look_object *o)
{
    const unsigned char *b = slot->pub.base;

    return le(b + PAGE - 4, 4) == sum(b, PAGE - 4) && table_is_whole(slot, o) &&
           bytes_are_written(o);
}

/* ---- Saves
 * ------------------------------------------------------------------------------------------ */

static int has_manifest(
        struct hth_store *s, struct hth_save_id save, uint32_t ranks, uint32_t objects)
{
    char name[100];

    snprintf(name, sizeof(name),
            "%016" PRIx64 "-%016" PRIx64 "-%016" PRIx64 "-%08" PRIx32 ".manifest", save.epoch,
            save.nonce, save.step, save.attempt);
    for (const struct file *f = mem_of(s)->files; f; f = f->next)
        if (!f->dir && !strcmp(f->name, name)) {
            const unsigned char *b = f->bytes;

            return f->len > 192 && !memcmp(b, "HTHMANIF", 8) && look_same(save_at(b + 16), save) &&
                   le(b + 12, 4) == ranks && le(b + 144, 4) >= objects;
        }
    return 0;
}

uint32_t look_ranks(const struct world *w, const struct look_object *o)
{
    uint64_t lineage = rank_tag_lineage(o->tag);

    return lineage && lineage <= w->lineage ? w->launch_ranks[lineage] : 0;
}

int look_part(const struct world *w, const struct look_object *o, uint32_t rank)
{
    return !rank_tag_some(o->tag) ||
           some_have(rank_tag_lineage(o->tag), o->save.step, look_ranks(w, o), rank);
}

/* Of `count` machines, those that hold the common object of the save, as its launch wrote it. */
static uint32_t count_commons(struct world *w, struct hth_save_id save, uint64_t tag,
        const uint32_t *machine, uint32_t count)
{
    unsigned char common[WORLD_COMMON_MAX];
    uint64_t len = world_common(common, tag, save.step);
    uint32_t have = 0;

    for (uint32_t i = 0; i < count; i++) {
        struct hth_store *s = w->machine[machine ? machine[i] : i].store;

        have += s && raw_is(s, save, WORLD_COMMON, common, len);
    }
    return have;
}

/* have[ranks_max]: of `count` machines, the number that holds each rank's object (UINT32_MAX: the
 * rank took no part), and the number that holds the common object. Returns the number of ranks of
 * the save's launch; 0: no machine has its manifest. */
static uint32_t count_copies(struct world *w, struct hth_save_id save, const uint32_t *machine,
        uint32_t count, uint32_t *have, uint32_t *out_commons)
{
    uint32_t ranks = 0, manifests = 0, part = 0;
    struct look_object o, any = { .tag = 0 };

    for (uint32_t i = 0; i < count; i++) {
        struct hth_store *s = w->machine[machine ? machine[i] : i].store;

        if (!s)
            continue;
        for (const struct slot *slot = mem_of(s)->slots; slot; slot = slot->next)
            if (look_slot(slot, &o) && look_same(o.save, save) && o.rank < w->ranks_max &&
                    look_whole(slot, &o)) {
                have[o.rank]++;
                ranks = ranks ? ranks : look_ranks(w, &o);
                any = o;
            }
        if (ranks && !part)
            for (uint32_t r = 0; r < ranks; r++)
                part += (uint32_t)look_part(w, &any, r);
        manifests += ranks && has_manifest(s, save, ranks, part);
    }
    for (uint32_t r = 0; r < ranks; r++)
        if (!look_part(w, &any, r))
            have[r] = UINT32_MAX;
    *out_commons = manifests && ranks ? count_commons(w, save, any.tag, machine, count) : 0;
    return manifests ? ranks : 0;
}

/* *out_rank: the rank whose object is on fewest machines; UINT32_MAX: the common object is. */
static uint32_t least_copies(struct world *w, struct hth_save_id save, const uint32_t *machine,
        uint32_t count, uint32_t *out_rank)
{
    uint32_t *have = calloc(w->ranks_max, sizeof(*have)), least, ranks;

    if (!have)
        abort();
    ranks = count_copies(w, save, machine, count, have, &least);
    *out_rank = UINT32_MAX;
    for (uint32_t r = 0; r < ranks; r++)
        if (have[r] < least) {
            least = have[r];
            *out_rank = r;
        }
    free(have);
    return ranks ? least : 0;
}

uint32_t look_copies(struct world *w, struct hth_save_id save, uint32_t without)
{
    uint32_t *members = malloc(w->opts.nodes * sizeof(*members)), count = 0, rank, least;

    if (!members)
        abort();
    for (uint32_t i = 0; i < w->opts.nodes; i++)
        if (w->member[i] != without)
            members[count++] = w->member[i];
    least = least_copies(w, save, members, count, &rank);
    free(members);
    return least;
}

uint32_t look_anywhere(struct world *w, struct hth_save_id save, uint32_t *out_rank)
{
    return least_copies(w, save, NULL, w->machines, out_rank);
}

uint32_t look_racks(struct world *w, struct hth_save_id save)
{
    uint32_t *members = malloc(w->opts.nodes * sizeof(*members));
    uint32_t *have = calloc(w->ranks_max, sizeof(*have)),
             *racks = calloc(w->ranks_max, sizeof(*racks));
    uint32_t ranks = 0, least = UINT32_MAX, common;

    if (!members || !have || !racks)
        abort();
    for (uint32_t rack = 0; rack < w->opts.racks; rack++) {
        uint32_t count = 0, found;

        for (uint32_t i = rack; i < w->opts.nodes; i += w->opts.racks)
            members[count++] = w->member[i];
        memset(have, 0, w->ranks_max * sizeof(*have));
        found = count_copies(w, save, members, count, have, &common);
        ranks = found ? found : ranks;
        for (uint32_t r = 0; r < found; r++)
            racks[r] += have[r] == UINT32_MAX ? w->opts.racks : have[r] > 0;
    }
    for (uint32_t r = 0; r < ranks; r++)
        least = racks[r] < least ? racks[r] : least;
    free(members);
    free(have);
    free(racks);
    return ranks ? least : 0;
}

uint32_t look_keep(const void *bytes, size_t len, struct hth_save_id out[16])
{
    const unsigned char *b = bytes;
    uint32_t saves;

    if (len < 64 + 16 * 32 || memcmp(b, "HTHKEEPS", 8) != 0)
        return 0;
    saves = (uint32_t)le(b + 32, 4);
    for (uint32_t i = 0; i < saves && i < 16; i++)
        out[i] = save_at(b + 64 + (size_t)32 * i);
    return saves < 16 ? saves : 16;
}

uint32_t look_degraded(const void *bytes, size_t len, uint64_t epoch)
{
    const unsigned char *b = bytes;

    return len >= 64 && le(b + 16, 8) == epoch ? (uint32_t)le(b + 40, 4) : UINT32_MAX;
}
