/* SPDX-License-Identifier: Apache-2.0 */
/* The coordinator's last plan on record; the plan itself is bytes here. Layout:
 * core/format/plans.h. */
#include "plans.h"
#include "core/base/auth.h"
#include "record.h"

#define MAGIC "HTHPLANS"
#define HEAD  32u

size_t hth_plans_bytes(const struct hth_plans *p)
{
    return HEAD + p->plan_len + HTH_DIGEST;
}

void hth_plans_encode(const struct hth_plans *p, unsigned char *out)
{
    struct hth_writer w = { .at = out, .cap = hth_plans_bytes(p) };

    hth_write(&w, MAGIC, 8);
    hth_write32(&w, hth_version_written(HTH_FORMAT_PLANS));
    hth_write32(&w, p->serial);
    hth_write64(&w, p->epoch);
    hth_write64(&w, p->nonce);
    hth_write(&w, p->plan, p->plan_len);
    hth_write_digest(&w);
}

int hth_plans_decode_as(const struct hth_versions *versions, struct hth_plans *out,
        const void *bytes, size_t len, struct hearth_error *err)
{
    struct hth_reader r = { .at = bytes, .len = len };
    struct hth_plans p = { 0 };
    int rc;

    if ((rc = hth_read_record(&r, MAGIC, versions, NULL, err)))
        return rc;
    p.serial = hth_read32(&r);
    p.epoch = hth_read64(&r);
    p.nonce = hth_read64(&r);
    if (r.bad || len < HEAD + HTH_DIGEST)
        return hth_fail(err, HEARTH_ECORRUPT, 0, "the %s is torn: it has only %zu bytes",
                versions->what, len);
    p.plan_len = len - HEAD - HTH_DIGEST;
    p.plan = hth_read(&r, p.plan_len);
    *out = p;
    return HEARTH_OK;
}

int hth_plans_decode(struct hth_plans *out, const void *bytes, size_t len, struct hearth_error *err)
{
    return hth_plans_decode_as(hth_versions_of(HTH_FORMAT_PLANS), out, bytes, len, err);
}
