/* SPDX-License-Identifier: Apache-2.0 */
/* Work that is shared out again and again, on memory that only its turns guard. */
#include "transport/tcp/crew.h"

#include <stdio.h>

#define PARTS 60u
#define TURNS 100000u

static void count(void *arg, unsigned part, unsigned who)
{
    unsigned long *counts = arg;

    (void)who;
    counts[part]++;
}

int main(void)
{
    struct hth_tcp_crew *crew = hth_tcp_crew_new(3);
    unsigned long counts[PARTS] = { 0 }, got = 0, want = 0;

    for (unsigned turn = 0; turn < TURNS; turn++) {
        unsigned parts = 1 + turn % PARTS;

        hth_tcp_crew_run(crew, parts, count, counts);
        want += parts;
    }
    hth_tcp_crew_free(crew);
    for (unsigned i = 0; i < PARTS; i++)
        got += counts[i];
    printf("stress: %lu parts done of %lu\n", got, want);
    return got != want;
}
