/* SPDX-License-Identifier: Apache-2.0 */
/* The files in a machine's memory: found, compared, damaged, and filled up. */
#include "cluster.h"

#include "core/format/block.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int read_at(const char *path, uint64_t offset, void *out, size_t len)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : pread(fd, out, len, (off_t)offset);

    if (fd >= 0)
        close(fd);
    return n == (ssize_t)len ? 0 : -1;
}

int object_find(struct world *w, uint32_t k, uint64_t step, uint32_t owner, struct object *out)
{
    unsigned char block[HTH_BLOCK];
    struct hearth_error err;
    struct hth_block b;
    struct stat st;
    char rest[100];

    snprintf(rest, sizeof(rest), "step-%lu_ckpt/__%u__0_src%u.distcp", (unsigned long)step, owner,
            owner);
    node_path(w, k, rest, out->path, sizeof(out->path));
    if (stat(out->path, &st))
        return lost(w, "machine %s has no %s", w->node[k].name, rest);
    if (read_at(out->path, 0, block, sizeof(block)) ||
            hth_block_decode(&b, block, sizeof(block), (uint64_t)st.st_size, &err))
        return lost(w, "%s on %s has no valid block", rest, w->node[k].name);
    out->data_len = b.data_len;
    out->table_len = b.table_len;
    return 0;
}

int object_holder(struct world *w, uint64_t step, uint32_t owner, uint32_t not_here, uint32_t *out)
{
    char path[400], rest[100];

    snprintf(rest, sizeof(rest), "step-%lu_ckpt/__%u__0_src%u.distcp", (unsigned long)step, owner,
            owner);
    for (uint32_t k = 0; k < NODES_MAX; k++) {
        node_path(w, k, rest, path, sizeof(path));
        if (k == not_here || !w->node[k].up || access(path, F_OK))
            continue;
        *out = k;
        return 0;
    }
    return lost(w, "nobody else has %s", rest);
}

int object_same(struct world *w, const struct object *a, const struct object *b)
{
    uint64_t len = 2 * HTH_BLOCK + a->data_len + a->table_len; /* to the table's end, at least */
    unsigned char x[65536], y[sizeof(x)];

    if (a->data_len != b->data_len || a->table_len != b->table_len)
        return 0;
    len = (HTH_BLOCK + a->data_len + HTH_BLOCK - 1) / HTH_BLOCK * HTH_BLOCK + a->table_len;
    for (uint64_t at = 0; at < len; at += sizeof(x)) {
        size_t n = len - at < sizeof(x) ? (size_t)(len - at) : sizeof(x);

        if (read_at(a->path, at, x, n) || read_at(b->path, at, y, n) || memcmp(x, y, n) != 0) {
            note(w, "%s and %s differ near byte %lu", a->path, b->path, (unsigned long)at);
            return 0;
        }
    }
    return 1;
}

static int object_is_on(struct world *w, uint32_t k, uint64_t step, uint32_t owner)
{
    char path[400], rest[100];

    snprintf(rest, sizeof(rest), "step-%lu_ckpt/__%u__0_src%u.distcp", (unsigned long)step, owner,
            owner);
    node_path(w, k, rest, path, sizeof(path));
    return w->node[k].up && !access(path, F_OK);
}

int objects_compare(struct world *w, uint64_t step, uint64_t *out_bytes)
{
    for (uint32_t r = 0; r < w->ranks; r++) {
        uint32_t copies = 0, own = w->seat[r];
        struct object mine, copy;

        TRY(object_find(w, own, step, r, &mine));
        for (uint32_t k = 0; k < NODES_MAX; k++) {
            if (k == own || !object_is_on(w, k, step, r))
                continue;
            TRY(object_find(w, k, step, r, &copy));
            if (!object_same(w, &mine, &copy))
                return lost(w, "the object of rank %u in step %lu is not on %s what it is on %s", r,
                        (unsigned long)step, w->node[k].name, w->node[own].name);
            copies++;
            *out_bytes += mine.data_len;
        }
        if (copies < (w->copies ? w->copies : 1))
            return lost(w, "step %lu is PROTECTED, and %u machines have a copy of rank %u's object",
                    (unsigned long)step, copies, r);
    }
    return 0;
}

int file_flip_if_there(struct world *w, const char *path, uint64_t offset)
{
    int fd = open(path, O_RDWR | O_CLOEXEC), ok;
    unsigned char c = 0;

    if (fd < 0 && errno == ENOENT)
        return 0;
    ok = fd >= 0 && pread(fd, &c, 1, (off_t)offset) == 1;
    c ^= 0x10;
    ok = ok && pwrite(fd, &c, 1, (off_t)offset) == 1;
    if (fd >= 0)
        close(fd);
    note(w, "a bit of %s is flipped, byte %lu", path, (unsigned long)offset);
    return ok ? 0 : lost(w, "%s cannot be damaged: %s", path, strerror(errno));
}

