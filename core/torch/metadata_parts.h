/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Between the parts of the `.metadata` reader.
 *
 *      bytes ─► scan: are these opcodes, and which memo numbers are ever fetched?
 *            ─► machine: a stack of 16-byte slots; what is complete becomes a record
 *            ─► records: entries, chunks, stored places, paths ─► tables by name
 *
 * A record holds places in the pickle, not values: a text, a torch.Size or a length is read again
 * where it stands. 0, where the first opcode is, stands for none. README.md has the order of the
 * parts.
 */
/* For this folder alone. */
#ifndef HEARTH_CORE_TORCH_METADATA_PARTS_H
#define HEARTH_CORE_TORCH_METADATA_PARTS_H

#include "core/base/set.h"
#include "metadata_reread.h"
#include "pickle.h"

#define MD_STACK (1 << 16) /* values; writers put at most 2000 between MARK and SETITEMS */
#define MD_ATTRS 5         /* of a class that we know */

/* ---- Values ------------------------------------------------------------------------------- */

enum md_kind {
    MD_NONE = 1,
    MD_BOOL,
    MD_INT,   /* i; small: an opcode just made it, so that it stands at `at` */
    MD_FLOAT, /* its value is not kept: no record has one */
    MD_TEXT,  /* x bytes; y their hash; small: enum md_attr; n: it is a path in a directory */
    MD_INTS, /* a tuple of n integers that stand one behind the other from `at` on; small: enum md_ints */
    MD_ARGS,       /* a tuple of one MD_INTS, as torch.Size() takes it */
    MD_SIZE,       /* a torch.Size: as MD_INTS, none MD_NEGATIVE */
    MD_DTYPE,      /* small: enum hearth_dtype */
    MD_LAYOUT,     /* x bytes at `at` */
    MD_FORMAT,     /* small: 0 to 2 */
    MD_BYTES,      /* BytesStorageMetadata */
    MD_PROPERTIES, /* complete: small dtype, n flags, `at` layout */
    MD_OPAQUE,     /* may stand only in attributes that are ignored; small: a set */
    MD_UNKNOWN,    /* a class that is not in the table, or (small) an object of it; x, y: the texts
                    * that name the class */
    MD_TUPLE,      /* heap[x .. x + y); small: a class is among them; n: enum md_of */
    MD_PATH,       /* of pathlib: its parts, as MD_TUPLE; small: of Windows */
    MD_GLOBAL,     /* small: row of the table; x, y: as above; never part of another value */
    MD_LIST,       /* from here on x is a cell */
    MD_DICT,
    MD_NEW_PROPERTIES, /* classes with a state */
    MD_METADATA,
    MD_TENSOR,
    MD_CHUNK,
    MD_INDEX,
    MD_STORED,
    MD_STORAGE,
    MD_KINDS,
};

enum md_of {
    MD_OF_STEPS = 1, /* a tuple of nothing but texts and integers */
    MD_OF_TEXTS = 2,
    MD_OF_OTHERS = 4, /* some elements are MD_OPAQUE */
    MD_OF_UNKNOWN =
            8, /* some are MD_UNKNOWN: the first of them stands behind the last element, too */
};

enum md_ints {
    MD_NEGATIVE = 1, /* one is */
    MD_HASHLESS = 2, /* one has no hash of its own in Python */
};

/* The texts that name a class which is not in the table; 0, 0: there is none. An object that has
 * such a value in it is not known either: its entry is listed by name alone. */
struct md_what {
    uint32_t module, name;
};

struct md_slot {
    uint8_t kind, small;
    uint16_t n;
    uint32_t at; /* byte of the pickle */
    union {
        int64_t i;
        struct {
            uint32_t x, y;
        };
    };
};

enum md_attr { /* a text that names an attribute; what it may hold is in md_class */
    MD_NO_ATTR,
    MD_DUNDER, /* begins with __ */
    MD_A_STATE_DICT,
    MD_A_PLANNER,
    MD_A_STORAGE_DATA,
    MD_A_STORAGE_META,
    MD_A_VERSION,
    MD_A_PROPERTIES,
    MD_A_SIZE,
    MD_A_CHUNKS,
    MD_A_OFFSETS,
    MD_A_SIZES,
    MD_A_FQN,
    MD_A_INDEX,
    MD_A_OFFSET,
    MD_A_CHECKPOINT_ID,
    MD_A_SAVE_ID,
    MD_A_LOAD_ID,
    MD_A_MODULES,
    MD_A_PATH,
    MD_A_LENGTH,
    MD_A_TRANSFORMS,
};

