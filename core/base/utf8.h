/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HEARTH_CORE_BASE_UTF8_H
#define HEARTH_CORE_BASE_UTF8_H

#include <stddef.h>

/* Text is UTF-8: no half of a pair, nothing overlong or past the last character. */
int hth_utf8(const void *text, size_t len);

#endif
