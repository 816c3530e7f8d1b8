/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The progress that a handle shows while its save is undecided: how many bytes other nodes have of
 * it, and which nodes it waits for. It is looked at a few times a second, and sent when it has
 * changed; a save that is decided is not looked at any more, and its loan is over.
 */
#include "progress.h"

#include "engine/state/node_state.h"
#include "loan.h"

#include "core/base/crc.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LOOK_MS 200

static uint64_t progress_copied(struct hth_node *n, const struct loan *l)
{
    struct hth_held_save *s = hth_holdings_find(&n->ctx, l->save);
    uint64_t bytes = 0;

    for (const struct hth_held *h = s ? s->held : NULL; h; h = h->next)
        if (h->object.owner == l->rank)
            bytes += h->object.data_len * h->copies;
    return bytes;
}

static void progress_tell(
        struct hth_node *n, struct loan *l, enum hearth_level level, const char *whom)
{
    char text[256];
    uint64_t copied = progress_copied(n, l);
    uint32_t said;

    snprintf(text, sizeof(text), "waits for %.240s", whom);
    said = hth_crc32c(text, strlen(text)) ^ (uint32_t)level;
    if (said == l->said && copied == l->copied)
        return;
    l->said = said;
    l->copied = copied;
    loan_event(n, l, level, 0, HEARTH_OK, text);
}

void progress_tick(struct hth_node *n, uint64_t now_ms)
{
    struct loan *next;

    for (struct loan *l = n->loans; l; l = next) {
        enum hearth_level level = HEARTH_WRITTEN;
        char whom[256] = "";
        int degraded, code;

        next = l->next;
        if (!l->committed || now_ms < l->look_ms)
            continue;
        l->look_ms = now_ms + LOOK_MS;
        if (!n->ctx.epoch || l->dead ||
                hth_commit_status(n->commit, l->save, &level, &degraded, &code, whom) || code ||
                level >= HEARTH_PROTECTED)
            loan_free(n, l); /* its last event has been sent */
        else if (whom[0])
            progress_tell(n, l, level, whom);
    }
}

uint64_t progress_due_ms(const struct hth_node *n)
{
    uint64_t due_ms = HTH_NEVER;

    for (const struct loan *l = n->loans; l; l = l->next)
        if (l->committed && l->look_ms < due_ms)
            due_ms = l->look_ms;
    return due_ms;
}
