/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The coordinator's log grows by a head: on record here, then told. What cannot be written is not
 * decided: it is said, and tried again.
 */
#include "commit_state.h"

#include <stdlib.h>
#include <string.h>

static int append_name(struct hth_commit *c, struct hth_head *next, struct hth_places *map)
{
    size_t len = hth_places_bytes(map);
    unsigned char *bytes = malloc(len);

    if (!bytes)
        return HEARTH_ENOMEM;
    head_chain(c, map->forerunner);
    hth_places_encode(map, bytes);
    hth_digest(next->map, bytes, len);
    free(bytes);
    next->mapped = next->position;
    next->settled = 0; /* nobody has promised anything under it */
    return HEARTH_OK;
}

/* `map`: taken over; NULL: the same as before. */
int append_head(struct hth_commit *c, struct hth_head *next, struct hth_places *map)
{
    struct hth_ctx *ctx = c->ctx;
    struct hearth_error err = { .text = "no memory" };
    int rc;

    next->position = c->head.position + 1;
    rc = map ? append_name(c, next, map) : HEARTH_OK;
    rc = rc ? rc : head_put(c, next, map, &err);
    if (map)
        hth_places_fini(map);
    if (rc) {
        hth_say(&ctx->log, HEARTH_LOG_ERROR, "head-failed",
                "nothing is decided while that cannot be put on record: %s", err.text);
        c->coord.look = 1;
        c->coord.look_ms = hth_now_ms(&ctx->clock) + ctx->opts.retry_ms;
        return rc;
    }
    if (next->mapped == next->position)
        tallies_void(c);
    append_tell(c, HTH_NODE_NONE, next->mapped == next->position);
    return HEARTH_OK;
}

/* To all, by pull; given once. */
static void append_give(struct hth_commit *c, size_t len)
{
    struct hth_blob_id id = head_map_id(&c->head);
    unsigned char *bytes = malloc(len);
    struct hearth_error err;

    if (!bytes)
        return;
    hth_places_encode(&c->map, bytes);
    if (hth_blob_give(c->ctx, &id, bytes, len, &err))
        hth_say(&c->ctx->log, HEARTH_LOG_ERROR, "map-failed", "%s", err.text);
    free(bytes);
}

void append_tell(struct hth_commit *c, uint32_t node, int with_map)
{
    size_t map_len = hth_places_bytes(&c->map);
    int fits = hth_head_bytes(map_len) <= HTH_TREE_MAX && !hth_breaks(c->ctx, HTH_TEST_BLOB);
    unsigned char *word;
    size_t len;

    if (with_map && !fits)
        append_give(c, map_len);
    if (head_word(c, with_map && fits, &word, &len))
        return; /* who has missed it says so */
    if (node == HTH_NODE_NONE)
        hth_tree_down(c->ctx, HTH_KIND_HEAD, word, len);
    else
        hth_tree_to(c->ctx, node, HTH_KIND_HEAD, word, len);
    free(word);
}
