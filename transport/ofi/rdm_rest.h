/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How long a transport rests that has nothing to wait on: an eighth of the time for which nothing
 * has happened, 50 us to 5 ms. Whatever comes is seen that much later at most, and 40 ms after the
 * last event, some 50 looks later, the looks are as rare as they get.
 */
#ifndef HEARTH_TRANSPORT_OFI_RDM_REST_H
#define HEARTH_TRANSPORT_OFI_RDM_REST_H

#include <stdint.h>

#define HTH_RDM_REST_PART  8u
#define HTH_RDM_REST_LEAST 50u
#define HTH_RDM_REST_MOST  5000u
#define HTH_RDM_REST_BUSY  1000u    /* at most, while something is under way ... */
#define HTH_RDM_BUSY_FOR   1000000u /* ... for which something was done in this time */

/* Microseconds, all of them. */
static inline uint64_t hth_rdm_rest_us(uint64_t since, int busy)
{
    uint64_t most = busy && since < HTH_RDM_BUSY_FOR ? HTH_RDM_REST_BUSY : HTH_RDM_REST_MOST;
    uint64_t part = since / HTH_RDM_REST_PART;

    return part < HTH_RDM_REST_LEAST ? HTH_RDM_REST_LEAST : part > most ? most : part;
}

#endif
