/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A reader for the pickles that other libraries put into checkpoints: tensor headers, what
 * describes a whole container, and values. It runs no code and constructs nothing but none,
 * bools, numbers, strings and containers of them; what a class would be is a row of the caller's
 * table.
 *
 * Protocols 2 to 5, and of their opcodes those that writers of such files use. Time and memory
 * are bounded by the input's length and by the memory the caller hands in; nothing recurses.
 * Values refer to each other by number and never form a cycle: a value that is part of another
 * one does not change any more. They may be shared, though: 20 values can spell a tree of 10^20
 * leaves, so walk what the format asks for and never "everything".
 */
#ifndef HEARTH_CORE_TORCH_PICKLE_H
#define HEARTH_CORE_TORCH_PICKLE_H

#include "core/base/fail.h"
#include <stddef.h>
#include <stdint.h>

#define HTH_PICKLE_DEPTH 32 /* containers in containers */
#define HTH_PICKLE_MARKS 32 /* open at a time */

enum hth_pickle_kind {
    HTH_PICKLE_NONE = 1,
    HTH_PICKLE_BOOL,
    HTH_PICKLE_INT,
    HTH_PICKLE_TEXT,
    HTH_PICKLE_TUPLE,
    HTH_PICKLE_LIST,
    HTH_PICKLE_DICT, /* key, value, key, value; a key may come twice: the last one holds */
    HTH_PICKLE_GLOBAL,
    HTH_PICKLE_OBJECT,
    /* hth_pickle_load_values() only: */
    HTH_PICKLE_FLOAT,
    HTH_PICKLE_BYTES,
    HTH_PICKLE_PERSISTENT, /* a storage outside of the pickle, named by a tuple */
};

/* What may be done with a global; nothing else may. */
enum {
    HTH_PICKLE_AS_VALUE = 1,    /* be a value itself, like torch.float32 */
    HTH_PICKLE_AS_NEW = 2,      /* make an object of no arguments (NEWOBJ) */
    HTH_PICKLE_STATE_DICT = 4,  /* its objects take a dict of attributes (BUILD) */
    HTH_PICKLE_STATE_TUPLE = 8, /* or a tuple */
    HTH_PICKLE_AS_DICT = 16, /* called, it is an empty dict that takes items and attributes, which
                              * are dropped: OrderedDict */
};

struct hth_pickle_global {
    const char *module;
    const char *name; /* compared with all bytes of the pickle's text; never split at a dot */
    int id;           /* the caller's */
    unsigned may;
    /* NULL: cannot be called. Else a letter per argument: t tuple, l list, d dict, i int, b bool,
     * s text, g global, o object, p persistent, x anything; `?`: what follows may be missing;
     * `*` at the end: any number of the letter before it. */
    const char *args;
};

struct hth_pickle_value {
    uint8_t kind;  /* enum hth_pickle_kind */
    uint8_t depth; /* of containers below it */
    uint8_t used;  /* is part of another value, or the root: does not change any more */
    uint8_t built; /* object: has its state; dict: HTH_PICKLE_OPEN or _NAMED */
    uint32_t at;   /* byte of the pickle it came from */
    uint32_t n;    /* container: cells; text, bytes: length; global, object: row of the table */
    uint32_t head; /* container: first cell; text, bytes: offset in the pickle; object: its
                    * arguments; persistent: its tuple */
    union {
        int64_t integer; /* int, bool */
        double real;     /* float */
        uint32_t tail;   /* container: last cell */
        uint32_t state;  /* object: value; 0: none */
    } u;
};

#define HTH_PICKLE_OPEN  2 /* takes attributes yet */
#define HTH_PICKLE_NAMED 4 /* is an object's state: its keys are names of attributes */

struct hth_pickle_cell {
    uint32_t value;
    uint32_t next; /* 0: the last */
};

struct hth_pickle {
    const unsigned char *bytes; /* [len], borrowed while this is used */
    size_t len;
    const struct hth_pickle_global *global; /* [globals] */
    uint32_t globals;
    uint32_t cap;                   /* of each of the four: */
    struct hth_pickle_value *value; /* number 0 stands for none */
    struct hth_pickle_cell *cell;
    uint32_t *memo; /* 0: not set */
    uint32_t *stack;
    uint32_t values, cells, memos, depth;
    uint32_t root;
};

/* Bytes of memory for a pickle of at most `values` values. One for each byte of the input is
 * always enough; pages that are not needed are not touched. */
size_t hth_pickle_memory(uint32_t values);

/* Run bytes[len]. memory[memory_bytes], aligned for u64, holds the values: borrowed while `out`
 * is used. Errors: HEARTH_ECORRUPT, "byte N: ..." with N counted from bytes[0]. */
int hth_pickle_load(struct hth_pickle *out, const struct hth_pickle_global *global,
        uint32_t globals, const void *bytes, size_t len, void *memory, size_t memory_bytes,
        struct hearth_error *err);

/* The same, and floats, bytes and persistent ids are taken too. */
int hth_pickle_load_values(struct hth_pickle *out, const struct hth_pickle_global *global,
        uint32_t globals, const void *bytes, size_t len, void *memory, size_t memory_bytes,
        struct hearth_error *err);

/* How long the pickle at the beginning of bytes[len] is, up to its STOP, and how many values it
 * can make at most. Opcodes as hth_pickle_load_values() takes them. */
int hth_pickle_measure(const void *bytes, size_t len, size_t *out_len, uint32_t *out_values,
        struct hearth_error *err);

/* bytes[len] is one pickle of protocol 2 or later from its first opcode to its STOP, whatever it
 * makes.
 * Errors: HEARTH_ECORRUPT, "byte N: ...". */
int hth_pickle_whole(const void *bytes, size_t len, struct hearth_error *err);

/* The tuple `args` is what `want` says (struct hth_pickle_global). */
int hth_pickle_fits(
        const struct hth_pickle *p, const struct hth_pickle_value *args, const char *want);

static inline const struct hth_pickle_value *hth_pickle_at(const struct hth_pickle *p, uint32_t v)
{
    return &p->value[v];
}

static inline const struct hth_pickle_value *hth_pickle_root(const struct hth_pickle *p)
{
    return &p->value[p->root];
}

/* Walk a tuple, list or dict: for (c = v->head; c; c = p->cell[c].next). The child of a cell: */
static inline const struct hth_pickle_value *hth_pickle_child(
        const struct hth_pickle *p, uint32_t cell)
{
    return &p->value[p->cell[cell].value];
}

/* A global or object: the id of its row. -1: v is neither. */
int hth_pickle_id(const struct hth_pickle *p, const struct hth_pickle_value *v);

/* Text: 1 when it has exactly these characters. */
int hth_pickle_is(const struct hth_pickle *p, const struct hth_pickle_value *v, const char *text);

/* An attribute of an object whose state is a dict; NULL: has none of this name. */
const struct hth_pickle_value *hth_pickle_attr(
        const struct hth_pickle *p, const struct hth_pickle_value *object, const char *name);

/* Say what is wrong with the content at v: "byte N: ...". Returns HEARTH_ECORRUPT. */
int hth_pickle_refuse(const struct hth_pickle_value *v, struct hearth_error *err, const char *fmt,
        ...) HTH_PRINTF(3, 4);

#endif
