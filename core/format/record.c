/* SPDX-License-Identifier: Apache-2.0 */
/* The parts that all records share. Layout: core/format/record.h. */
#include "record.h"
#include "core/base/auth.h"

void hth_write_zeros(struct hth_writer *w, size_t n)
{
    static const unsigned char zeros[64];

    for (; n > sizeof(zeros); n -= sizeof(zeros))
        hth_write(w, zeros, sizeof(zeros));
    hth_write(w, zeros, n);
}

void hth_read_zeros(struct hth_reader *r, size_t n)
{
    const unsigned char *p = hth_read(r, n);

    for (size_t i = 0; p && i < n; i++)
        if (p[i])
            r->bad = 1;
}

void hth_write_save(struct hth_writer *w, struct hth_save_id save)
{
    hth_write64(w, save.epoch);
    hth_write64(w, save.nonce);
    hth_write64(w, save.step);
    hth_write32(w, save.attempt);
    hth_write32(w, 0);
}

struct hth_save_id hth_read_save(struct hth_reader *r)
{
    struct hth_save_id save;

    save.epoch = hth_read64(r);
    save.nonce = hth_read64(r);
    save.step = hth_read64(r);
    save.attempt = hth_read32(r);
    hth_read_zeros(r, 4);
    return save;
}

void hth_write_text(struct hth_writer *w, const char *text, size_t n)
{
    size_t len = strnlen(text, n);

    hth_write(w, text, len);
    hth_write_zeros(w, n - len);
}

void hth_read_text(struct hth_reader *r, char *out, size_t n)
{
    const unsigned char *p = hth_read(r, n);
    size_t len;

    out[0] = '\0';
    if (!p)
        return;
    len = strnlen((const char *)p, n);
    memcpy(out, p, len);
    out[len] = '\0';
    for (size_t i = len; i < n; i++)
        if (p[i])
            r->bad = 1;
}

void hth_write_digest(struct hth_writer *w)
{
    unsigned char digest[HTH_DIGEST];

    hth_digest(digest, w->at, w->len);
    hth_write(w, digest, sizeof(digest));
}

static int read_magic(struct hth_reader *r, const char magic[8],
        const struct hth_versions *versions, uint32_t *out_version, struct hearth_error *err)
{
    const unsigned char *p = hth_read(r, 8);

    *out_version = hth_read32(r);
    if (!p || r->bad || memcmp(p, magic, 8) != 0)
        return hth_fail(err, HEARTH_ECORRUPT, 0,
                "the %s does not begin with %.8s: it is torn, or something else", versions->what,
                magic);
    return HEARTH_OK;
}

int hth_read_head(struct hth_reader *r, const char magic[8], const struct hth_versions *versions,
        uint32_t *out_version, struct hearth_error *err)
{
    int rc = read_magic(r, magic, versions, out_version, err);

    return rc ? rc : hth_version_check(versions, *out_version, err);
}

int hth_read_record(struct hth_reader *r, const char magic[8], const struct hth_versions *versions,
        uint32_t *out_version, struct hearth_error *err)
{
    unsigned char digest[HTH_DIGEST];
    uint32_t version = 0;
    int rc = read_magic(r, magic, versions, &version, err);

    if (rc)
        return rc;
    if (r->len < HTH_DIGEST)
        return hth_fail(err, HEARTH_ECORRUPT, 0, "the %s is torn: it has only %zu bytes",
                versions->what, r->len);
    hth_digest(digest, r->at, r->len - HTH_DIGEST);
    if (memcmp(digest, r->at + r->len - HTH_DIGEST, HTH_DIGEST) != 0)
        return hth_fail(err, HEARTH_ECORRUPT, 0,
                "the %s is damaged: its %zu bytes do not have the digest at their end",
                versions->what, r->len);
    if (out_version)
        *out_version = version;
    return hth_version_check(versions, version, err);
}

int hth_record_odd(
        const struct hth_reader *r, const struct hth_versions *versions, struct hearth_error *err)
{
    return hth_fail(err, HEARTH_ECORRUPT, 0, "the %s of %zu bytes holds what Hearth never writes",
            versions->what, r->len);
}
