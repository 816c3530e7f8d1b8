/* SPDX-License-Identifier: Apache-2.0 */
/* How hearthd ends: its exit status. The rank that started it is not its parent, so with --detach
 * hearthd prints the status in front of its reason. */
#ifndef HEARTH_CORE_ENDS_H
#define HEARTH_CORE_ENDS_H

enum hth_end {
    HTH_END_DONE = 0,
    HTH_END_FAILED = 1,  /* the reason may pass: threads, memory, files */
    HTH_END_REFUSED = 2, /* it does not pass: the next engine is refused, too */
    HTH_END_LOCKED = 3,  /* another engine has the job, and may be ending */
    HTH_END_AGAIN = 4
};

#define HTH_END_LINE "hearthd ended with status " /* "2: ..." */

#endif
