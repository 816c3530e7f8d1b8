/* SPDX-License-Identifier: Apache-2.0 */
/* A small file, all of it. */
#include "file.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

int hth_file_fill(int fd, void *at, size_t len, uint64_t off)
{
    size_t done = 0;

    while (done < len) {
        ssize_t n = pread(fd, (char *)at + done, len - done, (off_t)(off + done));

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            errno = n ? errno : EIO; /* shorter than a moment ago */
            return -1;
        }
        done += (size_t)n;
    }
    return 0;
}

int hth_file_read(int fd, uint64_t most, void **out, size_t *out_len)
{
    unsigned char *bytes;
    struct stat st;

    if (fstat(fd, &st))
        return -1;
    if (!S_ISREG(st.st_mode) || (uint64_t)st.st_size > most) {
        errno = S_ISREG(st.st_mode) ? EFBIG : EINVAL;
        return -1;
    }
    if (!(bytes = malloc((size_t)st.st_size + 1)))
        return -1;
    if (hth_file_fill(fd, bytes, (size_t)st.st_size, 0)) {
        int why = errno;

        free(bytes);
        errno = why;
        return -1;
    }
    bytes[st.st_size] = '\0';
    *out = bytes;
    *out_len = (size_t)st.st_size;
    return 0;
}
