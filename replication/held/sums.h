/* SPDX-License-Identifier: Apache-2.0 */
/* CRC32C of every chunk of a data section, on the workers, some pieces of 64 MiB at a time. */
/* For this folder alone. */
#ifndef REPLICATION_SUMS_H
#define REPLICATION_SUMS_H

#include "ctx.h"

#define HTH_SUMS_PARTS 4u

struct hth_sums;

struct hth_sums_part {
    struct hth_work work;
    struct hth_sums *sums;
    uint32_t first, count;
};

/* Embedded in its owner, which fills the first part. */
struct hth_sums {
    struct hth_ctx *ctx;
    const unsigned char *data; /* [data_len], must stay until `done` */
    uint64_t data_len;
    uint32_t *crc;                       /* [HTH_CHUNKS(data_len)] */
    void (*done)(struct hth_sums *sums); /* once; inside start when there is no chunk */

    uint32_t next, running;
    struct hth_sums_part part[HTH_SUMS_PARTS];
};

void hth_sums_start(struct hth_sums *sums);

#endif
