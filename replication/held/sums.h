/* SPDX-License-Identifier: Apache-2.0 */
/* Every chunk of a data section, proved or compared with what proves it, on the workers, some
 * pieces of 64 MiB at a time. */
/* For this folder alone. */
#ifndef REPLICATION_SUMS_H
#define REPLICATION_SUMS_H

#include "core/format/chunk.h"
#include "ctx.h"

#define HTH_SUMS_PARTS 4u
#define HTH_SUMS_RIGHT UINT32_MAX

struct hth_sums;

struct hth_sums_part {
    struct hth_work work;
    struct hth_sums *sums;
    uint32_t first, count;
    uint32_t wrong; /* of them; HTH_SUMS_RIGHT */
};

/* Embedded in its owner, which fills the first part. */
struct hth_sums {
    struct hth_ctx *ctx;
    const unsigned char *data; /* [data_len], must stay until `done` */
    uint64_t data_len;
    struct hth_proof *proof;             /* [HTH_CHUNKS(data_len)] that are made; NULL: compared */
    uint32_t strong;                     /* made so */
    struct hth_proofs proofs;            /* with these */
    void (*done)(struct hth_sums *sums); /* once; inside start when there is no chunk */
    uint32_t wrong;                      /* then: the first chunk that is; HTH_SUMS_RIGHT */

    uint32_t next, running;
    struct hth_sums_part part[HTH_SUMS_PARTS];
};

void hth_sums_start(struct hth_sums *sums);

#endif
