/* SPDX-License-Identifier: Apache-2.0 */
/* A plan that decodes encodes to bytes that decode to the same: the same holders of each object,
 * and the same bytes once more. (The bytes that came may say it at greater length.) */
#include "loader/plan/plan.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void plan_same(const struct hth_plan *a, const struct hth_plan *b)
{
    struct hth_sources x, y;

    if (a->from.objects != b->from.objects)
        abort();
    for (uint32_t i = 0; i < a->from.objects; i++) {
        hth_runs_get(&a->from, i, &x);
        hth_runs_get(&b->from, i, &y);
        if (x.count > HTH_PLAN_SOURCES || memcmp(&x, &y, sizeof(x)) != 0)
            abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    unsigned char *once, *twice;
    struct hth_plan p, back;
    size_t len;

    if (hth_plan_decode(&p, data, size, NULL))
        return 0;
    len = hth_plan_bytes(&p);
    once = malloc(len);
    twice = malloc(len);
    if (once && twice) {
        hth_plan_encode(&p, once);
        if (hth_plan_decode(&back, once, len, NULL) || hth_plan_bytes(&back) != len)
            abort();
        plan_same(&p, &back);
        hth_plan_encode(&back, twice);
        if (memcmp(once, twice, len) != 0)
            abort();
        hth_plan_fini(&back);
    }
    free(once);
    free(twice);
    hth_plan_fini(&p);
    return 0;
}
