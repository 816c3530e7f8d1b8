/* SPDX-License-Identifier: Apache-2.0 */
/* hearthd's command line: each flag of the table is read and explained. */
#include "check.h"

#include "core/base/options.h"
#include "engine/driver/config.h"

#include <stdio.h>
#include <stdlib.h>

#define OPTION(field, kind, hearthd, ...) IF_##hearthd(field)
#define FLAG(field, ...)                  IF_FLAG(field)

static const struct {
    const char *name;
    size_t at;
} fields[] = {
#define IF_NO(field)
#define IF_FLAG(field)  { #field, offsetof(struct hth_config, field) },
#define IF_GIVEN(field) IF_FLAG(field)
#include "core/base/options.def"
};

static size_t place_of(const char *name)
{
    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++)
        if (!strcmp(fields[i].name, name))
            return fields[i].at;
    cr_assert_fail("%s has no place", name);
    return 0;
}

/* A value that is no default and that any machine takes. */
static void value_of(const struct hth_option *option, char *out, size_t len)
{
    if (option->words)
        snprintf(out, len, "%s", option->words[1].name);
    else if (!strcmp(option->name, "device"))
        snprintf(out, len, "lo");
    else if (option->kind == HTH_OPTION_U32 || option->kind == HTH_OPTION_U64)
        snprintf(out, len, "%s", option->most < 7000 ? "3" : "2500");
    else
        snprintf(out, len, "%s",
                option->kind == HTH_OPTION_ADDRESS    ? "127.0.0.3"
                : !strcmp(option->name, "root")       ? "/tmp"
                : !strcmp(option->name, "engine_log") ? "stderr,/tmp/log"
                                                      : "some");
}

static void is_read(const struct hth_option *option)
{
    char value[64] = "1";
    const char *argv[] = { "hearthd", "--root", "/dev/shm", "--job", "job", option->flag, value,
        "--network", "trusted" }; /* a provider is taken there */
    int trusts = !strcmp(option->name, "provider") || !strcmp(option->name, "transport");
    int is_switch = option->kind == HTH_OPTION_SWITCH;
    struct hearth_error err = { 0 };
    struct hth_config c;
    const char *at = (const char *)&c + place_of(option->name);
    uint32_t v;

    if (!is_switch)
        value_of(option, value, sizeof(value));
    cr_assert(zero(int, hth_config_parse(&c, (is_switch ? 6 : 7) + 2 * trusts, argv, &err)),
            "%s: %s", option->flag, err.text);
    memcpy(&v, at, sizeof(v));
    if (is_switch || option->kind == HTH_OPTION_U32 || option->kind == HTH_OPTION_U64)
        cr_assert(eq(u32, v, (uint32_t)strtoul(value, NULL, 10)), "%s", option->flag);
    else
        must_say(at, value);
}

Test(config, each_flag_is_read_into_its_place)
{
    for (size_t i = 0; i < HTH_OPTIONS; i++)
        if (hth_options[i].flag)
            is_read(&hth_options[i]);
    for (const struct hth_option *flag = hth_flags; flag->name; flag++)
        is_read(flag);
}

Test(config, a_log_on_standard_error_is_refused_in_the_background)
{
    const char *argv[] = { "hearthd", "--root", "/dev/shm", "--job", "job", "--log", "file,stderr",
        "--detach" };
    struct hearth_error err;
    struct hth_config c;

    must(hth_config_parse(&c, 7, argv, &err));
    must_fail(hth_config_parse(&c, 8, argv, &err), HEARTH_EINVAL);
    cr_assert(ne(ptr, strstr(err.text, "--detach"), NULL), "%s", err.text);
}

Test(config, several_addresses_are_one_list_and_five_are_too_many)
{
    const char *argv[] = { "hearthd", "--root", "/dev/shm", "--job", "job", "--bind",
        "127.0.0.1,127.0.0.2", "--bind=127.0.0.3", "--bind=127.0.0.4", "--bind=127.0.0.5" };
    struct hearth_error err;
    struct hth_config c;

    must(hth_config_parse(&c, 9, argv, &err));
    must_say(c.bind, "127.0.0.1,127.0.0.2,127.0.0.3,127.0.0.4");
    must_fail(hth_config_parse(&c, 10, argv, &err), HEARTH_EINVAL);
    cr_expect(ne(ptr, (void *)(uintptr_t)strstr(err.text, "up to 4 different ones"), NULL), "%s",
            err.text);
}

static void is_explained(const struct hth_option *option, const char *help)
{
    char text[64];

    snprintf(text, sizeof(text), "\n  %s %s", option->flag, option->value ? option->value : " ");
    cr_assert(ne(ptr, (void *)(uintptr_t)strstr(help, text), NULL), "%s is not in: %s", text, help);
}

Test(config, help_has_each_flag_and_no_line_is_longer_than_100)
{
    char *help = hth_config_help();

    cr_assert(ne(ptr, help, NULL));
    for (size_t i = 0; i < HTH_OPTIONS; i++)
        if (hth_options[i].flag)
            is_explained(&hth_options[i], help);
    for (const struct hth_option *flag = hth_flags; flag->name; flag++)
        is_explained(flag, help);
    for (const char *line = help; *line; line += strcspn(line, "\n"), line += *line == '\n')
        cr_assert(le(sz, strcspn(line, "\n"), 100), "%s", line);
    free(help);
}
