/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A copy of an undecided save that has no room. Its holder says so with HELD, in the sentence of
 * which node the save waits for, and once in the log. Room comes when an older save is decided, or
 * when a map is settled and copies go that have moved: until then the save waits. Where neither is
 * to come, all that is here is kept, or is this save, or is newer and waits for room as this one
 * does: then nothing makes room any more, and the save fails.
 */
#include "commit_state.h"

#include <stdio.h>
#include <string.h>

/* A refusal is said again with each offer. What stands in brackets is for the log of its node. */
static void lacks_say(struct hth_commit *c, struct track *t, uint32_t node, const char *text)
{
    uint64_t now_ms = hth_now_ms(&c->ctx->clock);
    const char *brackets = strstr(text, " (");
    size_t length = brackets ? (size_t)(brackets - text) : strlen(text);

    if (now_ms >= t->lacks.until_ms || t->lacks.node != node)
        t->lacks.since_ms = t->lacks.sure_ms = now_ms;
    t->lacks.until_ms = now_ms + 5 * (uint64_t)c->ctx->opts.retry_ms;
    t->lacks.node = node;
    if (length > sizeof(t->lacks.text) - 24)
        length = sizeof(t->lacks.text) - 24;
    snprintf(t->lacks.text, sizeof(t->lacks.text), "no room for a copy: %.*s", (int)length, text);
}

/* A save that is decided frees its copies, or what it takes the place of. */
static int lacks_may_end(const struct hth_commit *c, const struct track *t)
{
    if (c->ctx->keep.saves && !c->head.settled)
        return 1;
    for (const struct track *o = t->next; o; o = o->next) /* older */
        if (head_is_open(c, o->id))
            return 1;
    return 0;
}

void lacks_there(struct hth_commit *c, struct track *t, uint32_t node, const char *text)
{
    if (!track_lacks(c, t) || t->lacks.node != c->ctx->epoch->self)
        lacks_say(c, t, node, text);
}

/* Half of dead_ms: another process may just give memory back, or a worker of ours. */
void hth_commit_no_room(struct hth_commit *c, struct hth_save_id save, int code, const char *text)
{
    struct track *t = track_find(c, save);
    uint64_t now_ms = hth_now_ms(&c->ctx->clock), most_ms = c->ctx->opts.dead_ms / 2;

    if (!t || t->fail_code || !head_is_open(c, save))
        return;
    lacks_say(c, t, c->ctx->epoch->self, text);
    if (code != HEARTH_ENOSPC || lacks_may_end(c, t))
        t->lacks.sure_ms = now_ms;
    if (now_ms < t->lacks.since_ms + most_ms)
        return;
    if (!t->lacks.warned)
        hth_say(&c->ctx->log, HEARTH_LOG_WARN, "no-room", HTH_SAVE ": no room for a copy: %s",
                HTH_SAVE_ARGS(save), text);
    t->lacks.warned = 1;
    if (now_ms >= t->lacks.sure_ms + most_ms)
        hth_commit_fail(c, save, HEARTH_ENOSPC, t->lacks.text);
}
