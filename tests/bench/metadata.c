/* SPDX-License-Identifier: Apache-2.0 */
/* Seconds to read the `.metadata` named, peak memory with the file in it, and how many places it
 * has. For tests/bench/metadata.py. */
#include <fcntl.h>
#include <hearth/metadata.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    struct hearth_metadata_head info = { .struct_size = sizeof(info) };
    struct hearth_metadata *md;
    struct timespec from, to;
    struct hearth_error err;
    struct rusage usage;
    struct stat st;
    const void *bytes;
    int fd;

    if (argc != 2 || (fd = open(argv[1], O_RDONLY | O_CLOEXEC)) < 0 || fstat(fd, &st)) {
        fprintf(stderr, "usage: bench_metadata FILE\n");
        return 2;
    }
    clock_gettime(CLOCK_MONOTONIC, &from);
    bytes = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (bytes == MAP_FAILED || hearth_metadata_open(bytes, (size_t)st.st_size, &md, &err) ||
            hearth_metadata_info(md, &info, &err)) {
        fprintf(stderr, "%s: %s\n", argv[1], bytes == MAP_FAILED ? "cannot map" : err.text);
        return 1;
    }
    clock_gettime(CLOCK_MONOTONIC, &to);
    getrusage(RUSAGE_SELF, &usage);
    printf("%.4f %lld %zu\n",
            (double)(to.tv_sec - from.tv_sec) + (double)(to.tv_nsec - from.tv_nsec) / 1e9,
            (long long)usage.ru_maxrss * 1024, info.stored);
    hearth_metadata_close(md);
    close(fd);
    return 0;
}
