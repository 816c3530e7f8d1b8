/* SPDX-License-Identifier: Apache-2.0 */
/* What arrives at a datagram endpoint, from anybody: a packet or none; what is taken of it, written
 * again, is what came. */
#include "transport/ofi/rdm.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int has_hello(enum hth_rdm_kind kind)
{
    return kind == HTH_RDM_OPEN || kind == HTH_RDM_ACCEPT || kind == HTH_RDM_PULL_FROM;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    unsigned char again[HTH_RDM_LEAST];
    struct hth_rdm_hello hello;
    struct hth_rdm_head head;

    if (hth_rdm_head_read(data, size, &head))
        return 0;
    if (head.len != size - HTH_RDM_HEAD || head.kind < HTH_RDM_OPEN || head.kind > HTH_RDM_GRANTS)
        abort();
    hth_rdm_head_write(&head, again);
    again[3] = data[3]; /* unused */
    if (memcmp(again, data, HTH_RDM_HEAD) != 0)
        abort();
    data += HTH_RDM_HEAD;
    if (!has_hello(head.kind) || hth_rdm_hello_read(data, head.len, &hello))
        return 0;
    if (hello.addr_len > HTH_ADDR_MAX || hello.packet < HTH_RDM_LEAST)
        abort();
    if (hth_rdm_hello_write(&hello, again) != head.len || memcmp(again, data, head.len) != 0)
        abort();
    return 0;
}
