/* SPDX-License-Identifier: Apache-2.0 */
/* The version of the library itself, for programs that were compiled with other headers. */
#include <hearth/version.h>

const char *hearth_version(void)
{
    return HEARTH_VERSION;
}
