/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Grants and addresses of libfabric's backend, as peers and bootstraps bring them: what is taken
 * lies within what came, and cannot run over.
 */
#include "transport/ofi/ofi.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void grant_read(const uint8_t *data, uint32_t size)
{
    struct hth_ofi_desc d;

    if (hth_ofi_desc_read(data, size, &d))
        return;
    if (d.base > UINT64_MAX - d.len || d.raw_bytes > sizeof(d.raw) || d.raw_bytes > size ||
            memcmp(d.raw, data + size - d.raw_bytes, d.raw_bytes) != 0)
        abort();
}

static void address_read(const uint8_t *data, uint32_t size)
{
    static const int families[] = { AF_INET, AF_INET6 };
    unsigned char again[HTH_ADDR_MAX];

    for (int i = 0; i < 2; i++) {
        union hth_addr self = { 0 }, a;

        self.sa.sa_family = (sa_family_t)families[i];
        if (hth_addr_unpack(data, size, &self, &a, NULL))
            continue;
        if (a.sa.sa_family != families[i] || hth_addr_is_wildcard(&a) ||
                hth_addr_pack(&a, again) != size || memcmp(again, data, size) != 0)
            abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size > UINT32_MAX)
        return 0;
    grant_read(data, (uint32_t)size);
    address_read(data, (uint32_t)size);
    return 0;
}
