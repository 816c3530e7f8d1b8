/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes that the engine has or brings. */
/* For this folder alone. */
#ifndef HEARTH_CLIENT_FETCH_H
#define HEARTH_CLIENT_FETCH_H

#include "client/link/link.h"

/* To ask for bytes of a save or an object; `what`, and a longer wait_ms, are the caller's
 * to set. */
struct hth_ask hth_bytes_ask(enum hth_local_type type, struct hth_local_map *m,
        struct hth_local_bytes *answer, int *out_fd);
/* To ask for m->len bytes of an object, wherever it is. */
struct hth_ask hth_range_ask(struct hth_local_map *m, struct hth_local_bytes *a, int *out_fd);
int hth_range(struct hearth *h, struct hth_save_id save, uint64_t object, uint64_t off,
        uint64_t len, struct hth_local_bytes *out, int *out_fd, struct hearth_error *err);

/* Reports to the engine that bytes it gave are wrong; chunk HTH_BAD_TABLE: the table, or a common
 * object. The engine checks its copy before this returns, so the next request is answered from
 * another copy, or with right bytes. */
void hth_tell_bad(struct hearth *h, struct hth_save_id save, uint64_t object, uint64_t chunk);

/* A descriptor the engine sent, mapped and closed; at least `len` long. */
int hth_map_answer(int fd, uint64_t len, void **out, struct hearth_error *err);

#endif
