/* SPDX-License-Identifier: Apache-2.0 */
/* One work at a time, submitted again until the end is reached or the work is given up. */
#include "sweep.h"

#define SWEEP_PIECE (UINT64_C(16) << 20) /* bytes: some 20 ms of a digest */

static uint64_t sweep_piece(const struct hth_sweep *s)
{
    return s->len - s->at < SWEEP_PIECE ? s->len - s->at : SWEEP_PIECE;
}

static void sweep_run(struct hth_work *work)
{
    struct hth_sweep *s = hth_owner_of(struct hth_sweep, work, work);

    s->code = s->piece(s, s->at, sweep_piece(s));
}

static void sweep_done(struct hth_work *work);

static void sweep_submit(struct hth_sweep *s)
{
    s->work = (struct hth_work){ .run = sweep_run, .done = sweep_done };
    s->ctx->workers.submit(s->ctx->workers.self, &s->work);
}

static void sweep_done(struct hth_work *work)
{
    struct hth_sweep *s = hth_owner_of(struct hth_sweep, work, work);

    s->at += sweep_piece(s);
    if (s->code || *s->vain || s->at == s->len)
        s->done(s);
    else
        sweep_submit(s);
}

void hth_sweep_start(struct hth_sweep *s)
{
    s->code = 0;
    s->at = 0;
    sweep_submit(s);
}
