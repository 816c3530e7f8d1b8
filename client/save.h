/* SPDX-License-Identifier: Apache-2.0 */
/* A save being written: one object open, those before it finished, their slots ours until commit. */
/* For this folder alone. */
#ifndef CLIENT_SAVE_H
#define CLIENT_SAVE_H

#include "client.h"
#include "core/base/set.h"

struct hth_written {
    struct hth_slot_map *slot; /* NULL: kill switch, or sealed */
    unsigned char *base;       /* of the file; data at base + HTH_BLOCK */
    uint64_t slot_id, generation;
    uint64_t room; /* payload bytes that begin asked for: data and table records */
    uint64_t data_len, items_len;
    uint32_t items;
};

struct hth_common_put { /* waits for the step to be known */
    struct hth_common_put *next;
    char name[HTH_NAME_MAX + 1];
    int fd;
    size_t len;
};

struct hth_seen {           /* pieces of the save so far (seen.c) */
    struct hth_set set;     /* numbers of: */
    struct hth_seen_at *at; /* [count] where their records are, of [room] */
    size_t room, count;
    uint32_t object; /* whose records were looked at last, its number + 1 ... */
    uint64_t pos;    /* ... and how far */
};

struct hearth_save {
    struct hearth *h;
    struct hearth_handle *handle;
    uint64_t token, incarnation;
    uint64_t step;
    uint32_t wait_ms; /* for room, of begin */
    uint32_t objects; /* the last one is open */
    uint32_t sealed;  /* objects handed over, from the first on */
    int closed;       /* to items and objects: hearth_save_seal() was called */
    int has_bytes;    /* tensors may not follow */
    struct hth_written object[HTH_OBJECTS_MAX];
    unsigned char *items; /* [object.items_len] table records of the open object */
    size_t items_room;
    struct hth_seen seen;
    struct hth_common_put *commons;
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
/* It is under way at the engine under this token of that connection; save.epoch 0: its step is not
 * known yet. */
void hth_save_lent(
        struct hearth_save *s, uint64_t token, uint64_t incarnation, struct hth_local_save save);
int hth_save_add_object(struct hearth_save *s, uint64_t bytes, const struct hearth_begin_opts *o,
        struct hearth_error *err); /* a slot lent, which becomes the open object */
/* The records of the object that was open last go where its table will be. */
void hth_save_finish_object(struct hearth_save *s, uint32_t index);
void hth_save_dispose(struct hearth_save *s);

/* Note the records of the open object that are new. HEARTH_EINVAL, naming the key: a piece is there
 * already; then what came after `before` is to be taken back. */
int hth_seen_take(
        struct hearth_save *s, const struct hth_written *before, struct hearth_error *err);
void hth_seen_fini(struct hth_seen *seen);

struct hearth_handle *hth_handle_open(struct hearth *h);
void hth_handle_took(struct hearth_handle *handle); /* the engine took over one more object */

int hth_commons_send(struct hearth_save *s, struct hearth_error *err);
void hth_commons_drop(struct hearth_save *s);

#endif
