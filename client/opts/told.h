/* SPDX-License-Identifier: Apache-2.0 */
/* What the engine is told of a rank's options when it joins. */
#ifndef HEARTH_CLIENT_TOLD_H
#define HEARTH_CLIENT_TOLD_H

#include "core/local/local.h"
#include <hearth/hearth.h>

void hth_opts_told(const struct hearth_opts *o, struct hth_local_join *m);

#endif
