/* SPDX-License-Identifier: Apache-2.0 */
#include "machine.h"

#include "core/base/open.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

int hth_boot_id(char out[HTH_BOOT_ID])
{
    int fd = hth_open_kernel("/proc/sys/kernel/random/boot_id", O_RDONLY);
    ssize_t n = fd < 0 ? -1 : read(fd, out, HTH_BOOT_ID - 1);
    int wrong = n < 0 ? errno : 0;

    if (fd >= 0)
        close(fd);
    out[n > 0 ? n : 0] = '\0';
    out[strcspn(out, "\n")] = '\0';
    return wrong || out[0] ? wrong : ENODATA;
}
