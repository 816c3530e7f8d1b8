/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes without a file: sent to the engine by their descriptor. */
#ifndef HEARTH_CLIENT_MEMFD_H
#define HEARTH_CLIENT_MEMFD_H

#include <hearth/error.h>
#include <stddef.h>

/* A memfd with bytes[len]; -1 and errno. Errors: HEARTH_ENOMEM with the reason. */
int hth_memfd(const char *name, const void *bytes, size_t len, struct hearth_error *err);

#endif
