/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HEARTH_CORE_BASE_SHA256_H
#define HEARTH_CORE_BASE_SHA256_H

#include "auth.h"

/* hth_sha256() for many bytes: by libcrypto, which uses the processor's own instructions where it
 * has them; where there is no libcrypto by libsodium, some times slower. Any thread. */
void hth_sha256_bulk(unsigned char out[HTH_SHA256], const void *bytes, size_t len);

/* Is that libcrypto's? Errors: HEARTH_EINVAL, with what to do. */
int hth_sha256_ready(struct hearth_error *err);

#endif
