/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes of a descriptor; a small file, all of it. */
#ifndef HEARTH_CORE_BASE_FILE_H
#define HEARTH_CORE_BASE_FILE_H

#include <stddef.h>
#include <stdint.h>

/* at[len] from the descriptor's byte `off` on. 0; or -1 and errno: EIO it ends before, or as
 * pread(). */
int hth_file_fill(int fd, void *at, size_t len, uint64_t off);

/* The bytes of the regular file `fd`, malloc'ed, with a NUL behind them. 0; or -1 and errno: EINVAL
 * it is no regular file, EFBIG it has more than `most` bytes, ENOMEM, EIO it became shorter, or as
 * fstat() and pread(). */
int hth_file_read(int fd, uint64_t most, void **out, size_t *out_len);

#endif
