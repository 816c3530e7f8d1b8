/* SPDX-License-Identifier: Apache-2.0 */
/* The known word that a mistyped one most likely stands for. */
#include "cli.h"

#include <string.h>

#define WORD_MOST 40u /* longer words are compared with nothing */

static unsigned nearest_least(unsigned a, unsigned b, unsigned c)
{
    unsigned least = a < b ? a : b;

    return least < c ? least : c;
}

/* How many characters have to be added, removed, changed, or exchanged with their neighbour. */
static unsigned nearest_apart(const char *a, const char *b)
{
    unsigned d[WORD_MOST + 1][WORD_MOST + 1];
    unsigned n = (unsigned)strlen(a), m = (unsigned)strlen(b);

    for (unsigned i = 0; i <= n; i++)
        d[i][0] = i;
    for (unsigned j = 0; j <= m; j++)
        d[0][j] = j;
    for (unsigned i = 1; i <= n; i++)
        for (unsigned j = 1; j <= m; j++) {
            d[i][j] = nearest_least(
                    d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + (a[i - 1] != b[j - 1]));
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
                    d[i - 2][j - 2] + 1 < d[i][j])
                d[i][j] = d[i - 2][j - 2] + 1;
        }
    return d[n][m];
}

void nearest_try(struct nearest *n, const char *known)
{
    size_t len = strlen(n->word);
    unsigned apart;

    if (!len || len > WORD_MOST || strlen(known) > WORD_MOST)
        return;
    apart = len > 1 && !strncmp(n->word, known, len) ? 1 : nearest_apart(n->word, known);
    if (apart > (len + 2) / 3 || apart >= strlen(known) || (n->found && apart >= n->apart))
        return;
    n->found = known;
    n->apart = apart;
}
