/* SPDX-License-Identifier: Apache-2.0 */
/* The epoch has failed: the coordinator sends the reason to all members, and again to each
 * member that did not receive it. */
#include "choice_state.h"

#include "core/base/bytes.h"

#include <string.h>

void hth_choice_fail(struct hth_choice *co, int code, const char *text)
{
    size_t len;

    if (co->gone || co->failed_len || hth_restore_ended(co->restore))
        return;
    len = strnlen(text, sizeof(co->failed) - 4);
    hth_put32(co->failed, (uint32_t)code);
    memcpy(co->failed + 4, text, len);
    co->failed_len = 4 + len;
    hth_say(&co->ctx->log, HEARTH_LOG_ERROR, "recovery-failed", "%s", text);
    hth_tree_down(co->ctx, HTH_KIND_EPOCH_FAILED, co->failed, co->failed_len);
}

int fail_again(struct hth_choice *co, uint32_t node)
{
    if (!co->failed_len)
        return 0;
    hth_tree_to(co->ctx, node, HTH_KIND_EPOCH_FAILED, co->failed, co->failed_len);
    return 1;
}