/* Order of a cell's attributes, for each class. */
enum { MD_M_STATE_DICT, MD_M_PLANNER, MD_M_STORAGE_DATA, MD_M_STORAGE, MD_M_VERSION };
enum { MD_T_PROPERTIES, MD_T_SHAPE, MD_T_CHUNKS };
enum { MD_C_OFFSETS, MD_C_SIZES };
enum { MD_I_NAME, MD_I_HINT, MD_I_OFFSET };
enum { MD_S_PATH, MD_S_AT, MD_S_LENGTH, MD_S_TRANSFORMS };
enum { MD_G_ID, MD_G_SAVE, MD_G_LOAD, MD_G_MODULES };

enum md_holds { /* what a list or dict has turned out to be */
    MD_EMPTY,
    MD_MIXED,
    MD_STATE,   /* attributes: `first` is the object's cell */
    MD_TEXTS,   /* list */
    MD_CHUNKS,  /* list: chunk[first ..) */
    MD_ENTRIES, /* dict: entry[first ..) */
    MD_PATHS,   /* dict: path[first ..) */
    MD_PLACES,  /* dict: stored[first ..) */
};

/* What changes after it was made: a list, a dict, an object. Pinned: the memo holds it too. */
struct md_cell {
    uint8_t pinned, closed; /* closed: is part of another value; object: has its state */
    uint8_t holds, set;     /* enum md_holds; object: bits of the attributes it has */
    uint32_t at;
    struct md_what unknown; /* a class that it needs and that is not known */
    union {
        struct md_slot attr[MD_ATTRS];
        struct {
            uint32_t first, count;
            uint32_t bad;      /* dict, list: byte of the first element that does not belong here */
            uint32_t shape_at; /* chunks: of the tensor they were checked against */
            uint32_t ndim;     /* chunks: of each */
        };
        uint32_t next_free;
    };
};

/* ---- Records ------------------------------------------------------------------------------ */

struct md_entry {
    uint32_t name, hash, shape, layout;
    uint32_t chunk, chunks;
    uint32_t path; /* number of its path + 1 */
    uint8_t tensor, dtype, ndim, flags;
    struct md_what unknown; /* then nothing but the name holds */
};
/* flags: the memory format has two bits; huge: of more than 2^63 bytes */
enum { MD_GRAD = 1, MD_PINNED = 2, MD_FORMAT_SHIFT = 2, MD_FORMAT_MASK = 3, MD_HUGE = 16 };

struct md_chunk {
    uint32_t offset, shape;
};

struct md_stored {
    uint32_t name, hash, offset, path, at, len, hint;
    uint16_t transforms;
    uint8_t ndim, has_offset;
};

struct md_spoiled { /* a place or path with an unknown class in it: its entry is not known */
    uint32_t name, hash;
    uint32_t dict; /* `at` of the dict that it stands in */
    struct md_what what;
};

struct md_path { /* of an entry in the nested state */
    uint32_t name, hash;
    struct md_slot steps; /* MD_TUPLE or MD_INTS */
};

#define MD_ARRAY(type)       \
    struct {                 \
        type *at;            \
        uint32_t count, cap; \
    }

struct hearth_metadata {
    const unsigned char *bytes; /* [len] */
    size_t len;
    MD_ARRAY(struct md_entry) entry;
    MD_ARRAY(struct md_chunk) chunk;
    MD_ARRAY(struct md_stored) stored;
    MD_ARRAY(struct md_path) path;
    MD_ARRAY(struct md_spoiled) spoiled;
    MD_ARRAY(struct md_slot) heap; /* elements of tuples */
    uint32_t entries, first_entry, storeds, first_stored, paths, first_path;
    int huge; /* some entry is */
    struct hearth_metadata_head info;
    char *id; /* the parts of a path, joined */
    uint64_t seed;
    struct hth_set by_name, by_place; /* entries from first_entry on, places from first_stored on */
    int64_t dims[2][HTH_DIMS_MAX];    /* what the last call gave out */
};

/* ---- Parts -------------------------------------------------------------------------------- */

struct md_memo {      /* of 64 memo numbers */
    uint64_t fetched; /* a bit each */
    uint64_t before;  /* fetched ones with a smaller number */
};

/* Which of the fetched memo numbers this one is. */
static inline uint64_t md_memo_rank(const struct md_memo *memo, uint32_t number)
{
    const struct md_memo *word = &memo[number / 64];

    return word->before +
           (uint64_t)__builtin_popcountll(word->fetched & ((UINT64_C(1) << number % 64) - 1));
}

