/* SPDX-License-Identifier: Apache-2.0 */
/* NODES: the members of the epoch, as this engine knows them. */
#ifndef HEARTH_ENGINE_MEMBERS_H
#define HEARTH_ENGINE_MEMBERS_H

#include "core/local/local.h"
#include <stdio.h>

struct hth_node;

/* A page of them; before the first epoch it is empty. */
int members_put(
        struct hth_node *n, FILE *to, uint32_t what, uint32_t skip, struct hearth_error *err);
/* {"machine", "levels"} of a member: the first node on its machine, and its domains, narrowest
 * first. Members that share a domain have the same word there, which is not the user's. */
void members_put_domains(FILE *to, const struct hth_node *n, uint32_t node);

#endif
