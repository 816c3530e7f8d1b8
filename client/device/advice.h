/* SPDX-License-Identifier: Apache-2.0 */
/* A driver's refusal in words, for cuda.c and hip.c: their numbers mean the same. */
#ifndef HEARTH_CLIENT_ADVICE_H
#define HEARTH_CLIENT_ADVICE_H

#include <hearth/error.h>

/* Of `call`, which returned `number`; `name`: as the driver has it, or NULL. Returns the code. */
int hth_device_fail(struct hearth_error *err, const char *call, int number, const char *name);

#endif
