/* SPDX-License-Identifier: Apache-2.0 */
/* Where the ranks of a job meet: a name and a port, and the addresses that the name has here. */
#ifndef HEARTH_CORE_BASE_MEETING_PLACE_H
#define HEARTH_CORE_BASE_MEETING_PLACE_H

#include <stdint.h>

#define HTH_MEETING_ADDRESSES 32u
#define HTH_MEETING_HOST      256u

struct hth_meeting_address {
    uint16_t family; /* AF_INET, AF_INET6 */
    uint16_t zero;
    uint32_t scope; /* of IPv6 */
    unsigned char ip[16];
};

struct hth_meeting_place {
    char host[HTH_MEETING_HOST];
    uint32_t port;
    uint32_t addresses;
    struct hth_meeting_address at[HTH_MEETING_ADDRESSES];
};

#endif
