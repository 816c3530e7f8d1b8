/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A file of another program's container: it has no checksums of its parts, only the digest of the
 * whole file shows whether its bytes are right. So the whole file comes from one source, and that
 * source is remembered.
 *
 *   DATA ──all chunks here──► CHECK ──digest right──► sealed
 *    ▲ ▲                        └─────wrong: source bad, all chunks again──┐
 *    │ └───────────────────────────────────────────────────────────────────┘
 *    └── the source is away or out: the next one, all chunks again
 */
#include "transfer_parts.h"

#include "core/base/auth.h"
#include "core/foreign/foreign.h"
#include <string.h>

/* 1: a source that is not out has given wrong bytes less often than s. */
static int foreign_better_left(const struct hth_fetch *f, const struct source *s)
{
    for (uint32_t i = 0; i < f->sources; i++)
        if (f->source[i].state != SOURCE_OUT && f->source[i].bad < s->bad)
            return 1;
    return 0;
}

static int foreign_gives_now(const struct hth_fetch *f)
{
    return f->table_source != UINT32_MAX && f->source[f->table_source].state == SOURCE_GRANTED;
}

int hth_foreign_from(struct hth_fetch *f, const struct source *s)
{
    if (foreign_gives_now(f))
        return s == &f->source[f->table_source];
    return !foreign_better_left(f, s);
}

/* Begins the file again from another source. Chunks in flight from the source before stay BUSY
 * until they arrive, and are then pulled again. */
static void foreign_begin_again(struct hth_fetch *f)
{
    f->left = f->chunk1;
    f->cursor = 0;
    for (uint32_t c = 0; c < f->chunk1; c++)
        if (f->chunk[c] == CHUNK_RIGHT)
            f->chunk[c] = CHUNK_TODO;
}

void hth_foreign_begin(struct hth_fetch *f, struct source *s)
{
    uint32_t index = (uint32_t)(s - f->source);

    if (index == f->table_source)
        return;
    if (f->table_source != UINT32_MAX)
        foreign_begin_again(f);
    f->table_source = index;
}

void hth_foreign_digest_run(struct hth_work *work)
{
    struct hth_fetch *f = hth_owner_of(struct hth_fetch, work, work);
    unsigned char digest[HTH_DIGEST];

    hth_digest(digest, f->base, f->object.data_len);
    f->table_code = memcmp(digest, f->object.digest, HTH_DIGEST) ? HEARTH_ECORRUPT : HEARTH_OK;
    if (!f->table_code) /* no memory: its items are not listed from this copy */
        (void)hth_foreign_look(&f->look, f->object.name, f->base, f->object.data_len, NULL);
}

void hth_foreign_digest_done(struct hth_fetch *f)
{
    struct source *s = &f->source[f->table_source];

    if (f->table_code) {
        f->phase = PHASE_DATA;
        f->table_source = UINT32_MAX;
        foreign_begin_again(f);
        hth_source_bad(f, s, UNIT_FILE, "is not the one wanted");
        return;
    }
    f->held->look = f->look;
    hth_fetch_complete(f);
}

int hth_foreign_arrived(struct hth_fetch *f, const struct piece *p)
{
    struct source *s = &f->source[p->source];

    if (p->source != f->table_source) {
        f->chunk[p->unit] = CHUNK_TODO;
        if (p->unit < f->cursor)
            f->cursor = p->unit;
        return 0;
    }
    f->chunk[p->unit] = CHUNK_RIGHT;
    s->strikes = 0;
    if (--f->left)
        return 0;
    if (hth_breaks(f->ctx, HTH_BREAK_VERIFY)) {
        hth_fetch_complete(f);
        return 0;
    }
    hth_point(&f->ctx->points, "verify");
    f->phase = PHASE_CHECK;
    return 1;
}
