/* SPDX-License-Identifier: Apache-2.0 */
/* ls --env: the variables that programs read; with --json all options and flags. */
#include "cli.h"

#include "core/base/options.h"

#include <string.h>

static const char *const kinds[] = { [HTH_OPTION_TEXT] = "text",
    [HTH_OPTION_ADDRESS] = "address",
    [HTH_OPTION_LIST] = "list",
    [HTH_OPTION_U32] = "u32",
    [HTH_OPTION_U64] = "u64",
    [HTH_OPTION_SWITCH] = "switch",
    [HTH_OPTION_WORD] = "word",
    [HTH_OPTION_COUNT] = "count",
    [HTH_OPTION_POINTER] = "pointer" };

static json_t *text_or_null(const char *text)
{
    return text && text[0] ? json_string(text) : json_null();
}

static json_t *json_option(const struct hth_option *o)
{
    char text[HTH_OPTION_WORDS];
    json_t *out = json_pack("{s:s, s:s, s:o, s:o, s:o, s:o, s:s, s:b, s:b, s:b}", "name", o->name,
            "type", kinds[o->kind], "variable", text_or_null(o->variable), "flag",
            text_or_null(o->flag), "value", text_or_null(o->value), "default",
            text_or_null(hth_option_default(o, text)), "help", o->help, "needed", o->needed,
            "engine_agrees", o->running != HTH_OPTION_NO, "ranks_agree", o->ranks != HTH_OPTION_NO);
    int ranged = o->kind == HTH_OPTION_U32 || o->kind == HTH_OPTION_U64;
    json_t *words = o->words ? json_object() : json_null();

    for (const struct hth_word *word = o->words; word && word->name; word++)
        json_object_set_new(words, word->name, json_integer(word->value));
    json_object_set_new(out, "words", words);
    json_object_set_new(out, "least", ranged ? json_integer((json_int_t)o->least) : json_null());
    json_object_set_new(out, "most",
            ranged && o->most <= INT64_MAX ? json_integer((json_int_t)o->most) : json_null());
    return out;
}

/* All of the table: options in the order of struct hearth_opts, hearthd's own flags, and the
 * variables that are no options. */
static enum status env_json(void)
{
    json_t *options = json_array(), *flags = json_array(), *variables = json_array();

    for (size_t i = 0; i < HTH_OPTIONS; i++)
        json_array_append_new(options, json_option(&hth_options[i]));
    for (const struct hth_option *o = hth_flags; o->name; o++)
        json_array_append_new(flags, json_option(o));
    for (const struct hth_variable *v = hth_variables; v->name; v++)
        json_array_append_new(variables, json_pack("{s:s, s:s, s:s}", "name", v->name, "reader",
                                                 v->reader, "help", v->help));
    return print_json(json_pack(
            "{s:o, s:o, s:o}", "options", options, "flags", flags, "variables", variables));
}

static enum status env_table(void)
{
    static const char *const titles[] = { "VARIABLE", "DEFAULT", "WHAT" };
    struct grid g = { .columns = 3 };
    char text[HTH_OPTION_WORDS];

    grid_titles(&g, titles);
    for (size_t i = 0; i < HTH_OPTIONS; i++) {
        const struct hth_option *o = &hth_options[i];

        if (!o->variable)
            continue;
        grid_add(&g, "%s", o->variable);
        grid_add(&g, "%s", o->needed ? "needed" : hth_option_default(o, text));
        grid_add(&g, "%s%s%s%s", o->kind == HTH_OPTION_SWITCH ? "1: " : "", o->help,
                o->words ? "; " : "", hth_option_words(o, text));
    }
    for (const struct hth_variable *v = hth_variables; v->name; v++) {
        if (!strcmp(v->reader, "tests"))
            continue;
        grid_add(&g, "%s", v->name);
        grid_add(&g, "%s", "-");
        grid_add(&g, "%s: %s", v->reader, v->help);
    }
    grid_print(&g, "lll");
    grid_free(&g);
    return STATUS_OK;
}

enum status env_list(const struct args *a)
{
    return a->json ? env_json() : env_table();
}
