/* SPDX-License-Identifier: Apache-2.0 */
/* The head of an epoch's log and the map that it names: what goes in comes out, and nothing else is
 * taken. */
#include "damaged.h"

#include "core/format/head.h"
#include "core/format/places.h"
#include <unistd.h>

static const struct hth_note notes[2] = { { 1, 1, 2, 3, 40, 0 }, { 3, 0, 1, 9, 60, 50 } };
static const struct hth_move moves[3] = { { 0, 0, 2, 1 }, { 0, 1, 3, 2 }, { 4, 0, 2, 1 } };

static const struct hth_pair_note pairs[2] = { { 1, 4, 1, 70, 0 }, { 2, 3, 0, 80, 75 } };

static struct hth_places map;
static unsigned char map_bytes[512], bytes[HTH_HEAD_BYTES + 512];
static size_t map_len;

static void setup(void)
{
    static struct hth_note note[2];
    static struct hth_move move[3];
    static struct hth_pair_note pair[HTH_PAIRS_MAX + 1];

    alarm(60);
    must(hth_auth_init(NULL));
    hth_places_first(&map, 7, 11);
    memcpy(note, notes, sizeof(note));
    memcpy(move, moves, sizeof(move));
    memcpy(pair, pairs, sizeof(pairs));
    map.pair = pair;
    map.pairs = 2;
    map.note = note;
    map.move = move;
    map.notes = 2;
    map.moves = 3;
}

TestSuite(head, .init = setup);

static int decode_map(const unsigned char *at, size_t len)
{
    struct hth_places m;
    int rc = hth_places_decode(&m, at, len, NULL);

    if (!rc)
        hth_places_fini(&m);
    return rc;
}

/* As it is now. */
static int map_taken(void)
{
    hth_places_encode(&map, map_bytes);
    map_len = hth_places_bytes(&map);
    return decode_map(map_bytes, map_len);
}

Test(head, a_map_comes_back_and_finds_notes_moves_and_pairs)
{
    struct hth_places m;

    must(map_taken());
    must(hth_places_decode(&m, map_bytes, map_len, NULL));
    cr_assert(eq(u64, hth_places_note(&m, 3)->before_ms, 50));
    cr_assert(eq(ptr, (void *)(uintptr_t)hth_places_note(&m, 2), NULL));
    cr_assert(eq(u32, hth_places_move(&m, 0, 1)->node, 3));
    cr_assert(eq(u32, hth_places_move(&m, 4, 0)->was, 1));
    cr_assert(eq(ptr, (void *)(uintptr_t)hth_places_move(&m, 4, 1), NULL));
    cr_assert(eq(u64, hth_places_pair(&m, 3, 2)->before_ms, 75));
    cr_assert(eq(u32, hth_places_pair(&m, 1, 4)->unreachable, 1));
    cr_assert(eq(ptr, (void *)(uintptr_t)hth_places_pair(&m, 1, 3), NULL));
    hth_places_fini(&m);
    refuses_lengths(decode_map, map_bytes, map_len);
}

Test(head, a_map_that_says_a_thing_twice_or_out_of_order_is_refused)
{
    map.note[1].node = 1;
    must_fail(map_taken(), HEARTH_ECORRUPT);
    map.note[1].node = 0;
    must_fail(map_taken(), HEARTH_ECORRUPT);
    map.note[1].node = 3;
    map.note[1].lost = 2;
    must_fail(map_taken(), HEARTH_ECORRUPT);
    map.note[1].lost = 0;
    must(map_taken());
    map.move[1].place = 0;
    must_fail(map_taken(), HEARTH_ECORRUPT);
    map.move[1].place = 1;
    map.move[0].rank = 1;
    must_fail(map_taken(), HEARTH_ECORRUPT);
    map.move[0].rank = 0;
    map.pair[1].a = 1;
    must_fail(map_taken(), HEARTH_ECORRUPT);
    map.pair[1].b = 5;
    must(map_taken());
    map.pair[1].a = 5;
    must_fail(map_taken(), HEARTH_ECORRUPT);
    map.pair[1].a = 1;
    map.pair[1].unreachable = 2;
    must_fail(map_taken(), HEARTH_ECORRUPT);
}

Test(head, a_map_has_so_many_pairs_and_no_more)
{
    static unsigned char large[512 + (HTH_PAIRS_MAX + 1) * 32];
    size_t len;

    for (map.pairs = HTH_PAIRS_MAX; map.pairs <= HTH_PAIRS_MAX + 1; map.pairs++) {
        for (uint32_t i = 0; i < map.pairs; i++)
            map.pair[i] = (struct hth_pair_note){ i, i + 1, 1, 1, 0 };
        hth_places_encode(&map, large);
        len = hth_places_bytes(&map);
        cr_assert(eq(int, decode_map(large, len),
                map.pairs > HTH_PAIRS_MAX ? HEARTH_ECORRUPT : HEARTH_OK));
    }
}

static struct hth_head head_of(void)
{
    return (struct hth_head){ .epoch = 7,
        .nonce = 11,
        .position = 5,
        .mapped = 5,
        .settled = 1,
        .decided = { 7, 11, 40, 1 },
        .cancels = 1,
        .cancelled = { { { 7, 11, 50, 1 }, HEARTH_ETIMEOUT, 1 } },
        .why = "too late",
        .keep = { .epoch = 7, .serial = 2, .saves = 1, .save = { { 7, 11, 40, 1 } } } };
}

static int decode_head(const unsigned char *at, size_t len)
{
    const unsigned char *out_map;
    struct hth_head h;
    size_t out_len;

    return hth_head_decode(&h, &out_map, &out_len, at, len, NULL);
}

Test(head, a_head_comes_back_with_its_map)
{
    struct hth_head h = head_of(), back;
    const unsigned char *out_map;
    size_t out_len;

    must(map_taken());
    hth_head_encode(&h, map_bytes, map_len, bytes);
    must(hth_head_decode(&back, &out_map, &out_len, bytes, hth_head_bytes(map_len), NULL));
    cr_assert(eq(u64, back.position, 5));
    cr_assert(eq(u64, back.mapped, 5));
    cr_assert(eq(int, hth_save_cmp(back.cancelled[0].save, h.cancelled[0].save), 0));
    cr_assert(eq(int, back.cancelled[0].code, HEARTH_ETIMEOUT));
    must_say(back.why, "too late");
    cr_assert(eq(u64, back.keep.serial, 2));
    cr_assert(eq(sz, out_len, map_len));
    cr_assert(zero(int, memcmp(out_map, map_bytes, map_len)));
    refuses_all_damage(decode_head, bytes, hth_head_bytes(map_len));
}

Test(head, a_map_is_not_newer_than_the_head_that_names_it)
{
    struct hth_head h = head_of();

    h.mapped = 6;
    hth_head_encode(&h, NULL, 0, bytes);
    must_fail(decode_head(bytes, hth_head_bytes(0)), HEARTH_ECORRUPT);
    h.position = 6;
    hth_head_encode(&h, NULL, 0, bytes);
    must(decode_head(bytes, hth_head_bytes(0)));
}
