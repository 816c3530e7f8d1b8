/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HEARTH_VERSION_H
#define HEARTH_VERSION_H

#include <hearth/export.h>
#include <stdint.h>

HEARTH_BEGIN

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "Hearth supports little-endian machines only: its files and messages are mapped as they are"
#endif
#if defined(__SIZEOF_POINTER__) && __SIZEOF_POINTER__ < 8
#error "Hearth supports 64-bit machines only: objects are mapped whole"
#endif

/* Of this header; CMakeLists.txt reads the text. The number is major * 1000000 + minor * 1000 +
 * patch, for #if. */
#define HEARTH_VERSION        "0.1.0"
#define HEARTH_VERSION_NUMBER 1000

/* The same of the library that was loaded. The text is in static storage. */
HEARTH_API const char *hearth_version(void);
HEARTH_API uint32_t hearth_version_number(void);

HEARTH_END

#endif
