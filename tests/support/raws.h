/* SPDX-License-Identifier: Apache-2.0 */
/* Raw objects of a store, whole. */
#ifndef HEARTH_TESTS_RAWS_H
#define HEARTH_TESTS_RAWS_H

#include "core/store/store.h"
#include <stdlib.h>
#include <string.h>

static inline int raw_put(struct hth_store *s, struct hth_save_id save, const char *name,
        const void *bytes, size_t len, struct hearth_error *err)
{
    struct hth_raw *raw = NULL;
    int rc = s->ops->raw_make(s, save, name, len, &raw, err);

    if (!rc)
        rc = s->ops->raw_back(s, raw, 0, len, err);
    if (!rc && len)
        memcpy(raw->base, bytes, len);
    if (!rc)
        rc = s->ops->raw_seal(s, raw, err);
    s->ops->raw_close(s, raw);
    return rc;
}

/* 1: it is there, and these are its bytes. */
static inline int raw_is(struct hth_store *s, struct hth_save_id save, const char *name,
        const void *bytes, size_t len)
{
    struct hth_raw *raw = NULL;
    int is = !s->ops->raw_open(s, save, name, &raw, NULL) && raw->len == len &&
             (!len || !memcmp(raw->base, bytes, len));

    s->ops->raw_close(s, raw);
    return is;
}

#endif
