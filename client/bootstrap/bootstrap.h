/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the bootstraps. */
/* For this folder alone. */
#ifndef HEARTH_CLIENT_BOOTSTRAP_H
#define HEARTH_CLIENT_BOOTSTRAP_H

#include "core/base/fail.h"
#include <hearth/bootstrap.h>

int hth_bootstrap_check(uint32_t rank, uint32_t world, uint32_t deadline_ms,
        struct hearth_bootstrap **out, struct hearth_error *err);

/* A variable of the environment. Errors: HEARTH_ENOENT, HEARTH_EINVAL. */
int hth_env_number(const char *name, uint32_t most, uint32_t *out, struct hearth_error *err);

#endif
