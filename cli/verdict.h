/* SPDX-License-Identifier: Apache-2.0 */
/* Which rank, node, pair or phase made a save slow, from the records of several engines. */
/* For this folder alone. */
#ifndef HEARTH_CLI_VERDICT_H
#define HEARTH_CLI_VERDICT_H

#include "cli.h"

/* A save or recovery in a page of HISTORY (core/local/local.h). */
struct found {
    json_t *page;      /* NULL: none */
    const json_t *row; /* in it; NULL: it is not there */
    size_t at;         /* its place there */
};

json_int_t found_number(const json_t *of, const char *key); /* 0: it is not there */
const char *found_words(const json_t *of, const char *key); /* "": likewise */
/* How long the phase took; -1: not known. */
json_int_t found_phase_ms(const json_t *row, const char *phase);
/* Of that phase, in the saves before this one in the page that were protected; -1: none were. */
json_int_t found_median(const struct found *f, const char *phase);

/* The node whose report was last at the coordinator, if it was far behind the median of nodes, a
 * quarter of the whole time or more; NULL: none was. */
const char *verdict_node(const struct found *coordinator);
/* node: the record of verdict_node(), if it is known. As cli/README.md has it; NULL: nothing can be
 * said. The caller's reference. */
json_t *verdict_of(const struct found *coordinator, const struct found *node);
void verdict_say(const json_t *verdict); /* its one line */

#endif
