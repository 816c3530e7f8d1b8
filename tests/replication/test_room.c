/* SPDX-License-Identifier: Apache-2.0 */
/* A copy that has no room at its holder: whether its save waits, what is reported of it, and how it
 * ends. */
#include "member.h"

#include <stdio.h>

static void begin_with_a_save(void)
{
    struct hth_save_id id;

    begin();
    must(hth_commit_begin(commit, 1, save.step, NULL, &id, NULL));
}

TestSuite(room, .init = begin_with_a_save, .fini = end);

#define WHY                                                                            \
    "900 bytes do not fit: its file system has room for 8; raise that, or keep fewer " \
    "steps"
#define DETAILS " (in /job: free in its file system 9 bytes)"

/* The copy is refused as often as it is offered. Returns how often node 0 received the fact. */
static uint32_t refuse(int code, uint16_t kind, uint64_t ms)
{
    uint32_t before = said[kind];

    for (uint64_t end_ms = p->now_ms + ms; p->now_ms < end_ms;) {
        hth_commit_no_room(commit, save, code, WHY DETAILS);
        (void)heard(kind, ctx->opts.retry_ms);
    }
    return said[kind] - before;
}

static const char *reason(void)
{
    static char text[HTH_TREE_MAX];
    const struct pair_node *n = &p->node[0];

    snprintf(text, sizeof(text), "%.*s", (int)(n->len - 36), (const char *)n->fact + 36);
    return text;
}

Test(room, a_save_ends_soon_where_nothing_can_make_room_any_more)
{
    cr_assert(zero(u32, refuse(HEARTH_ENOSPC, HTH_KIND_FAILED, ctx->opts.dead_ms / 4)));
    cr_assert(ge(u32, refuse(HEARTH_ENOSPC, HTH_KIND_FAILED, ctx->opts.dead_ms), 1));
    cr_assert(eq(int, (int)p->node[0].kind, HTH_KIND_FAILED));
    cr_assert(eq(int, (int)hth_get32(p->node[0].fact + 32), HEARTH_ENOSPC));
    must_say(reason(), "node node1: no room for a copy: " WHY);
}

Test(room, is_warned_of_once_a_save)
{
    (void)refuse(HEARTH_EBUSY, HTH_KIND_FAILED, 4 * ctx->opts.dead_ms);
    cr_assert(eq(int, pair_logged(p, 1, "no-room"), 1));
    cr_assert(ne(ptr, strstr(p->node[1].last, "no room for a copy: " WHY DETAILS), NULL), "%s",
            p->node[1].last);
}

Test(room, what_is_refused_for_a_moment_is_neither_warned_of_nor_ended)
{
    for (int i = 0; i < 8; i++) {
        (void)refuse(HEARTH_ENOSPC, HTH_KIND_FAILED, ctx->opts.dead_ms / 4);
        (void)heard(HTH_KIND_FAILED, SOON_MS);
    }
    cr_assert(zero(u32, said[HTH_KIND_FAILED]));
    cr_assert(zero(int, pair_logged(p, 1, "no-room")));
}

/* Its slots are in use: they come back when others end. */
Test(room, waits_for_slots_that_are_in_use)
{
    cr_assert(zero(u32, refuse(HEARTH_EBUSY, HTH_KIND_FAILED, 4 * ctx->opts.dead_ms)));
}

/* Another step, older, which a rank here has begun. */
static struct hth_save_id begin_older(void)
{
    struct hth_save_id older;

    hth_commit_close(commit);
    engine_start();
    must(hth_commit_begin(commit, 1, save.step - 1, NULL, &older, NULL));
    must(hth_commit_begin(commit, 1, save.step, NULL, &(struct hth_save_id){ 0 }, NULL));
    return older;
}

Test(room, waits_while_an_older_save_is_undecided_and_half_of_dead_ms_longer)
{
    struct hth_places map;

    cancelled = begin_older();
    cr_assert(zero(u32, refuse(HEARTH_ENOSPC, HTH_KIND_FAILED, 4 * ctx->opts.dead_ms)));
    hth_places_first(&map, save.epoch, save.nonce);
    give_head(1, &map, &ctx->keep);
    cr_assert(zero(u32, refuse(HEARTH_ENOSPC, HTH_KIND_FAILED, ctx->opts.dead_ms / 4)));
    cr_assert(ge(u32, refuse(HEARTH_ENOSPC, HTH_KIND_FAILED, ctx->opts.dead_ms), 1));
}

