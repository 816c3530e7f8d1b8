/* SPDX-License-Identifier: Apache-2.0 */
/* Which machine this process runs on. */
#ifndef HEARTH_CLIENT_MACHINE_H
#define HEARTH_CLIENT_MACHINE_H

#define HTH_BOOT_ID 64u /* bytes, its end counted */

/* The boot id of the kernel: the same in every container of one machine. Returns 0, or an errno:
 * out is "" then. */
int hth_boot_id(char out[HTH_BOOT_ID]);

#endif
