/* SPDX-License-Identifier: Apache-2.0 */
/* The settings that the engine was started with, compared with this rank's. */
#ifndef HEARTH_CLIENT_SETTINGS_H
#define HEARTH_CLIENT_SETTINGS_H

#include "client/base/member.h"

/* HEARTH_EINVAL by the option's name. challenge: what the engine's proof of the key answers. */
int hth_settings_check(
        const struct hearth *h, const unsigned char *challenge, struct hearth_error *err);
void hth_settings_say(struct hearth *h); /* a line with all of it */

#endif
