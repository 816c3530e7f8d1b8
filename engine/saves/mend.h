/* SPDX-License-Identifier: Apache-2.0 */
/* Slots whose files another program has removed or cut short under this engine. */
#ifndef HEARTH_ENGINE_MEND_H
#define HEARTH_ENGINE_MEND_H

struct hth_node;

/* Condemns these slots and makes others. A sealed object that was in such a slot is fetched again
 * from a peer. */
void mend_slots(struct hth_node *n);

#endif
