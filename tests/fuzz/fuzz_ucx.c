/* SPDX-License-Identifier: Apache-2.0 */
/* Grants and addresses of UCX's backend, as peers and bootstraps bring them: what is taken
 * encodes to the same. */
#include "transport/ucx/ucx.h"

#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void desc_read(const uint8_t *data, uint32_t size, int gets)
{
    static struct hth_ucx t;
    unsigned char again[HTH_DESC_MAX];
    struct hth_ucx_desc d;

    t.gets = gets;
    if (!hth_ucx_desc_decode(&t, data, size, &d) &&
            (hth_ucx_desc_encode(&t, &d, again) != size || memcmp(again, data, size) != 0))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct sockaddr_storage ss;
    unsigned char again[HTH_ADDR_MAX];

    if (size > UINT32_MAX)
        return 0;
    desc_read(data, (uint32_t)size, 0);
    desc_read(data, (uint32_t)size, 1);
    if (!hth_ucx_blob_decode(&ss, data, (uint32_t)size) &&
            (!((struct sockaddr_in *)(void *)&ss)->sin_port ||
                    hth_ucx_blob_encode(&ss, again) != size || memcmp(again, data, size) != 0))
        abort();
    return 0;
}
