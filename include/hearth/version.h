/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HEARTH_VERSION_H
#define HEARTH_VERSION_H

#include <hearth/export.h>

HEARTH_BEGIN

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "Hearth supports little-endian machines only: its files and messages are mapped as they are"
#endif
#if defined(__SIZEOF_POINTER__) && __SIZEOF_POINTER__ < 8
#error "Hearth supports 64-bit machines only: objects are mapped whole"
#endif

#define HEARTH_VERSION "0.1.0" /* of this header; CMakeLists.txt reads it */

/* Version of the library that was loaded. Static storage. */
HEARTH_API const char *hearth_version(void);

HEARTH_END

#endif
