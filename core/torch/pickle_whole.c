/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Is it a whole pickle? A writer that was killed leaves an opcode without its argument, or no STOP.
 * All opcodes are known here, also those that the pickle machine refuses: a `.metadata` of classes
 * that we do not know is whole all the same.
 */
#include "core/base/fail.h"
#include "pickle.h"
#include "pickle_code.h"

int hth_pickle_whole(const void *bytes, size_t len, struct hearth_error *err)
{
    const unsigned char *all = bytes, *arg;
    size_t pos = 0, n;

    if (!len || *all != 0x80)
        return hth_fail(err, HEARTH_ECORRUPT, 0, "it does not begin as a pickle does");
    while (pos < len && all[pos] != '.') {
        if (!hth_pickle_codes[all[pos]].known)
            return hth_fail(err, HEARTH_ECORRUPT, 0, "byte %zu: no pickle has an opcode %02x", pos,
                    all[pos]);
        arg = hth_pickle_argument(all[pos], all + pos + 1, len - pos - 1, &n);
        if (!arg)
            return hth_fail(err, HEARTH_ECORRUPT, 0, "byte %zu: opcode %02x of a pickle is cut off",
                    pos, all[pos]);
        pos = (size_t)(arg - all) + n;
    }
    if (pos + 1 != len)
        return hth_fail(err, HEARTH_ECORRUPT, 0,
                pos < len ? "byte %zu: bytes follow the pickle's STOP"
                          : "byte %zu: the pickle ends before its STOP",
                pos);
    return HEARTH_OK;
}
