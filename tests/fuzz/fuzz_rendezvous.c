/* SPDX-License-Identifier: Apache-2.0 */
/* What a stranger says to rank 0, or in its name: nothing of it is proved to who has the key. */
#include "client/bootstrap/rendezvous.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct hth_knows knows = { .keyed = 1, .job = "job", .key = { { 1, 2, 3 } } },
                           none = { 0 };
    const unsigned char *row = data + HTH_GREETING, digest[HTH_DIGEST] = { 0 };
    unsigned char again[HTH_GREETING];
    struct hth_greeting g;
    struct hth_answer a;
    struct hth_talk t = { 0 };

    if (size >= HTH_CHALLENGE && hth_challenge_decode(data) > 1)
        abort();
    if (size >= HTH_ANSWER && !hth_answer_decode(&a, data) &&
            (a.code > 0 || hth_answer_holds(data, &t, &knows, digest)))
        abort();
    if (size < HTH_GREETING || hth_greeting_decode(&g, data))
        return 0;
    memcpy(t.greeting, data, HTH_GREETING);
    if (!g.rank || g.rank >= g.world || hth_greeting_holds(&t, &knows, row, size - HTH_GREETING))
        abort();
    g.len = 0;
    hth_greeting_make(&t, &none, &g, row);
    memcpy(again, t.greeting, sizeof(again));
    return hth_greeting_decode(&g, again) ? -1 : 0;
}
