/* SPDX-License-Identifier: Apache-2.0 */
/* A ticket that decodes encodes to the same bytes. */
#include "core/format/ticket.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    unsigned char again[HTH_TICKET];
    struct hth_ticket t;

    if (size < HTH_TICKET || hth_ticket_decode(&t, data))
        return 0;
    hth_ticket_encode(&t, again);
    if (memcmp(again, data, HTH_TICKET) != 0)
        abort();
    return 0;
}
