/* SPDX-License-Identifier: Apache-2.0 */
/* Joining an epoch. */
#ifndef HEARTH_CLIENT_JOIN_H
#define HEARTH_CLIENT_JOIN_H

#include "client/base/member.h"

int hth_joining_open(struct hearth *h); /* HEARTH_ENOMEM */
void hth_joining_close(struct hearth *h);

int hth_join(struct hearth *h, struct hearth_error *err); /* gather, and hand it to the engine */
/* Joins the gather of the job's other ranks only to send them that this rank cannot join, and why.
 * Takes as long as the gather. */
void hth_join_absent(struct hearth *h, const struct hearth_error *why);
/* The first recovery is of the epoch that open joined; each further one joins a new one. */
int hth_join_to_recover(struct hearth *h, struct hearth_error *err);

/* Whether the ranks of this epoch have agreed on where the job goes on. */
void hth_set_recovered(struct hearth *h, int recovered);
int hth_has_recovered(struct hearth *h);

#endif
