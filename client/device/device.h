/* SPDX-License-Identifier: Apache-2.0 */
/* GPU memory as one membership uses it. */
#ifndef HEARTH_CLIENT_DEVICE_H
#define HEARTH_CLIENT_DEVICE_H

#include "client/base/member.h"
#include "driver.h"

/* Made with the first save or load of device memory; a process that uses host memory alone has
 * none. */
struct hth_device {
    const struct hth_driver *driver;
    struct hth_device_at at; /* a device whose context pins slots: for all devices */
    struct hth_lines *lines;
    int pin;                     /* 0: the option says no */
    int pin_reads;               /* mappings that are only read may be pinned, too, */
    int read_only;               /* and are registered as such */
    atomic_int said, said_reads; /* what came of the first pin was logged */
    /* ms that the last slot took for each GiB, and 1; 0: none is pinned, or the last one was
     * refused */
    atomic_uint slots_pinned;
};

#endif
