/* SPDX-License-Identifier: Apache-2.0 */
/* The orders of a rank, on the tensors of the model. `by` is the world that saved the step. */
#ifndef HEARTH_TESTS_RESHARD_DEEDS_H
#define HEARTH_TESTS_RESHARD_DEEDS_H

#include "party.h"

deed put;              /* step: save all of this rank's pieces */
deed get;              /* step, turn (0: as they are saved in this world; else otherwise), by */
deed done_reading;     /* the slots that it was read from are free when the step is */
deed recover_and_read; /* both, with nothing between them */
deed view_open, view_check;    /* step */
deed reader_start, reader_end; /* step: read a piece of another node for ever; v: reads, refusals */
deed whole;                    /* step, rank: that rank's big piece, whole */

#endif
