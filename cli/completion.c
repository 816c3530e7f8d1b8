/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Scripts with which shells complete `hearth`, made of the table of commands. A command's usage has
 * what its arguments are: words, a job, or a file.
 */
#include "command.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#define PLACES 4u /* of arguments; the last one is also that of all behind it */

struct place_words {
    char words[200]; /* separated by spaces */
    int job, file;
};

/* The text of the option at `token`, if it takes a value that the next token is. */
static int token_has_value(const char *token)
{
    for (const struct option_row *o = option_rows; o < option_rows + option_count; o++)
        if (o->value && !strncmp(token + 2, o->name, strlen(o->name)))
            return 1;
    return 0;
}

static void place_learn(struct place_words *p, const char *token)
{
    static const char *const files[] = { "PATH", "OBJECT", "FILE", "SAVE", "DIR" };
    size_t n = strlen(p->words);

    if (!strcmp(token, "JOB"))
        p->job = 1;
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++)
        p->file |= !strcmp(token, files[i]);
    if (islower((unsigned char)*token))
        snprintf(p->words + n, sizeof(p->words) - n, "%s%s", n ? " " : "", token);
}

/* Of one alternative of a usage, without the command's name. */
static void usage_learn(char *usage, struct place_words place[PLACES])
{
    unsigned at = 0;
    char *save = NULL;

    (void)strtok_r(usage, " ", &save);
    for (char *t = strtok_r(NULL, " ", &save); t; t = strtok_r(NULL, " ", &save)) {
        int closed = t[strlen(t) - 1] == ']';

        t += strspn(t, "[");
        t[strcspn(t, "].")] = '\0';
        if (!strncmp(t, "--", 2)) {
            if (!closed && token_has_value(t))
                (void)strtok_r(NULL, " ", &save);
            continue;
        }
        for (char *bar = t; (bar = strchr(bar, '|'));)
            *bar = ' ';
        place_learn(&place[at], t);
        at += at + 1 < PLACES;
    }
}

static void command_learn(const struct command *c, struct place_words place[PLACES])
{
    char *usage = strdup(c->usage), *at = usage, *next;

    memset(place, 0, PLACES * sizeof(*place));
    for (; at; at = next) {
        next = strstr(at, " | ");
        if (next) {
            *next = '\0';
            next += 3;
        }
        usage_learn(at, place);
    }
    free(usage);
}

static void print_options(const struct command *c)
{
    for (const struct option_row *o = option_rows; o < option_rows + option_count; o++)
        if ((c->takes & o->takes) == o->takes)
            printf("--%s%s", o->name, o->takes ? " " : ""); /* --help is the last */
}

static void print_commands(const struct command *commands, size_t count)
{
    for (size_t i = 0; i < count; i++)
        printf("%s ", commands[i].name);
    fputs("help --help --version", stdout);
}

/* Options that take the next word, as a pattern of the shell. */
static void print_valued(void)
{
    const char *between = "";

    for (const struct option_row *o = option_rows; o < option_rows + option_count; o++)
        if (o->value && o->value[0] != '[') {
            printf("%s--%s", between, o->name);
            between = " | ";
        }
}

/* A row of the shell's `case` for each command's options and for each argument. */
static void print_rows(const struct command *commands, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct place_words place[PLACES];

        command_learn(&commands[i], place);
        printf("    %s:-*) choices='", commands[i].name);
        print_options(&commands[i]);
        puts("' ;;");
        for (unsigned p = 0; p < PLACES; p++)
            if (place[p].words[0] || place[p].job || place[p].file)
                printf("    %s:%u) choices='%s' job=%d file=%d ;;\n", commands[i].name, p + 1,
                        place[p].words, place[p].job, place[p].file);
        if (commands[i].most > (int)PLACES) /* as many as there are */
            printf("    %s:*) file=%d ;;\n", commands[i].name, place[0].file);
    }
    fputs("    help:1) choices='", stdout);
    for (size_t i = 0; i < count; i++)
        printf("%s%s", i ? " " : "", commands[i].name);
    puts("' ;;");
}

