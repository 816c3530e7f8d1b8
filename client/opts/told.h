/* SPDX-License-Identifier: Apache-2.0 */
/* What the engine is told of a rank's options when it joins, and says as it is in effect then. */
#ifndef HEARTH_CLIENT_TOLD_H
#define HEARTH_CLIENT_TOLD_H

#include "core/local/local.h"
#include <hearth/hearth.h>

void hth_opts_told(const struct hearth_opts *o, struct hth_local_join *m);
/* Those that are in effect; the others of *out stay. */
void hth_opts_joined(const struct hth_local_opts *joined, struct hearth_opts *out);

#endif
