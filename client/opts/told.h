/* SPDX-License-Identifier: Apache-2.0 */
/* The options that a rank sends to the engine when it joins, and the engine's answer: the values
 * in effect. */
#ifndef HEARTH_CLIENT_TOLD_H
#define HEARTH_CLIENT_TOLD_H

#include "core/local/local.h"
#include <hearth/hearth.h>

void hth_opts_told(const struct hearth_opts *o, struct hth_local_join *m);
/* Those that are in effect; the others of *out stay. */
void hth_opts_joined(const struct hth_local_opts *joined, struct hearth_opts *out);

#endif
