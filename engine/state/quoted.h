/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HEARTH_ENGINE_QUOTED_H
#define HEARTH_ENGINE_QUOTED_H

#include <stdint.h>

/* Writes text as it must stand between the quotes of a JSON string; out[QUOTED(bytes of the buffer
 * that text is in)]. If text is not UTF-8, as a path or a text that was cut may be, bytes that are
 * not ASCII become '?'. */
#define QUOTED(bytes) (6 * (bytes))
void quoted(const char *text, char *out);

/* Writes a step or an epoch as JSON: from 2^63 on as a string of its decimal digits, since readers
 * of JSON accept no larger integers. Returns out. */
#define QUOTED_NUMBER 24
const char *quoted_number(uint64_t number, char out[QUOTED_NUMBER]);

#endif
