/* SPDX-License-Identifier: Apache-2.0 */
/* This rank's state of its joinings. */
/* For this folder alone. */
#ifndef HEARTH_CLIENT_JOINING_H
#define HEARTH_CLIENT_JOINING_H

#include "core/base/auth.h"

struct hth_joining {
    int recovered;  /* in this epoch; under h->lock */
    int asked;      /* hearth_recover() was called: the next one begins a new epoch */
    int rounds;     /* gathers so far */
    unsigned keyed; /* how many keys there are */
    unsigned char key[2][HTH_KEY]; /* of the job's, for the rendezvous alone */
};

#endif
