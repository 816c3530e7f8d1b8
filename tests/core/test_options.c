/* SPDX-License-Identifier: Apache-2.0 */
/* The table of options: all of the struct, without contradictions. */
#include "check.h"

#include "core/base/options.h"
#include "core/format/epoch.h"
#include "core/format/keep.h"

#include <inttypes.h>
#include <stdio.h>

static size_t size_of(const struct hth_option *option)
{
    return option->kind == HTH_OPTION_U32 || option->kind == HTH_OPTION_SWITCH ||
                           option->kind == HTH_OPTION_WORD
                   ? 4
                   : 8;
}

/* Where one ends, the next begins; alignment is less than the smallest field. */
Test(options, each_field_of_the_struct_has_its_row)
{
    size_t end = sizeof(size_t); /* struct_size */

    for (size_t i = 0; i < HTH_OPTIONS; i++) {
        const struct hth_option *option = &hth_options[i];
        size_t size = size_of(option);

        end = (end + size - 1) / size * size;
        cr_assert(
                eq(sz, option->at, end), "before %s there is a field without a row", option->name);
        end += size;
    }
    end = (end + 7) / 8 * 8;
    cr_assert(eq(sz, end, sizeof(struct hearth_opts)), "the last field has no row");
}

static void looks_well(const struct hth_option *option)
{
    cr_assert(ne(sz, strlen(option->help), 0), "%s", option->name);
    cr_assert(eq(ptr, (void *)(uintptr_t)strchr(option->help, '\n'), NULL), "%s", option->name);
    cr_assert(eq(int, option->flag != NULL, option->hearthd != HTH_OPTION_NO), "%s", option->name);
    cr_assert(zero(int, option->flag &&strncmp(option->flag, "--", 2) != 0), "%s", option->name);
    cr_assert(zero(int, option->flag && option->kind != HTH_OPTION_SWITCH && !option->value), "%s",
            option->name);
    cr_assert(zero(int, option->variable &&strncmp(option->variable, "HEARTH_", 7) != 0), "%s",
            option->name);
    if (option->kind == HTH_OPTION_WORD)
        cr_assert(ne(ptr, (void *)(uintptr_t)hth_option_word_of(option, 0), NULL), "%s",
                option->name);
    if (option->text && option->words)
        cr_assert(ne(ptr, (void *)(uintptr_t)hth_option_word(option, option->text), NULL), "%s",
                option->name);
    if (!option->none)
        return;
    cr_assert(le(u64, option->least, option->none), "%s", option->name);
    cr_assert(ge(u64, hth_option_most(option), option->none), "%s", option->name);
}

Test(options, rows_do_not_contradict_themselves)
{
    for (size_t i = 0; i < HTH_OPTIONS; i++)
        looks_well(&hth_options[i]);
    for (const struct hth_option *flag = hth_flags; flag->name; flag++)
        looks_well(flag);
}

static int same(const char *a, const char *b)
{
    return a && b && !strcmp(a, b);
}

Test(options, no_variable_and_no_flag_stands_twice)
{
    for (size_t i = 0; i < HTH_OPTIONS; i++) {
        const struct hth_option *option = &hth_options[i];

        for (size_t j = 0; j < i; j++) {
            cr_assert(zero(int, same(hth_options[j].variable, option->variable)), "%s",
                    option->variable);
            cr_assert(zero(int, same(hth_options[j].flag, option->flag)), "%s", option->flag);
        }
        for (const struct hth_option *flag = hth_flags; flag->name; flag++)
            cr_assert(zero(int, same(flag->flag, option->flag)), "%s", option->flag);
        for (const struct hth_variable *v = hth_variables; v->name; v++)
            cr_assert(zero(int, same(v->name, option->variable)), "%s", option->variable);
    }
}

Test(options, ranges_are_what_the_formats_have_room_for)
{
    cr_assert(eq(u64, hth_options[HTH_AT_domains].most, HTH_DOMAINS_MAX));
    cr_assert(eq(u64, hth_options[HTH_AT_keep].most + 1, HTH_KEEP_MAX)); /* and one undecided */
}

/* core/format/gather.c compares what the ranks gather, besides the rows ALIKE. */
Test(options, what_ranks_must_agree_on_in_another_way_is_known)
{
    static const char *const known[] = { "job", "world", "allow_degraded", "transport", "key_file",
        "network", "allow_slower", "integrity" };
    size_t n = 0;

    for (size_t i = 0; i < HTH_OPTIONS; i++)
        if (hth_options[i].ranks == HTH_OPTION_CHECKED) {
            cr_assert(lt(sz, n, sizeof(known) / sizeof(known[0])), "%s", hth_options[i].name);
            must_say(hth_options[i].name, known[n++]);
        }
    cr_assert(eq(sz, n, sizeof(known) / sizeof(known[0])));
}

Test(options, defaults_and_words_are_texts)
{
    char text[HTH_OPTION_WORDS];

    must_say(hth_option_default(&hth_options[HTH_AT_save_ms], text), "600000");
    must_say(hth_option_default(&hth_options[HTH_AT_min_copies], text), "copies");
    must_say(hth_option_default(&hth_options[HTH_AT_start], text), "auto");
    must_say(hth_option_default(&hth_options[HTH_AT_bind], text), "127.0.0.1");
    must_say(hth_option_default(&hth_options[HTH_AT_off], text), "0");
    must_say(hth_option_default(&hth_options[HTH_AT_root], text), "");
    must_say(hth_option_default(&hth_options[HTH_AT_log], text), "");
    must_say(hth_option_words(&hth_options[HTH_AT_start], text), "auto, never or in_process");
    must_say(hth_option_words(&hth_options[HTH_AT_network], text), "hostile or trusted");
    must_say(hth_option_words(&hth_options[HTH_AT_root], text), "");
}

static void nearest(const char *name, const char *want)
{
    must_say(hth_variable_nearest(name, strlen(name)), want);
}

Test(options, the_nearest_variable_is_the_one_with_the_fewest_edits)
{
    nearest("HEARTH_COPYS", "HEARTH_COPIES");
    nearest("HEARTH_KEPE", "HEARTH_KEEP");
    nearest("HEARTH_EY_FILE", "HEARTH_KEY_FILE");
    nearest("HEARTH_LEASE_BYTESS", "HEARTH_LEASE_BYTES");
    nearest("HEARTH_LIBARY", "HEARTH_LIBRARY");
    nearest("HEARTH_TEST_BINS", "HEARTH_TEST_BIN");
    cr_assert(eq(int, hth_variable_known("HEARTH_KEEP", 11), 1));
    cr_assert(eq(int, hth_variable_known("HEARTH_PORT=1", 11), 1));
    cr_assert(zero(int, hth_variable_known("HEARTH_KEEP", 10)));
    cr_assert(zero(int, hth_variable_known("HEARTH_KEEPS", 12)));
}
