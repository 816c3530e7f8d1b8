/* SPDX-License-Identifier: Apache-2.0 */
/* Which machine this process runs on. */
#ifndef HEARTH_CLIENT_MACHINE_H
#define HEARTH_CLIENT_MACHINE_H

#include <stdint.h>

#define HTH_BOOT_ID 64u /* bytes, its end counted */

/* Which loopback addresses this process has: the same number for all processes that reach each
 * other there. Even, at least 2; 0: not known. */
uint32_t hth_loopback_id(void);

/* The boot id of the kernel: the same in every container of one machine. Returns 0, or an errno:
 * out is "" then. */
int hth_boot_id(char out[HTH_BOOT_ID]);

#endif
