/* SPDX-License-Identifier: Apache-2.0 */
/* One work at a time, submitted again until the end is reached or nobody wants it. */
#include "sweep.h"

static uint64_t piece_of(const struct hth_sweep *s)
{
    return s->len - s->at < HTH_SWEEP_PIECE ? s->len - s->at : HTH_SWEEP_PIECE;
}

static void piece_run(struct hth_work *work)
{
    struct hth_sweep *s = hth_owner_of(struct hth_sweep, work, work);

    s->code = s->piece(s, s->at, piece_of(s));
}

static void piece_done(struct hth_work *work);

static void submit(struct hth_sweep *s)
{
    s->work = (struct hth_work){ .run = piece_run, .done = piece_done };
    s->ctx->workers.submit(s->ctx->workers.self, &s->work);
}

static void piece_done(struct hth_work *work)
{
    struct hth_sweep *s = hth_owner_of(struct hth_sweep, work, work);

    s->at += piece_of(s);
    if (s->code || *s->vain || s->at == s->len)
        s->done(s);
    else
        submit(s);
}

void hth_sweep_start(struct hth_sweep *s)
{
    s->code = 0;
    s->at = 0;
    submit(s);
}
