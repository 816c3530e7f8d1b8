/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Little-endian numbers at any address, and two cursors: a writer that never goes past
 * its end (it counts what it would have needed) and a reader that never does either
 * (after the first short read everything reads as 0 and `bad` stays set).
 */
#ifndef HEARTH_CORE_BASE_BYTES_H
#define HEARTH_CORE_BASE_BYTES_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

static inline uint16_t hth_get16(const void *p)
{
    uint16_t v;
    memcpy(&v, p, sizeof(v));
    return v;
}

static inline uint32_t hth_get32(const void *p)
{
    uint32_t v;
    memcpy(&v, p, sizeof(v));
    return v;
}

static inline uint64_t hth_get64(const void *p)
{
    uint64_t v;
    memcpy(&v, p, sizeof(v));
    return v;
}

static inline void hth_put16(void *p, uint16_t v)
{
    memcpy(p, &v, sizeof(v));
}

static inline void hth_put32(void *p, uint32_t v)
{
    memcpy(p, &v, sizeof(v));
}

static inline void hth_put64(void *p, uint64_t v)
{
    memcpy(p, &v, sizeof(v));
}

struct hth_writer {
    unsigned char *at; /* [cap] */
    size_t cap;
    size_t len; /* bytes written, or that would have been: > cap means it did not fit */
};

static inline void hth_write(struct hth_writer *w, const void *bytes, size_t n)
{
    if (w->len <= w->cap && n <= w->cap - w->len && n)
        memcpy(w->at + w->len, bytes, n);
    w->len += n;
}

static inline void hth_write8(struct hth_writer *w, uint8_t v)
{
    hth_write(w, &v, sizeof(v));
}

static inline void hth_write16(struct hth_writer *w, uint16_t v)
{
    hth_write(w, &v, sizeof(v));
}

static inline void hth_write32(struct hth_writer *w, uint32_t v)
{
    hth_write(w, &v, sizeof(v));
}

static inline void hth_write64(struct hth_writer *w, uint64_t v)
{
    hth_write(w, &v, sizeof(v));
}

struct hth_reader {
    const unsigned char *at; /* [len] */
    size_t len;
    size_t pos;
    int bad; /* asked for more than there was */
};

/* The next n bytes where they lie, or NULL. */
static inline const unsigned char *hth_read(struct hth_reader *r, size_t n)
{
    if (r->bad || n > r->len - r->pos) {
        r->bad = 1;
        return NULL;
    }
    r->pos += n;
    return r->at + r->pos - n;
}

/* The next n bytes copied to out; zeros when there are not as many. */
static inline void hth_read_into(struct hth_reader *r, void *out, size_t n)
{
    const unsigned char *p = hth_read(r, n);

    if (p)
        memcpy(out, p, n);
    else
        memset(out, 0, n);
}

static inline uint16_t hth_read16(struct hth_reader *r)
{
    const unsigned char *p = hth_read(r, 2);
    return p ? hth_get16(p) : 0;
}

static inline uint32_t hth_read32(struct hth_reader *r)
{
    const unsigned char *p = hth_read(r, 4);
    return p ? hth_get32(p) : 0;
}

static inline uint64_t hth_read64(struct hth_reader *r)
{
    const unsigned char *p = hth_read(r, 8);
    return p ? hth_get64(p) : 0;
}

#endif
