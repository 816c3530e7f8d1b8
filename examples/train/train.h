/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hearth_train: a data-parallel training job that keeps its checkpoints in Hearth.
 *
 *     text ─► batch of this rank ─► rows of the embedding, from whoever owns them (MPI)
 *                                        │
 *     loss, gradients ◄──────────────────┘   rows go back to their owners, the dense part to all;
 *         │                                  both are added in rank order: exact, run after run
 *         └─► update of the own shard ─► every few steps: hearth_save_…
 */
#ifndef TRAIN_H
#define TRAIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DIM    16   /* floats of an embedding row */
#define ORDERS 4    /* contexts of a position: the last 1 .. ORDERS bytes */
#define VOCAB  256  /* the next byte */
#define BATCH  1024 /* positions of a rank and step */
#define ASKED  (BATCH * ORDERS)
#define DENSE  (DIM * VOCAB + VOCAB) /* output matrix and bias */

/* The state of a rank: all of it is in the checkpoint. Rows [rank * rows, (rank + 1) * rows) of
 * the whole table are here and nowhere else; the dense part is the same on every rank. */
struct model {
    uint32_t rank, world;
    int64_t rows;
    int64_t step;    /* steps done */
    float *table;    /* [rows][DIM] */
    float *momentum; /* [rows][DIM] */
    float *squares;  /* [rows][DIM], running sums of squared gradients */
    float dense[DENSE], dense_momentum[DENSE];
};

struct text {
    unsigned char *bytes;
    size_t len;
};

/* What a rank tells all others with each step. */
struct notice {
    double loss;        /* summed over its batch */
    uint32_t settled;   /* its last save is decided */
    uint32_t protected; /* saves of this launch it knows to be PROTECTED */
};

struct batch {
    uint32_t row[ASKED]; /* global rows, position by position */
    unsigned char next[BATCH];
    float embedded[ASKED][DIM]; /* in: the rows; out: their gradients */
    float dense[DENSE];         /* gradient */
};

/* model.c */
int text_read(const char *path, struct text *out);
int model_init(struct model *model, uint32_t rank, uint32_t world, uint64_t shard_bytes);
void model_fini(struct model *model);
uint64_t model_bytes(const struct model *model);
void model_batch(const struct model *model, const struct text *text, struct batch *batch);
double model_gradients(const struct model *model, struct batch *batch);
void model_update_row(struct model *model, uint32_t row, const float *gradient);
void model_update_dense(struct model *model, const float *gradient);
void model_sha256(const struct model *model, unsigned char out[32]);
void sha256(const void *bytes, size_t len, unsigned char out[32]);

/* exchange.c: every rank calls each at the same time. */
int exchange_open(uint32_t world);
void exchange_close(void);
void exchange_rows(const struct model *model, struct batch *batch);
void exchange_gradients(struct model *model, const struct batch *batch);
/* The dense gradients summed, and everybody's notice: all[world]. */
void exchange_dense(float *gradient, const struct notice *mine, struct notice *all);
void exchange_all(const void *mine, size_t len, void *all);

/* ckpt.c: the only file that knows Hearth. All return 0, or -1 after saying why on stderr. */
struct ckpt;
enum halt { HALT_NEVER, HALT_BETWEEN, HALT_MIDDLE };
int ckpt_open(struct model *model, struct ckpt **out);
/* Continue from the newest checkpoint that all ranks can have: model->step says which. */
int ckpt_recover(struct ckpt *ckpt);
/* middle: stop half-way, to be killed there. */
int ckpt_save(struct ckpt *ckpt, bool middle);
bool ckpt_settled(struct ckpt *ckpt);
uint32_t ckpt_protected(const struct ckpt *ckpt);
void ckpt_close(struct ckpt *ckpt, bool drop);

/* event.c: one JSON line per event, appended to a file of this rank in one write. */
int event_open(const char *dir, uint32_t launch, uint32_t rank);
void event(const char *name, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void halt(const char *where, int64_t step);
double now_ms(void);

#endif
