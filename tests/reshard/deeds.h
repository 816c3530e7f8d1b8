/* SPDX-License-Identifier: Apache-2.0 */
/* What a rank does with the tensors of the model. `by` is the world that saved the step. */
#ifndef HEARTH_TESTS_RESHARD_DEEDS_H
#define HEARTH_TESTS_RESHARD_DEEDS_H

#include "party.h"

deed put;          /* step: save all of this rank's pieces */
deed get;          /* step, turn (0: as they are saved in this world; else otherwise), by */
deed done_reading; /* the slots that it was read from are free when the step is */
deed find_all;     /* step, by, remote pieces due: keys, boxes with strides and byte ranges */
deed small; /* step, rank: a box of that rank's big piece; v[0]: bytes the node pulled for it */
deed ahead; /* step, rank: prefetch; v[0]: bytes pulled for that, v[1]: for the read afterwards */
deed recover_and_read;         /* both, with nothing between them */
deed partial;                  /* step: what is missing is named */
deed wrong;                    /* kind: refused by name */
deed view_open, view_check;    /* step */
deed reader_start, reader_end; /* step: read a remote piece for ever; v: reads, refusals */
deed whole;                    /* step, rank: that rank's big piece, whole */

#endif
