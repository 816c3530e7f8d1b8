/* SPDX-License-Identifier: Apache-2.0 */
/* What the other files of this folder write into a save's handle. */
/* For this folder alone. */
#ifndef HEARTH_CLIENT_HANDLE_H
#define HEARTH_CLIENT_HANDLE_H

#include "client/base/member.h"

struct hearth_handle *hth_handle_open(struct hearth *h); /* hearth_handle_close() */
/* It is under way at the engine under this token of that connection; save.epoch 0: which save it
 * is is not known yet, and `step` is what begin was told. */
void hth_handle_lent(struct hearth_handle *handle, uint64_t token, uint64_t incarnation,
        struct hth_local_save save, uint64_t step);
/* The engine says which save it is, or that it is committed. */
void hth_handle_named(struct hearth_handle *handle, struct hth_local_save save, int committed);
void hth_handle_set_step(struct hearth_handle *handle, uint64_t step);
/* The rank has done its part; with the kill switch on it never does more. */
void hth_handle_written(struct hearth_handle *handle, uint64_t bytes);
void hth_handle_took(struct hearth_handle *handle, uint32_t objects); /* more, by the engine */

#endif
