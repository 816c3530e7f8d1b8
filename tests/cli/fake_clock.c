/* SPDX-License-Identifier: Apache-2.0 */
/* In place of the C library's adjtimex(): the state of a clock that FAKE_CLOCK names. The machine's
 * own clock is nothing that a test may change. */
#include <stdlib.h>
#include <string.h>
#include <sys/timex.h>

__attribute__((visibility("default"))) int adjtimex(struct timex *t)
{
    const char *state = getenv("FAKE_CLOCK");
    int unsynchronised = state && !strcmp(state, "unsynchronised");

    memset(t, 0, sizeof(*t));
    t->status = unsynchronised ? STA_UNSYNC : STA_PLL;
    t->maxerror = 5000;
    return unsynchronised ? TIME_ERROR : TIME_OK;
}
