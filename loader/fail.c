/* SPDX-License-Identifier: Apache-2.0 */
/* The epoch has failed: the coordinator tells everybody why, and again whoever asks as if it had not. */
#include "recover_state.h"

#include "core/base/bytes.h"

#include <string.h>

void fail_epoch(struct hth_recover *r, int code, const char *text)
{
    struct coordinator *co = &r->co;
    size_t len;

    if (co->gone || co->failed_len || r->state == ENDED)
        return;
    len = strnlen(text, sizeof(co->failed) - 4);
    hth_put32(co->failed, (uint32_t)code);
    memcpy(co->failed + 4, text, len);
    co->failed_len = 4 + len;
    hth_say(&r->ctx->log, HEARTH_LOG_ERROR, "recovery-failed", "%s", text);
    hth_tree_down(r->ctx, HTH_KIND_EPOCH_FAILED, co->failed, co->failed_len);
}

int fail_again(struct hth_recover *r, uint32_t node)
{
    if (!r->co.failed_len)
        return 0;
    hth_tree_to(r->ctx, node, HTH_KIND_EPOCH_FAILED, r->co.failed, r->co.failed_len);
    return 1;
}
