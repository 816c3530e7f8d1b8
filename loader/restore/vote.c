/* SPDX-License-Identifier: Apache-2.0 */
/* A member's vote for a plan: yes, or the first reason why this node could not carry it out. */
#include "restore_state.h"

#include "core/base/bytes.h"

#include <stdio.h>
#include <string.h>

void vote_no(struct hth_restore *r, int code, const char *text)
{
    if (r->failed_code)
        return;
    r->failed_code = code;
    snprintf(r->failed, sizeof(r->failed), "node %.64s: %.400s",
            r->ctx->epoch->member[r->ctx->epoch->self].node, text);
}

void vote_say(struct hth_restore *r)
{
    unsigned char body[8 + sizeof(r->failed)];
    size_t len = r->failed_code ? strlen(r->failed) : 0;

    hth_put32(body, r->plan.serial);
    hth_put32(body + 4, (uint32_t)r->failed_code);
    memcpy(body + 8, r->failed, len);
    hth_tree_up(r->ctx, HTH_KIND_VOTE, body, 8 + len);
}

void vote_cast(struct hth_restore *r)
{
    uint64_t now_ms = hth_now_ms(&r->ctx->clock);

    r->t_vote = now_ms;
    r->repeat_ms = now_ms + r->ctx->opts.retry_ms;
    r->state = VOTED;
    hth_point(&r->ctx->points, "vote");
    vote_say(r);
}
