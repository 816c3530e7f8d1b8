/* SPDX-License-Identifier: Apache-2.0 */
/* Which machine this process runs on. */
#ifndef HEARTH_CLIENT_MACHINE_H
#define HEARTH_CLIENT_MACHINE_H

#include <stdint.h>

#define HTH_BOOT_ID 64u /* bytes, with the final NUL */

/* An id of this process's loopback: processes that reach each other over loopback have the same id.
 * An even number from 2 on; 0: not known. */
uint32_t hth_loopback_id(void);

/* The boot id of the kernel: the same in every container of one machine. Returns 0, or an errno and
 * an empty out. */
int hth_boot_id(char out[HTH_BOOT_ID]);

#endif
