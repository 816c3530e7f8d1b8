/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Zips read from their end, as the format wants it (PKWARE, APPNOTE 6.3):
 *
 *      member ... member | central directory | zip64 end 56 | locator 20 | end 22
 *                                              '------ both or none -----'
 *
 * The parts must lie as drawn, without a byte between them, and no comment behind: what can be read
 * in one way only cannot be read in two.
 */
#include "zip.h"
#include "core/base/bytes.h"
#include "core/base/fail.h"

#include <stdlib.h>

#define LOCAL        30 /* bytes of the headers without name, extra field and comment */
#define CENTRAL      46
#define END          22
#define LOCATOR      20
#define END64        56

#define LOCAL_SIGN   UINT32_C(0x04034b50)
#define CENTRAL_SIGN UINT32_C(0x02014b50)
#define END_SIGN     UINT32_C(0x06054b50)
#define LOCATOR_SIGN UINT32_C(0x07064b50)
#define END64_SIGN   UINT32_C(0x06064b50)

#define FLAGS        0x0808u /* sizes behind the data, names in UTF-8; all others are refused */
#define EXTRA64      1u      /* extra field with the numbers that do not fit */

struct zip {
    const unsigned char *bytes;
    size_t len;
    struct hearth_error *err;
};

struct directory {
    uint64_t at, len, count;
};

static int zip_refuse(const struct zip *z, uint64_t at, const char *text)
{
    return hth_fail(z->err, HEARTH_ECORRUPT, 0, "byte %" PRIu64 ": %s", at, text);
}

/* The numbers in the end record, and those in the zip64 end where there is one. */
static int zip_directory(const struct zip *z, struct directory *out)
{
    size_t end = z->len - END, stop = end;
    const unsigned char *p = z->bytes + end;
    struct directory d = { hth_get32(p + 16), hth_get32(p + 12), hth_get16(p + 10) };

    if (hth_get32(p + 4) || hth_get16(p + 8) != d.count || hth_get16(p + 20))
        return zip_refuse(z, end, "a zip of several parts, or with a comment");
    if (end >= LOCATOR + END64 && hth_get32(p - LOCATOR) == LOCATOR_SIGN) {
        const unsigned char *q = p - LOCATOR - END64;
        struct directory d64 = { hth_get64(q + 48), hth_get64(q + 40), hth_get64(q + 32) };

        stop = end - LOCATOR - END64;
        if (hth_get64(p - LOCATOR + 8) != stop || hth_get32(q) != END64_SIGN ||
                hth_get64(q + 4) != END64 - 12 || hth_get64(q + 24) != d64.count)
            return zip_refuse(z, stop, "the zip64 end record is not where it should be");
        if ((d.at != UINT32_MAX && d.at != d64.at) || (d.len != UINT32_MAX && d.len != d64.len) ||
                (d.count != UINT16_MAX && d.count != d64.count))
            return hth_fail(
                    z->err, HEARTH_ECORRUPT, 0, "byte %zu: the zip's two end records differ", end);
        d = d64;
    }
    if (d.at > stop || d.len != stop - d.at || d.count > d.len / CENTRAL)
        return zip_refuse(z, end, "the central directory is not where the end record has it");
    *out = d;
    return HEARTH_OK;
}

/* The zip64 extra field holds, in this order, those of length, stored length and place that are
 * all ones in the entry itself. */
static int zip_wide(const unsigned char *extra, size_t len, uint64_t *number[3])
{
    static const uint64_t ones = UINT32_MAX;
    struct hth_reader all = { .at = extra, .len = len };

    while (all.pos < len) {
        unsigned id = hth_read16(&all), bytes = hth_read16(&all);
        struct hth_reader in = { .at = hth_read(&all, bytes), .len = bytes };

        if (all.bad)
            return 0;
        for (int i = 0; id == EXTRA64 && i < 3; i++)
            if (*number[i] == ones)
                *number[i] = hth_read64(&in);
        if (in.bad)
            return 0;
    }
    return 1;
}