int file_flip(struct world *w, const char *path, uint64_t offset)
{
    if (access(path, F_OK))
        return lost(w, "%s cannot be damaged: %s", path, strerror(errno));
    return file_flip_if_there(w, path, offset);
}

/* CRC32C's generator: what differs by it has the same CRC. */
int file_forge(struct world *w, const char *path, uint64_t offset)
{
    static const unsigned char polynomial[] = { 0xf1, 0x76, 0xec, 0x05, 0x01 };
    int fd = open(path, O_RDWR | O_CLOEXEC);
    unsigned char c[sizeof(polynomial)], was = 0;
    int ok = fd >= 0 && pread(fd, c, sizeof(c), (off_t)offset) == sizeof(c);

    for (size_t i = 0; ok && i < sizeof(c); i++) {
        was |= c[i];
        c[i] ^= polynomial[i];
    }
    ok = ok && was && pwrite(fd, c, sizeof(c), (off_t)offset) == sizeof(c);
    if (fd >= 0)
        close(fd);
    note(w, "five bytes of %s are others now under the same CRC, from byte %lu on", path,
            (unsigned long)offset);
    return ok ? 0 : lost(w, "%s cannot be forged: %s", path, was ? strerror(errno) : "zeros");
}

int common_path(struct world *w, uint32_t k, uint64_t step, char *out, size_t len)
{
    char rest[64];

    snprintf(rest, sizeof(rest), "step-%lu_ckpt/common.bin", (unsigned long)step);
    node_path(w, k, rest, out, len);
    return access(out, F_OK) ? lost(w, "machine %s has no %s", w->node[k].name, rest) : 0;
}

/* A save's manifest: <epoch><nonce><step><attempt>.manifest in hex of fixed width. */
int manifest_path(struct world *w, uint32_t k, uint64_t step, char *out, size_t len)
{
    char dir[300], part[40];
    struct dirent *e;
    int found = 0;
    DIR *d;

    node_path(w, k, ".hearth", dir, sizeof(dir));
    snprintf(part, sizeof(part), "%016lx", (unsigned long)step);
    d = opendir(dir);
    while (d && (e = readdir(d))) {
        const char *dot = strrchr(e->d_name, '.');

        if (!dot || strcmp(dot, ".manifest") != 0 || !strstr(e->d_name, part))
            continue;
        snprintf(out, len, "%s/%.100s", dir, e->d_name);
        found = 1;
    }
    if (d)
        closedir(d);
    return found ? 0
                 : lost(w, "machine %s has no manifest of step %lu", w->node[k].name,
                           (unsigned long)step);
}

uint64_t file_digest(const char *path, uint64_t h)
{
    unsigned char bytes[65536];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n;

    while (fd >= 0 && (n = read(fd, bytes, sizeof(bytes))) > 0)
        for (ssize_t i = 0; i < n; i++)
            h = (h ^ bytes[i]) * UINT64_C(1099511628211);
    if (fd >= 0)
        close(fd);
    return h;
}

int step_digest(struct world *w, uint64_t step, uint64_t *out)
{
    char dir[300], path[600], rest[64];
    uint32_t files = 0;

    *out = 0;
    snprintf(rest, sizeof(rest), "step-%lu_ckpt", (unsigned long)step);
    for (uint32_t k = 0; k < NODES_MAX; k++) {
        struct dirent *e;
        DIR *d;

        node_path(w, k, rest, dir, sizeof(dir));
        d = w->node[k].up ? opendir(dir) : NULL;
        while (d && (e = readdir(d))) {
            if (e->d_name[0] == '.')
                continue;
            snprintf(path, sizeof(path), "%s/%s", dir, e->d_name);
            *out ^= file_digest(path, UINT64_C(14695981039346656037) + k + 1000 * e->d_ino);
            files++;
        }
        if (d)
            closedir(d);
    }
    return files ? 0 : lost(w, "nobody has step %lu", (unsigned long)step);
}

int tmpfs_fill(struct world *w, uint32_t k, uint32_t left_kib)
{
    static const unsigned char page[4096];
    char path[300];
    size_t n = 0;
    int fd;

    snprintf(path, sizeof(path), "%s/filler", w->node[k].seen);
    fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    while (fd >= 0 && write(fd, page, sizeof(page)) == (ssize_t)sizeof(page))
        n++;
    n -= n * 4 > left_kib ? left_kib / 4 : n;
    if (fd >= 0 && ftruncate(fd, (off_t)(n * sizeof(page))))
        return lost(w, "%s: %s", path, strerror(errno));
    if (fd >= 0)
        close(fd);
    note(w, "machine %s: %zu KiB of filler, %u left", w->node[k].name, n * 4, left_kib);
    return fd >= 0 ? 0 : lost(w, "%s: %s", path, strerror(errno));
}

void tmpfs_unfill(struct world *w, uint32_t k)
{
    char path[300];

    snprintf(path, sizeof(path), "%s/filler", w->node[k].seen);
    unlink(path);
}
