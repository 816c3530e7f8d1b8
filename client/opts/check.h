/* SPDX-License-Identifier: Apache-2.0 */
/* The caller's options, checked and copied. */
#ifndef HEARTH_CLIENT_CHECK_H
#define HEARTH_CLIENT_CHECK_H

#include "client/base/member.h"
#include "core/base/network.h"

struct hth_network hth_network_of(const struct hearth_opts *o);
/* Checks each value, the network that they describe, and root's folder. Unset values become their
 * defaults. hearth_open() asks it, and `hearth doctor`, which may not know the root (no_root).
 * Errors: HEARTH_EINVAL, and a key file's. */
int hth_opts_check(struct hearth_opts *o, int no_root, struct hearth_error *err);
/* Into h->opts and h->wants. */
int hth_opts_take(struct hearth *h, const struct hearth_opts *opts, struct hearth_error *err);
void hth_opts_drop(struct hearth *h);

#endif
