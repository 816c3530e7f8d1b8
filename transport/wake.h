/* SPDX-License-Identifier: Apache-2.0 */
/* A thread that sleeps on an eventfd, woken by others: one write however many they are. */
#ifndef HEARTH_TRANSPORT_WAKE_H
#define HEARTH_TRANSPORT_WAKE_H

#include <stdatomic.h>
#include <sys/eventfd.h>

static inline void hth_wake(int fd, atomic_int *woken)
{
    if (!atomic_exchange(woken, 1))
        eventfd_write(fd, 1);
}

/* By the thread itself, before it looks at what there is. The mark stays until the write that it
 * stands for has come: whoever made it may have been stopped between the two. */
static inline void hth_wake_taken(int fd, atomic_int *woken)
{
    eventfd_t ignored;

    if (atomic_load(woken) && !eventfd_read(fd, &ignored))
        (void)atomic_exchange(woken, 0);
}

#endif
