/* SPDX-License-Identifier: Apache-2.0 */
/* The table of options: its rows, and a field of the caller's options by its row. */
#include "options.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Each row's kind is what its field is. */
#define TYPE_TEXT    const char *
#define TYPE_ADDRESS const char *
#define TYPE_LIST    const char *const *
#define TYPE_U32     uint32_t
#define TYPE_U64     uint64_t
#define TYPE_SWITCH  uint32_t
#define TYPE_WORD    uint32_t
#define TYPE_COUNT   size_t
#define TYPE_POINTER \
    const struct hearth_bootstrap * : 1, const uint64_t * : 1, hearth_log_fn * : 1, void *
#define OPTION(field, kind, ...)                                                             \
    _Static_assert(_Generic(((struct hearth_opts *)0)->field, TYPE_##kind : 1, default : 0), \
            "the type of " #field);
#include "options.def"

const struct hth_option hth_options[HTH_OPTIONS] = {
#define OPTION(field, kind_, hearthd_, running_, joining_, ranks_, ...) \
    [HTH_AT_##field] = { .name = #field,                                \
        .kind = HTH_OPTION_##kind_,                                     \
        .at = offsetof(struct hearth_opts, field),                      \
        .hearthd = HTH_OPTION_##hearthd_,                               \
        .running = HTH_OPTION_##running_,                               \
        .joining = HTH_OPTION_##joining_,                               \
        .ranks = HTH_OPTION_##ranks_,                                   \
        __VA_ARGS__ },
#include "options.def"
};

const struct hth_option hth_flags[] = {
#define FLAG(field, kind_, ...) \
    { .name = #field, .kind = HTH_OPTION_##kind_, .hearthd = HTH_OPTION_FLAG, __VA_ARGS__ },
#include "options.def"
    { .name = NULL },
};

const struct hth_variable hth_variables[] = {
#define VARIABLE(name_, reader_, help_) { .name = name_, .reader = reader_, .help = help_ },
#include "options.def"
    { .name = NULL },
};

uint64_t hth_option_most(const struct hth_option *option)
{
    return option->kind == HTH_OPTION_SWITCH ? 1 : option->most;
}

const char *hth_option_default(const struct hth_option *option, char out[HTH_OPTION_WORDS])
{
    const char *said = option->standard ? option->standard : option->text;

    if (!said && option->kind == HTH_OPTION_WORD)
        said = hth_option_word_of(option, (uint32_t)option->none);
    if (said)
        snprintf(out, HTH_OPTION_WORDS, "%s", said);
    else if (option->needed || !hth_option_is_number(option) || !hth_option_most(option))
        out[0] = '\0';
    else
        snprintf(out, HTH_OPTION_WORDS, "%" PRIu64, option->none);
    return out;
}

const char *hth_option_words(const struct hth_option *option, char out[HTH_OPTION_WORDS])
{
    const struct hth_word *word = option->words;
    size_t n = 0;

    out[0] = '\0';
    for (; word && word->name && n < HTH_OPTION_WORDS; word++)
        n += (size_t)snprintf(out + n, HTH_OPTION_WORDS - n, "%s%s",
                word == option->words ? ""
                : word[1].name        ? ", "
                                      : " or ",
                word->name);
    return out;
}

const struct hth_word *hth_option_word(const struct hth_option *option, const char *name)
{
    const struct hth_word *word = option->words;

    while (word && word->name && strcmp(word->name, name) != 0)
        word++;
    return word && word->name ? word : NULL;
}

const char *hth_option_word_of(const struct hth_option *option, uint32_t value)
{
    const struct hth_word *word = option->words;

    while (word && word->name && word->value != value)
        word++;
    return word ? word->name : NULL;
}

int hth_option_is_number(const struct hth_option *option)
{
    return option->kind == HTH_OPTION_U32 || option->kind == HTH_OPTION_U64 ||
           option->kind == HTH_OPTION_SWITCH || option->kind == HTH_OPTION_WORD ||
           option->kind == HTH_OPTION_COUNT;
}

int hth_option_is_text(const struct hth_option *option)
{
    return option->kind == HTH_OPTION_TEXT || option->kind == HTH_OPTION_ADDRESS;
}

static int is_wide(const struct hth_option *option)
{
    return option->kind == HTH_OPTION_U64 || option->kind == HTH_OPTION_COUNT;
}

uint64_t hth_option_number(const struct hth_option *option, const struct hearth_opts *opts)
{
    const char *at = (const char *)opts + option->at;
    uint64_t wide;
    uint32_t v;

    memcpy(&v, at, sizeof(v));
    if (!is_wide(option))
        return v;
    memcpy(&wide, at, sizeof(wide));
    return wide;
}

void hth_option_set_number(const struct hth_option *option, struct hearth_opts *opts, uint64_t v)
{
    char *at = (char *)opts + option->at;
    uint32_t small = (uint32_t)v;

    if (is_wide(option))
        memcpy(at, &v, sizeof(v));
    else
        memcpy(at, &small, sizeof(small));
}

const char *hth_option_text(const struct hth_option *option, const struct hearth_opts *opts)
{
    const char *text;

    memcpy(&text, (const char *)opts + option->at, sizeof(text));
    return text;
}

void hth_option_set_text(
        const struct hth_option *option, struct hearth_opts *opts, const char *text)
{
    memcpy((char *)opts + option->at, &text, sizeof(text));
}

/* ---- variables ------------------------------------------------------------------------------ */

/* The i-th name that is read; NULL: there are no more. */
static const char *variable_at(size_t i)
{
    for (size_t row = 0; row < HTH_OPTIONS; row++)
        if (hth_options[row].variable && !i--)
            return hth_options[row].variable;
    return hth_variables[i].name;
}

int hth_variable_known(const char *name, size_t len)
{
    const char *known;

    for (size_t i = 0; (known = variable_at(i)); i++)
        if (strlen(known) == len && !memcmp(known, name, len))
            return 1;
    return 0;
}

/* Levenshtein 1966; row[j]: from the first letters of `a` to the first j of `b`. */
static size_t edits(const char *a, size_t a_len, const char *b, size_t b_len)
{
    size_t row[64];

    for (size_t j = 0; j <= b_len; j++)
        row[j] = j;
    for (size_t i = 0; i < a_len; i++) {
        size_t corner = row[0];

        row[0] = i + 1;
        for (size_t j = 0; j < b_len; j++) {
            size_t change = corner + (a[i] != b[j]);
            size_t other = (row[j] < row[j + 1] ? row[j] : row[j + 1]) + 1;

            corner = row[j + 1];
            row[j + 1] = change < other ? change : other;
        }
    }
    return row[b_len];
}

const char *hth_variable_nearest(const char *name, size_t len)
{
    const char *known, *nearest = NULL;
    size_t least = SIZE_MAX;

    for (size_t i = 0; (known = variable_at(i)); i++) {
        size_t known_len = strlen(known);
        size_t n = known_len < 64 ? edits(name, len, known, known_len) : SIZE_MAX;

        if (n < least)
            least = n, nearest = known;
    }
    return nearest;
}
