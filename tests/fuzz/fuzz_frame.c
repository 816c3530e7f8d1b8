/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes: decode refuses them, or encode gives exactly them back once the mac is put right. */
#include "transport/session/frame.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const unsigned char key[HTH_KEY] = { 1 };
    unsigned char again[HTH_MESSAGE_MAX];
    struct hth_frame frame;
    uint8_t *bytes = malloc(size ? size : 1); /* of the exact size, for ASan */

    if (!bytes || hth_auth_init(NULL)) {
        free(bytes);
        return 0;
    }
    if (size)
        memcpy(bytes, data, size);
    (void)hth_frame_check(bytes, size, key);
    if (hth_frame_decode(&frame, bytes, size, NULL) == HEARTH_OK) {
        if (hth_frame_encode(&frame, key, again) != size || !hth_frame_check(again, size, key))
            abort();
        memcpy(bytes + 40, again + 40, HTH_MAC);
        if (memcmp(again, bytes, size) != 0)
            abort();
    }
    free(bytes);
    return 0;
}
