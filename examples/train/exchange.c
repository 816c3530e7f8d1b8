/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The exchange of rows between ranks in a step, over MPI. A rank requests rows from each owner,
 * receives them, and later sends the gradients back the same way. Data of several ranks is used in
 * rank order, so sums are the same bits in every run.
 */
#include "train.h"

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct {
    int world;
    int *ask, *ask_at, *serve, *serve_at; /* [world] rows: asked of r, asked by r, and where */
    int *bytes, *bytes_at, *peer_bytes, *peer_at;
    uint32_t asked[ASKED]; /* rows, owner by owner */
    uint32_t place[ASKED]; /* where in the batch each of them belongs */
    float values[ASKED][DIM];
    uint32_t *wanted;   /* [world * ASKED] rows others want of us, rank by rank */
    float (*rows)[DIM]; /* [world * ASKED] */
    char *gathered;     /* [world] dense gradient and notice */
} x;

static void *array(size_t count, size_t size)
{
    void *out = calloc(count, size);

    if (!out) {
        fprintf(stderr, "hearth_train: no memory for the exchange\n");
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    return out;
}

int exchange_open(uint32_t world)
{
    int **tables[] = { &x.ask, &x.ask_at, &x.serve, &x.serve_at, &x.bytes, &x.bytes_at,
        &x.peer_bytes, &x.peer_at };

    x.world = (int)world;
    for (size_t i = 0; i < sizeof(tables) / sizeof(tables[0]); i++)
        *tables[i] = array(world, sizeof(int));
    x.wanted = array((size_t)world * ASKED, sizeof(*x.wanted));
    x.rows = array((size_t)world * ASKED, sizeof(*x.rows));
    x.gathered = array(world, DENSE * sizeof(float) + sizeof(struct notice));
    return 0;
}

void exchange_close(void)
{
    free(x.ask);
    free(x.ask_at);
    free(x.serve);
    free(x.serve_at);
    free(x.bytes);
    free(x.bytes_at);
    free(x.peer_bytes);
    free(x.peer_at);
    free(x.wanted);
    free(x.rows);
    free(x.gathered);
}

static void places(const int *count, int *at)
{
    for (int r = 0, sum = 0; r < x.world; sum += count[r++])
        at[r] = sum;
}

/* The batch's rows, sorted by owner (stable), and what each rank wants of us. */
static void ask(const struct model *model, const struct batch *batch)
{
    int fill[1024];

    memset(x.ask, 0, (size_t)x.world * sizeof(*x.ask));
    for (size_t i = 0; i < ASKED; i++)
        x.ask[batch->row[i] / (uint64_t)model->rows]++;
    places(x.ask, x.ask_at);
    memcpy(fill, x.ask_at, (size_t)x.world * sizeof(*fill));
    for (size_t i = 0; i < ASKED; i++) {
        int at = fill[batch->row[i] / (uint64_t)model->rows]++;

        x.asked[at] = batch->row[i];
        x.place[at] = (uint32_t)i;
    }
    MPI_Alltoall(x.ask, 1, MPI_INT, x.serve, 1, MPI_INT, MPI_COMM_WORLD);
    places(x.serve, x.serve_at);
    MPI_Alltoallv(x.asked, x.ask, x.ask_at, MPI_UINT32_T, x.wanted, x.serve, x.serve_at,
            MPI_UINT32_T, MPI_COMM_WORLD);
}

/* The same counts in floats. */
static void in_floats(void)
{
    for (int r = 0; r < x.world; r++) {
        x.bytes[r] = x.ask[r] * DIM;
        x.bytes_at[r] = x.ask_at[r] * DIM;
        x.peer_bytes[r] = x.serve[r] * DIM;
        x.peer_at[r] = x.serve_at[r] * DIM;
    }
}

static int served(void)
{
    return x.serve_at[x.world - 1] + x.serve[x.world - 1];
}

void exchange_rows(const struct model *model, struct batch *batch)
{
    const uint64_t first = model->rank * (uint64_t)model->rows;

    ask(model, batch);
    in_floats();
    for (int i = 0; i < served(); i++)
        memcpy(x.rows[i], model->table + (x.wanted[i] - first) * DIM, sizeof(x.rows[i]));
    MPI_Alltoallv(x.rows, x.peer_bytes, x.peer_at, MPI_FLOAT, x.values, x.bytes, x.bytes_at,
            MPI_FLOAT, MPI_COMM_WORLD);
    for (size_t i = 0; i < ASKED; i++)
        memcpy(batch->embedded[x.place[i]], x.values[i], sizeof(x.values[i]));
}

void exchange_gradients(struct model *model, const struct batch *batch)
{
    for (size_t i = 0; i < ASKED; i++)
        memcpy(x.values[i], batch->embedded[x.place[i]], sizeof(x.values[i]));
    MPI_Alltoallv(x.values, x.bytes, x.bytes_at, MPI_FLOAT, x.rows, x.peer_bytes, x.peer_at,
            MPI_FLOAT, MPI_COMM_WORLD);
    for (int i = 0; i < served(); i++) /* rank by rank, each in its own order */
        model_update_row(model, x.wanted[i], x.rows[i]);
}

void exchange_dense(float *gradient, const struct notice *mine, struct notice *all)
{
    char message[DENSE * sizeof(float) + sizeof(*mine)];

    memcpy(message, gradient, DENSE * sizeof(float));
    memcpy(message + DENSE * sizeof(float), mine, sizeof(*mine));
    MPI_Allgather(message, sizeof(message), MPI_BYTE, x.gathered, sizeof(message), MPI_BYTE,
            MPI_COMM_WORLD);
    memset(gradient, 0, DENSE * sizeof(float));
    for (int r = 0; r < x.world; r++) {
        const char *from = x.gathered + (size_t)r * sizeof(message);

        memcpy(x.values, from, DENSE * sizeof(float));
        for (size_t i = 0; i < DENSE; i++)
            gradient[i] += (&x.values[0][0])[i];
        memcpy(&all[r], from + DENSE * sizeof(float), sizeof(*all));
    }
}

void exchange_all(const void *mine, size_t len, void *all)
{
    MPI_Allgather(mine, (int)len, MPI_BYTE, all, (int)len, MPI_BYTE, MPI_COMM_WORLD);
}
