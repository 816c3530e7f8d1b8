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

/* What is not 0, which is hearthd's default, too. */
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

/* hearthd: as told, beside us, in ../bin, or by the shell's PATH. */
int hth_find_program(const struct hearth *h, char *out, size_t len, struct hearth_error *err)
{
    static const char *const places[] = { "%s/hearthd", "%s/../bin/hearthd", "%s/bin/hearthd" };
    char dir[PATH_MAX];

    if (h->opts.engine) {
        if (access(h->opts.engine, X_OK) != 0)
            return hth_fail(err, HEARTH_EENGINE, errno,
                    "engine '%s' cannot be run: %s: name the hearthd program", h->opts.engine,
                    strerror(errno));
        snprintf(out, len, "%s", h->opts.engine);
        return HEARTH_OK;
    }
    for (size_t i = 0; i < 3 && !hth_own_dir(dir, sizeof(dir)); i++) {
        const char *rest = places[i] + 2;

        if (snprintf(out, len, "%s%s", dir, rest) < (int)len && access(out, X_OK) == 0)
            return HEARTH_OK;
    }
    snprintf(out, len, "hearthd");
    return HEARTH_OK;
}
