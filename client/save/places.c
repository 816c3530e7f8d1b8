/* SPDX-License-Identifier: Apache-2.0 */
/* What else a writer may ask of a save: where things lie, and small objects for every node. */
#include "save.h"

#include "client/base/memfd.h"
#include "core/format/manifest.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int hearth_save_locate(struct hearth_save *save, const void *const *pointers, size_t count,
        uint64_t *out_offset, struct hearth_error *err)
{
    const struct hth_written *o;
    int rc;

    if (!save || (count && (!pointers || !out_offset)))
        return hth_fail(err, HEARTH_EINVAL, 0, "the save, the pointers or their places are NULL");
    if ((rc = hth_enter(save->h, err)))
        return rc;
    o = &save->object[save->objects - 1];
    for (size_t i = 0; i < count; i++) {
        uintptr_t data = (uintptr_t)o->base + HTH_BLOCK, at = (uintptr_t)pointers[i];

        out_offset[i] = at >= data && at - data < o->data_len ? at - data : UINT64_MAX;
    }
    return HEARTH_OK;
}

int hearth_save_places(struct hearth_save *save, struct hearth_place *out, size_t cap,
        size_t *out_count, struct hearth_error *err)
{
    const struct hth_written *o;
    struct hth_table table;
    struct hth_item item;
    uint64_t pos = 0;
    int rc;

    if (!save || !out_count || (cap && !out))
        return hth_fail(err, HEARTH_EINVAL, 0, "the save, out or out_count is NULL");
    if ((rc = hth_enter(save->h, err)))
        return rc;
    o = &save->object[save->objects - 1];
    table = (struct hth_table){ .data_len = o->data_len,
        .items = o->items,
        .items_at = save->items,
        .items_len = o->items_len };
    for (size_t i = 0; i < cap && !hth_item_next(&table, &pos, &item); i++)
        out[i] = (struct hearth_place){ .offset = item.offset, .length = item.length };
    *out_count = o->items;
    return HEARTH_OK;
}

int hearth_save_data(
        struct hearth_save *save, void **out_base, uint64_t *out_bytes, struct hearth_error *err)
{
    struct hth_written *o;
    int rc;

    if (!save || !out_base || !out_bytes)
        return hth_fail(err, HEARTH_EINVAL, 0, "the save, out_base or out_bytes is NULL");
    if ((rc = hth_enter(save->h, err)) || (rc = hth_save_not_sealed(save, err)))
        return rc;
    o = hth_save_open_object(save);
    *out_base = o->base + HTH_BLOCK;
    *out_bytes = o->room;
    return HEARTH_OK;
}

static int send_one(struct hearth_save *s, const struct hth_common_put *c, struct hearth_error *err)
{
    struct hth_local_common m = { .len = c->len };
    struct hth_local_head a;
    struct hth_ask ask = { .msg = &m,
        .len = sizeof(m),
        .type = HTH_LOCAL_COMMON,
        .want = HTH_LOCAL_OK,
        .token = s->token,
        .fd = c->fd,
        .incarnation = s->incarnation,
        .answer = &a,
        .answer_len = sizeof(a),
        .wait_ms = HTH_REQUEST_MS,
        .what = "put a common object" };
    int rc;

    memcpy(m.name, c->name, sizeof(c->name));
    if (!(rc = hth_ask(s->h, &ask, err)))
        hth_handle_took(s->handle, 1);
    return rc;
}

static void drop_first(struct hearth_save *s)
{
    struct hth_common_put *c = s->commons;

    s->commons = c->next;
    close(c->fd);
    free(c);
}

void hth_commons_drop(struct hearth_save *s)
{
    while (s->commons)
        drop_first(s);
}

int hth_commons_send(struct hearth_save *s, struct hearth_error *err)
{
    int rc = HEARTH_OK;

    while (s->commons && !rc) {
        rc = send_one(s, s->commons, err);
        drop_first(s);
    }
    return rc;
}

int hearth_save_put_common(struct hearth_save *save, const char *name, const void *data, size_t len,
        struct hearth_error *err)
{
    struct hth_common_put *c;
    int rc;

    if (!save || !name || (len && !data))
        return hth_fail(err, HEARTH_EINVAL, 0, "the save, the name or the data is NULL");
    if ((rc = hth_enter(save->h, err)) || (rc = hth_object_name_check(name, err)))
        return rc;
    if (len > HTH_RAW_MAX)
        return hth_fail(err, HEARTH_EINVAL, 0,
                "common object '%s' has %zu bytes: at most 1 GiB goes to every node", name, len);
    if (save->h->opts.off)
        return HEARTH_OK;
    c = calloc(1, sizeof(*c));
    if (!c || (c->fd = hth_memfd("hearth-common", data, len)) < 0) {
        free(c);
        return hth_fail(err, HEARTH_ENOMEM, 0, "no memory for %zu bytes", len);
    }
    memcpy(c->name, name, strlen(name) + 1);
    c->len = len;
    c->next = save->commons;
    save->commons = c;
    return save->step == HEARTH_STEP_LATER ? HEARTH_OK : hth_commons_send(save, err);
}
