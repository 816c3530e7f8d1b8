/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The target's side of a read, which happens when the target progresses: may this peer read that,
 * and where does it lie? The reader then copies it out of this process itself.
 */
#include "strictfi.h"

#include <string.h>

void sfi_serve(struct sfi_ep *ep, const struct sfi_wire *ask)
{
    struct sfi_wire answer = { .word = SFI_WORD_GO, .op = ask->op, .len = ask->len };
    char why[400] = "";
    const char *rule;

    if (ep->domain->p->av_reader && sfi_av_find(ep->av, ask->from) == FI_ADDR_NOTAVAIL) {
        rule = "av-reader";
        snprintf(why, sizeof(why), "a peer was read that has not the reader in its address vector");
    } else {
        rule = sfi_mr_remote(ep, ask->raw, ask->addr, ask->len, &answer.addr, why, sizeof(why));
    }
    if (rule) {
        char both[480];
        int n = snprintf(both, sizeof(both), "%s", rule) + 1;

        n += snprintf(both + n, sizeof(both) - (size_t)n, "%s", why) + 1;
        answer.word = SFI_WORD_NO;
        sfi_wire_answer(ep, ask->from, &answer, both, (size_t)n);
        return;
    }
    sfi_wire_answer(ep, ask->from, &answer, NULL, 0);
}