/* One entry of the central directory at `pos`; *pos moves on. */
static int zip_entry(
        const struct zip *z, const struct directory *d, uint64_t *pos, struct hth_zip_member *out)
{
    const unsigned char *p = z->bytes + *pos;
    uint64_t left = d->at + d->len - *pos, stored, total;
    struct hth_zip_member m = { 0 };
    uint64_t *number[3] = { &m.len, &stored, &m.head };

    if (left < CENTRAL || hth_get32(p) != CENTRAL_SIGN)
        return zip_refuse(z, *pos, "this is no entry of a central directory");
    m.name = (const char *)p + CENTRAL;
    m.name_len = hth_get16(p + 28);
    total = CENTRAL + m.name_len + hth_get16(p + 30) + hth_get16(p + 32);
    if (left < total)
        return zip_refuse(z, *pos, "an entry reaches out of the central directory");
    if (hth_get16(p + 8) & ~FLAGS || hth_get16(p + 10) || hth_get16(p + 34))
        return zip_refuse(z, *pos, "a member that is compressed, encrypted or in another file");
    m.len = hth_get32(p + 24);
    stored = hth_get32(p + 20);
    m.head = hth_get32(p + 42);
    if (!zip_wide(p + CENTRAL + m.name_len, hth_get16(p + 30), number))
        return zip_refuse(z, *pos, "an extra field is cut off");
    if (stored != m.len)
        return zip_refuse(z, *pos, "a stored member has two lengths");
    if (m.head > d->at)
        return zip_refuse(z, *pos, "a member lies behind the central directory's beginning");
    *pos += total;
    *out = m;
    return HEARTH_OK;
}

/* Checksum and lengths, local and central from byte 14 and 16 on: the local ones are absent (their
 * place is behind the data), all ones (in an extra field), or the same. */
static int numbers_agree(const unsigned char *local, const unsigned char *central)
{
    for (unsigned i = 0; i < 12; i += 4) {
        uint32_t n = hth_get32(local + 14 + i);

        if (n && n != UINT32_MAX && n != hth_get32(central + 16 + i))
            return 0;
    }
    return 1;
}

/* Where its data lies: behind the local header, which must say of it what the directory says.
 * `stop`: where the next member or the directory begins. */
static int zip_locate(const struct zip *z, struct hth_zip_member *m, uint64_t stop)
{
    const unsigned char *p = z->bytes + m->head;
    uint64_t head;

    if (m->head > stop || stop - m->head < LOCAL)
        return zip_refuse(z, m->head, "a member lies outside, or in another one");
    head = LOCAL + (uint64_t)hth_get16(p + 26) + hth_get16(p + 28);
    if (hth_get32(p) != LOCAL_SIGN || hth_get16(p + 6) & ~FLAGS || hth_get16(p + 8) ||
            hth_get16(p + 26) != m->name_len)
        return zip_refuse(z, m->head, "this is not the local header of a stored member");
    if (stop - m->head < head || stop - m->head - head < m->len)
        return zip_refuse(z, m->head, "a member reaches into what follows it");
    if (memcmp(p + LOCAL, m->name, m->name_len) != 0)
        return zip_refuse(z, m->head, "a local header has another name than the central directory");
    if (!numbers_agree(p, (const unsigned char *)m->name - CENTRAL))
        return zip_refuse(
                z, m->head, "a local header has other lengths than the central directory");
    m->at = m->head + head;
    return HEARTH_OK;
}

static int by_place(const void *a, const void *b)
{
    const struct hth_zip_member *x = a, *y = b;

    return x->head < y->head ? -1 : x->head > y->head;
}

static int zip_folded(char c)
{
    return c >= 'A' && c <= 'Z' ? c + 'a' - 'A' : (unsigned char)c;
}

