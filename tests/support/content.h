/* SPDX-License-Identifier: Apache-2.0 */
/* The content that comes with a request, from plain memory. */
#ifndef HEARTH_TESTS_CONTENT_H
#define HEARTH_TESTS_CONTENT_H

#include "core/base/env.h"
#include <stdlib.h>
#include <string.h>

struct content {
    struct hth_content pub; /* first */
    unsigned char bytes[];
};

static inline int content_read(struct hth_content *c, uint64_t off, void *out, size_t len)
{
    if (off > c->len || len > c->len - off)
        return -1;
    memcpy(out, ((struct content *)c)->bytes + off, len);
    return 0;
}

static inline void content_end(struct hth_content *c)
{
    free(c);
}

/* Of bytes that stay where they are until end(). */
struct content_view {
    struct hth_content pub; /* first */
    const unsigned char *bytes;
};

static inline int content_view_read(struct hth_content *c, uint64_t off, void *out, size_t len)
{
    if (off > c->len || len > c->len - off)
        return -1;
    memcpy(out, ((struct content_view *)c)->bytes + off, len);
    return 0;
}

static inline struct hth_content *content_view(const void *bytes, size_t len)
{
    struct content_view *c = malloc(sizeof(*c));

    if (!c)
        abort();
    *c = (struct content_view){ { len, content_view_read, content_end }, bytes };
    return &c->pub;
}

static inline struct hth_content *content_of(const void *bytes, size_t len)
{
    struct content *c = malloc(sizeof(*c) + len);

    if (!c)
        abort();
    c->pub = (struct hth_content){ len, content_read, content_end };
    if (len)
        memcpy(c->bytes, bytes, len);
    return &c->pub;
}

#endif
