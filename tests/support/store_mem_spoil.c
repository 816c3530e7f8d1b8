/* SPDX-License-Identifier: Apache-2.0 */
/* Records of the store in memory that change between two engines: a bit, the end, or the version
 * before. */
#include "store_mem_parts.h"

#include "core/base/env.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void hth_store_mem_remember(struct hth_store *s)
{
    mem_of(s)->remembers = 1;
}

static struct file *record_of(struct mem *m, uint64_t *die)
{
    uint64_t count = 0, at;

    for (const struct file *f = m->files; f; f = f->next)
        count += !f->dir && f->len && !f->large;
    at = count ? hth_splitmix64(die) % count : 0;
    for (struct file *f = m->files; f && count; f = f->next)
        if (!f->dir && f->len && !f->large && at-- == 0)
            return f;
    return NULL;
}

static void older_back(struct mem *m, struct file *f)
{
    if (f->charged) {
        m->used -= f->charged;
        f->charged = f->older_len;
        m->used += f->charged;
    }
    free(f->bytes);
    f->bytes = f->older;
    f->len = f->older_len;
    f->older = NULL;
}

/* Any record but `head`: a coordinator cannot notice that it has sent a newer head than the one on
 * record (tests/sim/README.md). */
static int older_may_be_back(const struct file *f)
{
    return f->older && strcmp(f->name, "head") != 0;
}

int hth_store_mem_spoil(struct hth_store *s, uint64_t die, char out[240])
{
    struct file *f = record_of(mem_of(s), &die);
    uint64_t how = hth_splitmix64(&die) % 3, at;

    if (!f)
        return 0;
    at = hth_splitmix64(&die) % f->len;
    if (how == 0 && older_may_be_back(f)) {
        snprintf(out, 240, "%s is as it was before", f->name);
        older_back(mem_of(s), f);
    } else if (how == 1) {
        snprintf(out, 240, "%s ends after %" PRIu64 " of %zu bytes", f->name, at, f->len);
        f->len = at;
    } else {
        snprintf(out, 240, "a bit of byte %" PRIu64 " of %s changes", at, f->name);
        ((unsigned char *)f->bytes)[at] ^= (unsigned char)(1u << hth_splitmix64(&die) % 8);
    }
    return 1;
}
