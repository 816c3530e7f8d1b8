/* SPDX-License-Identifier: Apache-2.0 */
/* A save handed over, as those see it who write it. */
/* For this folder alone. */
#ifndef HEARTH_CLIENT_HANDLE_H
#define HEARTH_CLIENT_HANDLE_H

#include "client/link/link.h"

struct hearth_handle *hth_handle_open(struct hearth *h);
void hth_handle_took(struct hearth_handle *handle); /* the engine took over one more object */

#endif
