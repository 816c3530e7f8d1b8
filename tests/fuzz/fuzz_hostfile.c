/* SPDX-License-Identifier: Apache-2.0 */
/* A host file, read for a rank that no file has: it is refused, in a sentence, whatever stands in
 * it. */
#include <hearth/bootstrap.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int fd = memfd_create("hosts", MFD_CLOEXEC);
    struct hearth_bootstrap *b;
    struct hearth_error err = { 0 };
    uint32_t world = 77;
    char path[64];

    if (fd < 0 || write(fd, data, size) != (ssize_t)size)
        abort();
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    if (hearth_bootstrap_hostfile(path, UINT32_MAX, 1, &b, &world, &err) != HEARTH_EINVAL ||
            world != 77 || !err.text[0] || !memchr(err.text, '\0', sizeof(err.text)))
        abort();
    close(fd);
    return 0;
}
