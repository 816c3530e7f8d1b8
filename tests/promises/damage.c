/* SPDX-License-Identifier: Apache-2.0 */
#include "damage.h"

#include "party.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static unsigned char *read_all(const char *path, size_t *out_len)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    unsigned char *bytes;
    struct stat st;

    CHECK(fd >= 0 && !fstat(fd, &st), "%s: %s", path, strerror(errno));
    bytes = malloc((size_t)st.st_size + 1);
    CHECK(bytes && read(fd, bytes, (size_t)st.st_size) == st.st_size, "%s: not read", path);
    close(fd);
    *out_len = (size_t)st.st_size;
    return bytes;
}

void damage_put(const char *path, const void *bytes, size_t len)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

    CHECK(fd >= 0 && write(fd, bytes, len) == (ssize_t)len, "%s: %s", path, strerror(errno));
    close(fd);
}

void damage(const char *path, enum damage how)
{
    size_t len;
    unsigned char *bytes = read_all(path, &len);

    CHECK(!unlink(path), "%s: %s", path, strerror(errno));
    if (how == DAMAGE_ZEROS)
        memset(bytes, 0, len);
    if (how == DAMAGE_DANGLING)
        CHECK(!symlink("/nowhere/at/all", path), "%s: %s", path, strerror(errno));
    else if (how != DAMAGE_GONE)
        damage_put(path, bytes, how == DAMAGE_HALF ? 600000 : how == DAMAGE_EMPTY ? 0 : len);
    free(bytes);
}

void damage_flip(const char *path, off_t at)
{
    int fd = open(path, O_RDWR | O_CLOEXEC);
    unsigned char byte;
    struct stat st;

    CHECK(fd >= 0 && !fstat(fd, &st), "%s: %s", path, strerror(errno));
    at = at < 0 ? st.st_size + at : at;
    CHECK(pread(fd, &byte, 1, at) == 1, "%s has no byte %lld", path, (long long)at);
    byte ^= 0x10;
    CHECK(pwrite(fd, &byte, 1, at) == 1, "%s: %s", path, strerror(errno));
    close(fd);
}

/* The data's length is the block's first field; the table stands at the next multiple of 4096. */
off_t damage_table(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    uint64_t data = 0;

    CHECK(fd >= 0 && pread(fd, &data, sizeof(data), 0) == (ssize_t)sizeof(data), "%s", path);
    close(fd);
    return (off_t)((4096 + data + 4095) / 4096 * 4096 + 70);
}

uint64_t damage_sum(const char *path)
{
    size_t len;
    unsigned char *bytes = read_all(path, &len);
    uint64_t sum = 1469598103934665603u;

    for (size_t i = 0; i < len; i++)
        sum = (sum ^ bytes[i]) * 1099511628211u;
    free(bytes);
    return sum;
}

void damage_wait_whole(const char *path, size_t bytes)
{
    uint64_t until = now_ms() + 10000;
    struct stat st;

    while (lstat(path, &st) || !S_ISREG(st.st_mode) || (size_t)st.st_size < bytes) {
        CHECK(now_ms() < until, "%s is not brought back", path);
        nap_ms(5);
    }
}
