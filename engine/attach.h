/* SPDX-License-Identifier: Apache-2.0 */
/* What the descriptor of a request contains, and the descriptor of an answer. */
#ifndef ENGINE_ATTACH_H
#define ENGINE_ATTACH_H

#include <hearth/internal/core/fail.h>
#include <stddef.h>

/* The whole content of a file in memory (a memfd): a copy, so that its sender can neither change
 * it while it is read nor take its pages away. Empty: NULL and 0. The caller frees.
 * Errors: HEARTH_EPROTO (not in memory, too long, shrinking), HEARTH_ENOMEM. */
int hth_attach_read(int fd, void **out, size_t *out_len, struct hearth_error *err);

/* A sealed memfd with bytes[len]. Returns it, or -1 and errno. */
int hth_attach_make(const void *bytes, size_t len);

#endif
