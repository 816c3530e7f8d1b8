/* SPDX-License-Identifier: Apache-2.0 */
/* Small things the files of this folder have in common. */
#include "client.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

uint64_t hth_mono_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

uint64_t hth_until_ms(uint64_t wait_ms)
{
    return hth_mono_ms() + wait_ms;
}

const char *hth_key_text(const void *key, size_t len, char out[HTH_KEY_TEXT])
{
    const unsigned char *k = key;
    size_t room = HTH_KEY_TEXT - sizeof("''...") + 1;
    size_t n = len < room ? len : room - 1;
    char *p = out;

    *p++ = '\'';
    for (size_t i = 0; i < n; i++)
        *p++ = k[i] >= 0x20 && k[i] < 0x7f ? (char)k[i] : '?';
    memcpy(p, n < len ? "...'" : "'", n < len ? 5 : 2);
    return out;
}

int hth_give(void *theirs, const void *mine, size_t size, struct hearth_error *err)
{
    size_t want;

    if (!theirs)
        return hth_fail(err, HEARTH_EINVAL, 0, "the struct to be filled is NULL");
    memcpy(&want, theirs, sizeof(want));
    if (want < sizeof(want))
        return hth_fail(err, HEARTH_EINVAL, 0,
                "struct_size of the struct to be filled is not set: set it to its sizeof");
    if (want > size) {
        memset((char *)theirs + size, 0, want - size);
        memcpy((char *)theirs + sizeof(want), (const char *)mine + sizeof(want),
                size - sizeof(want));
        return HEARTH_OK;
    }
    memcpy((char *)theirs + sizeof(want), (const char *)mine + sizeof(want), want - sizeof(want));
    return HEARTH_OK;
}

int hth_memfd(const char *name, const void *bytes, size_t len)
{
    int fd = memfd_create(name, MFD_CLOEXEC);
    size_t done = 0;

    while (fd >= 0 && done < len) {
        ssize_t n = write(fd, (const char *)bytes + done, len - done);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            int keep = n ? errno : ENOSPC;

            close(fd);
            errno = keep;
            return -1;
        }
        done += (size_t)n;
    }
    return fd;
}

void hearth_free(void *memory)
{
    free(memory);
}
