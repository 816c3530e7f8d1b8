/* SPDX-License-Identifier: Apache-2.0 */
/* Wishes of users for a kept save: sent by ranks and the command line, decided by the
 * coordinator. */
#ifndef HEARTH_CORE_LOCAL_WISH_H
#define HEARTH_CORE_LOCAL_WISH_H

enum hth_wish {
    HTH_WISH_PIN = 1,
    HTH_WISH_UNPIN = 2,
    HTH_WISH_RELEASE = 3, /* give it up: never the newest PROTECTED one */
    HTH_WISH_BAD = 4,     /* not chosen by a recovery while an older one is whole */
    HTH_WISH_GOOD = 5,
};

#endif
