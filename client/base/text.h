/* SPDX-License-Identifier: Apache-2.0 */
/* Names of things, for sentences. */
#ifndef HEARTH_CLIENT_TEXT_H
#define HEARTH_CLIENT_TEXT_H

#include "core/format/manifest.h"
#include <stdint.h>

/* "object 'x' of rank 3"; without an owner the name alone. */
#define HTH_OBJECT_TEXT (HTH_NAME_MAX + 32)
const char *hth_object_text(const struct hth_object *o, char out[HTH_OBJECT_TEXT]);

const char *hth_level_name(uint32_t level); /* "PROTECTED" */

#endif
