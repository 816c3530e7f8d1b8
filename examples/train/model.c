/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A language model in small: the sum of the embeddings of the last 1 .. ORDERS bytes (hashed into
 * one large table, as recommender systems do) times a matrix gives the next byte. A step touches
 * some thousand rows of millions, so shards are large and steps short.
 */
#include "train.h"

#include <math.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RATE  0.05f
#define DECAY 0.9f

/* splitmix64's mixer (Steele, Lea, Flood 2014): numbers that depend on nothing but their place. */
static uint64_t mix(uint64_t z)
{
    z += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* In [-1, 1). */
static float noise(uint64_t place)
{
    return (float)(int32_t)(mix(place) >> 32) * 0x1p-31f;
}

int text_read(const char *path, struct text *out)
{
    FILE *file = fopen(path, "rb");
    long len = -1;

    out->bytes = NULL;
    if (file && fseek(file, 0, SEEK_END) == 0)
        len = ftell(file);
    if (len > 1000 && fseek(file, 0, SEEK_SET) == 0 && (out->bytes = malloc((size_t)len)))
        out->len = fread(out->bytes, 1, (size_t)len, file);
    if (file)
        fclose(file);
    if (out->bytes && out->len == (size_t)len)
        return 0;
    free(out->bytes);
    fprintf(stderr, "hearth_train: %s is not a readable text of more than 1000 bytes\n", path);
    return -1;
}

static float *new_rows(int64_t rows, uint64_t seed, uint64_t first, float middle, float spread)
{
    float *out = malloc((size_t)rows * DIM * sizeof(*out));

    for (int64_t i = 0; out && i < rows * DIM; i++)
        out[i] = middle + spread * noise(seed ^ (first * DIM + (uint64_t)i));
    return out;
}

/* No value is zero and no two are alike: a page that got lost or mixed up would show. */
int model_init(struct model *model, uint32_t rank, uint32_t world, uint64_t shard_bytes)
{
    const uint64_t row_bytes = 3 * DIM * sizeof(float);
    uint64_t first;

    memset(model, 0, sizeof(*model));
    model->rank = rank;
    model->world = world;
    model->rows = (int64_t)((shard_bytes + row_bytes - 1) / row_bytes);
    first = rank * (uint64_t)model->rows;
    model->table = new_rows(model->rows, 1ull << 60, first, 0, 0.1f);
    model->momentum = new_rows(model->rows, 2ull << 60, first, 0, 1e-4f);
    model->squares = new_rows(model->rows, 3ull << 60, first, 0.1f, 1e-3f);
    for (size_t i = 0; i < DENSE; i++)
        model->dense[i] = 0.1f * noise((4ull << 60) + i);
    if (model->table && model->momentum && model->squares)
        return 0;
    fprintf(stderr, "hearth_train: no memory for a shard of %llu bytes\n",
            (unsigned long long)shard_bytes);
    model_fini(model);
    return -1;
}

void model_fini(struct model *model)
{
    free(model->table);
    free(model->momentum);
    free(model->squares);
    model->table = model->momentum = model->squares = NULL;
}

uint64_t model_bytes(const struct model *model)
{
    return (uint64_t)model->rows * DIM * sizeof(float) * 3 + sizeof(model->dense) * 2 +
           sizeof(model->step);
}

/* The positions of this rank in this step, their contexts as global rows, and what follows. */
void model_batch(const struct model *model, const struct text *text, struct batch *batch)
{
    const uint64_t all_rows = (uint64_t)model->rows * model->world;
    const uint64_t place = ((uint64_t)model->step * model->world + model->rank) * BATCH;

    for (size_t i = 0; i < BATCH; i++) {
        size_t at = ORDERS + mix((5ull << 60) + place + i) % (text->len - ORDERS);
        uint64_t context = 0;

        batch->next[i] = text->bytes[at];
        for (size_t k = 0; k < ORDERS; k++) {
            context = context << 8 | text->bytes[at - 1 - k];
            batch->row[i * ORDERS + k] = (uint32_t)(mix((k + 6) << 56 ^ context) % all_rows);
        }
    }
}

/* out[VOCAB]: softmax of bias + hidden × matrix. */
static void predict(const struct model *model, const float *hidden, float *out)
{
    float most = -INFINITY, sum = 0;

    memcpy(out, model->dense + DIM * VOCAB, VOCAB * sizeof(*out));
    for (size_t d = 0; d < DIM; d++)
        for (size_t v = 0; v < VOCAB; v++)
            out[v] += hidden[d] * model->dense[d * VOCAB + v];
    for (size_t v = 0; v < VOCAB; v++)
        most = out[v] > most ? out[v] : most;
    for (size_t v = 0; v < VOCAB; v++)
        sum += out[v] = expf(out[v] - most);
    for (size_t v = 0; v < VOCAB; v++)
        out[v] /= sum;
}

/* out[VOCAB] is the gradient of the outputs; adds to batch->dense, sets that of the hidden sum. */
static void backward(
        const struct model *model, struct batch *batch, const float *out, float *hidden)
{
    for (size_t d = 0; d < DIM; d++) {
        const float *matrix = model->dense + d * VOCAB;
        float *gradient = batch->dense + d * VOCAB;
        float sum = 0;

        for (size_t v = 0; v < VOCAB; v++) {
            sum += out[v] * matrix[v];
            gradient[v] += out[v] * hidden[d];
        }
        hidden[d] = sum;
    }
    for (size_t v = 0; v < VOCAB; v++)
        batch->dense[DIM * VOCAB + v] += out[v];
}

/* The loss summed over the batch, in nats. */
double model_gradients(const struct model *model, struct batch *batch)
{
    double loss = 0;
    float out[VOCAB];

    memset(batch->dense, 0, sizeof(batch->dense));
    for (size_t i = 0; i < BATCH; i++) {
        float(*rows)[DIM] = &batch->embedded[i * ORDERS];
        float hidden[DIM] = { 0 };

        for (size_t k = 0; k < ORDERS; k++)
            for (size_t d = 0; d < DIM; d++)
                hidden[d] += rows[k][d];
        predict(model, hidden, out);
        loss -= log((double)out[batch->next[i]] + 1e-30);
        out[batch->next[i]] -= 1;
        backward(model, batch, out, hidden);
        for (size_t k = 0; k < ORDERS; k++)
            memcpy(rows[k], hidden, sizeof(hidden));
    }
    return loss;
}

/* Adagrad with momentum (Duchi, Hazan, Singer 2011); row is a global one of this rank. */
void model_update_row(struct model *model, uint32_t row, const float *gradient)
{
    size_t at = (row - (size_t)model->rank * (size_t)model->rows) * DIM;

    for (size_t d = 0; d < DIM; d++, at++) {
        model->squares[at] += gradient[d] * gradient[d];
        model->momentum[at] = DECAY * model->momentum[at] + gradient[d];
        model->table[at] -= RATE * model->momentum[at] / sqrtf(model->squares[at]);
    }
}

void model_update_dense(struct model *model, const float *gradient)
{
    const float rate = RATE / (float)(BATCH * model->world);

    for (size_t i = 0; i < DENSE; i++) {
        model->dense_momentum[i] = DECAY * model->dense_momentum[i] + gradient[i];
        model->dense[i] -= rate * model->dense_momentum[i];
    }
}

void model_sha256(const struct model *model, unsigned char out[32])
{
    const size_t bytes = (size_t)model->rows * DIM * sizeof(float);
    crypto_hash_sha256_state state;

    crypto_hash_sha256_init(&state);
    crypto_hash_sha256_update(&state, (const unsigned char *)model->table, bytes);
    crypto_hash_sha256_update(&state, (const unsigned char *)model->momentum, bytes);
    crypto_hash_sha256_update(&state, (const unsigned char *)model->squares, bytes);
    crypto_hash_sha256_update(&state, (const unsigned char *)model->dense, sizeof(model->dense));
    crypto_hash_sha256_update(
            &state, (const unsigned char *)model->dense_momentum, sizeof(model->dense_momentum));
    crypto_hash_sha256_final(&state, out);
}

void sha256(const void *bytes, size_t len, unsigned char out[32])
{
    crypto_hash_sha256(out, bytes, len);
}
