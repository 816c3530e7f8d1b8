/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HEARTH_ENGINE_QUOTED_H
#define HEARTH_ENGINE_QUOTED_H

/* Writes text as it must stand between the quotes of a JSON string; out[QUOTED(bytes of the buffer
 * that text is in)]. If text is not UTF-8, as a path or a text that was cut may be, bytes that are
 * not ASCII become '?'. */
#define QUOTED(bytes) (6 * (bytes))
void quoted(const char *text, char *out);

#endif
