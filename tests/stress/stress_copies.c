/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Threads that copy into an object while the caller reads what is reported as complete, as a peer
 * would: the bytes and the checksum of each chunk are final by then, whichever thread made them.
 */
#include "client/slots/copy.h"

#include "core/base/crc.h"
#include "core/format/chunk.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BYTES  (((uint64_t)200 << 20) + 4321)
#define PIECE  ((size_t)1000003)
#define ROUNDS 3

static unsigned char *src, *dst;
static uint32_t *crc;
static uint64_t told;
static unsigned reports;

static void fail(const char *what, uint64_t at)
{
    fprintf(stderr, "stress_copies: %s at byte %llu\n", what, (unsigned long long)at);
    _exit(1);
}

static void is_complete(void *self, uint64_t bytes)
{
    (void)self;
    for (; told < bytes; told += HTH_CHUNK) {
        if (memcmp(dst + told, src + told, HTH_CHUNK) != 0)
            fail("other bytes", told);
        if (crc[told / HTH_CHUNK] != hth_crc32c(dst + told, HTH_CHUNK))
            fail("another checksum", told);
    }
    reports++;
}

static void copy_with(uint32_t threads)
{
    struct hth_crew *crew = hth_crew_open(threads);
    struct hth_copies list = { .crc = crc, .progress = is_complete };

    memset(dst, 0, BYTES);
    memset(crc, 0, (HTH_CHUNKS(BYTES) + 1) * sizeof(*crc));
    told = 0;
    for (uint64_t off = 0, len; off < BYTES; off += len) {
        len = BYTES - off < PIECE ? BYTES - off : PIECE;
        if (hth_copies_add(&list, dst + off, src + off, len, NULL))
            fail("no memory", off);
    }
    hth_crew_run(crew, &list);
    hth_copies_fini(&list);
    hth_crew_close(crew);
}

int main(void)
{
    alarm(110);
    src = malloc(BYTES);
    dst = malloc(BYTES);
    crc = malloc((HTH_CHUNKS(BYTES) + 1) * sizeof(*crc));
    if (!src || !dst || !crc)
        fail("no memory", 0);
    for (uint64_t i = 0; i < BYTES; i++)
        src[i] = (unsigned char)(i * 2654435761u >> 13);
    for (unsigned i = 0; i < ROUNDS; i++)
        for (uint32_t threads = 1; threads <= 8; threads *= 2)
            copy_with(threads);
    if (!reports)
        fail("no report", 0);
    printf("%u reports\n", reports);
    free(src);
    free(dst);
    free(crc);
    return 0;
}
