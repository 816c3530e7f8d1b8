/* SPDX-License-Identifier: Apache-2.0 */
/* Deadlines: each wait of a rank has one. */
#include "clock.h"

#include "core/base/options.h"
#include "limits.h"
#include <time.h>

#define WAIT_MAX (2 * (uint64_t)HTH_DEADLINE_MAX) /* poll() takes no more than 2^31 ms */

uint64_t hth_mono_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

uint64_t hth_until_ms(uint64_t wait_ms)
{
    return hth_mono_ms() + (wait_ms < WAIT_MAX ? wait_ms : WAIT_MAX);
}
