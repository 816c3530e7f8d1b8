/* SPDX-License-Identifier: Apache-2.0 */
/* Deadlines: milliseconds of the monotonic clock. */
#ifndef HEARTH_CLIENT_CLOCK_H
#define HEARTH_CLIENT_CLOCK_H

#include <stdint.h>

uint64_t hth_mono_ms(void);
uint64_t hth_until_ms(uint64_t wait_ms); /* from now */

#endif
