/* SPDX-License-Identifier: Apache-2.0 */
/* Arguments of a command, by one table of options. */
#include "command.h"

#include <stddef.h>
#include <string.h>

#define AT(member) offsetof(struct args, member)

const struct option_row option_rows[] = {
    { TAKES_ROOT, "root", "DIR", "the tmpfs that is Hearth's (default: HEARTH_ROOT)", AT(root) },
    { TAKES_JSON, "json", NULL, "output for programs", AT(json) },
    { TAKES_OFFSET, "offset", "N", "of the item, as hearth inspect shows it", AT(offset) },
    { TAKES_RECOVERY, "recovery", NULL, "the newest recovery instead of a save", AT(recovery) },
    { TAKES_ENV, "env", NULL, "variables that programs read; with --json all options and flags",
            AT(env) },
    { TAKES_LISTEN, "listen", "ADDRESS", "HOST:PORT or unix:PATH (default: 127.0.0.1:9742)",
            AT(listen) },
    { TAKES_PAIRS, "pairs", NULL, "how fast each peer of a running job gives its bytes",
            AT(pairs) },
    { TAKES_WATCH, "watch", "[SECONDS]", "look again every 2 s, or every SECONDS, until Ctrl-C",
            AT(watch) },
    { TAKES_WORST, "worst", "N", "the N pairs of nodes, and of domains, whose loss hurts most",
            AT(worst) },
    { TAKES_PLAN, "ranks", "N", "of the job", AT(plan.ranks) },
    { TAKES_PLAN, "nodes", "N", "of the job (1)", AT(plan.nodes) },
    { TAKES_PLAN, "bytes", "BYTES", "that each rank saves: 10GiB, 20GB", AT(plan.bytes) },
    { TAKES_PLAN, "model", "PARAMETERS", "instead of --bytes: 70B, 7e9", AT(plan.model) },
    { TAKES_PLAN, "optimizer", "NAME", "adam (default), adamw, momentum, sgd, none",
            AT(plan.optimizer) },
    { TAKES_PLAN, "parameter-bytes", "N", "instead of --optimizer", AT(plan.parameter_bytes) },
    { TAKES_PLAN, "copies", "N", "the job's option (1)", AT(plan.copies) },
    { TAKES_PLAN, "keep", "N", "the job's option (1)", AT(plan.keep) },
    { TAKES_PLAN, "objects", "N", "that each rank writes, alike (1)", AT(plan.objects) },
    { TAKES_PLAN, "common", "BYTES", "of a save that every node keeps, as .metadata (0)",
            AT(plan.common) },
    { TAKES_PLAN, "extra", "BYTES", "lease_bytes and spare_bytes together (0)", AT(plan.extra) },
    { TAKES_PLAN, "link", "GBIT", "per second, of a node's link", AT(plan.link) },
    { TAKES_PLAN, "interval", "SECONDS", "from one save to the next", AT(plan.interval) },
    { TAKES_NODE, "node", "NAME", "of that node's engine instead of this node's", AT(node) },
    { TAKES_ALL, "all", NULL, "of all nodes' engines", AT(all) },
    { TAKES_ALIVE, "alive", NULL, "whether the engine answers, whatever state it reports",
            AT(alive) },
    { TAKES_SAVE, "save", "STEP", "the newest save of that step", AT(save) },
    { 0, "help", NULL, "this text", 0 },
};
const size_t option_count = sizeof(option_rows) / sizeof(option_rows[0]);

static int option_is_of(const struct command *c, const struct option_row *o)
{
    return (c->takes & o->takes) == o->takes;
}

void arguments_help(const struct command *c)
{
    for (const struct option_row *o = option_rows; o < option_rows + option_count; o++) {
        char text[40];

        snprintf(text, sizeof(text), "--%s%s%s", o->name, o->value ? " " : "",
                o->value ? o->value : "");
        if (option_is_of(c, o))
            printf("%-10s  %s\n", text, o->what);
    }
}

static enum status arguments_refuse(const struct command *c, const char *what)
{
    return complain_usage("%s: %s; usage: hearth %s", c->name, what, c->usage);
}

static enum status option_refuse(const struct command *c, const char *text, size_t len)
{
    struct nearest near = { 0 };
    char name[64];

    snprintf(name, sizeof(name), "%.*s", (int)(len < 60 ? len : 60), text);
    near.word = name + strspn(name, "-");
    for (const struct option_row *o = option_rows; o < option_rows + option_count; o++)
        if (option_is_of(c, o))
            nearest_try(&near, o->name);
    if (near.found)
        return complain_usage(
                "%s: there is no option %s; did you mean --%s?", c->name, name, near.found);
    return complain_usage("%s: there is no option %s; usage: hearth %s", c->name, name, c->usage);
}

/* By its name, or by the beginning of a name that no other option of the command has. */
static const struct option_row *option_find(const struct command *c, const char *name, size_t len)
{
    const struct option_row *found = NULL;
    int others = 0;

    for (const struct option_row *o = option_rows; o < option_rows + option_count; o++) {
        if (!len || !option_is_of(c, o) || strncmp(o->name, name, len) != 0)
            continue;
        if (!o->name[len])
            return o;
        others += found != NULL;
        found = o;
    }
    return others ? NULL : found;
}

static int option_is_number(const char *text)
{
    return text && *text && !text[strspn(text, "0123456789")];
}

/* argv[*at] begins with '-'. */
static enum status option_read(
        const struct command *c, char **argv, int *at, struct args *a, int *out_help)
{
    const char *text = argv[*at], *is = strchr(text, '=');
    size_t len = is ? (size_t)(is - text) : strlen(text);
    const struct option_row *o;

    if (!strcmp(text, "-h") || !strcmp(text, "--help")) {
        *out_help = 1;
        return STATUS_OK;
    }
    o = text[1] == '-' ? option_find(c, text + 2, len - 2) : NULL;
    if (!o)
        return option_refuse(c, text, len);
    if (!o->takes)
        return *out_help = 1, STATUS_OK;
    if (!o->value && is)
        return arguments_refuse(c, "this option takes no value");
    if (!o->value)
        *(int *)((char *)a + o->at) = 1;
    else if (is)
        *(const char **)((char *)a + o->at) = is + 1;
    else if (o->value[0] == '[' && !option_is_number(argv[*at + 1]))
        *(const char **)((char *)a + o->at) = "";
    else if (!argv[*at + 1])
        return arguments_refuse(c, "the last option needs a value");
    else
        *(const char **)((char *)a + o->at) = argv[++*at];
    return STATUS_OK;
}

enum status arguments_read(
        const struct command *c, int argc, char **argv, struct args *a, int *out_help)
{
    int values_alone = 0;

    a->value = argv + 1;
    for (int i = 1; i < argc; i++) {
        int is_value = values_alone || argv[i][0] != '-' || !argv[i][1];
        enum status status = STATUS_OK;

        if (is_value)
            a->value[a->count++] = argv[i];
        else if (!strcmp(argv[i], "--"))
            values_alone = 1;
        else
            status = option_read(c, argv, &i, a, out_help);
        if (status || *out_help)
            return status;
    }
    if (a->count < c->least)
        return arguments_refuse(c, "an argument is missing");
    return a->count > c->most ? arguments_refuse(c, "too many arguments") : STATUS_OK;
}
