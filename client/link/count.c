/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A rank's begins of a step, counted here: all ranks count theirs, refused ones too, and so agree on which
 * attempt a save is without asking anybody. An engine that was started again has no count of its own.
 */
#include "link.h"

#include "link_parts.h"

uint32_t hth_count_locked(struct hearth *h, uint64_t step)
{
    struct hth_link *link = h->link;

    if (h->opts.helper || (link->last_begins && step < link->last_step))
        return 0;
    if (!link->last_begins || step > link->last_step)
        link->last_begins = 0;
    link->last_step = step;
    return ++link->last_begins;
}

void hth_counted_locked(struct hearth *h, struct hth_save_id save)
{
    struct hth_link *link = h->link;

    if (save.epoch != h->epoch || save.nonce != h->nonce || !save.attempt ||
            (link->last_begins && save.step < link->last_step))
        return;
    if (save.step != link->last_step || save.attempt > link->last_begins)
        link->last_begins = save.attempt;
    link->last_step = save.step;
}
