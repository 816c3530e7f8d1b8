/* SPDX-License-Identifier: Apache-2.0 */
/* Slots whose files another program has removed or cut short under this engine. */
#ifndef HEARTH_ENGINE_MEND_H
#define HEARTH_ENGINE_MEND_H

struct hth_node;

/* They go, and others are made; a sealed object that was in one is brought back from a peer. */
void mend_slots(struct hth_node *n);

#endif