/* Pass 1. *out is malloc'ed; *out_kept: how many memo numbers are fetched. */
int md_scan(const unsigned char *bytes, size_t len, struct md_memo **out, uint64_t *out_kept,
        struct hearth_error *err);

struct md_machine {
    struct hearth_metadata *md;
    const unsigned char *op; /* in hand */
    struct md_slot *stack;   /* at most [MD_STACK] */
    struct md_slot *floor;   /* above the last MARK */
    struct md_slot *mark[HTH_PICKLE_MARKS];
    unsigned marks;
    const struct md_memo *memo;
    struct md_slot *kept; /* memo numbers that are fetched, in order */
    uint64_t memos, keeps;
    uint64_t low[256]; /* numbers of the first memo numbers in `kept` */
    MD_ARRAY(struct md_cell) cell;
    uint32_t free_cell;  /* number + 1 */
    uint32_t heap_floor; /* tuples below it may be referred to */
    int rc;
    struct hearth_error *err;
};

/* Pass 2: the records of md, from md->bytes. */
int md_run(struct hearth_metadata *md, const struct md_memo *memo, uint64_t kept,
        struct hearth_error *err);

/* "byte N: ..." at the opcode in hand, or at `at`. NULL, for an opcode to return. */
struct md_slot *md_refuse(struct md_machine *m, const char *fmt, ...) HTH_PRINTF(2, 3);
int md_refuse_at(struct md_machine *m, uint32_t at, const char *fmt, ...) HTH_PRINTF(3, 4);

/* An array of the machine or of md has room for one more; 0: m->rc is set. */
void *md_grow(struct md_machine *m, void *at, uint32_t *cap, size_t each);
#define MD_ROOM(m, array)           \
    ((array).count < (array).cap || \
            ((array).at = md_grow((m), (array).at, &(array).cap, sizeof(*(array).at)), !(m)->rc))

/* A value becomes part of another one; a value is not needed any more. */
int md_place(struct md_machine *m, const struct md_slot *s);
void md_drop(struct md_machine *m, const struct md_slot *s);
uint32_t md_cell_new(struct md_machine *m); /* UINT32_MAX: m->rc is set */
/* Remove the records of a dict, where they are the last ones. */
void md_forget(struct md_machine *m, const struct md_cell *dict);
/* 1: the value is of an unknown class, or has a value of one in it; *out names the class. */
int md_unknown(const struct md_machine *m, const struct md_slot *s, struct md_what *out);

/* Opcodes that refer to classes: each takes the stack's top and returns the new one, or NULL. */
struct md_slot *md_stack_global(struct md_machine *m, struct md_slot *sp);
struct md_slot *md_newobj(struct md_machine *m, struct md_slot *sp);
struct md_slot *md_newobj_ex(struct md_machine *m, struct md_slot *sp);
struct md_slot *md_reduce(struct md_machine *m, struct md_slot *sp);
struct md_slot *md_build(struct md_machine *m, struct md_slot *sp);
enum md_attr md_attr_of(const unsigned char *text, size_t len);
/* values[pairs of key, value] are attributes of `object`. 0 or m->rc. */
int md_attributes(struct md_machine *m, const struct md_slot *object, const struct md_slot *values,
        size_t pairs);

/* Pairs and elements that become records. 0 or m->rc. */
int md_pair(struct md_machine *m, struct md_cell *dict, const struct md_slot *key,
        const struct md_slot *value);
int md_tensor(struct md_machine *m, struct md_slot *attr); /* of a TensorStorageMetadata */
int md_element(struct md_machine *m, struct md_cell *list, const struct md_slot *value);
/* A Metadata with its attributes: which records it consists of. 0 or m->rc. */
int md_root(struct md_machine *m, const struct md_cell *metadata);

/* Tables and lookups. A text is hashed once, where it is made: many records may share it. */
uint32_t md_hash(const struct hearth_metadata *md, const void *text, size_t len);
int md_tables(struct hearth_metadata *md, struct hearth_error *err);
const struct md_entry *md_entry_find(
        const struct hearth_metadata *md, const char *name, size_t len);
/* By the hash alone; rarely it is that of another name. */
const struct md_entry *md_entry_hashed(const struct hearth_metadata *md, uint32_t hash);
const struct md_stored *md_stored_find(const struct hearth_metadata *md, const char *name,
        size_t len, const int64_t *offset, uint32_t ndim);

#endif
