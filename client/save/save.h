/* SPDX-License-Identifier: Apache-2.0 */
/* A save being written: one object open, those before it finished, their slots ours
 * until commit. */
/* For this folder alone. */
#ifndef HEARTH_CLIENT_SAVE_H
#define HEARTH_CLIENT_SAVE_H

#include "client/base/limits.h"
#include "client/link/link.h"
#include "client/slots/copy.h"
#include "from_device.h"
#include "handle.h"

struct hth_from;
struct hth_seen;

struct hearth_save {
    struct hearth *h;
    struct hearth_handle *handle;
    uint64_t step;
    uint32_t wait_ms; /* for room, of begin */
    uint32_t objects; /* the last one is open */
    uint32_t sealed;  /* objects handed over, from the first on */
    int closed;       /* to items and objects: hearth_save_seal() was called */
    int has_bytes;    /* tensors may not follow */
    struct hth_written object[HTH_OBJECTS_MAX];
    struct hth_scratch {
        unsigned char *items; /* [object.items_len] table records of the open object */
        size_t items_room;
        struct hth_copies copies;  /* of the call that runs */
        struct hth_from_list from; /* likewise, from GPUs */
        struct hth_seen *seen;     /* seen.c; NULL: none so far */
    } scratch;                     /* its memory goes from save to save: new pages are slow */
    struct hth_from *from;         /* copies from GPUs, more of which may follow; NULL: none */
    void *stream;                  /* of begin: they start after what is in it at each call */
    uint32_t early;                /* common objects that wait for the step to be known */
    uint64_t asked_step;           /* of a set_step that ended without an answer */
    uint32_t asked_attempt;        /* of it; 0: there is none, or the engine counts */
};

static inline struct hth_written *hth_save_open_object(struct hearth_save *s)
{
    return &s->object[s->objects - 1];
}

static inline unsigned char *hth_written_end(const struct hth_written *o)
{
    return o->base + HTH_BLOCK + o->data_len;
}

int hth_save_enter(const struct hearth_save *s, struct hearth_error *err);
int hth_save_not_sealed(const struct hearth_save *s, struct hearth_error *err);
struct hearth_save *hth_save_open(
        struct hearth *h, uint64_t step); /* with a handle; NULL: no memory */
int hth_save_add_object(struct hearth_save *s, uint64_t bytes, const struct hearth_begin_opts *o,
        struct hearth_error *err); /* a slot lent, which becomes the open object */
int hth_save_records(struct hearth_save *s, uint64_t bytes); /* room for them; 0 or HEARTH_ENOMEM */
/* Copies the records of the object that was open last to where its table will be. */
void hth_save_finish_object(struct hearth_save *s, uint32_t index);
void hth_save_dispose(struct hearth_save *s);
/* The code for a request that failed with rc: HEARTH_EBUSY where no answer came in time and the
 * caller gave no wait_ms. */
int hth_save_late(uint32_t wait_ms, int rc, struct hearth_error *err);

#endif
