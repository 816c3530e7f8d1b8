/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A rank counts its begins of a step here. All ranks that save together count theirs, refused ones
 * too, and so agree on the attempt of a save without a message. An engine that was started again
 * has no count of its own.
 */
#include "link.h"

#include "link_parts.h"

uint32_t hth_count_locked(struct hearth *h, uint64_t step, const struct hth_ranks *ranks)
{
    if (h->opts.helper)
        return 0;
    return hth_attempts_next(&h->link->begun, step, ranks ? hth_ranks_bits(ranks) : 0);
}

void hth_counted_locked(struct hearth *h, struct hth_save_id save)
{
    if (save.epoch == h->epoch && save.nonce == h->nonce)
        hth_attempts_heard(&h->link->begun, save.step, save.attempt);
}
