/* SPDX-License-Identifier: Apache-2.0 */
/* With the digest of its manifest made good, which is its end, a plan that decodes encodes to as many bytes,
 * and these decode to the same once more. */
#include "core/base/auth.h"
#include "core/base/bytes.h"
#include "loader/plan/plan.h"

#include <stdlib.h>
#include <string.h>

#define MANIFEST_LEN_AT (8u + 4 * 4 + 32 + 2 * 4)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void plan_again(const struct hth_plan *p, size_t size)
{
    unsigned char *once = malloc(size), *twice = malloc(size);
    struct hth_plan back;

    if (hth_plan_bytes(p) != size)
        abort();
    if (once && twice) {
        hth_plan_encode(p, once);
        if (hth_plan_decode(&back, once, size, NULL))
            abort();
        hth_plan_encode(&back, twice);
        if (memcmp(once, twice, size) != 0)
            abort();
        hth_plan_fini(&back);
    }
    free(once);
    free(twice);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    unsigned char *copy = malloc(size + 1);
    uint64_t len = size >= MANIFEST_LEN_AT + 8 ? hth_get64(data + MANIFEST_LEN_AT) : 0;
    struct hth_plan p;

    if (!copy)
        return 0;
    memcpy(copy, data, size);
    if (len >= HTH_DIGEST && len <= size)
        hth_digest(copy + size - HTH_DIGEST, copy + size - len, len - HTH_DIGEST);
    if (!hth_plan_decode(&p, copy, size, NULL)) {
        plan_again(&p, size);
        for (uint32_t i = 0; i < p.manifest.objects; i++)
            if (p.sources[i].count > HTH_PLAN_SOURCES ||
                    hth_plan_index(&p, p.manifest.object[i].id) != i)
                abort();
        hth_plan_fini(&p);
    }
    free(copy);
    return 0;
}
