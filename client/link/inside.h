/* SPDX-License-Identifier: Apache-2.0 */
/* An engine of our own, as a thread of this process. */
/* For this folder alone. */
#ifndef HEARTH_CLIENT_INSIDE_H
#define HEARTH_CLIENT_INSIDE_H

#include "client/base/member.h"

void hth_inside_share(struct hearth *h); /* take part in one that runs here */
int hth_inside_start(struct hearth *h, struct hearth_error *err);
void hth_inside_stop(struct hearth *h);

#endif