/* Torch looks names up without regard to case: two that differ in nothing else are one. */
static int by_folded_name(const struct hth_zip_member *x, const struct hth_zip_member *y)
{
    size_t n = x->name_len < y->name_len ? x->name_len : y->name_len;
    int c = 0;

    for (size_t i = 0; i < n && !c; i++)
        c = zip_folded(x->name[i]) - zip_folded(y->name[i]);
    return c ? c : x->name_len < y->name_len ? -1 : x->name_len > y->name_len;
}

static int member_by_name(const void *a, const void *b)
{
    const struct hth_zip_member *x = a, *y = b;
    int c = by_folded_name(x, y);

    return c ? c : memcmp(x->name, y->name, x->name_len);
}

static int zip_members(const struct zip *z, const struct directory *d, struct hth_zip *zip)
{
    uint64_t pos = d->at;
    int rc = HEARTH_OK;

    for (size_t i = 0; i < zip->count && !rc; i++)
        rc = zip_entry(z, d, &pos, &zip->member[i]);
    if (rc)
        return rc;
    if (pos != d->at + d->len)
        return zip_refuse(z, pos, "bytes behind the last entry of the central directory");
    if (!zip->count)
        return HEARTH_OK;
    qsort(zip->member, zip->count, sizeof(zip->member[0]), by_place);
    for (size_t i = 0; i < zip->count && !rc; i++)
        rc = zip_locate(z, &zip->member[i], i + 1 < zip->count ? zip->member[i + 1].head : d->at);
    if (rc)
        return rc;
    qsort(zip->member, zip->count, sizeof(zip->member[0]), member_by_name);
    for (size_t i = 1; i < zip->count; i++)
        if (by_folded_name(&zip->member[i - 1], &zip->member[i]) == 0)
            return zip_refuse(z, zip->member[i].head, "two members of one name");
    return HEARTH_OK;
}

int hth_zip_open(struct hth_zip *out, const void *bytes, size_t len, struct hearth_error *err)
{
    struct zip z = { bytes, len, err };
    struct directory d = { 0 };
    struct hth_zip zip = { 0 };
    int rc;

    if (len < END || hth_get32(z.bytes + len - END) != END_SIGN)
        return hth_fail(err, HEARTH_ECORRUPT, 0, "a zip without its end: cut off at byte %zu", len);
    if ((rc = zip_directory(&z, &d)))
        return rc;
    zip.count = (size_t)d.count;
    if (!(zip.member = calloc(zip.count + 1, sizeof(zip.member[0]))))
        return hth_fail(err, HEARTH_ENOMEM, 0, "no memory for %zu members of a zip", zip.count);
    if ((rc = zip_members(&z, &d, &zip)))
        hth_zip_close(&zip);
    else
        *out = zip;
    return rc;
}

void hth_zip_close(struct hth_zip *zip)
{
    free(zip->member);
    *zip = (struct hth_zip){ 0 };
}

const struct hth_zip_member *hth_zip_find(const struct hth_zip *zip, const void *name, size_t len)
{
    struct hth_zip_member want = { .name = name, .name_len = len };

    if (!zip->count)
        return NULL;
    return bsearch(&want, zip->member, zip->count, sizeof(want), member_by_name);
}

#define TRIES 64 /* of ends: what looks like them may stand in any payload */

size_t hth_zip_front(const void *bytes, size_t len)
{
    static const unsigned char sign[4] = "PK\5\6";
    const unsigned char *all = bytes, *at = all;
    struct hth_zip zip;
    size_t n;

    if (len < LOCAL || hth_get32(all) != LOCAL_SIGN)
        return 0;
    for (int i = 0; i < TRIES; i++, at++) {
        at = memmem(at, len - (size_t)(at - all), sign, sizeof(sign));
        n = at ? (size_t)(at - all) + END : SIZE_MAX;
        if (n > len)
            break;
        if (!hth_zip_open(&zip, bytes, n, NULL)) {
            hth_zip_close(&zip);
            return n;
        }
    }
    return 0;
}
