/* SPDX-License-Identifier: Apache-2.0 */
/* Small objects that every node gets. */
/* For this folder alone. */
#ifndef HEARTH_CLIENT_COMMONS_H
#define HEARTH_CLIENT_COMMONS_H

#include "save.h"

int hth_commons_send(struct hearth_save *s, struct hearth_error *err);
void hth_commons_drop(struct hearth_save *s);

#endif
