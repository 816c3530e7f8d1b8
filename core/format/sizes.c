/* SPDX-License-Identifier: Apache-2.0 */
#include "sizes.h"

#include <stdlib.h>
#include <string.h>

static int sizes_descending(const void *a, const void *b)
{
    uint64_t x, y;

    memcpy(&x, a, sizeof(x));
    memcpy(&y, b, sizeof(y));
    return x < y ? 1 : x > y ? -1 : 0;
}

/* The least bytes are wasted where the objects of size at + 1 count as those of size `at`. */
static size_t sizes_nearest(const uint64_t *bytes, const uint32_t *count, size_t sizes)
{
    uint64_t least = UINT64_MAX;
    size_t at = 0;

    for (size_t i = 0; i + 1 < sizes; i++) {
        uint64_t each = bytes[i] - bytes[i + 1];
        uint64_t waste = each > UINT64_MAX / HTH_SIZES_OBJECTS ? UINT64_MAX : each * count[i + 1];

        if (waste < least) {
            least = waste;
            at = i;
        }
    }
    return at;
}

void hth_sizes_of(struct hth_sizes *out, const uint64_t *bytes, size_t count)
{
    uint64_t sorted[HTH_SIZES_OBJECTS], size[HTH_SIZES_OBJECTS];
    uint32_t objects[HTH_SIZES_OBJECTS];
    size_t sizes = 0;

    count = count < HTH_SIZES_OBJECTS ? count : HTH_SIZES_OBJECTS;
    if (count)
        memcpy(sorted, bytes, count * sizeof(*sorted));
    qsort(sorted, count, sizeof(*sorted), sizes_descending);
    for (size_t i = 0; i < count; i++) {
        if (!sizes || size[sizes - 1] != sorted[i]) {
            size[sizes] = sorted[i];
            objects[sizes++] = 0;
        }
        objects[sizes - 1]++;
    }
    while (sizes > HTH_SIZES) {
        size_t at = sizes_nearest(size, objects, sizes);

        objects[at] += objects[at + 1];
        sizes--;
        memmove(size + at + 1, size + at + 2, (sizes - at - 1) * sizeof(*size));
        memmove(objects + at + 1, objects + at + 2, (sizes - at - 1) * sizeof(*objects));
    }
    *out = (struct hth_sizes){ 0 };
    for (size_t i = 0; i < sizes; i++) {
        out->bytes[i] = size[i];
        out->count[i] = objects[i];
    }
}

uint32_t hth_sizes_objects(const struct hth_sizes *s)
{
    uint32_t objects = 0;

    for (size_t i = 0; i < HTH_SIZES; i++)
        objects += s->count[i];
    return objects;
}

int hth_sizes_are(const struct hth_sizes *s)
{
    uint32_t left = HTH_SIZES_OBJECTS;

    for (size_t i = 0; i < HTH_SIZES; i++) {
        if (s->count[i] > left || !s->count[i] != !s->bytes[i])
            return 0;
        if (i && s->count[i] && (!s->count[i - 1] || s->bytes[i] >= s->bytes[i - 1]))
            return 0;
        left -= s->count[i];
    }
    return 1;
}
