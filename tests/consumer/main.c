/* SPDX-License-Identifier: Apache-2.0 */
/* Built against the installed library, as C and as C++: header and library are of one version,
 * and a call goes through. */
#include <hearth/hearth.h>
#include <stdio.h>
#include <string.h>

int main(void)
{
    struct hearth_opts opts = HEARTH_OPTS_INIT;

    if (opts.struct_size != sizeof opts || strcmp(hearth_version(), HEARTH_VERSION) != 0 ||
            hearth_version_number() != HEARTH_VERSION_NUMBER) {
        fprintf(stderr, "header %s, library %s\n", HEARTH_VERSION, hearth_version());
        return 1;
    }
    if (strcmp(hearth_strerror(HEARTH_ENOSPC), "no room in the store") != 0) {
        fprintf(stderr, "hearth_strerror says: %s\n", hearth_strerror(HEARTH_ENOSPC));
        return 1;
    }
    return 0;
}
