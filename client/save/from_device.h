/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pieces of a save that lie in GPU memory. The save's copies from there end later than its calls:
 * until they have, the handle keeps SEAL and COMMIT back, and the slots stay mapped.
 */
/* For this folder alone. */
#ifndef HEARTH_CLIENT_FROM_DEVICE_H
#define HEARTH_CLIENT_FROM_DEVICE_H

#include "client/slots/devices.h"
#include "client/slots/layout.h"

struct hearth_save;

/* The pieces of one call; its memory goes from save to save. */
struct hth_from_list {
    struct hth_devices devices;
    struct hth_device_list noted;
};

/* A call begins: asks once which driver the process has. */
void hth_from_begin(struct hearth_save *s);
/* 1: the piece has bytes in GPU memory, at *out; 0: none; an error names the key. */
int hth_from_where(struct hearth_save *s, const struct hth_laid *laid, struct hth_device_at *out,
        struct hearth_error *err);
/* Notes its copy to dst in the open object. */
int hth_from_note(struct hearth_save *s, const struct hth_laid *laid,
        const struct hth_device_at *at, void *dst, struct hearth_error *err);
/* Enqueues what was noted, which is copied after the work that is in the save's stream now. */
int hth_from_run(struct hearth_save *s, struct hearth_error *err);
void hth_from_clear(struct hearth_save *s); /* nothing is noted */
void hth_from_list_fini(struct hth_from_list *list);

/* No piece follows. dropped: what is not enqueued yet need not be copied. */
void hth_from_end(struct hearth_save *s, int dropped);
/* Waits until all is copied. */
int hth_from_wait(struct hearth_save *s, uint64_t wait_ms, struct hearth_error *err);

#endif