static void print_bash(const struct command *commands, size_t count)
{
    fputs("# Completion of hearth(1) for bash, printed by `hearth completion bash`.\n"
          "_hearth() {\n"
          "    local now=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]}\n"
          "    local command=${COMP_WORDS[1]} root=$HEARTH_ROOT place=1 choices='' job=0 file=0 i\n"
          "    COMPREPLY=()\n"
          "    if ((COMP_CWORD == 1)); then\n"
          "        COMPREPLY=($(compgen -W '",
            stdout);
    print_commands(commands, count);
    fputs("' -- \"$now\"))\n"
          "        return\n"
          "    fi\n"
          "    for ((i = 2; i < COMP_CWORD; i++)); do\n"
          "        case ${COMP_WORDS[i]} in\n"
          "        ",
            stdout);
    print_valued();
    fputs(")\n"
          "            [[ ${COMP_WORDS[i]} != --root ]] || root=${COMP_WORDS[i+1]}\n"
          "            ((++i)) ;;\n"
          "        -*) ;;\n"
          "        *) ((++place)) ;;\n"
          "        esac\n"
          "    done\n"
          "    if [[ $before == --root ]]; then\n"
          "        COMPREPLY=($(compgen -d -- \"$now\"))\n"
          "        return\n"
          "    fi\n"
          "    [[ $now != -* ]] || place=$now\n"
          "    case $command:$place in\n",
            stdout);
    print_rows(commands, count);
    fputs("    esac\n"
          "    COMPREPLY=($(compgen -W \"$choices\" -- \"$now\"))\n"
          "    if ((job)) && [[ -d $root ]]; then\n"
          "        COMPREPLY+=($(cd -- \"$root\" && compgen -d -- \"$now\"))\n"
          "    fi\n"
          "    if ((file)); then\n"
          "        COMPREPLY+=($(compgen -f -- \"$now\"))\n"
          "        compopt -o filenames 2>/dev/null\n"
          "    fi\n"
          "}\n"
          "complete -F _hearth hearth\n",
            stdout);
}

static void print_zsh(const struct command *commands, size_t count)
{
    fputs("#compdef hearth\n"
          "# Completion of hearth(1) for zsh, printed by `hearth completion zsh`.\n"
          "_hearth() {\n"
          "    local now=$words[CURRENT] before=$words[CURRENT-1] command=$words[2]\n"
          "    local root=$HEARTH_ROOT place=1 job=0 file=0 i line=(\"${words[@]}\") choices=''\n"
          "    if ((CURRENT == 2)); then\n"
          "        compadd -- ",
            stdout);
    print_commands(commands, count);
    fputs("\n"
          "        return\n"
          "    fi\n"
          "    for ((i = 3; i < CURRENT; i++)); do\n"
          "        case $line[i] in\n"
          "        ",
            stdout);
    print_valued();
    fputs(")\n"
          "            [[ $line[i] != --root ]] || root=$line[i+1]\n"
          "            ((++i)) ;;\n"
          "        -*) ;;\n"
          "        *) ((++place)) ;;\n"
          "        esac\n"
          "    done\n"
          "    if [[ $before == --root ]]; then\n"
          "        _files -/\n"
          "        return\n"
          "    fi\n"
          "    [[ $now != -* ]] || place=$now\n"
          "    case $command:$place in\n",
            stdout);
    print_rows(commands, count);
    fputs("    esac\n"
          "    compadd -- ${=choices}\n"
          "    if ((job)) && [[ -d $root ]]; then\n"
          "        compadd -- $root/*(N/:t)\n"
          "    fi\n"
          "    if ((file)); then\n"
          "        _files\n"
          "    fi\n"
          "}\n"
          "_hearth \"$@\"\n",
            stdout);
}

enum status completion_print(const char *shell, const struct command *commands, size_t count)
{
    if (!strcmp(shell, "bash"))
        print_bash(commands, count);
    else if (!strcmp(shell, "zsh"))
        print_zsh(commands, count);
    else
        return complain_usage(
                "completion: '%.64s' is none of the shells that there are: bash, zsh", shell);
    return STATUS_OK;
}