/* Each would wait for the other: the older one gives its room up. */
Test(room, does_not_wait_for_a_newer_save)
{
    struct hth_save_id newer;

    must(hth_commit_begin(commit, 1, save.step + 1, NULL, &newer, NULL));
    cr_assert(ge(u32, refuse(HEARTH_ENOSPC, HTH_KIND_FAILED, ctx->opts.dead_ms), 1));
}

/* Copies go with the map that is settled. */
Test(room, waits_while_the_map_of_what_is_kept_is_not_settled)
{
    struct hth_keep keep = { .epoch = save.epoch, .serial = 1, .saves = 1, .save = { save } };
    struct hth_places map;

    keep.save[0].step = save.step - 2;
    hth_places_first(&map, save.epoch, save.nonce);
    unsettled = 1;
    give_head(1, &map, &keep);
    cr_assert(zero(u32, refuse(HEARTH_ENOSPC, HTH_KIND_FAILED, 4 * ctx->opts.dead_ms)));
    unsettled = 0;
    give_head(2, &map, &keep);
    cr_assert(ge(u32, refuse(HEARTH_ENOSPC, HTH_KIND_FAILED, ctx->opts.dead_ms), 1));
}

/* ---- The facts that are sent while a save waits ---------------------------------------------- */

static size_t reason_len; /* of the last HELD */

static void on_held(struct pair_node *n)
{
    if (n->kind == HTH_KIND_HELD)
        reason_len = n->len - 32;
}

Test(room, held_has_the_reason_after_complete_too_until_there_is_room)
{
    struct hth_object object[2] = { seal(copy)->object, seal(own)->object };
    unsigned char word[32] = { 0 };

    p->node[0].on_fact = on_held;
    hth_held_drop(ctx, hth_holdings_find(ctx, save), pair_held(p, 1, save, copy));
    hth_put64(word, save.epoch);
    hth_put64(word + 8, save.nonce);
    hth_put64(word + 16, save.step);
    hth_put32(word + 24, save.attempt);
    give_manifest(object, 2);
    hth_commit_deliver(commit, 0, HTH_KIND_COMPLETE, word, sizeof(word));
    (void)heard(HTH_KIND_HELD, 50);
    cr_assert(zero(sz, reason_len));
    cr_assert(ge(u32, refuse(HEARTH_EBUSY, HTH_KIND_HELD, 2 * ctx->opts.dead_ms), 1));
    cr_assert(eq(sz, reason_len, strlen("no room for a copy: " WHY)));
    cr_assert(ge(u32, heard(HTH_KIND_HELD, 2 * SOON_MS), 1));
    cr_assert(zero(sz, reason_len));
}

Test(room, a_rank_that_waits_hears_which_node_has_no_room)
{
    char text[300];

    (void)refuse(HEARTH_EBUSY, HTH_KIND_FAILED, SOON_MS);
    hth_commit_text(commit, text, sizeof(text));
    cr_assert(ne(ptr, strstr(text, "node node1: no room for a copy: 900 bytes"), NULL), "%s", text);
    (void)heard(HTH_KIND_FAILED, 2 * SOON_MS);
    hth_commit_text(commit, text, sizeof(text));
    cr_assert(zero(ptr, strstr(text, "no room")), "%s", text);
}

/* Node 2 holds the copy of what is owned here, and has room for nothing. */
Test(room, so_does_a_rank_whose_copy_another_node_has_no_room_for)
{
    struct hth_held *held = seal(own);
    char text[300];

    p->node[2].wanted = HEARTH_OK;
    hth_store_mem_room(p->node[2].store, 1);
    hth_commit_sealed(commit, hth_holdings_find(ctx, save), held);
    (void)heard(HTH_KIND_FAILED, SOON_MS);
    hth_commit_text(commit, text, sizeof(text));
    cr_assert(ne(ptr, strstr(text, "node node2: no room for a copy: "), NULL), "%s", text);
    cr_assert(zero(u32, said[HTH_KIND_FAILED]), "its holder says when that is for good");
}

Test(room, a_save_that_was_cancelled_for_want_of_room_has_that_code)
{
    enum hearth_level level;
    struct hth_places map;
    int degraded, code;
    char text[256];

    cancelled = save;
    cancelled_code = HEARTH_ENOSPC;
    hth_places_first(&map, save.epoch, save.nonce);
    give_head(1, &map, &ctx->keep);
    must(hth_commit_status(commit, save, &level, &degraded, &code, text));
    cr_assert(eq(int, code, HEARTH_ENOSPC));
}
