/* SPDX-License-Identifier: Apache-2.0 */
/* With the digest of its keep record made good, an inventory that decodes encodes to as many bytes,
 * and these decode to the same once more. */
#include "core/base/auth.h"
#include "loader/plan/plan.h"

#include <stdlib.h>
#include <string.h>

#define KEEP_AT 16u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static unsigned char *inventory_bytes(const struct hth_inventory *inv, size_t size)
{
    unsigned char *bytes = malloc(size);

    if (hth_inventory_bytes(inv) != size)
        abort();
    if (bytes)
        hth_inventory_encode(inv, bytes);
    return bytes;
}

static void inventory_again(const struct hth_inventory *inv, size_t size)
{
    unsigned char *once = inventory_bytes(inv, size), *twice = NULL;
    struct hth_inventory back;

    if (once && hth_inventory_decode(&back, once, size, NULL))
        abort();
    if (once)
        twice = inventory_bytes(&back, size);
    if (twice && memcmp(once, twice, size) != 0)
        abort();
    if (once)
        hth_inventory_fini(&back);
    free(once);
    free(twice);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    unsigned char *copy = malloc(size + 1), *keep;
    struct hth_inventory inv;

    if (!copy)
        return 0;
    memcpy(copy, data, size);
    if (size >= KEEP_AT + HTH_KEEP_BYTES) {
        keep = copy + KEEP_AT;
        hth_digest(keep + HTH_KEEP_BYTES - HTH_DIGEST, keep, HTH_KEEP_BYTES - HTH_DIGEST);
    }
    if (!hth_inventory_decode(&inv, copy, size, NULL)) {
        inventory_again(&inv, size);
        for (uint32_t i = 0; i < inv.saves; i++)
            (void)hth_inventory_find(&inv, inv.save[i].id);
        hth_inventory_fini(&inv);
    }
    free(copy);
    return 0;
}
