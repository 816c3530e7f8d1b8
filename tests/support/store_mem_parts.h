/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of the store in memory: store_mem.c, its room, and its raw objects. */
#ifndef HEARTH_TESTS_STORE_MEM_PARTS_H
#define HEARTH_TESTS_STORE_MEM_PARTS_H

#include "store_mem.h"

#define RECORD_MAX 127 /* bytes of a record's name */
#define MEM_ROUND  64u

enum state {
    FREE,
    HELD,
    RECEIVED,
    SEALED,
    GIVEN /* free when its last lease ends and no other process has it open */
};

struct dir {
    struct dir *next;
    struct hth_save_id save;
    int published;     /* it is step-<N>_ckpt now */
    int was_published; /* so it goes back there when what replaced it is removed */
};

struct slot {
    struct hth_slot pub; /* first */
    struct slot *next;
    enum state state;
    int condemned; /* freed with its last lease */
    uint64_t opened;
    struct dir *dir;
    struct hth_save_id half; /* free: `name` of that save was being received in it */
    char name[HTH_NAME_MAX + 1];
    int surplus;                       /* by the last mem_keep_only() */
    uint64_t seen_generation, seen_ms; /* the judge's: since when it saw this use of it */
};

/* A raw object of a directory; a record where dir is NULL. */
struct file {
    struct file *next;
    struct dir *dir;
    char name[RECORD_MAX + 1];
    void *bytes;
    struct large *large; /* bytes are its first ones; NULL: all of them, and its own */
    size_t len, charged;
    uint32_t users; /* raw objects that callers have open */
    int unnamed;    /* in no list: freed with its last user */
    void *older;    /* a record: what it was before it was written last; NULL: nothing */
    size_t older_len;
};

struct mem {
    struct hth_store base; /* first */
    uint64_t id;
    uint64_t limit;
    uint64_t used;
    uint64_t slot_ids;
    uint64_t allocations;
    uint64_t fail_at; /* value of `allocations`; 0: never */
    uint32_t evidence;
    int reserved; /* reserve() was called by this engine */
    int no_records;
    int remembers; /* each record what it was before */
    int spares;    /* records have memory of their own, whatever a stranger takes */
    hth_store_mem_written *written;
    hth_store_mem_freed *freed;
    void *watcher;
    hth_store_mem_elsewhere *elsewhere;
    void *world;
    uint64_t opens;
    int expecting;
    size_t foreseen;
    struct slot *slots;
    struct dir *dirs;
    struct file *files;
};

static inline struct mem *mem_of(struct hth_store *s)
{
    return (struct mem *)s;
}

static inline uint64_t mem_capacity_for(uint64_t bytes)
{
    return (bytes + bytes / 16 + MEM_ROUND - 1) / MEM_ROUND * MEM_ROUND;
}

/* store_mem.c */
void mem_settle(struct mem
                *m); /* of what was given back, that which no process has open any more is free */
int mem_slot_make(struct mem *m, uint64_t capacity, struct slot **out, struct hearth_error *err);
void mem_slot_drop(struct mem *m, struct slot *slot);
int mem_charge(struct mem *m, uint64_t bytes, struct hearth_error *err); /* an allocation */
struct dir *mem_dir_find(struct mem *m, struct hth_save_id save);
int mem_dir_get(struct mem *m, struct hth_save_id save, struct dir **out, struct hearth_error *err);
int mem_slot_named(struct mem *m, const struct dir *dir, const char *name, enum state state);
struct file **mem_file_find(struct mem *m, const struct dir *dir, const char *name);
int mem_file_new(struct mem *m, size_t len, struct file **out, struct hearth_error *err);
void mem_file_name(struct mem *m, struct file *f, struct dir *dir, const char *name);
void mem_file_end(struct mem *m, struct file *f);

/* store_mem_room.c */
int mem_reserve(struct hth_store *s, const uint64_t *bytes, size_t count, struct hearth_error *err);
int mem_enough(struct hth_store *s, const uint64_t *bytes, size_t count, struct hearth_error *err);
int mem_room(struct hth_store *s, struct hth_store_room *out);
int mem_want(struct hth_store *s, const uint64_t *bytes, size_t count, enum hth_want how,
        struct hearth_error *err);

void mem_keep_only(struct hth_store *s, const uint64_t *bytes, size_t count);
struct hth_slot *mem_surplus(struct hth_store *s);

/* store_mem_raw.c */
int mem_raw_make(struct hth_store *s, struct hth_save_id save, const char *name, uint64_t len,
        struct hth_raw **out, struct hearth_error *err);
int mem_raw_back(struct hth_store *s, struct hth_raw *raw, uint64_t off, uint64_t len,
        struct hearth_error *err);
int mem_raw_seal(struct hth_store *s, struct hth_raw *raw, struct hearth_error *err);
int mem_raw_open(struct hth_store *s, struct hth_save_id save, const char *name,
        struct hth_raw **out, struct hearth_error *err);
void mem_raw_close(struct hth_store *s, struct hth_raw *raw);

#endif
