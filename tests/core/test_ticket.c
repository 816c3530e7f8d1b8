/* SPDX-License-Identifier: Apache-2.0 */
#include "check.h"

#include "core/format/ticket.h"
#include <string.h>

static struct hth_ticket some(void)
{
    struct hth_ticket t = { .digest = { 1, 2, 3 },
        .len = 7000000,
        .at = { .node = "n17", .store = 99, .addr_len = 20, .addr = { 2, 0, 4 } } };

    return t;
}

Test(ticket, decodes_to_what_was_encoded)
{
    struct hth_ticket t = some(), again;
    unsigned char bytes[HTH_TICKET];

    hth_ticket_encode(&t, bytes);
    must(hth_ticket_decode(&again, bytes));
    cr_assert(zero(int, memcmp(&again, &t, sizeof(t))));
}

static void refused(size_t at, unsigned char with)
{
    struct hth_ticket t = some(), again;
    unsigned char bytes[HTH_TICKET];

    hth_ticket_encode(&t, bytes);
    bytes[at] = with;
    must_fail(hth_ticket_decode(&again, bytes), HEARTH_EPROTO);
}

Test(ticket, that_names_no_table_or_no_engine_is_refused)
{
    struct hth_ticket t = some(), again;
    unsigned char bytes[HTH_TICKET];

    refused(39, 1);    /* a table of 2^56 bytes */
    refused(48, '/');  /* no node's id */
    refused(48, 0);    /* none */
    refused(60, 'x');  /* a byte behind it */
    refused(112, 0);   /* no address */
    refused(112, 129); /* a longer one than there is */
    refused(112, 2);   /* bytes behind it */
    refused(116, 1);
    refused(247, 1);
    t.len = 0;
    hth_ticket_encode(&t, bytes);
    must_fail(hth_ticket_decode(&again, bytes), HEARTH_EPROTO);
}
