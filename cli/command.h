/* SPDX-License-Identifier: Apache-2.0 */
/* The table of commands, as arguments are read by it, help is printed and shells complete. */
/* For this folder alone. */
#ifndef HEARTH_CLI_COMMAND_H
#define HEARTH_CLI_COMMAND_H

#include "cli.h"

/* Options that a command takes; --help is every command's. */
enum takes {
    TAKES_JSON = 1,
    TAKES_ROOT = 2,
    TAKES_OFFSET = 4,
    TAKES_ENV = 8,
    TAKES_RECOVERY = 16,
    TAKES_WATCH = 32,
    TAKES_LISTEN = 4096,
    TAKES_WORST = 64,
    TAKES_PAIRS = 8192,
    TAKES_PLAN = 128,
    TAKES_NODE = 16384,
    TAKES_ALL = 32768,
    TAKES_SAVE = 65536,
    TAKES_ALIVE = 131072,
};

struct command {
    const char *name;
    enum status (*run)(const struct args *a);
    int takes, least, most; /* arguments */
    /* Alternatives have " | " between them; words of an argument '|'. JOB, PATH, OBJECT, FILE, SAVE
     * and DIR are completed by shells. */
    const char *usage;
    const char *what, *help;
};

/* ---- arguments.c ---- */

struct option_row {
    int takes;         /* 0: every command */
    const char *name;  /* "root" */
    const char *value; /* "DIR"; in brackets where it may be left out; NULL: it has none */
    const char *what;
    size_t at; /* in struct args: an int, set to 1; with a value a const char * */
};
extern const struct option_row option_rows[];
extern const size_t option_count;

/* STATUS_OK, or the status to end with; *out_help: help was asked for, and nothing else is looked
 * at. a->value lies in argv. */
enum status arguments_read(
        const struct command *c, int argc, char **argv, struct args *a, int *out_help);
void arguments_help(const struct command *c); /* prints a line for each option */

/* ---- completion.c ---- */

/* Prints the script with which `shell` completes these commands. STATUS_USAGE: no such shell. */
enum status completion_print(const char *shell, const struct command *commands, size_t count);

#endif
