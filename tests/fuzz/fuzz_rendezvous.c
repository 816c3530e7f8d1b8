/* SPDX-License-Identifier: Apache-2.0 */
/* A stranger sends anything to the host of the ranks' meeting, or in its name: a side that has the
 * key accepts nothing of it as proved. */
#include "meeting/wire.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct hth_meeting_keys keys = { .keyed = 1, .job = "job", .key = { { 1, 2, 3 } } },
                                  none = { 0 };
    struct hth_proving proving = { .keyed = 1, .key = { 4, 5, 6 } }, open = { 0 };
    unsigned char again[HTH_GREETING], digest[HTH_DIGEST] = { 0 };
    struct hth_meet_frame f;
    struct hth_greeting g;
    struct hth_talk t = { 0 };

    if (size >= HTH_CHALLENGE && hth_challenge_decode(data) > 1)
        abort();
    if (size >= HTH_MEET_FRAME && !hth_meet_frame_decode(&f, data) &&
            (!f.type || f.type >= HTH_MEET_FRAME_TYPES ||
                    hth_meet_frame_holds(data, &proving, digest)))
        abort();
    if (size < HTH_GREETING || hth_greeting_decode(&g, data))
        return 0;
    memcpy(t.greeting, data, HTH_GREETING);
    if (!g.world || hth_greeting_holds(&t, &keys, &proving))
        abort();
    hth_greeting_make(&t, &none, &g, &open);
    memcpy(again, t.greeting, sizeof(again));
    return hth_greeting_decode(&g, again) ? -1 : 0;
}
