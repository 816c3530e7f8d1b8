/* SPDX-License-Identifier: Apache-2.0 */
/* The version of the library itself, for programs that were compiled with other headers. */
#include <hearth/version.h>

const char *hearth_version(void)
{
    return HEARTH_VERSION;
}

uint32_t hearth_version_number(void)
{
    return HEARTH_VERSION_NUMBER;
}
