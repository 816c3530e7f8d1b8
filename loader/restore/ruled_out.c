/* SPDX-License-Identifier: Apache-2.0 */
/* Steps that were not chosen and the reasons, as the coordinator sends them just before GO: for
 * the ranks of this node. The text is another machine's: only its printable characters count. */
#include "restore_state.h"

void restore_rule_out(struct hth_restore *r, const unsigned char *text, size_t len)
{
    if (len >= sizeof(r->ruled_out))
        return;
    for (size_t i = 0; i < len; i++) {
        unsigned char c = text[i];

        r->ruled_out[i] = c == '\n' || (c >= ' ' && c < 127) ? (char)c : '?';
    }
    r->ruled_out[len] = '\0';
}

const char *hth_restore_ruled_out(const struct hth_restore *r)
{
    return r->ruled_out;
}
