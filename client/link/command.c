/* SPDX-License-Identifier: Apache-2.0 */
/* hearthd: where the program lies, and the command line it is given. */
#include "command.h"

#include "core/base/fail.h"
#include "core/base/own_dir.h"
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void hth_args_add(struct hth_args *a, const char *name, const char *value)
{
    if (!value)
        return;
    a->argv[a->argc++] = name;
    a->argv[a->argc++] = value;
}

/* Adds a number unless it is 0, which is hearthd's default, too. */
static void args_add_number(
        struct hth_args *a, const struct hth_option *option, uint64_t v, char text[24])
{
    if (!v)
        return;
    snprintf(text, 24, "%" PRIu64, v);
    if (option->kind == HTH_OPTION_SWITCH)
        a->argv[a->argc++] = option->flag;
    else
        hth_args_add(a, option->flag,
                option->kind == HTH_OPTION_WORD ? hth_option_word_of(option, (uint32_t)v) : text);
}

void hth_args_make(struct hth_args *a, const struct hearth *h, const char *program)
{
    *a = (struct hth_args){ .argc = 0 };
    a->argv[a->argc++] = program;
    for (size_t i = 0; i < HTH_OPTIONS; i++) {
        const struct hth_option *option = &hth_options[i];

        if (option->hearthd != HTH_OPTION_GIVEN)
            continue;
        if (hth_option_is_text(option))
            hth_args_add(a, option->flag, hth_option_text(option, &h->opts));
        else
            args_add_number(a, option, hth_option_number(option, &h->opts), a->number[i]);
    }
}

static int program_beside(char *out, size_t len)
{
    static const char *const places[] = { "/hearthd", "/../bin/hearthd", "/bin/hearthd" };
    char dir[PATH_MAX];

    for (size_t i = 0; i < 3 && !hth_own_dir(dir, sizeof(dir)); i++)
        if (snprintf(out, len, "%s%s", dir, places[i]) < (int)len && access(out, X_OK) == 0)
            return 1;
    return 0;
}

/* Looks in absolute folders only: any user may have put a program into the current one. */
static int program_in_path(char *out, size_t len)
{
    const char *path = getenv("PATH");

    for (size_t n; path; path = path[n] ? path + n + 1 : NULL) {
        n = strcspn(path, ":");
        if (path[0] == '/' && snprintf(out, len, "%.*s/hearthd", (int)n, path) < (int)len &&
                access(out, X_OK) == 0)
            return 1;
    }
    return 0;
}

int hth_find_program(const struct hearth *h, char *out, size_t len, struct hearth_error *err)
{
    if (h->opts.engine) {
        if (access(h->opts.engine, X_OK) != 0)
            return hth_fail(err, HEARTH_EENGINE, errno,
                    "engine '%s' cannot be run: %s: name the hearthd program", h->opts.engine,
                    strerror(errno));
        snprintf(out, len, "%s", h->opts.engine);
        return HEARTH_OK;
    }
    if (program_beside(out, len) || program_in_path(out, len))
        return HEARTH_OK;
    return hth_fail(err, HEARTH_EENGINE, 0,
            "there is no hearthd beside this library, in ../bin or in PATH: install it, or name it "
            "with engine (HEARTH_ENGINE)");
}
