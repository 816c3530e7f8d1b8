/* SPDX-License-Identifier: Apache-2.0 */
/* A key file: 32 bytes, or as many in hex and a newline, once or twice, and what is read is what
 * stands there. */
#include "core/base/auth.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char path[] = "/tmp/hearth-fuzz-key-XXXXXX";

static void file_remove(void)
{
    unlink(path);
}

/* One file for all inputs, away at exit. */
static int file_of(const uint8_t *data, size_t size)
{
    static int fd = -1;

    if (fd < 0 && ((fd = mkstemp(path)) < 0 || atexit(file_remove)))
        abort();
    return ftruncate(fd, 0) || pwrite(fd, data, size, 0) != (ssize_t)size;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct hth_key key = { 0 };
    char text[4 * HTH_KEY + 2];
    size_t len = 2 * HTH_KEY;

    if (file_of(data, size))
        abort();
    if (hth_key_open(path, &key, NULL)) {
        if (size == HTH_KEY && !hth_key_weak(data))
            abort();
        return 0;
    }
    for (int i = 0; i < HTH_KEY; i++)
        snprintf(text + (size_t)2 * i, 3, "%02x", key.bytes[i]);
    if (key.other)
        text[len++] = '\n';
    for (int i = 0; i < HTH_KEY && key.other; i++, len += 2)
        snprintf(text + len, 3, "%02x", key.other[i]);
    if (size == HTH_KEY ? memcmp(key.bytes, data, HTH_KEY) != 0
                        : size < len || size > len + 1 ||
                                  strncasecmp(text, (const char *)data, len) != 0)
        abort();
    hth_key_close(&key);
    return 0;
}
