/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of options (options.def) as structs. The library reads, checks, prints and passes on
 * options by it, and hearthd its flags; `hearth ls --env --json` prints it for the lint that
 * compares it with the docs and the Python package.
 *
 * Columns of an OPTION:
 *   hearthd  GIVEN: a flag of hearthd that a rank which starts it gives; FLAG: a flag that only
 *            people give, ranks send the value at joining; NO
 *   running  what an engine that runs already must have, too, unless it is unset. ASKED: compared
 *            with the field of this name in struct hth_local_attached; CHECKED: in another way; NO
 *   joining  TOLD: goes to the engine in struct hth_local_opts, and comes back as it is in effect
 *   ranks    must be the same on all ranks. ALIKE: compared as the field of this name in struct
 *            hth_gather; CHECKED: in another way; NO
 */
#ifndef HEARTH_CORE_BASE_OPTIONS_H
#define HEARTH_CORE_BASE_OPTIONS_H

#include <hearth/opts.h>
#include <stddef.h>
#include <stdint.h>

#define HTH_DEADLINE_MAX 86400000u /* a day; there is no "for ever" */
/* Bytes of one object or of a reservation: 64 of them are added up, with what stands around
 * them. */
#define HTH_BYTES_MAX    ((uint64_t)INT64_MAX / 2 / 64)

enum hth_option_kind {
    HTH_OPTION_TEXT = 1,
    HTH_OPTION_ADDRESS, /* a text, of addresses; two spellings of one address are the same */
    HTH_OPTION_LIST,    /* names; in the environment with commas between */
    HTH_OPTION_U32,
    HTH_OPTION_U64,
    HTH_OPTION_SWITCH,  /* 0 or 1; as a flag without a value */
    HTH_OPTION_WORD,    /* a number with a name */
    HTH_OPTION_COUNT,   /* of what stands before it */
    HTH_OPTION_POINTER, /* only a program can set it: it has no text form */
};

struct hth_word {
    const char *name; /* NULL: the end */
    uint32_t value;
};

#define HTH_WORDS(...)        \
    (const struct hth_word[]) \
    {                         \
        __VA_ARGS__,          \
        {                     \
            .name = 0         \
        }                     \
    }

enum hth_option_column { /* NO: 0 */
    HTH_OPTION_NO = 0,
    HTH_OPTION_GIVEN,
    HTH_OPTION_FLAG,
    HTH_OPTION_ASKED,
    HTH_OPTION_CHECKED,
    HTH_OPTION_TOLD,
    HTH_OPTION_ALIKE,
};

struct hth_option {
    const char *name;
    enum hth_option_kind kind;
    size_t at; /* in struct hearth_opts; of a flag of hearthd's own: 0 */
    enum hth_option_column hearthd, running, joining, ranks;
    const char *variable;     /* NULL: no variable sets it */
    const char *flag, *value; /* with its dashes; what it is called in the help */
    uint64_t least, most;     /* of numbers; 0 besides, where 0 is a default; LIST: names */
    uint64_t none;            /* what 0 means */
    int engines;              /* 1: 0 stays 0: the engine knows its meaning */
    int needed;               /* 1: there is no default */
    const char *text;         /* a text's default, as it could be given */
    const char *standard;     /* other defaults, in words */
    const struct hth_word *words;
    const char *help; /* one line */
    const char *more; /* for hearthd --help */
};

/* HTH_AT_<field>: its row. */
enum hth_option_row {
#define OPTION(field, ...) HTH_AT_##field,
#include "options.def"
    HTH_OPTIONS
};

struct hth_variable {
    const char *name, *reader, *help;
};

extern const struct hth_option hth_options[HTH_OPTIONS];
extern const struct hth_option hth_flags[];       /* of hearthd alone; ends with name NULL */
extern const struct hth_variable hth_variables[]; /* that are no options; ends with name NULL */

#define HTH_OPTION_WORDS 160

uint64_t hth_option_most(const struct hth_option *option); /* a SWITCH is at most 1 */
/* Its default, for people; "" where there is none. */
const char *hth_option_default(const struct hth_option *option, char out[HTH_OPTION_WORDS]);
/* "a, b or c" */
const char *hth_option_words(const struct hth_option *option, char out[HTH_OPTION_WORDS]);
/* The word of this name or this value; NULL: none. */
const struct hth_word *hth_option_word(const struct hth_option *option, const char *name);
const char *hth_option_word_of(const struct hth_option *option, uint32_t value);

/* Numbers (U32, U64, SWITCH, WORD, COUNT) and texts of a caller's options. */
int hth_option_is_number(const struct hth_option *option);
int hth_option_is_text(const struct hth_option *option);
uint64_t hth_option_number(const struct hth_option *option, const struct hearth_opts *opts);
void hth_option_set_number(const struct hth_option *option, struct hearth_opts *opts, uint64_t v);
const char *hth_option_text(const struct hth_option *option, const struct hearth_opts *opts);
void hth_option_set_text(
        const struct hth_option *option, struct hearth_opts *opts, const char *text);

/* What 0 means for a number. */
static inline uint32_t hth_option_none(enum hth_option_row row)
{
    return (uint32_t)hth_options[row].none;
}

/* hth_variable_known(): 1 if some part of Hearth reads a variable of this name (`len` bytes).
 * hth_variable_nearest(): of those that are read, the nearest, by the least number of letters to
 * change, add or take away. */
int hth_variable_known(const char *name, size_t len);
const char *hth_variable_nearest(const char *name, size_t len);

#endif
