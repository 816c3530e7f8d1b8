/* SPDX-License-Identifier: Apache-2.0 */
#include "store_mem_large.h"

#include "core/base/crc.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define PAGE    4096u
#define BUCKETS 65536u

struct page {
    struct page *next;
    uint32_t crc, users;
    size_t len;
    unsigned char bytes[];
};

struct large {
    size_t len, pages;
    struct page *page[];
};

static struct page *bucket[BUCKETS];

static struct page *page_take(const unsigned char *bytes, size_t len)
{
    uint32_t crc = hth_crc32c(bytes, len);
    struct page **first = &bucket[crc % BUCKETS], *p = *first;

    while (p && (p->crc != crc || p->len != len || memcmp(p->bytes, bytes, len) != 0))
        p = p->next;
    if (!p) {
        p = malloc(sizeof(*p) + len);
        if (!p)
            abort();
        *p = (struct page){ *first, crc, 0, len };
        memcpy(p->bytes, bytes, len);
        *first = p;
    }
    p->users++;
    return p;
}

static void page_put(struct page *p)
{
    struct page **at = &bucket[p->crc % BUCKETS];

    if (--p->users)
        return;
    while (*at != p)
        at = &(*at)->next;
    *at = p->next;
    free(p);
}

struct large *large_put(const void *bytes, size_t len)
{
    size_t pages = (len + PAGE - 1) / PAGE;
    struct large *l = malloc(sizeof(*l) + pages * sizeof(struct page *));

    if (!l)
        abort();
    l->len = len;
    l->pages = pages;
    for (size_t i = 0; i < pages; i++)
        l->page[i] = page_take(
                (const unsigned char *)bytes + i * PAGE, i + 1 < pages ? PAGE : len - i * PAGE);
    return l;
}

void large_get(const struct large *l, void *out)
{
    for (size_t i = 0; i < l->pages; i++)
        memcpy((unsigned char *)out + i * PAGE, l->page[i]->bytes, l->page[i]->len);
}

void *large_first(const struct large *l)
{
    return l->page[0]->bytes;
}

void large_free(struct large *l)
{
    if (!l)
        return;
    for (size_t i = 0; i < l->pages; i++)
        page_put(l->page[i]);
    free(l);
}
