/* SPDX-License-Identifier: Apache-2.0 */
/* hearthd: where the program lies, and the command line it is given. */
/* For this folder alone. */
#ifndef HEARTH_CLIENT_COMMAND_H
#define HEARTH_CLIENT_COMMAND_H

#include "client/base/member.h"
#include "core/base/options.h"

/* hearthd's command line for these options. */
struct hth_args {
    const char *argv[2 * HTH_OPTIONS + 6];
    int argc;
    char number[HTH_OPTIONS][24]; /* texts of those that are numbers */
};
void hth_args_make(struct hth_args *args, const struct hearth *h, const char *program);
void hth_args_add(struct hth_args *args, const char *name, const char *value); /* NULL: neither */

/* hearthd: as the options name it, beside this library, in ../bin, or in a folder of PATH, but for
 * the current one. */
int hth_find_program(const struct hearth *h, char *out, size_t len, struct hearth_error *err);

#endif
