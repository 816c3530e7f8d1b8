/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A checkpoint: the id of a save and its manifest. Nothing is read when it is made; items and bytes
 * come when they are asked for.
 */
#include "checkpoint.h"

#include "core/base/opts.h"
#include "core/format/manifest.h"
#include "fetch.h"
#include "index.h"
#include "source.h"
#include <stdlib.h>
#include <sys/mman.h>

/* Checkpoints so far, of all jobs of this process: items of one are not taken for items
 * of another. */
static _Atomic uint32_t opened = 1;

int hth_checkpoint_enter(const struct hearth_checkpoint *c, struct hearth_error *err)
{
    if (!c)
        return hth_fail(err, HEARTH_EINVAL, 0,
                "the checkpoint is NULL: hearth_recover() or hearth_checkpoint_open() gives one");
    return hth_enter(c->h, err);
}

static int source_by_owner(const void *a, const void *b, void *arg)
{
    const struct hth_object *x = ((const struct hth_source *)a)->object;
    const struct hth_object *y = ((const struct hth_source *)b)->object;
    uint32_t rank = *(const uint32_t *)arg;
    int mine_x = x->owner == rank, mine_y = y->owner == rank;

    if (mine_x != mine_y)
        return mine_y - mine_x;
    return x->id < y->id ? -1 : x->id > y->id;
}

/* Files of others are read if a rank is in their name, or `.metadata` names them. */
static int object_has_items(const struct hth_object *o)
{
    if (o->kind == HTH_OBJECT_FOREIGN)
        return o->owner != HTH_OWNER_NONE || o->listed;
    return o->kind == HTH_OBJECT_SHARD && o->table_len;
}

/* Objects with items, this rank's first. */
static int sources_list(struct hearth_checkpoint *c)
{
    c->source = calloc((size_t)c->manifest->objects + 1, sizeof(*c->source));
    if (!c->source)
        return HEARTH_ENOMEM;
    for (uint32_t i = 0; i < c->manifest->objects; i++) {
        const struct hth_object *o = &c->manifest->object[i];

        if (!object_has_items(o))
            continue;
        c->source[c->sources].object = o;
        c->source[c->sources].data_at = HTH_BLOCK;
        c->source[c->sources++].data_len = o->data_len;
        c->own += o->owner == c->h->opts.rank;
    }
    if (c->sources)
        qsort_r(c->source, c->sources, sizeof(*c->source), source_by_owner, &c->h->opts.rank);
    return HEARTH_OK;
}

static int manifest_take(
        struct hearth_checkpoint *c, const void *bytes, size_t len, struct hearth_error *err)
{
    struct hth_manifest *m = calloc(1, sizeof(*m));
    int rc;

    if (!m)
        return hth_fail(err, HEARTH_ENOMEM, 0, "no memory for the manifest");
    if ((rc = hth_manifest_decode(m, bytes, len, err))) {
        free(m);
        return rc;
    }
    c->manifest = m;
    if (hth_save_cmp(m->save, c->save) != 0)
        return hth_fail(err, HEARTH_EPROTO, 0,
                "the engine sent the manifest of " HTH_SAVE " for " HTH_SAVE,
                HTH_SAVE_ARGS(m->save), HTH_SAVE_ARGS(c->save));
    if (sources_list(c))
        return hth_fail(err, HEARTH_ENOMEM, 0, "no memory for the list of objects");
    return HEARTH_OK;
}

static int manifest_fetch(struct hearth_checkpoint *c, struct hearth_error *err)
{
    struct hth_local_map m = { .save = hth_local_save_of(c->save) };
    struct hth_local_bytes a;
    void *bytes;
    int fd = -1, rc;
    struct hth_ask ask = hth_bytes_ask(HTH_LOCAL_MANIFEST, &m, &a, &fd);

    ask.what = "get the manifest";
    if ((rc = hth_ask(c->h, &ask, err)))
        return rc;
    rc = hth_map_answer(fd, a.len, &bytes, err);
    if (rc)
        return rc;
    rc = manifest_take(c, bytes, a.len, err);
    if (a.len)
        munmap(bytes, a.len);
    return rc;
}

int hth_checkpoint_make(struct hearth *h, struct hth_local_save save,
        const struct hearth_recovery *info, struct hearth_checkpoint **out,
        struct hearth_error *err)
{
    struct hearth_checkpoint *c = calloc(1, sizeof(*c));
    int rc;

    if (!c)
        return hth_fail(err, HEARTH_ENOMEM, 0, "no memory for a checkpoint");
    c->h = h;
    c->number = atomic_fetch_add(&opened, 1);
    c->save = hth_local_save_to(save);
    c->info = *info;
    c->info.struct_size = sizeof(c->info);
    c->info.step = c->save.step;
    c->info.epoch = hth_save_foreign(c->save) ? 0 : c->save.epoch;
    pthread_mutex_lock(&h->lock); /* another thread may recover into a new epoch */
    c->info.now_epoch = h->epoch;
    pthread_mutex_unlock(&h->lock);
    c->info.text[sizeof(c->info.text) - 1] = '\0';
    if ((rc = manifest_fetch(c, err)))
        hearth_checkpoint_close(c);
    else
        *out = c;
    return rc;
}

int hearth_checkpoint_id(
        const struct hearth_checkpoint *ckpt, struct hearth_save_id *out, struct hearth_error *err)
{
    int rc = hth_checkpoint_enter(ckpt, err);

    if (rc)
        return rc;
    if (!out)
        return hth_fail(err, HEARTH_EINVAL, 0, "out is NULL: there is no place for the id");
    *out = (struct hearth_save_id){ ckpt->save.epoch, ckpt->save.nonce, ckpt->save.step,
        ckpt->save.attempt, 0 };
    return HEARTH_OK;
}

int hearth_checkpoint_info(
        const struct hearth_checkpoint *ckpt, struct hearth_recovery *out, struct hearth_error *err)
{
    int rc;

    if (!ckpt)
        return hth_fail(err, HEARTH_EINVAL, 0, "the checkpoint is NULL");
    if ((rc = hth_enter(ckpt->h, err)))
        return rc;
    return hth_give(out, &ckpt->info, sizeof(ckpt->info), err);
}

size_t hearth_checkpoint_objects(const struct hearth_checkpoint *ckpt)
{
    return ckpt && !hth_enter(ckpt->h, NULL) ? ckpt->manifest->objects : 0;
}

int hearth_checkpoint_stream(struct hearth_checkpoint *ckpt, void *stream, struct hearth_error *err)
{
    int rc = hth_checkpoint_enter(ckpt, err);

    if (!rc)
        ckpt->stream = stream;
    return rc;
}

void hearth_checkpoint_close(struct hearth_checkpoint *ckpt)
{
    if (!ckpt || hth_enter(ckpt->h, NULL))
        return;
    for (uint32_t i = 0; i < ckpt->sources; i++)
        hth_source_close(ckpt, &ckpt->source[i]);
    if (ckpt->manifest)
        hth_manifest_fini(ckpt->manifest);
    free(ckpt->manifest);
    hth_index_fini(ckpt);
    free(ckpt->source);
    free(ckpt);
}
